/* SPDX-License-Identifier: Apache-2.0 */
// The view, kept in the address.
const KEYS = ["q", "level", "mode", "dtype", "mesh", "verdict", "runs", "cell", "old", "new", "what", "machine", "cadence", "smachine", "scadence", "op", "smode", "smesh", "sy", "class", "sort", "hmode", "tmachine", "tplace", "wplace", "wstep", "gop", "view"];
const state = {};
function readHash() {
  for (const k of KEYS) state[k] = "";
  if (/^#[\w-]+$/.test(location.hash)) state.view = location.hash.slice(1);  // #speed is #view=speed
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
// A step that the back key undoes: another section, or the cases of a cell.
const step_ = (k, v) => { if (state[k] !== v) history.pushState(null, "", location.href); set(k, v); };
function options(select, values, chosen) {
  select.replaceChildren(...values.map(([v, text]) => el("option", { value: v }, text)));
  select.value = values.some(([v]) => v === chosen) ? chosen : values.length ? values[0][0] : "";
  return select.value;
}
