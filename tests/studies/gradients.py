# SPDX-License-Identifier: Apache-2.0
"""Finds the cases that differentiate what an operation without a gradient of its own computes.

    python -m tests.studies.gradients    # about seven minutes

It makes docs/gradients.tsv again. The file has a row for each primitive that such an operation gives floats to and
takes floats from: the operation, the primitive, a kind and a detail (docs/gradients.py). While a case is traced, the
rules of derivatives of JAX note the primitive that they belong to. So a row names a case only if the primitive is
differentiated in it, and not only evaluated.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax
from jax import numpy as jnp
from jax._src.interpreters import ad

from docs import gradients, package
from meshmark.judge.programs import Program, x64
from meshmark.operations.base import Operation
from meshmark.operations.cases import Case, cases
from meshmark.operations.selection import CAPABILITIES, Selection
from tests.studies import names

MODES = ("auto", "explicit", "manual")
PROFILES = ("smoke", "standard", "full")

CALLS = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "checkpoint",
    "remat2",
    "scan",
    "while",
    "cond",
    "shard_map",
)
"""The primitives that hold a program, and compute nothing themselves. So do those of custom derivatives."""

DERIVATIVES = (
    *("decoder_training", "staged_decoder_training", "tutorial_training", "data_parallel", "micro_batches"),
    *(
        "embedding_micro_batches",
        "dropout_gradient",
        "cumulative_pullback",
        "window_maxima_tangent",
        "stencil",
    ),
)
"""The operations whose programs take derivatives, in part or as a whole. A test holds that each does."""


@contextmanager
def differentiated() -> Iterator[set[str]]:
    """Collect the names of the primitives whose derivatives are taken in this context.

    JAX keeps the derivative of a function that it has seen, so the caches are cleared first.
    """
    found: set[str] = set()

    def noting(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            found.add(name)
            return rule(*args, **kwargs)

        return noted

    jax.clear_caches()
    with ExitStack() as stack:
        for rules in (ad.primitive_jvps, getattr(ad, "primitive_linearizations", {})):
            watched = {primitive: noting(primitive.name, rule) for primitive, rule in rules.items()}
            stack.enter_context(patch.dict(rules, watched))
        yield found


def derivatives(case: Case) -> set[str]:
    """The primitives that a case differentiates; none if it raises."""
    with differentiated() as found:
        try:
            names.run(case)
        except Exception as error:
            print(f"{case.id}: {type(error).__name__}", file=sys.stderr)
            return set()
        return found


def holds_a_program(name: str) -> bool:
    """Whether a primitive of this name holds a program."""
    return name in CALLS or name.startswith("custom_")


def primitives(case: Case) -> set[str]:
    """The primitives of a case's program that take floats and give floats."""
    found: set[str] = set()

    def walk(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            if holds_a_program(name):
                held = jax.tree.leaves([*equation.params.values()], is_leaf=lambda v: hasattr(v, "eqns"))
                for inner in held:
                    if hasattr(inner, "eqns"):
                        walk(getattr(inner, "jaxpr", inner))
            elif all(map(any_float, (equation.invars, equation.outvars))):
                found.add(name)

    program = Program(case, tuple(jax.devices()))
    with x64(case.cell), program.context():
        walk(program.jitted().trace(*program.structs()).jaxpr.jaxpr)
    return found


def any_float(variables: Iterable[Any]) -> bool:
    """Whether a variable of a program is an array of floats or complex numbers."""
    return any(jnp.issubdtype(getattr(v.aval, "dtype", int), jnp.inexact) for v in variables)


def takes_derivatives(operation: Operation) -> bool:
    """Whether the module of an operation calls a transformation that differentiates. It is quicker than tracing."""
    source = inspect.getsource(sys.modules[type(operation).__module__])
    own = getattr(operation, "differentiated", False) or operation.name.endswith("_gradient")
    return own or bool(re.search(r"grad\(|jvp\(|linearize\(|linear_transpose\(|hessian\(|jac\w+\(", source))


def candidates(
    chosen: Callable[[Operation], bool], modes: Sequence[str] = MODES, profiles: Sequence[str] = PROFILES
) -> Iterator[Case]:
    """One case per choice of options of a chosen operation and mode, those of the first profile first."""
    done = set()
    for profile in profiles:
        for case in cases(Selection(profile, capabilities=tuple(CAPABILITIES)), 8):
            options = case.cell.request.variant.options
            what = tuple(option for option in options if option[0] not in names.PLACES)
            key = (case.operation.name, what, case.mode)
            if case.mode in modes and key not in done and chosen(case.operation):
                done.add(key)
                yield case


def kind_of(primitive: str) -> str:
    """The kind of a primitive that no case is known to differentiate."""
    for known, rule in ad.primitive_jvps.items():
        if known.name == primitive:
            return "zero" if isinstance(rule, partial) and rule.func is ad.zero_jvp else "not covered"
    return "none"


def covered(modes: Sequence[str] = MODES, profiles: Sequence[str] = PROFILES) -> dict[str, str]:
    """The first case of these modes and profiles that differentiates a primitive, by primitive."""
    found: dict[str, str] = {}
    for case in candidates(takes_derivatives, modes, profiles):
        for primitive in derivatives(case):
            found.setdefault(primitive, case.id)
    return found


def operations() -> list[str]:
    """The operations that need a row: without a gradient of their own, and without a reason that their plan gives."""
    reasons = gradients.REASONS.values()
    return [row.name for row in package.coverage() if row.reasons.get("gradient") in reasons]


def rows() -> list[gradients.Row]:
    """The rows of the file: operations in the order of the table, then primitives by name."""
    wanted, first = operations(), {**covered(("host",), PROFILES[:2]), **covered()}
    own: dict[str, set[str]] = {name: set() for name in wanted}
    deriving: dict[str, str] = {}
    for case in candidates(lambda operation: operation.name in own):
        name = case.operation.name
        if name in DERIVATIVES:
            if name not in deriving and derivatives(case):
                deriving[name] = case.id
        else:
            own[name] |= primitives(case)
    made = [
        gradients.Row(name, "derivative", deriving[name])
        if name in deriving
        else gradients.Row(name, "operation", " ".join(sorted(own[name])) or "-")
        for name in wanted
    ]
    for primitive in sorted(set().union(*own.values())):
        kind = kind_of(primitive)
        covers = kind == "not covered" and primitive in first
        made.append(gradients.Row(primitive, "case" if covers else kind, first[primitive] if covers else "-"))
    return made


def main() -> None:
    """Write the file again."""
    made = rows()
    text = "".join(f"{row.name}\t{row.kind}\t{row.detail}\n" for row in made)
    gradients.PATH.write_text(text, encoding="utf-8")
    for kind in gradients.PRIMITIVES:
        print(f"{sum(row.kind == kind for row in made)} primitives: {kind}")


if __name__ == "__main__":
    main()
