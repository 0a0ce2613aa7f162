# SPDX-License-Identifier: Apache-2.0
"""Unreduced arrays in programs over Explicit axes: functions of a sum of which each device holds its own part.

A function may have a rule for such a sum, or refuse it. Its value after a `reshard` to P() is that of the plain program
in NumPy. `docs/findings.md` says which rules of JAX are wrong: each of them has a form of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import at, explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import reason_of

REASONS = r"unreduced|reduced axes|reduced along|reduced on|\{U:|non-linear"
"""What the message of a refusal says: that the array is unreduced, or that the function is not linear."""

IN_THE_CODE = r"Using \*?pspec.* is dangerous|in `__r?add__` of"
"""Errors of JAX's own code about a spec, into which a function without a rule for unreduced arrays runs."""


def require_unreduced_types() -> None:
    """Raise Missing if the release has no unreduced types."""
    if "unreduced" not in dir(P()):
        raise Missing("this release has no unreduced types")


def parts_of(mesh: Any, a: str, *shape: int) -> np.ndarray:
    """One block of small whole numbers for each device along an axis, of which the sums have both signs, zeros, and a
    largest that is not the sum of the largest."""
    n = mesh.shape[a]
    parts = (np.arange(n * np.prod(shape, dtype=int)) * 7 % 11).astype(np.float32).reshape(n, *shape) - 5
    parts[0] -= parts.sum(axis=0) - (np.arange(np.prod(shape, dtype=int)) % 5 - 2).reshape(shape)
    return parts


def sum_apart(parts: Any, axis: str, **options: Any) -> Any:
    """The sum of blocks over their first dimension, which lies over an axis: each device keeps its own part."""
    ones = jnp.ones(parts.shape[0], parts.dtype, out_sharding=P(axis))
    entries = (None,) * (parts.ndim - 1)
    return jnp.tensordot(ones, parts, 1, out_sharding=P(*entries, unreduced={axis}), **options)


def reshard_result(mesh: Any, a: str, function: Callable[[Any], Any], parts: np.ndarray) -> Any:
    """function(u) after a reshard to P(), in one compiled program, where u is the unreduced sum of the blocks."""
    m = explicit(mesh)

    def program(blocks):
        found = function(sum_apart(blocks, a))
        return jax.tree.map(lambda v: reshard(v, P()), found)

    with jax.set_mesh(m):
        return jax.tree.map(np.asarray, jax.jit(program)(jax.device_put(parts, at(m, a))))


def check_same(found: Any, right: Any, what: str, n: int) -> None:
    """RuntimeError if an array differs from what NumPy gives. The message says how: by a factor, by a number, or that
    each such element is true. n: the devices along the axis, whose number tells a part that is counted on each."""
    found, right = np.asarray(found), np.asarray(right)
    wrong(found.shape != right.shape, f"{what} has the shape {found.shape} instead of {right.shape}")
    there = ~np.isclose(found, right, rtol=2e-4, atol=2e-4, equal_nan=True)
    if not there.any():
        return
    seen, wanted = found[there], right[there]
    how = "in no simple way"
    if seen.dtype == bool:
        how = "each true" if seen.all() else how
    elif wanted.all() and np.allclose(seen, wanted * (seen[0] / wanted[0])):
        how = f"each {seen[0] / wanted[0]:g} times"
    elif np.allclose(seen - wanted, seen[0] - wanted[0]):
        how = f"each off by {seen[0] - wanted[0]:g}"
    wrong(
        True,
        f"{what}: {len(seen)} of {right.size} elements differ, {how}, over {n} devices: the first is {seen[0]}"
        f" instead of {wanted[0]}",
    )


SHAPE = (4, 6)
"""The shape of the unreduced array that each function of the tables takes. Its dtype is float32."""

Pairs = Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]
"""By name: a function of an unreduced array, and the same in NumPy of the sum."""


def check_taken(mesh: Any, a: str, pairs: Pairs) -> None:
    """RuntimeError for the first function that gives another value than NumPy. Each must take an unreduced array."""
    require_unreduced_types()
    parts = parts_of(mesh, a, *SHAPE)
    for name, (function, plain) in pairs.items():
        found, right = reshard_result(mesh, a, function, parts), plain(parts.sum(axis=0))
        check_same(found, right, f"{name} of an unreduced array", mesh.shape[a])


def check_right_or_refused(mesh: Any, a: str, pairs: Pairs) -> None:
    """RuntimeError for the first function that gives another value than NumPy, or is refused for another reason than
    that its array is unreduced."""
    require_unreduced_types()
    parts = parts_of(mesh, a, *SHAPE)
    for name, (function, plain) in pairs.items():
        try:
            found = reshard_result(mesh, a, function, parts)
        except Exception as error:
            reason = f"{type(error).__name__}: {reason_of(error)}"
            wrong(
                not re.search(REASONS, reason),
                f"{name} of an unreduced array is refused for another reason: {reason[:300]}",
            )
            continue
        check_same(found, plain(parts.sum(axis=0)), f"{name} of an unreduced array", mesh.shape[a])


def check_refused_by_rule(mesh: Any, a: str, functions: Mapping[str, Callable[[Any], Any]]) -> None:
    """RuntimeError if an error of JAX's own code refuses functions. A rule should refuse them."""
    require_unreduced_types()
    parts, without, said = parts_of(mesh, a, *SHAPE), [], ""
    for name, function in functions.items():
        try:
            reshard_result(mesh, a, function, parts)
        except Exception as error:
            if re.search(IN_THE_CODE, str(error)):
                without.append(name)
                said = said or f"{type(error).__name__}: {reason_of(error)}"
    wrong(without, f"{', '.join(without)}: refused by an error of JAX's code and not by a rule: {said[:200]}")
