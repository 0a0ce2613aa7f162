/* SPDX-License-Identifier: Apache-2.0 */
// The landing view: the picture, and one card for each question that brings people here.
function badge(s) {
  const met = s.pass + s.known, v = s.unmet ? "fail" : s.missing ? "not_run" : s.known ? "known" : "pass";
  return el("li", { class: `v-${v}`, title: `must-pass list ${s.list}` }, `${SYMBOL[v]} ${s.level} ${count(met)}/${count(s.cases)}`, s.known ? ` · ${s.known} known` : "", s.missing ? ` · ${count(s.missing)} not judged` : "", s.unmet ? ` · ${count(s.unmet)} unmet` : "");
}
const jump = (view, text) => el("a", { href: `#view=${view}` }, text);
function tallyNode(run) {
  const t = new Int32Array(V.length);
  for (const v of run.judged.verdict) t[v]++;
  const bad = V.filter((v) => BAD.has(v)).reduce((n, v) => n + t[V.indexOf(v)], 0), text = tally(t, run.judged.case.length);
  return bad ? el("button", { type: "button", class: "link loud", onclick: () => { set("runs", run.key); set("verdict", "bad"); drawAll(); go("matrix", true); } }, text) : text;
}
function worksCard() {
  const card = el("div", { class: "card" }, el("h2", {}, "What is wrong, and what works?"));
  const fresh = D.wrong.filter((f) => !f.known);
  if (judgedRuns.length) card.append(el("p", {}, fresh.length ? el("strong", { class: "bar-slow" }, `${plural(fresh.length, "finding")} not known before`) : "No failure that is not known", `, ${plural(D.wrong.length - fresh.length, "known issue")}. `, jump("wrong", "List")));
  if (D.wrong.length) card.append(el("ul", {}, D.wrong.slice(0, 3).map((f) => el("li", {}, el("strong", {}, short(f.operations, 2)), `: ${f.kind}${f.known ? ", known" : ""}, in JAX ${[...new Set(where(f).map((r) => r.release))].join(", ")}${f.passes.length ? `; passes in ${[...new Set(f.passes.map((k) => byKey.get(k)?.release).filter(Boolean))].join(", ")}` : ""}`))));
  const ran = judgedRuns.filter((r) => r.class !== "compiled");
  for (const r of ran.filter((r) => r.release === ran[0].release).slice(0, 2)) {
    card.append(el("h3", {}, r.label, r.expired ? [" ", el("span", { class: "tag expired" }, "expired")] : ""));
    if (r.levels.length) card.append(el("ul", { class: "badges", "aria-label": "Levels, cases met of the must-pass list" }, r.levels.map(badge)));
    card.append(el("p", { class: "soft" }, tallyNode(r), r.met ? `. Level ${r.met} is met.` : r.levels.some((s) => s.missing) ? ". No level: not every case of the must-pass list was judged." : "."));
  }
  const computed = judgedRuns.find((r) => r.interpreted.length);
  if (computed) card.append(el("h3", {}, `${computed.label}, interpreted: nothing ran`), el("ul", { class: "badges", "aria-label": "Must-pass cases over all devices whose numbers pass by interpretation" }, computed.interpreted.filter((s) => s.cases).map((s) => el("li", { class: "v-interpreted" }, `${SYMBOL.interpreted} ${s.level} ${count(s.passed)}/${count(s.cases)}`, s.missing ? ` · ${count(s.missing)} not judged` : ""))));
  if (judgedRuns.length > 1) card.append(el("p", { class: "soft" }, jump("runs", `All ${judgedRuns.length} runs`)));
  if (!judgedRuns.length) card.append(el("p", { class: "soft" }, "No conformance records here."));
  return card;
}
function modeCard() {
  const card = el("div", { class: "card" }, el("h2", {}, "Which mode should I use?")), newest = judgedRuns.find((r) => r.class !== "compiled") || judgedRuns[0];
  if (newest) {
    const compared = newest.judged.manual.filter((x) => x !== null).length;
    const list = excess(newest).sort((a, b) => b.times - a.times), first = list.filter((r, i) => list.findIndex((x) => x.operation === r.operation) === i);
    card.append(el("h3", {}, "Bytes sent, as compiled"));
    if (!compared) card.append(el("p", { class: "soft" }, "No automatic or explicit case stands beside a manual one."));
    else if (!first.length) card.append(el("p", {}, `In none of ${plural(compared, "case")} does auto or explicit sharding send more than manual.`));
    else card.append(el("p", {}, `Automatic or explicit sharding sends more than shard_map in ${plural(first.length, "operation")}: ${first.slice(0, 4).map((r) => `${r.operation} (${r.times === Infinity ? "shard_map sends none" : `up to ${digits(r.times)}×`})`).join(", ")}. `, jump("communication", "All")));
    card.append(el("p", { class: "soft" }, newest.label + "."));
  }
  for (const m of timed.slice(0, 1)) {
    const lines = [];
    for (const x of ["auto", "explicit"]) {
      const cadence = m.times.some((u) => u.cadence === "stream") ? "stream" : "isolated";
      const r = m.times.filter((t) => t.mode === x && t.ratio !== null && t.cadence === cadence);
      if (!r.length) continue;
      const resolved = r.filter((t) => order(t)), slow = resolved.filter((t) => order(t) > 0).length;
      lines.push(el("li", {}, el("strong", {}, x), ` takes ${median(r.map((t) => t.ratio)).toFixed(2)} times as long as manual (median of ${plural(r.length, "cell")})`, resolved.length ? `: slower in ${slow}, faster in ${resolved.length - slow}` : "; no single cell is resolved"));
    }
    if (lines.length) card.append(el("h3", {}, `Time, ${m.label}`), el("ul", {}, lines), el("p", { class: "soft" }, single(m), " ", jump("modes", "Side by side")));
  }
  if (!newest && !timed.length) card.append(el("p", { class: "soft" }, "No records here."));
  return card;
}
function fastCard() {
  const card = el("div", { class: "card" }, el("h2", {}, "Is it as fast as it should be?"));
  for (const m of timed.slice(0, 1)) {
    const list = best(m);
    card.append(el("h3", {}, m.label));
    if (list.length) card.append(el("ul", {}, list.slice(0, 3).map((t) => el("li", {}, el("strong", {}, t.operation), ` reaches ${rate(t)}, ${percent(t.share)} of its ceiling (${t.bound_by})`, t.share > 1 ? el("span", { class: "soft" }, " (more than the ceiling that was measured, which is then too low)") : ""))), el("p", { class: "soft" }, `Ceilings: ${short([...new Set(list.slice(0, 3).map((t) => t.share_of))], 3)}. `, jump("speed", "Charts")));
    else card.append(el("p", { class: "soft" }, `${plural(m.times.length, "time")}, and no ceiling was measured or published for them. `, jump("speed", "Charts")));
  }
  card.append(el("p", { class: "soft" }, timed.some((m) => m.class === "virtual") ? "Virtual devices share the cores of one machine: their times compare modes, not hardware." : timed.length ? "" : "No times here."));
  return card;
}
function drawAnswers() {
  drawGlance();
  $("answers-cards").replaceChildren(worksCard(), modeCard(), fastCard());
  $("answers-prov").replaceChildren(provenance([...new Set([...judgedRuns, ...timed.flatMap((m) => m.timedRuns)])]));
}
