# SPDX-License-Identifier: Apache-2.0
"""Runs pytest sessions that are refused before they collect anything, many in one process, which imports JAX once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from tests.checkout import ROOT

_EACH = """
import json, sys
import pytest
for arguments in json.loads(sys.argv[1]):
    code = pytest.main(arguments)
    print(f"\\ncode {int(code)}", file=sys.stderr, flush=True)
"""


def refusals(
    target: str, many: Sequence[Sequence[object]], **environment: str
) -> list[tuple[int, list[str]]]:
    """The exit code of each run, and the lines of its standard error that are not empty."""
    # The option comes last: pytest 8 loads no conftest.py of a directory that is named after an option.
    runs = [[target, *map(str, arguments), "-p", "no:cacheprovider"] for arguments in many]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "MESHMARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", _EACH, json.dumps(runs)],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
    )
    found: list[tuple[int, list[str]]] = []
    said: list[str] = []
    for line in filter(str.strip, done.stderr.splitlines()):
        if line.startswith("code "):
            found.append((int(line.removeprefix("code ")), said))
            said = []
        else:
            said.append(line)
    assert len(found) == len(runs), done.stdout + done.stderr
    return found
