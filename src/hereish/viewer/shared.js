"use strict";
// Draws the data in this page. Texts from files go into text nodes only, never into
// markup: Plotly reads some markup in its texts, so none of its texts holds anything from a file
// but numbers and times. This file, map.js, charts.js and page.js are one script.

const pageData = JSON.parse(document.getElementById("page-data").textContent);
const element = (id) => document.getElementById(id);
const KINDS = [...pageData.kinds, "unknown"];
const coarse = matchMedia("(pointer: coarse)").matches;
const NARROW = "(max-width: 760px)"; // as in the style sheet
const narrow = () => matchMedia(NARROW).matches;
let view = pageData.views[0];
// Of a true point without a report: whether it was refused is known where thinning is.
const REFUSED = pageData.every_s ? "refused" : "no report";

const count = (number) => number.toLocaleString("en");

const far = (metres) => {
  if (metres === null) return "–";
  return metres < 1000 ? `${metres.toFixed(0)} m` : `${(metres / 1000).toPrecision(3)} km`;
};

// How far apart points were taken, such as 30 min; null if all were taken, or nobody knows.
const apart = pageData.every_s && (pageData.every_s < 120
  ? `${+pageData.every_s.toFixed(3)} s`
  : pageData.every_s < 7200 ? `${+(pageData.every_s / 60).toFixed(1)} min`
    : `${+(pageData.every_s / 3600).toFixed(1)} h`);

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

function lines(texts, each) {
  const rows = [];
  for (let i = 0; i < texts.length; i += each) rows.push(texts.slice(i, i + each).join(", "));
  return rows.join(",<br>");
}

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
