# SPDX-License-Identifier: Apache-2.0
"""Running functions under every placement of their arrays, and comparing the results with written answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.explicit.typed_calls import is_explicit, run_typed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.small_rules.comparing import expect

Members = Mapping[str, tuple[Callable[..., Any], Any]]
"""Name -> (a function of the arrays, its answer as NumPy arrays or a tree of them)."""

NUMBERS = (
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.float16,
    jax.numpy.bfloat16,
    np.float32,
)
"""The dtypes of numbers that all backends have."""

FAR = 1e-3
"""The largest difference in `hold_near`, as a share of the largest number of an answer."""


def placements(line: Any, grid: Any, arrays: tuple[np.ndarray, ...]) -> Iterator[tuple[str, list[Any]]]:
    """All arrays cut along their dimension k by all devices, for each k, and along two dimensions by both mesh axes. An
    array that has no such dimension, or one that does not divide, is whole there."""
    ranks = max(a.ndim for a in arrays)
    specs: list[tuple[Any, tuple[Any, ...]]] = [
        (line, (*(None for _ in range(k)), "d")) for k in range(ranks)
    ]
    specs.append((grid, ("y", "x")))
    for mesh, spec in specs:
        held = []
        for array in arrays:
            kept = [
                name if name and array.shape[k] and array.shape[k] % mesh.shape[name] == 0 else None
                for k, name in enumerate(spec[: array.ndim])
            ]
            held.append(jax.device_put(array, NamedSharding(mesh, P(*kept))))
        yield "cut as (" + ", ".join(str(s or "-") for s in spec) + ")", held


def results_of(members: Members, where: str, placed: list[Any]) -> Iterator[tuple[Any, np.ndarray, str]]:
    """Run all members in one program. Gives each result with its answer, and with the names of member and placement.

    Over Explicit axes only the members run whose types JAX accepts (see `explicit.typed_calls`). Raises RuntimeError if
    a member gives fewer or more results than its answer has.
    """
    functions = {name: function for name, (function, _) in members.items()}

    def all_of(*given: Any) -> dict[str, Any]:
        return {name: function(*given) for name, function in functions.items()}

    explicit = is_explicit(placed[0].sharding.mesh)
    found = jax.device_get(run_typed(functions, where, placed) if explicit else jax.jit(all_of)(*placed))
    for name, (_, answer) in members.items():
        if name not in found:
            continue
        seen, right = jax.tree.leaves(found[name]), jax.tree.leaves(answer)
        wrong(len(seen) != len(right), f"{name}, {where}: {len(seen)} results instead of {len(right)}")
        for one, other in zip(seen, right, strict=True):
            yield one, np.asarray(other), f"{name}, {where},"


def hold(
    line: Any, grid: Any, members: Members, *arrays: np.ndarray, most: float | None = None, last: bool = False
) -> None:
    """Compare each member's results with its answer, under every placement of the arrays.

    most: the largest relative error, in units of the last place of the answer's dtype. None: the results are exact.
    last: only the last placement, by both mesh axes, since smooth functions take long to compile.
    Raises RuntimeError with the member and the placement.
    """
    for where, placed in list(placements(line, grid, arrays))[-1 if last else 0 :]:
        for found, right, what in results_of(members, where, placed):
            compare(found, right, what, most)


def hold_near(line: Any, grid: Any, members: Members, *arrays: np.ndarray) -> None:
    """Compare as `hold` does, with products of precision "highest". A result may be off by FAR of the largest number
    of its answer, and its dtype is not compared. Raises RuntimeError with the member and the placement.
    """
    for where, placed in placements(line, grid, arrays):
        with jax.default_matmul_precision("highest"):
            for found, right, what in results_of(members, where, placed):
                compare_near(found, right, what)


def compare_near(found: Any, right: np.ndarray, what: str) -> None:
    """RuntimeError if a result has another shape than its answer, or is off by more than FAR of the answer's largest
    finite number. Infinities and NaN stand where the answer has them."""
    shape = np.shape(found)
    wrong(shape != right.shape, f"{what} has shape {shape} instead of {right.shape}")
    seen, right = 1 * np.asarray(found), 1 * right  # booleans as numbers
    finite = np.isfinite(right)
    largest = float(np.max(abs(right[finite]), initial=1e-6))
    with np.errstate(invalid="ignore"):
        near = abs(seen - right) <= FAR * largest
    same = (seen == right) | (np.isnan(seen) & np.isnan(right))
    wrong(not np.where(finite, near, same).all(), f"{what} is {found} instead of {right}"[:600])


def compare(found: Any, right: np.ndarray, what: str, most: float | None) -> None:
    """RuntimeError if a result is not the answer: to the bit but for signs of zeros and payloads of NaN, or within
    `most` units of the last place."""
    if most is None:
        expect(found, right, what)
        return
    seen = np.asarray(found)
    wrong(seen.dtype != right.dtype, f"{what} has dtype {seen.dtype} instead of {right.dtype}")
    wrong(seen.shape != right.shape, f"{what} has shape {seen.shape} instead of {right.shape}")
    kind = complex if right.dtype.kind == "c" else float
    one, other = seen.astype(kind), right.astype(kind)
    finite = np.isfinite(other)
    same = np.where(np.isnan(other), np.isnan(one), one == other)
    info = jax.numpy.finfo(right.dtype)
    with np.errstate(invalid="ignore"):
        near = abs(one - other) <= most * float(info.eps) * abs(other) + float(info.tiny)
    off = ~np.where(finite, near, same)
    if off.any():
        at = tuple(int(k) for k in np.argwhere(off)[0])
        wrong(True, f"{what} is {one[at]} instead of {other[at]} at {list(at)}, in {off.sum()} of {off.size}")


def mixed(shape: tuple[int, ...], below: int, step: int = 5) -> np.ndarray:
    """Whole numbers from 0 to below - 1, in an order without symmetry, as int64."""
    flat = np.arange(int(np.prod(shape, dtype=int)), dtype=np.int64)
    return ((flat * step + flat // 3 + flat // 7) % below).reshape(shape)
