# SPDX-License-Identifier: Apache-2.0
"""The long tests, of which a run takes a part: another part for each commit, so all of them run within a few commits.

    MESHMARK_SLOW=1 python -m pytest tests --junit-xml all.xml    # runs all
    python -m tests.long all.xml                                  # writes tests/long.tsv, from one or more such reports

`tests/long.tsv` has one row per long test function: its seconds with all of its parameters, and its name. The longest
is first. `MESHMARK_TURN=N` chooses another part, and `MESHMARK_SLOW=1` runs all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.checkout import ROOT

LIST = Path(__file__).with_name("long.tsv")
LEAST = 3.0
"""A function is long from this many seconds on."""

ONE_IN = 5
"""A run takes one in this many of the long tests."""

TURN = "MESHMARK_TURN"


@cache
def long_functions() -> dict[str, int]:
    """file::function -> its place in the list."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return {line.split("\t")[1]: place for place, line in enumerate(lines)}


def turn() -> int:
    """Which part this run takes. The commit decides, so the same commit runs the same tests; 0 without git."""
    if TURN not in os.environ:  # workers inherit the variable
        command = ["git", "rev-parse", "--short=7", "HEAD"]
        try:
            found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            found = "0"
        os.environ[TURN] = str(int(found, 16))
    return int(os.environ[TURN])


def is_in_turn(function: str, number: int, at: int) -> bool:
    """Whether turn `at` takes item `number` of a function; always, if the function is not long."""
    place = long_functions().get(function)
    return place is None or (place + number + at) % ONE_IN == 0


def is_sampled(node: str, one_in: int, at: int) -> bool:
    """Whether turn `at` takes this test, one of a long list of parameters."""
    return (zlib.crc32(node.encode()) + at) % one_in == 0


def measure(reports: Iterable[Path]) -> Counter[str]:
    """file::function -> the seconds of its tests in JUnit reports; of the longest report, if several have it."""
    found: Counter[str] = Counter()
    for report in reports:
        here: Counter[str] = Counter()
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            file = case.attrib["classname"].replace(".", "/") + ".py"
            here[f"{file}::{case.attrib['name'].partition('[')[0]}"] += float(case.attrib["time"])
        found |= here
    return found


def main(reports: list[str]) -> int:
    """Write the list: what the reports say of their functions, and the rows that it has of others."""
    if not reports:
        print("usage: python -m tests.long REPORT.xml ...", file=sys.stderr)
        return 2
    kept = (line.split("\t") for line in LIST.read_text(encoding="utf-8").splitlines())
    found = Counter({name: float(seconds) for seconds, name in kept} | measure(map(Path, reports)))
    rows = [f"{seconds:.0f}\t{name}\n" for name, seconds in found.most_common() if round(seconds) >= LEAST]
    LIST.write_text("".join(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
