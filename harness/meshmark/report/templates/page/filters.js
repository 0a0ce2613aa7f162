/* SPDX-License-Identifier: Apache-2.0 */
// Filters.
let small = null, lower = null;  // strings and ids in lower case, made at the first search
const lowered = () => { small ||= S.map((s) => s.toLowerCase()); lower ||= ids.map((s) => s.toLowerCase()); };
function matcher() {
  const ok = new Uint8Array(N).fill(1);
  for (const [name, column] of [["level", C.level], ["mode", C.mode], ["dtype", C.dtype], ["mesh", C.mesh]]) {
    if (!state[name]) continue;
    const want = S.indexOf(state[name]);
    for (let i = 0; i < N; i++) if (column[i] !== want) ok[i] = 0;
  }
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return { ok, reason: null };
  lowered();
  // A case is found by its id; a judged row also by its reason. Bits say which words an id or a text has.
  const all = 2 ** Math.min(words.length, 20) - 1, mask = new Int32Array(N), texts = new Int32Array(S.length);
  words.slice(0, 20).forEach((w, b) => {
    for (let i = 0; i < N; i++) if (lower[i].includes(w)) mask[i] |= 1 << b;
    for (let i = 0; i < S.length; i++) if (small[i].includes(w)) texts[i] |= 1 << b;
  });
  return { ok, mask, texts, all };
}
const passes = (m, c, reason) => m.ok[c] && (!m.mask || ((m.mask[c] | m.texts[reason]) & m.all) === m.all);
