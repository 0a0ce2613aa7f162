# SPDX-License-Identifier: Apache-2.0
"""Draws sets, partial sorts, selections whose result has a fixed size, the other scatters, and other indexing."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import Draw, Miss, kind
from meshmark.hunt.elementwise import ref
from meshmark.hunt.indexing import find_indices, start_of
from meshmark.program_data.program import Node


@kind("sort", continuous=False, weight=0.7)
def partial_sort(d: Draw) -> Node:
    """A partition, its order, the smallest or largest elements along any dimension, or pairs sorted by keys."""
    if d.chance(0.1):
        return Node("jnp.sort_complex", (ref(d.value(lambda v: v.dtype in ("complex64", "float32"), 1)),))
    a = d.number(1)
    axis = d.axis(a)
    which = d.choice(["jnp.partition", "jnp.argpartition", "lax.sort_key_val", "jnp.top_k", "lax.top_k"])
    if which == "lax.sort_key_val":
        return Node(which, (ref(a), ref(d.like(a.shape, a.dtype))), {"dimension": axis})
    if which == "lax.top_k":
        return Node(which, (ref(a), d.integer(1, min(3, a.shape[axis]))), {"axis": axis})
    if which == "jnp.top_k":
        return Node(which, (ref(a), d.integer(1, min(3, a.shape[axis]))), {"axis": axis})
    return Node(which, (ref(a), d.integer(0, a.shape[axis] - 1)), {"axis": axis})


@kind("sort", continuous=False, weight=0.8)
def sets(d: Draw) -> Node:
    """Operations on sets of numbers, in results of fixed size."""
    a = d.value(lambda v: v.dtype in ("int32", "float32"), 1, 100)
    b = d.value(lambda v: v.dtype == a.dtype, 1, 100)
    which = d.choice(
        [
            *("union1d", "intersect1d", "setdiff1d", "setxor1d", "isin", "isin"),
            *("unique_values", "unique_counts", "unique_inverse", "unique_all"),
        ]
    )
    if which == "isin":
        kwargs = {
            "invert": d.chance(0.4),
            "method": d.choice(["auto", "sort", "compare_all", "binary_search"]),
        }
        return Node("jnp.isin", (ref(a), ref(b)), kwargs)
    fill: dict[str, Any] = {"size": d.choice([4, 8]), "fill_value": 77}
    if which.startswith("unique"):
        return Node(f"jnp.{which}", (ref(a),), fill)
    return Node(f"jnp.{which}", (ref(a), ref(b)), fill)


@kind("index", continuous=False, weight=0.8)
def compressed(d: Draw) -> Node:
    """The elements or rows that a condition selects, in results of fixed size."""
    a = d.number(1)
    which = d.choice(["compress", "extract", "argwhere", "argwhere"])
    test = Node("jnp.greater", (ref(a), d.integer(-1, 2)))
    size = d.choice([2, 4, 8])
    if which == "argwhere":
        return Node("jnp.argwhere", (test,), {"size": size, "fill_value": 0})
    if which == "extract":
        return Node("jnp.extract", (test, ref(a)), {"size": min(size, a.size), "fill_value": 7})
    axis = d.axis(a)
    row = Node("jnp.less", (Node("jnp.arange", (a.shape[axis],)), start_of(d, a.shape[axis])))
    size = d.integer(1, a.shape[axis])
    return Node("jnp.compress", (row, ref(a)), {"axis": axis, "size": size, "fill_value": 7})


@kind("index", weight=1.2)
def plain_scatter(d: Draw) -> Node:
    """lax.scatter of windows at starts that do not overlap; scatter_sub and scatter_mul at any starts."""
    a = d.number(1)
    k = d.axis(a)
    name = d.choice(["scatter", "scatter", "scatter", "scatter_sub", "scatter_mul"])
    count = d.choice([n for n in (1, 2, 3, 4, 8) if n <= a.shape[k]])
    sizes = [1 if i == k else n for i, n in enumerate(a.shape)]
    update = d.like((count, *sizes), a.dtype)
    rows = find_indices(d, a.shape[k], (count,), distinct=True) if name == "scatter" else None
    if rows is not None:
        indices: Any = Node("jnp.expand_dims", (rows, 1))
    else:
        indices = find_indices(d, a.shape[k], (count, 1), outside=d.chance(0.5))
    numbers = {
        "call": "lax.ScatterDimensionNumbers",
        "kwargs": {
            "update_window_dims": list(range(1, 1 + a.ndim)),
            "inserted_window_dims": [],
            "scatter_dims_to_operand_dims": [k],
        },
    }
    kwargs: dict[str, Any] = {"mode": d.choice(["clip", "fill"])}
    if rows is not None and d.chance(0.5):
        kwargs = {"unique_indices": True, "mode": d.choice(["fill", "promise_in_bounds"])}
    return Node(f"lax.{name}", (ref(a), indices, ref(update), numbers), kwargs)


@kind("index", weight=0.6)
def scatter_of_function(d: Draw) -> Node:
    """lax.scatter_apply, or x.at[index].apply: a function applied to elements at distinct indices."""
    a = d.number(1)
    count = d.choice([n for n in (1, 2, 3, 4) if n <= a.shape[0]])
    rows = find_indices(d, a.shape[0], (count,), distinct=True)
    function = {"name": d.choice(["jnp.negative", "jnp.square"])}
    if d.chance(0.5):
        return Node("at.apply", (ref(a), rows, function))
    numbers = {
        "call": "lax.ScatterDimensionNumbers",
        "kwargs": {
            "update_window_dims": list(range(1, a.ndim)),
            "inserted_window_dims": [0],
            "scatter_dims_to_operand_dims": [0],
        },
    }
    kwargs = {"update_shape": [count, *a.shape[1:]], "unique_indices": True}
    return Node("lax.scatter_apply", (ref(a), Node("jnp.expand_dims", (rows, 1)), function, numbers), kwargs)


@kind("index", weight=0.8)
def put(d: Draw) -> Node:
    """jnp.put at distinct places of the flat array, or one row written at a start that may be clamped."""
    a = d.number(1)
    if d.chance(0.5):
        axis = d.axis(a)
        row = d.like(tuple(1 if k == axis else n for k, n in enumerate(a.shape)), a.dtype)
        start = start_of(d, a.shape[axis])
        return Node("lax.dynamic_update_index_in_dim", (ref(a), ref(row), start), {"axis": axis})
    count = d.choice([n for n in (1, 2, 4) if n <= a.size])
    places = find_indices(d, a.size, (count,), distinct=True)
    kwargs = {"mode": d.choice(["clip", "wrap"]), "inplace": False}
    return Node("jnp.put", (ref(a), places, ref(d.like((count,), a.dtype))), kwargs)


@kind("index", weight=0.6, continuous=False)
def flat_places(d: Draw) -> Node:
    """Indices of several dimensions as one index of the flat array, or the other way round."""
    a = d.value(lambda v: v.dtype == "int32", 1, 200)
    sizes = [d.choice([2, 3, 4]) for _ in range(d.integer(2, 3))]
    small = Node("jnp.bitwise_and", (ref(a), 7))
    if d.chance(0.5):
        return Node("jnp.unravel_index", (small, sizes))
    kwargs = {"mode": d.choice(["clip", "wrap"])}
    return Node("jnp.ravel_multi_index", ([small, *([ref(a)] * (len(sizes) - 1))], sizes), kwargs)


@kind("index", weight=0.7)
def index_take(d: Draw) -> Node:
    """lax.index_take: rows by one index per leading dimension."""
    a = d.number(2)
    count = d.choice([2, 4, 8])
    places = [find_indices(d, a.shape[k], (count,)) for k in range(2)]
    return Node("lax.index_take", (ref(a), places, [0, 1]))


@kind("index", weight=0.5)
def elements_with_mode(d: Draw) -> Node:
    """x.at[index].get with a mode for indices out of bounds, or jnp.take of the flat array."""
    a = d.number(1)
    if d.chance(0.5):
        indices = find_indices(d, a.size, (d.choice([3, 4, 8]),), outside=True)
        return Node("jnp.take", (ref(a), indices), {"mode": d.choice(["clip", "wrap"])})
    indices = find_indices(d, a.shape[0], (d.choice([3, 4, 8]),), outside=True)
    kwargs: dict[str, Any] = {"mode": d.choice(["clip", "fill"])}
    if kwargs["mode"] == "fill":
        kwargs["fill_value"] = 9
    return Node("at.get", (ref(a), indices), kwargs)


@kind("index", weight=0.5)
def segment_products(d: Draw) -> Node:
    """Products of the signs in each segment, with the options of the segment functions."""
    a = d.number(1)
    n = d.choice([2, 3, 4])
    ids = find_indices(d, n, (a.shape[0],))
    kwargs: dict[str, Any] = {"num_segments": n}
    if d.chance(0.5):
        kwargs["bucket_size"] = d.choice([2, 4])
    if a.dtype == "bool":
        raise Miss
    small = Node("jnp.clip", (ref(a), 1, 2))
    return Node("jax.ops.segment_prod", (small, ids), kwargs)
