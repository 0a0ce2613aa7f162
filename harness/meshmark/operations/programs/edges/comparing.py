# SPDX-License-Identifier: Apache-2.0
"""Compares functions of sharded arrays with written values, for the operation `function_edge`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from meshmark.operations.programs.forms.base import at
from meshmark.operations.programs.forms.collective_options import same_as

Edges = Mapping[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], Any]]
"""name -> (function, its arrays, the expected leaves)."""


def agree(mesh: Any, edges: Edges, *spec: Any, compare: Callable[..., None] | None = None) -> None:
    """Compare functions of arrays that are sharded by `spec`, compiled together and eager, with the expected leaves.

    compare: how, if not exactly. Products have the highest precision, so that no device rounds their factors."""
    placed = {n: [jax.device_put(g, at(mesh, *spec)) for g in given] for n, (_, given, _) in edges.items()}
    with jax.default_matmul_precision("highest"):
        compiled = jax.jit(lambda arrays: {n: f(*arrays[n]) for n, (f, _, _) in edges.items()})(placed)
        eager = {n: f(*placed[n]) for n, (f, _, _) in edges.items()}
    for name, (_, _, expected) in edges.items():
        for way, found in (("compiled", compiled[name]), ("eager", eager[name])):
            for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
                what = f"{name}, {way},"
                compare(one, other, what) if compare else same_as(np.asarray(one), other, what)


def rows_of(mesh: Any, a: str) -> int:
    """A number of rows that the axis divides, eight or more."""
    n: int = mesh.shape[a]
    return n * -(-8 // n)


def column(values: Any, rows: int, kind: Any) -> np.ndarray:
    """[rows, 2]: these values again and again, and in the second column from the end."""
    one = np.resize(np.array(values, kind), rows)
    return np.stack([one, one[::-1]], 1)
