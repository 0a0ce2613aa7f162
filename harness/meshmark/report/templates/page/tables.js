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
// How many rows a table has at first. On a phone each is a card, and a table is as long as its cards.
const STEP = () => phone.matches ? 12 : 60;
// An element of a table: roles keep it a table for screen readers where a phone lays it out as cards.
const ROLES = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell" };
const part_ = (tag, attributes, ...children) => el(tag, { role: ROLES[tag] || (attributes.scope === "row" ? "rowheader" : "columnheader"), ...attributes }, ...children);
// columns: {name, text: row -> node or text, value: row -> what is sorted by, num, wide}
function grid(id, caption, columns, rows, { sortable = true, empty = "Nothing to show here." } = {}) {
  if (!rows.length) return el("p", { class: "soft" }, empty);
  const [sortId, sortCol, sortDir] = state.sort.split("~");
  let by = sortable && sortId === id ? columns.findIndex((c) => c.name === sortCol) : -1, down = sortDir === "down", shown = STEP(), order = rows;
  const body = part_("tbody", {}), more = el("button", { type: "button", class: "more", onclick: () => { shown += 10 * STEP(); fill(); } });
  const heads = columns.map((c, i) => part_("th", { scope: "col", class: [c.num && "num", c.name.length > 24 ? "long" : c.name.length > 12 && c.name.includes(" ") && "two"].filter(Boolean).join(" ") || null }, sortable && c.value
    ? el("button", { type: "button", onclick: () => { down = by === i ? !down : false; by = i; set("sort", `${id}~${c.name}~${down ? "down" : "up"}`); fill(); } }, c.name) : c.name));
  const box = el("div", { class: "scroll", role: "region" }, part_("table", { class: "stack" }, el("caption", {}, caption), part_("thead", {}, part_("tr", {}, heads)), body));
  function fill() {
    heads.forEach((h, i) => i === by ? h.setAttribute("aria-sort", down ? "descending" : "ascending") : h.removeAttribute("aria-sort"));
    if (by >= 0) {
      const f = columns[by].value, keyed = rows.map((r) => [f(r), r]);
      const none = (v) => v === null || v === undefined || v === "" || Number.isNaN(v);
      keyed.sort(([a], [b]) => none(a) || none(b) ? none(a) - none(b) : (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
      order = keyed.map(([, r]) => r);
    } else order = rows;
    body.replaceChildren(...order.slice(0, shown).map((r) => part_("tr", {}, columns.map((c, i) => part_(i === 0 && !c.num ? "th" : "td", { scope: i === 0 && !c.num ? "row" : null, "data-name": c.name, class: [c.num && "num", c.wide && "wide", c.cls].filter(Boolean).join(" ") || null }, c.text(r))))));
    const all = pressable(box);
    rest(box, all.find((x) => x.tabIndex === 0 && heads.some((h) => h.contains(x))) || all[0]);
    box.setAttribute("aria-label", all.length > 1 ? `${caption}. Arrow keys move between what can be pressed.` : caption);
    more.hidden = shown >= order.length;
    more.textContent = `Show more (${count(Math.min(shown, order.length))} of ${count(order.length)} rows)`;
  }
  fill();
  // Home and End stay in the heads, or in the rows.
  moveByKeys(box, () => [pressable(heads[0].parentElement), ...[...body.rows].map(pressable)], (list, r) => heads.some((h) => h.contains(list[r][0])) ? [list[r]] : list.filter((row) => body.contains(row[0])));
  return [box, more];
}
