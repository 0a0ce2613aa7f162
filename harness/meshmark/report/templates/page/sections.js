/* SPDX-License-Identifier: Apache-2.0 */
// When a part of the page is drawn. The first view comes at once, and each other part in an idle moment of its own. After a
// change, a part near the view is drawn again at once, and any other when the reader comes near it.
const parts = [];  // { box, draw, stale, drawn, near } in the order of the page
const whenIdle = (f) => window.requestIdleCallback ? requestIdleCallback(f, { timeout: 300 }) : setTimeout(f, 1);
const approach = new IntersectionObserver((entries) => {
  for (const e of entries) for (const p of parts) if (p.section === e.target) p.near = e.isIntersecting;
  soon();
}, { rootMargin: "600px 0px" });
// `id`: the element that the part fills. The part is near the view where its section is.
function part(id, draw) {
  const box = $(id), made = { box, section: box.closest("section"), draw, drawn: false, near: false };
  parts.push(made);
  mark(made, true);
  approach.observe(made.section);
}
function mark(p, stale) { p.stale = stale; if (stale) p.box.setAttribute("aria-busy", "true"); else p.box.removeAttribute("aria-busy"); }
function drawPart(p) { mark(p, false); p.drawn = true; p.draw(); }
let planned = 0;
function soon() { planned ||= whenIdle(next); }
function next() {
  planned = 0;
  const p = parts.find((x) => x.stale && x.near) || parts.find((x) => !x.drawn);
  if (p) { drawPart(p); soon(); }
  if (parts.every((x) => x.drawn)) document.documentElement.dataset.ready = "yes";
}
// What these parts show has changed; without names, all of them.
function changed(...names) {
  for (const p of parts) if (!names.length || names.includes(p.box.id)) mark(p, true);
  soon();
}
// Everything before an element and in it, so that it stays where a link led.
function drawUpTo(target) {
  for (const p of parts) if (p.stale && (target.contains(p.box) || p.box.compareDocumentPosition(target) & Node.DOCUMENT_POSITION_FOLLOWING)) drawPart(p);
}
addEventListener("beforeprint", () => drawUpTo($("matrix")));
