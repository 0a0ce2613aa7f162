# SPDX-License-Identifier: Apache-2.0
"""The values that the parts of the pytest plugin share through `config.stash`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshmark.core.steady import Steady
from meshmark.devices import containment
from meshmark.devices.facts import Facts
from meshmark.levels.expectations import Expectations
from meshmark.operations.selection import Selection
from meshmark.pytest_plugin import guard
from meshmark.pytest_plugin.trials import Trial
from meshmark.records.reading import Judged
from meshmark.records.writing import Writer

FACTS = pytest.StashKey[Facts]()
"""The facts of the first place."""
PLACES = pytest.StashKey[list[Facts]]()
"""The facts of every place where cases are judged: the devices that are there, or each topology and layout."""
SELECTION = pytest.StashKey[Selection]()
"""What the options choose, on the devices of the last place."""
TRIALS = pytest.StashKey[dict[str, list[Trial]]]()
"""The chosen cases of all places, by family of operations."""
LEFT_OUT = pytest.StashKey[list[tuple[str, str, int]]]()
"""(place, why, how many cases) of what compile-only runs leave out."""
EXPECTED = pytest.StashKey[Expectations]()
"""Known issues and counters, the suite's and those that the options name."""
FINISHED = pytest.StashKey[dict[str, Judged]]()
"""The cases that the interrupted run which this one resumes has finished, by id."""
WRITER = pytest.StashKey[Writer]()
"""Of the record file; absent where none is written."""
CASE_RECORDS = pytest.StashKey[str]()
"""Of a test item: the record lines of its case, as JSON."""
ITEM = pytest.StashKey[pytest.Item]()
"""The test that runs now."""
WORKERS = pytest.StashKey[Path]()
"""The directory of the workers: their process ids and standard errors."""
WATCHDOG = pytest.StashKey[containment.Watchdog | None]()
"""In a worker: what ends it when a case is past its deadline."""
CONTROLLER = pytest.StashKey[Any]()
"""The meshmark.pytest_plugin.controller.Controller of this session."""
RANK = pytest.StashKey[Any]()
"""The meshmark.pytest_plugin.rank.RankPlugin of a rank; only where there are several."""
JUDGED = pytest.StashKey[dict[str, list[str]]]()
"""The digests of what was judged in this process, by case."""

GIVEN = pytest.StashKey[str]()
"""The options that the environment gave (PYTEST_ADDOPTS)."""

GUARD = pytest.StashKey[guard.Guard | None]()
"""This process's way to the guard that waits for it; None or absent where there is none."""
COLLECTED = pytest.StashKey[dict[str, bool]]()
"""By node id: what pytest has collected; False where it was then deselected."""
OUTPUT = pytest.StashKey[Steady]()
"""The standard output, on which pytest's terminal reporter writes."""
