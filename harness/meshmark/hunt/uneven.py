# SPDX-License-Identifier: Apache-2.0
"""Draws operations after a cut. A sharded array that loses or gains a few rows has shards of uneven sizes, which the
compiler pads. Sorts, sums, windows and indices over them must not use the padding."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import MOST, Draw, Miss, Value, kind, start_sum
from meshmark.hunt.elementwise import ref
from meshmark.hunt.idioms import rows
from meshmark.program_data.program import Node


def _cut(d: Draw, a: Value, axis: int) -> tuple[Node, int]:
    """(a value with fewer or more elements along a dimension, their number)."""
    n = a.shape[axis]
    which = d.integer(0, 4)
    if which == 0:
        return rows(a, axis, 0, n - 1), n - 1
    if which == 1:
        return rows(a, axis, 1, n), n - 1
    if which == 2 and n > 4:
        low, high = d.integer(1, 2), d.integer(0, 1)
        return rows(a, axis, low, n - high), n - high - low
    if which == 3:
        return Node("jnp.concatenate", ([ref(a), rows(a, axis, 0, 1)],), {"axis": axis}), n + 1
    start = d.integer(0, 1)
    return rows(a, axis, start, n, 2), (n - start + 1) // 2


def _placed(d: Draw, node: Node, ndim: int) -> Node:
    """The node, or a constraint that replicates it."""
    if d.fresh and d.chance(0.3):
        return Node("constrain", (node, [[] for _ in range(ndim)]))
    return node


@kind("uneven", weight=8)
def uneven_along(d: Draw) -> Node:
    """Sorts, cumulative operations, reductions and shifts along the cut dimension."""
    a = d.number(1)
    axis = d.axis(a, 3)
    part, n = _cut(d, a, axis)
    part = _placed(d, part, a.ndim) if d.chance(0.2) else part
    name = d.choice(["cum", "cum", "sort", "rev", "reduce", "roll", "diff", "concatenate"])
    if name == "cum":
        op = d.choice(["cumsum", "cumsum", "cummax", "cummin"])
        node = Node(f"lax.{op}", (part,), {"axis": axis, "reverse": d.chance(0.4)})
    elif name == "sort":
        node = Node("lax.sort", (part,), {"dimension": axis})
    elif name == "rev":
        node = Node("lax.rev", (part, [axis]))
    elif name == "reduce":
        return Node(f"jnp.{d.choice(['sum', 'max', 'min', 'sum'])}", (part,), {"axis": axis})
    elif name == "roll":
        node = Node("jnp.roll", (part, d.integer(-2, n)), {"axis": axis})
    elif name == "diff":
        node = Node("jnp.diff", (part,), {"axis": axis})
    else:
        node = Node("jnp.concatenate", ([part, rows(a, axis, 0, 1)],), {"axis": axis})
    return _placed(d, node, a.ndim)


@kind("uneven", weight=6)
def uneven_indices(d: Draw) -> Node:
    """Rows read or written at indices, after a cut of the indices."""
    a = d.number(1, MOST // 2)
    n = a.shape[0]
    units = [size for _, size in d.axes]
    count = d.choice(units) * d.choice([2, 3, 4])
    if d.fresh is None or count > 40:
        raise Miss
    fill = {"kind": "ints", "low": 0, "high": n - 1, "seed": d.integer(0, 999)}
    index = d.fresh((count,), "int32", fill)
    cut, left = _cut(d, index, 0)
    name = d.choice(["add", "take", "segment", "rows", "max", "count"])
    if name == "take":
        return Node("jnp.take", (ref(a), cut), {"axis": 0})
    if name == "segment":
        return Node("jax.ops.segment_sum", (Node("jnp.take", (ref(a), cut), {"axis": 0}), cut, n))
    if name == "rows":
        update = d.like((left, *a.shape[1:]), a.dtype)
        return Node("at.add", (ref(a), cut, ref(update)))
    if name == "count":
        return Node("jnp.bincount", (cut,), {"length": n})
    return Node(f"at.{name}", (ref(a), cut, d.choice([1, 2, 5])))


@kind("uneven", weight=4)
def uneven_windows(d: Draw) -> Node:
    """Sums over windows of the cut dimension."""
    a = d.floating(1)
    axis = d.axis(a, 4)
    part, n = _cut(d, a, axis)
    size = d.integer(2, 3)
    if n < size:
        raise Miss
    kwargs: dict[str, Any] = {
        "window_dimensions": [size if k == axis else 1 for k in range(a.ndim)],
        "window_strides": [d.integer(1, size) if k == axis else 1 for k in range(a.ndim)],
        "padding": d.choice(["VALID", "SAME"]),
    }
    return _placed(d, Node("lax.reduce_window", (part, start_sum(a), {"name": "lax.add"}), kwargs), a.ndim)


@kind("uneven", weight=4)
def uneven_product(d: Draw) -> Node:
    """A product of a cut matrix with its transpose, over the cut dimension or the other one."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim == 2 and max(v.shape) <= 40)
    axis = d.axis(a, 3)
    part, _ = _cut(d, a, axis)
    turned = Node("jnp.swapaxes", (part, 0, 1))
    return Node("jnp.matmul", (part, turned) if d.chance(0.6) else (turned, part))
