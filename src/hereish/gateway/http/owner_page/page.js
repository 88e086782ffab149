// Signing in, fetching from the gateway, and showing its responses. All addresses are relative.

import { ReleaseMap, SHAPES, kindOf } from "./map.js";
import { cost, count, element, fill, forecast, percent, place, plural, rough, setZone, small, when,
  write } from "./format.js";

const TOKEN_KEY = "hereish.token"; // in the storage of this tab
// How far the ledger had come, for longer than this tab: sent back, it shows a gateway that was set
// back. Two gateways may share an origin.
const POSITION = "Hereish-Ledger-Position";
const POSITION_KEY = `hereish.position ${location.pathname}`;
const REFRESH_MS = 30000;
const PAGE = 500;
const NO_CONNECTION =
  "No connection to the gateway. Is this device online, and is the gateway running?";
const NOT_UNDERSTOOD =
  "The answer was not understood. Is something between this page and the gateway?";
const STATUS_MESSAGES = {
  401: "This token is not known here. Look it up in the settings of your device's app.",
  403: "This token may not see this page.",
  429: "Too many attempts. Wait a minute, then try again.",
  503: "The gateway is there but cannot answer now (503). Nothing is lost: try again in a minute.",
};

let session = null; // of the user who is signed in, or is just trying to
const map = new ReleaseMap(element("map"), showReadout, label);

async function fetchJson(path, { token, leave: { signal } }) {
  const headers = { Authorization: `Bearer ${token}`, Accept: "application/json" };
  const position = localStorage.getItem(POSITION_KEY);
  if (position !== null) headers[POSITION] = position;
  const settings = { headers, signal, cache: "no-store", redirect: "error" };
  const sendable = /^[\x21-\x7e]+$/.test(token); // a header holds nothing else
  const response = sendable
    ? await fetch(path, settings).catch(() => { throw new Error(NO_CONNECTION); })
    : { status: 401 };
  if (!response.ok) {
    const message = STATUS_MESSAGES[response.status] ??
      `The gateway could not answer (${response.status}).`;
    throw Object.assign(new Error(message), { status: response.status });
  }
  keepPosition(response.headers.get(POSITION));
  return response.json().catch(() => { throw new Error(NOT_UNDERSTOOD); });
}

const historyPath = (before) =>
  `v1/history?${new URLSearchParams({ limit: PAGE, ...(before && { before }) })}`;

// Of positions `era.number.sealed` the highest is kept.
const order = (position) => (position ?? "").split(".", 2).map(Number);

function keepPosition(position) {
  if (!/^\d{1,12}\.\d{1,15}\.[\w-]{1,200}$/.test(position ?? "")) return;
  const [era, number] = order(localStorage.getItem(POSITION_KEY));
  const [later, higher] = order(position);
  if (later < era || (later === era && higher < number)) return;
  localStorage.setItem(POSITION_KEY, position);
}

function showProblem(text) {
  write("problem", text);
  element("problem").hidden = !text;
}

// Errors of a session that has ended meanwhile are ignored.
async function attempt(action, whose = session) {
  try {
    await action(whose);
    if (session === whose) showProblem("");
  } catch (error) {
    if (session !== whose) return;
    if (error.status === 401) signOut();
    showProblem(error instanceof TypeError ? NOT_UNDERSTOOD : error.message);
  }
}

async function refresh(whose) {
  const budget = await fetchJson("v1/budget", whose); // alone: a wrong token is one wrong attempt
  const rest = ["v1/devices", historyPath()].map((path) => fetchJson(path, whose));
  const [devices, page] = await Promise.all(rest);
  if (session !== whose) return;
  sessionStorage.setItem(TOKEN_KEY, whose.token);
  merge(whose, page);
  Object.assign(whose, { total: budget.total, zone: setZone(budget.time_zone) });
  enter();
  element("content").hidden = false; // before it is drawn: a hidden map has no size
  showBudget(budget, devices.day);
  showDevices(devices);
  showReleases(whose);
  write("updated",
    `Updated at ${when(Date.now())}, and again every ${REFRESH_MS / 1000} s while you look.`);
}

const keyOf = ({ at, device }) => `${at} ${device}`;

// The newest page, and of the older ones that were fetched before, what follows it.
function merge(whose, { releases, next }) {
  const fresh = new Set(releases.map(keyOf));
  const meets = next !== null && whose.releases.some((release) => fresh.has(keyOf(release)));
  const last = meets ? Date.parse(releases.at(-1).at) : -Infinity;
  const older = whose.releases.filter(
    (release) => !fresh.has(keyOf(release)) && Date.parse(release.at) <= last);
  if (!older.length) whose.next = next;
  whose.releases = [...releases, ...older];
}

async function loadMore(whose) {
  const { next } = whose;
  const page = await fetchJson(historyPath(next), whose);
  if (session !== whose || whose.next !== next) return;
  const known = new Set(whose.releases.map(keyOf)); // should a rounded time let one in again
  const older = page.releases.filter((release) => !known.has(keyOf(release)));
  whose.releases = [...whose.releases, ...older];
  whose.next = page.next;
  showReleases(whose);
}

function limit({ window, remaining, total }) {
  const share = total > 0 ? remaining / total : 0;
  return `${percent(share)} is left of the budget that covers ${window}.`;
}

function showBudget(budget, today) {
  const share = budget.total > 0 ? Math.min(Math.max(budget.remaining / budget.total, 0), 1) : 0;
  const name = budget.window.includes(today) ? "today's budget" : "the budget";
  write("who", ` (${budget.user}, with the token of ${budget.device})`);
  write("left", `${percent(share)} of ${name} is left`);
  element("rest").setAttribute("width", `${100 * share}%`);
  element("bar").setAttribute("aria-valuenow", (100 * share).toFixed(1));
  element("bar").classList.toggle("low", share < 0.15 || budget.exhausted);
  const pace = budget.interval_s > 0 ? `, at most one every ${small(budget.interval_s)} s` : "";
  write("spent", `${percent(1 - share)} is spent (${small(budget.spent)} of ` +
    `${small(budget.total)}), on ${plural(budget.reports, "report")}${pace}.`);
  const full = budget.limits.find(({ remaining, total }) => remaining <= 1e-9 * total);
  let end = share > 0 ? "What is left is too little for another report" : "The budget is used up";
  if (full) end = `The budget that covers ${full.window} is used up`;
  write("exhausted",
    `${end}. Nothing new about where you are is released until a fresh budget begins.`);
  element("exhausted").hidden = !budget.exhausted;
  const expected = budget.exhausted ? null : budget.forecast;
  write("forecast", expected ? forecast(expected) : "");
  element("forecast").hidden = !expected;
  write("window", `This budget covers ${budget.window}.`);
  write("limits", budget.limits.map(limit).join(" "));
  element("limits").hidden = !budget.limits.length;
  write("policy", `It is spent like this: ${budget.policy}.`);
  write("guarantee", budget.guarantee);
  element("guarantee").classList.toggle("bad", budget.guarantee.startsWith("NOT PRIVATE"));
}

function showDevices({ day, devices }) {
  write("devices-about", devices.length
    ? `Points that your devices sent on ${day}. Not every point leads to a release.`
    : `No device has sent a point on ${day} yet.`);
  element("devices-table").hidden = !devices.length;
  const rows = devices.map(({ device, points_today: points }) => [device, count(points)]);
  fill("devices", rows, ["name", "number"]);
}

function label(release) {
  const { at } = release;
  return `${when(at)}, ${kindOf(release)}, cost ${cost(release, session.total)}${rough(release)}`;
}

function showReadout(release, others) {
  const more = others ? `; ${plural(others, "other release")} at the same place` : "";
  write("readout", label(release) + more);
}

function showReleases(whose) {
  const { releases, next, total, zone } = whose;
  const state = JSON.stringify([releases, next, total, zone]);
  if (whose.written === state) return; // leave focus and scrolling alone
  whose.written = state;
  const some = releases.length > 0;
  element("nothing").hidden = some;
  for (const id of ["map-box", "zoom", "readout", "legend", "releases-box"]) {
    element(id).hidden = !some;
  }
  map.show(releases);
  write("releases-about", some
    ? `The newest ${count(releases.length)}. Times are in the time zone ${zone}; costs are ` +
      "parts of a full budget."
    : "None yet.");
  const rows = releases.map((release) => [when(release.at), kindOf(release), cost(release, total),
    place(release) + rough(release), release.device]);
  fill("releases", rows, ["time", "kind", "number", "place", "name"]);
  element("more").hidden = next === null;
}

function enter() {
  element("welcome").hidden = true;
  element("sign-out").hidden = false;
  element("token").value = "";
}

function signOut() {
  sessionStorage.removeItem(TOKEN_KEY);
  session?.leave.abort();
  session = null;
  map.clear();
  for (const node of document.querySelectorAll("[data-private]")) node.replaceChildren();
  showProblem("");
  for (const id of ["content", "sign-out"]) element(id).hidden = true;
  element("welcome").hidden = false;
  element("token").value = "";
  element("token").focus();
}

async function signIn(token) {
  session?.leave.abort();
  session = { token, leave: new AbortController(), releases: [], next: null };
  await attempt(refresh);
}

async function refreshIfVisible() {
  const inside = session && element("welcome").hidden;
  if (inside && !document.hidden) await attempt(refresh);
}

async function whileDisabled(id, action) {
  element(id).disabled = true;
  await action();
  element(id).disabled = false;
}

for (const path of document.querySelectorAll("[data-shape]")) {
  path.setAttribute("d", SHAPES[path.dataset.shape]);
}
element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  whileDisabled("sign-in", () => signIn(element("token").value.trim()));
});
element("sign-out").addEventListener("click", signOut);
element("more").addEventListener("click", () => whileDisabled("more", () => attempt(loadMore)));
element("zoom-in").addEventListener("click", () => map.zoomIn());
element("zoom-out").addEventListener("click", () => map.zoomOut());
element("zoom-fit").addEventListener("click", () => map.fit());
document.addEventListener("visibilitychange", refreshIfVisible);
setInterval(refreshIfVisible, REFRESH_MS);

const kept = sessionStorage.getItem(TOKEN_KEY);
if (kept === null) signOut();
else {
  enter();
  signIn(kept);
}
