/* SPDX-License-Identifier: Apache-2.0 */
// Elements, symbols and figures as text.
// Everything shown is set as text, never as markup: records may come from anyone.
const $ = (id) => document.getElementById(id);
const D = JSON.parse($("data").textContent), S = D.strings, V = D.verdicts, PASS = V.indexOf("pass");
const SYMBOL = { pass: "✓", known: "!", unsupported: "–", not_run: "○", interpreted: "≈", fail: "✗", error: "E", hang: "∞", crash: "✱" };
const MEANING = {
  pass: "pass", known: "known issue, listed with its link", unsupported: "optional and not there",
  not_run: "compiled alone", interpreted: "numbers by interpretation of the compiled text; nothing ran", fail: "wrong result", error: "raised an error", hang: "past its deadline", crash: "the process died",
};
const BAD = new Set(["crash", "hang", "error", "fail"]);
const QUIETLY = new Set(["pass", "not_run", "interpreted"]);
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
// Where a file of Meshmark's own repository lies from this page: beside it in a checkout, and on the published site; ""
// for a page elsewhere.
function fromHere(place) {
  if (!/^(results\/findings\/[\w-]+\/report\.md|docs\/[\w-]+\.md(#[\w-]+)?)$/.test(place)) return "";
  if (/\/results\/page\/[^/]*$/.test(location.pathname)) return `../../${place}`;
  if (!/\/page\/[^/]*$/.test(location.pathname)) return "";
  return place.startsWith("docs/") ? place.replace(/^docs\/([\w-]+)\.md/, "../$1/") : place.replace(/^results/, "..");
}
const link = (place) => {
  const url = /^https:\/\/[\w.-]+(\/|$)/.test(place) ? place : fromHere(place);
  return url ? el("a", { href: url, rel: "noopener noreferrer", target: "_blank" }, place) : place;
};
// Whole numbers in groups of three, without the tables of languages, which take a while to load.
const count = (n) => Number.isInteger(n) ? String(n).replace(/\B(?=(\d{3})+$)/g, ",") : n.toLocaleString("en-US");
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
// A figure with the ends of its interval over processes, if it has one.
const between = (text, value, [low, high] = []) => text(value) + (low === undefined ? "" : ` (${text(low)}–${text(high)})`);
const spread = (m, lo, hi) => m === null ? "" : seconds(m) + (lo === null || hi === null ? "" : ` ±${Math.round(50 * (hi - lo) / m)} %`);
// The half width of a time's interval, which its rates and shares have too; "" of a single run.
const width = (t) => t.median_s && t.low_s !== null && t.high_s !== null ? ` ±${Math.round(50 * (t.high_s - t.low_s) / t.median_s)} %` : "";
const plainRate = (t) => t.busbw ? `${digits(t.busbw / 1e9)} GB/s bus` : t.flops_per_s ? (t.flops_per_s >= 1e12 ? `${digits(t.flops_per_s / 1e12)} TFLOP/s` : `${digits(t.flops_per_s / 1e9)} GFLOP/s`) : t.algbw ? `${digits(t.algbw / 1e9)} GB/s` : "";
const rate = (t) => { const x = plainRate(t); return x && x + width(t); };
// A share of a peak that a time makes, with the ends that the time's interval gives it.
const shared = (x, t) => x === null || x === undefined ? "" : percent(x) + (width(t) ? ` (${digits(100 * x * t.median_s / t.high_s)}–${digits(100 * x * t.median_s / t.low_s)})` : "");
const share = (t) => shared(t.share, t);
const over = (x) => x.processes === 1 ? "one process" : `${x.processes} processes`;
const percent = (x) => x === null || x === undefined ? "" : `${digits(100 * x)} %`;
// Orders of texts and of releases, without the tables of languages.
const byText = (a, b) => a < b ? -1 : a > b ? 1 : 0;
const numbersOf = (release) => (release.match(/\d+/g) || []).map(Number);
function byRelease(a, b) { const x = numbersOf(a), y = numbersOf(b); for (let i = 0; i < Math.max(x.length, y.length); i++) if ((x[i] ?? -1) !== (y[i] ?? -1)) return (x[i] ?? -1) - (y[i] ?? -1); return byText(a, b); }
const median = (xs) => { const s = [...xs].sort((a, b) => a - b), m = s.length >> 1; return s.length ? (s.length % 2 ? s[m] : (s[m - 1] + s[m]) / 2) : null; };
