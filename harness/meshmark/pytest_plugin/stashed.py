# SPDX-License-Identifier: Apache-2.0
"""The values that the parts of the pytest plugin share through `config.stash`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshmark.core.steady import Steady
from meshmark.devices.facts import Facts
from meshmark.devices.watchdog import Watchdog
from meshmark.levels.expectations import Expectations
from meshmark.operations.selection import Selection
from meshmark.pytest_plugin import guard
from meshmark.pytest_plugin.trials import Trial
from meshmark.records.reading import Judged
from meshmark.records.writing import Writer

FACTS = pytest.StashKey[Facts]()
"""The facts of the first place."""
PLACES = pytest.StashKey[list[Facts]]()
"""The facts of every place where cases are judged: the available devices, or each topology and layout."""
SELECTION = pytest.StashKey[Selection]()
"""The selection of the options, for the devices of the last place."""
TRIALS = pytest.StashKey[dict[str, list[Trial]]]()
"""The chosen cases of all places, by family of operations."""
LEFT_OUT = pytest.StashKey[list[tuple[str, str, int]]]()
"""(place, reason, number of cases) that compile-only runs leave out."""
EXPECTED = pytest.StashKey[Expectations]()
"""Known issues and counters: the suite's and those that the options name."""
FINISHED = pytest.StashKey[dict[str, Judged]]()
"""The cases that the resumed run had finished before its interruption, by id."""
WRITER = pytest.StashKey[Writer]()
"""The writer of the record file; absent if no file is written."""
CASE_RECORDS = pytest.StashKey[str]()
"""On a test item: the record lines of its case, as JSON."""
ITEM = pytest.StashKey[pytest.Item]()
"""The test that runs now."""
WORKERS = pytest.StashKey[Path]()
"""The directory of the workers: their process ids and standard errors."""
WATCHDOG = pytest.StashKey[Watchdog | None]()
"""In a worker: the watchdog that ends it when a case is past its deadline."""
CONTROLLER = pytest.StashKey[Any]()
"""The meshmark.pytest_plugin.controller.Controller of this session."""
RANK = pytest.StashKey[Any]()
"""The meshmark.pytest_plugin.rank.RankPlugin of a rank; absent in a run of one process."""
JUDGED = pytest.StashKey[dict[str, list[str]]]()
"""The digests of the records that this process judged, by case."""

GIVEN = pytest.StashKey[str]()
"""The options that the environment gave (PYTEST_ADDOPTS)."""

GUARD = pytest.StashKey[guard.Guard | None]()
"""This process's connection to its guard; None or absent if there is no guard."""
COLLECTED = pytest.StashKey[dict[str, bool]]()
"""By node id, the tests that pytest has collected; False if a test was deselected later."""
OUTPUT = pytest.StashKey[Steady]()
"""The standard output to which pytest's terminal reporter writes."""
