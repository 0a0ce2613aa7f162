# SPDX-License-Identifier: Apache-2.0
"""The state of one script: its case, its form, and the definitions so far."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshmark.core.calls import call, select_options
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.judge.repro import printer
from meshmark.judge.repro.folding import Folded, fold, is_literal, literal_known
from meshmark.judge.repro.printer import CHECKS
from meshmark.judge.repro.sources import Bundle, tree_of
from meshmark.operations.base import Argument
from meshmark.operations.cases import Case, exactly

SPELLINGS = {"manual-novma": "manual", "pmap": "manual", "pjit": "auto"}
"""The modes that run another mode's spelling."""

MOST = 1 << 21
"""The most elements of a case whose script is shortened: more take too long to make and compare."""

COUNTABLE = ("distinct", "special", "summands", "odd_rows", "odd", "plus_minus", "signs", "arranged")
"""The fills whose values may be 1, 2, 3 ... instead, where the case still fails with them."""


@dataclass(frozen=True)
class Form:
    """The form in which a case is printed."""

    checks: tuple[str, ...] = CHECKS
    inputs: str = "seeded"
    """seeded: the suite's. counted: 1, 2, 3 ... zeros, where no value matters."""
    reader: str = "kinds"
    """What is read of the compiled program: a name of `meshmark.judge.repro.contracts.READERS`."""
    seen: tuple[str, ...] = ()
    """What a run showed, for the heading."""
    original: str = ""
    """The id of the case that this one is a smaller form of."""
    u_factor: float = 0.0
    """To what the devices round factors at default precision, where it is known."""


@dataclass
class Data:
    """The arrays of a case: inputs, expected results and their bounds, as global arrays."""

    inputs: list[np.ndarray]
    expected: list[np.ndarray]
    bounds: list[np.ndarray | None]


def callee(function: Any) -> Any:
    """The syntax tree of a function of the suite; None for any other function, whose calls stay."""
    return tree_of(function) if function.__module__.split(".")[0] == "meshmark" else None


def words(value: Any) -> Iterator[str]:
    """The strings in the options of a plan."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from words(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from words(item)


class Subject:
    """One case, in one form."""

    def __init__(self, case: Case, num_devices: int, seed: int, form: Form) -> None:
        """Prepare the script. A case that can't be printed raises ReproError later."""
        self.case, self.num_devices, self.seed, self.form = case, num_devices, seed, form
        self.plan = case.plan
        self.cls = type(case.operation)
        self.function: Any = getattr(self.cls, SPELLINGS.get(case.mode, case.mode))
        self.reference: Any = self.cls.gradient if self.plan.wrt else self.cls.reference
        self.names = self._argument_names()
        reserved = [*printer.NAMES, *self.names]
        self.bundle = Bundle(("meshmark", self.cls.__module__), reserved, [*words(self.plan.options)])
        arrays: list[Any] = [*self.plan.arguments, *self.plan.results]
        self.short = sum(int(np.prod(a.shape)) for a in arrays) <= MOST

    def _argument_names(self) -> list[str]:
        names = [
            p.name
            for p in inspect.signature(self.function).parameters.values()
            if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "mesh"
        ]
        number = len(self.plan.arguments)
        if len(names) + len(self.plan.forward) == number and self.plan.wrt:
            names += [f"g{i}" if len(self.plan.forward) > 1 else "g" for i in range(len(self.plan.forward))]
        if len(names) != number or set(names) & set(printer.NAMES):
            names = [f"x{i}" for i in range(number)]
        return names

    def folded(self, function: Any) -> Folded | None:
        """A function of the operation, folded for the plan's options; None if it can't be folded."""
        definition = tree_of(function)
        if definition is None:
            return None
        options = select_options(function, self.plan.options)
        known = {k: literal_known(v) for k, v in options.items() if is_literal(v)}
        if len(known) < len(options):
            return None
        return fold(function, definition, known, callee)

    def parameters(self, folded: Folded, function: Any) -> str:
        """The parameters of a folded function as source."""
        star = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_POSITIONAL]
        return ", ".join(f"*{n}" if n in star else n for n in folded.parameters)

    def data(self) -> Data:
        """The arrays with which the suite judges the case."""
        cell = self.case.cell
        given = cell.arguments(self.seed)
        if self.form.inputs == "counted":
            given = [count_up(a, x) for a, x in zip(self.plan.arguments, given, strict=True)]
        expected, bounds = cell.expected(given, self.form.u_factor)
        return Data(given, [np.asarray(e) for e in expected], bounds)


def count_up(argument: Argument, given: np.ndarray) -> np.ndarray:
    """1, 2, 3 ... in place of values that only have to be distinct; the given values if the fill or dtype needs
    them."""
    kind = dtype_of(argument.dtype)
    fits = given.size < 2**kind.digits and kind.kind in ("float", "int", "uint")
    if argument.fill.__name__ not in COUNTABLE or not fits:
        return given
    return np.arange(1, given.size + 1).astype(kind.numpy).reshape(given.shape)


def exact_when_counted(case: Case) -> bool:
    """Whether inputs of 1, 2, 3 ... keep every intermediate result exact, in any order of computation. The limit is the
    reference of the absolute values times the number of devices."""
    plan = case.plan
    if plan.judge != "exact":
        return plan.judge == "bits"
    given = case.cell.arguments(0)
    inputs = [count_up(a, x) for a, x in zip(plan.arguments, given, strict=True)]
    items: list[Any] = [*plan.results, *plan.arguments]
    largest = 2.0 ** min(dtype_of(item.dtype).digits for item in items)
    function = type(case.operation).gradient if plan.wrt else type(case.operation).reference
    found = call(function, [np.abs(exactly(x, "exact")) for x in inputs], plan.options)
    results = found if isinstance(found, (tuple, list)) else [found]
    return all(bool(np.all(np.abs(np.asarray(r)) * case.mesh.size <= largest)) for r in results)
