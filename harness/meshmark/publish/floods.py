# SPDX-License-Identifier: Apache-2.0
"""Limits on what a product asks a review to do, checked before the review begins.

A review looks up each commit in the history and computes the cases of each selection again. A run line is short, so a
small file could ask for days of this work. Honest products are far below each limit: the published ones have at most
three runs, three commits and one number of devices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from meshmark.levels.must_pass import MOST_DEVICES
from meshmark.publish.review import Entry
from meshmark.records import run_line

MOST_RUNS = 200
"""The most run lines of one product. An interrupted run has one for each part."""

MOST_COMMITS = 20
"""The most commits of the suite: each takes up to a second to look up."""

MOST_SELECTIONS = 40
"""The most selections of cases: each takes up to some seconds to make again."""


def find_floods(files: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    """Yields why a product is too much to review, each with the correction."""
    runs = [run for lines in files.values() for _, run in lines if run["kind"] == "run"]
    selections = {
        json.dumps(
            [run["facts"]["num_devices"], run_line.table_version(run), run.get("selection")], sort_keys=True
        )
        for run in runs
    }
    for what, number, most in (
        ("runs", len(runs), MOST_RUNS),
        ("commits of the suite", len({str(run["facts"]["suite"]["commit"]) for run in runs}), MOST_COMMITS),
        ("selections of cases", len(selections), MOST_SELECTIONS),
    ):
        if number > most:
            yield f"{number} {what}, and a product has {most} at most: leave runs out"
    if (devices := max((run["facts"]["num_devices"] for run in runs), default=0)) > MOST_DEVICES:
        yield f"a run on {devices} devices, and lists are made for {MOST_DEVICES} at most: submit a smaller run"
