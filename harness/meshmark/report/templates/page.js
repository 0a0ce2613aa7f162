/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
(() => {
  // Everything shown is set as text, never as markup: records may come from anyone.
  const $ = (id) => document.getElementById(id);
  const D = JSON.parse($("data").textContent), S = D.strings, V = D.verdicts, PASS = V.indexOf("pass");
  const SYMBOL = { pass: "✓", known: "!", unsupported: "–", not_run: "○", fail: "✗", error: "E", hang: "∞", crash: "✱" };
  const MEANING = {
    pass: "pass", known: "known issue, listed with its link", unsupported: "optional and not there",
    not_run: "compiled alone", fail: "wrong result", error: "raised an error", hang: "past its deadline", crash: "the process died",
  };
  const LEVELS = { L0: "L0 bring-up", L1: "L1 collectives", L2: "L2 modes", L3: "L3 transforms", L4: "L4 processes" };
  const CLASS = { real: "real devices", virtual: "virtual devices", compiled: "compiled only" };

  function el(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (name === "class") made.className = value;
      else made.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(9)) if (child !== null && child !== undefined && child !== "") made.append(child);
    return made;
  }
  const symbol = (v) => el("span", { class: `sym v-${v}`, "aria-hidden": "true" }, SYMBOL[v]);
  const verdict = (v) => el("span", { class: "nowrap" }, symbol(v), " ", v);
  const link = (url) => /^https:\/\/[\w.-]+(\/|$)/.test(url) ? el("a", { href: url, rel: "noopener noreferrer", target: "_blank" }, url) : url;
  const count = (n) => n.toLocaleString("en-US");
  const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
  function digits(x, n = 3) { return x === null || x === undefined ? "" : Math.abs(x) >= 10 ** (n - 1) ? count(Math.round(x)) : String(Number(x.toPrecision(n))); }
  function seconds(s) {
    if (s === null) return "";
    for (const [unit, f] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) if (s >= f) return `${digits(s / f)} ${unit}`;
    return `${digits(s * 1e9)} ns`;
  }
  function bytes(n) {
    if (n === null) return "";
    for (const [unit, f] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= f) return `${digits(n / f)} ${unit}`;
    return `${digits(n)} B`;
  }
  const spread = (m, lo, hi) => m === null ? "" : seconds(m) + (lo === null || hi === null ? " ±?" : ` ±${Math.round(50 * (hi - lo) / m)} %`);
  const rate = (t) => t.busbw ? `${digits(t.busbw / 1e9)} GB/s bus` : t.flops_per_s ? (t.flops_per_s >= 1e12 ? `${digits(t.flops_per_s / 1e12)} TFLOP/s` : `${digits(t.flops_per_s / 1e9)} GFLOP/s`) : t.algbw ? `${digits(t.algbw / 1e9)} GB/s` : "";
  const over = (x) => x.processes === 1 ? "one process" : `${x.processes} processes`;
  const percent = (x) => x === null || x === undefined ? "" : `${digits(100 * x)} %`;
  const median = (xs) => { const s = [...xs].sort((a, b) => a - b), m = s.length >> 1; return s.length ? (s.length % 2 ? s[m] : (s[m - 1] + s[m]) / 2) : null; };

  // The data ------------------------------------------------------------------------------------------------

  const C = D.cases, N = C.operation.length;
  const ids = new Array(N);
  for (let i = 0; i < N; i++) ids[i] = `${S[C.operation[i]]}/${S[C.variant[i]]}/${S[C.mode[i]]}/${S[C.mesh[i]]}/${S[C.dtype[i]]}/${S[C.size[i]]}`;
  const lower = ids.map((s) => s.toLowerCase());
  const rank = new Map(D.operations.map((o, i) => [o.name, i]));
  const info = new Map(D.operations.map((o) => [o.name, o]));
  const runs = D.runs, byKey = new Map(runs.map((r) => [r.key, r]));
  const judgedRuns = runs.filter((r) => r.judged);
  for (const r of judgedRuns) { r.at = new Map(); r.judged.case.forEach((c, i) => r.at.set(c, i)); }
  // A machine is what the runs of one release, product and kind of devices belong to.
  const machines = [];
  for (const r of runs) {
    const name = [r.class, r.release, r.machine, r.product].join("|");
    let m = machines.find((x) => x.name === name);
    if (!m) machines.push(m = { name, key: r.key, class: r.class, release: r.release, machine: r.machine, kind: r.kind, devices: r.devices, processes: r.processes, product: r.product, runs: [], label: `JAX ${r.release} · ${r.machine}` });
    m.runs.push(r);
  }
  for (const m of machines) {
    m.judged = m.runs.filter((r) => r.judged); m.timedRuns = m.runs.filter((r) => r.timings); m.times = [];
    const seen = new Set();
    for (const r of m.timedRuns) for (let i = 0; i < r.timings.operation.length; i++) {
      const t = { run: r };
      for (const [name, column] of Object.entries(r.timings)) t[name] = ["operation", "variant", "mode", "mesh", "dtype", "size", "cadence", "reason", "share_of", "kinds"].includes(name) ? S[column[i]] : column[i];
      t.cell = `${t.operation}/${t.variant}/${t.mesh}/${t.dtype}/${t.size}`;
      const id = `${t.cell}/${t.mode}/${t.cadence}`;
      if (!seen.has(id)) { seen.add(id); m.times.push(t); }
    }
  }
  for (const m of machines) if (machines.some((x) => x !== m && x.label === m.label)) m.long = `${m.label} · ${m.product || m.runs[0].file}`;
  for (const m of machines) m.label = m.long || m.label;
  const timed = machines.filter((m) => m.times.length);
  const modesSeen = D.modes.filter((m) => C.mode.some((i) => S[i] === m));
  for (const m of new Set(C.mode)) if (!modesSeen.includes(S[m])) modesSeen.push(S[m]);

  // The view, kept in the address ---------------------------------------------------------------------------

  const KEYS = ["q", "level", "mode", "dtype", "mesh", "verdict", "runs", "cell", "old", "new", "what", "machine", "cadence", "op", "smode", "smesh", "class", "sort", "view"];
  const state = {};
  function readHash() {
    for (const k of KEYS) state[k] = "";
    for (const [k, v] of new URLSearchParams(location.hash.slice(1))) if (KEYS.includes(k)) state[k] = v.slice(0, 500);
  }
  function writeHash() {
    const p = new URLSearchParams();
    for (const k of KEYS) if (state[k] && k !== "view") p.set(k, state[k]);
    if (state.view) p.set("view", state.view);
    const text = p.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }
  const set = (k, v) => { state[k] = v; writeHash(); };
  function options(select, values, chosen) {
    select.replaceChildren(...values.map(([v, text]) => el("option", { value: v }, text)));
    select.value = values.some(([v]) => v === chosen) ? chosen : values.length ? values[0][0] : "";
    return select.value;
  }

  // Provenance and sortable tables --------------------------------------------------------------------------

  function noise(r) {
    if (!r.noise || r.noise.interval === null) return "";
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

  // Filters -------------------------------------------------------------------------------------------------

  let small = null;  // lower-case strings, made at the first search
  const lowered = () => { small = small || S.map((s) => s.toLowerCase()); };
  function matcher() {
    const ok = new Uint8Array(N).fill(1);
    for (const [name, column] of [["level", C.level], ["mode", C.mode], ["dtype", C.dtype], ["mesh", C.mesh]]) {
      if (!state[name]) continue;
      const want = S.indexOf(state[name]);
      for (let i = 0; i < N; i++) if (column[i] !== want) ok[i] = 0;
    }
    const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return { ok, reason: null };
    lowered();
    // A case is found by its id; a judged row also by its reason. Bits say which words an id or a text has.
    const all = 2 ** Math.min(words.length, 20) - 1, mask = new Int32Array(N), texts = new Int32Array(S.length);
    words.slice(0, 20).forEach((w, b) => {
      for (let i = 0; i < N; i++) if (lower[i].includes(w)) mask[i] |= 1 << b;
      for (let i = 0; i < S.length; i++) if (small[i].includes(w)) texts[i] |= 1 << b;
    });
    return { ok, mask, texts, all };
  }
  const passes = (m, c, reason) => m.ok[c] && (!m.mask || ((m.mask[c] | m.texts[reason]) & m.all) === m.all);

  // The matrix ----------------------------------------------------------------------------------------------

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

  // One cell ------------------------------------------------------------------------------------------------

  const quote = (s) => `'${s.replace(/'/g, "'\\''")}'`;
  function commands(i, run) {
    const parts = ids[i].split("/"), family = info.get(parts[0])?.family;
    const options = ` --operations ${quote(parts[0])} --modes ${quote(parts[2])} --meshes ${quote(parts[3])} --dtypes ${quote(parts[4])} --sizes ${quote(parts[5])}`;
    // Of a topology, the case and its like; where it ran, the case alone by its node id.
    if (run.class === "compiled") return [`meshmark test -n 0 --profile full${options} --topology ${quote(run.machine.split(" ")[0])}`];
    const test = family ? quote(`conformance/test_${family}.py::test_${family}[${ids[i]}]`) : options.trim();
    if (run.processes > 1) {  // no script: one process would be another case
      const each = run.class === "virtual" && run.devices ? ` --devices-per-process ${run.devices / run.processes}` : "";
      if (run.detected) return [`meshmark test ${test} --profile full --distributed`];
      return [`meshmark launch -n ${run.processes}${each} -- meshmark test ${test} --profile full`];
    }
    const devices = run.class === "virtual" && run.devices ? ` --num-devices ${run.devices}` : "";
    return [`meshmark repro ${quote(ids[i])}`, `meshmark test ${test} -n 0 --profile full${devices}`];
  }
  function code(text, wrap) {
    const pre = el("pre", { class: wrap ? "wrap" : null, tabindex: "0" }, el("code", {}, text));
    const button = el("button", { type: "button", class: "quiet copy", onclick: async () => {
      try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; }
      catch { getSelection().selectAllChildren(pre); button.textContent = "Selected"; }
    } }, "Copy");
    return [el("div", { class: "code" }, pre, button)];
  }
  const SPELLS = { "manual-novma": "manual", pmap: "manual", pjit: "auto" };
  function openCell(level, operation, mode, key) { set("cell", [level, operation, mode, key].join("~")); showCell(); }
  function showCell() {
    const dialog = $("detail"), parts = state.cell.split("~"), run = byKey.get(parts[3]);
    if (!state.cell || !run || !run.judged) { if (dialog.open) dialog.close(); return; }
    const [level, operation, mode] = parts, m = matcher(), wanted = want(), j = run.judged, found = [];
    for (let i = 0; i < j.case.length; i++) {
      const c = j.case[i];
      if (S[C.level[c]] === level && S[C.operation[c]] === operation && S[C.mode[c]] === mode && wanted[j.verdict[i]] && passes(m, c, j.reason[i])) found.push(i);
    }
    found.sort((a, b) => j.verdict[a] - j.verdict[b]);
    const tallied = new Int32Array(V.length);
    for (const i of found) tallied[j.verdict[i]]++;
    $("detail-h").textContent = `${operation} · ${mode} · ${level}`;
    const program = D.programs[`${operation}/${SPELLS[mode] || mode}`];
    const list = el("div"), more = el("button", { type: "button", class: "more", onclick: () => add() });
    let at = 0;
    function add() {
      for (const i of found.slice(at, at + 40)) list.append(oneCase(run, i));
      at += 40; more.hidden = at >= found.length; more.textContent = `Show more (${count(Math.min(at, found.length))} of ${count(found.length)})`;
    }
    add();
    $("detail-body").replaceChildren(el("p", {}, run.label, " ", el("span", { class: `tag ${run.class}` }, CLASS[run.class])), el("p", {}, `${plural(found.length, "case")}: ${tally(tallied, found.length)}.`, state.q || state.verdict || state.dtype || state.mesh ? " The filters of the page apply." : ""),
      info.get(operation) ? el("p", { class: "soft" }, info.get(operation).about) : "",
      program ? el("details", {}, el("summary", {}, `The program${SPELLS[mode] ? `: ${mode} runs the spelling of ${SPELLS[mode]}` : ""}`), code(program)) : "",
      el("h3", {}, "Cases, the worst first"), list, more, provenance([run]));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }
  function oneCase(run, i) {
    const j = run.judged, c = j.case[i], v = V[j.verdict[i]], reason = S[j.reason[i]], body = el("div");
    const made = el("details", { class: "case", ontoggle: () => {
      if (!made.open || body.childNodes.length) return;
      const script = run.processes > 1 ? null : D.scripts[ids[c]];
      body.append(...[
        reason ? el("p", {}, el("strong", {}, S[j.check[i]] ? `${S[j.check[i]]}: ` : ""), reason) : "",
        S[j.link[i]] ? el("p", {}, link(S[j.link[i]])) : "",
        el("p", { class: "soft" }, [S[j.kinds[i]] ? `compiled to ${S[j.kinds[i]]}` : "", j.wire[i] !== null ? `${count(j.wire[i])} bytes sent by a device` : "", j.manual[i] !== null && j.wire[i] > j.manual[i] ? `${count(j.wire[i] - j.manual[i])} more than manual mode compiles to` : "", j.used[i] !== null ? `error is ${percent(j.used[i])} of its bound` : ""].filter(Boolean).join(" · ")),
        el("p", { class: "small" }, "To repeat it:"), ...commands(c, run).flatMap((t) => code(t, true)),
        script ? el("details", {}, el("summary", {}, "Stand-alone script (jax and numpy alone)"), code(script)) : "",
      ].filter((x) => x !== ""));
    } }, el("summary", {}, verdict(v), " ", el("span", { class: "mono" }, ids[c]), reason && v !== "pass" ? el("span", { class: "soft small" }, ` ${reason.slice(0, 140)}`) : ""), body);
    return made;
  }

  // What changed --------------------------------------------------------------------------------------------

  const BAD = new Set(["crash", "hang", "error", "fail"]);
  function drawChanges() {
    const list = machines.filter((m) => m.judged.length || m.times.length), out = $("changes-out");
    if (list.length < 2) { out.replaceChildren(el("p", { class: "soft" }, "There is only one machine and release here: nothing to compare.")); return; }
    const values = list.map((m) => [m.key, m.label]);
    const partner = (m) => list.find((x) => x !== m && x.class === m.class && x.machine === m.machine && x.judged.length === m.judged.length);
    const first = list.find(partner) || list[0], second = partner(first) || list.find((m) => m !== first);
    const b = list.find((m) => m.key === options($("c-new"), values, state.new || first.key)), a = list.find((m) => m.key === options($("c-old"), values, state.old || second.key));
    const what = options($("c-what"), [["verdicts", "verdicts"], ["communication", "communication"], ["times", "times"]], state.what);
    const m = matcher(), used = [...a.runs, ...b.runs].filter((r) => what === "times" ? r.timings : r.judged);
    const parts = [];
    if (a.processes !== b.processes) parts.push(el("p", { class: "soft" }, `The first ran over ${over(a)}, the second over ${over(b)}: what only one of them has is no change.`));
    if (a === b) parts.push(el("p", { class: "soft" }, "Choose two different ones."));
    else if (what === "times") parts.push(...timesChanged(a, b));
    else {
      const old = latest(a), now = latest(b), found = [];
      let same = 0, gone = 0, added = 0;
      for (const [c, x] of now) {
        if (!passes(m, c, x.j.reason[x.i])) continue;
        const y = old.get(c);
        if (!y) { added++; continue; }
        const vx = V[x.j.verdict[x.i]], vy = V[y.j.verdict[y.i]];
        if (what === "verdicts") vx === vy ? same++ : found.push({ c, old: vy, now: vx, reason: S[(vx === "pass" ? y.j.reason[y.i] : x.j.reason[x.i])], rank: BAD.has(vx) && !BAD.has(vy) ? 0 : vx === "pass" ? 2 : 1 });
        else if (x.j.wire[x.i] !== null && y.j.wire[y.i] !== null) x.j.wire[x.i] === y.j.wire[y.i] && S[x.j.kinds[x.i]] === S[y.j.kinds[y.i]] ? same++ : found.push({ c, kx: S[x.j.kinds[x.i]], ky: S[y.j.kinds[y.i]], wx: x.j.wire[x.i], wy: y.j.wire[y.i] });
      }
      for (const [c, y] of old) if (!now.has(c) && passes(m, c, y.j.reason[y.i])) gone++;
      parts.push(el("p", { class: "status" }, `${count(found.length)} changed, ${count(same)} as before; ${count(gone)} cases only in the first, ${count(added)} only in the second.`));
      if (!found.length && !same) parts.push(el("p", { class: "soft" }, "The two have no case in common: their meshes differ."));
      else if (what === "verdicts") {
        found.sort((x, y) => x.rank - y.rank || (ids[x.c] < ids[y.c] ? -1 : 1));
        parts.push(grid("changes", `Verdicts, ${a.label} to ${b.label}`, [
          { name: "case", text: (r) => el("span", { class: "mono" }, ids[r.c]), value: (r) => ids[r.c], cls: "id" },
          { name: "change", text: (r) => el("span", { class: r.rank ? null : "bar-slow" }, ["new failure", "changed", "now passes"][r.rank]), value: (r) => r.rank, cls: "nowrap" },
          { name: "from", text: (r) => verdict(r.old), value: (r) => r.old }, { name: "to", text: (r) => verdict(r.now), value: (r) => r.now },
          { name: "reason", text: (r) => r.reason, wide: true },
        ], found, { empty: "No verdict differs between the cases that both have." }));
      } else {
        parts.push(grid("commchanges", `Compiled communication, ${a.label} to ${b.label}`, [
          { name: "case", text: (r) => el("span", { class: "mono" }, ids[r.c]), value: (r) => ids[r.c], cls: "id" },
          { name: "collectives before", text: (r) => r.ky }, { name: "after", text: (r) => r.kx },
          { name: "bytes before", num: true, text: (r) => count(r.wy), value: (r) => r.wy }, { name: "bytes after", num: true, text: (r) => count(r.wx), value: (r) => r.wx },
          { name: "times", num: true, text: (r) => r.wy ? digits(r.wx / r.wy) : "", value: (r) => r.wy ? r.wx / r.wy : null },
        ], found, { empty: "Every program that both have compiles to the same collectives and bytes." }));
      }
    }
    out.replaceChildren(...parts.flat(3), provenance(used));
  }
  function latest(m) {
    const found = new Map();
    for (const r of m.judged) r.judged.case.forEach((c, i) => { if (!found.has(c)) found.set(c, { j: r.judged, i }); });
    return found;
  }
  function timesChanged(a, b) {
    if (a.class !== b.class) return [el("p", { class: "soft" }, "One of the two ran on virtual devices: their times are not put beside those of real ones.")];
    const before = new Map(a.times.map((t) => [`${t.cell}/${t.mode}/${t.cadence}`, t])), found = [], words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    for (const t of b.times) {
      const o = before.get(`${t.cell}/${t.mode}/${t.cadence}`);
      if (!o || t.median_s === null || o.median_s === null || !keep(t, words)) continue;
      found.push({ t, o, ratio: t.median_s / o.median_s, apart: t.low_s !== null && o.low_s !== null && (t.low_s > o.high_s || t.high_s < o.low_s) });
    }
    found.sort((x, y) => Math.abs(Math.log(y.ratio)) * (y.apart ? 1 : .01) - Math.abs(Math.log(x.ratio)) * (x.apart ? 1 : .01));
    return [el("p", { class: "soft" }, "Two runs at different times: what the machine did between them is in these ratios, and processes alone can differ by a third. For a tested difference use ", el("code", {}, "meshmark compare"), "."), grid("timechanges", `Times, ${a.label} to ${b.label}`, [
      { name: "case", text: (r) => el("span", { class: "mono" }, `${r.t.operation}/${r.t.variant}/${r.t.mode}/${r.t.mesh}/${r.t.dtype}/${r.t.size}`), value: (r) => r.t.cell, cls: "id" },
      { name: "cadence", text: (r) => r.t.cadence, value: (r) => r.t.cadence },
      { name: "before", num: true, text: (r) => spread(r.o.median_s, r.o.low_s, r.o.high_s), value: (r) => r.o.median_s }, { name: "after", num: true, text: (r) => spread(r.t.median_s, r.t.low_s, r.t.high_s), value: (r) => r.t.median_s },
      { name: "ratio", num: true, text: (r) => digits(r.ratio), value: (r) => r.ratio }, { name: "intervals", text: (r) => r.apart ? "apart" : "overlap", value: (r) => r.apart ? 0 : 1 },
    ], found, { empty: "The two have no timed case in common." })].flat();
  }
  function keep(t, words) {
    if (state.mode && t.mode !== state.mode || state.dtype && t.dtype !== state.dtype || state.mesh && t.mesh !== state.mesh) return false;
    const id = `${t.operation}/${t.variant}/${t.mode}/${t.mesh}/${t.dtype}/${t.size}`.toLowerCase();
    return words.every((w) => id.includes(w));
  }

  // Modes side by side --------------------------------------------------------------------------------------

  const machine = () => timed.find((m) => m.key === state.machine) || timed[0];
  function sideBySide(m, cadence) {
    const found = new Map(), words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    for (const t of m.times) {
      if (t.cadence !== cadence || state.dtype && t.dtype !== state.dtype || state.mesh && t.mesh !== state.mesh || words.length && !words.every((w) => t.cell.toLowerCase().includes(w))) continue;
      if (!found.has(t.cell)) found.set(t.cell, { first: t, by: {} });
      found.get(t.cell).by[t.mode] = t;
    }
    return [...found.values()];
  }
  function ratioNode(t) {
    if (!t || t.ratio === null) return "";
    const known = t.ratio_low !== null && t.ratio_high !== null;
    const slow = known && t.ratio_low > 1.05, fast = known && t.ratio_high < .95;
    return el("span", { class: slow ? "bar-slow" : fast ? "bar-fast" : null }, `${t.ratio.toFixed(2)}${slow ? " slower" : fast ? " faster" : ""} `, el("span", { class: "soft small" }, known ? `(${t.ratio_low.toFixed(2)}–${t.ratio_high.toFixed(2)})` : "(?)"));
  }
  function perMode(by, modes, f) {
    const said = modes.map((m) => [m, by[m] ? f(by[m]) : null]).filter(([, x]) => x !== null && x !== "");
    if (!said.length) return "";
    if (said.every(([, x]) => x === said[0][1])) return String(said[0][1]);
    return said.map(([m, x]) => el("div", { class: "nowrap" }, el("span", { class: "soft" }, `${m}: `), x));
  }
  function drawModes() {
    const out = $("modes-out");
    if (!timed.length) { out.replaceChildren(el("p", { class: "soft" }, "No times among these records. ", el("code", {}, "meshmark bench --record FILE"), " makes them.")); return; }
    options($("m-machine"), timed.map((m) => [m.key, m.label]), machine().key);
    const m = machine(), cadences = [...new Set(m.times.map((t) => t.cadence))];
    const cadence = options($("m-cadence"), cadences.map((c) => [c, { isolated: "isolated: one call, blocked on", stream: "stream: calls inside one program", device: "device: what the profiler saw" }[c] || c]), state.cadence);
    const list = sideBySide(m, cadence), modes = D.modes.filter((x) => list.some((r) => r.by[x])), others = modes.filter((x) => x !== "manual" && x !== "host" && modes.includes("manual"));
    const bad = list.filter((r) => modes.some((x) => r.by[x] && r.by[x].median_s === null));
    out.replaceChildren(...[el("p", {}, el("span", { class: `tag ${m.class}` }, CLASS[m.class]), ` ${plural(list.length, "cell")}${bad.length ? `, ${bad.length} of them with a mode that has no published time` : ""}.`), grid("modes", `Modes side by side on ${m.label}, ${cadence}`, [
      { name: "case", text: (r) => [el("span", { class: "op" }, r.first.operation), ` ${r.first.variant} `, el("span", { class: "soft" }, `${r.first.mesh} ${r.first.dtype} ${r.first.size}`)], value: (r) => `${r.first.operation} ${r.first.variant} ${r.first.mesh} ${r.first.dtype} ${String(r.first.nbytes ?? 0).padStart(15, "0")}`, cls: "id" },
      ...modes.map((x) => ({ name: x, num: true, text: (r) => !r.by[x] ? "" : r.by[x].median_s === null ? el("span", { title: r.by[x].reason }, verdict(V[r.by[x].verdict])) : spread(r.by[x].median_s, r.by[x].low_s, r.by[x].high_s), value: (r) => r.by[x]?.median_s ?? null })),
      ...others.map((x) => ({ name: `${x} / manual`, num: true, text: (r) => ratioNode(r.by[x]), value: (r) => r.by[x]?.ratio ?? null })),
      { name: "a device sends", text: (r) => perMode(r.by, modes, (t) => [t.wire_bytes === null ? "" : bytes(t.wire_bytes), t.kinds].filter(Boolean).join(" in ")), value: (r) => Math.max(...modes.map((x) => r.by[x]?.wire_bytes ?? 0)) },
      { name: "rate (manual)", num: true, text: (r) => rate(r.by.manual || r.first), value: (r) => { const t = r.by.manual || r.first; return t.busbw || t.flops_per_s || t.algbw; } },
      { name: "share of peak", num: true, text: (r) => { const t = r.by.manual || r.first; return el("span", { title: t.share_of }, percent(t.share)); }, value: (r) => (r.by.manual || r.first).share },
    ], list), provenance(m.timedRuns)].flat(3));
  }

  // Charts --------------------------------------------------------------------------------------------------

  let plotting = null;
  function library() {  // Bokeh is in the page as text and starts when a chart comes into view
    plotting = plotting || new Promise((resolve) => {
      for (const id of ["plot-0", "plot-1"]) { const s = document.createElement("script"); s.textContent = $(id).textContent; document.head.append(s); }
      resolve(Bokeh);
    });
    return plotting;
  }
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = () => { const t = document.documentElement.dataset.theme; return t ? t === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; };
  const palette = () => dark() ? ["#6cb6ff", "#f0a35c", "#6fd3a6", "#e58fc8", "#e3d25a", "#b49cf5", "#ff8f80", "#9fb1c1"] : ["#0b5cad", "#b85a00", "#12805c", "#a33c84", "#8a7400", "#6a4fc4", "#b3261e", "#56636f"];
  const MOST_SERIES = 8;
  const MARKERS = ["circle", "square", "triangle", "diamond", "inverted_triangle", "star", "hex", "plus"];
  const views = new Map(), drawn = new Map(), pending = new Map();
  function figure(B, settings) {
    const f = B.Plotting.figure({ height: 360, sizing_mode: "stretch_width", tools: "pan,box_zoom,reset,save", toolbar_location: "above", background_fill_color: null, border_fill_color: null, outline_line_color: css("--line"), ...settings });
    f.toolbar.logo = null;
    for (const axis of [...f.xaxes ?? [], ...f.yaxes ?? []]) paint(axis);
    for (const side of ["below", "left"]) for (const axis of f[side]) paint(axis);
    for (const g of f.center) if ("grid_line_color" in g) { g.grid_line_color = css("--line"); g.grid_line_alpha = .6; }
    return f;
  }
  function paint(axis) {
    axis.axis_label_text_color = axis.major_label_text_color = css("--muted"); axis.axis_line_color = axis.major_tick_line_color = css("--line"); axis.minor_tick_line_color = null;
    axis.axis_label_text_font_style = "normal"; axis.axis_label_text_font = axis.major_label_text_font = "system-ui, sans-serif"; axis.major_label_text_font_size = "12px"; axis.axis_label_text_font_size = "12px";
  }
  function legend(B, f, items) {
    const one = new B.Legend({ items: items.map(([label, renderers]) => new B.LegendItem({ label, renderers })), click_policy: "hide", background_fill_color: css("--bg"), background_fill_alpha: .8, label_text_color: css("--fg"), border_line_color: null, label_text_font_size: "11px", label_text_font: "system-ui, sans-serif", spacing: 0, padding: 6, label_height: 14, glyph_height: 14, ncols: items.length > 5 && innerWidth > 700 ? 3 : 1 });
    f.add_layout(one, "below");
    f.height = 330 + 17 * Math.ceil(items.length / one.ncols);
  }
  function ticks(f, side, B, values, text) {
    const axis = f[side][0];
    axis.ticker = new B.FixedTicker({ ticks: values });
    axis.major_label_overrides = new Map(values.map((v) => [v, text(v)]));
    for (const g of f.center) if (g.dimension === (side === "below" ? 0 : 1)) g.ticker = axis.ticker;
  }
  async function chart(id, key, make) {
    pending.set(id, { key, make });
    if (!seenCharts.has(id)) return;
    if (drawn.get(id) === key) return;
    drawn.set(id, key);
    const box = $(id), B = await library();
    if (drawn.get(id) !== key) return;
    views.get(id)?.remove?.();
    box.replaceChildren();
    const f = make(B);
    box.classList.toggle("empty", !f);
    if (!f) { box.textContent = "Nothing to draw: no such times among these records."; return; }
    views.set(id, await B.Plotting.show(f, box));
    box.dataset.ready = "yes";
  }
  const seenCharts = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const e of entries) if (e.isIntersecting) { seenCharts.add(e.target.id); watcher.unobserve(e.target); const p = pending.get(e.target.id); if (p) chart(e.target.id, p.key, p.make); }
  }, { rootMargin: "300px" });
  const powers = (lo, hi, base) => { const out = []; for (let e = Math.floor(Math.log(lo) / Math.log(base)); base ** e <= hi * 1.001; e++) if (base ** e >= lo * .999) out.push(base ** e); return out; };
  const size = (b) => b >= 2 ** 30 ? `${digits(b / 2 ** 30)} GiB` : b >= 2 ** 20 ? `${digits(b / 2 ** 20)} MiB` : b >= 1024 ? `${digits(b / 1024)} KiB` : `${digits(b)} B`;
  const behind = (...content) => el("details", {}, el("summary", {}, "The table behind this chart"), content);

  function drawSpeed() {
    if (!timed.length) { $("speed-note").textContent = "No times among these records."; for (const id of ["bw", "scale", "share"]) { $(`${id}-chart`).classList.add("empty"); $(`${id}-chart`).textContent = ""; } return; }
    const m = machine(), cadence = $("m-cadence").value, theme = dark() ? "d" : "l";
    const first = m.timedRuns.find((r) => r.peak);
    $("speed-note").replaceChildren(el("span", { class: `tag ${m.class}` }, CLASS[m.class]), ` ${m.label}, ${cadence} calls (choose above). `, first ? `Bandwidth is held against ${bytes(first.peak.value)}/s of a device: ${first.peak.of}.` : "No peak is published or measured for it: there is no share.", m.class === "virtual" ? " Virtual devices share the cores of one machine." : "");
    const ops = [...new Set(m.times.filter((t) => t.busbw).map((t) => t.operation))], op = options($("s-op"), ops.map((o) => [o, o]), state.op || (ops.includes("psum") ? "psum" : ""));
    const modes = D.modes.filter((x) => m.times.some((t) => t.mode === x && t.operation === op)), mode = options($("s-mode"), [...modes.map((x) => [x, x]), ["all", "all modes"]], state.smode || (modes.includes("manual") ? "manual" : modes[0]));
    const meshes = [...new Set(m.times.filter((t) => t.operation === op).map((t) => t.mesh))], mesh = options($("s-mesh"), [["", "all meshes"], ...meshes.map((x) => [x, x])], state.smesh);
    const points = m.times.filter((t) => t.operation === op && t.cadence === cadence && t.busbw && t.nbytes && (mode === "all" || t.mode === mode) && (!mesh || t.mesh === mesh));
    const series = new Map();
    for (const t of points) { const k = [t.variant, t.mesh, t.dtype, ...(mode === "all" ? [t.mode] : [])].join(" · "); if (!series.has(k)) series.set(k, []); series.get(k).push(t); }
    for (const s of series.values()) s.sort((a, b) => a.nbytes - b.nbytes);
    const every = series.size, drawnSeries = new Map([...series].sort((a, b) => b[1].length - a[1].length).slice(0, MOST_SERIES)), shownPoints = [...drawnSeries.values()].flat();
    const fitOf = (t) => { for (const r of m.timedRuns) { const f = r.fits.find((f) => f.operation === t.operation && f.variant === t.variant && f.mesh === t.mesh && f.dtype === t.dtype && f.mode === t.mode && f.cadence === t.cadence); if (f) return f; } return null; };
    const wide = (t, end) => t[end] === null ? t.busbw : t.busbw * t.median_s / t[end];
    chart("bw-chart", [m.key, cadence, op, mode, mesh, theme].join(), (B) => {
      if (!points.length) return null;
      const x = shownPoints.map((t) => t.nbytes), y = shownPoints.map((t) => t.busbw / 1e9), peak = first ? first.peak.value / 1e9 : null;
      const f = figure(B, { x_axis_type: "log", y_axis_type: "log", x_range: [Math.min(...x) / 1.6, Math.max(...x) * 1.6], y_range: [Math.min(...y) / 2, Math.max(...y, peak || 0) * 2] });
      const items = [], colors = palette();
      let n = 0;
      for (const [name, list] of drawnSeries) {
        const color = colors[n % colors.length], own = [];
        own.push(f.segment(list.map((t) => t.nbytes), list.map((t) => wide(t, "high_s") / 1e9), list.map((t) => t.nbytes), list.map((t) => wide(t, "low_s") / 1e9), { line_color: color, line_width: 1.5 }));
        own.push(f.scatter(list.map((t) => t.nbytes), list.map((t) => t.busbw / 1e9), { marker: MARKERS[n % MARKERS.length], size: 8, fill_color: color, line_color: color }));
        const fit = fitOf(list[0]);
        if (fit && list.length > 2) {
          const lo = list[0].nbytes, hi = list[list.length - 1].nbytes, xs = Array.from({ length: 40 }, (_, i) => lo * (hi / lo) ** (i / 39));
          own.push(f.line(xs, xs.map((s) => fit.factor * s / (fit.alpha + (fit.beta ? s / fit.beta : 0)) / 1e9), { line_color: color, line_dash: "dashed", line_width: 1.5 }));
        }
        items.push([name, own]); n++;
      }
      if (peak) items.push([`peak, ${digits(peak)} GB/s`, [f.line([Math.min(...x) / 1.6, Math.max(...x) * 1.6], [peak, peak], { line_color: css("--fg"), line_dash: "dotted", line_width: 2 })]]);
      f.below[0].axis_label = "message size S"; f.left[0].axis_label = "bus bandwidth, GB/s";
      ticks(f, "below", B, powers(Math.min(...x), Math.max(...x), 4), size);
      const ys = powers(Math.min(...y) / 2, Math.max(...y, peak || 0) * 2, 10); if (ys.length > 1) ticks(f, "left", B, ys, (v) => digits(v));
      legend(B, f, items);
      return f;
    });
    $("bw-table").replaceChildren(el("p", { class: "soft small" }, every > MOST_SERIES ? `Drawn are ${MOST_SERIES} of ${every} series, those of most points: choose a mesh for others; the table has all. ` : "", "Bars are 95 % intervals, dashed lines the fit t = α + S / β, the dotted line the peak. A name in the legend hides its points."), behind(grid("bw", `Bus bandwidth of ${op} on ${m.label}, ${cadence}`, [
      { name: "series", text: (t) => `${t.variant} · ${t.mesh} · ${t.dtype} · ${t.mode}`, value: (t) => `${t.variant} ${t.mesh} ${t.dtype} ${t.mode}` },
      { name: "S", num: true, text: (t) => size(t.nbytes), value: (t) => t.nbytes }, { name: "time", num: true, text: (t) => spread(t.median_s, t.low_s, t.high_s), value: (t) => t.median_s },
      { name: "bus bandwidth, GB/s", num: true, text: (t) => digits(t.busbw / 1e9), value: (t) => t.busbw }, { name: "share of peak", num: true, text: (t) => percent(t.share), value: (t) => t.share },
      { name: "fit α", num: true, text: (t) => { const f = fitOf(t); return f ? seconds(f.alpha) || "0" : ""; } }, { name: "fit β", num: true, text: (t) => { const f = fitOf(t); return f ? (f.beta ? `${bytes(f.beta)}/s` : "no growth") : ""; } },
      { name: "largest residual", num: true, text: (t) => { const f = fitOf(t); return f ? percent(f.worst) : ""; } },
    ], points)), provenance(m.timedRuns));

    const scaled = m.timedRuns.flatMap((r) => r.scaling.map((s) => ({ ...s, run: r }))).filter((s) => s.name.endsWith(`(${cadence})`));
    chart("scale-chart", [m.key, cadence, theme].join(), (B) => {
      if (!scaled.length) return null;
      const f = figure(B, { x_axis_type: "log", y_range: [0, 1.15 * Math.max(1, ...scaled.flatMap((s) => s.points.map((p) => p[2])))] }), colors = palette(), items = [], all = [...new Set(scaled.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
      scaled.forEach((s, n) => {
        const c = colors[n % colors.length], x = s.points.map((p) => p[0]), y = s.points.map((p) => p[2]);
        items.push([`${s.name.replace(/ \(\w+\)$/, "")}, ${s.kind}`, [f.line(x, y, { line_color: c, line_width: 1.5, line_dash: s.kind === "weak" ? "dashed" : "solid" }), f.scatter(x, y, { marker: MARKERS[n % MARKERS.length], size: 8, fill_color: c, line_color: c })]]);
      });
      items.push(["perfect", [f.line([all[0], all[all.length - 1]], [1, 1], { line_color: css("--fg"), line_dash: "dotted" })]]);
      f.below[0].axis_label = "devices"; f.left[0].axis_label = "efficiency"; ticks(f, "below", B, all, String); legend(B, f, items);
      return f;
    });
    $("scale-table").replaceChildren(...scaled.length ? [behind(grid("scale", `Scaling on ${m.label}, ${cadence}`, [
      { name: "series", text: (p) => p.s.name, value: (p) => p.s.name }, { name: "kind", text: (p) => p.s.kind, value: (p) => p.s.kind }, { name: "devices", num: true, text: (p) => String(p.p[0]), value: (p) => p.p[0] },
      { name: "time", num: true, text: (p) => seconds(p.p[1]), value: (p) => p.p[1] }, { name: "efficiency", num: true, text: (p) => percent(p.p[2]), value: (p) => p.p[2] },
    ], scaled.flatMap((s) => s.points.map((p) => ({ s, p }))))), provenance(scaled.map((s) => s.run))] : [el("p", { class: "soft small" }, el("code", {}, "meshmark bench --scaling"), " measures it.")]);

    const shares = best(m);
    chart("share-chart", [m.key, theme].join(), (B) => {
      if (!shares.length) return null;
      const names = shares.map((t) => t.operation).reverse(), f = figure(B, { height: Math.max(140, 60 + 30 * names.length), y_range: names, x_range: [0, Math.max(1, ...shares.map((t) => t.share)) * 100 * 1.05] });
      f.hbar({ y: shares.map((t) => t.operation), right: shares.map((t) => 100 * t.share), left: 0, height: .62, fill_color: palette()[0], line_color: null, fill_alpha: .85 });
      f.text(shares.map((t) => 100 * t.share), shares.map((t) => t.operation), shares.map((t) => `${percent(t.share)}, ${rate(t)}`), { x_offset: shares.map((t) => t.share > .7 ? -6 : 6), text_align: shares.map((t) => t.share > .7 ? "right" : "left"), text_baseline: "middle", text_color: shares.map((t) => t.share > .7 ? css("--bg") : css("--fg")), text_font_size: "12px", text_font: "system-ui, sans-serif" });
      f.below[0].axis_label = "best share of its peak, percent";
      return f;
    });
    $("share-table").replaceChildren(...shares.length ? [behind(grid("share", `Best share of peak on ${m.label}`, shareColumns, shares)), provenance(m.timedRuns)] : []);
    drawSide();
  }
  function best(m) {
    const found = new Map();
    for (const t of m.times) if (t.share !== null && t.mode === (m.times.some((x) => x.operation === t.operation && x.mode === "manual") ? "manual" : t.mode) && !(found.get(t.operation)?.share >= t.share)) found.set(t.operation, t);
    return [...found.values()].sort((a, b) => b.share - a.share);
  }
  const shareColumns = [
    { name: "operation", text: (t) => t.operation, value: (t) => t.operation }, { name: "best in", text: (t) => `${t.variant} ${t.mesh} ${t.dtype} ${t.size}, ${t.mode}, ${t.cadence}` },
    { name: "rate", num: true, text: (t) => rate(t), value: (t) => t.busbw || t.flops_per_s }, { name: "share", num: true, text: (t) => percent(t.share), value: (t) => t.share }, { name: "of", text: (t) => t.share_of },
  ];
  function drawSide() {
    const groups = new Map();
    for (const m of timed) { const k = m.class === "virtual" ? "virtual devices" : m.class === "real" ? `${m.kind}, real` : "compiled"; if (!groups.has(k)) groups.set(k, []); groups.get(k).push(m); }
    const chosen = options($("s-class"), [...groups.keys()].map((k) => [k, k]), state.class), list = groups.get(chosen) || [], cadence = $("m-cadence").value, found = new Map(), words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    list.forEach((m, k) => { for (const t of m.times) if (t.mode === "manual" && t.cadence === cadence && t.median_s !== null && keep({ ...t, mode: state.mode || t.mode }, words)) { if (!found.has(t.cell)) found.set(t.cell, { first: t, by: [] }); found.get(t.cell).by[k] = t; } });
    $("side-table").replaceChildren(...[grid("side", `Times of manual mode, ${chosen}, ${cadence}`, [
      { name: "case", text: (r) => [el("span", { class: "op" }, r.first.operation), ` ${r.first.variant} `, el("span", { class: "soft" }, `${r.first.mesh} ${r.first.dtype} ${r.first.size}`)], value: (r) => r.first.cell, cls: "id" },
      ...list.map((m, k) => ({ name: m.label, num: true, text: (r) => r.by[k] ? [spread(r.by[k].median_s, r.by[k].low_s, r.by[k].high_s), el("div", { class: "soft small" }, rate(r.by[k]))] : "", value: (r) => r.by[k]?.median_s ?? null })),
    ], [...found.values()]), provenance(list.flatMap((m) => m.timedRuns))].flat(3));
  }

  // Communication -------------------------------------------------------------------------------------------

  function excess(run, m) {
    const found = new Map(), j = run.judged;
    for (let i = 0; i < j.case.length; i++) {
      const c = j.case[i], mode = S[C.mode[c]], manual = j.manual[i], sent = j.wire[i];
      if (manual === null || !(sent > manual) || m && !passes(m, c, j.reason[i])) continue;
      const k = `${S[C.operation[c]]}~${mode}`, times = manual ? sent / manual : Infinity, was = found.get(k);
      if (!was) found.set(k, { run, c, i, mode, operation: S[C.operation[c]], times, n: 1, sent, manual });
      else { was.n++; if (times > was.times) Object.assign(was, { c, i, times, sent, manual }); }
    }
    return [...found.values()];
  }
  function drawCommunication() {
    const shown = shownRuns(), m = matcher(), found = new Map();
    shown.forEach((run, k) => { for (const r of excess(run, m)) {
      const key = `${r.operation}~${r.mode}`;
      if (!found.has(key)) found.set(key, { operation: r.operation, mode: r.mode, by: [], worst: r });
      const row = found.get(key);
      row.by[k] = r;
      if (r.times > row.worst.times) row.worst = r;
    } });
    const times = (r) => r.times === Infinity ? "manual sends none" : `${digits(r.times)}×`;
    const list = [...found.values()].sort((a, b) => b.worst.times - a.worst.times);
    $("communication-out").replaceChildren(...[grid("comm", "Times the bytes that manual mode compiles to; below it the bytes that one device sends, those of manual mode, and how many cases send more", [
      { name: "operation", text: (r) => [el("span", { class: "op" }, r.operation), ` ${r.mode}`], value: (r) => `${r.operation} ${r.mode}`, cls: "nowrap" },
      ...shown.map((run, k) => ({ name: run.label, num: true, value: (r) => r.by[k]?.times ?? null, text: (r) => r.by[k] ? [times(r.by[k]), el("div", { class: "soft small" }, `${count(r.by[k].sent)} / ${count(r.by[k].manual)} B, ${plural(r.by[k].n, "case")}`)] : "" })),
      { name: "largest in", wide: true, value: (r) => ids[r.worst.c], text: (r) => [el("span", { class: "mono small" }, ids[r.worst.c]), el("div", { class: "soft small" }, `compiled to ${S[r.worst.run.judged.kinds[r.worst.i]]}`)] },
    ], list, { empty: "Nowhere, in the cases that match." }), provenance(shown)].flat(3));
  }

  // Answers -------------------------------------------------------------------------------------------------

  function badge(s) {
    const met = s.pass + s.known, v = s.unmet ? "fail" : s.missing ? "not_run" : s.known ? "known" : "pass";
    return el("li", { class: `v-${v}`, title: `must-pass list ${s.list}` }, `${s.unmet ? "✗" : s.missing ? "○" : s.known ? "!" : "✓"} ${s.level} ${count(met)}/${count(s.cases)}`, s.known ? ` · ${s.known} known` : "", s.missing ? ` · ${count(s.missing)} not judged` : "", s.unmet ? ` · ${count(s.unmet)} unmet` : "");
  }
  function drawAnswers() {
    const works = el("div", { class: "card" }, el("h2", {}, "What works?")), fast = el("div", { class: "card" }, el("h2", {}, "Is it as fast as it should be?")), mode = el("div", { class: "card" }, el("h2", {}, "Which mode should I use?"));
    const MOST = 6, ran = judgedRuns.filter((r) => r.class !== "compiled"), compiled = judgedRuns.filter((r) => r.class === "compiled");
    for (const r of ran.slice(0, MOST)) {
      const t = new Int32Array(V.length); for (const v of r.judged.verdict) t[v]++;
      works.append(el("h3", {}, r.label, r.expired ? [" ", el("span", { class: "tag expired" }, "expired")] : ""));
      if (r.levels.length) works.append(el("ul", { class: "badges", "aria-label": "Levels, cases met of the must-pass list" }, r.levels.map(badge)));
      works.append(el("p", { class: "soft" }, `${tally(t, r.judged.case.length)}. ${r.met ? `Level ${r.met} is met.` : r.levels.some((s) => s.missing) ? "No level: not every case of the must-pass list was judged." : ""}`));
    }
    if (ran.length > MOST) works.append(el("p", { class: "soft" }, `${ran.length - MOST} more runs are in the list of runs below.`));
    if (compiled.length) {
      const bad = compiled.filter((r) => r.judged.verdict.some((v) => BAD.has(V[v])));
      works.append(el("h3", {}, "Compiled for hardware that was not there"), el("p", { class: "soft" }, `${plural(compiled.length, "run")} (${[...new Set(compiled.map((r) => r.machine))].join(", ")}): ${bad.length ? `${bad.length} with a failure` : "every case compiles as its contract says"}. Nothing ran there.`));
    }
    if (!judgedRuns.length) works.append(el("p", { class: "soft" }, "No conformance records here."));
    for (const m of timed.slice(0, 4)) {
      const list = best(m), peak = m.timedRuns.find((r) => r.peak);
      fast.append(el("h3", {}, m.label));
      if (list.length) fast.append(el("ul", {}, list.slice(0, 4).map((t) => el("li", {}, el("strong", {}, t.operation), ` reaches ${rate(t)}, ${percent(t.share)} of its peak`, t.share > 1 ? el("span", { class: "soft" }, " (more than the ceiling that was measured, which is then too low)") : ""))), el("p", { class: "soft" }, `Peak: ${[...new Set(list.map((t) => t.share_of))].slice(0, 2).join("; ")}.`));
      else fast.append(el("p", { class: "soft" }, `${plural(m.times.length, "time")}, no peak to hold them against${peak ? "" : " (none published or measured)"}.`));
    }
    fast.append(el("p", { class: "soft" }, timed.some((m) => m.class === "virtual") ? "Virtual devices share the cores of one machine: their times compare modes, not hardware." : timed.length ? "" : "No times here."));
    for (const m of timed.slice(0, 3)) {
      const lines = [];
      for (const x of ["auto", "explicit"]) {
        const r = m.times.filter((t) => t.mode === x && t.ratio !== null && t.cadence === (m.times.some((u) => u.cadence === "stream") ? "stream" : t.cadence));
        if (!r.length) continue;
        const slow = r.filter((t) => t.ratio_low > 1.05).length, quick = r.filter((t) => t.ratio_high !== null && t.ratio_high < .95).length;
        lines.push(el("li", {}, el("strong", {}, x), ` takes ${median(r.map((t) => t.ratio)).toFixed(2)} times as long as manual (median of ${r.length}): surely more than 5 % slower in ${slow}, faster in ${quick}`));
      }
      if (lines.length) mode.append(el("h3", {}, m.label), el("ul", {}, lines));
    }
    const newest = ran[0] || compiled[0];
    if (newest) {
      const list = excess(newest).sort((a, b) => b.times - a.times), ops = [...new Map(list.map((r) => [r.operation, r])).values()];
      mode.append(el("h3", {}, "Bytes sent"), ops.length ? el("p", {}, `Automatic or explicit sharding sends more than manual in ${plural(ops.length, "operation")}: ${list.filter((r, i) => list.findIndex((x) => x.operation === r.operation) === i).slice(0, 5).map((r) => `${r.operation} (${r.times === Infinity ? "manual sends none" : `up to ${digits(r.times)}×`})`).join(", ")}. There, spell it with shard_map.`) : el("p", {}, "No mode sends more than manual spells."), el("p", { class: "soft" }, `As compiled for ${newest.label}.`));
    }
    works.append(provenance(judgedRuns)); if (timed.length) { fast.append(provenance(timed.flatMap((m) => m.timedRuns))); mode.append(provenance([...timed.flatMap((m) => m.timedRuns), ...(newest ? [newest] : [])])); }
    $("answers-cards").replaceChildren(works, fast, mode);
  }

  // Runs ----------------------------------------------------------------------------------------------------

  function drawRuns() {
    $("runs-out").replaceChildren(...[grid("runs", "Every record file of this page", [
      { name: "run", text: (r) => [r.label, " ", el("span", { class: `tag ${r.class}` }, CLASS[r.class]), r.expired ? [" ", el("span", { class: "tag expired" }, "expired")] : ""], value: (r) => r.label, cls: "id" },
      { name: "statement", text: (r) => r.statement || "", wide: true }, { name: "cases", num: true, text: (r) => r.judged ? count(r.judged.case.length) : "", value: (r) => r.judged?.case.length ?? null },
      { name: "times", num: true, text: (r) => r.timings ? count(r.timings.operation.length) : "", value: (r) => r.timings?.operation.length ?? null }, { name: "noise", text: (r) => noise(r).replace(/^noise: /, "") },
      { name: "suite", text: (r) => `${r.commit.slice(0, 10)}${r.clean ? "" : " not clean"}`, value: (r) => r.commit }, { name: "record file", text: (r) => el("span", { class: "mono small" }, r.file), value: (r) => r.file, cls: "id" },
      { name: "SHA-256", text: (r) => el("span", { class: "mono small" }, r.sha256), cls: "id" },
    ], runs), runs.map((r) => el("details", { class: "runbox", id: `run-${r.key}` }, el("summary", {}, `${r.label} · ${r.file}`), el("dl", { class: "facts" }, [...r.facts, ...(r.ceilings || []).map((c) => [`ceiling: ${c.name} ${c.dtype}`, `${digits(c.value / 1e9)} ${c.unit === "B/s" ? "GB/s" : "GFLOP/s"}, ${c.devices} devices together`]), ["SHA-256", r.sha256], ["bytes", count(r.size)], ...(r.problems ? [["lines not read", count(r.problems)]] : []), ...(r.compared ? [["comparison", `${plural(r.compared, "timing")} of a comparison, left out here`]] : [])].map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]))))].flat(3));
  }

  // Putting it together -------------------------------------------------------------------------------------

  function distinct(column, order) { const seen = [...new Set(column)].map((i) => S[i]); return order ? seen.sort(order) : seen.sort(); }
  function controls() {
    const all = (text) => ["", text];
    $("f-q").value = state.q;
    options($("f-level"), [all("all levels"), ...distinct(C.level).map((l) => [l, LEVELS[l] || l])], state.level);
    options($("f-mode"), [all("all modes"), ...modesSeen.map((m) => [m, m])], state.mode);
    options($("f-dtype"), [all("all dtypes"), ...distinct(C.dtype).map((d) => [d, d])], state.dtype);
    options($("f-mesh"), [all("all meshes"), ...distinct(C.mesh, (a, b) => a.length - b.length || a.localeCompare(b)).map((d) => [d, d])], state.mesh);
    options($("f-verdict"), [all("all verdicts"), ["notpass", "all but pass"], ["bad", "any failure"], ...[...V].reverse().map((v) => [v, v])], state.verdict);
    const shown = shownRuns();
    const chip = (r) => el("label", {}, el("input", { type: "checkbox", value: r.key, checked: shown.includes(r), onchange: () => {
      const keys = [...$("run-chips").querySelectorAll("input:checked")].map((i) => i.value);
      set("runs", keys.join(".")); if (!keys.length) controls(); drawMatrix(); $("matrix-prov").replaceChildren(provenance(shownRuns())); drawCommunication();
    } }), r.label);
    const [ran, compiled] = [judgedRuns.filter((r) => r.class !== "compiled"), judgedRuns.filter((r) => r.class === "compiled")];
    $("run-chips").replaceChildren(el("legend", {}, "Runs shown"), ...ran.map(chip), compiled.length && ran.length ? el("details", { class: "more-runs", open: compiled.some((r) => shown.includes(r)) }, el("summary", {}, `compiled for ${plural(compiled.length, "machine")} that ${compiled.length === 1 ? "was" : "were"} not there`), compiled.map(chip)) : el("span", {}, compiled.map(chip)));
  }
  function filtered() { drawMatrix(); later(); }
  let timer = 0;
  function later() { clearTimeout(timer); timer = setTimeout(() => { drawChanges(); drawModes(); drawCommunication(); drawSide(); }, 120); }  // what is below the fold follows
  function drawAll() { controls(); drawMatrix(); $("matrix-prov").replaceChildren(provenance(shownRuns())); drawChanges(); drawModes(); drawSpeed(); drawCommunication(); showCell(); }
  function go(view, focus) {
    const target = $(view);
    if (!target) return;
    if (target.tagName === "DETAILS") target.open = true;
    target.scrollIntoView({ block: "start" });
    if (focus) (target.tagName === "DETAILS" ? target.querySelector("summary") : target).focus({ preventScroll: true });
  }

  readHash();
  $("legend").replaceChildren(...[...V].reverse().map((v) => el("li", {}, symbol(v), ` ${v === MEANING[v] ? v : `${v === "not_run" ? "not run" : v}: ${MEANING[v]}`}`)));
  for (const [id, key] of [["f-level", "level"], ["f-mode", "mode"], ["f-dtype", "dtype"], ["f-mesh", "mesh"], ["f-verdict", "verdict"]]) $(id).addEventListener("change", (e) => { set(key, e.target.value); filtered(); });
  $("f-q").addEventListener("input", (e) => { set("q", e.target.value.slice(0, 500)); filtered(); });
  $("filters").addEventListener("submit", (e) => e.preventDefault());
  $("filters").addEventListener("reset", () => { for (const k of ["q", "level", "mode", "dtype", "mesh", "verdict"]) state[k] = ""; writeHash(); setTimeout(() => { controls(); filtered(); }); });
  for (const [id, key] of [["c-old", "old"], ["c-new", "new"], ["c-what", "what"]]) $(id).addEventListener("change", (e) => { set(key, e.target.value); drawChanges(); });
  for (const [id, key] of [["m-machine", "machine"], ["m-cadence", "cadence"]]) $(id).addEventListener("change", (e) => { set(key, e.target.value); drawModes(); drawSpeed(); });
  for (const [id, key] of [["s-op", "op"], ["s-mode", "smode"], ["s-mesh", "smesh"]]) $(id).addEventListener("change", (e) => { set(key, e.target.value); drawSpeed(); });
  $("s-class").addEventListener("change", (e) => { set("class", e.target.value); drawSide(); });
  document.addEventListener("click", (e) => {
    const a = e.target.closest("a[href^='#']");
    if (!a) return;
    e.preventDefault();
    const view = new URLSearchParams(a.getAttribute("href").slice(1)).get("view");
    if ($("detail").open) $("detail").close();
    set("view", view); go(view, true);
  });
  $("detail-close").addEventListener("click", () => $("detail").close());
  $("detail").addEventListener("close", () => { set("cell", ""); });
  $("detail").addEventListener("click", (e) => { if (e.target === $("detail")) $("detail").close(); });
  addEventListener("hashchange", () => { readHash(); drawAll(); if (state.view) go(state.view, false); });
  let kept = ""; try { kept = localStorage.getItem("meshmark-theme") || ""; } catch { kept = ""; }
  function theme(t) { if (t) document.documentElement.dataset.theme = t; else delete document.documentElement.dataset.theme; $("theme").value = t; }
  theme(["light", "dark"].includes(kept) ? kept : "");
  $("theme").addEventListener("change", (e) => { theme(e.target.value); try { localStorage.setItem("meshmark-theme", e.target.value); } catch { /* a file without storage */ } drawSpeed(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawSpeed());
  addEventListener("beforeprint", () => { for (const d of document.querySelectorAll(".prov")) d.open = true; });
  addEventListener("afterprint", () => { for (const d of document.querySelectorAll(".prov")) d.open = false; });

  drawAnswers(); drawRuns(); drawAll();
  for (const id of ["bw-chart", "scale-chart", "share-chart"]) watcher.observe($(id));
  if (state.view) requestAnimationFrame(() => go(state.view, false));
  (window.requestIdleCallback || setTimeout)(lowered);
  document.documentElement.dataset.ready = "yes";
})();
