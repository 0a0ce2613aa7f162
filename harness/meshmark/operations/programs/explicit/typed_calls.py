# SPDX-License-Identifier: Apache-2.0
"""Running functions over Explicit axes by JAX's own types: which calls it accepts, and where their results lie.

JAX refuses a call over Explicit axes whose result has no obvious sharding, so a refusal alone is not a fault. The file
`explicit_refusals.tsv` has the calls that a release from 0.10.2 to 0.12.0.1 refuses on eight devices. A refusal of
another call there is a fault. On other numbers of devices other dimensions divide, so there a call may be refused only
if it is accepted where all arrays are whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import reason_of

REFUSALS = ("ShardingTypeError", "NotImplementedError", "ValueError", "TypeError")
"""The names of the exceptions by which JAX refuses the types of a call."""

LISTED_ON = 8
"""The number of devices of the listed refusals: which dimensions a mesh divides depends on it."""

Functions = Mapping[str, Callable[..., Any]]


def is_explicit(mesh: Any) -> bool:
    """Whether all axes of a mesh are Explicit."""
    return all(kind == AxisType.Explicit for kind in mesh.axis_types)


@functools.cache
def listed_refusals() -> frozenset[tuple[str, str]]:
    """The (name, placement) of the calls that JAX may refuse on eight devices."""
    text = files("meshmark.operations").joinpath("data/explicit_refusals.tsv").read_text(encoding="utf-8")
    lines = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return frozenset((name, where) for name, where, *_ in lines)


def _refusal(call: Callable[[], Any]) -> str:
    """Why JAX refuses the types of a call; "" if it does not. Raises any other error of the call."""
    try:
        call()
    except Exception as error:
        if type(error).__name__ not in REFUSALS:
            raise
        return reason_of(error)
    return ""


def _check_refused(functions: Functions, reasons: Mapping[str, str], where: str, placed: list[Any]) -> None:
    """RuntimeError if a call is refused that no release refuses on eight devices, or with whole arrays on another
    number of devices."""
    mesh = placed[0].sharding.mesh
    whole = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, P())) for x in placed]
    for name, reason in reasons.items():
        if reason and mesh.size == LISTED_ON:
            listed = (name, where) in listed_refusals()
            wrong(not listed, f"{name}, {where}, over Explicit axes is refused: {reason}"[:600])
        elif reason and (why := _refusal(functools.partial(jax.eval_shape, functions[name], *whole))):
            wrong(True, f"{name} of whole arrays over Explicit axes is refused: {why}"[:600])


def _accepted(functions: Functions, where: str, placed: list[Any], lowered: bool) -> Functions:
    """The functions that JAX traces, or lowers, with these arrays. RuntimeError for a refusal that no release has."""

    def reason(function: Callable[..., Any]) -> str:
        if lowered:
            return _refusal(lambda: jax.jit(function).lower(*placed))
        return _refusal(lambda: jax.eval_shape(function, *placed))

    reasons = {name: reason(function) for name, function in functions.items()}
    _check_refused(functions, reasons, where, placed)
    return {name: function for name, function in functions.items() if not reasons[name]}


def run_typed(functions: Functions, where: str, placed: list[Any]) -> dict[str, Any]:
    """The results of the functions that JAX accepts, by name, computed in one program.

    Raises RuntimeError if JAX refuses a function that it should accept, or if a result does not lie as its type says.
    """
    mesh = placed[0].sharding.mesh
    with jax.set_mesh(mesh):
        kept = _accepted(functions, where, placed, lowered=False)

        def all_of(*given: Any) -> dict[str, Any]:
            return {name: function(*given) for name, function in kept.items()}

        traced = jax.jit(all_of).trace(*placed)
        if _refusal(traced.lower):  # some types are refused only here
            kept = _accepted(kept, where, placed, lowered=True)
            traced = jax.jit(lambda *given: all_of(*given)).trace(*placed)
        found: dict[str, Any] = traced.lower().compile()(*placed)
    for name, types in traced.out_info.items():
        for result, kind in zip(jax.tree.leaves(found[name]), jax.tree.leaves(types), strict=True):
            if kind.sharding is None:  # a result that no argument reaches
                continue
            place = NamedSharding(mesh, kind.sharding.spec)
            lies = result.sharding.is_equivalent_to(place, result.ndim)
            text = f"{name}, {where}, has the type {kind.sharding.spec} and is placed as {result.sharding}"
            wrong(not lies, text)
    return found
