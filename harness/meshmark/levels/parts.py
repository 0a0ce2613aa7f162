# SPDX-License-Identifier: Apache-2.0
"""Groups judged cases by their run: one run meets a level, and one statement is about one environment.

A run that was interrupted and resumed has several equal run lines, which count as one run. Runs with another selection
or seed are other runs, also in the same environment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from meshmark.records import run_line
from meshmark.records.reading import Judged, Records
from meshmark.records.run_definition import RunLine

Parts = dict[str, dict[str, Judged]]
"""Of each run that judged cases: its cases by id."""


def judging(files: Sequence[Records]) -> list[RunLine]:
    """The run lines of the runs that judged cases."""
    ids = {line.get("run") for file in files for one in file.cases.values() for line in one.lines}
    return [run for file in files for run in file.runs if run["run"] in ids]


def find_differing_field(runs: Sequence[RunLine]) -> str:
    """The first field in which the environments of these runs differ, or their seeds; "" for none."""
    every = [run_line.environment_fields(run) | {"seed": run.get("seed")} for run in runs]
    return next(filter(None, (run_line.spell_difference(every[0], other) for other in every[1:])), "")


def parts_of(files: Sequence[Records]) -> Parts:
    """The judged cases of these files by run."""
    named = {
        run["run"]: json.dumps([run_line.settings(run), run_line.environment_fields(run)], sort_keys=True)
        for run in judging(files)
    }
    found: Parts = {}
    for file in files:
        for name, judged in file.cases.items():
            for line in judged.lines:
                part = found.setdefault(named.get(line.get("run", ""), ""), {})
                part.setdefault(name, Judged(name)).lines.append(line)
    return found
