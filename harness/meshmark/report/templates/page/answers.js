/* SPDX-License-Identifier: Apache-2.0 */
// The landing view: the picture, and one card for each question that brings people here.
function badge(s) {
  const met = s.pass + s.known, v = s.unmet ? "fail" : s.missing ? "not_run" : s.known ? "known" : "pass";
  return el("li", { class: `v-${v}`, title: `must-pass list ${s.list}` }, `${SYMBOL[v]} ${s.level} ${count(met)}/${count(s.cases)}`, s.known ? ` · ${s.known} known` : "", s.missing ? ` · ${count(s.missing)} not judged` : "", s.unmet ? ` · ${count(s.unmet)} unmet` : "");
}
const levelsOf = (run, levels) => el("ul", { class: "badges", "aria-label": `${run.label}: levels, cases met of the must-pass list` }, levels.map(badge));
const jump = (view, text) => el("a", { href: `#view=${view}` }, text);
// The counts of a run. What fails is a link to its cases; the rest is text, which wraps as text.
function tallyNode(run) {
  const t = new Int32Array(V.length);
  run.judged.verdict.forEach((v, i) => { t[v] += amount(run, i); });
  const only = (verdict) => () => { set("runs", run.key); set("verdict", verdict); drawAll(); go("matrix", true); };
  return tally(t, casesOf(run)).split(", ").map((part, i) => [i ? ", " : "", BAD.has(part.split(" ").at(-1)) ? el("button", { type: "button", class: "link loud", onclick: only(part.split(" ").at(-1)) }, part) : part]);
}
const phone = matchMedia("(max-width: 40rem)");
const tablet = matchMedia("(max-width: 60rem)");  // too narrow for a square of each operation: one for each family
for (const width of [phone, tablet]) width.addEventListener("change", drawAnswers);
// A card is a question, its answer in one line, the few cases that say most, and what stands behind it on demand; a phone
// shows the few cases on demand too.
function answer(question, first, list, rest) {
  const few = phone.matches ? "" : list, behind = [phone.matches ? list : "", ...rest].filter((x) => x !== "");
  return el("div", { class: "card" }, el("h2", {}, question), el("p", {}, first), few, behind.length ? el("details", {}, el("summary", {}, "More"), behind) : "");
}
// Findings of the newest release first: what was mended since is less urgent.
const newestFirst = (list) => { const now = new Set(judgedRuns.filter((r) => r.release === newestRelease).map((r) => r.key)); return [...list].sort((a, b) => a.known - b.known || b.runs.some(([k]) => now.has(k)) - a.runs.some(([k]) => now.has(k))); };
const seenIn = (f) => new Set(where(f).map((r) => r.release));
const passesIn = (f) => [...new Set(f.passes.map((k) => byKey.get(k)?.release).filter((release) => release && !seenIn(f).has(release)))];
// The newest run in one sentence, and what its release mended and broke.
function drawHeadline() {
  const run = judgedRuns.find((r) => r.class !== "compiled") || judgedRuns[0];
  if (!run) return;
  const note = releaseNotes().find((n) => n.now === run), fresh = D.wrong.filter((f) => !f.known && f.runs.some(([k]) => k === run.key)), known = D.wrong.filter((f) => f.known && f.runs.some(([k]) => k === run.key));
  const on = run.class === "compiled" ? `, compiled for ${run.machine},` : ` on ${run.machine}`;
  $("headline").replaceChildren(...[el("strong", {}, `JAX ${run.release}`), on, run.met ? [" meets level ", el("strong", {}, run.met), ": "] : ": ", tallyNode(run), ". ",
    // A phone has no room for what its first card says too.
    el("span", { class: "wider" }, fresh.length ? [el("a", { href: "#view=wrong", class: "loud" }, `${plural(fresh.length, "failure")} that no list knows`), `, ${plural(known.length, "known issue")}. `] : known.length ? [el("a", { href: "#view=wrong" }, plural(known.length, "known issue")), ", nothing else is wrong. "] : "Nothing is wrong. "),
    note ? [`Beside ${note.before.release} it `, note.broke.length ? el("a", { href: "#view=wrong", class: "bar-slow" }, `broke ${count(note.broke.length)}`) : "broke nothing", note.mended.length ? [" and ", el("strong", { class: "bar-fast" }, `mended ${count(note.mended.length)}`)] : " and mended nothing", "."] : newsOf(run)].flat(3));
}
// Where that run is not of the newest release: what the newest one broke and mended, where it ran.
function newsOf(run) {
  const n = releaseNotes().find((x) => x.now.release === newestRelease && x.now !== run && x.now.class !== "compiled");
  return n ? [el("strong", {}, `JAX ${n.now.release}`), ` on ${n.now.machine} broke `, n.broke.length ? el("a", { href: "#view=wrong", class: "bar-slow" }, count(n.broke.length)) : "nothing", ` and mended ${n.mended.length ? count(n.mended.length) : "nothing"} beside ${n.before.release}.`] : "";
}
function worksCard() {
  const card = el("div"), fresh = D.wrong.filter((f) => !f.known), known = D.wrong.length - fresh.length, question = "What is wrong, and what works?";
  if (!judgedRuns.length) return answer(question, "No conformance records here.", "", []);
  const few = el("div");
  const first = [fresh.length ? [el("strong", { class: "bar-slow" }, `${plural(fresh.length, "failure")} that no list knows`), `, ${plural(known, "known issue")}. `] : known ? `${plural(known, "known issue")} over all runs, and nothing else is wrong. ` : "Nothing is wrong in any run. ", jump("wrong", "All findings")];
  if (D.wrong.length) few.append(el("ul", {}, newestFirst(D.wrong).slice(0, 2).map((f) => el("li", {}, el("strong", {}, short(f.operations, 1)), `: ${f.kind}${fresh.length && f.known ? ", known" : ""}, in JAX ${[...seenIn(f)].join(", ")}${passesIn(f).length ? `; passes in ${passesIn(f).join(", ")}` : ""}`))));
  const ran = judgedRuns.filter((r) => r.class !== "compiled");
  ran.filter((r, nth) => !nth || r.release === newestRelease).slice(0, 3).forEach((r, nth) => {
    const to = nth && !r.judged.verdict.some((v) => BAD.has(V[v])) ? card : few;  // the newest run, and what fails, stand on the card
    to.append(el("p", {}, el("strong", {}, r.label), r.expired ? [" ", el("span", { class: "tag expired" }, "expired")] : "", r.met ? `: level ${r.met} is met` : r.levels.some((s) => s.missing) ? ": no level, since not every case of the must-pass list was judged" : "", nth && !r.met ? [", ", tallyNode(r)] : ""));
    // A level that the newest run does not meet stands on the card. The others say what the sentence above says already.
    const open = nth ? [] : r.levels.filter((s) => s.unmet || s.missing), other = r.levels.filter((s) => !open.includes(s));
    if (open.length) few.append(levelsOf(r, open));
    if (other.length) card.append(to === card ? "" : el("p", {}, el("strong", {}, r.label)), levelsOf(r, other));
  });
  const computed = judgedRuns.find((r) => r.interpreted.length);
  if (computed) card.append(el("p", {}, el("strong", {}, computed.label), ", interpreted: nothing ran"), el("ul", { class: "badges", "aria-label": "Must-pass cases over all devices whose numbers pass by interpretation" }, computed.interpreted.filter((s) => s.cases).map((s) => el("li", { class: "v-interpreted" }, `${SYMBOL.interpreted} ${s.level} ${count(s.passed)}/${count(s.cases)}`, s.missing ? ` · ${count(s.missing)} not judged` : ""))));
  if (judgedRuns.length > 1) card.append(el("p", { class: "soft" }, jump("runs", `All ${judgedRuns.length} runs`)));
  return answer(question, first, few, [...card.childNodes]);
}
function modeCard() {
  const few = el("ul"), card = el("div"), question = "Which mode should I use?", newest = judgedRuns.find((r) => r.class !== "compiled" && r.devices > 1 && whole(r)) || judgedRuns.find(whole);  // one device sends nothing
  let said = ["No records here."];
  if (newest) {
    const compared = newest.judged.manual.filter((x) => x !== null).length;
    const list = excess(newest).sort((a, b) => b.times - a.times), first = list.filter((r, i) => list.findIndex((x) => x.operation === r.operation) === i);
    if (newest.devices === 1) said = ["One device sends nothing, in any mode: a run on several devices says which mode to choose."];
    else if (!compared) said = ["No automatic or explicit case stands beside a manual one."];
    else if (!first.length) said = [`In none of ${plural(compared, "case")} does auto or explicit sharding send more than manual.`];
    else {
      said = [`The compiler of JAX ${newest.release} sends more than shard_map in ${count(first.length)} of ${plural(new Set(newest.judged.case.filter((_, i) => newest.judged.manual[i] !== null).map((c) => C.operation[c])).size, "operation")}, and no more in the others. `, jump("communication", "All")];
      const finite = first.filter((r) => r.times !== Infinity), only = first.filter((r) => r.times === Infinity);
      few.append(...finite.slice(0, 2).map((r) => el("li", {}, el("strong", {}, r.operation), ` in ${r.mode}: ${upTo(r.times)}`)), only.length ? el("li", {}, el("strong", {}, short(only.map((r) => r.operation), 2)), ": bytes where shard_map sends none") : "");
    }
  }
  for (const m of [timed.find((t) => t.devices > 1) || timed[0]].filter(Boolean)) {
    const cadence = m.times.some((u) => u.cadence === "stream") ? "stream" : "isolated", of = ["auto", "explicit"].map((x) => [x, factorOf(m, x, cadence)]).filter(([, f]) => f), sure = of.filter(([, f]) => f.value !== null);
    const parted = (x) => { const r = m.times.filter((t) => t.mode === x && t.cadence === cadence && order(t)), slow = r.filter((t) => order(t) > 0).length; return r.length ? `, slower in ${slow}, faster in ${r.length - slow}` : ""; };
    // The factor of all cells stands here only with its interval.
    if (sure.length) few.append(el("li", {}, `Time over manual (${CLASS[m.class]}, ${cadence} calls): `, sure.map(([x, f], i) => [i ? "; " : "", el("strong", {}, x), ` ${factorText(f)}${parted(x)}`])));
    if (of.length) card.append(el("p", { class: "soft" }, sure.length ? `Times are of ${m.machine}, ${cadence} calls: in each process the median of ${plural(sure[0][1].cells, "cell")}, with a 95 % interval over ${sure[0][1].processes} processes. ` : `Times of ${m.machine} are of ${of[0][1].processes === 1 ? "a single run" : `${of[0][1].processes} processes`}: ${of[0][1].doubt ? "its intervals are in doubt" : "an interval takes six"}, so no factor is told. `, single(m, cadence, true), " ", jump("modes", "Side by side")));
    if (!newest && of.length) said = [jump("modes", "Times side by side")];
  }
  return answer(question, said, few.childNodes.length ? few : "", [...card.childNodes]);
}
function fastCard() {
  const card = el("div"), few = el("ul");
  let said = ["No times here."];
  for (const m of [firstForSpeed()].filter(Boolean)) {
    // Only what has an interval is told here; the rest is called a single run where it stands.
    const cadences = ["stream", "isolated"].map((cadence) => best(m, cadence)), every = cadences.find((found) => found.some((t) => width(t))) || cadences.find((found) => found.length) || [], list = every.filter((t) => width(t));
    said = list.length ? [`${list[0].operation} reaches ${share(list[0])} of its ceiling (${list[0].bound_by}): ${rate(list[0])}, ${list[0].mesh} ${list[0].dtype} ${list[0].size}, ${list[0].cadence} calls on ${m.machine}. `, list[0].share > 1 ? "That is more than the ceiling that was measured, which is then too low. " : "", jump("speed", "Charts")] : [every.length ? "The times are of fewer than six processes: no share of a ceiling has an interval. " : `${plural(m.times.length, "time")}, and no ceiling was measured or published for them. `, jump("speed", "Charts")];
    few.append(...list.slice(1, 3).map((t) => el("li", {}, el("strong", {}, t.operation), ` reaches ${share(t)} of its ceiling (${t.bound_by}): ${rate(t)}, ${t.mesh} ${t.dtype} ${t.size}`, t.share > 1 ? el("span", { class: "soft" }, " (more than the ceiling that was measured, which is then too low)") : "")));
    if (list.length) card.append(el("p", { class: "soft" }, `${m.label}. ${ABOUT_SHARES} Ceilings: ${listed([...new Set(list.slice(0, 3).map((t) => t.share_of))], 3)}.`));
  }
  card.append(el("p", { class: "soft" }, timed.some((m) => m.class === "virtual") ? "Virtual devices share the cores of one machine: their times compare modes, not hardware." : ""));
  return answer("Is it as fast as it should be?", said, few.childNodes.length ? few : "", [...card.childNodes]);
}
function drawAnswers() {
  drawHeadline();
  drawGlance();
  $("answers-cards").replaceChildren(worksCard(), modeCard(), fastCard());
  // A print has no details: it names the record files of its picture.
  const paper = el("p", { class: "on-paper soft small" }, "Records: ", places().map((r, i) => [i ? "; " : "", `JAX ${r.release} on ${r.machine}: ${r.file}, ${r.started.slice(0, 10)}, SHA-256 ${r.sha256}`]), `; ${plural(runs.length, "record file")} in all.`);
  $("answers-prov").replaceChildren(paper, provenance([...new Set([...judgedRuns, ...timed.flatMap((m) => m.timedRuns)])]));
}
