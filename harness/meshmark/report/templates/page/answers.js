/* SPDX-License-Identifier: Apache-2.0 */
// Answers.
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
