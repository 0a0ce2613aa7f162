/* SPDX-License-Identifier: Apache-2.0 */
// What changed between two releases or machines.
function drawChanges() {
  const list = machines.filter((m) => m.judged.some(whole) || m.timedRuns.length), out = $("changes-out");
  if (list.length < 2) { out.replaceChildren(el("p", { class: "soft" }, runs.some((r) => r.moved) ? ["The cases of other runs are on pages of their own. ", el("code", {}, "meshmark diff"), " compares two record files."] : "There is only one machine and release here: nothing to compare.")); return; }
  const values = list.map((m) => [m.key, m.label]);
  const partner = (m) => list.find((x) => x !== m && x.class === m.class && x.machine === m.machine && x.judged.length === m.judged.length);
  const first = list.find(partner) || list[0], second = partner(first) || list.find((m) => m !== first);
  const b = list.find((m) => m.key === options($("c-new"), values, state.new || first.key)), a = list.find((m) => m.key === options($("c-old"), values, state.old || second.key));
  const what = options($("c-what"), [["verdicts", "verdicts"], ["communication", "communication"], ["times", "times"]], state.what);
  const m = matcher(), used = [...a.runs, ...b.runs].filter((r) => what === "times" ? r.timings : r.judged);
  const parts = [];
  if (a.processes !== b.processes) parts.push(el("p", { class: "soft" }, `The first ran over ${over(a)}, the second over ${over(b)}: what only one of them has is no change.`));
  if (a === b) parts.push(el("p", { class: "soft" }, "Choose two different ones."));
  else if (what === "times") parts.push(...timesChanged(a, b));
  else {
    const old = latest(a), now = latest(b), found = [];
    let same = 0, gone = 0, added = 0;
    for (const [c, x] of now) {
      if (!passes(m, c, x.j.reason[x.i])) continue;
      const y = old.get(c);
      if (!y) { added++; continue; }
      const vx = V[x.j.verdict[x.i]], vy = V[y.j.verdict[y.i]];
      if (what === "verdicts") vx === vy ? same++ : found.push({ c, old: vy, now: vx, reason: S[(vx === "pass" ? y.j.reason[y.i] : x.j.reason[x.i])], rank: BAD.has(vx) && !BAD.has(vy) ? 0 : vx === "pass" ? 2 : 1 });
      else if (x.j.wire[x.i] !== null && y.j.wire[y.i] !== null) x.j.wire[x.i] === y.j.wire[y.i] && S[x.j.kinds[x.i]] === S[y.j.kinds[y.i]] ? same++ : found.push({ c, kx: S[x.j.kinds[x.i]], ky: S[y.j.kinds[y.i]], wx: x.j.wire[x.i], wy: y.j.wire[y.i] });
    }
    for (const [c, y] of old) if (!now.has(c) && passes(m, c, y.j.reason[y.i])) gone++;
    parts.push(el("p", { class: "status" }, `${count(found.length)} changed, ${count(same)} as before; ${count(gone)} cases only in the first, ${count(added)} only in the second.`));
    if (!found.length && !same) parts.push(el("p", { class: "soft" }, "The two have no case in common: their meshes differ."));
    else if (what === "verdicts") {
      found.sort((x, y) => x.rank - y.rank || (ids[x.c] < ids[y.c] ? -1 : 1));
      parts.push(grid("changes", `Verdicts, ${a.label} to ${b.label}`, [
        { name: "case", text: (r) => el("span", { class: "mono" }, ids[r.c]), value: (r) => ids[r.c], cls: "id" },
        { name: "change", text: (r) => el("span", { class: r.rank ? null : "bar-slow" }, ["new failure", "changed", "now passes"][r.rank]), value: (r) => r.rank, cls: "nowrap" },
        { name: "from", text: (r) => verdict(r.old), value: (r) => r.old }, { name: "to", text: (r) => verdict(r.now), value: (r) => r.now },
        { name: "reason", text: (r) => r.reason, wide: true, cls: "reason" },
      ], found, { empty: "No verdict differs between the cases that both have." }));
    } else {
      parts.push(grid("commchanges", `Compiled communication, ${a.label} to ${b.label}`, [
        { name: "case", text: (r) => el("span", { class: "mono" }, ids[r.c]), value: (r) => ids[r.c], cls: "id" },
        { name: "collectives before", text: (r) => r.ky }, { name: "after", text: (r) => r.kx },
        { name: "bytes before", num: true, text: (r) => count(r.wy), value: (r) => r.wy }, { name: "bytes after", num: true, text: (r) => count(r.wx), value: (r) => r.wx },
        { name: "times", num: true, text: (r) => r.wy ? digits(r.wx / r.wy) : "", value: (r) => r.wy ? r.wx / r.wy : null },
      ], found, { empty: "Every program that both have compiles to the same collectives and bytes." }));
    }
  }
  out.replaceChildren(...parts.flat(3), provenance(used));
}
function latest(m) {
  const found = new Map();
  for (const r of m.judged.filter(whole)) r.judged.case.forEach((c, i) => { if (!found.has(c)) found.set(c, { j: r.judged, i }); });
  return found;
}
function timesChanged(a, b) {
  if (a.class !== b.class) return [el("p", { class: "soft" }, "One of the two ran on virtual devices: their times are not put beside those of real ones.")];
  const before = new Map(a.times.map((t) => [`${t.cell}/${t.mode}/${t.cadence}`, t])), found = [], words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  for (const t of b.times) {
    const o = before.get(`${t.cell}/${t.mode}/${t.cadence}`);
    if (!o || t.median_s === null || o.median_s === null || !keep(t, words)) continue;
    found.push({ t, o, ratio: t.median_s / o.median_s, apart: t.low_s === null || o.low_s === null ? null : t.low_s > o.high_s || t.high_s < o.low_s });
  }
  found.sort((x, y) => Math.abs(Math.log(y.ratio)) * (y.apart ? 1 : .01) - Math.abs(Math.log(x.ratio)) * (x.apart ? 1 : .01));
  return [el("p", { class: "soft" }, "Two runs at different times: what the machine did between them is in these ratios, and processes alone can differ by a third. For a tested difference use ", el("code", {}, "meshmark compare"), "."), grid("timechanges", `Times, ${a.label} to ${b.label}`, [
    { name: "case", text: (r) => el("span", { class: "mono" }, `${r.t.operation}/${r.t.variant}/${r.t.mode}/${r.t.mesh}/${r.t.dtype}/${r.t.size}`), value: (r) => r.t.cell, cls: "id" },
    { name: "cadence", text: (r) => r.t.cadence, value: (r) => r.t.cadence },
    { name: "before", num: true, text: (r) => spread(r.o.median_s, r.o.low_s, r.o.high_s), value: (r) => r.o.median_s }, { name: "after", num: true, text: (r) => spread(r.t.median_s, r.t.low_s, r.t.high_s), value: (r) => r.t.median_s },
    { name: "ratio, by the ends of both intervals", num: true, text: (r) => r.apart === null ? "" : between(digits, r.ratio, [r.t.low_s / r.o.high_s, r.t.high_s / r.o.low_s]), value: (r) => r.apart === null ? null : r.ratio }, { name: "intervals", text: (r) => r.apart === null ? "not known: too few processes" : r.apart ? "apart" : "overlap", value: (r) => r.apart === null ? 2 : r.apart ? 0 : 1 },
  ], found, { empty: "The two have no timed case in common." })].flat();
}
// Whether a time passes the filters; `mode`: the mode to take for its own.
function keep(t, words, mode = t.mode) {
  if (state.mode && mode !== state.mode || state.dtype && t.dtype !== state.dtype || state.mesh && t.mesh !== state.mesh) return false;
  const id = `${t.operation}/${t.variant}/${t.mode}/${t.mesh}/${t.dtype}/${t.size}`.toLowerCase();
  return words.every((w) => id.includes(w));
}
