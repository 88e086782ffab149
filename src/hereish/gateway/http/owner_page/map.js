// The map: releases as marks, without a background. Tiles would tell a third party where you look.
//
// Each release is put at its true distance and bearing from the middle of all (an azimuthal
// equidistant projection). Near the middle this is the usual flat map with the right aspect, and
// neither the antimeridian nor a pole is a special place in it.

import { far } from "./format.js";

const EARTH_M = 6371008.8;
const MOST_PX_PER_M = 4;
const NEAR_PX = 24; // a pointer this near a mark means it
const MARGIN_PX = 32;
const STEP = 1.6; // of the zoom
export const SHAPES = {
  hard: "M6,0A6,6 0 1 1 -6,0A6,6 0 1 1 6,0Z",
  easy: "M0,-7L6.5,5L-6.5,5Z",
  untested: "M-5,-5H5V5H-5Z",
  other: "M-5,-5L5,5M5,-5L-5,5",
};
export const kindOf = ({ kind }) => (Object.hasOwn(SHAPES, kind) ? kind : "other");

const radians = (degrees) => (degrees * Math.PI) / 180;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function set(drawn, attributes) {
  for (const [name, value] of Object.entries(attributes)) drawn.setAttribute(name, value);
  return drawn;
}

const draw = (name, attributes = {}) =>
  set(document.createElementNS("http://www.w3.org/2000/svg", name), attributes);

function middle(places) {
  let [x, y, z] = [0, 0, 0];
  for (const { lat, lon } of places) {
    x += Math.cos(radians(lat)) * Math.cos(radians(lon));
    y += Math.cos(radians(lat)) * Math.sin(radians(lon));
    z += Math.sin(radians(lat));
  }
  return { lat: Math.atan2(z, Math.hypot(x, y)), lon: Math.atan2(y, x) };
}

// Metres to the east and to the north of the middle.
function project(place, centre) {
  const [lat, turn] = [radians(place.lat), radians(place.lon) - centre.lon];
  const half = 2 * Math.cos(lat) * Math.sin(turn / 2) ** 2; // exact where places are close
  const east = Math.cos(lat) * Math.sin(turn);
  const north = Math.sin(lat - centre.lat) + Math.sin(centre.lat) * half;
  const ahead = Math.cos(lat - centre.lat) - Math.cos(centre.lat) * half;
  const sine = Math.hypot(east, north);
  const stretch = sine > 0 ? (EARTH_M * Math.atan2(sine, ahead)) / sine : EARTH_M;
  return { x: east * stretch, y: north * stretch };
}

// 1, 2 or 5 with zeros, not below `least`.
function round(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((step) => step * power >= least * 0.999);
}

export class ReleaseMap {
  // `label` makes the text of a release; `onLook` is called with the one that is looked at and how
  // many others lie at the very same place.
  constructor(svg, onLook, label) {
    Object.assign(this, { svg, onLook, label });
    for (const name of ["grid", "reaches", "line", "ring", "marks", "scale"]) {
      this[name] = svg.appendChild(draw("g", { class: name }));
    }
    this.clear();
    this.listen();
  }

  clear() {
    Object.assign(this, { points: [], circles: [], chosen: null, moved: false });
    for (const layer of this.svg.children) layer.replaceChildren();
  }

  // Releases come newest first and are drawn oldest first, so that the newest lies on top.
  show(releases) {
    const focused = this.svg.contains(document.activeElement);
    const old = this.chosen?.release;
    if (!releases.length) return this.clear();
    if (!this.moved) this.centre = middle(releases);
    const circles = new Map(); // many releases at one place have one circle
    this.points = [...releases].reverse().map((release) => {
      const point = { release, ...project(release, this.centre) };
      const kind = kindOf(release);
      const attributes = { tabindex: -1, role: "img", "aria-label": this.label(release) };
      point.mark = draw("path", { d: SHAPES[kind], class: kind, ...attributes });
      const metres = release.accuracy_m;
      const circle = { point, metres, drawn: draw("circle") };
      if (metres > 0) circles.set(`${point.x} ${point.y} ${metres}`, circle);
      return point;
    });
    this.circles = [...circles.values()];
    this.marks.replaceChildren(...this.points.map(({ mark }) => mark));
    this.reaches.replaceChildren(...this.circles.map(({ drawn }) => drawn));
    this.line.replaceChildren(draw("polyline"));
    this.ring.replaceChildren(draw("circle", { r: 11 }));
    if (!this.moved) this.frame();
    this.place();
    const same = ({ release }) => release.at === old?.at && release.device === old?.device;
    this.choose(this.points.find(same) ?? this.points.at(-1), focused);
  }

  // See all releases, and the circle of the newest.
  frame() {
    const { width, height } = this.size();
    const { x, y, release } = this.points.at(-1);
    const metres = Math.max(release.accuracy_m || 0, 50);
    const [low, high] = [{ x: x - metres, y: y - metres }, { x: x + metres, y: y + metres }];
    for (const point of this.points) {
      for (const axis of ["x", "y"]) {
        low[axis] = Math.min(low[axis], point[axis]);
        high[axis] = Math.max(high[axis], point[axis]);
      }
    }
    const scales = [(width - 2 * MARGIN_PX) / (high.x - low.x),
      (height - 2 * MARGIN_PX) / (high.y - low.y)];
    this.fitted = Math.min(...scales, MOST_PX_PER_M);
    this.view = { x: (low.x + high.x) / 2, y: (low.y + high.y) / 2, scale: this.fitted };
  }

  fit() {
    this.moved = false; // by hand; otherwise new releases leave the view alone
    this.show(this.points.map(({ release }) => release).reverse());
  }

  pan(dx, dy) {
    this.view.x -= dx / this.view.scale;
    this.view.y += dy / this.view.scale;
    this.moved = true;
    this.place();
  }

  // What is at this spot stays there.
  zoom(factor, spot = null) {
    const { width, height } = this.size();
    const { scale } = this.view;
    const [dx, dy] = spot ? [spot.x - width / 2, spot.y - height / 2] : [0, 0];
    this.view.scale = clamp(scale * factor, this.fitted / 8, MOST_PX_PER_M);
    const shift = 1 - this.view.scale / scale;
    this.pan(dx * shift, dy * shift);
  }

  size() {
    const { width, height } = this.svg.getBoundingClientRect();
    return { width: Math.max(width, 120), height: Math.max(height, 120) };
  }

  // Put everything where the view wants it; marks keep their size.
  place() {
    const { width, height } = this.size();
    const { x, y, scale } = this.view;
    for (const point of this.points) {
      point.px = width / 2 + (point.x - x) * scale;
      point.py = height / 2 - (point.y - y) * scale;
      set(point.mark, { transform: `translate(${point.px} ${point.py})` });
    }
    for (const { drawn, point, metres } of this.circles) {
      set(drawn, { cx: point.px, cy: point.py, r: metres * scale });
    }
    const newest = this.points.at(-1);
    set(this.ring.firstChild, { cx: newest.px, cy: newest.py });
    const line = this.points.map(({ px, py }) => `${px},${py}`);
    set(this.line.firstChild, { points: line.join(" ") });
    // A grid of squares, and a scale bar as long as their sides.
    const metres = round(80 / scale);
    const side = metres * scale;
    const first = (from) => ((from % side) + side) % side;
    let d = "";
    for (let at = first(width / 2 - x * scale); at < width; at += side) d += `M${at},0V${height}`;
    for (let at = first(height / 2 + y * scale); at < height; at += side) d += `M0,${at}H${width}`;
    this.grid.replaceChildren(draw("path", { d }));
    const bar = draw("path", { d: `M12,${height - 14}v4h${side}v-4` });
    this.scale.replaceChildren(bar, draw("text", { x: 12, y: height - 19 }));
    this.scale.lastChild.textContent = far(metres);
  }

  choose(point, focus = false) {
    this.chosen?.mark.setAttribute("tabindex", -1);
    this.chosen = point;
    point.mark.setAttribute("tabindex", 0);
    if (focus) point.mark.focus({ preventScroll: true });
    this.look(point);
  }

  look({ release }) {
    const here = ({ release: { lat, lon } }) => lat === release.lat && lon === release.lon;
    this.onLook(release, this.points.filter(here).length - 1);
  }

  // Newer ones win where several are equally near.
  nearest({ x, y }) {
    let [found, least] = [null, NEAR_PX];
    for (const point of this.points) {
      const away = Math.hypot(point.px - x, point.py - y);
      if (away <= least) [found, least] = [point, away];
    }
    return found;
  }

  go(index) {
    this.choose(this.points[clamp(index, 0, this.points.length - 1)], true);
    const { width, height } = this.size();
    const { px, py } = this.chosen;
    if (px < 0 || py < 0 || px > width || py > height) this.pan(width / 2 - px, height / 2 - py);
  }

  zoomIn() { this.zoom(STEP); }
  zoomOut() { this.zoom(1 / STEP); }

  key(event) {
    const index = this.points.indexOf(this.chosen);
    const actions = {
      ArrowLeft: () => this.go(index - 1),
      ArrowRight: () => this.go(index + 1),
      Home: () => this.go(0),
      End: () => this.go(Infinity),
      "+": () => this.zoomIn(),
      "-": () => this.zoomOut(),
      0: () => this.fit(),
    };
    const shortcut = event.altKey || event.ctrlKey || event.metaKey; // of the browser
    if (shortcut || !Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  }

  move(event, now, down) {
    const before = down.get(event.pointerId);
    const other = [...down.keys()].find((id) => id !== event.pointerId);
    if (!before) return this.look(this.nearest(now) ?? this.chosen);
    down.set(event.pointerId, now);
    if (other === undefined) return this.pan(now.x - before.x, now.y - before.y);
    const { x, y } = down.get(other);
    const apart = (spot) => Math.max(Math.hypot(spot.x - x, spot.y - y), 10);
    this.zoom(apart(now) / apart(before), { x, y });
  }

  listen() {
    const { svg } = this;
    const down = new Map(); // where the fingers are, or the mouse
    const on = (name, action) => svg.addEventListener(name, (event) => {
      const { left, top } = svg.getBoundingClientRect();
      if (this.points.length) action(event, { x: event.clientX - left, y: event.clientY - top });
    });
    on("keydown", (event) => this.key(event));
    on("focusin", ({ target }) => {
      const point = this.points.find(({ mark }) => mark === target);
      if (point && point !== this.chosen) this.choose(point);
    });
    on("pointerdown", (event, spot) => {
      if (event.button) return;
      down.set(event.pointerId, spot);
      svg.setPointerCapture(event.pointerId);
      const point = this.nearest(spot);
      if (point) this.choose(point);
    });
    on("pointermove", (event, spot) => this.move(event, spot, down));
    for (const name of ["pointerup", "pointercancel"]) {
      svg.addEventListener(name, ({ pointerId }) => down.delete(pointerId));
    }
    on("pointerleave", () => this.look(this.chosen));
    new ResizeObserver(() => {
      if (!this.points.length) return;
      if (!this.moved) this.frame();
      this.place();
    }).observe(svg);
  }
}
