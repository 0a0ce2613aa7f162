/* SPDX-License-Identifier: Apache-2.0 */
// Growth: bytes, memory and collectives of a device over the number of devices, beside theory.
const G = D.beside.growth;
const LINES = { auto: "g-auto", explicit: "g-explicit", manual: "g-manual", theory: "g-theory" };
// Lines over devices on logarithmic scales, with their names at their ends; lines that coincide share one label.
function growthLines(title, series, text) {
  const w = 360, h = 210, left = 58, right = 104, top = 12, bottom = 30, all = series.flatMap((s) => s.points);
  if (!all.length) return "";
  const xs = [...new Set(all.map((p) => p[0]))].sort((a, b) => a - b), low = Math.min(...all.map((p) => p[1])), high = Math.max(...all.map((p) => p[1]));
  const span = Math.max(Math.log(high / low), 0.7), mid = (Math.log(high) + Math.log(low)) / 2;
  const x = (n) => left + (xs.length > 1 ? Math.log(n / xs[0]) / Math.log(xs[xs.length - 1] / xs[0]) : 0) * (w - left - right), y = (v) => top + (0.5 - (Math.log(v) - mid) / span / 1.1) * (h - top - bottom);
  const ends = new Map();
  for (const s of series) { const last = s.points[s.points.length - 1]; if (last) { const key = Math.round(y(last[1]) / 11); ends.set(key, [...(ends.get(key) || []), s]); } }
  const ticks = xs.filter((_, i) => i % Math.ceil(xs.length / 4) === 0);
  return el("figure", {}, el("figcaption", {}, title), draw("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `${title}: ${series.map((s) => `${s.name} ${s.points.map((p) => `${text(p[1])} on ${count(p[0])}`).join(", ")}`).join("; ")}` },
    [low, high].filter((v, i, a) => !i || v !== a[0]).map((v) => [draw("line", { x1: left, x2: w - right, y1: y(v), y2: y(v), class: "g-line" }), draw("text", { x: left - 4, y: y(v) + 3, class: "g-text g-end" }, text(v))]),
    draw("text", { x: w - right + 24, y: h - 12, class: "g-text" }, "devices"),
    ticks.map((n) => draw("text", { x: x(n), y: h - 12, class: "g-text g-mid" }, count(n))),
    series.map((s) => draw("polyline", { points: s.points.map((p) => `${x(p[0])},${y(p[1])}`).join(" "), class: `g-over ${LINES[s.name]}` })),
    [...ends].map(([key, list]) => draw("text", { x: w - right + 5, y: key * 11 + 3, class: "g-text g-strong" }, list.map((s) => s.name).join(", ").replace("auto, explicit, manual", "all modes").replace("all modes, theory", "all, as theory")))));
}
function drawGrowth() {
  const out = $("growth-out");
  if (!G.length) { options($("g-op"), [["", "none"]], ""); out.replaceChildren(el("p", { class: "soft" }, "No records of meshmark growth here.")); return; }
  const name = (r) => `${r.chip} · ${r.operation} ${r.variant} · ${r.scaling} scaling`, groups = new Map();
  for (const r of G) { if (!groups.has(name(r))) groups.set(name(r), []); groups.get(name(r)).push(r); }
  const chosen = options($("g-op"), [...groups.keys()].map((k) => [k, k]), state.gop || [...groups].find(([, own]) => own.some((r) => r.faster.length))?.[0]), list = groups.get(chosen);
  const what = { wire_bytes: ["Bytes that a device sends", bytes], memory_bytes: ["Memory of a device", bytes], collective_runs: ["Collectives that run", count] };
  const charts = Object.entries(what).map(([q, [title, text]]) => {
    const clean = (points) => points.filter((p) => p[1] > 0), series = list.map((r) => ({ name: r.mode, points: clean(r[q]) }));
    const theory = (list.find((r) => r.mode === "manual") || list[0])[`${q}_theory`];
    if (theory.length && q !== "collective_runs") series.push({ name: "theory", points: clean(theory) });
    return growthLines(title, series, text);
  });
  const last = (points) => points.length ? points[points.length - 1] : [null, null];
  const times = (r, q, end) => { const t = new Map(r[`${q}_theory`]), p = end ? last(r[q]) : r[q][0]; return p && t.get(p[0]) ? p[1] / t.get(p[0]) : null; };
  const steps = (q) => [false, true].map((end) => ({ name: `${q === "wire_bytes" ? "bytes" : "memory"} / theory, ${end ? "most" : "fewest"}`, num: true, text: (r) => { const x = times(r, q, end); return x === null ? "" : el("span", { class: end && r.faster.includes(q) ? "bar-slow" : null }, digits(x)); }, value: (r) => times(r, q, end) }));
  const faster = G.filter((r) => r.faster.length);
  out.replaceChildren(...[el("p", {}, faster.length ? `${count(faster.length)} of ${count(G.length)} series grow faster than theory: ${[...new Set(faster.map((r) => `${r.operation} on ${r.chip}`))].slice(0, 8).join(", ")}.` : "Nothing grows faster than its theory."),
    el("div", { class: "trends" }, charts), grid("growth", "Every series, those that grow faster than theory first: bytes and memory over their theory, on the fewest and on the most devices", [
      { name: "series", text: (r) => `${r.chip} ${r.operation} ${r.variant}`, value: (r) => `${r.chip} ${place(r.operation) + 1e5}`, cls: "id" }, { name: "mode", text: (r) => r.mode, value: (r) => r.mode }, { name: "scaling", text: (r) => r.scaling, value: (r) => r.scaling },
      { name: "devices", num: true, text: (r) => r.wire_bytes.length ? `${count(r.wire_bytes[0][0])} to ${count(last(r.wire_bytes)[0])}` : "", value: (r) => last(r.wire_bytes)[0] }, ...steps("wire_bytes"), ...steps("memory_bytes"),
      { name: "grows faster", text: (r) => r.faster.map((q) => what[q][0].toLowerCase()).join(", "), value: (r) => -r.faster.length },
    ], [...G].sort((a, b) => b.faster.length - a.faster.length)), filesOf("growth")].flat(3));
}
