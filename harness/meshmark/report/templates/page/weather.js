/* SPDX-License-Identifier: Apache-2.0 */
// The weather: counters of compiled programs, release by release, and what each step changed.
function drawWeather() {
  const out = $("weather-out");
  if (!W) { for (const id of ["w-place", "w-step"]) options($(id), [["", "none"]], ""); out.replaceChildren(el("p", { class: "soft" }, "No records of meshmark weather here.")); return; }
  const names = new Map(W.counters), chosen = options($("w-place"), W.places.map((p) => [p.name, p.name]), state.wplace), one = W.places.find((p) => p.name === chosen);
  const label = (s) => `${W.releases[s.from].label} to ${W.releases[s.to].label}`;
  const steps = one.steps.map((s, i) => [String(i), `${label(s)}: ${s.changed ? `${plural(s.programs, "program")} changed` : "no change"}`]).reverse();
  const newest = one.steps.map((s, i) => s.changed ? String(i) : "").filter(Boolean).pop();  // the newest step that changed something
  const at = options($("w-step"), steps.length ? steps : [["", "one release alone"]], state.wstep || newest), step = one.steps[Number(at)];
  const parts = [el("p", {}, `Sums over the ${plural(one.programs, "program")} that every release compiled, of one device.`)];
  for (const [c, n] of Object.entries(one.without)) parts.push(el("p", { class: "soft" }, `The sum of the ${names.get(c).replace(/, (bytes|s)$/, "")} leaves out ${plural(n, "program")}: some release does not give it.`));
  if (W.releases.length > 1) parts.push(el("p", { class: "soft" }, jump("time", "Over time"), " draws them on one axis with the verdicts and times of the releases."));
  parts.push(grid("weather", `Releases, compiled for ${one.name}`, [{ name: "release", text: (i) => W.releases[i].label, cls: "nowrap" },
    ...W.counters.map(([c]) => c).filter((c) => one.sums[c]).map((c) => ({ name: names.get(c).replace(", bytes", "").replace(", s", ""), num: true, text: (i) => counted(c, one.sums[c][i]) })), { name: "suite", text: (i) => W.releases[i].suite, cls: "nowrap" }], W.releases.map((_, i) => i), { sortable: false }));
  if (step && (step.broken.length || step.mended.length)) parts.push(el("ul", {}, [["no longer compiles", step.broken], ["compiles now", step.mended]].flatMap(([what, list]) => list.map((c) => el("li", {}, el("span", { class: "mono" }, c), ` ${what}`)))));
  if (step && step.changed > step.changes.length) parts.push(el("p", { class: "soft" }, `The ${count(step.changes.length)} largest of ${plural(step.changed, "change")}.`));
  if (step) parts.push(grid("weatherchanges", `What changed, ${label(step)}, on ${one.name}`, [
    { name: "program", text: (r) => el("span", { class: "mono" }, r[0]), value: (r) => r[0], cls: "id" },
    { name: "counter", text: (r) => W.counters[r[1]][1], value: (r) => r[1] },
    { name: "before", num: true, text: (r) => counted(W.counters[r[1]][0], r[2]), value: (r) => r[2] }, { name: "after", num: true, text: (r) => counted(W.counters[r[1]][0], r[3]), value: (r) => r[3] },
    { name: "times", num: true, text: (r) => r[2] ? digits(r[3] / r[2]) : "", value: (r) => r[2] ? r[3] / r[2] : null },
  ], step.changes, { empty: "No counter of any program changed." }));
  out.replaceChildren(...parts.flat(3), filesOf("schedule"));
}
