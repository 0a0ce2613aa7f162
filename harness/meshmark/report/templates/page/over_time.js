/* SPDX-License-Identifier: Apache-2.0 */
// Over time: releases of JAX on one axis, machine by machine: verdicts, compiled bytes and collectives.
function series() {
  const by = new Map();
  for (const run of judgedRuns) {
    const name = `${CLASS[run.class]} · ${run.machine}`;
    if (!by.has(name)) by.set(name, []);
    if (!by.get(name).some((r) => r.release === run.release)) by.get(name).push(run);
  }
  return [...by].filter(([, list]) => list.length > 1).map(([name, list]) => ({ name, runs: list.slice().reverse() }));
}
// What the cases that every release has say of each release.
function releases(runs_) {
  const shared = runs_.map((r) => r.at).reduce((a, b) => new Map([...a].filter(([c]) => b.has(c))));
  return runs_.map((run) => {
    const j = run.judged, row = { run, cases: shared.size, pass: 0, known: 0, bad: 0, wire: 0, temp: 0, without: 0, programs: new Map() };
    for (const c of shared.keys()) {
      const i = run.at.get(c), v = V[j.verdict[i]];
      if (QUIETLY.has(v)) row.pass++; else if (v === "known") row.known++; else if (BAD.has(v)) row.bad++;
      if (j.wire[i] === null) row.without++; else row.wire += j.wire[i];
      if (j.temp[i] !== null) row.temp += j.temp[i];
      row.programs.set(c, S[j.kinds[i]]);
    }
    return row;
  });
}
// Times of the cells that each of these releases has on the same machine, beside the oldest: the median of their ratios.
function timesOver(runs_) {
  const of = runs_.map((run) => timed.find((m) => m.class === run.class && m.release === run.release && m.machine === run.machine));
  if (of.some((m) => !m)) return null;
  const maps = of.map((m) => new Map(m.times.filter((t) => t.mode === "manual" && t.median_s !== null).map((t) => [`${t.cell}/${t.cadence}`, t.median_s])));
  const shared = [...maps[0].keys()].filter((k) => maps.every((x) => x.has(k)));
  return shared.length ? { cells: shared.length, ratios: maps.map((x) => median(shared.map((k) => x.get(k) / maps[0].get(k)))) } : null;
}
// A line over releases: few points, each with its value beside it.
function trend(title, points, text, many = false) {
  const w = 330, h = 120, left = 12, right = 12, top = 26, bottom = 24, max = Math.max(...points.map((p) => p.y)) || 1;
  const said = (i) => !many || !i || i === points.length - 1 || text(points[i].y) !== text(points[i - 1].y), named = (i) => points.length < 7 || i % 2 === (points.length - 1) % 2;
  const x = (i) => left + 24 + i * (w - left - right - 60) / Math.max(1, points.length - 1), y = (v) => h - bottom - v / max * (h - top - bottom);  // from zero: a small change looks small
  return el("figure", {}, el("figcaption", {}, title), draw("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `${title}: ${points.map((p) => `${p.name} ${text(p.y)}`).join(", ")}` },
    draw("line", { x1: left, x2: w - right, y1: h - bottom + 1, y2: h - bottom + 1, class: "g-line" }),
    draw("polyline", { points: points.map((p, i) => `${x(i)},${y(p.y)}`).join(" "), class: "g-trend" }),
    points.map((p, i) => [draw("circle", { cx: x(i), cy: y(p.y), r: 4, class: "g-point" }), said(i) ? draw("text", { x: x(i), y: y(p.y) - (many && i % 2 ? 18 : 9), class: "g-text g-mid g-strong" }, text(p.y)) : "", named(i) ? draw("text", { x: x(i), y: h - 6, class: "g-text g-mid" }, p.name) : ""])));
}
function drawOverTime() {
  const all = series(), out = $("time-out");
  if (!all.length) { out.replaceChildren(el("p", { class: "soft" }, "Only one release of each machine here.")); return; }
  const chosen = options($("t-machine"), all.map((s) => [s.name, s.name]), state.tmachine), one = all.find((s) => s.name === chosen), list = releases(one.runs);
  const changed = list.map((row, k) => k ? [...row.programs].filter(([c, kinds]) => list[k - 1].programs.get(c) !== kinds).length : null);
  const points = (f) => list.map((row) => ({ name: row.run.release, y: f(row) })), taken = timesOver(one.runs);
  out.replaceChildren(...[el("p", {}, `The ${plural(list[0].cases, "case")} that each of these releases has.`),
    el("div", { class: "trends" }, trend("Cases that pass or compile", points((r) => r.pass), count), trend("Known issues and failures", points((r) => r.known + r.bad), count), trend("Bytes that a device sends, all programs together", points((r) => r.wire), bytes), trend("Temporary memory of a device, all programs together", points((r) => r.temp), bytes), taken ? trend(`Time of manual mode over JAX ${one.runs[0].release}, median of ${plural(taken.cells, "cell")}`, one.runs.map((run, i) => ({ name: run.release, y: taken.ratios[i] })), (y) => y.toFixed(2)) : ""),
    taken ? el("p", { class: "soft" }, "Times are of runs at different times, one process each or more: a trend in them is no tested difference.") : "",
    grid("time", `Releases on ${one.name}`, [
      { name: "JAX", text: (r) => r.row.run.release, cls: "nowrap" }, { name: "jaxlib", text: (r) => r.row.run.jaxlib, cls: "nowrap" }, ...(one.runs.some((r) => r.compiler) ? [{ name: "compiler", text: (r) => r.row.run.compiler, cls: "nowrap" }] : []),
      { name: "pass", num: true, text: (r) => count(r.row.pass) }, { name: "known", num: true, text: (r) => count(r.row.known) }, { name: "failures", num: true, text: (r) => count(r.row.bad) },
      { name: "bytes sent by a device", num: true, text: (r) => count(Math.round(r.row.wire)) }, { name: "temporary memory", num: true, text: (r) => bytes(r.row.temp) },
      { name: "programs with other collectives than the release before", num: true, text: (r) => r.changed === null ? "" : count(r.changed) },
    ], list.map((row, k) => ({ row, changed: changed[k] })), { sortable: false }), provenance(one.runs)].flat(3));
}
