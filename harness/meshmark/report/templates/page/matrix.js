/* SPDX-License-Identifier: Apache-2.0 */
// The matrix: families and their operations by mode, a group of columns for each run; runs that agree share one.
const rowOf = new Int32Array(N), modeOf = new Int32Array(N);
const rows = [];
{
  const seen = new Map();
  for (let i = 0; i < N; i++) {
    const operation = S[C.operation[i]];
    if (!seen.has(operation)) {
      seen.set(operation, rows.length);
      rows.push({ operation, family: info.get(operation)?.family || "not in this release of the suite" });
    }
    rowOf[i] = seen.get(operation);
    modeOf[i] = modesSeen.indexOf(S[C.mode[i]]);
  }
}
const place = (name) => rank.get(name) ?? 9999;
const rowOrder = rows.map((_, i) => i).sort((a, b) => place(rows[a].operation) - place(rows[b].operation) || byText(rows[a].operation, rows[b].operation));
const families = new Map();  // family -> its rows, both in the order of the table
for (const r of rowOrder) {
  if (!families.has(rows[r].family)) families.set(rows[r].family, []);
  families.get(rows[r].family).push(r);
}
const opened = new Map();  // family -> whether the reader opened or closed it
let built = "", columns = [], groups = [], lines = [], last = null;  // a line: a row of the table, of an operation or a family

function shownRuns() {
  const chosen = state.runs ? state.runs.split(".").map((k) => byKey.get(k)).filter((r) => r && r.judged) : [];
  if (chosen.length) return judgedRuns.filter((r) => chosen.includes(r));
  const ran = judgedRuns.filter((r) => r.class !== "compiled");
  return (ran.length ? ran : judgedRuns).slice(0, 3);
}

// The worst verdict of each operation and mode of a run, as a place in V; -1 where it has no case.
function worstOf(run) {
  if (!run.worst) {
    run.worst = new Int8Array(rows.length * modesSeen.length).fill(-1);
    run.judged.case.forEach((c, i) => {
      const at = rowOf[c] * modesSeen.length + modeOf[c], v = run.judged.verdict[i];
      if (run.worst[at] < 0 || v < run.worst[at]) run.worst[at] = v;
    });
  }
  return run.worst;
}
// Two runs are one group of columns when they are of one class and no operation and mode that both have differs.
function agree(a, b) {
  if (a.class !== b.class) return false;
  const x = worstOf(a), y = worstOf(b);
  let shared = 0, own = 0;
  for (let i = 0; i < x.length; i++) {
    if (x[i] < 0 && y[i] < 0) continue;
    own++;
    if (x[i] < 0 || y[i] < 0) continue;
    if (x[i] !== y[i]) return false;
    shared++;
  }
  return shared * 10 >= own * 9;
}
function fold(shown) {
  const found = [];
  for (const run of shown) {
    const same = found.find((f) => f.runs.every((r) => agree(r, run)));
    if (same) same.runs.push(run); else found.push({ runs: [run] });
  }
  for (const f of found) {
    const machines_ = [...new Set(f.runs.map((r) => r.machine))], releases = [...new Set(f.runs.map((r) => r.release))];
    f.label = f.runs.length === 1 ? f.runs[0].label : `JAX ${releases.join(", ")} · ${machines_.join("; ")}`;
    const used = new Set();
    for (const r of f.runs) worstOf(r).forEach((v, i) => { if (v >= 0) used.add(i % modesSeen.length); });
    f.modes = modesSeen.map((_, i) => i).filter((i) => used.has(i));
  }
  return found;
}

// The table is laid out as blocks of rows, a block for each family: a change in one family leaves the layout of the others
// alone, which the layout of a table would not. Roles keep it a table for screen readers.
function buildMatrix(shown) {
  columns = fold(shown);
  const number = columns.reduce((n, f) => n + f.modes.length, 0);
  const table = el("table", { class: "matrix", role: "table", style: `--cells: ${Math.max(1, number)}` }, el("caption", {}, "Cases by operation and mode. A cell opens its cases; arrow keys move between cells, and up to the filters."));
  const head = (f) => el("th", { class: "first", role: "columnheader", scope: "colgroup", colspan: Math.max(1, f.modes.length), "aria-colspan": Math.max(1, f.modes.length), style: `--span: ${Math.max(1, f.modes.length)}` }, f.label, " ",
    el("span", { class: `tag ${f.runs[0].class}` }, CLASS[f.runs[0].class]),
    f.runs.length > 1 ? el("div", { class: "soft small" }, `${f.runs.length} runs with the same verdicts`) : "",
    f.runs.some((r) => r.expired) ? [" ", el("span", { class: "tag expired" }, f.runs.every((r) => r.expired) ? "expired" : "partly expired")] : "");
  table.append(el("thead", { role: "rowgroup" },
    el("tr", { role: "row" }, el("th", { class: "corner", role: "columnheader", scope: "col" }, "operation"), columns.map(head)),
    el("tr", { role: "row" }, el("td", { class: "corner", role: "cell" }), columns.map((f) => f.modes.map((m, j) => el("th", { role: "columnheader", scope: "col", class: j ? null : "first" }, modesSeen[m].replace("manual-novma", "no-vma")))))));
  groups = []; lines = new Array(rows.length);
  for (const [family, members] of families) {
    const body = el("tbody", { role: "rowgroup" }), group = { family, members, body, line: { members, name: family, tr: el("tr", { class: "group", role: "row" }), cells: null, open: () => group.toggle.click() } };
    group.toggle = el("button", { type: "button", class: "toggle", tabindex: "-1", "aria-expanded": "false", onclick: () => { opened.set(family, group.toggle.getAttribute("aria-expanded") !== "true"); drawMatrix(); } }, family);
    group.line.tr.append(el("th", { class: "level", role: "rowheader", scope: "rowgroup" }, group.toggle));
    body.append(group.line.tr);
    for (const r of members) {
      const operation = rows[r].operation;
      lines[r] = { members: [r], name: operation, cells: null, tr: el("tr", { role: "row", hidden: true, "aria-hidden": "true" }, el("th", { role: "rowheader", scope: "row", title: info.get(operation)?.about }, operation)), open: (m, f) => openCell("", operation, modesSeen[m], f.runs.map((x) => x.key).join(".")) };
      body.append(lines[r].tr);
    }
    table.append(body);
    groups.push(group);
  }
  $("matrix-box").replaceChildren(table);
}
// While nobody waits, the lines that are still folded get their cells.
function fillAhead(deadline) {
  for (const line of lines) {
    if (!built || deadline.timeRemaining?.() < 4) break;
    if (!line.cells) fillLine(line, last);
  }
  if (lines.some((line) => !line.cells)) whenIdle(fillAhead);
}
// The cells of a line, made when it is first shown; a cell has a button from its first case on.
const EMPTY = el("td", { role: "cell", class: "no" }), BUTTON = el("button", { type: "button", class: "cell", tabindex: "-1" }, el("b"), "0");
function cellsOf(line) {
  if (!line.cells) {
    line.cells = columns.flatMap((f, k) => f.modes.map((m, j) => {
      const td = EMPTY.cloneNode();
      if (!j) td.classList.add("first");
      return { k, m, td, button: null, last: "" };
    }));
    line.tr.append(...line.cells.map((cell) => cell.td));
  }
  return line.cells;
}
function buttonOf(cell, line) {
  if (!cell.button) {
    cell.button = BUTTON.cloneNode(true);
    cell.button.open = () => line.open(cell.m, columns[cell.k]);
    cell.td.append(cell.button);
  }
  return cell.button;
}
const want = () => state.verdict === "bad" ? V.map((v) => BAD.has(v)) : state.verdict === "notpass" ? V.map((v) => !QUIETLY.has(v)) : state.verdict ? V.map((v) => v === state.verdict) : V.map(() => true);
const filtering = () => ["q", "level", "mode", "dtype", "mesh", "verdict"].some((k) => state[k]);

function drawMatrix() {
  const shown = shownRuns(), key = shown.map((r) => r.key).join(".");
  if (key !== built) { buildMatrix(shown); built = key; }
  const most = linesInView(), m = matcher(), wanted = want(), M = modesSeen.length, K = V.length;
  const total = columns.map(() => new Int32Array(rows.length * M * K));
  let hits = 0, all = 0;
  columns.forEach((f, k) => f.runs.forEach((run) => {
    const j = run.judged, t = total[k];
    for (let i = 0; i < j.case.length; i++) {
      const c = j.case[i], v = j.verdict[i], n = j.n ? j.n[i] : 1;
      all += n;
      if (wanted[v] && passes(m, c, j.reason[i])) { t[(rowOf[c] * M + modeOf[c]) * K + v] += n; hits += n; }
    }
  }));
  if (!last) whenIdle(fillAhead);
  last = total;
  const visible = (r) => columns.some((_, k) => { for (let i = r * M * K; i < (r + 1) * M * K; i++) if (total[k][i]) return true; return false; });
  const narrow = filtering(), order = [];
  for (const g of groups) {
    const some = new Set(g.members.filter(visible)), open = opened.get(g.family) ?? (narrow || families.size < 3 || isLoud(g.line, total));
    hide(g.body, !some.size);
    if (some.size) {
      const sign = `${open ? "▾" : "▸"} ${g.family} `, number = plural(some.size, "operation");
      if (g.said !== sign + number) { g.said = sign + number; g.toggle.setAttribute("aria-expanded", String(open)); g.toggle.replaceChildren(sign, el("span", { class: "soft small" }, number)); }
      order.push(g.line);
    } else hide(g.line.tr, true);
    for (const r of g.members) if (open && some.has(r)) order.push(lines[r]); else hide(lines[r].tr, true);
  }
  // First what the box shows, and the line that has the focus; the others follow in their order, when the frame with the first is on its way.
  const show = (line) => { fillLine(line, total); hide(line.tr, false); };
  clearTimeout(unfolding); cancelAnimationFrame(framed);
  for (const line of order.splice(0, Math.max(most, 1 + order.findIndex((line) => line.tr.contains(document.activeElement))))) show(line);
  for (const line of order) hide(line.tr, true);
  unfold = (some) => { for (const line of order.splice(0, some)) show(line); };
  const follow = () => { unfold(2 * most); if (order.length) unfolding = setTimeout(follow, 30); };
  if (order.length) framed = requestAnimationFrame(() => { unfolding = setTimeout(follow, 30); });
  rove();
  $("matrix-status").textContent = (hits === all ? `${plural(all, "case")} in ${plural(shown.length, "run")}.` : `${count(hits)} of ${plural(all, "case")} match, in ${plural(shown.length, "run")}.`) + (D.cut ? ` ${plural(D.cut, "reason")} cut short to keep the page small.` : "");
}
// Hide or show a line or a family. Its style keeps its layout, so screen readers are told.
function hide(element, yes) {
  if (element.hidden === yes) return;
  element.hidden = yes;
  if (yes) element.setAttribute("aria-hidden", "true"); else element.removeAttribute("aria-hidden");
}
// The least heights of a line, and of the caption and the head together, in pixels.
const LOW = 29, TOP = 128;
let unfolding = 0, framed = 0;
// Show more of the lines that follow.
let unfold = () => {};
// The most lines down to the lower edge of the box: as many as its height holds and as are scrolled out above it, fewer where
// the box ends below the window, and always some, for a few results. The place of the box is asked for before anything
// changes, when the layout is known.
function linesInView() {
  const box = $("matrix-box"), tall = innerHeight * .78, left = last ? innerHeight - box.getBoundingClientRect().top : tall;
  return Math.max(6, Math.ceil((box.scrollTop + Math.min(tall, left) - TOP) / LOW) + 1);
}
// Whether one of the cases of a line that the filters leave is a failure.
function isLoud(line, total) {
  const M = modesSeen.length, K = V.length, bad = V.map((v, i) => BAD.has(v) ? i : -1).filter((i) => i >= 0);
  return total.some((t) => line.members.some((r) => { for (let m = 0; m < M; m++) for (const v of bad) if (t[(r * M + m) * K + v]) return true; return false; }));
}
// Fill the cells of a line with what the filters leave.
function fillLine(line, total) {
  const M = modesSeen.length, K = V.length, sum = new Int32Array(K);
  for (const cell of cellsOf(line)) {
    sum.fill(0);
    for (const r of line.members) for (let v = 0, at = (r * M + cell.m) * K; v < K; v++) sum[v] += total[cell.k][at + v];
    let n = 0, worst = -1;
    for (let v = 0; v < K; v++) if (sum[v]) { n += sum[v]; if (worst < 0) worst = v; }
    const name = n ? V[worst] : "", nothing = name === "not_run" || name === "interpreted", computed = sum[V.indexOf("interpreted")], passed = name === "not_run" ? n : name === "interpreted" ? computed + sum[PASS] : sum[PASS], text = n ? (passed === n || !passed ? `${n}` : `${passed}/${n}`) : "";
    const now = `${name}${text}`;
    if (now === cell.last) continue;
    cell.last = now; cell.td.classList.toggle("no", !n);
    if (!n) { cell.button.hidden = true; continue; }
    const button = buttonOf(cell, line), said = nothing ? `${n} compiled, not run${computed ? `, numbers of ${computed} pass by interpretation` : ""}` : `${passed} of ${n} pass${name === "pass" ? "" : `, worst: ${name}`}`;
    button.hidden = false; button.className = `cell v-${name}`; button.firstChild.textContent = SYMBOL[name]; button.lastChild.data = text;
    button.setAttribute("aria-label", `${line.name}, ${modesSeen[cell.m]}, ${columns[cell.k].label}: ${said}`);
  }
}
function tally(s, n) {
  const parts = V.map((v, i) => [v, s[i]]).filter(([v, x]) => x && v !== "pass").map(([v, x]) => `${count(x)} ${v === "not_run" ? "compiled" : v}`);
  return s[PASS] ? `${count(s[PASS])} of ${count(n)} pass${parts.length ? `, ${parts.join(", ")}` : ""}` : parts.join(", ");
}

// The keyboard: the matrix is one tab stop, and arrow keys, Home, End and the page keys move within it.
let stop = null;
function grid2d() {
  return [...$("matrix-box").querySelectorAll("tbody tr:not([hidden])")].map((tr) => [...tr.children].map((td) => td.querySelector("button:not([hidden])")));
}
function rove(to) {
  const next = to || (stop && stop.isConnected && !stop.hidden && !stop.closest("[hidden]") ? stop : $("matrix-box").querySelector("tbody tr:not([hidden]) button:not([hidden])"));
  if (stop && stop !== next) stop.tabIndex = -1;
  stop = next;
  if (stop) { stop.tabIndex = 0; $("matrix-box").removeAttribute("tabindex"); } else $("matrix-box").tabIndex = 0;  // an empty one can still be scrolled
}
function moveInMatrix(e) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -1e3], End: [0, 1e3] }[e.key];
  const from = e.target.closest("button");
  if (!step || !from || !$("matrix-box").contains(from)) return;
  e.preventDefault();
  unfold(Infinity);  // keys move over all lines, also where they are quicker than the lines that follow
  const table = grid2d(), r = table.findIndex((line) => line.includes(from)), c = table[r].indexOf(from);
  const clamp = (x, n) => Math.max(0, Math.min(n - 1, x));
  let to = null;
  if (step[0]) {  // up or down: the next row that has a button in this column, or else the last before it
    const sign = Math.sign(step[0]), aim = clamp(r + step[0], table.length);
    for (let i = aim; i >= 0 && i < table.length && !to && i !== r; i += sign) to = table[i][c];
    for (let i = aim; !to && i !== r; i -= sign) to = table[i][c];
  } else {
    const sign = Math.sign(step[1]), line = table[r];
    for (let i = clamp(c + step[1], line.length); i >= 0 && i < line.length && !to && i !== c; i += Math.abs(step[1]) > 1 ? -sign : sign) to = line[i];
  }
  if (!to && e.key === "ArrowUp") { $("f-q").focus(); return; }  // above the matrix are its filters
  if (to) { rove(to); to.focus(); to.scrollIntoView({ block: "nearest", inline: "nearest" }); }
}
$("matrix-box").addEventListener("keydown", moveInMatrix);
$("matrix-box").addEventListener("focusin", (e) => { const b = e.target.closest("button"); if (b) rove(b); });
$("matrix-box").addEventListener("click", (e) => { e.target.closest("button.cell")?.open(); });
$("matrix-box").addEventListener("pointerover", (e) => { const b = e.target.closest("button.cell"); if (b) b.title = b.getAttribute("aria-label"); });
