/* SPDX-License-Identifier: Apache-2.0 */
// One cell: its cases, their reasons, programs and commands.
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
// A text with its `code` as code.
const marked = (text) => text.split("`").map((x, i) => i % 2 ? el("code", {}, x) : x);
const SPELLS = { "manual-novma": "manual", pmap: "manual", pjit: "auto" };
// `keys`: one or more runs, joined by "."; a link from outside the matrix shows every case, whatever the filters say.
function openCell(level, operation, mode, keys, everything) { step_("cell", [level, operation, mode, keys, ...(everything ? ["all"] : [])].join("~")); showCell(); }
function showCell() {
  const dialog = $("detail"), [level, operation, mode, keys = "", everything] = state.cell.split("~");
  const shown = keys.split(".").map((k) => byKey.get(k)).filter((r) => r && r.judged);
  if (!state.cell || !shown.length) { if (dialog.open) dialog.close(); return; }
  const m = matcher(), wanted = want(), found = [], tallied = new Int32Array(V.length);
  for (const run of shown.filter(whole)) {
    const j = run.judged;
    for (let i = 0; i < j.case.length; i++) {
      const c = j.case[i];
      if (S[C.operation[c]] !== operation || S[C.mode[c]] !== mode || level && S[C.level[c]] !== level) continue;
      if (everything || wanted[j.verdict[i]] && passes(m, c, j.reason[i])) { found.push({ run, i, v: j.verdict[i] }); tallied[j.verdict[i]]++; }
    }
  }
  found.sort((a, b) => a.v - b.v);
  $("detail-h").textContent = [operation, mode, level].filter(Boolean).join(" · ");
  const program = D.programs[`${operation}/${SPELLS[mode] || mode}`];
  const list = el("div"), more = el("button", { type: "button", class: "more", onclick: () => add() });
  let at = 0;
  const computed = tallied[V.indexOf("interpreted")];
  function add() {
    for (const { run, i } of found.slice(at, at + 40)) list.append(oneCase(run, i, shown.length > 1));
    at += 40; more.hidden = at >= found.length; more.textContent = `Show more (${count(Math.min(at, found.length))} of ${count(found.length)})`;
  }
  add();
  const away = elsewhere(shown, "", operation);
  if (away && !shown.some(whole)) { $("detail-body").replaceChildren(...shown.map((run) => el("p", {}, run.label, " ", el("span", { class: `tag ${run.class}` }, CLASS[run.class]))), away); if (!dialog.open) dialog.showModal(); return; }
  $("detail-body").replaceChildren(...[shown.map((run) => el("p", {}, run.label, " ", el("span", { class: `tag ${run.class}` }, CLASS[run.class]))), el("p", {}, `${plural(found.length, "case")}: ${tally(tallied, found.length)}.`, filtering() && !everything ? " The filters of the page apply." : ""),
    computed ? el("p", {}, symbol("interpreted"), ` ${computed === found.length ? "Nothing ran here" : `${plural(computed, "case")} did not run`}: the compiled text was interpreted for all devices at once, and its numbers pass. That says nothing of the hardware.`) : "",
    info.get(operation) ? el("p", { class: "soft" }, marked(info.get(operation).about)) : "",
    program ? el("details", {}, el("summary", {}, `The program${SPELLS[mode] ? `: ${mode} runs the spelling of ${SPELLS[mode]}` : ""}`), code(program)) : "",
    el("h3", {}, "Cases, the worst first"), list, more, away, provenance(shown)].flat().filter((x) => x !== ""));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}
function oneCase(run, i, several) {
  const j = run.judged, c = j.case[i], v = V[j.verdict[i]], reason = S[j.reason[i]], body = el("div");
  const made = el("details", { class: "case", ontoggle: () => {
    if (!made.open || body.childNodes.length) return;
    const script = run.processes > 1 ? null : D.scripts[ids[c]];
    body.append(...[
      reason ? el("p", {}, el("strong", {}, S[j.check[i]] ? `${S[j.check[i]]}: ` : ""), reason) : "",
      S[j.link[i]] ? el("p", {}, link(S[j.link[i]])) : "",
      el("p", { class: "soft" }, [S[j.kinds[i]] ? `compiled to ${S[j.kinds[i]]}` : "", j.wire[i] !== null ? `${count(j.wire[i])} bytes sent by a device` : "", j.manual[i] !== null && j.wire[i] > j.manual[i] ? `${count(j.wire[i] - j.manual[i])} more than manual mode compiles to` : "", j.used[i] !== null ? `${run.class === "compiled" ? "interpreted error" : "error"} is ${percent(j.used[i])} of its bound` : ""].filter(Boolean).join(" · ")),
      el("p", { class: "small" }, "To repeat it:"), ...commands(c, run).flatMap((t) => code(t, true)),
      script ? el("details", {}, el("summary", {}, "Stand-alone script (jax and numpy alone)"), code(script)) : "",
    ].filter((x) => x !== ""));
  } }, el("summary", {}, verdict(v), " ", el("span", { class: "mono" }, ids[c]), several ? el("span", { class: "soft small" }, ` JAX ${run.release}${run.processes > 1 ? `, ${run.processes} processes` : ""}`) : "", reason && v !== "pass" ? el("span", { class: "soft small" }, ` ${reason.slice(0, 140)}`) : ""), body);
  return made;
}
