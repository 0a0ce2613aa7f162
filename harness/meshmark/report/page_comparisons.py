# SPDX-License-Identifier: Apache-2.0
"""The page's data of a file of `meshmark compare --record`: two sides, the verdict of each case, counters that differ.

The verdicts are those of the comparison itself, by pairs of processes at its planned looks. They are not computed again
from the samples. An interrupted comparison has no verdicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from meshmark.core.escaping import field as field_of
from meshmark.core.escaping import plain
from meshmark.core.text import number
from meshmark.records.reading import Records
from meshmark.report.page_definition import ComparisonData, DecidedData, SideData
from meshmark.report.page_parts import RecordFile
from meshmark.report.rounding import rounded
from meshmark.timing import compare

MOST_DIFFERENCES = 2000
"""The most counters of one comparison that the page lists."""


def is_comparison(records: Records) -> bool:
    """Whether a file holds the two sides of a comparison."""
    return {run.get("environment") for run in records.runs} == set(compare.SIDES)


def build(source: RecordFile, key: str) -> ComparisonData:
    """The data of one comparison file; `key` names its run on the page."""
    records = source.records
    runs = {str(run["environment"]): run for run in records.runs if run.get("environment")}
    differences, counted = _counters(records)
    verdicts = [line for line in records.comparisons if line["what"] == "verdict"]
    return {
        "key": key,
        "sides": {side: _side(runs[side]) for side in compare.SIDES},
        "processes": len({line.get("process") for line in records.comparisons if line["what"] == "process"}),
        "rows": [_verdict(line) for line in verdicts],
        "counted": counted,
        "differing": len({d.case for d in differences}),
        "differences": [
            (plain(d.case), plain(d.counter), _counter(d.a), _counter(d.b))
            for d in differences[:MOST_DIFFERENCES]
        ],
    }


def _side(run: Mapping[str, Any]) -> SideData:
    """One side: its name, its JAX and jaxlib releases, the commit of the suite, its devices."""
    facts = run["facts"]
    versions = facts.get("versions")
    return {
        "named": plain(run.get("named")),
        "jax": plain(field_of(versions, "jax")),
        "jaxlib": plain(field_of(versions, "jaxlib")),
        "python": plain(field_of(versions, "python")),
        "commit": plain(run.get("commit") or field_of(facts.get("suite"), "commit"))[:12],
    }


def _verdict(line: Mapping[str, Any]) -> DecidedData:
    return {
        "case": plain(line.get("case")),
        "verdict": plain(line.get("verdict")),
        "reason": plain(line.get("reason")),
        "ratio": rounded(line.get("ratio")),
        "low": rounded(line.get("low")),
        "high": rounded(line.get("high")),
        "adjusted": rounded(line.get("adjusted")),
        "detectable": rounded(line.get("detectable")),
        "false_alarms": rounded(line.get("false_alarms")),
        "pairs": rounded(line.get("pairs")),
    }


def _counters(records: Records) -> tuple[list[compare.Difference], int]:
    """(the compiled counters that differ, the number of programs that both sides have)."""
    sides: dict[str, dict[str, dict[str, str | float | None]]] = defaultdict(dict)
    for line in records.timings:
        if counts := compare.read_counters(line):
            sides[str(line.get("environment"))].setdefault(line["case"], counts)
    a, b = (sides[side] for side in compare.SIDES)
    return compare.find_counter_differences(a, b), len(set(a) & set(b))


def _counter(value: Any) -> str:
    return "not given" if value is None else plain(value) if isinstance(value, str) else f"{number(value):g}"
