/* SPDX-License-Identifier: Apache-2.0 */
// The roofline: FLOP/s of layers and contractions over FLOP per byte moved, under the ceilings of compute and memory.
// Of one device; virtual devices share a machine, and theirs are of all together.
function roofsOf(m) {
  const found = new Map();
  for (const r of m.timedRuns) for (const one of r.roofs) if (!found.has(one.dtype)) found.set(one.dtype, one);
  return [...found.values()];
}
const named = (r) => `${r.dtype}: ${flopRate(r.flops)} (${r.flops_of}), ${bytes(r.memory)}/s (${r.memory_of})`;
const flopRate = (x) => x >= 1e12 ? `${digits(x / 1e12)} TFLOP/s` : `${digits(x / 1e9)} GFLOP/s`;
function drawRoofline(m, cadence, theme) {
  const roofs = roofsOf(m), together = m.class === "virtual", mode = m.times.some((t) => t.mode === "manual" && t.intensity !== null) ? "manual" : null;
  const points = m.times.filter((t) => t.intensity !== null && t.flops_per_s && t.cadence === cadence && (!mode || t.mode === mode));
  const height = (t) => t.flops_per_s / (together ? 1 : t.devices), series = new Map();
  for (const t of points) { if (!series.has(t.operation)) series.set(t.operation, []); series.get(t.operation).push(t); }
  const drawnSeries = [...series].sort(([a], [b]) => place(a) - place(b)).slice(0, MOST_SERIES);
  chart("roof-chart", [m.key, cadence, theme].join(), (B) => {
    if (!points.length) return "No layer or contraction was timed in this cadence.";
    const shown = drawnSeries.flatMap(([, list]) => list), ridges = roofs.map((r) => r.flops / r.memory);
    const x = [...shown.map((t) => t.intensity), ...ridges], y = [...shown.map((t) => height(t) / 1e9), ...roofs.map((r) => r.flops / 1e9)];
    const lo = Math.min(...x) / 2, hi = Math.max(...x) * 4, low = Math.min(...y) / 2, top = Math.max(...y) * (roomy() && roofs.length ? 6 : 2);
    const f = figure(B, { height: 400, x_axis_type: "log", y_axis_type: "log", x_range: [lo, hi], y_range: [low, top] }), colors = palette(), items = [];
    drawnSeries.forEach(([name, list], n) => {
      const color = colors[n % colors.length];
      const highest = list.reduce((a, b) => height(a) > height(b) ? a : b);
      items.push([name, [f.scatter(list.map((t) => t.intensity), list.map((t) => height(t) / 1e9), { marker: MARKERS[n % MARKERS.length], size: 8, fill_color: color, fill_alpha: .75, line_color: color })], color, [highest.intensity, height(highest) / 1e9]]);
    });
    roofs.forEach((r, n) => {
      const dash = ["solid", "dashed", "dotted", "dotdash"][n % 4], ridge = r.flops / r.memory;
      if (roomy()) nameCeilings(f, Math.max(lo, ridge / 60), [[r.flops / 1e9, named(r)]]);
      items.push([`ceilings of ${r.dtype}`, [f.line([lo, ridge, hi], [lo * r.memory, r.flops, r.flops].map((v) => v / 1e9), { line_color: css("--fg"), line_dash: dash, line_width: 1.5 })], null, null]);
    });
    f.below[0].axis_label = `${roomy() ? "arithmetic intensity, " : ""}FLOP per byte that must move`; f.left[0].axis_label = `GFLOP/s ${together ? "of all devices together" : "of a device"}`;
    ticks(f, "below", B, powers(lo, hi, hi / lo > 1e4 ? 10 : 4), (v) => digits(v)); ticks(f, "left", B, powers(low, top, 10), (v) => digits(v));
    namePoints(B, f, items, shown.map((t) => [t.intensity, height(t) / 1e9]), [lo, hi], [low, top]);
    return f;
  });
  $("roof-table").replaceChildren(...points.length ? [el("p", { class: "soft small" }, `${mode ? `Points are of ${mode} mode. ` : ""}The sloped line is the memory, the flat line arithmetic. Bytes are the least that must move: arguments and results, once each.${roofs.length ? ` Ceilings of ${roofs.map(named).join("; ")}.` : " No ceiling of them is published or measured."}${series.size > MOST_SERIES ? ` Drawn are ${MOST_SERIES} of ${series.size} operations; the table has all.` : ""}`),
    behind(grid("roof", `Layers and contractions under their ceilings on ${m.label}, ${cadence}`, [
      { name: "case", text: (t) => [el("span", { class: "op" }, t.operation), ` ${t.variant} `, el("span", { class: "soft" }, `${t.mesh} ${t.dtype} ${t.size}`)], value: (t) => t.cell, cls: "id" },
      { name: "FLOP", num: true, text: (t) => digits(t.intensity * t.moved_bytes * t.devices), value: (t) => t.intensity * t.moved_bytes * t.devices }, { name: "bytes a device moves", num: true, text: (t) => bytes(t.moved_bytes), value: (t) => t.moved_bytes },
      { name: "FLOP per byte", num: true, text: (t) => digits(t.intensity), value: (t) => t.intensity }, { name: "rate", num: true, text: rate, value: (t) => t.flops_per_s },
      { name: "binds", text: (t) => t.bound_by, value: (t) => t.bound_by }, { name: "share of it", num: true, text: share, value: (t) => t.share }, { name: "ceiling", text: (t) => t.share === null ? "not known" : t.share_of },
    ], points)), provenance(m.timedRuns)] : []);
}
