/* SPDX-License-Identifier: Apache-2.0 */
// The picture of the landing view: each operation by mode, for the newest run of each kind of place.
const SVG = "http://www.w3.org/2000/svg";
function draw(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value); else made.setAttribute(name, value);
  }
  for (const child of children.flat(9)) if (child !== null && child !== undefined && child !== "") made.append(child);
  return made;
}
// One run for each place that a reader asks about: the newest on real devices, on virtual ones, and for each chip.
function places() {
  const found = [], seen = new Set();
  const fullest = (run) => run.class === "compiled" ? run.judged.case.length + (run.interpreted.length ? 1e6 : 0) : 0;
  for (const run of [...judgedRuns].sort((a, b) => (a.class === "compiled") - (b.class === "compiled") || byRelease(b.release, a.release) * (a.class === "compiled") || fullest(b) - fullest(a))) {
    const what = run.class === "compiled" ? (run.kind.startsWith("TPU") ? "TPU" : "GPU") : run.class;
    if (!seen.has(what)) { seen.add(what); found.push(run); }
  }
  return found.slice(0, 4);
}
const QUIET = { pass: "g-pass", known: "g-known", not_run: "g-compiled", interpreted: "g-interpreted", unsupported: "g-none" };
const STATES = [["g-pass", "every case passes"], ["g-known", "a known issue"], ["g-bad", "a failure"], ["g-compiled", "compiled, not run"], ["g-interpreted", "interpreted, not run"]];
const MODE_WORDS = { auto: "sharding", explicit: "axes", manual: "(shard_map)", "manual-novma": "(without check_vma)", pmap: "(older manual)", pjit: "(older auto)", host: "(no program)" };
// What the picture has a column for: each operation, on a phone each family.
function pictured(shown) {
  const M = modesSeen.length, has = (r) => shown.some((run) => modesSeen.some((_, m) => worstOf(run)[r * M + m] >= 0)), found = [];
  for (const [family, every] of families) {
    const members = every.filter(has);
    if (members.length) found.push({ family, items: tablet.matches ? [{ name: family, rows: members }] : members.map((r) => ({ name: rows[r].operation, rows: [r] })) });
  }
  return found;
}
// Names over the groups, in as many lines as they need to stand apart: [x, line] of each.
function stagger(groups_) {
  const ends = [];
  return groups_.map((g) => {
    let line = ends.findIndex((end) => end < g.x);
    if (line < 0) line = ends.length;
    ends[line] = g.x + 5.6 * g.family.length + 6;
    return { ...g, line };
  });
}
function drawGlance() {
  const shown = places(), box = $("glance");
  if (!shown.length) { box.replaceChildren(el("p", { class: "soft" }, "No conformance records here.")); return; }
  const small_ = tablet.matches, M = modesSeen.length, found = pictured(shown), number = found.reduce((n, g) => n + g.items.length, 0), tall = small_ ? 11 : 9, line = small_ ? 13 : 10.2, left = small_ ? 50 : 60;
  // Squares where there is room; with many operations a square becomes a bar, so that all stand side by side.
  const gap = small_ ? 0 : 8, step = phone.matches ? 12.5 : small_ ? Math.min(26, (700 - left) / number) : Math.max(4, Math.min(13, (1250 - left - gap * found.length) / number)), size = step > 9 ? step - 2 : step - 1;
  let x = left;
  for (const g of found) { g.x = x; for (const item of g.items) { item.x = x; x += step; } x += gap; }
  const named = stagger(found), most = small_ ? 60 : 11 * Math.max(...named.map((g) => g.line + 1)) + 3, width = Math.max(...named.map((g) => g.x + 6 + (small_ ? 30 : 5.6 * g.family.length)), x), used_ = new Set(), modesDrawn = new Set();
  const strips = shown.map((run, nth) => {
    const worst = worstOf(run), marks = [], head = nth ? 3 : most, used = modesSeen.map((_, m) => m).filter((m) => worst.some((v, i) => v >= 0 && i % M === m)), bottom = head + used.length * line - 2;
    let pass = 0, total = 0, computed = 0;
    run.judged.verdict.forEach((v, i) => { const n = amount(run, i); total += n; if (QUIETLY.has(V[v])) pass += n; if (V[v] === "interpreted") computed += n; });
    for (const g of named) {
      if (!small_) marks.push(draw("line", { x1: g.x - 3, x2: g.x - 3, y1: nth ? head : head - 13 - 11 * g.line, y2: bottom, class: "g-line" }));
    }
    for (const g of named) {
      if (!nth && small_) marks.push(draw("text", { transform: `translate(${g.x + 8} ${head - 5}) rotate(-55)`, class: "g-text" }, g.family));
      else if (!nth) marks.push(draw("text", { x: g.x, y: head - 5 - 11 * g.line, class: "g-text" }, g.family));
    }
    used.forEach((m, k) => {
      modesDrawn.add(modesSeen[m]);
      const y = head + k * line;
      marks.push(draw("text", { x: left - 7, y: y + tall - 2, class: "g-text g-end" }, modesSeen[m].replace("manual-novma", "no-vma")));
      for (const { items } of found) for (const item of items) {
        const v = item.rows.reduce((a, r) => { const b = worst[r * M + m]; return b < 0 ? a : a < 0 ? b : Math.min(a, b); }, -1);
        if (v < 0) continue;
        const bad = BAD.has(V[v]), name = QUIET[V[v]] || "g-bad", go_ = item.rows.length === 1 ? () => openCell("", rows[item.rows[0]].operation, modesSeen[m], run.key, true) : () => { opened.set(item.name, true); drawUpTo($("matrix")); drawMatrix(); go("matrix", true); };
        used_.add(name);
        const square = draw("rect", { x: item.x, y, width: size, height: tall, rx: size > 6 ? 2 : 1, class: name });
        square.open = go_; square.said = `${item.name}, ${modesSeen[m]}: ${MEANING[V[v]]}`;
        marks.push(square);
        if (size > 6 && (bad || V[v] === "known")) marks.push(draw("text", { x: item.x + size / 2, y: y + tall - 2, class: `g-mark g-mark-${bad ? "bad" : "known"}` }, SYMBOL[V[v]]));
      }
    });
    const said = run.class === "compiled" ? `compiled, not run${computed ? `; numbers of ${count(computed)} interpreted` : ""}` : "pass";
    const title = `${run.label}: ${count(pass)} of ${plural(total, "case")} ${said}`;
    return el("figure", {}, el("figcaption", {}, el("strong", {}, `JAX ${run.release} · ${run.machine}`), phone.matches && !nth ? "" : ` · ${count(pass)} of ${count(total)} cases ${said}`),
      draw("svg", { viewBox: `0 0 ${width} ${bottom + 4}`, style: `max-width: ${width}px`, role: "img", "aria-label": `${title}. One square for each ${small_ ? "family" : "operation"} and mode; the matrix below has the same as a table.` }, marks));
  });
  const [first, ...others] = strips;
  box.replaceChildren(first, ...(phone.matches && others.length ? [el("details", {}, el("summary", {}, `${plural(others.length, "more picture")}: ${shown.slice(1).map((r) => r.machine).join(", ")}`), others)] : others), el("ul", { class: "legend" }, el("li", { class: "what" }, "A square is an operation in a mode: ", Object.entries(MODE_WORDS).filter(([mode]) => modesDrawn.has(mode)).map(([mode, words], i) => [i ? ", " : "", el("code", {}, mode.replace("manual-novma", "no-vma")), ` ${words}`]), "."), STATES.filter(([name]) => used_.has(name)).map(([name, text]) => el("li", {}, el("span", { class: `dot ${name}` }), ` ${text}`))));
}
$("glance").addEventListener("click", (e) => { e.target.open?.(); });
$("glance").addEventListener("pointerover", (e) => { if (e.target.said && !e.target.firstChild) e.target.append(draw("title", {}, e.target.said)); });
