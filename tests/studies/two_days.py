# SPDX-License-Identifier: Apache-2.0
"""Measures whether the intervals of one run hold on another day.

    python -m tests.studies.two_days OLD NEW [OLD NEW ...]

OLD and NEW are two record files of `meshmark bench` with the same cases, made on one machine at different times. Each
run's interval over its processes (timing.figures) is compared with the median of the other run. It prints Markdown, one
row per cadence and kind of figure: times, and ratios of each mode to manual mode.

Processes of one run are minutes apart. An interval does not cover hours in which nothing was measured, and this table
shows the effect.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.core.statistics import Estimate
from meshmark.records import reading
from meshmark.timing import figures

Lines = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
HEAD = (
    "figure | pairs | one interval holds the other median | the intervals overlap | one excludes 1 | both do, alike"
    " | they contradict each other"
)


def timings(path: Path) -> Lines:
    """The timing lines of a file by case and cadence, one line per process."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for line in reading.read_records(path).timings:
        if line["samples_s"]:
            found[line["case"], line["cadence"]].append(line)
    return found


def with_interval(found: Estimate | None) -> Estimate | None:
    """The estimate if it has the ends of an interval; else None."""
    return found if found is not None and found.low is not None and found.high is not None else None


def time_of(lines: Lines, case: str, cadence: str) -> Estimate | None:
    """The time of a case over processes."""
    return with_interval(figures.pooled(lines[case, cadence])) if (case, cadence) in lines else None


def ratio_of(lines: Lines, case: str, cadence: str) -> Estimate | None:
    """The ratio of a case to the same case in manual mode over processes; None for manual mode itself."""
    parts = case.split("/")
    manual = "/".join([*parts[:2], "manual", *parts[3:]])
    if parts[2] == "manual" or (case, cadence) not in lines or (manual, cadence) not in lines:
        return None
    each = figures.ratios(lines[case, cadence], lines[manual, cadence])
    return with_interval(figures.over_processes(each)) if each else None


def side(estimate: Estimate) -> int:
    """-1 for an interval below 1, 1 for one above it, 0 for one that holds 1."""
    return int(estimate.low > 1) - int(estimate.high < 1)


def count(pairs: Sequence[tuple[Lines, Lines]]) -> dict[str, Counter[str]]:
    """The counts of the table, by figure and cadence."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for old, new in pairs:
        for case, cadence in sorted(set(old) & set(new)):
            for kind, figure in (("time", time_of), ("ratio to manual", ratio_of)):
                a, b = figure(old, case, cadence), figure(new, case, cadence)
                if a is None or b is None:
                    continue
                seen = counts[f"{kind}, {cadence}"]
                seen["pairs"] += 1
                seen["held"] += (a.low <= b.value <= a.high) + (b.low <= a.value <= b.high)
                seen["overlap"] += a.low <= b.high and b.low <= a.high
                if figure is ratio_of:
                    seen["one"] += (side(a) != 0) != (side(b) != 0)
                    seen["alike"] += side(a) == side(b) != 0
                    seen["opposite"] += side(a) * side(b) == -1
    return counts


def main(paths: Sequence[str]) -> int:
    """Print the table; exit code 2 for an odd number of files."""
    if not paths or len(paths) % 2:
        print("usage: python -m tests.studies.two_days OLD NEW [OLD NEW ...]", file=sys.stderr)
        return 2
    files = [timings(Path(path)) for path in paths]
    print(f"| {HEAD} |\n|{'---|' * (HEAD.count('|') + 1)}")
    for name, seen in count(list(zip(files[::2], files[1::2], strict=True))).items():
        pairs, of_ratios = seen["pairs"], name.startswith("ratio")
        orders = [str(seen[key]) if of_ratios else "" for key in ("one", "alike", "opposite")]
        held = f"{seen['held']} of {2 * pairs} ({seen['held'] / (2 * pairs):.0%})"
        overlap = f"{seen['overlap']} ({seen['overlap'] / pairs:.0%})"
        print("| " + " | ".join([name, str(pairs), held, overlap, *orders]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
