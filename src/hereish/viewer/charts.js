// The budget, the errors over time, and how large they were.

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
    const own = rows.filter((i) => kind[i] === k);
    return {
      name: name === "unknown" ? "report" : name,
      legendrank: k,
      mode: "markers",
      x: own.map((i) => at[i]),
      y: own.map((i) => error_m[i] / unit.metres),
      marker: { color: colour(name === "unknown" ? "none" : name), size: 7, opacity: 0.8 },
      text: own.map((i) => `${when(at[i])}<br>${far(error_m[i])}`),
      hovertemplate: "%{text}<extra></extra>",
    };
  });
  const refused = [...at.keys()].filter((i) => kind[i] === null && !view.true.thinned[i]);
  traces.push({
    name: REFUSED,
    legendrank: KINDS.length,
    mode: "markers",
    x: refused.map((i) => at[i]),
    y: refused.map(() => 0),
    marker: { symbol: "line-ns-open", color: colour("none"), size: 9 },
    text: refused.map((i) => when(at[i])),
    hovertemplate: `%{text}<br>${REFUSED}<extra></extra>`,
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
    margin: { l: 8, r: 12, t: coarse ? 40 : 66, b: 8 }, // the buttons are above the names
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
