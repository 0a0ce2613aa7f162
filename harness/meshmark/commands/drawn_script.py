# SPDX-License-Identifier: Apache-2.0
"""The script of one drawn program, for `meshmark repro`: a case judges a batch of them, and the script has the first
that is wrong here."""

from __future__ import annotations

from collections.abc import Callable

from meshmark.hunt import places, scripts
from meshmark.hunt.differences import DifferenceData
from meshmark.hunt.workers import Settings, Slot
from meshmark.operations.cases import Case
from meshmark.operations.programs import drawn
from meshmark.program_data.program import to_json

ORACLES = "oracles"
"""The kind of a difference between the unsharded program and its definition."""

NUMPY = "numpy"
"""The hunt's mode that compares the unsharded program with its definition."""


def write_drawn_script(
    case: Case, store: drawn.Store, number: int, run: bool, note: Callable[[str], None]
) -> str:
    """The script of the first program of a batch that is wrong on `number` devices here, or of the first one of all.

    run: whether to run the programs, each in a worker process, so that a crash or a hang ends only the worker."""
    form = case.cell.request.variant["form"]
    batch = [drawn.from_line(line) for line in store.batches[form]]
    found: tuple[drawn.Drawn, DifferenceData] | None = None
    if run:
        settings = places.adapt_to_device_count(number, Settings())
        note(f"running the {len(batch)} programs of {case.id}, each in a worker process")
        with Slot(settings) as slot:
            for one in batch:
                answer = slot.judge({"program": to_json(one.program)}, (one.way, NUMPY))
                if answer.differences:
                    found = one, answer.differences[0]
                    break
        if found is None:
            note("all are right here: the script has the first program")
    one, difference = found or (batch[0], None)
    said = difference["text"].splitlines() if difference else []
    # Of a program that is wrong without sharding too, the script compares the way of the suite with NumPy.
    mode = difference["mode"] if difference and difference["kind"] != ORACLES else one.way
    heading = (
        f"Program {one.program.name} of {case.id}.",
        f"The suite runs it in this way: {one.way}.",
        *(f"Seen: {line}"[:110] for line in said[:1]),
    )
    numbers = difference is None or difference["kind"] in ("numbers", ORACLES)
    return scripts.write_script(one.program, mode, heading, one.compute(), numbers)
