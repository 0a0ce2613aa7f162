/* SPDX-License-Identifier: Apache-2.0 */
// The data of the page: strings, cases, runs, machines.
const C = D.cases, N = C.operation.length;
const ids = new Array(N);
for (let i = 0; i < N; i++) ids[i] = `${S[C.operation[i]]}/${S[C.variant[i]]}/${S[C.mode[i]]}/${S[C.mesh[i]]}/${S[C.dtype[i]]}/${S[C.size[i]]}`;
const lower = ids.map((s) => s.toLowerCase());
const rank = new Map(D.operations.map((o, i) => [o.name, i]));
const info = new Map(D.operations.map((o) => [o.name, o]));
const runs = D.runs, byKey = new Map(runs.map((r) => [r.key, r]));
const judgedRuns = runs.filter((r) => r.judged);
for (const r of judgedRuns) { r.at = new Map(); r.judged.case.forEach((c, i) => r.at.set(c, i)); }
// A machine is what the runs of one release, product and kind of devices belong to.
const machines = [];
for (const r of runs.filter((x) => !x.comparison)) {
  const name = [r.class, r.release, r.machine, r.product].join("|");
  let m = machines.find((x) => x.name === name);
  if (!m) machines.push(m = { name, key: r.key, class: r.class, release: r.release, machine: r.machine, kind: r.kind, devices: r.devices, processes: r.processes, product: r.product, runs: [], label: `JAX ${r.release} · ${r.machine}` });
  m.runs.push(r);
}
for (const m of machines) {
  m.judged = m.runs.filter((r) => r.judged); m.timedRuns = m.runs.filter((r) => r.timings); m.times = [];
  const seen = new Set();
  for (const r of m.timedRuns) for (let i = 0; i < r.timings.operation.length; i++) {
    const t = { run: r };
    for (const [name, column] of Object.entries(r.timings)) t[name] = ["operation", "variant", "mode", "mesh", "dtype", "size", "cadence", "reason", "share_of", "bound_by", "kinds"].includes(name) ? S[column[i]] : column[i];
    t.cell = `${t.operation}/${t.variant}/${t.mesh}/${t.dtype}/${t.size}`;
    const id = `${t.cell}/${t.mode}/${t.cadence}`;
    if (!seen.has(id)) { seen.add(id); m.times.push(t); }
  }
}
for (const m of machines) if (machines.some((x) => x !== m && x.label === m.label)) m.long = `${m.label} · ${m.product || m.runs[0].file}`;
for (const m of machines) m.label = m.long || m.label;
const timed = machines.filter((m) => m.times.length);
const modesSeen = D.modes.filter((m) => C.mode.some((i) => S[i] === m));
for (const m of new Set(C.mode)) if (!modesSeen.includes(S[m])) modesSeen.push(S[m]);
