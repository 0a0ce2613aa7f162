/* SPDX-License-Identifier: Apache-2.0 */
// What the modes send beside manual mode, or beside the theory of what has no manual case ("owed").
function excess(run, m, other = "manual") {
  const found = new Map(), j = run.judged;
  for (let i = 0; i < j.case.length; i++) {
    const c = j.case[i], mode = S[C.mode[c]], least = j[other][i], sent = j.wire[i];
    if (least === null || !(sent > least) || m && !passes(m, c, j.reason[i])) continue;
    const k = `${S[C.operation[c]]}~${mode}`, times = least ? sent / least : Infinity, was = found.get(k);
    if (!was) found.set(k, { run, c, i, mode, operation: S[C.operation[c]], times, n: 1, sent, least });
    else { was.n++; if (times > was.times) Object.assign(was, { c, i, times, sent, least }); }
  }
  return [...found.values()];
}
function excessOfRuns(shown, m, other) {
  const found = new Map();
  shown.forEach((run, k) => { for (const r of excess(run, m, other)) {
    const key = `${r.operation}~${r.mode}`;
    if (!found.has(key)) found.set(key, { operation: r.operation, mode: r.mode, by: [], worst: r });
    const row = found.get(key);
    row.by[k] = r;
    if (r.times > row.worst.times) row.worst = r;
  } });
  return [...found.values()].sort((a, b) => b.worst.times - a.worst.times);
}
function gridOfExcess(name, title, none, shown, list) {
  const times = (r) => r.times === Infinity ? none : `${digits(r.times)}×`;
  return grid(name, title, [
    { name: "operation", text: (r) => [el("span", { class: "op" }, r.operation), ` ${r.mode}`], value: (r) => `${r.operation} ${r.mode}`, cls: "nowrap" },
    ...shown.map((run, k) => ({ name: run.label, num: true, value: (r) => r.by[k]?.times ?? null, text: (r) => r.by[k] ? [times(r.by[k]), el("div", { class: "soft small" }, `${count(r.by[k].sent)} / ${count(r.by[k].least)} B, ${plural(r.by[k].n, "case")}`)] : "" })),
    { name: "largest in", wide: true, value: (r) => ids[r.worst.c], text: (r) => [el("span", { class: "mono small" }, ids[r.worst.c]), el("div", { class: "soft small" }, `compiled to ${S[r.worst.run.judged.kinds[r.worst.i]]}`)] },
  ], list, { empty: "Nowhere, in the cases that match." });
}
function drawCommunication() {
  const shown = shownRuns().filter((r) => r.devices !== 1), m = matcher(), owing = shown.filter((r) => r.judged.owed.some((x) => x !== null));
  $("communication-out").replaceChildren(...[
    gridOfExcess("comm", "Times the bytes that manual mode compiles to; below it the bytes that one device sends, those of manual mode, and how many cases send more", "manual sends none", shown, excessOfRuns(shown, m, "manual")),
    owing.length ? gridOfExcess("owed", "Without a manual case: times the bytes of the theory, in dtypes of 32 bits and more; below it the bytes that one device sends, those of the theory, and how many cases send more", "must send none", owing, excessOfRuns(owing, m, "owed")) : "",
    elsewhere(shown, "communication"), provenance(shown),
  ].flat(3).filter((x) => x !== ""));
}
