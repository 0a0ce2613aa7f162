# SPDX-License-Identifier: Apache-2.0
"""Draws operations that read or write at indices: constants or values."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import MOST, Draw, Miss, Value, kind
from meshmark.hunt.elementwise import ref
from meshmark.program_data.program import Node


@kind("index", weight=1.5)
def dynamic_slice(d: Draw) -> Node:
    """A slice with a start that may be clamped."""
    a = d.value(ndim=1)
    sizes = [d.integer(max(1, n - 3), n) if d.chance(0.5) else d.integer(1, n) for n in a.shape]
    return Node("lax.dynamic_slice", (ref(a), _starts(d, a, sizes), sizes))


def _starts(d: Draw, a: Value, sizes: list[int]) -> list[Any]:
    """One start index per dimension: a constant or an int32 value."""
    starts: list[Any] = []
    for n, s in zip(a.shape, sizes, strict=True):
        starts.append(0 if n == s and d.chance(0.7) else start_of(d, n))
    return starts


def start_of(d: Draw, n: int) -> Any:
    """One start index for a dimension of size n: an existing value (such as a loop counter), an input or a constant."""
    there = [v for v in d.values if v.dtype == "int32" and not v.ndim]
    if there and d.chance(0.4):
        return ref(d.choice(there))
    if d.fresh and d.chance(0.7):
        return ref(d.like((), "int32", {"kind": "data", "data": [d.integer(-2, n + 1)]}))
    return d.integer(0, n)


@kind("index", weight=1.5)
def dynamic_update_slice(d: Draw) -> Node:
    """An update with a start that may be clamped."""
    a = d.value(ndim=1)
    fit = [
        v
        for v in d.values
        if v.dtype == a.dtype
        and v.ndim == a.ndim
        and all(n <= m for n, m in zip(v.shape, a.shape, strict=True))
        and v.shape != a.shape
    ]
    if fit and d.chance(0.5):
        b = d.choice(fit)
    else:
        b = d.like(tuple(d.integer(1, n) if d.chance(0.6) else n for n in a.shape), a.dtype)
    return Node("lax.dynamic_update_slice", (ref(a), ref(b), _starts(d, a, list(b.shape))))


def find_indices(
    d: Draw, n: int, shape: tuple[int, ...], *, outside: bool = False, distinct: bool = False
) -> Any:
    """Integers that index a dimension of size n: an existing value, or an input. outside: some may be out of bounds.
    distinct: no two are equal."""
    if distinct:
        if shape[-1] > n:
            raise Miss
        numbers = d.permutation(n)[: shape[-1]]
        return ref(d.like(shape[-1:], "int32", {"kind": "data", "data": numbers}))
    fit = [v for v in d.values if v.dtype == "int32" and v.shape == shape and 0 < v.below <= n]
    if fit and d.chance(0.5):
        return ref(d.choice(fit))
    low, high = (-n - 1, n + 2) if outside else (0, n - 1)
    fill = {"kind": "ints", "low": low, "high": high, "seed": d.integer(0, 999)}
    return ref(d.like(shape, "int32", fill))


@kind("index", weight=1.5)
def take(d: Draw) -> Node:
    """Rows by index, with any mode for indices out of bounds."""
    a = d.number(1, MOST // 2)
    axis = d.axis(a)
    mode = d.choice(["clip", "fill", "wrap", "fill", "promise_in_bounds"])
    shape = tuple(d.choice([[3], [4], [8], [2, 4], [5], []]))
    outside = mode != "promise_in_bounds" and d.chance(0.5)
    kwargs: dict[str, Any] = {"axis": axis} if mode == "promise_in_bounds" else {"axis": axis, "mode": mode}
    if mode == "fill":
        kwargs["fill_value"] = d.choice([0, 9])
    return Node("jnp.take", (ref(a), find_indices(d, a.shape[axis], shape, outside=outside)), kwargs)


@kind("index", weight=1.2)
def take_along_axis(d: Draw) -> Node:
    """One or several elements per row."""
    a = d.number(1)
    axis = d.axis(a)
    shape = tuple(d.choice([1, 2, n]) if k == axis else n for k, n in enumerate(a.shape))
    return Node("jnp.take_along_axis", (ref(a), find_indices(d, a.shape[axis], shape)), {"axis": axis})


@kind("index", weight=0.8)
def one_hot(d: Draw) -> Node:
    """One-hot rows of integers."""
    a = d.value(lambda v: v.dtype == "int32", size=400)
    return Node("nn.one_hot", (ref(a), d.choice([3, 4, 8])))


def _index(d: Draw, a: Value) -> list[Any]:
    """An index of slices, integers and arrays of integers."""
    made: list[Any] = []
    arrays = 0
    for n in a.shape:
        which = d.random.random()
        if which < 0.3:
            made.append({"slice": [None, None, None]})
        elif which < 0.7:
            low = d.choice([None, 1, 2, -3, -1])
            high = d.choice([None, n, -1, n - 1])
            step = d.choice([None, None, 2, 3, -1])
            made.append({"slice": [None, None, -1]} if step == -1 else {"slice": [low, high, step]})
        elif which < 0.85 or arrays:
            made.append(d.integer(-n, n - 1))
        else:
            arrays = 1
            made.append(find_indices(d, n, (d.choice([2, 3, 4, 8]),), distinct=True))
    return made


@kind("index", weight=1.5)
def getitem(d: Draw) -> Node:
    """Basic and advanced indexing."""
    a = d.value(ndim=1)
    return Node("getitem", (ref(a), _index(d, a)))


@kind("index", weight=2)
def at_number(d: Draw) -> Node:
    """An update of indexed elements by a number. No index occurs twice, so the result does not depend on an order."""
    a = d.number(1)
    name = d.choice(["set", "add", "multiply", "min", "max", "set"])
    return Node(f"at.{name}", (ref(a), _index(d, a), d.choice([1, 2, 5])))


@kind("index", weight=1.5)
def shift_set(d: Draw) -> Node:
    """Elements set from their neighbours."""
    a = d.number(1)
    axis = d.axis(a, 3)
    k = d.integer(1, 2)
    low, high = {"slice": [None, -k, None]}, {"slice": [k, None, None]}
    to, source = (low, high) if d.chance(0.5) else (high, low)
    full: Any = {"slice": [None, None, None]}
    index = [*([full] * axis), to]
    n = a.shape[axis]
    low_, high_ = (k, n) if source is high else (0, n - k)
    start = [low_ if i == axis else 0 for i in range(a.ndim)]
    stop = [high_ if i == axis else m for i, m in enumerate(a.shape)]
    # the slice is a separate operation, which the generator adds first
    part = Node("lax.slice", (ref(a), start, stop))
    return Node(f"at.{d.choice(['set', 'set', 'add'])}", (ref(a), index, part))


@kind("index", weight=1.5)
def scatter(d: Draw) -> Node:
    """Rows added, or combined otherwise, at indices. A repeated index counts each time."""
    a = d.number(1)
    name = d.choice(["add", "add", "min", "max", "multiply"])
    n = a.shape[0]
    count = d.choice([2, 3, 4, 8])
    indices = find_indices(d, n, (count,), outside=d.chance(0.4))
    update = d.like((count, *a.shape[1:]), a.dtype)
    kwargs = {"mode": d.choice(["drop", "clip", "fill"])} if d.chance(0.6) else {}
    return Node(f"at.{name}", (ref(a), indices, ref(update)), kwargs)


@kind("index", weight=1)
def scatter_set(d: Draw) -> Node:
    """Rows set at distinct indices."""
    a = d.number(1)
    count = d.choice([k for k in (1, 2, 3, 4, 8) if k <= a.shape[0]])
    indices = find_indices(d, a.shape[0], (count,), distinct=True)
    update = d.like((count, *a.shape[1:]), a.dtype)
    kwargs = {"unique_indices": True} if d.chance(0.4) else {}
    return Node("at.set", (ref(a), indices, ref(update)), kwargs)


@kind("index", weight=1)
def segment_sum(d: Draw) -> Node:
    """Sums by segment."""
    a = d.number(1)
    n = d.choice([2, 3, 4, 8])
    ids = find_indices(d, n, (a.shape[0],))
    return Node("jax.ops.segment_sum", (ref(a), ids), {"num_segments": n})


@kind("index", weight=1.5)
def gather_general(d: Draw) -> Node:
    """lax.gather of windows at clipped or filled starts."""
    a = d.number(1)
    k = d.axis(a)
    count = d.choice([2, 3, 4, 8])
    sizes = [d.integer(1, n) if i == k else d.choice([n, n, max(1, n - 1)]) for i, n in enumerate(a.shape)]
    collapse = sizes[k] == 1 and d.chance(0.5)
    indices = find_indices(d, a.shape[k], (count, 1), outside=d.chance(0.6))
    offset = list(range(1, 1 + a.ndim - collapse))
    numbers = {
        "call": "lax.GatherDimensionNumbers",
        "kwargs": {
            "offset_dims": offset,
            "collapsed_slice_dims": [k] if collapse else [],
            "start_index_map": [k],
        },
    }
    kwargs: dict[str, Any] = {"mode": d.choice(["clip", "clip", "fill"])}
    if kwargs["mode"] == "fill":
        kwargs["fill_value"] = 0
    return Node("lax.gather", (ref(a), indices, numbers, sizes), kwargs)


@kind("index", weight=1.5)
def scatter_general(d: Draw) -> Node:
    """lax.scatter_add, scatter_max or scatter_min of windows at clipped or dropped starts."""
    a = d.number(1)
    k = d.axis(a)
    count = d.choice([1, 2, 3, 4])
    sizes = [d.integer(1, n) if i == k else n for i, n in enumerate(a.shape)]
    indices = find_indices(d, a.shape[k], (count, 1), outside=d.chance(0.6))
    update = d.like((count, *sizes), a.dtype)
    numbers = {
        "call": "lax.ScatterDimensionNumbers",
        "kwargs": {
            "update_window_dims": list(range(1, 1 + a.ndim)),
            "inserted_window_dims": [],
            "scatter_dims_to_operand_dims": [k],
        },
    }
    name = d.choice(["scatter_add", "scatter_max", "scatter_min", "scatter_add"])
    return Node(f"lax.{name}", (ref(a), indices, ref(update), numbers), {"mode": d.choice(["clip", "fill"])})


@kind("index", weight=1)
def gather_points(d: Draw) -> Node:
    """lax.gather of windows whose starts have two indices each."""
    a = d.number(2)
    dims = sorted(d.permutation(a.ndim)[:2])
    count = d.choice([1, 2, 3, 4, 8])
    sizes = [d.integer(1, n) if i in dims else n for i, n in enumerate(a.shape)]
    gone = [i for i in dims if sizes[i] == 1 and d.chance(0.5)]
    outside = d.chance(0.5)
    indices = find_indices(d, min(a.shape[i] for i in dims), (count, 2), outside=outside)
    numbers = {
        "call": "lax.GatherDimensionNumbers",
        "kwargs": {
            "offset_dims": list(range(1, 1 + a.ndim - len(gone))),
            "collapsed_slice_dims": gone,
            "start_index_map": dims,
        },
    }
    return Node("lax.gather", (ref(a), indices, numbers, sizes), {"mode": "clip"})


@kind("index", weight=1)
def scatter_points(d: Draw) -> Node:
    """lax.scatter_add, scatter_min or scatter_max of windows whose starts have two indices each."""
    a = d.number(2)
    dims = sorted(d.permutation(a.ndim)[:2])
    count = d.choice([1, 2, 3, 4, 8])
    sizes = [d.integer(1, n) if i in dims else n for i, n in enumerate(a.shape)]
    gone = [i for i in dims if sizes[i] == 1 and d.chance(0.5)]
    indices = find_indices(d, min(a.shape[i] for i in dims), (count, 2), outside=d.chance(0.5))
    left = [n for i, n in enumerate(sizes) if i not in gone]
    update = d.like((count, *left), a.dtype)
    numbers = {
        "call": "lax.ScatterDimensionNumbers",
        "kwargs": {
            "update_window_dims": list(range(1, 1 + len(left))),
            "inserted_window_dims": gone,
            "scatter_dims_to_operand_dims": dims,
        },
    }
    name = d.choice(["scatter_add", "scatter_add", "scatter_min", "scatter_max"])
    return Node(f"lax.{name}", (ref(a), indices, ref(update), numbers), {"mode": d.choice(["clip", "fill"])})


@kind("index", weight=1)
def put_along_axis(d: Draw) -> Node:
    """One element per row set."""
    a = d.number(1)
    axis = d.axis(a)
    shape = tuple(1 if k == axis else n for k, n in enumerate(a.shape))
    update = d.like(shape, a.dtype)
    args = (ref(a), find_indices(d, a.shape[axis], shape), ref(update), axis)
    return Node("jnp.put_along_axis", args, {"inplace": False})


@kind("index", weight=0.7, continuous=False)
def places(d: Draw) -> Node:
    """The indices of true elements, or the count of each integer."""
    a = d.value(lambda v: v.dtype in ("int32", "bool"), 1)
    if a.dtype == "int32":
        low = Node("jnp.clip", (ref(a), 0, 9))
        return Node("jnp.bincount", (Node("jnp.ravel", (low,)),), {"length": d.choice([4, 8, 10])})
    return Node("jnp.flatnonzero", (ref(a),), {"size": d.choice([2, 4, 8]), "fill_value": 0})


@kind("index", weight=0.8)
def dynamic_window(d: Draw) -> Node:
    """The dynamic in_dim functions of lax: one or several rows read or written at one start."""
    a = d.value(ndim=1)
    axis = d.axis(a)
    n = a.shape[axis]
    start = start_of(d, n)
    if d.chance(0.4):
        return Node("lax.dynamic_index_in_dim", (ref(a), start), {"axis": axis, "keepdims": d.chance(0.5)})
    size = d.integer(1, n)
    if d.chance(0.5):
        return Node("lax.dynamic_slice_in_dim", (ref(a), start, size), {"axis": axis})
    b = d.like(tuple(size if k == axis else m for k, m in enumerate(a.shape)), a.dtype)
    return Node("lax.dynamic_update_slice_in_dim", (ref(a), ref(b), start), {"axis": axis})
