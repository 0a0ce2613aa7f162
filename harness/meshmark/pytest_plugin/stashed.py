"""What the parts of the pytest plugin hand each other through `config.stash`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshmark.devices import containment
from meshmark.devices.facts import Facts
from meshmark.judge.compile_only import Placed
from meshmark.levels.expectations import Expectations
from meshmark.operations.selection import Selection
from meshmark.records.files import Judged, Writer

FACTS = pytest.StashKey[Facts]()
PLACES = pytest.StashKey[list[Facts]]()
"""The facts of every place where cases are judged: the devices that are there, or each topology and layout."""
LEFT_OUT = pytest.StashKey[list[tuple[str, str, int]]]()
"""(place, why, how many cases) of what compile-only runs leave out."""
EXPECTED = pytest.StashKey[Expectations]()
"""Known issues and counters, the suite's and those that the options name."""
SELECTION = pytest.StashKey[Selection]()
BY_FAMILY = pytest.StashKey[dict[str, list[Placed]]]()
LINES = pytest.StashKey[str]()
WRITER = pytest.StashKey[Writer]()
DONE = pytest.StashKey[dict[str, Judged]]()
DIRECTORY = pytest.StashKey[Path]()
WATCHDOG = pytest.StashKey[containment.Watchdog | None]()
REPORT = pytest.StashKey[Any]()
"""The meshmark.pytest_plugin.controller.Report of this session."""
TOGETHER = pytest.StashKey[Any]()
"""The meshmark.pytest_plugin.rank.Together of a rank; only where there are several."""
