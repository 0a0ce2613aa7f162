# SPDX-License-Identifier: Apache-2.0
"""Finds the public functions of JAX that the programs of the table use while they are traced.

    python -m tests.studies.names

It makes the rows of kind `case` and `processes` of harness/meshmark/operations/data/names.tsv again, and leaves the
others. A public function that has neither a case nor a reason gets the kind `not covered`.

While a program is traced, the modules of the table have proxies in place of the modules of JAX. A proxy notes each
function that is taken from it, and returns JAX's own. So a function counts only if the table itself takes it from its
public module. JAX's internal uses don't count. Operations that need several processes are not run: their source must
call the function by its name.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax

from meshmark.core.calls import call
from meshmark.judge.programs import Program, x64
from meshmark.operations import OPERATIONS, names
from meshmark.operations.base import Missing
from meshmark.operations.cases import Case, cells
from meshmark.operations.functions import wholes
from meshmark.operations.functions.wholes import WholeFunction
from meshmark.operations.selection import CAPABILITIES, Selection
from meshmark.operations.transforms.transformed import Grid

ROOM = "meshmark.operations"
PLACES = ("of", "to", "dim", "fill", "axes", "axis", "from", "rank", "then")
"""Options that say where, and not what: the cases that differ in them alone take the same functions."""

NEW = "no case takes it yet"
MODES = ("auto", "explicit", "manual", "host")


class Seen:
    """A proxy of a module of JAX that notes the functions that are taken from it."""

    def __init__(self, module: ModuleType, note: Callable[[str], None]) -> None:
        self._module, self._note = module, note

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, ModuleType):
            return Seen(found, self._note)
        self._note(f"{self._module.__name__}.{name}")
        return found


class Enough(BaseException):
    """Raised when all wanted functions were taken, because the rest of the program does not matter."""


class Taken(set[str]):
    """The names that were taken. `note` raises Enough as soon as all wanted names are there."""

    wanted: frozenset[str] = frozenset()

    def note(self, name: str) -> None:
        """Add a name."""
        self.add(name)
        if self.wanted and self.wanted <= self:
            raise Enough


@contextmanager
def watched() -> Iterator[Taken]:
    """Collect the public names that the modules of the table take from JAX in this context."""
    found = Taken()
    public = {id(function): name for name, function in names.functions()}

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            found.note(name)
            return function(*args, **kwargs)

        return noted

    before = []
    for module in [m for n, m in list(sys.modules.items()) if n.startswith(ROOM)]:
        for name, value in list(vars(module).items()):
            if isinstance(value, ModuleType) and value.__name__.split(".")[0] == "jax":
                before.append((module, name, value))
                setattr(module, name, Seen(value, found.note))
            elif id(value) in public and inspect.isfunction(value):
                before.append((module, name, value))
                setattr(module, name, noting(public[id(value)], value))
    try:
        yield found
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def run(case: Case) -> None:
    """Trace the program of a case, or call a host operation."""
    program = Program(case, tuple(jax.devices()))
    with x64(case.cell):
        if case.mode == "host":
            call(type(case.operation).host, (program.mesh, *case.cell.arguments(0)), case.plan.options)
        else:
            with program.context():
                program.jitted().trace(*program.structs())


def taken(case: Case) -> set[str]:
    """The public functions that a case takes; none if it raises, or if this release lacks what it needs."""
    with watched() as found:
        try:
            run(case)
        except (Missing, Exception) as error:
            print(f"{case.id}: {type(error).__name__}", file=sys.stderr)
            return set()
        return set(found)


def not_taken(case: Case, wanted: frozenset[str]) -> set[str]:
    """The wanted public functions that a case does not take."""
    with watched() as found:
        found.wanted = wanted
        try:
            run(case)
        except Enough:
            return set()
        return set(wanted - found)


def is_spelled(operation: WholeFunction, mode: str) -> bool:
    """Whether a function of whole arrays has its own program in a mode, other than that of all such functions."""
    return getattr(type(operation), mode).__module__ != wholes.__name__


def candidates() -> Iterator[Case]:
    """One case per choice of options of an operation and mode, those of the shorter profiles first."""
    done = set()
    for profile in ("smoke", "standard", "full"):
        for cell, modes in cells(Selection(profile, capabilities=tuple(CAPABILITIES)), 8):
            operation, options = cell.operation, cell.request.variant.options
            if operation.family == "refusals" or getattr(operation, "differentiated", False):
                continue
            if isinstance(operation, Grid) and cell.request.variant.get("function"):
                continue  # its group takes the same functions
            what = tuple(option for option in options if option[0] not in PLACES)
            for mode in modes:
                key = (operation.name, what, mode)
                if mode not in MODES or key in done:
                    continue
                own = not isinstance(operation, WholeFunction) or is_spelled(operation, mode)
                if own or (*key[:2], "auto") not in done:
                    done.add(key)
                    yield cell.case(mode)


def called_over_processes(name: str) -> str | None:
    """The name of an operation over several processes whose source calls this function; None if there is none."""
    module, _, function = name.rpartition(".")
    for operation in OPERATIONS.values():
        source = inspect.getsource(type(operation)) if operation.processes else ""
        if f"{module.rpartition('.')[2]}.{function}(" in source:
            return operation.name
    return None


def found() -> dict[str, names.Row]:
    """One row per function that the table uses: its first case, or its operation over several processes."""
    made: dict[str, names.Row] = {}
    public = {name for name, _ in names.functions()}
    for case in candidates():
        for name in sorted(taken(case) & public):
            made.setdefault(name, names.Row(name, "case", case.id))
    for name in sorted(public - set(made)):
        if operation := called_over_processes(name):
            made[name] = names.Row(name, "processes", operation)
    return made


def main() -> None:
    """Write the file again."""
    before = names.read_names() if names.PATH.is_file() else {}
    kept = {
        name: row
        for name, row in before.items()
        if row.kind not in ("case", "processes") and row.detail != NEW
    }
    rest = {name: names.Row(name, "not covered", NEW) for name, _ in names.functions()}
    older = {name: row for name, row in before.items() if name not in rest}
    rows = {**rest, **older, **found(), **kept}
    lines = [f"{row.name}\t{row.kind}\t{row.detail}\n" for _, row in sorted(rows.items())]
    names.PATH.write_text("".join(lines), encoding="utf-8")
    names.read_names.cache_clear()
    listed = [*names.read_names().values()]
    print(
        f"{len(names.find_reasoned(listed))} of {len(names.of_arrays(listed))} functions of arrays have a reason alone"
    )


if __name__ == "__main__":
    main()
