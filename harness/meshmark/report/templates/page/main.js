/* SPDX-License-Identifier: Apache-2.0 */
// Controls, links, and the first drawing of all parts.
function distinct(column, order) { const seen = [...new Set(column)].map((i) => S[i]); return order ? seen.sort(order) : seen.sort(); }
function controls() {
  const all = (text) => ["", text];
  $("f-q").value = state.q;
  options($("f-level"), [all("all levels"), ...distinct(C.level).map((l) => [l, LEVELS[l] || l])], state.level);
  options($("f-mode"), [all("all modes"), ...modesSeen.map((m) => [m, m])], state.mode);
  options($("f-dtype"), [all("all dtypes"), ...distinct(C.dtype).map((d) => [d, d])], state.dtype);
  options($("f-mesh"), [all("all meshes"), ...distinct(C.mesh, (a, b) => a.length - b.length || byText(a, b)).map((d) => [d, d])], state.mesh);
  options($("f-verdict"), [all("all verdicts"), ["notpass", "all but pass"], ["bad", "any failure"], ...[...V].reverse().map((v) => [v, v])], state.verdict);
  const shown = shownRuns();
  const chip = (r) => el("label", {}, el("input", { type: "checkbox", value: r.key, checked: shown.includes(r), onchange: () => {
    const keys = [...$("run-chips").querySelectorAll("input:checked")].map((i) => i.value);
    set("runs", keys.join(".")); if (!keys.length) controls(); drawMatrix(); changed("matrix-prov", "communication-out", "advice-out");
  } }), r.label);
  const [ran, compiled] = [judgedRuns.filter((r) => r.class !== "compiled"), judgedRuns.filter((r) => r.class === "compiled")];
  $("run-chips").replaceChildren(el("legend", {}, "Runs shown"), ...ran.map(chip), compiled.length && ran.length ? el("details", { class: "more-runs", open: compiled.some((r) => shown.includes(r)) }, el("summary", {}, `compiled for ${plural(compiled.length, "machine")} that ${compiled.length === 1 ? "was" : "were"} not there`), compiled.map(chip)) : el("span", {}, compiled.map(chip)));
  rest($("matrix-tools"), tool && tool.isConnected ? tool : $("f-q"));
}
// The runs and the filters are one tab stop, the search at first; down from the filters is the matrix.
let tool = null;
$("matrix-tools").addEventListener("focusin", (e) => { tool = e.target; });
moveByKeys($("matrix-tools"), () => [pressable($("run-chips")), pressable($("filters")), stop ? [stop] : []], (list, r) => [list[r]]);
function filtered() { drawMatrix(); clearTimeout(timer); timer = setTimeout(() => { writeHash(); changed(...FILTERED); }, 120); }  // the address and what is below follow
let timer = 0;
const FILTERED = ["modes-out", "communication-out", "side-table", "changes-out", "compared-out"];
for (const [id, draw] of [
  ["wrong-out", drawWrong], ["matrix-box", drawMatrix], ["matrix-prov", () => $("matrix-prov").replaceChildren(elsewhere(shownRuns(), "matrix"), provenance(shownRuns()))], ["advice-out", drawAdvice], ["modes-out", drawModes], ["communication-out", drawCommunication], ["speed-note", drawSpeed], ["side-table", drawSide],
  ["time-out", drawOverTime], ["weather-out", drawWeather], ["growth-out", drawGrowth], ["others-out", drawOthers], ["changes-out", drawChanges], ["compared-out", drawComparisons], ["runs-out", drawRuns],
]) part(id, draw);
function drawAll() { chooseMachine(); controls(); drawMatrix(); changed(); showCell(); }
function go(view, focus) {
  let target = $(view);
  if (!target && !view.startsWith("run-")) return;
  drawUpTo(target || $("runs"));
  target = $(view);
  if (!target) return;
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView({ block: "start" });
  if (focus) (target.tagName === "DETAILS" ? target.querySelector("summary") : target).focus({ preventScroll: true });
}

// A page that `meshmark serve` gives out while its files grow: loading it again keeps the address, the place, and what was
// typed until the new page replaces the old one, which on a busy machine is long after the old one asked for it.
const again = Number(document.querySelector("meta[name=load-again]")?.content), TYPED = "meshmark-load-again";
function loadAgain() {
  addEventListener("pagehide", () => { writeHash(); try { sessionStorage.setItem(TYPED, location.hash || "#"); } catch { /* no storage: the address alone is kept */ } });
  location.reload();
}
function takeTyped() {
  try {
    const typed = sessionStorage.getItem(TYPED);
    sessionStorage.removeItem(TYPED);
    if (typed) history.replaceState(null, "", typed);
  } catch { /* no storage */ }
}
if (again > 0) takeTyped();
readHash();
state.q ||= $("f-q").value.slice(0, 500);  // typed while this page still came in
// The verdicts that occur here, and pass.
const occur = new Set(judgedRuns.flatMap((r) => [...new Set(r.judged.verdict)]));
$("legend").replaceChildren(...[...V].reverse().filter((v) => v === "pass" || occur.has(V.indexOf(v))).map((v) => el("li", {}, symbol(v), ` ${v === MEANING[v] ? v : `${v === "not_run" ? "not run" : v}: ${MEANING[v]}`}`)));
for (const [id, key] of [["f-level", "level"], ["f-mode", "mode"], ["f-dtype", "dtype"], ["f-mesh", "mesh"], ["f-verdict", "verdict"]]) $(id).addEventListener("change", (e) => { state[key] = e.target.value; filtered(); });
$("f-q").addEventListener("input", (e) => { state.q = e.target.value.slice(0, 500); filtered(); });
$("filters").addEventListener("submit", (e) => e.preventDefault());
$("filters").addEventListener("reset", () => { for (const k of ["q", "level", "mode", "dtype", "mesh", "verdict"]) state[k] = ""; writeHash(); setTimeout(() => { controls(); filtered(); }); });
for (const [id, key] of [["c-old", "old"], ["c-new", "new"], ["c-what", "what"]]) $(id).addEventListener("change", (e) => { set(key, e.target.value); drawChanges(); });
for (const [id, key] of [["m-machine", "machine"], ["m-cadence", "cadence"]]) $(id).addEventListener("change", (e) => { set(key, e.target.value); chooseMachine(); drawAdvice(); drawModes(); changed("speed-note", "side-table"); });
for (const [id, key] of [["s-machine", "smachine"], ["s-cadence", "scadence"]]) $(id).addEventListener("change", (e) => { set(key, e.target.value); chooseMachine(); drawSpeed(); changed("side-table"); });
$("m-mode").addEventListener("change", (e) => { set("hmode", e.target.value); drawModes(); });
for (const [id, key] of [["t-machine", "tmachine"], ["t-place", "tplace"]]) $(id).addEventListener("change", (e) => { set(key, e.target.value); drawOverTime(); });
for (const [id, key] of [["w-place", "wplace"], ["w-step", "wstep"]]) $(id).addEventListener("change", (e) => { set(key, e.target.value); drawWeather(); });
$("g-op").addEventListener("change", (e) => { set("gop", e.target.value); drawGrowth(); });
for (const [id, key] of [["s-op", "op"], ["s-mode", "smode"], ["s-mesh", "smesh"], ["s-y", "sy"]]) $(id).addEventListener("change", (e) => { set(key, e.target.value); drawSpeed(); });
$("s-class").addEventListener("change", (e) => { set("class", e.target.value); drawSide(); });
document.addEventListener("click", (e) => {
  const a = e.target.closest("a[href^='#']");
  if (!a) return;
  e.preventDefault();
  const fragment = a.getAttribute("href").slice(1), view = new URLSearchParams(fragment).get("view") || fragment;
  if ($("detail").open) $("detail").close();
  step_("view", view); go(view, true);
});
$("detail-close").addEventListener("click", () => $("detail").close());
$("detail").addEventListener("close", () => { set("cell", ""); });
$("detail").addEventListener("click", (e) => { if (e.target === $("detail")) $("detail").close(); });
addEventListener("hashchange", () => {
  const was = { ...state };
  readHash();
  const now = KEYS.filter((k) => state[k] !== was[k]);
  if (now.some((k) => k !== "cell" && k !== "view")) drawAll(); else showCell();
  if (state.view && now.includes("view")) go(state.view, false);
});
let kept = ""; try { kept = localStorage.getItem("meshmark-theme") || ""; } catch { kept = ""; }
function theme(t) { if (t) document.documentElement.dataset.theme = t; else delete document.documentElement.dataset.theme; $("theme").value = t; }
theme(["light", "dark"].includes(kept) ? kept : "");
$("theme").addEventListener("change", (e) => { theme(e.target.value); try { localStorage.setItem("meshmark-theme", e.target.value); } catch { /* a file without storage */ } changed("speed-note"); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changed("speed-note"));

if (again > 0) setTimeout(loadAgain, 1000 * again);
drawPages(); drawAnswers(); chooseMachine(); controls(); showCell();
document.documentElement.dataset.shown = "yes";  // the first view
for (const id of ["bw-chart", "scale-chart", "share-chart", "roof-chart"]) watcher.observe($(id));
if (state.view) requestAnimationFrame(() => go(state.view, false));
soon();
whenIdle(lowered);
