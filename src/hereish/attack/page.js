"use strict";
// Draws the data in this page. Texts from files go into text nodes only, never into markup.

const pageData = JSON.parse(document.getElementById("page-data").textContent);
const element = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.body).getPropertyValue(`--${name}`).trim();
const METRES_A_DEGREE = (Math.PI / 180) * 6371008.8;

function fill(id, rows) {
  element(id).replaceChildren(
    ...rows.flatMap(([name, value]) => {
      const [term, text] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      text.textContent = value;
      return [term, text];
    }),
  );
}

function layout(more) {
  const axis = { gridcolor: colour("grid"), linecolor: colour("line"), zeroline: false, automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") },
    margin: { l: 8, r: 12, t: 8, b: 8 },
    hovermode: "closest",
    legend: { orientation: "h", x: 0, y: 1, xanchor: "left", yanchor: "bottom" },
    ...more,
    xaxis: { ...axis, ...more.xaxis },
    yaxis: { ...axis, ...more.yaxis },
  };
}

const draw = (id, traces, more) =>
  Plotly.react(id, traces, layout(more), {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
    showSendToCloud: false,
    plotlyServerURL: "",
  });

function circle(place) {
  const turns = Array.from({ length: 65 }, (_, i) => (2 * Math.PI * i) / 64);
  const degrees = place.radius_m / METRES_A_DEGREE;
  const wider = 1 / Math.max(Math.cos((place.lat * Math.PI) / 180), 1e-6);
  return {
    lat: turns.map((turn) => place.lat + degrees * Math.sin(turn)),
    lon: turns.map((turn) => place.lon + degrees * wider * Math.cos(turn)),
  };
}

function usual(name, place, ink) {
  if (place === null) return [];
  const ring = circle(place);
  return [
    { name, x: ring.lon, y: ring.lat, mode: "lines", line: { color: colour(ink), width: 2 }, hoverinfo: "skip" },
    { name: `${name}, best guess`, x: [place.lon], y: [place.lat], mode: "markers",
      marker: { color: colour(ink), size: 13, symbol: "x" }, showlegend: false },
  ];
}

function show(person) {
  fill("details", person.rows);
  const middle = person.track.lat[0] ?? 0;
  const traces = [
    { name: "released", x: person.released.lon, y: person.released.lat, mode: "markers",
      marker: { color: colour("reported"), size: 5, opacity: 0.4 } },
    { name: "the observer's track", x: person.track.lon, y: person.track.lat, mode: "lines+markers",
      line: { color: colour("plain"), width: 1 }, marker: { size: 4 } },
  ];
  if (person.places.lat.length > 0) {
    traces.push({ name: "places with stays", x: person.places.lon, y: person.places.lat, mode: "markers",
      text: person.places.hours.map((hours) => `${hours} hours`), marker: { color: colour("plain"), size: 9, symbol: "circle-open" } });
  }
  if (person.roads !== null) {
    traces.push({ name: "on the roads", x: person.roads.lon, y: person.roads.lat, mode: "markers",
      marker: { color: colour("easy"), size: 4, symbol: "square" } });
  }
  if (person.truth !== null) {
    traces.push({ name: "the truth", x: person.truth.lon, y: person.truth.lat, mode: "lines+markers",
      line: { color: colour("true-late"), width: 1 }, marker: { size: 4 } });
  }
  traces.push(...usual("home", person.home, "bad"), ...usual("work", person.work, "easy"));
  draw("map", traces, {
    xaxis: { title: { text: "longitude" } },
    yaxis: { title: { text: "latitude" }, scaleanchor: "x",
      scaleratio: 1 / Math.max(Math.cos((middle * Math.PI) / 180), 1e-6) },
  });
  const times = person.at_ms.map((ms) => new Date(ms).toISOString().slice(0, 19));
  draw("regions", [
    { name: "90 %", x: times, y: person.region_90_m, mode: "lines", line: { color: colour("reported") } },
    { name: "50 %", x: times, y: person.region_50_m, mode: "lines", line: { color: colour("plain") } },
  ], { xaxis: { type: "date" }, yaxis: { title: { text: "metres" }, rangemode: "tozero" } });
  const home = person.home ?? { sure: [0, 0, 0] };
  draw("home", [{ type: "bar", x: ["50 m", "200 m", "500 m"], y: home.sure.map((share) => 100 * share),
    marker: { color: colour("plain") } }], { yaxis: { title: { text: "%" }, range: [0, 100] } });
}

element("warning").hidden = !pageData.scored;
element("guarantee").textContent = pageData.statement ?? "";
element("zone").textContent = pageData.zone;
fill("summary", pageData.summary);
if (pageData.left_out > 0) {
  const note = document.createElement("li");
  note.textContent = `${pageData.left_out} more people are counted above and not drawn.`;
  element("notes").append(note);
  element("notes").hidden = false;
}
const choice = element("person");
pageData.people.forEach((person, number) => {
  const option = document.createElement("option");
  option.value = number;
  option.textContent = person.user || "everybody in the file";
  choice.append(option);
});
element("person-label").hidden = pageData.people.length < 2;
choice.addEventListener("change", () => show(pageData.people[Number(choice.value)]));
show(pageData.people[0]);
