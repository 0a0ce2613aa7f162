/* SPDX-License-Identifier: Apache-2.0 */
// Over time: releases of JAX, jaxlib and libtpu on one axis, the oldest first: verdicts, compiled bytes and collectives,
// memory, time. A column is a release, a row a figure of the environments at the column of their JAX.
const W = D.beside.weather;
const counted = (name, v) => v === null ? "" : name === "exposed" ? seconds(v) : /^(sent|memory|peak|temporaries)$/.test(name) ? bytes(v) : count(v);
const RELEASES = D.releases || { axis: [], pairs: [], source: "not in these data" };  // data of an earlier page have none
const A = RELEASES.axis, nameOf = (r) => `${r.kind} ${r.version}`, columnOf = new Map(A.map((r, i) => [nameOf(r), i]));
const ROW = 58, SIDE = () => phone.matches ? 112 : 190, COLUMN = () => Math.max(66, Math.min(110, 1000 / A.length));
// A row: {title, points: [{x: column, name, y, low, high}], text}. Each point has its value where it differs from the one
// before; a bar is its interval. From zero: a small change looks small.
function lane(row, top) {
  const seen = row.points, max = Math.max(...seen.map((p) => p.high ?? p.y)) || 1, x = (p) => COLUMN() * (p.x + .5), y = (v) => top + ROW - 8 - v / max * (ROW - 28);
  return [draw("line", { x1: 0, x2: COLUMN() * A.length, y1: top + ROW, y2: top + ROW, class: "g-line" }),
    draw("polyline", { points: seen.map((p) => `${x(p)},${y(p.y)}`).join(" "), class: "g-trend" }),
    seen.map((p, i) => [p.low === undefined ? "" : draw("line", { x1: x(p), x2: x(p), y1: y(p.low), y2: y(p.high), class: "g-trend" }), draw("circle", { cx: x(p), cy: y(p.y), r: 4, class: "g-point" }, draw("title", {}, `${p.name}: ${row.text(p.y)}`)), !i || i === seen.length - 1 || row.text(p.y) !== row.text(seen[i - 1].y) ? draw("text", { x: x(p), y: y(p.high ?? p.y) - 8, class: "g-text g-mid g-strong" }, row.text(p.y)) : "", p.low === undefined ? "" : draw("text", { x: x(p), y: y(p.low) + 15, class: "g-text g-mid" }, `${row.text(p.low)}–${row.text(p.high)}`)])];
}
// A title in as many lines as it needs.
function wrapped(title) {
  const found = [];
  for (const word of title.split(" ")) if (found.length && `${found.at(-1)} ${word}`.length * 7.1 < SIDE() - 16) found.push(`${found.pop()} ${word}`); else found.push(word);
  return found;
}
// The titles of the rows stay where they are while the releases scroll.
const HEAD = 74;
function titles(rows_) {
  const say = (text, y) => draw("text", { x: 8, y, class: "g-text g-strong" }, text);
  return draw("svg", { viewBox: `0 0 ${SIDE()} ${HEAD + ROW * rows_.length + 4}`, style: `width: ${SIDE()}px`, class: "titles", "aria-hidden": "true" }, ["JAX, jaxlib", "libtpu"].map((t, i) => say(t, 14 + 34 * i)),
    rows_.map((row, i) => { const own = wrapped(row.title), top = HEAD + ROW * i; return [draw("line", { x1: 0, x2: SIDE(), y1: top + ROW, y2: top + ROW, class: "g-line" }), own.map((t, k) => say(t, top + ROW / 2 + 7 + 13 * (k - (own.length - 1) / 2)))]; }));
}
// The axis itself: each release by the day on which it came out; a curve joins the JAX and the libtpu of one environment.
function lanes(rows_) {
  const wide = COLUMN() * A.length, head = HEAD, x = (i) => COLUMN() * (i + .5), at = (kind, version) => columnOf.get(`${kind} ${version}`);
  return draw("svg", { viewBox: `0 0 ${wide} ${head + ROW * rows_.length + 4}`, style: `width: ${wide}px`, role: "img", "aria-label": `Releases in the order of their dates: ${A.map((r) => `${nameOf(r)} ${r.date || "without a date"}`).join(", ")}. The table behind it has every figure.` },
    A.map((r, i) => { const top = r.kind === "libtpu" ? 34 : 0; return [draw("line", { x1: x(i), x2: x(i), y1: top + 30, y2: head + ROW * rows_.length, class: "g-line" }), draw("text", { x: x(i), y: top + 14, class: "g-text g-mid g-strong" }, (r.kind === "jaxlib" ? nameOf(r) : r.version).slice(0, 14)), draw("text", { x: x(i), y: top + 26, class: "g-text g-mid" }, r.date || "no date")]; }),
    RELEASES.pairs.map(([jax, libtpu]) => { const a = x(at("JAX", jax)), b = x(at("libtpu", libtpu)); return draw("path", { d: `M${a},30 C${a},40 ${b},24 ${b},36`, class: "g-pair" }, draw("title", {}, `JAX ${jax} with libtpu ${libtpu}`)); }),
    rows_.map((row, i) => lane(row, head + ROW * i)));
}
// What a machine's releases say: [title, of a row, as text].
const JUDGED = [["Cases that pass or compile", (r) => r.pass, count], ["Known issues and failures", (r) => r.known + r.bad, count], ["Bytes that a device sends, all programs", (r) => r.wire, bytes], ["Temporary memory of a device, all programs", (r) => r.temp, bytes], ["Programs with other collectives than before", (r) => r.changed, count]];
const COMPILED = ["collectives", "sent", "memory", "temporaries", "exposed"];
function drawOverTime() {
  const all = D.over_time.map((s) => ({ ...s, name: `${CLASS[s.class]} · ${s.machine}`, runs: s.runs.map((k) => byKey.get(k)) })), out = $("time-out"), places_ = W && W.releases.length > 1 ? W.places : [];
  const chosen = options($("t-machine"), all.length ? all.map((s) => [s.name, s.name]) : [["", "none"]], state.tmachine), one = all.find((s) => s.name === chosen), place_ = options($("t-place"), places_.length ? places_.map((p) => [p.name, p.name]) : [["", "none"]], state.tplace), w = places_.find((p) => p.name === place_);
  if (!one && !w) { out.replaceChildren(el("p", { class: "soft" }, "Only one release of each machine here.")); return; }
  const rows_ = [], by = new Map(), put = (jax, name, text) => { if (text === "") return; if (!by.has(jax)) by.set(jax, {}); by.get(jax)[name] = text; }, notes = [];
  const add = (title, of, points, text) => {
    const own = points.filter((p) => p.y !== null && columnOf.has(`JAX ${p.jax}`)).map((p) => ({ ...p, x: columnOf.get(`JAX ${p.jax}`) })).sort((a, b) => a.x - b.x);
    if (!own.length) return;
    rows_.push({ title, points: own, text });
    for (const p of own) put(p.jax, `${title}${of}`, p.low === undefined ? text(p.y) : between(text, p.y, [p.low, p.high]));
  };
  if (one) {
    notes.push(el("p", {}, `${one.name}: the ${plural(one.cases, "case")} that each of its releases has.`));
    for (const [title, f, text] of JUDGED) add(title, "", one.rows.map((row, k) => ({ jax: one.runs[k].release, name: one.runs[k].label, y: f(row) })), text);
    const times_ = one.times || [], sure = times_.length && times_.every(([, value]) => value !== null), ratio_ = (y) => y.toFixed(2);
    if (sure) {
      add(`Time of manual mode over JAX ${one.runs[0].release}`, "", times_.map(([, y, low, high], k) => ({ jax: one.runs[k].release, name: one.runs[k].label, y, low, high })), ratio_);
      notes.push(el("p", { class: "soft" }, `Time: in each process the median of ${plural(one.timed, "cell")}, with 95 % intervals over ${[...new Set(times_.map(([n]) => n))].join(" or ")} processes. The runs took place at different times, and an interval knows nothing of that: a trend in them is not a tested difference, which `, el("code", {}, "meshmark compare"), " gives."));
    } else if (times_.length) notes.push(el("p", { class: "soft" }, `No trend of times: JAX ${one.runs.filter((_, k) => times_[k][1] === null).map((r) => r.release).join(", ")} ${times_.filter(([, v]) => v === null).length === 1 ? "was" : "were"} timed in fewer than six processes, which give no interval.`));
  }
  if (w) {
    const names_ = new Map(W.counters);
    notes.push(el("p", {}, `Compiled for ${w.name}: the ${plural(w.programs, "program")} of the weather that every release compiled, of one device.`));
    for (const c of COMPILED) add(`${names_.get(c).replace(/, (bytes|s)$/, "")}, ${w.name}`, "", W.releases.map((r, i) => ({ jax: r.jax, name: r.label, y: w.sums[c][i] })), (v) => counted(c, v));
  }
  const seen = A.filter((r) => r.kind !== "JAX" || by.has(r.version));
  out.replaceChildren(...[notes, el("div", { class: "scroll lanes", tabindex: "0", role: "region", "aria-label": "Releases on one axis, scrolls sideways" }, el("div", { class: "lanes-in" }, titles(rows_), lanes(rows_))),
    el("p", { class: "soft small" }, `Dates: ${RELEASES.source}. A figure stands at the column of its JAX; a curve leads to the libtpu that it was compiled with.`),
    behind(grid("time", "Releases in the order of their dates, and what each figure is from them", [
      { name: "date", text: (r) => r.date || "not known", cls: "nowrap" }, { name: "release", text: nameOf, cls: "nowrap" },
      { name: "with", text: (r) => RELEASES.pairs.filter(([jax, libtpu]) => r.version === (r.kind === "JAX" ? jax : libtpu) && r.kind !== "jaxlib").map(([jax, libtpu]) => r.kind === "JAX" ? `libtpu ${libtpu}` : `JAX ${jax}`).join(", "), cls: "nowrap" },
      ...rows_.map(({ title }) => ({ name: title, num: true, text: (r) => r.kind === "JAX" ? by.get(r.version)?.[title] ?? "" : "" })),
    ], seen, { sortable: false })), one ? provenance(one.runs) : "", w ? filesOf("schedule") : ""].flat(3).filter((x) => x !== ""));
  const box = out.querySelector(".lanes");
  box.scrollLeft = box.scrollWidth;  // the newest release first
}
