"use strict";
// Draws the story that stands in this page. Texts from files go into text nodes only, never into
// markup: Plotly reads some markup in its texts, so none of its texts holds anything from a file
// but numbers and times.
(() => {
  const story = JSON.parse(document.getElementById("story").textContent);
  const element = (id) => document.getElementById(id);
  const METRES_A_DEGREE = (Math.PI / 180) * 6371008.8;
  const MOST_LINKS = 300; // lines between true and reported positions, of those that are drawn
  const KINDS = [...story.kinds, "unknown"];
  const coarse = matchMedia("(pointer: coarse)").matches;
  const NARROW = "(max-width: 760px)"; // as in the style sheet
  const narrow = () => matchMedia(NARROW).matches;
  let view = story.views[0];
  let marked = []; // rows of the true trace whose lines are shown
  let drawnMarks = ""; // what the marks on the map look like now

  // ---- words and numbers

  const count = (number) => number.toLocaleString("en");

  const far = (metres) => {
    if (metres === null) return "–";
    return metres < 1000 ? `${metres.toFixed(0)} m` : `${(metres / 1000).toPrecision(3)} km`;
  };

  const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

  const clock = (ms, withSeconds) => new Date(ms).toISOString().slice(11, withSeconds ? 19 : 16);

  const date = (ms) =>
    new Date(ms).toLocaleDateString("en-GB", { timeZone: "UTC", day: "numeric", month: "short" });

  // Minutes are enough unless reports come faster than that.
  const withSeconds = (times) => times.some((time, i) => i > 0 && time - times[i - 1] < 60000);

  const when = (ms, seconds = true) =>
    view.day === null ? `${date(ms)} ${clock(ms, seconds)}` : clock(ms, seconds);

  const colour = (name) => getComputedStyle(document.body).getPropertyValue(`--${name}`).trim();

  // Kilometres where metres would be long.
  const unitFor = (metres) =>
    metres >= 2000 ? { name: "km", metres: 1000 } : { name: "metres", metres: 1 };

  function lines(words, each) {
    const rows = [];
    for (let i = 0; i < words.length; i += each) rows.push(words.slice(i, i + each).join(", "));
    return rows.join(",<br>");
  }

  // ---- what all charts share

  function layout(more) {
    const font = getComputedStyle(document.body).fontFamily;
    const axis = {
      gridcolor: colour("grid"),
      linecolor: colour("line"),
      zeroline: false,
      automargin: true,
      ticks: "",
    };
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: font, size: 12, color: colour("soft") },
      margin: { l: 8, r: 12, t: 8, b: 8 },
      hovermode: "closest",
      hoverlabel: {
        align: "left",
        bgcolor: colour("card"),
        bordercolor: colour("soft"),
        font: { color: colour("ink"), size: 13, family: font },
      },
      modebar: {
        bgcolor: "rgba(0,0,0,0)",
        color: colour("none"),
        activecolor: colour("ink"),
      },
      legend: { orientation: "h", x: 0, y: 1, xanchor: "left", yanchor: "bottom" },
      dragmode: coarse ? false : "zoom",
      ...more,
      xaxis: { ...axis, ...more.xaxis },
      yaxis: { ...axis, ...more.yaxis },
    };
  }

  function draw(id, traces, more, config) {
    element(id).classList.remove("empty");
    return Plotly.react(id, traces, layout(more), {
      responsive: true,
      displaylogo: false,
      // Named one by one: by default there is a button that sends the chart, which holds the truth,
      // to a company.
      modeBarButtons: [
        ["toImage"],
        coarse ? [] : ["zoom2d", "pan2d"],
        ["zoomIn2d", "zoomOut2d", "resetScale2d"],
      ],
      showSendToCloud: false,
      plotlyServerURL: "",
      toImageButtonOptions: { filename: `true positions - ${id}`, scale: 2 },
      displayModeBar: coarse ? false : "hover",
      ...config,
    });
  }

  function instead(id, words) {
    Plotly.purge(id);
    element(id).classList.add("empty");
    element(id).textContent = words;
  }

  function timeAxis() {
    const { at } = view.true;
    const [first, last] = [at[0], at[at.length - 1]];
    const room = Math.max(60000, (last - first) * 0.03);
    return { type: "date", range: [first - room, last + room] };
  }

  // ---- the map

  function placeText(i) {
    const { count: counts, times, kinds } = view.places;
    const told = times[i].map((ms) => when(ms, withSeconds(times[i])));
    const more = counts[i] - told.length;
    const kind = KINDS.map((name, k) => (kinds[i][k] ? `${count(kinds[i][k])} ${name}` : ""));
    const head = counts[i] === 1 ? "Served one time" : `Served ${count(counts[i])} times`;
    return (
      `<b>${head}</b><br>${lines(told, view.day === null ? 3 : 4)}` +
      (more > 0 ? `<br>… and ${count(more)} more` : "") +
      `<br>${kind.filter(Boolean).join(", ")}`
    );
  }

  function links(rows) {
    const { lat, lon, place } = view.true;
    return rows.map((i) => [lon[i], lat[i], view.places.lon[place[i]], view.places.lat[place[i]]]);
  }

  function mapTraces() {
    const { at, lat, lon, place, error_m } = view.true;
    const rows = [...at.keys()];
    const served = rows.filter((i) => place[i] !== null);
    const refused = rows.filter((i) => place[i] === null);
    const every = Math.ceil(served.length / MOST_LINKS);
    const ends = links(served.filter((_, i) => i % every === 0));
    const dense = rows.length > 1000;
    const biggest = Math.max(1, ...view.places.count);
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => at[0] + share * (at.at(-1) - at[0]));
    return [
      {
        name: "which belongs to which",
        uid: "links",
        mode: "lines",
        x: ends.flatMap(([x, , X]) => [x, X, null]),
        y: ends.flatMap(([, y, , Y]) => [y, Y, null]),
        line: { color: colour("reported"), width: 0.7 },
        opacity: 0.35,
        hoverinfo: "skip",
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
          (place[i] === null ? "no report" : `${far(error_m[i])} from its report`)),
        hovertemplate: "%{text}<extra></extra>",
      },
      {
        name: "no report",
        uid: "refused",
        mode: "markers",
        x: refused.map((i) => lon[i]),
        y: refused.map((i) => lat[i]),
        marker: { symbol: "circle-open", size: dense ? 6 : 11, color: colour("none"), line: { width: 1.4 } },
        hoverinfo: "skip",
        visible: refused.length ? true : "legendonly",
        showlegend: refused.length > 0,
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
        uirevision: story.views.indexOf(view),
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

  // ---- the other charts

  function drawBudget() {
    const { budget } = view;
    const about = element("budget-about");
    if (budget === null) {
      about.textContent = "";
      instead("budget", "The reported file does not tell what each report cost.");
      return;
    }
    const level = budget.spent.map((s) => (s === null ? null : budget.shares ? 1 - s : s));
    about.textContent = budget.shares
      ? "What is left of the budget of its window after each report."
      : "What the reports cost, added up. The file does not tell its budget.";
    draw("budget", [
      {
        mode: "lines",
        x: budget.at,
        y: level,
        line: { color: colour("plain"), width: 2, shape: "hv" },
        fill: "tozeroy",
        hovertemplate: budget.shares
          ? "%{x|%H:%M:%S}<br>%{y:.1%} left<extra></extra>"
          : "%{x|%H:%M:%S}<br>%{y:.4g} spent<extra></extra>",
      },
    ], {
      hovermode: "x",
      showlegend: false,
      xaxis: timeAxis(),
      yaxis: budget.shares
        ? { tickformat: ".0%", range: [Math.min(0, 1 - budget.most_spent), 1.04] }
        : { rangemode: "tozero", title: { text: "cost" } },
    });
  }

  function drawErrors() {
    const { at, kind, error_m } = view.true;
    const rows = [...at.keys()].filter((i) => kind[i] !== null);
    const unit = unitFor(Math.max(0, ...rows.map((i) => error_m[i])));
    const traces = KINDS.map((name, k) => {
      const mine = rows.filter((i) => kind[i] === k);
      return {
        name: name === "unknown" ? "report" : name,
        legendrank: k,
        mode: "markers",
        x: mine.map((i) => at[i]),
        y: mine.map((i) => error_m[i] / unit.metres),
        marker: { color: colour(name === "unknown" ? "none" : name), size: 7, opacity: 0.8 },
        text: mine.map((i) => `${when(at[i])}<br>${far(error_m[i])}`),
        hovertemplate: "%{text}<extra></extra>",
      };
    });
    const refused = [...at.keys()].filter((i) => kind[i] === null);
    traces.push({
      name: "no report",
      legendrank: KINDS.length,
      mode: "markers",
      x: refused.map((i) => at[i]),
      y: refused.map(() => 0),
      marker: { symbol: "line-ns-open", color: colour("none"), size: 9 },
      text: refused.map((i) => when(at[i])),
      hovertemplate: "%{text}<br>no report<extra></extra>",
    });
    // The last is drawn above the others: the hard ones, which are few.
    draw("errors", traces.reverse().filter((trace) => trace.x.length), {
      showlegend: true,
      xaxis: timeAxis(),
      yaxis: { rangemode: "tozero", title: { text: unit.name } },
    });
  }

  function drawHistogram() {
    const { bins, mean_m, within_90_m } = view;
    const unit = unitFor(bins.width_m * bins.counts.length);
    const width = bins.width_m / unit.metres;
    const line = (metres, dash) => ({
      type: "line", yref: "y domain", y0: 0, y1: 1, x0: metres / unit.metres,
      x1: metres / unit.metres, line: { color: colour("ink"), width: 1.5, dash },
    });
    const last_m = bins.width_m * bins.counts.length;
    const name = (metres, text, row) => ({
      x: metres / unit.metres, yref: "y domain", y: 1, yanchor: "bottom", yshift: 15 * row,
      xanchor: metres > last_m / 2 ? "right" : "left", text, showarrow: false,
      font: { color: colour("ink") },
    });
    draw("histogram", [
      {
        type: "bar",
        x: bins.counts.map((_, i) => (i + 0.5) * width),
        y: bins.counts,
        width: bins.counts.map(() => width),
        marker: { color: colour("plain"), opacity: 0.75, line: { color: colour("card"), width: 1 } },
        text: bins.counts.map((_, i) => `${far(i * bins.width_m)} to ${far((i + 1) * bins.width_m)}`),
        textposition: "none",
        hovertemplate: "%{text}<br>%{y} reports<extra></extra>",
      },
    ], {
      showlegend: false,
      margin: { l: 8, r: 12, t: 40, b: 8 },
      bargap: 0,
      xaxis: { rangemode: "tozero", title: { text: unit.name } },
      yaxis: { title: { text: "reports" } },
      shapes: mean_m === null ? [] : [line(mean_m, "solid"), line(within_90_m, "dot")],
      annotations: mean_m === null ? [] : [
        name(mean_m, `average ${far(mean_m)}`, 0),
        name(within_90_m, `90 % within ${far(within_90_m)}`, 1),
      ],
    });
  }

  // ---- texts

  function tile(name, value) {
    const box = document.createElement("div");
    const title = document.createElement("dt");
    const number = document.createElement("dd");
    title.textContent = name;
    number.textContent = value;
    box.append(title, number);
    return box;
  }

  function writeTiles() {
    const kinds = KINDS.map((name, k) => [name, view.kinds[k]]);
    const told = kinds.filter(([name, n]) => name !== "unknown" && (n || !view.kinds.at(-1)));
    const { budget } = view;
    element("tiles").replaceChildren(
      tile(`reports for ${count(view.points)} points`, count(view.reports)),
      ...told.map(([name, n]) => tile(name, count(n))),
      tile("refused or left out", count(view.points - view.reports)),
      tile("average error", far(view.mean_m)),
      tile("90 % of errors within", far(view.within_90_m)),
      ...(budget?.shares ? [tile(view.day === null ? "budget used, at most" : "budget used",
        percent(budget.most_spent))] : []),
    );
    const drawn = view.true.at.length;
    element("thinned").textContent = drawn < view.points
      ? `${count(drawn)} of ${count(view.points)} true points are drawn; numbers are over all.`
      : "";
  }

  function writeOnce() {
    const guarantee = element("guarantee");
    const promise = story.promise;
    guarantee.textContent = promise?.guarantee ?? "The reported file does not tell its guarantee.";
    if (promise && !promise.private) {
      guarantee.classList.add("bad");
      if (!promise.guarantee.startsWith("NOT PRIVATE")) {
        guarantee.textContent = `NOT PRIVATE. ${promise.guarantee}`;
      }
    }
    element("zone").textContent = story.zone;
    element("how").textContent = coarse
      ? "Tap a reported position to see which times it served. Drag to move, + and − zoom."
      : "Hover over a reported position to see which times it served. Turn the wheel or draw a " +
        "box to zoom, double-click to see everything again.";
    const notes = [];
    if (story.strangers) {
      notes.push(`${count(story.strangers)} reports have no true point of the same person and ` +
        "time and are not shown. Do the two files belong together?");
    }
    if (story.left_out) {
      notes.push(`${count(story.left_out)} more days did not fit this page.`);
    }
    element("notes").replaceChildren(...notes.map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }));
    element("notes").hidden = !notes.length;
  }

  function options(select, choices) {
    select.replaceChildren(...choices.map(([value, text]) => {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = text;
      return option;
    }));
    select.parentElement.hidden = choices.length < 2;
  }

  function chooseDays() {
    const user = Number(element("person").value);
    const mine = [...story.views.keys()].filter((i) => story.views[i].user === user);
    options(element("day"), mine.map((i) => [i, story.views[i].day ?? "all days"]));
  }

  async function show() {
    view = story.views[Number(element("day").value)];
    writeTiles();
    await drawMap();
    mark([]);
    drawBudget();
    drawErrors();
    drawHistogram();
  }

  const users = [...new Set(story.views.map(({ user }) => user))];
  options(element("person"), users.map((user) => [user, story.users[user] || "everybody"]));
  chooseDays();
  writeOnce();
  element("person").addEventListener("change", () => { chooseDays(); show(); });
  element("day").addEventListener("change", show);
  element("choice").addEventListener("submit", (event) => event.preventDefault());
  for (const query of ["(prefers-color-scheme: dark)", NARROW]) {
    matchMedia(query).addEventListener("change", show);
  }
  show().then(listen);
})();
