/* SPDX-License-Identifier: Apache-2.0 */
// Provenance and sortable tables.
function noise(r) {
  if (!r.noise) return "";
  if (r.noise.interval === null) return `noise: not known, ${r.noise.most === 1 ? "one process" : `${r.noise.most} processes`} alone`;
  return `noise: 95 % intervals are ±${digits(100 * r.noise.interval, 2)} % wide (median)` + (r.noise.processes ? `, slowest process ${digits(r.noise.processes)} times the fastest` : r.processes > 1 ? ", started once: how starts differ is not known" : ", one process: how processes differ is not known");
}
function provenance(list) {
  const seen = [...new Set(list)];
  const classes = [...new Set(seen.map((r) => CLASS[r.class]))].join(", ");
  return el("details", { class: "prov" },
    el("summary", {}, `Provenance: ${seen.length === 1 ? `JAX ${seen[0].release}, ${seen[0].machine}, ` : ""}${plural(seen.length, "record file")}`, el("span", { class: "wider" }, `, ${classes}`)),
    el("ul", {}, seen.map((r) => el("li", {},
      `JAX ${r.release}, jaxlib ${r.jaxlib} · ${r.machine}, ${CLASS[r.class]} · flags: ${r.flags || "none"} · suite ${r.commit.slice(0, 12) || "unknown"}${r.clean ? "" : " (not clean)"} · ${[`profile ${r.profile || "?"}`, r.started, noise(r)].filter(Boolean).join(" · ")} · `,
      el("span", { class: "mono" }, `${r.file} sha256:${r.sha256}`), " ", el("a", { href: `#view=run-${r.key}`, "data-view": `run-${r.key}` }, "all facts")))));
}
// The files of what is no run of the suite, by kind: growth, schedule, others.
function filesOf(kind) {
  const list = D.beside.files.filter((f) => f.kind === kind);
  return list.length ? el("details", { class: "prov" }, el("summary", {}, `Provenance: ${plural(list.length, "record file")}`), el("ul", {}, list.map((f) => el("li", { class: "mono" }, `${f.name} sha256:${f.sha256}`)))) : "";
}
const STEP = 60;
// The heads of a table are one tab stop: arrow keys, Home and End move between them.
function moveInHead(e) {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e3, End: 1e3 }[e.key], all = [...e.currentTarget.querySelectorAll("button")], from = all.indexOf(e.target);
  if (!step || from < 0) return;
  e.preventDefault();
  const to = all[Math.max(0, Math.min(all.length - 1, from + step))];
  e.target.tabIndex = -1; to.tabIndex = 0; to.focus();
}
// What can be pressed in the rows of a table is one tab stop too; arrow keys, Home and End move between them.
const pressable = (body) => [...body.querySelectorAll("a[href], button")];
function moveInBody(e) {
  const step = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1, Home: -1e4, End: 1e4 }[e.key], all = pressable(e.currentTarget), from = all.indexOf(e.target);
  if (!step || from < 0) return;
  e.preventDefault();
  rest(e.currentTarget, all[Math.max(0, Math.min(all.length - 1, from + step))]).focus();
}
function rest(body, stop) { for (const x of pressable(body)) x.tabIndex = x === stop ? 0 : -1; return stop; }
// columns: {name, text: row -> node or text, value: row -> what is sorted by, num, wide}
function grid(id, caption, columns, rows, { sortable = true, empty = "Nothing to show here." } = {}) {
  if (!rows.length) return el("p", { class: "soft" }, empty);
  const [sortId, sortCol, sortDir] = state.sort.split("~");
  let by = sortable && sortId === id ? columns.findIndex((c) => c.name === sortCol) : -1, down = sortDir === "down", shown = STEP, order = rows;
  const body = el("tbody", { onkeydown: moveInBody, onfocusin: (e) => { if (pressable(body).includes(e.target)) rest(body, e.target); } }), more = el("button", { type: "button", class: "more", onclick: () => { shown += 10 * STEP; fill(); } });
  const heads = columns.map((c, i) => el("th", { scope: "col", class: [c.num && "num", c.name.length > 24 && "long"].filter(Boolean).join(" ") || null }, sortable && c.value
    ? el("button", { type: "button", tabindex: columns.findIndex((x) => x.value) === i ? "0" : "-1", onclick: () => { down = by === i ? !down : false; by = i; set("sort", `${id}~${c.name}~${down ? "down" : "up"}`); fill(); } }, c.name) : c.name));
  function fill() {
    heads.forEach((h, i) => i === by ? h.setAttribute("aria-sort", down ? "descending" : "ascending") : h.removeAttribute("aria-sort"));
    if (by >= 0) {
      const f = columns[by].value, keyed = rows.map((r) => [f(r), r]);
      const none = (v) => v === null || v === undefined || v === "" || Number.isNaN(v);
      keyed.sort(([a], [b]) => none(a) || none(b) ? none(a) - none(b) : (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
      order = keyed.map(([, r]) => r);
    } else order = rows;
    body.replaceChildren(...order.slice(0, shown).map((r) => el("tr", {}, columns.map((c, i) => el(i === 0 && !c.num ? "th" : "td", { scope: i === 0 && !c.num ? "row" : null, class: [c.num && "num", c.wide && "wide", c.cls].filter(Boolean).join(" ") || null, style: null }, c.text(r))))));
    rest(body, pressable(body)[0]);
    more.hidden = shown >= order.length;
    more.textContent = `Show more (${count(Math.min(shown, order.length))} of ${count(order.length)} rows)`;
  }
  fill();
  return [el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", {}, el("caption", {}, caption), el("thead", { onkeydown: moveInHead }, el("tr", {}, heads)), body)), more];
}
