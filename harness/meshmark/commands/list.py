# SPDX-License-Identifier: Apache-2.0
"""`meshmark list`: the case table, or the part of it that the options choose."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from meshmark.commands.arguments import devices, positive
from meshmark.core import meshes, terminal
from meshmark.core.terminal import note, show, show_json
from meshmark.core.text import counted, text_table
from meshmark.devices.environment import DEFAULT_CPU_DEVICES
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import MODES, Operation
from meshmark.operations.cases import Case
from meshmark.operations.choosing import add_options, selected
from meshmark.operations.selection import Selection, SelectionError


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument("names", nargs="*", metavar="OPERATION", help="only these operations, as --operations")
    add_options(add.add_argument)
    add.add_argument(
        "--num-devices",
        type=devices,
        metavar="N",
        default=DEFAULT_CPU_DEVICES,
        help=f"devices to list the table for (default {DEFAULT_CPU_DEVICES}; none is asked)",
    )
    add.add_argument(
        "--num-processes",
        type=positive,
        metavar="N",
        default=1,
        help="processes that share the devices (default 1; several have operations and a mesh of their own)",
    )
    shape = add.add_mutually_exclusive_group()
    shape.add_argument("--cases", action="store_true", help="one case id per line")
    shape.add_argument("--why", action="store_true", help="why an operation has no spelling in a mode")
    add.add_argument("--json", action="store_true", help="the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the chosen part of the table."""
    number, processes = arguments.num_devices, arguments.num_processes
    arguments.operations = (*(arguments.operations or ()), *arguments.names)
    selection = selected(vars(arguments), number, processes=processes)
    if number % processes:
        raise SelectionError(
            f"{processes} processes can't share {number} devices equally: name another --num-devices"
        )
    if not arguments.why:
        try:
            cases.not_empty(selection, number)
        except SelectionError as error:  # an empty list is an answer: other programs count its lines
            note(str(error))
    chosen = cases.cases(selection, number)
    if arguments.why:
        reasons = list(absences(selection, number))
        header = ["operation", "mode", "reason", "where"]
        if arguments.json:
            show_json([dict(zip(header, r, strict=True)) for r in reasons])
        else:
            show(text_table(header, reasons, terminal.width(), left=True))
    elif arguments.cases:
        if arguments.json:
            show_json([_case(case) for case in chosen])
        else:
            for case in chosen:  # ids are not cut, because other programs read them
                print(case.id)
    else:
        rows = operations(chosen)
        show_json(rows) if arguments.json else show(_operation_table(rows))
    return 0


def operations(chosen: Iterable[Case]) -> list[dict[str, Any]]:
    """One row per operation of these cases: its description, and its chosen modes and dtypes."""
    rows: dict[str, dict[str, Any]] = {}
    for case in chosen:
        o, r = case.operation, case.cell.request
        row = rows.setdefault(
            o.name,
            {"operation": o.name, "family": o.family, "levels": {}, "modes": {}, "dtypes": {}, "meshes": {}}
            | {"cases": 0, "description": description(o)},
        )
        row["cases"] += 1
        coordinates = {"levels": case.level, "modes": case.mode, "dtypes": r.dtype, "meshes": r.mesh.label}
        for name, value in coordinates.items():
            row[name][value] = None
    return [{k: list(v) if isinstance(v, dict) else v for k, v in row.items()} for row in rows.values()]


def description(operation: Operation) -> str:
    """The first sentence or line of the operation's docstring."""
    lines = (type(operation).__doc__ or "").strip().split("\n\n")[0]
    return " ".join(lines.split())


def _operation_table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Each operation with its description, modes and dtypes below it; the totals at the end."""
    for row in rows:
        yield f"{row['operation']}  ({row['family']}, {' '.join(row['levels'])}, {counted(row['cases'], 'case')})"
        yield f"    {row['description']}"
        yield f"    modes {' '.join(row['modes'])}; dtypes {' '.join(row['dtypes'])}"
    for name in ("modes", "dtypes", "meshes") if rows else ():
        yield f"{name}: {' '.join(dict.fromkeys(value for row in rows for value in row[name]))}"
    total = sum(row["cases"] for row in rows)
    yield f"{counted(len(rows), 'operation')}, {counted(total, 'case')}"


def _case(case: Case) -> dict[str, Any]:
    r = case.cell.request
    return {
        "case": case.id,
        "operation": case.operation.name,
        "variant": r.variant.label,
        "mode": case.mode,
        "mesh": r.mesh.label,
        "dtype": r.dtype,
        "size": r.size,
        "level": case.level,
    }


def absences(selection: Selection, num_devices: int) -> Iterator[list[str]]:
    """[operation, mode, reason, where] for each mode that can't be spelled. where: `all`, or how many of the
    variants."""
    shapes = [*map(meshes.parse_mesh, selection.meshes)] or list(
        meshes.weighted(num_devices, selection.processes)
    )
    for operation in OPERATIONS.values():
        if selection.operations and operation.name not in selection.operations:
            continue
        places = [(variant, mesh) for mesh in shapes for variant in operation.variants(mesh)]
        for mode in selection.modes or MODES:
            found: dict[str, list[str]] = {}
            for variant, mesh in places:
                reason = operation.absent(mode, variant, mesh)
                if reason is not None:
                    found.setdefault(reason, []).append(f"{variant.label} on {mesh.label}")
            for reason, where in found.items():
                some = f"{len(where)} of {len(places)}, such as {where[0]}"
                yield [operation.name, mode, reason, "everywhere" if len(where) == len(places) else some]
