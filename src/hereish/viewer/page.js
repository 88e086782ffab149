// The texts of the page, and what happens when another day is chosen.

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
  const listed = kinds.filter(([name, n]) => name !== "unknown" && (n || !view.kinds.at(-1)));
  const { budget } = view;
  element("tiles").replaceChildren(
    tile(`reports for ${count(view.points)} points`, count(view.reports)),
    ...listed.map(([name, n]) => tile(name, count(n))),
    tile(REFUSED, count(view.points - view.reports - view.thinned)),
    ...(apart ? [tile(`left out, within ${apart} of another`, count(view.thinned))] : []),
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
  const text = element("guarantee");
  const { guarantee } = pageData;
  text.textContent = guarantee?.statement ?? "The reported file does not tell its guarantee.";
  if (guarantee && !guarantee.private) {
    text.classList.add("bad");
    if (!guarantee.statement.startsWith("NOT PRIVATE")) {
      text.textContent = `NOT PRIVATE. ${guarantee.statement}`;
    }
  }
  element("zone").textContent = pageData.zone;
  element("refused").textContent = REFUSED;
  element("no-report").textContent = apart
    ? `The budget refused it. Points within ${apart} of one before were left out, and have no mark.`
    : "The budget refused it, or it was left out.";
  element("how").textContent = coarse
    ? "Tap a reported position to see which times it served. Drag to move, + and − zoom."
    : "Hover over a reported position to see which times it served. Turn the wheel or draw a " +
      "box to zoom, double-click to see everything again.";
  const notes = [];
  if (pageData.unmatched) {
    notes.push(`${count(pageData.unmatched)} reports have no true point of the same person and ` +
      "time and are not shown. Do the two files belong together?");
  }
  if (pageData.left_out) {
    notes.push(`${count(pageData.left_out)} more days did not fit this page.`);
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
  const own = [...pageData.views.keys()].filter((i) => pageData.views[i].user === user);
  options(element("day"), own.map((i) => [i, pageData.views[i].day ?? "all days"]));
}

async function show() {
  view = pageData.views[Number(element("day").value)];
  writeTiles();
  await drawMap();
  mark([]);
  drawBudget();
  drawErrors();
  drawHistogram();
}

const users = [...new Set(pageData.views.map(({ user }) => user))];
options(element("person"), users.map((user) => [user, pageData.users[user] || "everybody"]));
chooseDays();
writeOnce();
element("person").addEventListener("change", () => { chooseDays(); show(); });
element("day").addEventListener("change", show);
element("choice").addEventListener("submit", (event) => event.preventDefault());
for (const query of ["(prefers-color-scheme: dark)", NARROW]) {
  matchMedia(query).addEventListener("change", show);
}
show().then(listen);
