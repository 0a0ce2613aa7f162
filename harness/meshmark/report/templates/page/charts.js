/* SPDX-License-Identifier: Apache-2.0 */
// Charts: Bokeh, its colours, and when one is drawn.
let plotting = null;
function library() {  // Bokeh is in the page as text and starts when a chart comes into view
  plotting = plotting || new Promise((resolve) => {
    for (const id of ["plot-0", "plot-1"]) { const s = document.createElement("script"); s.textContent = $(id).textContent; document.head.append(s); }
    resolve(Bokeh);
  });
  return plotting;
}
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dark = () => { const t = document.documentElement.dataset.theme; return t ? t === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; };
// Told apart by people who see no red or no green, too: tests/report/test_colours.py
const palette = () => dark() ? ["#6fe4ff", "#ef9d5f", "#6b9089", "#eeb4be", "#ebda59", "#b39af4", "#fe9889", "#9ba3c2"] : ["#1347c7", "#c35d04", "#167762", "#ac7954", "#703530", "#6e56b7", "#b1271f", "#555f79"];
const MOST_SERIES = 8;
const MARKERS = ["circle", "square", "triangle", "diamond", "inverted_triangle", "star", "hex", "plus"];
const views = new Map(), drawn = new Map(), pending = new Map();
function figure(B, settings) {
  const f = B.Plotting.figure({ height: 360, sizing_mode: "stretch_width", tools: "pan,box_zoom,reset,save", toolbar_location: "above", background_fill_color: null, border_fill_color: null, outline_line_color: css("--line"), ...settings });
  f.toolbar.logo = null;
  for (const axis of [...f.xaxes ?? [], ...f.yaxes ?? []]) paint(axis);
  for (const side of ["below", "left"]) for (const axis of f[side]) paint(axis);
  for (const g of f.center) if ("grid_line_color" in g) { g.grid_line_color = css("--line"); g.grid_line_alpha = .6; }
  return f;
}
function paint(axis) {
  axis.axis_label_text_color = axis.major_label_text_color = css("--muted"); axis.axis_line_color = axis.major_tick_line_color = css("--line"); axis.minor_tick_line_color = null;
  axis.axis_label_text_font_style = "normal"; axis.axis_label_text_font = axis.major_label_text_font = "system-ui, sans-serif"; axis.major_label_text_font_size = "12px"; axis.axis_label_text_font_size = "12px";
}
function legend(B, f, items) {
  const one = new B.Legend({ location: "left", items: items.map(([label, renderers]) => new B.LegendItem({ label, renderers })), click_policy: "hide", background_fill_color: css("--bg"), background_fill_alpha: .8, label_text_color: css("--fg"), border_line_color: null, label_text_font_size: "11px", label_text_font: "system-ui, sans-serif", spacing: 0, padding: 6, label_height: 14, glyph_height: 14, ncols: items.length > 5 && innerWidth > 700 ? 3 : 1 });
  f.add_layout(one, "below");
  f.height = 330 + 17 * Math.ceil(items.length / one.ncols);
}
// Where there is room a line has its name at its end, in its colour, and names keep apart; on a phone a legend has them.
// items: [name, renderers, color, last y]; `x`: where names start; `ends`: the least and the largest y of the figure.
const roomy = () => innerWidth > 700;
const FONT = { text_font_size: "12px", text_font: "system-ui, sans-serif", text_baseline: "middle" };
function nameLines(B, f, items, x, [low, high], scale = Math.log) {
  if (!roomy()) { legend(B, f, items.map(([name, own]) => [name, own])); return; }
  const at = (y) => (scale(y) - scale(low)) / (scale(high) - scale(low)), step = 16 / 290, placed = items.map(([name, , color, y]) => ({ name, color, at: at(y) })).sort((a, b) => a.at - b.at);
  placed.forEach((p, i) => { if (i) p.at = Math.max(p.at, placed[i - 1].at + step); });
  for (let i = placed.length - 1, most = 1 - step / 2; i >= 0; i--, most -= step) placed[i].at = Math.min(placed[i].at, most);
  const back = (v) => scale === Math.log ? low * (high / low) ** v : low + v * (high - low);
  f.text(placed.map(() => x), placed.map((p) => back(p.at)), placed.map((p) => p.name), { ...FONT, x_offset: 10, text_color: placed.map((p) => p.color) });
}
// A group of points has its name beside its highest point, and names keep apart from each other and from all points; on a
// phone a legend has them. items: [name, renderers, color, [x, y] of the highest point], the last null for what is named
// elsewhere; `points`: [x, y] of every point.
function namePoints(B, f, items, points, [lo, hi], [low, high]) {
  if (!roomy()) { legend(B, f, items.map(([name, own]) => [name, own])); return; }
  const across = (x) => Math.log(x / lo) / Math.log(hi / lo) * 1100, up = (y) => Math.log(y / low) / Math.log(high / low) * 310, placed = [];
  for (const [name, , color, at] of items) {
    if (!at) continue;
    const left = across(at[0]) + 8, one = { name, color, x: at[0], y: at[1], left, right: left + 7 * name.length, shift: 0 };
    const beside = (y) => Math.abs(y - up(one.y) + one.shift) < 12, taken = () => placed.some((p) => p.left < one.right && one.left < p.right && beside(up(p.y) - p.shift)) || points.some(([x, y]) => across(x) > one.left && across(x) < one.right && beside(up(y)));
    while (taken()) one.shift -= 4;
    placed.push(one);
  }
  f.text(placed.map((p) => p.x), placed.map((p) => p.y), placed.map((p) => p.name), { ...FONT, x_offset: 8, y_offset: placed.map((p) => p.shift), text_color: placed.map((p) => p.color) });
}
// A ceiling has its name above its line, at the left.
function nameCeilings(f, x, list) { f.text(list.map(() => x), list.map(([v]) => v), list.map(([, name]) => name), { ...FONT, x_offset: 6, y_offset: -9, text_color: css("--fg") }); }
function ticks(f, side, B, values, text) {
  const axis = f[side][0];
  axis.ticker = new B.FixedTicker({ ticks: values });
  axis.major_label_overrides = new Map(values.map((v) => [v, text(v)]));
  for (const g of f.center) if (g.dimension === (side === "below" ? 0 : 1)) g.ticker = axis.ticker;
}
// Draw what `make` gives: a figure, or the sentence that stands where there is nothing to draw.
async function chart(id, key, make) {
  pending.set(id, { key, make });
  if (!seenCharts.has(id)) return;
  if (drawn.get(id) === key) return;
  drawn.set(id, key);
  const box = $(id), B = await library();
  if (drawn.get(id) !== key) return;
  views.get(id)?.remove?.();
  box.replaceChildren();
  const f = make(B), said = typeof f === "string";
  box.classList.toggle("empty", said);
  if (said) { box.textContent = f; return; }
  views.set(id, await B.Plotting.show(f, box));
  box.dataset.ready = "yes";
}
const seenCharts = new Set();
const watcher = new IntersectionObserver((entries) => {
  for (const e of entries) if (e.isIntersecting) { seenCharts.add(e.target.id); watcher.unobserve(e.target); const p = pending.get(e.target.id); if (p) chart(e.target.id, p.key, p.make); }
}, { rootMargin: "300px" });
const powers = (lo, hi, base) => { const out = []; for (let e = Math.floor(Math.log(lo) / Math.log(base)); base ** e <= hi * 1.001; e++) if (base ** e >= lo * .999) out.push(base ** e); return out; };
const size = (b) => b >= 2 ** 30 ? `${digits(b / 2 ** 30)} GiB` : b >= 2 ** 20 ? `${digits(b / 2 ** 20)} MiB` : b >= 1024 ? `${digits(b / 1024)} KiB` : `${digits(b)} B`;
const behind = (...content) => el("details", {}, el("summary", {}, "The table behind this chart"), content);
