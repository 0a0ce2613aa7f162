/* SPDX-License-Identifier: Apache-2.0 */
// Runs and their provenance.
// The version of the must-pass lists by which the levels of a run are stated.
const lists = (r) => [...new Set((r.levels || []).map((s) => s.list))].join(", ");
function drawRuns() {
  $("runs-out").replaceChildren(...[grid("runs", "Every record file of this page", [
    { name: "run", text: (r) => [r.label, " ", el("span", { class: `tag ${r.class}` }, CLASS[r.class]), r.expired ? [" ", el("span", { class: "tag expired" }, "expired")] : ""], value: (r) => r.label, cls: "id" },
    { name: "statement", text: (r) => r.statement || "", wide: true }, { name: "list", num: true, text: lists, value: (r) => Number(lists(r)) || null }, { name: "cases", num: true, text: (r) => r.judged ? count(casesOf(r)) : "", value: (r) => r.judged ? casesOf(r) : null },
    { name: "times", num: true, text: (r) => r.timings ? count(r.timings.operation.length) : "", value: (r) => r.timings?.operation.length ?? null }, { name: "noise", text: (r) => noise(r).replace(/^noise: /, ""), cls: "noise" },
    { name: "suite", text: (r) => `${r.commit.slice(0, 10)}${r.clean ? "" : " not clean"}`, value: (r) => r.commit },
    { name: "record file and its SHA-256", text: (r) => el("span", { class: "mono small" }, r.file, el("div", { class: "soft" }, r.sha256)), value: (r) => r.file, cls: "id hash" },
  ], runs), boxesOf(runs.map((r) => el("details", { class: "runbox", id: `run-${r.key}` }, el("summary", {}, `${r.label} · ${r.file}`), el("dl", { class: "facts" }, [...r.facts, ...(r.ceilings || []).map((c) => [`ceiling: ${c.name} ${c.dtype}`, `${digits(c.value / 1e9)} ${c.unit === "B/s" ? "GB/s" : "GFLOP/s"}, ${c.devices} devices together`]), ["SHA-256", r.sha256], ["bytes", count(r.size)], ...(r.problems ? [["lines not read", count(r.problems)]] : []), ...(r.compared ? [["comparison", `${plural(r.compared, "timing")} of a comparison, left out here`]] : [])].map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)])))))].flat(3));
}
// The facts of all runs are one tab stop; arrow keys go from run to run.
function boxesOf(all) {
  const box = el("div", { role: "group", "aria-label": "All facts of each run. Arrow keys move between the runs." }, all), heads = () => all.map((x) => x.firstChild);
  rest(box, heads()[0]);
  moveByKeys(box, () => heads().map((x) => [x]));
  return box;
}
