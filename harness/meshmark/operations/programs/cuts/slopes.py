# SPDX-License-Identifier: Apache-2.0
"""Gradients of the calls of `calls`, for arrays that are cut along each dimension in turn. The answers are
differences of NumPy's results in double precision.

The gradient is that of the sum of w * f(arrays), where w has small numbers without symmetry. The numbers of each array
are far from equal and far from the steps of rounding functions. So moving one of them by H either changes no order, or
the function has no gradient that a case could hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshmark.operations.programs.cuts.calls import COLUMNS, GROUPS, Call
from meshmark.operations.programs.cuts.running import Members, hold_near, mixed

H = 2.0**-16
"""The step of a difference: so small that no number crosses a step of a rounding function, and large enough that double
precision leaves ten digits."""


def _arrays(n: int) -> dict[str, np.ndarray]:
    """The arrays of the calls, for n devices: as in `calls`, but with numbers that no step H makes equal."""
    rows = 2 * max(n, 2)  # some calls need three rows
    order = mixed((rows, COLUMNS), rows * COLUMNS, 5).ravel().argsort(kind="stable").argsort(kind="stable")
    a = (order.reshape(rows, COLUMNS) * 0.125 - 0.0625 * rows * COLUMNS + 0.03).astype(np.float32)
    line = mixed((rows,), rows, 3).argsort(kind="stable").argsort(kind="stable")
    m = mixed((rows, COLUMNS), 3, 7) > 0
    m[:, 0] = True
    m[:2] = True
    return {
        "a": a,
        "b": ((np.roll(a, 5) - a.min() + 1.01) * 0.1297).astype(np.float32),
        "v": (0.75 * line - 0.31 * rows + 0.04).astype(np.float32),
        "s": (1.5 * np.arange(rows) - 6.93 + 0.25 * (np.arange(rows) % 3)).astype(np.float32),
        "i": (mixed((rows,), 2 * rows, 7) - rows).astype(np.int32),
        "m": m,
        "c": (a / 4 + 1j * np.roll(a, 7) / 4).astype(np.complex64),
        "u": mixed((rows, COLUMNS), 256, 37).astype(np.uint8),
        "q": (mixed((COLUMNS, COLUMNS), 37, 3) * 0.17 - 3).astype(np.float32),
    }


MOVED = ("a", "b", "v", "s", "q")
"""The arrays by which gradients are taken: those of real numbers."""


class _Read(dict):  # type: ignore[type-arg]
    """A dictionary that knows which of its names were read."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        super().__init__(arrays)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)


def _leaves(found: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


def _weights(leaves: list[np.ndarray]) -> list[np.ndarray]:
    """Small numbers for each result that has a gradient; zeros for integers and truths."""
    return [
        (mixed(leaf.shape, 9, 7) - 4).astype(np.float32) * (leaf.dtype.kind in "fc") / 4 for leaf in leaves
    ]


def _weighted(xp: Any, leaves: list[Any], weights: list[np.ndarray]) -> Any:
    """The sum that is differentiated. Of a complex number both parts count."""
    total = 0.0
    for leaf, w in zip(leaves, weights, strict=True):
        if not w.any():
            continue
        total = total + (w * xp.real(leaf)).sum()
        if xp.iscomplexobj(leaf):
            total = total + (w[..., ::-1] * xp.imag(leaf)).sum()
    return total


def slopes_of(call: Call, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The gradient by each array that the call reads, by differences; None if its results have no gradient.

    A call that is not finite there raises FloatingPointError."""
    exact = {k: v.astype(np.float64) if k in MOVED else v for k, v in arrays.items()}
    exact["c"] = arrays["c"].astype(np.complex128)
    read = _Read(exact)
    first = _leaves(call(np, read))
    weights = _weights(first)
    names = [name for name in MOVED if name in read.names]
    if not names or not any(w.any() for w in weights):
        return None
    found = {}
    for name in names:
        slope = np.zeros(exact[name].size)
        for k in range(slope.size):
            ends = []
            for step in (H, -H):
                moved = exact[name].copy()
                moved.flat[k] += step
                ends.append(_weighted(np, _leaves(call(np, {**exact, name: moved})), weights))
            slope[k] = (ends[0] - ends[1]) / (2 * H)
        found[name] = slope.reshape(exact[name].shape).astype(np.float32)
    if not all(np.isfinite(v).all() for v in found.values()):
        raise FloatingPointError("a gradient that is not finite")
    return found


def members(calls: Mapping[str, Call], arrays: Mapping[str, np.ndarray]) -> Members:
    """The gradient of each call that has one, with its answer."""
    names = list(arrays)

    def of(call: Call, by: tuple[str, ...], weights: list[np.ndarray]) -> Callable[..., Any]:
        def slope(*given: Any) -> Any:
            held = dict(zip(names, given, strict=True))

            def total(moved: Mapping[str, Any]) -> Any:
                return _weighted(jnp, jax.tree.leaves(call(jnp, {**held, **moved})), weights)

            return jax.grad(total)({name: held[name] for name in by})

        return slope

    found: dict[str, tuple[Callable[..., Any], Any]] = {}
    with np.errstate(all="ignore"):
        for name, call in calls.items():
            right = slopes_of(call, arrays)
            if right is not None:
                weights = _weights(_leaves(call(np, arrays)))
                found[f"gradient of {name}"] = (of(call, tuple(right), weights), right)
    return found


UNHELD = {
    "histogram2d": "the edges of its bins are two of its numbers",
    "nextafter": "JAX has no derivative of it before 0.12",
}
"""Calls whose gradient no difference gives, and why."""


def slopes_form_of(calls: Mapping[str, Call]) -> Callable[..., None]:
    """A form that compares the gradients of these calls with differences of NumPy's results, under each placement."""
    held = {name: call for name, call in calls.items() if name not in UNHELD}

    def run(line, grid):
        """The gradients of the calls of one group, under each placement."""
        arrays = _arrays(line.size)
        hold_near(line, grid, members(held, arrays), *arrays.values())

    return run


CUT_SLOPES: dict[str, Callable[..., None]] = {
    **{f"slopes_{name}": slopes_form_of(calls) for name, calls in GROUPS.items()},
}
