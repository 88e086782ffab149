// Numbers and times for people, and elements made of texts. Texts go into text nodes and attributes
// only, never into markup: names of devices come from outside.

export const element = (id) => document.getElementById(id);
export const write = (id, text) => { element(id).textContent = text; };
export const count = (number) => number.toLocaleString("en");
export const plural = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;
export const small = (number) => `${Number(number.toPrecision(3))}`;
export const far = (metres) =>
  metres < 1000 ? `${metres.toFixed(0)} m` : `${small(metres / 1000)} km`;

// Never "0 %" while something is left, nor "100 %" once something is gone.
export function percent(share) {
  if (share > 0 && share < 0.005) return "less than 1 %";
  if (share < 1 && share >= 0.995) return "more than 99 %";
  return `${(100 * share).toFixed(0)} %`;
}

// Times are in the time zone of the policy, whose days have a budget each.
let clock;

export function setZone(name) {
  const options = { dateStyle: "medium", timeStyle: "medium" };
  try {
    clock = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: name });
  } catch { // a zone that this browser does not know
    clock = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC" });
  }
  return clock.resolvedOptions().timeZone;
}

export const when = (at) => clock.format(new Date(at));

export const place = ({ lat, lon }) =>
  `${Math.abs(lat).toFixed(5)}° ${lat < 0 ? "S" : "N"}, ` +
  `${Math.abs(lon).toFixed(5)}° ${lon < 0 ? "W" : "E"}`;

export const rough = ({ kind, accuracy_m: metres }) => {
  if (kind === "untested") return ", an untested guess";
  return kind === "hard" && Number.isFinite(metres) ? `, give or take ${far(metres)}` : "";
};

export function cost(release, total) {
  if (!release.cost) return "nothing";
  const hundredths = (100 * release.cost) / total;
  return hundredths >= 0.01 ? `${Number(hundredths.toPrecision(2))} %` : "under 0.01 %";
}

// Rows of texts. The roles are explicit because a narrow page lays rows out in another way.
export function fill(id, rows, classes) {
  element(id).replaceChildren(...rows.map((texts) => {
    const line = document.createElement("tr");
    line.setAttribute("role", "row");
    line.append(...texts.map((text, i) => {
      const cell = document.createElement("td");
      cell.setAttribute("role", "cell");
      cell.className = classes[i];
      cell.textContent = text;
      return cell;
    }));
    return line;
  }));
}
