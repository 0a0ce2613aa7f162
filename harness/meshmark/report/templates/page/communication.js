/* SPDX-License-Identifier: Apache-2.0 */
// What the modes send beside manual mode.
function excess(run, m) {
  const found = new Map(), j = run.judged;
  for (let i = 0; i < j.case.length; i++) {
    const c = j.case[i], mode = S[C.mode[c]], manual = j.manual[i], sent = j.wire[i];
    if (manual === null || !(sent > manual) || m && !passes(m, c, j.reason[i])) continue;
    const k = `${S[C.operation[c]]}~${mode}`, times = manual ? sent / manual : Infinity, was = found.get(k);
    if (!was) found.set(k, { run, c, i, mode, operation: S[C.operation[c]], times, n: 1, sent, manual });
    else { was.n++; if (times > was.times) Object.assign(was, { c, i, times, sent, manual }); }
  }
  return [...found.values()];
}
function drawCommunication() {
  const shown = shownRuns().filter((r) => r.devices !== 1), m = matcher(), found = new Map();
  shown.forEach((run, k) => { for (const r of excess(run, m)) {
    const key = `${r.operation}~${r.mode}`;
    if (!found.has(key)) found.set(key, { operation: r.operation, mode: r.mode, by: [], worst: r });
    const row = found.get(key);
    row.by[k] = r;
    if (r.times > row.worst.times) row.worst = r;
  } });
  const times = (r) => r.times === Infinity ? "manual sends none" : `${digits(r.times)}×`;
  const list = [...found.values()].sort((a, b) => b.worst.times - a.worst.times);
  $("communication-out").replaceChildren(...[grid("comm", "Times the bytes that manual mode compiles to; below it the bytes that one device sends, those of manual mode, and how many cases send more", [
    { name: "operation", text: (r) => [el("span", { class: "op" }, r.operation), ` ${r.mode}`], value: (r) => `${r.operation} ${r.mode}`, cls: "nowrap" },
    ...shown.map((run, k) => ({ name: run.label, num: true, value: (r) => r.by[k]?.times ?? null, text: (r) => r.by[k] ? [times(r.by[k]), el("div", { class: "soft small" }, `${count(r.by[k].sent)} / ${count(r.by[k].manual)} B, ${plural(r.by[k].n, "case")}`)] : "" })),
    { name: "largest in", wide: true, value: (r) => ids[r.worst.c], text: (r) => [el("span", { class: "mono small" }, ids[r.worst.c]), el("div", { class: "soft small" }, `compiled to ${S[r.worst.run.judged.kinds[r.worst.i]]}`)] },
  ], list, { empty: "Nowhere, in the cases that match." }), elsewhere(shown, "communication"), provenance(shown)].flat(3).filter((x) => x !== ""));
}
