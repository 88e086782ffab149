// The map: the true trace, the reported positions, and which belongs to which.

const METRES_A_DEGREE = (Math.PI / 180) * 6371008.8;
const MOST_LINKS = 300; // lines between true and reported positions, of those that are drawn
let marked = []; // rows of the true trace whose lines are shown
let drawnMarks = ""; // what the marks on the map look like now

function placeText(i) {
  const { count: counts, times, kinds } = view.places;
  const listed = times[i].map((ms) => when(ms, withSeconds(times[i])));
  const more = counts[i] - listed.length;
  const kind = KINDS.map((name, k) => (kinds[i][k] ? `${count(kinds[i][k])} ${name}` : ""));
  const head = counts[i] === 1 ? "Served one time" : `Served ${count(counts[i])} times`;
  return (
    `<b>${head}</b><br>${lines(listed, (narrow() ? 3 : 4) - (view.day === null ? 1 : 0))}` +
    (more > 0 ? `<br>… and ${count(more)} more` : "") +
    `<br>${kind.filter(Boolean).join(", ")}`
  );
}

function links(rows) {
  const { lat, lon, place } = view.true;
  return rows.map((i) => [lon[i], lat[i], view.places.lon[place[i]], view.places.lat[place[i]]]);
}

function mapTraces() {
  const { at, lat, lon, place, error_m, thinned } = view.true;
  const rows = [...at.keys()];
  const served = rows.filter((i) => place[i] !== null);
  const refused = rows.filter((i) => place[i] === null && !thinned[i]);
  const every = Math.ceil(served.length / MOST_LINKS);
  const linked = served.filter((_, i) => i % every === 0);
  const ends = links(linked);
  const dense = rows.length > 1000;
  const biggest = Math.max(1, ...view.places.count);
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => at[0] + share * (at.at(-1) - at[0]));
  return [
    {
      name: "which belongs to which" + (linked.length < view.reports
        ? ` (${count(linked.length)} of ${count(view.reports)})` : ""),
      uid: "links",
      mode: "lines",
      x: ends.flatMap(([x, , X]) => [x, X, null]),
      y: ends.flatMap(([, y, , Y]) => [y, Y, null]),
      line: { color: colour("reported"), width: 0.7 },
      opacity: 0.35,
      hoverinfo: "skip",
    },
    {
      name: REFUSED,
      uid: "refused",
      mode: "markers",
      x: refused.map((i) => lon[i]),
      y: refused.map((i) => lat[i]),
      // Below the trace, so that many of them do not hide it.
      marker: {
        symbol: "circle-open",
        size: dense ? 9 : 11,
        color: colour("none"),
        opacity: dense ? 0.5 : 1,
        line: { width: 1.4 },
      },
      hoverinfo: "skip",
      visible: refused.length ? true : "legendonly",
      showlegend: refused.length > 0,
    },
    {
      name: "true trace (light is early)",
      uid: "true",
      mode: "lines+markers",
      x: lon,
      y: lat,
      line: { color: colour("true-late"), width: 1 },
      marker: {
        size: dense ? 4 : 7,
        color: at,
        cmin: at[0],
        cmax: at.at(-1),
        colorscale: [[0, colour("true-early")], [1, colour("true-late")]],
        line: { color: colour("card"), width: dense ? 0 : 0.8 },
        opacity: 1,
        showscale: at.length > 1 && !narrow(),
        colorbar: {
          orientation: "h",
          yref: "container",
          y: 0,
          yanchor: "bottom",
          ypad: 4,
          thickness: 8,
          len: 0.6,
          title: { text: "time of the true trace", side: "top", font: { size: 12 } },
          outlinewidth: 0,
          tickvals: ticks,
          ticktext: ticks.map((ms) => (view.day === null ? date(ms) : clock(ms, false))),
        },
      },
      text: rows.map((i) =>
        `<b>True position</b><br>${when(at[i])}<br>` +
        (thinned[i] ? `left out: within ${apart} of another`
          : place[i] === null ? REFUSED : `${far(error_m[i])} from its report`)),
      hovertemplate: "%{text}<extra></extra>",
    },
    {
      name: "reported positions",
      uid: "places",
      mode: "markers",
      x: view.places.lon,
      y: view.places.lat,
      marker: {
        size: view.places.count.map((n) => 12 + 24 * Math.sqrt((n - 1) / Math.max(biggest - 1, 1))),
        color: colour("reported"),
        opacity: 0.75,
        line: { color: colour("card"), width: 1.5 },
      },
      text: view.places.count.map((_, i) => placeText(i)),
      hovertemplate: "%{text}<extra></extra>",
    },
  ];
}
const PLACES = 3; // the number of the last of these traces

const squeeze = () => {
  const { lat } = view.true;
  const middle = (Math.min(...lat) + Math.max(...lat)) / 2;
  return Math.max(Math.cos((middle * Math.PI) / 180), 0.01);
};

function drawMap() {
  marked = [];
  drawnMarks = "";
  return draw(
    "map",
    mapTraces(),
    {
      uirevision: pageData.views.indexOf(view),
      dragmode: coarse ? "pan" : "zoom",
      // Fixed, because margins that follow the labels and axes that keep their shape never agree.
      margin: { l: 52, r: 12, t: 30, b: narrow() ? 110 : 76 },
      legend: narrow()
        ? { x: 0, xanchor: "left", yref: "container", y: 0, yanchor: "bottom" }
        : { orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom" },
      xaxis: { ticksuffix: "°", automargin: false },
      yaxis: {
        ticksuffix: "°",
        automargin: false,
        scaleanchor: "x",
        scaleratio: 1 / squeeze(),
      },
    },
    { scrollZoom: true, displayModeBar: coarse ? true : "hover" },
  );
}

// A bar of a round length, and lines from the position under the mouse to those it belongs to.
function mark(rows) {
  marked = rows;
  const [left, right] = element("map").layout.xaxis.range;
  const wide = (right - left) * METRES_A_DEGREE * squeeze();
  const power = 10 ** Math.floor(Math.log10(wide / 4));
  const long = [5, 2, 1].map((n) => n * power).find((metres) => metres <= wide / 4);
  const path = links(rows.slice(0, MOST_LINKS)).map(([x, y, X, Y]) => `M${x},${y}L${X},${Y}`);
  const key = `${long / wide} ${path.join("")}`;
  if (key === drawnMarks) return;
  drawnMarks = key;
  const bar = { xref: "x domain", yref: "y domain" };
  const [from, to] = [0.02, 0.02 + long / wide];
  const shapes = [
    { ...bar, type: "line", x0: from, x1: to, y0: 0.03, y1: 0.03,
      line: { color: colour("ink"), width: 2.5 } },
  ];
  if (path.length) {
    shapes.push({ type: "path", path: path.join(""), layer: "below",
      line: { color: colour("reported"), width: 1.8 } });
  }
  const annotations = [
    { ...bar, x: (from + to) / 2, xanchor: "center", y: 0.03, yanchor: "bottom", showarrow: false,
      text: long < 1000 ? `${long} m` : `${long / 1000} km`, font: { color: colour("ink") } },
  ];
  Plotly.relayout("map", { shapes, annotations });
}

function listen() {
  const map = element("map");
  map.on("plotly_hover", ({ points: [point] }) => {
    const { place } = view.true;
    const number = point.pointNumber;
    if (point.curveNumber === PLACES) {
      mark([...place.keys()].filter((i) => place[i] === number));
    } else {
      mark(place[number] === null ? [] : [number]);
    }
  });
  map.on("plotly_unhover", () => mark([]));
  map.on("plotly_afterplot", () => mark(marked)); // zoomed, or of another size
}
