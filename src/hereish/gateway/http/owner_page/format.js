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
let clock, hours;

export function setZone(name) {
  const options = { dateStyle: "medium", timeStyle: "medium" };
  let timeZone = name;
  try {
    clock = new Intl.DateTimeFormat("en-GB", { ...options, timeZone });
  } catch { // a zone that this browser does not know
    timeZone = "UTC";
    clock = new Intl.DateTimeFormat("en-GB", { ...options, timeZone });
  }
  hours = new Intl.DateTimeFormat("en-GB", { weekday: "short",
    hour: "2-digit", minute: "2-digit", timeZone });
  return clock.resolvedOptions().timeZone;
}

export const when = (at) => clock.format(new Date(at));
const around = (at) => hours.format(new Date(at));

// When the rest of the budget is expected to be spent. An end that is null does not come.
export function forecast(expected) {
  const { window_ends: over, looked_until: looked, lasts_share: share } = expected;
  const [early, typical, late] = [expected.ends_early, expected.ends_typical, expected.ends_late]
    .map((at) => at && around(at));
  if (typical) {
    const span = late ? `between ${early} and ${late}` : `from ${early} on`;
    return `What is left is expected to be spent at about ${typical} (${span}).`;
  }
  const until = looked === over
    ? `until ${around(over)}, when a fresh budget begins` : `beyond ${when(looked)}`;
  const often = share === null ? "some" : percent(1 - share);
  const rest = early ? `; on ${often} of ordinary days it is spent sooner, from ${early} on` : "";
  return `What is left is expected to last ${until}${rest}.`;
}

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
