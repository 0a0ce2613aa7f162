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
    el("summary", {}, `Provenance: ${seen.length === 1 ? `JAX ${seen[0].release}, ${seen[0].machine}, ` : ""}${plural(seen.length, "record file")}, ${classes}`),
    el("ul", {}, seen.map((r) => el("li", {},
      `JAX ${r.release}, jaxlib ${r.jaxlib} · ${r.machine}, ${CLASS[r.class]} · flags: ${r.flags || "none"} · suite ${r.commit.slice(0, 12) || "unknown"}${r.clean ? "" : " (not clean)"} · ${[`profile ${r.profile || "?"}`, r.started, noise(r)].filter(Boolean).join(" · ")} · `,
      el("span", { class: "mono" }, `${r.file} sha256:${r.sha256}`), " ", el("a", { href: `#view=run-${r.key}`, "data-view": `run-${r.key}` }, "all facts")))));
}
const STEP = 60;
// columns: {name, text: row -> node or text, value: row -> what is sorted by, num, wide}
function grid(id, caption, columns, rows, { sortable = true, empty = "Nothing to show here." } = {}) {
  if (!rows.length) return el("p", { class: "soft" }, empty);
  const [sortId, sortCol, sortDir] = state.sort.split("~");
  let by = sortable && sortId === id ? columns.findIndex((c) => c.name === sortCol) : -1, down = sortDir === "down", shown = STEP, order = rows;
  const body = el("tbody"), more = el("button", { type: "button", class: "more", onclick: () => { shown += 10 * STEP; fill(); } });
  const heads = columns.map((c, i) => el("th", { scope: "col", class: c.num ? "num" : null }, sortable && c.value
    ? el("button", { type: "button", onclick: () => { down = by === i ? !down : false; by = i; set("sort", `${id}~${c.name}~${down ? "down" : "up"}`); fill(); } }, c.name) : c.name));
  function fill() {
    heads.forEach((h, i) => i === by ? h.setAttribute("aria-sort", down ? "descending" : "ascending") : h.removeAttribute("aria-sort"));
    if (by >= 0) {
      const f = columns[by].value, keyed = rows.map((r) => [f(r), r]);
      const none = (v) => v === null || v === undefined || v === "" || Number.isNaN(v);
      keyed.sort(([a], [b]) => none(a) || none(b) ? none(a) - none(b) : (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
      order = keyed.map(([, r]) => r);
    } else order = rows;
    body.replaceChildren(...order.slice(0, shown).map((r) => el("tr", {}, columns.map((c, i) => el(i === 0 && !c.num ? "th" : "td", { scope: i === 0 && !c.num ? "row" : null, class: [c.num && "num", c.wide && "wide", c.cls].filter(Boolean).join(" ") || null, style: null }, c.text(r))))));
    more.hidden = shown >= order.length;
    more.textContent = `Show more (${count(Math.min(shown, order.length))} of ${count(order.length)} rows)`;
  }
  fill();
  return [el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body)), more];
}
