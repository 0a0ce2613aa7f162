/* SPDX-License-Identifier: Apache-2.0 */
// JAX beside torch and MPI: times by size, and the ratio of pairs of rounds, each with the middle half of the rounds.
function drawOthers() {
  const all = D.beside.others, out = $("others-out");
  if (!all.length) { out.replaceChildren(el("p", { class: "soft" }, "No records of python -m benchmarks.others here.")); return; }
  const time = (t) => t ? [seconds(t[0]), t[1] === null || t[2] === null ? "" : el("div", { class: "soft small" }, `${seconds(t[1])} to ${seconds(t[2])}`)] : "";
  const ratio = (t) => t ? [el("strong", {}, digits(t[0])), t[1] === null || t[2] === null ? "" : el("div", { class: "soft small" }, `${digits(t[1])} to ${digits(t[2])}`)] : "";
  const size = (n) => n >= 1 << 20 ? `${n / (1 << 20)} MiB` : n >= 1024 ? `${n / 1024} KiB` : `${n} B`;
  out.replaceChildren(...all.flatMap((o, i) => {
    const names = o.names;
    return [el("p", {}, `${count(o.processes)} processes on ${o.cores === null ? "one machine" : plural(o.cores, "core")} (${o.machine}), one launch with JAX ${/\bjax ([\d.]+)/.exec(o.versions.jax || "")?.[1] || "of an unknown release"}, ${o.started}.`),
      grid(`others${i}`, "Time of a call, and JAX over each of the others", [
        { name: "operation", text: (r) => r.operation, value: (r) => r.operation, cls: "nowrap" }, { name: "S", num: true, text: (r) => size(r.bytes), value: (r) => r.bytes },
        ...names.map((n) => ({ name: o.labels[n], num: true, text: (r) => time(r.times[n]), value: (r) => r.times[n]?.[0] ?? null })),
        ...names.filter((n) => n !== "jax").map((n) => ({ name: `JAX over ${o.labels[n]}`, num: true, text: (r) => ratio(r.ratios[n]), value: (r) => r.ratios[n]?.[0] ?? null })),
      ], o.rows), el("details", { class: "prov" }, el("summary", {}, "Versions"), el("ul", {}, Object.entries(o.versions).map(([n, v]) => el("li", {}, `${o.labels[n]}: ${v}`))))];
  }).flat(3), filesOf("others"));
}
