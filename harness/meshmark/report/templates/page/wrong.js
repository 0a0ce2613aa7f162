/* SPDX-License-Identifier: Apache-2.0 */
// What is wrong: failures and known issues, each once, with the runs that show it and the runs where it passes.
const severity = (f) => el("span", { class: "nowrap" }, symbol(f.known ? "known" : f.kind === "process dies" ? "crash" : f.kind === "hangs" ? "hang" : f.kind === "raises" ? "error" : "fail"), ` ${f.kind}`);
const where = (f) => f.runs.filter(([k]) => byKey.has(k)).map(([k]) => byKey.get(k));
const short = (list, most) => list.slice(0, most).join(", ") + (list.length > most ? ` and ${list.length - most} more` : "");

function opener(f, text) {
  const [key, , id] = f.runs.find(([k]) => byKey.has(k)) || [];
  if (!key) return text;
  const [operation, , mode] = id.split("@")[0].split("/");
  return el("button", { type: "button", class: "link", onclick: () => openCell("", operation, mode, key, true) }, text);
}
// Runs as text: releases of one machine together.
function placesOf(list) {
  const by = new Map();
  for (const r of list) { if (!by.has(r.machine)) by.set(r.machine, []); if (!by.get(r.machine).includes(r.release)) by.get(r.machine).push(r.release); }
  const paper = el("span", { class: "on-paper" }, [...new Set(list.map((r) => r.release))].join(", "));
  return [...by].map(([machine_, of]) => el("div", {}, `JAX ${of.join(", ")} `, el("span", { class: "soft" }, machine_))).concat(paper);
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
const names = (list) => list.map((f) => `${short(f.operations, 3)} (${f.kind})`).join("; ");
function drawWrong() {
  const out = $("wrong-out");
  if (!judgedRuns.length) { out.replaceChildren(el("p", { class: "soft" }, "No conformance records here.")); return; }
  const fresh = D.wrong.filter((f) => !f.known), known = D.wrong.length - fresh.length;
  const status = fresh.length ? el("p", { class: "loud" }, symbol("fail"), ` ${plural(fresh.length, "failure")} that no list knows, and ${plural(known, "known issue")}.`)
    : el("p", {}, symbol(known ? "known" : "pass"), known ? ` ${plural(known, "known issue")}, and nothing else is wrong.` : " Nothing is wrong in these records.");
  const all = releaseNotes(), quiet = all.filter((n) => !n.broke.length && !n.mended.length);
  const notes = all.filter((n) => !quiet.includes(n)).map((n) => el("p", {}, el("strong", {}, `JAX ${n.now.release}`), ` beside ${n.before.release} on ${n.now.machine}: `,
    n.broke.length ? el("span", { class: "bar-slow" }, `broke ${names(n.broke)}. `) : "broke nothing. ",
    n.mended.length ? el("span", { class: "bar-fast" }, `Mended ${names(n.mended)}.`) : "Mended nothing."));
  if (quiet.length) notes.push(el("p", { class: "soft" }, `Nothing mended or broken from release to release on ${[...new Set(quiet.map((n) => n.now.machine))].join(", ")}.`));
  out.replaceChildren(...[status, notes, grid("wrong", "Findings, failures that are not known first, then by severity", [
    { name: "kind", text: severity, cls: "kind nowrap" },
    { name: "what", cls: "what", text: (f) => [opener(f, short(f.operations, 6)), el("span", { class: "soft" }, ` in ${short(f.modes, 7)}`), el("div", { class: "small" }, f.text), f.link ? el("div", { class: "small" }, link(f.link)) : ""], value: (f) => f.operations[0] },
    { name: "status", text: (f) => f.known ? "known" : el("span", { class: "bar-slow" }, "new"), value: (f) => f.known },
    { name: "seen in", cls: "runs-of", text: (f) => placesOf(where(f)) },
    { name: "passes in", cls: "runs-of", text: (f) => placesOf(f.passes.map((k) => byKey.get(k)).filter(Boolean)) },
    { name: "cases", num: true, text: (f) => count(f.cases), value: (f) => f.cases },
  ], D.wrong, { empty: "No case fails, and none is a known issue." }), provenance(judgedRuns)].flat(3));
}
