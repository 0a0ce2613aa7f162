# SPDX-License-Identifier: Apache-2.0
"""The case ids that asv benchmarks, from the case table of this checkout.

asv runs the benchmarks of this checkout with the packages of other commits, and addresses a parameter by its index. The
ids must therefore not come from the package under test. A child process that imports the checkout's `meshmark` lists
them once. They are stored in build/asv under a digest of its sources, so asv's many small processes need no JAX to list
them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import NUM_DEVICES, ROOT, SOURCE

MESH = "2x4"
"""The mesh of the ids: the preferred one of NUM_DEVICES."""


def counted() -> list[str]:
    """Programs with tracked compiled counters: every operation that has a program, in its plain variants."""
    return _ids()["counted"]


def timed() -> list[str]:
    """Calls that are timed: the first variant of each operation that declares timed sizes."""
    return _ids()["timed"]


def few() -> list[str]:
    """One program of each family, for benchmarks that take a process or a compilation per sample."""
    return _ids()["few"]


def weather() -> list[str]:
    """Programs whose schedules are tracked: those of `meshmark weather`."""
    return _ids()["weather"]


def listed() -> dict[str, list[str]]:
    """The ids by use, from the package of this process.

    For each variant of weight 0: the cell of least weight (the largest if there are several), in all main modes.
    """
    from meshmark.core.meshes import parse_mesh
    from meshmark.operations.cases import Cell, cells, find
    from meshmark.operations.selection import Selection, SelectionError
    from meshmark.operations.weights import MODE_WEIGHTS
    from meshmark.weather.programs import chosen

    main = tuple(mode for mode, weight in MODE_WEIGHTS.items() if not weight)

    def plain(profile: str) -> list[tuple[Cell, list[str]]]:
        found: dict[tuple[str, str], tuple[Cell, list[str]]] = {}
        for cell, modes in cells(Selection(profile, timed=True, meshes=(MESH,), modes=main), NUM_DEVICES):
            variant = cell.request.variant
            key = cell.operation.name, variant.label
            if not variant.weight and (key not in found or cell.weight <= found[key][0].weight):
                found[key] = cell, modes
        return list(found.values())

    def known(case_id: str) -> bool:
        try:
            return find(case_id, NUM_DEVICES).id == case_id
        except SelectionError:
            return False

    first: dict[str, tuple[Cell, list[str]]] = {}
    families: dict[str, Cell] = {}
    for cell, modes in plain("standard"):
        first.setdefault(cell.operation.name, (cell, modes))
        if "manual" in modes:
            families.setdefault(cell.operation.family, cell)
    return {
        "counted": [c.case(m).id for c, modes in plain("full") for m in modes if m != "host"],
        "timed": [c.case(m).id for c, modes in first.values() for m in modes],
        "few": [c.case("manual").id for c in families.values()],
        # The weather compiles some sizes that are neither judged nor timed; they have no ids.
        "weather": [case.id for case in chosen(parse_mesh(MESH)) if known(case.id)],
    }


@functools.cache
def _ids() -> dict[str, list[str]]:
    kept = ROOT / "build" / "asv" / f"cases-{_digest()}.json"
    try:
        return json.loads(kept.read_text())
    except (OSError, ValueError):
        text = _ask()
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(kept)
    except OSError:  # the checkout is read-only: each process asks again
        pass
    return json.loads(text)


def _digest() -> str:
    """A digest of the names and contents of the sources from which the ids follow."""
    digest = hashlib.sha256()
    for path in [Path(__file__), *sorted(SOURCE.rglob("*.py"))]:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _ask() -> str:
    """The ids as JSON, from a child that imports the checkout's `meshmark`."""
    environment = {k: v for k, v in os.environ.items() if k != "ASV_PROJECT"}
    code = (
        f"import json, sys; sys.path[:0] = {[str(SOURCE), str(ROOT)]!r}\n"
        "from benchmarks import table; print(json.dumps(table.listed()))"
    )
    child = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if child.returncode:
        raise RuntimeError(f"the case table of {ROOT.name} can't be listed:\n{child.stderr}")
    return child.stdout.splitlines()[-1]
