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
import jax.numpy as jnp
import numpy as np

from meshmark.operations.programs.forms.base import at
from meshmark.operations.programs.forms.options import wrong

Pairs = dict[str, tuple[Callable[..., Any], Callable[..., Any]]]
"""By name: a JAX function and its definition."""

FAR = 1e-3
"""The relative and the absolute tolerance. The errors of float32 and of its iterations stay far below it; a missed
element is far above."""


def close(found: Any, right: Any, what: str) -> None:
    """Raise RuntimeError if leaves differ in number, shape or dtype, or by more than FAR. A definition in 64 bits
    stands for the same kind of number in 32 bits."""
    one, other = jax.tree.leaves(found), jax.tree.leaves(right)
    wrong(len(one) != len(other), f"{what} has {len(one)} results instead of {len(other)}")
    for mine, yours in zip(one, other, strict=True):
        mine, yours = np.asarray(mine), np.asarray(yours)
        wrong(mine.shape != yours.shape, f"{what} has the shape {mine.shape} instead of {yours.shape}")
        dtype = narrowed(yours.dtype)
        wrong(mine.dtype != dtype, f"{what} has dtype {mine.dtype} instead of {dtype}")
        both = np.complex128 if "c" in (mine.dtype.kind, yours.dtype.kind) else np.float64
        near = np.isclose(mine.astype(both), yours.astype(both), rtol=FAR, atol=FAR, equal_nan=True)
        if not near.all():
            wrong(True, f"{what} is {mine[~near][:4]} instead of {yours[~near][:4]}{_factor(mine, yours)}")


def _factor(mine: np.ndarray, yours: np.ndarray) -> str:
    """What all numbers are multiplied by, if it is one whole number: sums that count replicas have such a factor."""
    if not np.any(yours):
        return ""
    factor = round(float(np.real(mine.sum() / yours.sum()))) if yours.sum() else 0
    same = factor > 1 and np.allclose(mine, factor * yours, rtol=FAR, atol=FAR)
    return f": all of it is {factor} times too large" if same else ""


def narrowed(dtype: np.dtype) -> np.dtype:
    """What JAX has in place of a dtype of 64 bits."""
    wide = {"float64": "float32", "complex128": "complex64", "int64": "int32", "uint64": "uint32"}
    return np.dtype(wide.get(dtype.name, dtype))


def together(mesh: Any, pairs: Pairs, hosts: tuple[np.ndarray, ...], *spec: Any) -> None:
    """Compile functions of the same sharded arrays as one program, and compare each with its definition."""
    placed = [jax.device_put(h.astype(np.float32), at(mesh, *spec)) for h in hosts]
    run = jax.jit(lambda *y: {name: function(*y) for name, (function, _) in pairs.items()})
    with jax.default_matmul_precision("highest"):  # else products on a GPU or a TPU have fewer bits
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


def each_alone(mesh: Any, pairs: Pairs, hosts: tuple[np.ndarray, ...]) -> None:
    """`each_way` with a program per function. All that is wrong is told in one error, so that no failure hides
    another."""
    failed = []
    for name, pair in pairs.items():
        try:
            each_way(mesh, {name: pair}, hosts)
        except (RuntimeError, ValueError) as error:
            failed.append(f"{name}: {str(error).splitlines()[0]}")
    wrong(bool(failed), "; ".join(failed))


def each_way(mesh: Any, pairs: Pairs, hosts: tuple[np.ndarray, ...]) -> None:
    """`together`, with the matrices sharded along both dimensions, and along the second one over all axes."""
    together(mesh, pairs, hosts, *sides(mesh))
    together(mesh, pairs, hosts, None, mesh.axis_names)


WIDE: dict[str, Any] = {"preferred_element_type": np.float32, "precision": "highest"}
"""The options of a product of narrow numbers that is to be exact."""


def quarters(v: np.ndarray) -> np.ndarray:
    """Four times the numbers, as small whole ones. `halves` has the same in JAX."""
    return np.floor(v * 4)


def halves(v: Any) -> Any:
    """Four times the numbers, as small whole ones in bfloat16, which has each of them exactly."""
    return jnp.floor(v * 4).astype(jnp.bfloat16)


def positive(np_: Any, m: Any) -> Any:
    """A symmetric positive 4x4 matrix made of a matrix, or a stack of them made of a stack."""
    return m @ np_.swapaxes(m, -1, -2) + 2 * np_.eye(4, dtype=m.dtype)


def holes(np_: Any, v: Any) -> Any:
    """The numbers, with NaN in place of those above 2.5."""
    return np_.where(v > 2.5, np_.nan, v)
