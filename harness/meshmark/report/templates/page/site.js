/* SPDX-License-Identifier: Apache-2.0 */
// A site: where the records are more than one page can hold, some runs have their cases and times on pages of their own.
// Of such a run the first page has numbers of cases, by operation, mode, level and verdict.
const amount = (run, i) => run.judged.n ? run.judged.n[i] : 1;
const casesOf = (run) => run.judged.n ? run.judged.n.reduce((a, b) => a + b, 0) : run.judged.case.length;
const whole = (run) => !run.moved;
// The address of another page, at the view and with the filters of this one.
function addressOf(name, view) {
  const p = new URLSearchParams(Object.entries(state).filter(([k, v]) => v && k !== "view" && k !== "runs"));
  if (view) p.set("view", view);
  return `${name}#${p}`;
}
// Where the cases of an operation of these runs are, for those that have pages of their own; without an operation, every page.
function elsewhere(list, view, operation) {
  const away = [...new Set(list)].filter((r) => r.moved?.length);
  return away.length ? el("ul", { class: "elsewhere" }, away.map((r) => {
    const own = r.moved.filter(([, names]) => !operation || names.includes(operation));
    return el("li", {}, `${r.label} has its cases and times on `, own.length > 1 ? "pages of its own: " : "a page of its own: ", own.map(([name], i) => [i ? ", " : "", el("a", { href: addressOf(name, view) }, own.length > 1 ? name : "open it")]));
  })) : "";
}
function drawPages() {
  if (!D.pages.length) return;
  const here = D.pages.find((p) => p.name === D.here);
  $("pages").hidden = false;
  $("pages").replaceChildren(el("details", {}, el("summary", {}, `One of ${count(D.pages.length)} pages: ${here.label}`), el("ul", {}, D.pages.map((p) => el("li", {}, p === here ? el("strong", { "aria-current": "page" }, p.label) : el("a", { href: p.name }, p.label))))));
}
