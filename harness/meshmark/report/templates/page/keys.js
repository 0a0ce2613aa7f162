/* SPDX-License-Identifier: Apache-2.0 */
// The keyboard: a region is one tab stop. Arrow keys, Home and End move between what can be pressed in it.
const pressable = (box) => [...box.querySelectorAll("a[href], button, input, select, summary")];
const seen_ = (e) => e.checkVisibility ? e.checkVisibility() : e.getClientRects().length > 0;  // not in closed details
// The stop of a region is where its reader last was. A region without anything to press is a stop itself, to scroll it.
function rest(box, stop) {
  for (const x of pressable(box)) x.tabIndex = x === stop ? 0 : -1;
  if (box.classList.contains("scroll")) { if (stop) box.removeAttribute("tabindex"); else box.tabIndex = 0; }
  return stop;
}
// Whether an arrow key is for the control itself: the cursor of a text, the value of a choice.
function isOwn(e) {
  const t = e.target;
  if (t.tagName === "SELECT") return e.key !== "ArrowLeft" && e.key !== "ArrowRight";
  if (t.type !== "search") return false;
  const at = t.selectionStart, whole = t.selectionEnd - at;
  return e.key === "Home" || e.key === "End" || e.key === "ArrowLeft" && (whole || at > 0) || e.key === "ArrowRight" && (whole || at < t.value.length);
}
const STEPS = { ArrowUp: [-1, 0], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowRight: [0, 1], Home: [0, -1e4], End: [0, 1e4] };
// `rows`: what can be pressed, as it stands, row by row. Up and down change the row, left and right go on to the next
// row at its end, Home and End go to the ends of `part`: the rows that belong together with this one.
function moveByKeys(box, rows, part = (list) => list) {
  box.addEventListener("keydown", (e) => {
    const step = STEPS[e.key], list = rows().map((row) => row.filter(seen_)).filter((row) => row.length), r = list.findIndex((row) => row.includes(e.target));
    if (!step || r < 0 || e.altKey || e.ctrlKey || e.metaKey || isOwn(e)) return;
    const clamp = (x, n) => Math.max(0, Math.min(n - 1, x)), own = Math.abs(step[1]) > 1 ? part(list, r).flat() : list.flat(), c = list[r].indexOf(e.target);
    const to = step[0] ? list[r + step[0]] && list[r + step[0]][clamp(c, list[r + step[0]].length)] : own[clamp(own.indexOf(e.target) + step[1], own.length)];
    if (!to || to === e.target) return;  // the browser scrolls
    e.preventDefault();
    if (box.contains(to)) rest(box, to);
    to.focus();
  });
  box.addEventListener("focusin", (e) => { if (e.target !== box && pressable(box).includes(e.target)) rest(box, e.target); });
}
