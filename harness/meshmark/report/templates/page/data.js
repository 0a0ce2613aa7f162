/* SPDX-License-Identifier: Apache-2.0 */
// The data of the page: strings, cases, runs, machines.
const C = D.cases, N = C.operation.length;
const ids = new Array(N);
for (let i = 0; i < N; i++) ids[i] = `${S[C.operation[i]]}/${S[C.variant[i]]}/${S[C.mode[i]]}/${S[C.mesh[i]]}/${S[C.dtype[i]]}/${S[C.size[i]]}`;
const rank = new Map(D.operations.map((o, i) => [o.name, i]));
const info = new Map(D.operations.map((o) => [o.name, o]));
const runs = D.runs, byKey = new Map(runs.map((r) => [r.key, r]));
const judgedRuns = runs.filter((r) => r.judged);
const newestRelease = judgedRuns.map((r) => r.release).sort(byRelease).at(-1);
// A machine is what the runs of one release, product and kind of devices belong to.
const machines = [];
for (const r of runs.filter((x) => !x.comparison)) {
  const name = [r.class, r.release, r.machine, r.product].join("|");
  let m = machines.find((x) => x.name === name);
  if (!m) machines.push(m = { name, key: r.key, class: r.class, release: r.release, machine: r.machine, kind: r.kind, devices: r.devices, processes: r.processes, product: r.product, runs: [], label: `JAX ${r.release} · ${r.machine}` });
  m.runs.push(r);
}
// A time is one row of a run's columns: its figures are looked up when they are asked for, since a page may hold many.
class Time {
  constructor(run, row) { this.run = run; this.row = row; this.named = ""; }
  get cell() { return this.named ||= `${this.operation}/${this.variant}/${this.mesh}/${this.dtype}/${this.size}`; }
  // Why the table of this time claims no order; "" where it may claim some.
  get doubt() { return this.run.claims?.[this.cadence]?.[2] || ""; }
}
const TIMED_TEXTS = new Set(["operation", "variant", "mode", "mesh", "dtype", "size", "cadence", "reason", "share_of", "bound_by", "kinds"]);
for (const name of new Set(runs.flatMap((r) => Object.keys(r.timings || {})))) Object.defineProperty(Time.prototype, name, { get: TIMED_TEXTS.has(name) ? function () { return S[this.run.timings[name][this.row]]; } : function () { return this.run.timings[name][this.row]; } });
// The times of a machine, each case, mode and cadence once: the first of its files that has one.
function timesOf(m) {
  const found = [], seen = new Set();
  for (const run of m.timedRuns) for (let i = 0; i < run.timings.operation.length; i++) {
    const t = new Time(run, i), id = m.timedRuns.length > 1 ? `${t.cell}/${t.mode}/${t.cadence}` : i;
    if (!seen.has(id)) { seen.add(id); found.push(t); }
  }
  return found;
}
for (const m of machines) {
  m.judged = m.runs.filter((r) => r.judged); m.timedRuns = m.runs.filter((r) => r.timings && r.timings.operation.length);
  Object.defineProperty(m, "times", { get: () => m.found ||= timesOf(m) });
}
for (const m of machines) if (machines.some((x) => x !== m && x.label === m.label)) m.long = `${m.label} · ${m.product || m.runs[0].file}`;
for (const m of machines) m.label = m.long || m.label;
// What a mode takes beside manual mode over several cells: of all cells, or of those of an operation, or of an operation at a
// mesh and size. A factor without an interval has no value. Of the files of a machine, one with an interval goes before one
// without; then the one with the most cells counts.
function factorOf(m, mode, cadence, operation = "", mesh = "", size = "") {
  const found = m.timedRuns.flatMap((r) => (r.factors || []).filter((f) => f.mode === mode && f.cadence === cadence && f.operation === operation && f.mesh === mesh && f.size === size));
  return found.sort((a, b) => (b.value !== null) - (a.value !== null) || b.cells - a.cells)[0] || null;
}
const timed = machines.filter((m) => m.timedRuns.length);
const modesSeen = D.modes.filter((m) => C.mode.some((i) => S[i] === m));
for (const m of new Set(C.mode)) if (!modesSeen.includes(S[m])) modesSeen.push(S[m]);
