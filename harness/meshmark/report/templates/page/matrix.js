/* SPDX-License-Identifier: Apache-2.0 */
// The matrix: operations by mode, a group of columns for each run.
const rowOf = new Int32Array(N), modeOf = new Int32Array(N);
const rows = [];
{
  const seen = new Map();
  for (let i = 0; i < N; i++) {
    const key = `${S[C.level[i]]}~${S[C.operation[i]]}`;
    if (!seen.has(key)) { seen.set(key, rows.length); rows.push({ level: S[C.level[i]], operation: S[C.operation[i]] }); }
    rowOf[i] = seen.get(key); modeOf[i] = modesSeen.indexOf(S[C.mode[i]]);
  }
}
const rowOrder = rows.map((_, i) => i).sort((a, b) => rows[a].level.localeCompare(rows[b].level) || (rank.get(rows[a].operation) ?? 999) - (rank.get(rows[b].operation) ?? 999) || rows[a].operation.localeCompare(rows[b].operation));
let built = "", cells = [], groupCells = [], trs = [];

function shownRuns() {
  const chosen = state.runs ? state.runs.split(".").map((k) => byKey.get(k)).filter((r) => r && r.judged) : [];
  if (chosen.length) return judgedRuns.filter((r) => chosen.includes(r));
  const ran = judgedRuns.filter((r) => r.class !== "compiled");
  return (ran.length ? ran : judgedRuns).slice(0, 3);
}
function buildMatrix(shown) {
  const table = el("table", { class: "matrix" }), used = shown.map((r) => { const s = new Set(); for (const c of r.judged.case) s.add(modeOf[c]); return modesSeen.map((_, i) => i).filter((i) => s.has(i)); });
  table.append(el("caption", {}, "Cases by operation and mode. Each cell opens the cases behind it."));
  table.append(el("thead", {},
    el("tr", {}, el("th", { class: "corner", rowspan: 2, scope: "col" }, "operation"), shown.map((r, k) => el("th", { class: "first", scope: "colgroup", colspan: Math.max(1, used[k].length) }, r.label, " ", el("span", { class: `tag ${r.class}` }, CLASS[r.class]), r.expired ? [" ", el("span", { class: "tag expired" }, "expired")] : ""))),
    el("tr", {}, shown.map((r, k) => used[k].map((m, j) => el("th", { scope: "col", class: j ? null : "first" }, modesSeen[m].replace("manual-novma", "no-vma")))))));
  cells = []; groupCells = []; trs = new Array(rows.length);
  let body = null, level = null;
  for (const r of rowOrder) {
    const row = rows[r];
    if (row.level !== level) {
      level = row.level;
      body = el("tbody"); table.append(body);
      const g = { level, tr: el("tr", { class: "group" }, el("th", { class: "level", scope: "rowgroup" }, LEVELS[level] || level)), tds: shown.map((_, k) => el("td", { class: "first", colspan: Math.max(1, used[k].length) })) };
      g.tr.append(...g.tds); body.append(g.tr); groupCells.push(g);
    }
    const tr = trs[r] = el("tr", {}, el("th", { scope: "row", title: info.get(row.operation)?.about }, row.operation));
    shown.forEach((run, k) => used[k].forEach((m, j) => {
      const n = el("span", { class: "n" }), b = el("b", { "aria-hidden": "true" });
      const button = el("button", { type: "button", class: "cell", hidden: true, onclick: () => openCell(row.level, row.operation, modesSeen[m], run.key) }, b, n);
      const none = el("span", { class: "none", "aria-label": "no case" }, "·");
      tr.append(el("td", { class: j ? null : "first" }, button, none));
      cells.push({ r, k, m, button, b, n, none, last: "" });
    }));
    body.append(tr);
  }
  $("matrix-box").replaceChildren(table);
  requestAnimationFrame(() => { const h = table.querySelector("thead tr"); if (h) table.style.setProperty("--head", `${h.offsetHeight}px`); });
}
const want = () => state.verdict === "bad" ? V.map((v) => ["crash", "hang", "error", "fail"].includes(v)) : state.verdict === "notpass" ? V.map((v) => v !== "pass" && v !== "not_run") : state.verdict ? V.map((v) => v === state.verdict) : V.map(() => true);

function drawMatrix() {
  const shown = shownRuns(), key = shown.map((r) => r.key).join(".");
  if (key !== built) { buildMatrix(shown); built = key; }
  const m = matcher(), wanted = want(), M = modesSeen.length, K = V.length;
  const total = shown.map(() => new Int32Array(rows.length * M * K));
  let hits = 0, all = 0;
  shown.forEach((run, k) => {
    const j = run.judged, t = total[k];
    for (let i = 0; i < j.case.length; i++) {
      all++;
      const c = j.case[i], v = j.verdict[i];
      if (wanted[v] && passes(m, c, j.reason[i])) { t[(rowOf[c] * M + modeOf[c]) * K + v]++; hits++; }
    }
  });
  const visible = new Uint8Array(rows.length), sums = new Map();
  for (const cell of cells) {
    const at = (cell.r * M + cell.m) * K, t = total[cell.k];
    let n = 0, worst = -1;
    for (let v = 0; v < K; v++) { const x = t[at + v]; if (x) { n += x; if (worst < 0) worst = v; } }
    const level = `${rows[cell.r].level}~${cell.k}`, sum = sums.get(level) || new Int32Array(K);
    for (let v = 0; v < K; v++) sum[v] += t[at + v];
    sums.set(level, sum);
    if (n) visible[cell.r] = 1;
    const name = n ? V[worst] : "", passed = name === "not_run" ? n : t[at + PASS], text = n ? (passed === n || !passed ? `${n}` : `${passed}/${n}`) : "";
    const now = `${name}${text}`;
    if (now === cell.last) continue;
    cell.last = now; cell.button.hidden = !n; cell.none.hidden = !!n;
    if (n) {
      cell.button.className = `cell v-${name}`; cell.b.textContent = SYMBOL[name]; cell.n.textContent = text;
      cell.button.setAttribute("aria-label", `${rows[cell.r].operation}, ${modesSeen[cell.m]}, ${shown[cell.k].label}: ${name === "not_run" ? `${n} compiled, not run` : `${passed} of ${n} pass`}${name !== "pass" && name !== "not_run" ? `, worst: ${name}` : ""}`);
      cell.button.title = `${passed} of ${n} ${name === "not_run" ? "compiled" : "pass"}${name !== "pass" && name !== "not_run" ? `; worst: ${name}` : ""}`;
    }
  }
  trs.forEach((tr, r) => { tr.hidden = !visible[r]; });
  for (const g of groupCells) {
    let any = false;
    g.tds.forEach((td, k) => {
      const s = sums.get(`${g.level}~${k}`), n = s ? s.reduce((a, b) => a + b, 0) : 0;
      any = any || n > 0;
      td.textContent = n ? tally(s, n) : "";
    });
    g.tr.hidden = !any;
  }
  $("matrix-status").textContent = (hits === all ? `${plural(all, "case")} in ${plural(shown.length, "run")}.` : `${count(hits)} of ${plural(all, "case")} match, in ${plural(shown.length, "run")}.`) + (D.cut ? ` ${plural(D.cut, "reason")} cut short to keep the page small.` : "");
}
function tally(s, n) {
  const parts = V.map((v, i) => [v, s[i]]).filter(([v, x]) => x && v !== "pass").map(([v, x]) => `${count(x)} ${v === "not_run" ? "compiled" : v}`);
  return s[PASS] ? `${count(s[PASS])} of ${count(n)} pass${parts.length ? `, ${parts.join(", ")}` : ""}` : parts.join(", ");
}
