/* SPDX-License-Identifier: Apache-2.0 */
// Modes side by side.
// Speed opens on the first machine with a rate or a share of a ceiling. Real devices come first.
const firstForSpeed = () => timed.find((m) => m.times.some((t) => t.busbw || t.flops_per_s || t.share !== null)) || timed[0];
// Modes are compared on several devices where there are any: on one device nothing is sent.
const machine = () => timed.find((m) => m.key === state.machine) || timed.find((m) => m.devices > 1) || timed[0];
const fastMachine = () => timed.find((m) => m.key === state.smachine) || timed.find((m) => m.key === state.machine) || firstForSpeed();
const CADENCES = ["isolated", "stream", "plain", "device"];  // first what compares modes
const CADENCE = { plain: "plain: one call, same buffers, one mode alone", isolated: "isolated: one call, rotated buffers, modes in turns", stream: "stream: calls inside one program", device: "device: what the profiler saw" };
// What the sections on times are about; they read the cadence from their controls. Speed has the machine and cadence of the
// modes until another is chosen for it.
function chooseMachine() {
  if (!timed.length) return;
  for (const [at, m, cadence] of [["m", machine(), state.cadence], ["s", fastMachine(), state.scadence || state.cadence]]) {
    const cadences = [...new Set(m.timedRuns.flatMap((r) => [...new Set(r.timings.cadence)]))].map((i) => S[i]).sort((a, b) => CADENCES.indexOf(a) - CADENCES.indexOf(b));
    options($(`${at}-machine`), timed.map((x) => [x.key, x.label]), m.key);
    options($(`${at}-cadence`), cadences.map((c) => [c, CADENCE[c] || c]), cadence);
  }
}
function sideBySide(m, cadence) {
  const found = new Map(), words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  for (const t of m.times) {
    if (t.cadence !== cadence || state.dtype && t.dtype !== state.dtype || state.mesh && t.mesh !== state.mesh || words.length && !words.every((w) => t.cell.toLowerCase().includes(w))) continue;
    if (!found.has(t.cell)) found.set(t.cell, { first: t, by: {} });
    found.get(t.cell).by[t.mode] = t;
  }
  return [...found.values()];
}
function ratioNode(t) {
  if (!t || t.ratio === null || t.ratio === undefined) return "";
  const known = t.ratio_low !== null && t.ratio_high !== null;
  const slow = order(t) > 0, fast = order(t) < 0;
  return el("span", { class: slow ? "bar-slow" : fast ? "bar-fast" : null }, `${t.ratio.toFixed(2)}${slow ? " slower" : fast ? " faster" : ""} `, el("span", { class: "soft small" }, known ? `(${t.ratio_low.toFixed(2)}–${t.ratio_high.toFixed(2)})` : ""));
}
// The mode that corrected intervals part from all others as the fastest; "" if they part none.
const bestOf = (r, modes) => modes.find((x) => r.by[x]?.best) || "";
function perMode(by, modes, f) {
  const said = modes.map((m) => [m, by[m] ? f(by[m]) : null]).filter(([, x]) => x !== null && x !== "");
  if (!said.length) return "";
  if (said.every(([, x]) => x === said[0][1])) return String(said[0][1]);
  return said.map(([m, x]) => el("div", { class: "nowrap" }, el("span", { class: "soft" }, `${m}: `), x));
}
// The same program under two names: what a ratio of nothing looks like here.
function controlTable(m, cadence) {
  const rows_ = m.timedRuns.flatMap((r) => r.controls || []).filter((c) => c.cadence === cadence);
  if (!rows_.length) return [];
  const parted = rows_.filter((c) => c.order).length;
  return [el("h4", {}, "Control: the same program twice"), el("p", { class: "soft" }, `${plural(rows_.length, "control")}; ${parted ? `${count(parted)} of them ${parted === 1 ? "is" : "are"} called faster or slower, which is a false alarm` : "none of them is called faster or slower"}.`),
    grid("controls", `Controls on ${m.label}, ${cadence}`, [
      { name: "case", text: (c) => el("span", { class: "mono" }, c.case), value: (c) => c.case, cls: "id" }, { name: "control / itself", num: true, text: ratioNode, value: (c) => c.ratio }, { name: "processes", num: true, text: (c) => c.processes, value: (c) => c.processes },
    ], rows_)];
}
// The decoder's steps, the figures that people choose a mode by: the modes of one step stand side by side.
function drawSteps(m, cadence) {
  const every = m.timedRuns.flatMap((r) => r.steps), own = every.some((s) => s.cadence === cadence) ? cadence : every[0]?.cadence, list = every.filter((s) => s.cadence === own), out = $("steps-out");
  if (!list.length) { out.replaceChildren(el("p", { class: "soft" }, "No step of the decoder was timed here. ", el("code", {}, "meshmark bench --operations decoder,decoder_training,decode_step"), " times them.")); return; }
  const known = [...new Set(list.map((s) => s.peak).filter(Boolean))], modes = D.modes.filter((x) => list.some((s) => s.mode === x)), groups_ = new Map(), timesBy = new Map();
  for (const s of list) { const k = `${s.step}/${s.where.split(" ").join("/")}`; if (!groups_.has(k)) groups_.set(k, { step: s.step, where: s.where, by: {} }); groups_.get(k).by[s.mode] ||= s; }
  for (const t of m.times) if (t.cadence === own && groups_.has(t.cell)) timesBy.set(`${t.cell} ${t.mode}`, t);
  const figures = [
    ["tokens/s", (s, g, k) => [el("strong", {}, digits(s.tokens_per_s)), width(k), k.best ? " fastest" : ""], (s) => s.tokens_per_s],
    ["time", (s, g, k) => k.median_s ? spread(k.median_s, k.low_s, k.high_s) : seconds(s.seconds)], ["time over manual", (s, g, k) => ratioNode(k)], ["MFU", (s, g, k) => shared(s.mfu, k)],
    ["a device sends", (s) => s.sent.map(([kind, n]) => el("div", { class: "nowrap" }, `${bytes(n)} in ${kind}`)).concat(s.sent.length ? [] : "nothing")], ["memory of a device", (s) => bytes(s.memory)],
  ];
  const bodies = [...groups_].sort(([, a], [, b]) => byText(a.step, b.step) || byText(a.where, b.where)).map(([k, g]) => {
    const top = Math.max(...Object.values(g.by).map((s) => s.tokens_per_s)), shown = figures.filter(([, text]) => modes.some((x) => g.by[x] && [text(g.by[x], g, timesBy.get(`${k} ${x}`) || {})].flat().some((y) => y !== "")));
    return el("tbody", {}, el("tr", {}, el("th", { scope: "rowgroup", class: "op" }, g.step), el("td", { class: "soft small", colspan: modes.length }, g.where)), shown.map(([name, text, bar]) => el("tr", {}, el("th", { scope: "row", class: "soft nowrap" }, name),
      modes.map((x) => el("td", { class: "num", style: bar && g.by[x] ? `background: linear-gradient(to right, var(--accent-soft) ${Math.round(100 * bar(g.by[x]) / top)}%, transparent 0)` : null }, g.by[x] ? text(g.by[x], g, timesBy.get(`${k} ${x}`) || {}) : "")))));
  });
  out.replaceChildren(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Steps of the decoder" }, el("table", { class: "steps" }, el("caption", {}, `Steps of the decoder on ${m.label}, ${own}`), el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "step and figure"), modes.map((x) => el("th", { scope: "col", class: "num" }, x)))), bodies)),
    known.length ? el("p", { class: "soft small" }, `MFU: flops of the model over ${known.join(", ")}.`) : "");
}
function drawModes() {
  const out = $("modes-out");
  if (!timed.length) { out.replaceChildren(el("p", { class: "soft" }, "No times among these records. ", el("code", {}, "meshmark bench --record FILE"), " makes them.")); return; }
  const m = machine(), cadence = $("m-cadence").value;
  const list = sideBySide(m, cadence), modes = D.modes.filter((x) => list.some((r) => r.by[x])), others = modes.filter((x) => x !== "manual" && x !== "host" && modes.includes("manual"));
  const bad = list.filter((r) => modes.some((x) => r.by[x] && r.by[x].median_s === null));
  drawSteps(m, cadence);
  $("heat-out").replaceChildren(...[drawHeat(m, cadence, list)].flat());
  out.replaceChildren(...[el("p", {}, el("span", { class: `tag ${m.class}` }, CLASS[m.class]), ` ${plural(list.length, "cell")}${bad.length ? `, ${bad.length} of them with a mode that has no published time` : ""}.`), grid("modes", `Modes side by side on ${m.label}, ${cadence}`, [
    { name: "case", text: (r) => [el("span", { class: "op" }, r.first.operation), ` ${r.first.variant} `, el("span", { class: "soft" }, `${r.first.mesh} ${r.first.dtype} ${r.first.size}`)], value: (r) => `${r.first.operation} ${r.first.variant} ${r.first.mesh} ${r.first.dtype} ${String(r.first.nbytes ?? 0).padStart(15, "0")}`, cls: "id" },
    ...modes.map((x) => ({ name: x, num: true, text: (r) => !r.by[x] ? "" : r.by[x].median_s === null ? el("span", { title: r.by[x].reason }, verdict(V[r.by[x].verdict])) : spread(r.by[x].median_s, r.by[x].low_s, r.by[x].high_s), value: (r) => r.by[x]?.median_s ?? null })),
    ...(list.some((r) => bestOf(r, modes)) ? [{ name: "best", text: (r) => el("strong", {}, bestOf(r, modes)), value: (r) => bestOf(r, modes) || null }] : []),
    ...others.map((x) => ({ name: `${x} / manual`, num: true, text: (r) => ratioNode(r.by[x]), value: (r) => r.by[x]?.ratio ?? null })),
    { name: "a device sends", text: (r) => perMode(r.by, modes, (t) => [t.wire_bytes === null ? "" : bytes(t.wire_bytes), t.kinds].filter(Boolean).join(" in ")), value: (r) => Math.max(...modes.map((x) => r.by[x]?.wire_bytes ?? 0)) },
    { name: "rate (manual)", num: true, text: (r) => rate(r.by.manual || r.first), value: (r) => { const t = r.by.manual || r.first; return t.busbw || t.flops_per_s || t.algbw; } },
    { name: "share of ceiling", num: true, text: (r) => { const t = r.by.manual || r.first; return t.share === null ? "" : el("span", { title: t.share_of }, `${share(t)} ${t.bound_by}`); }, value: (r) => (r.by.manual || r.first).share },
    { name: "S, B", num: true, text: (r) => r.first.nbytes || "", value: (r) => r.first.nbytes },
    ...["p10", "p90", "p99"].map((q) => ({ name: `${q} (manual)`, num: true, text: (r) => { const t = r.by.manual || r.first; return spread(t[`${q}_s`], t[`${q}_low_s`], t[`${q}_high_s`]); }, value: (r) => (r.by.manual || r.first)[`${q}_s`] })),
    { name: "processes", num: true, text: (r) => r.first.processes, value: (r) => r.first.processes },
  ], list), ...controlTable(m, cadence), provenance(m.timedRuns)].flat(3));
}
