/* SPDX-License-Identifier: Apache-2.0 */
// What meshmark compare decided: by pairs of processes in random order, at planned looks, corrected over its cases.
const ORDER = ["slower", "faster", "inconclusive", "left out", "no change"];
const VERDICT_CLASS = { slower: "bar-slow", faster: "bar-fast" };
function sideText(side) { return [`JAX ${side.jax}`, side.jaxlib === side.jax ? "" : `jaxlib ${side.jaxlib}`, side.python ? `Python ${side.python}` : "", side.commit ? `suite ${side.commit}` : ""].filter(Boolean).join(", "); }
function oneComparison(c, n) {
  const run = byKey.get(c.key), words = state.q.toLowerCase().split(/\s+/).filter(Boolean), tallies = ORDER.map((v) => [v, c.rows.filter((r) => r.verdict === v).length]).filter(([, x]) => x);
  const rows = c.rows.filter((r) => words.every((w) => r.case.toLowerCase().includes(w))).sort((x, y) => ORDER.indexOf(x.verdict) - ORDER.indexOf(y.verdict) || Math.abs(Math.log(y.ratio || 1)) - Math.abs(Math.log(x.ratio || 1)));
  const alarms = c.rows.map((r) => r.false_alarms).filter((x) => x !== null);
  const end = (x) => x === null ? "" : x.toFixed(3);
  return [el("h4", {}, `${run.machine}: A is ${sideText(c.sides.A)}; B is ${sideText(c.sides.B)}`),
    el("p", {}, el("span", { class: `tag ${run.class}` }, CLASS[run.class]), c.rows.length ? ` ${plural(c.rows.length, "case")} over ${count(c.processes)} processes: ${tallies.map(([v, x]) => `${count(x)} ${v}`).join(", ")}. ` : " No verdict: the comparison was cut short. ", c.counted ? (c.differing ? `Compiled counters differ in ${count(c.differing)} of ${plural(c.counted, "program")}.` : `Compiled counters are the same in all ${plural(c.counted, "program")}.`) : "", alarms.length ? ` Of comparisons of unchanged cases the rule flags ${percent(alarms.reduce((a, b) => a + b, 0) / alarms.length)} per case.` : ""),
    c.rows.length ? grid(`compared${n}`, "Time of B over time of A; verdicts are corrected for the number of cases and looks", [
      { name: "case", text: (r) => el("span", { class: "mono" }, r.case), value: (r) => r.case, cls: "id" },
      { name: "verdict", text: (r) => el("span", { class: VERDICT_CLASS[r.verdict] }, r.verdict), value: (r) => ORDER.indexOf(r.verdict), cls: "nowrap" },
      { name: "B / A", num: true, text: (r) => r.low > 0 && r.high !== null ? end(r.ratio) : "", value: (r) => r.ratio }, { name: "interval", num: true, text: (r) => r.low > 0 && r.high !== null ? `${end(r.low)} to ${end(r.high)}` : "" },
      { name: "adjusted p", num: true, text: (r) => digits(r.adjusted, 2), value: (r) => r.adjusted }, { name: "detectable", num: true, text: (r) => r.detectable === null ? "" : `+${digits(100 * r.detectable, 2)} %`, value: (r) => r.detectable },
      { name: "pairs", num: true, text: (r) => r.pairs === null ? "" : count(r.pairs), value: (r) => r.pairs }, { name: "why it was left out", text: (r) => r.reason, wide: true },
    ].filter((x) => x.name !== "why it was left out" || c.rows.some((r) => r.reason)), rows) : "",
    c.differences.length ? el("details", {}, el("summary", {}, "Compiled counters that differ"), grid(`counters${n}`, "Compiled counters that differ, A and B", [
      { name: "case", text: (d) => el("span", { class: "mono" }, d[0]), value: (d) => d[0], cls: "id" }, { name: "counter", text: (d) => d[1], value: (d) => d[1] }, { name: "A", text: (d) => d[2] }, { name: "B", text: (d) => d[3] },
    ], c.differences)) : "", provenance([run])];
}
function drawComparisons() {
  $("compared-out").replaceChildren(...D.comparisons.length ? D.comparisons.flatMap(oneComparison).flat(3).filter((x) => x !== "") : [el("p", { class: "soft" }, "No comparison among these records. ", el("code", {}, "meshmark compare A B --record FILE"), " makes one.")]);
}
