/* SPDX-License-Identifier: Apache-2.0 */
// Which mode for what: a heat map of times beside manual mode, and one line of advice for each operation.

// 1 where a mode is slower than manual, -1 where it is faster, 0 where the records do not resolve it: the records say so
// themselves, from intervals over processes that are corrected for the number of ratios in their table.
const order = (t) => t.order ?? 0;
// What the processes of a machine's times allow to say: nothing, intervals, or an order corrected over the whole table.
function single(m, cadence, brief) {
  const most = m.times.reduce((n, t) => Math.max(n, t.processes || 1), 0), claims = m.timedRuns.map((r) => r.claims?.[cadence]).filter(Boolean), [ratios, needed] = claims.sort(([, a], [, b]) => b - a)[0] || [0, 0], doubt = claims.map(([, , why]) => why).find(Boolean);
  if (!m.times.some((t) => t.ratio_low !== null)) return most > 1 ? `${most} processes: too few for an interval, so no order is claimed.` : brief ? "A single run: no order is claimed." : "A single run of one process: how processes differ is not known, so no order is claimed.";
  if (doubt) return brief ? "No order is claimed: the controls, or neighbouring processes, leave it in doubt." : `No order is claimed here: ${doubt}.`;
  if (brief) return most < needed ? `${most} processes; an order takes ${needed}.` : "";
  return `Intervals of 95 % are over ${most} processes. ${!needed ? "" : most >= needed ? `An order is claimed where the interval, corrected over all ${count(ratios)} ratios, leaves 1 out.` : `An order over all ${count(ratios)} ratios needs ${needed} processes, so none is claimed here.`}`;
}
const factorText = (f) => between((x) => x.toFixed(2), f.value, [f.low, f.high]);
// From blue (faster) over nothing to orange (slower), by the logarithm of the ratio; full at a factor of two. A ratio
// whose interval holds 1 has no colour, and one without an interval a pale one.
function shade(ratio, leaves) {
  const x = leaves === false ? 0 : Math.max(-1, Math.min(1, Math.log2(ratio))) * (leaves ? 1 : .5);
  return `background: color-mix(in srgb, var(${x > 0 ? "--slow" : "--fast"}) ${Math.round(70 * Math.abs(x))}%, var(--bg))`;
}
// Bytes of 64KiB, the number of n512: sizes of one kind in their order.
const sizeOf = (text) => { const [, n, unit] = /^n?([\d.]+)(\w*)$/.exec(text) || [0, 0, ""]; return Number(n) * ({ KiB: 1024, MiB: 2 ** 20, GiB: 2 ** 30 }[unit] || 1); };
function drawHeat(m, cadence, list) {
  const modes = D.modes.filter((x) => x !== "manual" && x !== "host" && list.some((r) => r.by[x] && r.by[x].ratio !== null));
  if (!modes.length) return el("p", { class: "soft" }, "No mode has a time beside manual mode here.");
  const mode = options($("m-mode"), modes.map((x) => [x, x]), state.hmode), found = new Map(), heads = new Map();
  for (const r of list) {
    const t = r.by[mode];
    if (!t || t.ratio === null) continue;
    const column = `${r.first.mesh} · ${r.first.size}`, row = r.first.operation;
    heads.set(column, [r.first.mesh, r.first.size.startsWith("n") ? 1 : 0, r.first.nbytes || sizeOf(r.first.size)]);
    if (!found.has(row)) found.set(row, new Map());
    if (!found.get(row).has(column)) found.get(row).set(column, []);
    found.get(row).get(column).push(t);
  }
  const ordered = [...heads].sort(([, a], [, b]) => a[0].length - b[0].length || byText(a[0], b[0]) || a[1] - b[1] || a[2] - b[2]).map(([name]) => name);
  const operations = [...found.keys()].sort((a, b) => place(a) - place(b));
  const cell = (ts) => {
    if (!ts) return el("td", { class: "num" });
    const said = `${ts.length === 1 ? "" : `${ts.length} cells: `}${ts.map((t) => `${t.variant} ${t.dtype} ${between((x) => x.toFixed(2), t.ratio, t.ratio_low === null ? [] : [t.ratio_low, t.ratio_high])}`).slice(0, 6).join("; ")}`;
    // Several cells have one figure, the median in each process, if it is of just these cells and has an interval.
    const t = ts[0], f = ts.length > 1 ? factorOf(m, mode, cadence, t.operation, t.mesh, t.size) : { value: t.ratio, low: t.ratio_low, high: t.ratio_high, order: t.order, cells: 1 };
    if (!f || f.value === null || f.cells !== ts.length) return el("td", { class: "num heat soft", title: said }, plural(ts.length, "cell"));
    const known = f.low !== null && f.high !== null, leaves = known && !t.doubt ? f.low > 1 || f.high < 1 : null;  // the table may say that its intervals are too narrow
    return el("td", { class: `num heat${f.order ? " sure" : ""}${leaves === false ? " soft" : ""}`, style: shade(f.value, leaves), title: said }, f.value.toFixed(2), known ? el("div", { class: "small" }, `${f.low.toFixed(2)}–${f.high.toFixed(2)}`) : "");
  };
  return [el("p", { class: "soft small" }, `Time of ${mode} over time of manual: orange is slower, blue is faster, pale is a single run or in doubt, and without colour the interval holds 1. Bold is an order that is corrected over the whole table. Where several cells stand in one place, their figure is the median in each process, with its interval over processes; without one it is only said how many they are. ${single(m, cadence)}`),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Heat map of ${mode} beside manual` }, el("table", { class: "heatmap" },
      el("caption", {}, `${mode} / manual on ${m.label}, ${cadence}, by mesh and size`),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "operation"), ordered.map((c) => el("th", { scope: "col", class: "num" }, c)))),
      el("tbody", {}, operations.map((o) => el("tr", {}, el("th", { scope: "row", class: "op" }, o), ordered.map((c) => cell(found.get(o).get(c))))))))];
}

// The variants in which modes send more, the most frequent first.
function variantsOf(more) {
  const all = new Map();
  for (const [, x] of more) for (const [v, n] of x.variants) all.set(v, (all.get(v) || 0) + n);
  return short([...all].sort((a, b) => b[1] - a[1]).map(([v]) => v), 3);
}
// How many times the bytes: a factor, or the percent of a small excess, which "1×" would hide.
const upTo = (times) => times < 1.1 ? `up to ${percent(times - 1)} more bytes` : `up to ${digits(times)}× the bytes`;
const finite = (x) => x === Infinity ? 1 : x;  // where manual sends nothing there is no factor
// One row for each operation of a run whose auto or explicit cases stand beside manual ones.
function advice(run, m, cadence) {
  const j = run.judged, found = new Map();
  j.case.forEach((c, i) => {
    if (j.manual[i] === null || j.wire[i] === null) return;
    const operation = S[C.operation[c]], mode = S[C.mode[c]];
    if (!found.has(operation)) found.set(operation, { operation, by: new Map() });
    const by = found.get(operation).by;
    if (!by.has(mode)) by.set(mode, { cells: 0, more: 0, less: 0, times: 1, variants: new Map() });
    const one = by.get(mode), times = j.wire[i] === j.manual[i] ? 1 : j.manual[i] ? j.wire[i] / j.manual[i] : Infinity;
    one.cells++; if (times > 1) { one.more++; const v = S[C.variant[c]]; one.variants.set(v, (one.variants.get(v) || 0) + 1); } if (times < 1) one.less++;
    one.times = Math.max(one.times, times);
  });
  const timed_ = new Map();
  if (m) for (const t of m.times) if (t.cadence === cadence && t.ratio !== null) { if (!timed_.has(t.operation)) timed_.set(t.operation, []); timed_.get(t.operation).push(t); }
  return [...found.values()].map((row) => {
    const all = [...row.by].sort(([a], [b]) => D.modes.indexOf(a) - D.modes.indexOf(b)), more = all.filter(([, x]) => x.more), cells = all.reduce((n, [, x]) => n + x.cells, 0);
    const own = timed_.get(row.operation) || [];
    row.cells = cells;
    row.worst = Math.max(...all.map(([, x]) => x.times));
    row.bytes = all.map(([mode, x]) => `${mode}: ${x.more ? `more in ${x.more} of ${x.cells}${x.times === Infinity ? "" : `, ${upTo(x.times)}`}` : x.less ? `less in ${x.less} of ${x.cells}, never more` : `the same in all ${x.cells}`}`).join("; ");
    row.time = [...new Set(own.map((t) => t.mode))].map((x) => { const of = own.filter((t) => t.mode === x); const slow = of.filter((t) => order(t) > 0).length, fast = of.filter((t) => order(t) < 0).length;
      // A median hides the one size at which a mode is slow.
      const last = of.filter((t) => t.ratio_low !== null).sort((a, b) => b.ratio - a.ratio)[0];
      const f = factorOf(m, x, cadence, row.operation);
      return f && f.value !== null ? `${x} ${factorText(f)} in ${plural(f.cells, "cell")}${slow ? `, slower in ${slow}` : ""}${fast ? `, faster in ${fast}` : ""}${f.cells > 1 && last ? `, slowest ${last.ratio.toFixed(2)} (${last.ratio_low.toFixed(2)}–${last.ratio_high.toFixed(2)}) at ${last.mesh} ${last.dtype} ${last.size}` : ""}` : ""; }).filter(Boolean).join("; ") || (own.length ? `${plural(own.length, "ratio")}, too few processes for an interval` : "");
    row.slowest = Math.max(...[...new Set(own.map((t) => t.mode))].map((x) => factorOf(m, x, cadence, row.operation)?.value ?? -1));
    if (row.slowest < 0) row.slowest = null;
    row.say = !more.length ? "Every mode sends the same or less: choose the one that reads best." : more.length === all.length ? (more.every(([, x]) => 2 * x.more > x.cells) ? "Use shard_map where the bytes matter." : `Any mode, but shard_map where the bytes matter in ${variantsOf(more)}.`) : `${all.filter(([, x]) => !x.more).map(([mode]) => mode).join(" or ")} sends no more than shard_map; ${more.map(([mode]) => mode).join(" and ")} ${more.length > 1 ? "do" : "does"}.`;
    return row;
  }).sort((a, b) => finite(b.worst) - finite(a.worst) || place(a.operation) - place(b.operation));
}
// On one device nothing is sent, and the modes are one program: it says nothing of which to choose.
const several = (run) => run.devices > 1;
function drawAdvice() {
  const shown = shownRuns(), here = shown.filter(whole), run = here.find(several) || judgedRuns.find((r) => r.class !== "compiled" && whole(r) && several(r)) || here[0], out = $("advice-out"), away = elsewhere(shown, "modes");
  if (!run) { out.replaceChildren(away || el("p", { class: "soft" }, "No conformance records here.")); return; }
  const m = timed.find((x) => x.class === run.class && x.release === run.release) || null, cadence = $("m-cadence").value || "isolated";
  out.replaceChildren(...[grid("advice", `Advice for each operation, from ${run.label}`, [
    { name: "operation", text: (r) => el("span", { class: "op" }, r.operation), value: (r) => r.operation, cls: "nowrap" },
    { name: "advice", wide: true, text: (r) => r.say, value: (r) => r.say },
    { name: "bytes beside manual", wide: true, text: (r) => r.bytes, value: (r) => r.worst },
    { name: m ? "time over manual, median of cells with its interval" : "time (no times of this run)", text: (r) => r.time, value: (r) => r.slowest },
  ], several(run) ? advice(run, m, cadence) : [], { empty: !several(run) ? "One device sends nothing, in any mode: a run on several devices says which mode to choose." : "No auto or explicit case stands beside a manual one." }), away, provenance([run, ...(m ? m.timedRuns : [])])].flat(3).filter((x) => x !== ""));
}
