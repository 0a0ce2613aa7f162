/* SPDX-License-Identifier: Apache-2.0 */
// Over time: releases of JAX on one axis, machine by machine: verdicts, compiled bytes and collectives.
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
  const all = D.over_time.map((s) => ({ ...s, name: `${CLASS[s.class]} · ${s.machine}`, runs: s.runs.map((k) => byKey.get(k)) })), out = $("time-out");
  if (!all.length) { out.replaceChildren(el("p", { class: "soft" }, "Only one release of each machine here.")); return; }
  const chosen = options($("t-machine"), all.map((s) => [s.name, s.name]), state.tmachine), one = all.find((s) => s.name === chosen), list = one.rows;
  const points = (f) => list.map((row, k) => ({ name: one.runs[k].release, y: f(row) })), taken = timesOver(one.runs);
  out.replaceChildren(...[el("p", {}, `The ${plural(one.cases, "case")} that each of these releases has.`),
    el("div", { class: "trends" }, trend("Cases that pass or compile", points((r) => r.pass), count), trend("Known issues and failures", points((r) => r.known + r.bad), count), trend("Bytes that a device sends, all programs together", points((r) => r.wire), bytes), trend("Temporary memory of a device, all programs together", points((r) => r.temp), bytes), taken ? trend(`Time of manual mode over JAX ${one.runs[0].release}, median of ${plural(taken.cells, "cell")}`, one.runs.map((run, i) => ({ name: run.release, y: taken.ratios[i] })), (y) => y.toFixed(2)) : ""),
    taken ? el("p", { class: "soft" }, "Times are of runs at different times, one process each or more: a trend in them is not a tested difference.") : "",
    grid("time", `Releases on ${one.name}`, [
      { name: "JAX", text: (r) => r.run.release, cls: "nowrap" }, { name: "jaxlib", text: (r) => r.run.jaxlib, cls: "nowrap" }, ...(one.runs.some((r) => r.compiler) ? [{ name: "compiler", text: (r) => r.run.compiler, cls: "nowrap" }] : []),
      { name: "pass", num: true, text: (r) => count(r.row.pass) }, { name: "known", num: true, text: (r) => count(r.row.known) }, { name: "failures", num: true, text: (r) => count(r.row.bad) },
      { name: "bytes sent by a device", num: true, text: (r) => count(Math.round(r.row.wire)) }, { name: "temporary memory", num: true, text: (r) => bytes(r.row.temp) },
      ...(taken ? [{ name: `time over JAX ${one.runs[0].release}`, num: true, text: (r) => r.time.toFixed(2) }] : []),
      { name: "programs with other collectives than the release before", num: true, text: (r) => r.row.changed === null ? "" : count(r.row.changed) },
    ], list.map((row, k) => ({ row, run: one.runs[k], time: taken?.ratios[k] })), { sortable: false }), provenance(one.runs)].flat(3));
}
