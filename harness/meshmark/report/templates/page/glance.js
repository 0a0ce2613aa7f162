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
  for (const run of [...judgedRuns].sort((a, b) => (a.class === "compiled") - (b.class === "compiled") || b.release.localeCompare(a.release, "en", { numeric: true }) * (a.class === "compiled") || fullest(b) - fullest(a))) {
    const what = run.class === "compiled" ? (run.kind.startsWith("TPU") ? "TPU" : "GPU") : run.class;
    if (!seen.has(what)) { seen.add(what); found.push(run); }
  }
  return found.slice(0, 4);
}
const QUIET = { pass: "g-pass", known: "g-known", not_run: "g-compiled", interpreted: "g-interpreted", unsupported: "g-none" };
function drawGlance() {
  const shown = places(), box = $("glance");
  if (!shown.length) { box.replaceChildren(el("p", { class: "soft" }, "No conformance records here.")); return; }
  const tall = 11, line = 13, left = 74, M = modesSeen.length;
  const has = (run, r) => modesSeen.some((_, m) => worstOf(run)[r * M + m] >= 0);
  // Squares where there is room; with many operations a square becomes a bar, so that all stand side by side.
  const number = rowOrder.filter((r) => shown.some((run) => has(run, r))).length, step = Math.max(5, Math.min(13, Math.floor(1100 / number))), size = step > 9 ? step - 2 : step - 1, gap = step > 9 ? 9 : 7;
  let x = left;
  const at = new Map(), names = [];
  for (const [family, every] of families) {
    const members = every.filter((r) => shown.some((run) => has(run, r)));
    if (!members.length) continue;
    names.push([family, x, members.length * step]);
    for (const r of members) { at.set(r, x); x += step; }
    x += gap;
  }
  const strips = shown.map((run, nth) => {
    const worst = worstOf(run), marks = [], head = nth ? 3 : 18, used = modesSeen.map((_, m) => m).filter((m) => worst.some((v, i) => v >= 0 && i % M === m)), high = head + used.length * line + 2;
    let pass = 0, total = 0;
    for (const v of run.judged.verdict) { total++; if (QUIETLY.has(V[v])) pass++; }
    names.forEach(([family, from, wide], n) => {
      const label = wide >= 6 * family.length ? family : wide < 34 ? "" : `${family.slice(0, Math.floor(wide / 6.4) - 1)}…`;
      if (!nth && label) marks.push(draw("text", { x: from, y: head - 6, class: "g-text" }, label, draw("title", {}, family)));
      if (n) marks.push(draw("line", { x1: from - gap / 2 - 1, x2: from - gap / 2 - 1, y1: head, y2: head + used.length * line - 2, class: "g-line" }));
    });
    used.forEach((m, k) => {
      const y = head + k * line;
      marks.push(draw("text", { x: left - 6, y: y + tall - 2, class: "g-text g-end" }, modesSeen[m].replace("manual-novma", "no-vma")));
      for (const [r, from] of at) {
        const v = worst[r * M + m];
        if (v < 0) continue;
        const bad = BAD.has(V[v]);
        const one = draw("rect", { x: from, y, width: size, height: tall, rx: size > 6 ? 2 : 1, class: QUIET[V[v]] || "g-bad", onclick: () => openCell("", rows[r].operation, modesSeen[m], run.key, true) },
          draw("title", {}, `${rows[r].operation}, ${modesSeen[m]}: ${MEANING[V[v]]}`));
        marks.push(one);
        if (size > 6 && (bad || V[v] === "known")) marks.push(draw("text", { x: from + size / 2, y: y + tall - 2, class: `g-mark${bad ? " g-mark-bad" : ""}` }, SYMBOL[V[v]]));
      }
    });
    const computed = run.judged.verdict.filter((v) => V[v] === "interpreted").length;
    const said = run.class === "compiled" ? `compiled${computed ? `, numbers of ${count(computed)} interpreted` : ""}` : "pass";
    const title = `${run.label}: ${count(pass)} of ${plural(total, "case")} ${said}`;
    return el("figure", {}, el("figcaption", {}, el("strong", {}, run.label), ` · ${CLASS[run.class]} · ${count(pass)} of ${count(total)} cases ${said}`),
      draw("svg", { viewBox: `0 0 ${x} ${high}`, style: `max-width: ${x}px`, role: "img", "aria-label": `${title}. One square for each operation and mode; the matrix below has the same as a table.` }, marks));
  });
  box.replaceChildren(...strips, el("ul", { class: "legend" }, [["g-pass", "every case passes"], ["g-known", "a known issue"], ["g-bad", "a failure"], ["g-compiled", "compiled, not run"], ...(shown.some((run) => run.judged.verdict.some((v) => V[v] === "interpreted")) ? [["g-interpreted", "numbers interpreted, not run"]] : [])].map(([name, text]) => el("li", {}, el("span", { class: `dot ${name}` }), ` ${text}`))));
}
