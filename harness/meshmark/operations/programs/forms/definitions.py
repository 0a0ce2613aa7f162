# SPDX-License-Identifier: Apache-2.0
"""Functions of sharded arrays beside their definitions: one program has many functions, and each is compared with what
NumPy or SciPy gives in 64 bits. JAX itself requires SciPy. A function that is off by more than one part in a thousand
raises RuntimeError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from meshmark.operations.programs.forms.base import at
from meshmark.operations.programs.forms.options import wrong

Pairs = dict[str, tuple[Callable[..., Any], Callable[..., Any]]]
"""By name: a JAX function and its definition."""

FAR = 1e-3
"""The relative and the absolute tolerance. The errors of float32 and of its iterations stay far below it; a missed
element is far above."""


def close(found: Any, right: Any, what: str) -> None:
    """Raise RuntimeError if leaves differ in number or shape, or by more than FAR."""
    one, other = jax.tree.leaves(found), jax.tree.leaves(right)
    wrong(len(one) != len(other), f"{what} has {len(one)} results instead of {len(other)}")
    for mine, yours in zip(one, other, strict=True):
        mine, yours = np.asarray(mine), np.asarray(yours)
        wrong(mine.shape != yours.shape, f"{what} has the shape {mine.shape} instead of {yours.shape}")
        both = np.complex128 if mine.dtype.kind == "c" else np.float64
        near = np.isclose(mine.astype(both), yours.astype(both), rtol=FAR, atol=FAR, equal_nan=True)
        wrong(not near.all(), f"{what} is {mine[~near][:4]} instead of {yours[~near][:4]}")


def together(mesh: Any, pairs: Pairs, hosts: tuple[np.ndarray, ...], *spec: Any) -> None:
    """Compile functions of the same sharded arrays as one program, and compare each with its definition."""
    placed = [jax.device_put(h.astype(np.float32), at(mesh, *spec)) for h in hosts]
    run = jax.jit(lambda *y: {name: function(*y) for name, (function, _) in pairs.items()})
    found = run(*placed)
    wide = [h.astype(np.float32).astype(np.float64) for h in hosts]
    for name, (_, define) in pairs.items():
        close(found[name], define(*wide), name)


def points(mesh: Any, low: float = 0.1, high: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices [2n, 2n] of numbers between `low` and `high`, where n is the number of devices, or 2 if larger."""
    n = max(mesh.devices.size, 2)
    count = 4 * n * n
    first = low + (high - low) * ((np.arange(count) * 7) % count + 0.5) / count
    return first.reshape(2 * n, 2 * n), first[::-1].reshape(2 * n, 2 * n).T


def matrices(count: int, low: float, high: float) -> np.ndarray:
    """[count, 4, 4]: random matrices with numbers between `low` and `high`, none of them singular."""
    return np.random.default_rng(5).uniform(low, high, (count, 4, 4))


def sides(mesh: Any) -> tuple[Any, Any]:
    """The spec of a matrix: rows over the last mesh axis, columns over the first one if there are several."""
    return mesh.axis_names[-1], mesh.axis_names[0] if len(mesh.axis_names) > 1 else None


def named(module: Any, other: Any, *names: str) -> Pairs:
    """The functions of these names in two modules, for the names that the release has."""
    return {n: (getattr(module, n), getattr(other, n)) for n in names if hasattr(module, n)}


def regular(np_: Any, y: Any) -> Any:
    """A stack of square matrices, made far from singular."""
    return y + 6 * np_.eye(y.shape[-1], dtype=y.dtype)


def each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of one matrix, applied to each matrix of a stack."""
    return lambda y: np.stack([function(m) for m in y])


def takes(function: Callable[..., Any], *options: str) -> bool:
    """Whether a function has all these options in this release."""
    return set(options) <= set(inspect.signature(function).parameters)


def each_way(mesh: Any, pairs: Pairs, hosts: tuple[np.ndarray, ...]) -> None:
    """`together`, with the matrices sharded along both dimensions, and along the second one over all axes."""
    together(mesh, pairs, hosts, *sides(mesh))
    together(mesh, pairs, hosts, None, mesh.axis_names)
