/* SPDX-License-Identifier: Apache-2.0 */
// What is wrong: failures and known issues, each once, with the runs that show it and the runs where it passes.
const severity = (f) => el("span", { class: "nowrap" }, symbol(f.known ? "known" : f.kind === "process dies" ? "crash" : f.kind === "hangs" ? "hang" : f.kind === "raises" ? "error" : "fail"), ` ${f.kind}`);
const where = (f) => f.runs.filter(([k]) => byKey.has(k)).map(([k]) => byKey.get(k));
const short = (list, most) => list.slice(0, most).join(", ") + (list.length > most ? ` and ${list.length - most} more` : "");

// `run`: the run whose case is opened; otherwise the first that shows the finding.
function opener(f, text, run) {
  const [key, , id] = f.runs.find(([k]) => k === run?.key) || f.runs.find(([k]) => byKey.has(k)) || [];
  if (!key) return text;
  const [operation, , mode] = id.split("@")[0].split("/");
  return el("button", { type: "button", class: "link", onclick: () => openCell("", operation, mode, key, true) }, text);
}
// Runs as text: releases of one machine together, and machines of the same releases.
function placesOf(list) {
  if (!list.length) return "";
  const by = new Map();
  for (const r of list) { if (!by.has(r.machine)) by.set(r.machine, []); if (!by.get(r.machine).includes(r.release)) by.get(r.machine).push(r.release); }
  const paper = el("span", { class: "on-paper" }, [...new Set(list.map((r) => r.release))].join(", "));
  const lines_ = new Map();
  for (const [machine_, of] of by) { const releases = of.join(", "); lines_.set(releases, [...(lines_.get(releases) || []), machine_]); }
  return [...lines_].map(([releases, of]) => el("div", {}, `JAX ${releases} `, el("span", { class: "soft" }, of.join("; ")))).concat(paper);
}
// For each machine with several releases: what the newest mended and broke.
function releaseNotes() {
  const notes = [], seen = new Set();
  for (const now of judgedRuns) {
    const what = `${now.class}|${now.machine}`;
    if (seen.has(what)) continue;
    seen.add(what);
    const before = judgedRuns.find((r) => r !== now && r.class === now.class && r.machine === now.machine && r.release !== now.release);
    if (!before) continue;
    const has = (f, run) => f.runs.some(([k]) => k === run.key), right = (f, run) => f.passes.includes(run.key);
    const mended = D.wrong.filter((f) => has(f, before) && right(f, now)), broke = D.wrong.filter((f) => has(f, now) && right(f, before));
    notes.push({ now, before, mended, broke });
  }
  return notes;
}
const named_ = (list, run) => list.map((f, i) => [i ? ", " : "", el("span", {}, opener(f, short(f.operations, 3), run), ` (${f.kind})`)]);
function drawWrong() {
  const out = $("wrong-out");
  if (!judgedRuns.length) { out.replaceChildren(el("p", { class: "soft" }, "No conformance records here.")); return; }
  const fresh = D.wrong.filter((f) => !f.known), known = D.wrong.length - fresh.length;
  const status = fresh.length ? el("p", { class: "loud" }, symbol("fail"), ` ${plural(fresh.length, "failure")} that no list knows, and ${plural(known, "known issue")}.`)
    : el("p", {}, symbol(known ? "known" : "pass"), known ? ` ${plural(known, "known issue")}, and nothing else is wrong.` : " Nothing is wrong in these records.");
  const all = releaseNotes(), quiet = all.filter((n) => !n.broke.length && !n.mended.length);
  const notes = all.filter((n) => !quiet.includes(n)).map((n) => el("div", { class: "note" }, el("strong", {}, `JAX ${n.now.release}`), ` beside ${n.before.release} on ${n.now.machine}`,
    el("ul", {}, n.broke.length ? el("li", {}, el("span", { class: "bar-slow" }, `Broke ${count(n.broke.length)}: `), named_(n.broke, n.now)) : el("li", {}, "Broke nothing"),
      n.mended.length ? el("li", {}, `Mended ${count(n.mended.length)}: `, named_(n.mended, n.before)) : el("li", {}, "Mended nothing"))));
  if (quiet.length) notes.push(el("p", { class: "soft" }, `Nothing mended or broken from release to release on ${[...new Set(quiet.map((n) => n.now.machine))].join(", ")}.`));
  const box = el("div", { role: "group", "aria-label": "What releases broke and mended. Arrow keys move between the findings." }, notes);
  rest(box, pressable(box)[0]);
  moveByKeys(box, () => [...box.querySelectorAll("li")].map(pressable));
  out.replaceChildren(...[status, notes.length ? box : "", grid("wrong", "Findings, failures that are not known first, then by severity", [
    { name: "kind", text: severity, cls: "kind nowrap" },
    { name: "what", cls: "what", text: (f) => [opener(f, short(f.operations, 6)), el("span", { class: "soft" }, ` in ${short(f.modes, 7)}`), el("div", { class: "small" }, f.text), f.link ? el("div", { class: "small" }, link(f.link)) : ""], value: (f) => f.operations[0] },
    { name: "status", text: (f) => f.known ? "known" : el("span", { class: "bar-slow" }, "new"), value: (f) => f.known },
    { name: "seen in", cls: "runs-of", text: (f) => placesOf(where(f)) },
    { name: "passes in", cls: "runs-of", text: (f) => placesOf(f.passes.map((k) => byKey.get(k)).filter(Boolean)) },
    { name: "cases", num: true, text: (f) => count(f.cases), value: (f) => f.cases },
  ], D.wrong, { empty: "No case fails, and none is a known issue." }), provenance(judgedRuns)].flat(3));
}
