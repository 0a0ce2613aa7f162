/* SPDX-License-Identifier: Apache-2.0 */
// As fast as it should be: bus bandwidth, scaling, shares of ceilings, releases side by side.

const listed = (list, most) => list.slice(0, most).join("; ") + (list.length > most ? `; and ${list.length - most} more` : "");  // their names have commas
// What times are held against: the names of the ceilings, those of collectives apart from those of layers.
function peaks(m) {
  const named = (list) => [...new Set(list.filter((t) => t.share !== null).map((t) => t.share_of))], moving = named(m.times.filter((t) => t.busbw)), computing = named(m.times.filter((t) => t.flops_per_s));
  const said = [moving.length ? `Collectives are held against: ${listed(moving, 2)}.` : m.class === "virtual" ? "Collectives have no ceiling: messages of virtual devices go through caches." : "No peak of the links is published or measured for it."];
  if (computing.length) said.push(`Layers and contractions are held against: ${listed(computing, 3)}.`); else if (m.times.some((t) => t.flops_per_s)) said.push("No peak of arithmetic or memory is published or measured for it.");
  return said.join(" ");
}
// The ceilings of some points of bus bandwidth: [bytes/s, name], those that look alike once.
function ceilings(points) {
  const found = new Map();
  for (const t of points) if (t.share) { const value = Number((t.busbw / t.share).toPrecision(3)); if (!found.has(value)) found.set(value, t.share_of); }
  return [...found].sort(([a], [b]) => b - a).slice(0, 4);
}
// What makes up a time: in device cadence from the first device's start to the last one's, and from there on; over
// processes from the fastest rank's end to the slowest one's.
const APART = [["launch_skew_s", "launch skew"], ["wire_s", "on the wire"], ["skew_s", "skew of ranks"]];
function drawSpeed() {
  if (!timed.length) { $("speed-note").textContent = "No times among these records."; for (let e = $("speed-note").nextElementSibling; e; e = e.nextElementSibling) e.hidden = true; return; }
  const m = fastMachine(), cadence = $("s-cadence").value, theme = dark() ? "d" : "l";
  $("speed-note").replaceChildren(el("span", { class: `tag ${m.class}` }, CLASS[m.class]), ` ${m.label}, ${cadence} calls. `, peaks(m), m.class === "virtual" ? " Virtual devices share the cores of one machine." : "");
  const ops = [...new Set(m.times.filter((t) => t.busbw).map((t) => t.operation))], op = options($("s-op"), ops.map((o) => [o, o]), state.op || (ops.includes("psum") ? "psum" : ""));
  const modes = D.modes.filter((x) => m.times.some((t) => t.mode === x && t.operation === op)), mode = options($("s-mode"), [...modes.map((x) => [x, x]), ["all", "all modes"]], state.smode || (modes.includes("manual") ? "manual" : modes[0]));
  const meshes = [...new Set(m.times.filter((t) => t.operation === op).map((t) => t.mesh))], mesh = options($("s-mesh"), [["", "all meshes"], ...meshes.map((x) => [x, x])], state.smesh);
  const what = options($("s-y"), [["rate", "bus bandwidth"], ["time", "time of a call"]], state.sy), latency = what === "time";
  const points = m.times.filter((t) => t.operation === op && t.cadence === cadence && t.busbw && t.nbytes && (mode === "all" || t.mode === mode) && (!mesh || t.mesh === mesh));
  const series = new Map();
  for (const t of points) { const k = [t.variant, t.mesh, t.dtype, ...(mode === "all" ? [t.mode] : [])].join(" · "); if (!series.has(k)) series.set(k, []); series.get(k).push(t); }
  for (const s of series.values()) s.sort((a, b) => a.nbytes - b.nbytes);
  const every = series.size, drawnSeries = new Map([...series].sort((a, b) => b[1].length - a[1].length).slice(0, MOST_SERIES)), shownPoints = [...drawnSeries.values()].flat();
  const fitOf = (t) => { for (const r of m.timedRuns) { const f = r.fits.find((f) => f.operation === t.operation && f.variant === t.variant && f.mesh === t.mesh && f.dtype === t.dtype && f.mode === t.mode && f.cadence === t.cadence); if (f) return f; } return null; };
  // Bus bandwidth in GB/s, or the time in microseconds; its ends where six processes give some.
  const height = (t) => latency ? t.median_s * 1e6 : t.busbw / 1e9, wide = (t, end) => t[end] === null ? height(t) : latency ? t[end] * 1e6 : t.busbw * t.median_s / t[end] / 1e9;
  const fitted = (fit, s) => { const time = fit.alpha + (fit.beta ? s / fit.beta : 0); return latency ? time * 1e6 : fit.factor * s / time / 1e9; };
  chart("bw-chart", [m.key, cadence, op, mode, mesh, what, theme].join(), (B) => {
    if (!points.length) return m.devices === 1 ? "One device sends nothing to others. Choose a machine with several devices." : op ? `No times of ${op} match this choice.` : "No collective was timed over sizes here.";
    const x = shownPoints.map((t) => t.nbytes), y = shownPoints.map(height), roofs = latency ? [] : ceilings(shownPoints).map(([v, name]) => [v / 1e9, name]), peak = roofs.length ? roofs[0][0] : null;
    const left = Math.min(...x) / 1.6, right = Math.max(...x) * 1.6, ends = [Math.min(...y) / 2, Math.max(...y, peak || 0) * 2], f = figure(B, { x_axis_type: "log", y_axis_type: "log", x_range: [left, right * (roomy() ? (right / left) ** .3 : 1)], y_range: ends });
    const items = [], colors = palette();
    let n = 0;
    for (const [name, list] of drawnSeries) {
      const color = colors[n % colors.length], own = [];
      own.push(f.segment(list.map((t) => t.nbytes), list.map((t) => wide(t, "high_s")), list.map((t) => t.nbytes), list.map((t) => wide(t, "low_s")), { line_color: color, line_width: 1.5 }));
      own.push(f.scatter(list.map((t) => t.nbytes), list.map(height), { marker: MARKERS[n % MARKERS.length], size: 8, fill_color: color, line_color: color }));
      const fit = fitOf(list[0]);
      if (fit && list.length > 2) {
        const lo = list[0].nbytes, hi = list[list.length - 1].nbytes, xs = Array.from({ length: 40 }, (_, i) => lo * (hi / lo) ** (i / 39));
        own.push(f.line(xs, xs.map((s) => fitted(fit, s)), { line_color: color, line_dash: "dashed", line_width: 1.5 }));
      }
      items.push([name, own, color, height(list[list.length - 1])]); n++;
    }
    for (const [value] of roofs) f.line([left, right], [value, value], { line_color: css("--fg"), line_dash: "dotted", line_width: 2 });
    nameCeilings(f, left, roofs.map(([v, name]) => [v, `ceiling ${digits(v)} GB/s: ${name}`]));
    f.below[0].axis_label = "message size S"; f.left[0].axis_label = latency ? "time of a call, µs" : "bus bandwidth, GB/s";
    ticks(f, "below", B, powers(Math.min(...x), Math.max(...x), 4), size);
    const ys = powers(Math.min(...y) / 2, Math.max(...y, peak || 0) * 2, 10); if (ys.length > 1) ticks(f, "left", B, ys, (v) => digits(v));
    nameLines(B, f, items, right / 1.6, ends);
    return f;
  });
  $("bw-table").replaceChildren(...!points.length ? [] : [el("p", { class: "soft small" }, every > MOST_SERIES ? `Drawn are ${MOST_SERIES} of ${every} series, those of most points: choose a mesh for others; the table has all. ` : "", "Bars are 95 % intervals, dashed lines the fit t = α + S / β (in the table with 95 % intervals where six processes give some), dotted lines the ceilings of the links that the groups can use. "), behind(grid("bw", `Bus bandwidth of ${op} on ${m.label}, ${cadence}`, [
    { name: "series", text: (t) => `${t.variant} · ${t.mesh} · ${t.dtype} · ${t.mode}`, value: (t) => `${t.variant} ${t.mesh} ${t.dtype} ${t.mode}` },
    { name: "S, bytes", num: true, text: (t) => count(t.nbytes), value: (t) => t.nbytes }, { name: "time", num: true, text: (t) => spread(t.median_s, t.low_s, t.high_s), value: (t) => t.median_s },
    { name: "bus bandwidth, GB/s", num: true, text: (t) => digits(t.busbw / 1e9) + width(t), value: (t) => t.busbw }, { name: "share of ceiling", num: true, text: share, value: (t) => t.share }, { name: "ceiling", text: (t) => t.share === null ? "" : t.share_of },
    { name: "fit α", num: true, text: (t) => { const f = fitOf(t); return f ? between((v) => seconds(v) || "0", f.alpha, f.alpha_ends) : ""; } }, { name: "fit β", num: true, text: (t) => { const f = fitOf(t); return f ? between((v) => v === null ? "no growth" : `${bytes(v)}/s`, f.beta, f.beta_ends) : ""; } },
    { name: "largest residual", num: true, text: (t) => { const f = fitOf(t); return f ? percent(f.worst) : ""; } },
    ...APART.filter(([key]) => points.some((t) => t[key])).map(([key, name]) => ({ name, num: true, text: (t) => t[key] ? seconds(t[key]) : "", value: (t) => t[key] })),
  ], points)), provenance(m.timedRuns)]);

  const scaled = m.timedRuns.flatMap((r) => r.scaling.map((s) => ({ ...s, run: r }))).filter((s) => s.name.endsWith(`(${cadence})`)), few = [...scaled].sort((a, b) => b.points.length - a.points.length).slice(0, MOST_SERIES);
  chart("scale-chart", [m.key, cadence, theme].join(), (B) => {
    if (!scaled.length) return m.devices === 1 ? "One device has nothing to scale over." : "No times over numbers of devices here. The command meshmark bench --scaling measures them.";
    const ends = [0, 1.15 * Math.max(1, ...few.flatMap((s) => s.points.map((p) => p[2])))], first = Math.min(...few.flatMap((s) => s.points.map((p) => p[0]))), last = Math.max(...few.flatMap((s) => s.points.map((p) => p[0])));
    const f = figure(B, { x_axis_type: "log", y_range: ends, x_range: [first / 1.1, last * (roomy() ? (last / first) ** .45 : 1.1)] }), colors = palette(), items = [], all = [...new Set(few.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
    few.forEach((s, n) => {
      const c = colors[n % colors.length], x = s.points.map((p) => p[0]), y = s.points.map((p) => p[2]);
      items.push([`${s.name.replace(/ \(\w+\)$/, "")}, ${s.kind}`, [f.line(x, y, { line_color: c, line_width: 1.5, line_dash: s.kind === "weak" ? "dashed" : "solid" }), f.scatter(x, y, { marker: MARKERS[n % MARKERS.length], size: 8, fill_color: c, line_color: c }), ...barsOf(f, s.points, c)], c, y[y.length - 1]]);
    });
    items.push(["perfect", [f.line([all[0], all[all.length - 1]], [1, 1], { line_color: css("--fg"), line_dash: "dotted" })], css("--fg"), 1]);
    f.below[0].axis_label = "devices"; f.left[0].axis_label = "efficiency"; ticks(f, "below", B, all, String); nameLines(B, f, items, last, ends, Number);
    return f;
  });
  $("scale-table").replaceChildren(...scaled.length ? [el("p", { class: "soft small" }, `An efficiency of 1: with n times the devices the same work takes an n-th of the time (strong scaling, solid), or n times the work the same time (weak scaling, dashed).${scaled.length > few.length ? ` Drawn are ${few.length} of ${scaled.length} series; the table has all.` : ""}`), behind(grid("scale", `Scaling on ${m.label}, ${cadence}`, [
    { name: "series", text: (p) => p.s.name, value: (p) => p.s.name }, { name: "kind", text: (p) => p.s.kind, value: (p) => p.s.kind }, { name: "devices", num: true, text: (p) => String(p.p[0]), value: (p) => p.p[0] },
    { name: "time", num: true, text: (p) => seconds(p.p[1]), value: (p) => p.p[1] }, { name: "efficiency", num: true, text: (p) => between(percent, p.p[2], p.p.slice(3)), value: (p) => p.p[2] },
  ], scaled.flatMap((s) => s.points.map((p) => ({ s, p }))))), provenance(scaled.map((s) => s.run))] : []);

  const shares = best(m, cadence);
  chart("share-chart", [m.key, cadence, theme].join(), (B) => {
    if (!shares.length) return "No ceiling is published or measured for these times.";
    const names = shares.map((t) => t.operation).reverse(), f = figure(B, { height: Math.max(140, 60 + 30 * names.length), y_range: names, x_range: [0, Math.max(1, ...shares.map((t) => t.share)) * 100 * 1.05] });
    f.hbar({ y: shares.map((t) => t.operation), right: shares.map((t) => 100 * t.share), left: 0, height: .62, fill_color: palette()[0], line_color: null, fill_alpha: .85 });
    const sure = shares.filter((t) => width(t)), end = (t, at) => 100 * t.share * t.median_s / t[at];
    f.segment(sure.map((t) => end(t, "high_s")), sure.map((t) => t.operation), sure.map((t) => end(t, "low_s")), sure.map((t) => t.operation), { line_color: css("--fg"), line_width: 1.5 });
    f.text(shares.map((t) => t.share > .7 ? 100 * t.share : width(t) ? end(t, "low_s") : 100 * t.share), shares.map((t) => t.operation), shares.map((t) => `${share(t)}, ${plainRate(t)}`), { x_offset: shares.map((t) => t.share > .7 ? -6 : 6), text_align: shares.map((t) => t.share > .7 ? "right" : "left"), text_baseline: "middle", text_color: shares.map((t) => t.share > .7 ? css("--bg") : css("--fg")), text_font_size: "12px", text_font: "system-ui, sans-serif" });
    f.below[0].axis_label = roomy() ? "best share of the ceiling that binds, percent" : "share of the ceiling, percent";
    return f;
  });
  $("share-table").replaceChildren(...shares.length ? [el("p", { class: "soft small" }, ABOUT_SHARES, shares.some((t) => !width(t)) ? " A share without brackets is of a single run." : ""), behind(grid("share", `Best share of the ceiling that binds, on ${m.label}, ${cadence}`, shareColumns, shares)), provenance(m.timedRuns)] : []);
  drawRoofline(m, cadence, theme);
}
// The intervals of efficiencies, where there are any.
function barsOf(f, points, color) { const sure = points.filter((p) => p[3] !== undefined && p[3] !== p[4]), x = sure.map((p) => p[0]); return sure.length ? [f.segment(x, sure.map((p) => p[3]), x, sure.map((p) => p[4]), { line_color: color, line_width: 1.5 })] : []; }
// The best share of a ceiling of each operation among the calls of one cadence, in manual mode where there is one; of
// times with an interval where there are any.
const better = (t, was) => !was || (!width(t) === !width(was) ? t.share > was.share : Boolean(width(t)));
function best(m, cadence) {
  m.best ??= new Map();
  if (m.best.has(cadence)) return m.best.get(cadence);
  const spelled = new Set(m.times.filter((t) => t.mode === "manual").map((t) => t.operation)), found = new Map();
  for (const t of m.times) if (t.cadence === cadence && t.share !== null && (t.mode === "manual" || !spelled.has(t.operation)) && better(t, found.get(t.operation))) found.set(t.operation, t);
  m.best.set(cadence, [...found.values()].sort((a, b) => b.share - a.share));
  return m.best.get(cadence);
}
const ABOUT_SHARES = "In brackets is what the 95 % interval of the time over processes gives. A ceiling is taken as it was measured, once. The best of several cases is chosen by its time, so its share is a little high.";
const shareColumns = [
  { name: "operation", text: (t) => t.operation, value: (t) => t.operation }, { name: "best in", text: (t) => `${t.variant} ${t.mesh} ${t.dtype} ${t.size}, ${t.mode}, ${t.cadence}` },
  { name: "rate", num: true, text: (t) => rate(t), value: (t) => t.busbw || t.flops_per_s }, { name: "share", num: true, text: share, value: (t) => t.share }, { name: "binds", text: (t) => t.bound_by, value: (t) => t.bound_by }, { name: "of", text: (t) => t.share_of },
];
function drawSide() {
  const groups = new Map();
  for (const m of timed) { const k = m.class === "virtual" ? "virtual devices" : m.class === "real" ? `${m.kind}, real` : "compiled"; if (!groups.has(k)) groups.set(k, []); groups.get(k).push(m); }
  const chosen = options($("s-class"), [...groups.keys()].map((k) => [k, k]), state.class), list = groups.get(chosen) || [], cadence = $("s-cadence").value, found = new Map(), words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  list.forEach((m, k) => { for (const t of m.times) if (t.mode === "manual" && t.cadence === cadence && t.median_s !== null && keep(t, words, state.mode)) { if (!found.has(t.cell)) found.set(t.cell, { first: t, by: [] }); found.get(t.cell).by[k] = t; } });
  $("side-table").replaceChildren(...[grid("side", `Times of manual mode, ${chosen}, ${cadence}`, [
    { name: "case", text: (r) => [el("span", { class: "op" }, r.first.operation), ` ${r.first.variant} `, el("span", { class: "soft" }, `${r.first.mesh} ${r.first.dtype} ${r.first.size}`)], value: (r) => r.first.cell, cls: "id" },
    ...list.map((m, k) => ({ name: m.label, num: true, text: (r) => r.by[k] ? [spread(r.by[k].median_s, r.by[k].low_s, r.by[k].high_s), el("div", { class: "soft small" }, rate(r.by[k]))] : "", value: (r) => r.by[k]?.median_s ?? null })),
  ], [...found.values()].sort((a, b) => b.by.filter(Boolean).length - a.by.filter(Boolean).length)), provenance(list.flatMap((m) => m.timedRuns))].flat(3));
}
