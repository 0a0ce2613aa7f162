# SPDX-License-Identifier: Apache-2.0
"""Reports a comparison: a table of verdicts, the compiled counters, and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from meshmark.core import pairs
from meshmark.core.pairs import Outcome
from meshmark.core.text import text_table
from meshmark.timing import bench, compare, file_comparison
from meshmark.timing.compare import Comparison, Difference

VERDICTS = ("slower", "faster", "inconclusive", "no change")
"""The verdicts in the order of the table."""

MOST_DIFFERENCES = 40
"""The number of lines of counters that the terminal shows."""


@dataclass
class Findings:
    """The findings of a comparison."""

    outcomes: Mapping[str, Outcome]
    """By case and cadence."""
    left_out: Mapping[str, str]
    """Why a case and cadence was not compared."""
    differences: Sequence[Difference]
    """Compiled counters that differ."""
    counted: int
    """Programs whose counters both sides have."""
    heading: Sequence[str]
    """One line per side that describes it."""
    what: str
    """The kind of samples: pairs or processes."""
    facts: Mapping[str, Mapping[str, Any]]
    notes: list[str] = field(default_factory=list)
    same: tuple[int, int] | None = None
    """Of real A/A pairs: cases flagged, cases judged; None for files, which have no pairs."""

    @classmethod
    def of(
        cls,
        comparison: Comparison,
        facts: Mapping[str, Mapping[str, Any]],
        heading: Sequence[str],
        differences: Sequence[Difference],
    ) -> Findings:
        """The findings of a comparison of environments; `heading` and `facts` describe its sides."""
        notes = [f"it ended since {comparison.ended}", *comparison.sporadic()]
        noisy = [s for s in comparison.noise if s > bench.NOISY_SPREAD]
        if noisy:
            notes.append(
                f"a noisy machine: in {len(noisy)} of {len(comparison.noise)} processes a fixed piece of work varied by"
                f" more than {100 * bench.NOISY_SPREAD:.0f} % (90th percentile over the fastest; up to"
                f" {100 * max(noisy):.0f} %)"
            )
        if comparison.rule and comparison.pairs < (
            least := comparison.rule.needed(len(comparison.keys) or 1)
        ):
            notes.append(
                f"{comparison.pairs} pairs can find nothing or little: {least} are needed; raise --budget"
            )
        counted = sum(bool(comparison.sides["B"].counters.get(c)) for c in comparison.sides["A"].counters)
        return cls(
            *(comparison.outcomes, comparison.left_out, differences, counted, heading, "pairs", facts, notes),
            same=comparison.same,
        )

    def code(self, asked: Sequence[str]) -> int:
        """The exit code: 1 if one of the events of `--fail-on` happened."""
        happened = {o.verdict for o in self.outcomes.values()}
        return int(
            bool(set(asked) & happened)
            or ("counters" in asked and bool(self.differences))
            or ("failed" in asked and bool(self.left_out))
        )

    def lines(self, width: int | None = None) -> Iterator[str]:
        """The report: counters, the table of verdicts and its summary; table lines have at most `width` characters."""
        rows = sorted(
            self.outcomes.items(),
            key=lambda kv: (VERDICTS.index(kv[1].verdict), -abs(math.log(kv[1].change.value or 1))),
        )
        yield from ("", *counter_lines(self.differences, self.counted), "")
        if rows:
            header = ["case", "B / A", "interval", "p adjusted", "detectable", self.what, "verdict"]
            yield from text_table(header, (row(key, o) for key, o in rows), width)
        for key, why in self.left_out.items():
            yield f"left out: {key}: {why}"
        yield from self.closing()

    def closing(self) -> list[str]:
        """The lines below the table."""
        if not self.outcomes:
            return ["nothing was compared"]
        verdicts: list[str] = [o.verdict for o in self.outcomes.values()]
        counts = ", ".join(f"{n} {v}" for v in VERDICTS if (n := verdicts.count(v)))
        told = [f"{len(verdicts)} compared: {counts}; {len(self.differences)} compiled counters differ"]
        told.append(self._false_alarms())
        told.append(
            "detectable: the smallest slowdown that this comparison would have found with probability 0.95"
        )
        return told

    def _false_alarms(self) -> str:
        """A line about how often the rule flags an unchanged case: counted in real A/A pairs, or simulated for
        files."""
        if self.same is not None:
            flagged, judged = self.same
            if not judged:
                return f"false alarms: not known, since too few {self.what} were timed"
            limit = pairs.upper_limit(flagged, judged)
            return (
                f"{flagged} of {judged} unchanged cases flagged, by this comparison's real A/A pairs: a rate of at most"
                f" {100 * limit:.2g} % (95 %, as if cases were independent)"
            )
        shares = [o.false_alarms for o in self.outcomes.values() if not math.isnan(o.false_alarms)]
        if not shares:
            return f"false alarms: not known, since too few {self.what} were timed"
        return (
            "false alarms: of 1000 comparisons drawn from each side's own processes the rule flags"
            f" {100 * sum(shares) / len(shares):.2g} % per case on average; what the machine did between the two files"
            " is not in it"
        )

    def to_json(self) -> dict[str, Any]:
        """Everything in JSON types."""
        return {
            "facts": self.facts,
            "unchanged_flagged": None if self.same is None else list(self.same),
            "counters": [asdict(d) for d in self.differences],
            "counters_compared": self.counted,
            "outcomes": {k: asdict(o) for k, o in self.outcomes.items()},
            "left_out": dict(self.left_out),
            "notes": self.notes,
        }


def notes_on_files(fewest: int, outcomes: Mapping[str, Outcome]) -> list[str]:
    """The remarks on a comparison of two files. fewest: the smallest number of processes of a side."""
    notes, number = [], len(outcomes)
    if shift := file_comparison.common_shift(outcomes):
        notes.append(shift)
    least = file_comparison.needed(number)
    if fewest == 1:
        notes.append(
            "one process per side cannot tell machine noise from change: record with `meshmark bench --processes N`,"
            f" N at least {least}"
        )
    elif fewest < least:
        notes.append(
            f"{fewest} processes per side can find nothing among {number} cases: record with"
            f" --processes {least} or more"
        )
    notes.append(
        "the two files are of two times: what the machine did in between counts as a change of B; `meshmark compare`"
        " on the environments themselves runs pairs in random order and has a stated error rate"
    )
    return notes


def described(side: str, name: str, facts: Mapping[str, Any]) -> str:
    """One line that describes a side."""
    versions = compare.dict_of(facts.get("versions"))
    virtual = ", virtual" if facts.get("virtual") else ""
    commit = str(compare.dict_of(facts.get("suite")).get("commit") or "")[:12] or "unknown"
    return (
        f"{side}: {name}: jax {versions.get('jax')}, jaxlib {versions.get('jaxlib')}, python {versions.get('python')},"
        f" {facts.get('num_devices')} {facts.get('device_kind')} devices ({facts.get('backend')}{virtual}),"
        f" harness {commit}"
    )


def row(key: str, o: Outcome) -> list[str]:
    """The cells of one case."""
    low, high = o.change.low, o.change.high
    interval = f"{low:.3f} to {high:.3f}" if low > 0 and high < math.inf else "unknown"
    detectable = "unknown" if math.isnan(o.detectable) else f"+{100 * o.detectable:.1f} %"
    if math.isinf(o.detectable):
        detectable = "none"
    value = f"{o.change.value:.3f}" if math.isfinite(o.change.value) else "-"
    return [key, value, interval, f"{o.adjusted:.2g}", detectable, str(o.pairs), o.verdict]


def counter_lines(found: Sequence[Difference], counted: int) -> Iterator[str]:
    """The lines about the compiled counters that differ."""
    if not found:
        yield f"compiled counters: the same in all {counted} programs that both sides have"
        return
    changed = len({d.case for d in found})
    yield f"compiled counters: {len(found)} differ, in {changed} of {counted} programs"
    for d in found[:MOST_DIFFERENCES]:
        yield f"  {d.case}: {d.counter}: {_counter(d.a)} -> {_counter(d.b)}"
    if len(found) > MOST_DIFFERENCES:
        yield f"  and {len(found) - MOST_DIFFERENCES} more: see --json"


def _counter(value: str | float | None) -> str:
    return "not given" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
