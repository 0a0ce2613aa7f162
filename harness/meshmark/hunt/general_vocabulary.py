# SPDX-License-Identifier: Apache-2.0
"""Draws operations that real code uses now and then, and the general operations of lax."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import INTS, MOST, Draw, Value, kind, start_sum
from meshmark.hunt.elementwise import ref
from meshmark.program_data.program import Node


@kind("reduce", weight=1)
def reduce_general(d: Draw) -> Node:
    """lax.reduce over some dimensions. XLA may use the start any number of times, so it is the operation's identity."""
    a = d.value(lambda v: v.dtype in ("float32", "int32"), 1)
    axes = sorted(d.random.sample(range(a.ndim), d.integer(1, a.ndim)))
    name, init = _at_rest(d, a)
    return Node("lax.reduce", (ref(a), init, {"name": f"lax.{name}"}, axes))


def _at_rest(d: Draw, a: Value) -> tuple[str, Any]:
    """(add, max or min; its identity, as the start)."""
    name = d.choice(["add", "max", "min"])
    if name != "add" and a.is_float:
        return name, {"float": "-inf" if name == "max" else "inf"}
    if name == "add":
        return name, start_sum(a)
    start = -(2**31) if name == "max" else 2**31 - 1
    return name, {"call": "jnp.array", "kwargs": {"object": start, "dtype": a.dtype}}


@kind("reduce", weight=0.6, continuous=False)
def selected(d: Draw) -> Node:
    """A reduction of those elements that a condition selects."""
    a = d.number(1)
    name = d.choice(["sum", "max", "min"])
    kwargs: dict[str, Any] = {"axis": d.axis(a), "where": Node("jnp.greater", (ref(a), d.integer(-2, 2)))}
    at = Node("jnp.where", (kwargs["where"], ref(a), 0 if name == "sum" else d.choice([-50, 50])))
    return Node(f"jnp.{name}", (at,), {"axis": kwargs["axis"]})


@kind("cumulative", weight=0.7, continuous=False)
def cumulative_signs(d: Draw) -> Node:
    """Cumulative products of signs, which stay exact."""
    a = d.number(1)
    return Node("lax.cumprod", (Node("jnp.sign", (ref(a),)),), {"axis": d.axis(a), "reverse": d.chance(0.4)})


@kind("window", weight=1)
def reduce_window_of_integers(d: Draw) -> Node:
    """A sum, maximum or minimum over windows, with paddings up to 3."""
    a = d.value(lambda v: v.dtype in ("int32", "float32"), 1)
    dims, strides, padding = [], [], []
    for n in a.shape:
        active = d.chance(0.6)
        size = d.integer(1, min(n, 4)) if active else 1
        dims.append(size)
        strides.append(d.choice([1, 1, 2, 3]) if active else 1)
        padding.append([d.integer(0, 3), d.integer(0, 3)] if active else [0, 0])
    name, init = _at_rest(d, a)
    kwargs = {"window_dimensions": dims, "window_strides": strides, "padding": padding}
    return Node("lax.reduce_window", (ref(a), init, {"name": f"lax.{name}"}), kwargs)


@kind("index", weight=1)
def segments(d: Draw) -> Node:
    """The sum, largest or smallest element of each segment. Ids out of bounds belong to no segment."""
    a = d.value(lambda v: v.dtype in ("float32", "int32"), 1)
    n = d.choice([2, 3, 4, 8])
    fill = {"kind": "ints", "low": d.choice([0, -1]), "high": n - d.choice([0, 1]), "seed": d.integer(0, 999)}
    ids = d.like((a.shape[0],), "int32", fill)
    name = d.choice(["segment_sum", "segment_max", "segment_min"])
    made = Node(f"jax.ops.{name}", (ref(a), ref(ids)), {"num_segments": n})
    return made if name == "segment_sum" else Node("jnp.clip", (made, -99, 99))


@kind("sort", weight=0.7, continuous=False)
def ordered_by_several(d: Draw) -> Node:
    """The order by two keys, or the first elements of a sorted dimension."""
    a = d.number(1)
    if d.chance(0.5):
        b = d.like(a.shape, a.dtype)
        return Node("jnp.lexsort", ([ref(a), ref(b)],), {"axis": d.axis(a)})
    axis = d.axis(a)
    return Node(
        "lax.slice_in_dim",
        (Node("jnp.sort", (ref(a),), {"axis": axis}), 0, d.integer(1, a.shape[axis])),
        {"axis": axis},
    )


@kind("sort", weight=0.7, continuous=False)
def distinct(d: Draw) -> Node:
    """The distinct elements, the count of each, or the indices of nonzero elements, in a result of fixed size."""
    a = d.value(lambda v: v.dtype in ("int32", "float32"), 1, 200)
    which = d.choice(["unique", "nonzero", "histogram"])
    if which == "unique":
        return Node("jnp.unique", (ref(a),), {"size": d.choice([4, 8]), "fill_value": 77})
    if which == "nonzero":
        return Node("jnp.nonzero", (ref(a),), {"size": d.choice([4, 8]), "fill_value": 0})
    return Node("jnp.bincount", (Node("jnp.abs", (Node("jnp.ravel", (ref(a),)),)),), {"length": 8})


@kind("edge", weight=1)
def differences(d: Draw) -> Node:
    """First or second differences of neighbours, with or without a prepended start; or halved central differences."""
    a = d.value(lambda v: v.dtype in ("float32", "int32"), 1)
    axis = d.axis(a, 3)
    if a.dtype == "float32" and d.chance(0.4):
        return Node("jnp.gradient", (ref(a),), {"axis": axis})
    kwargs: dict[str, Any] = {"axis": axis, "n": d.integer(1, 2)}
    if d.chance(0.5):
        kwargs["prepend"] = d.choice([0, 3])
    return Node("jnp.diff", (ref(a),), kwargs)


@kind("edge", weight=0.7)
def filled_diagonal(d: Draw) -> Node:
    """An array with its diagonal filled, or a matrix made from its diagonal."""
    a = d.number(1)
    if a.ndim == 2 and d.chance(0.6):
        return Node("jnp.fill_diagonal", (ref(a), d.choice([0, 5])), {"inplace": False})
    return Node("jnp.diag", (Node("jnp.ravel", (ref(d.number(1, 30)),)), d.integer(-1, 1)))


@kind("edge", weight=0.7)
def joined(d: Draw) -> Node:
    """A value concatenated with another one, which may have another sharding, behind or before it."""
    a = d.value(ndim=1, size=MOST // 2)
    axis = d.axis(a)
    shape = tuple(d.integer(1, 3) if k == axis else n for k, n in enumerate(a.shape))
    parts = [ref(a), ref(d.like(shape, a.dtype))]
    return Node("jnp.concatenate", (parts[:: d.choice([1, -1])],), {"axis": axis})


@kind("edge", weight=0.8)
def middle(d: Draw) -> Node:
    """A slice from the middle of one dimension. A negative start counts from the end."""
    a = d.value(ndim=1)
    axis = d.axis(a, 3)
    n = a.shape[axis]
    low = d.integer(0, n - 2)
    high = d.integer(low + 1, n)
    return Node("lax.slice_in_dim", (ref(a), low - n if low and d.chance(0.3) else low, high), {"axis": axis})


@kind("elementwise", weight=0.5)
def kept(d: Draw) -> Node:
    """An identity that blocks the compiler's optimizations or the derivative."""
    a = d.number()
    return Node(d.choice(["lax.optimization_barrier", "lax.stop_gradient"]), (ref(a),))


@kind("elementwise", weight=0.5, continuous=False)
def counted_bits(d: Draw) -> Node:
    """Counts of bits, shifts, remainders and quotients."""
    a = d.value(lambda v: v.dtype in INTS)
    which = d.choice(
        ["lax.population_count", "lax.clz", "jnp.remainder", "jnp.left_shift", "jnp.floor_divide"]
    )
    if which.startswith("lax."):
        return Node(which, (ref(a),))
    return Node(which, (ref(a), d.integer(1, 3)))


@kind("elementwise", weight=0.6)
def outer_sum(d: Draw) -> Node:
    """Each element combined with each element of the first row."""
    a = d.number(1, 50)
    last = Node("jnp.expand_dims", (ref(a), a.ndim))
    name = d.choice(["subtract", "maximum", "multiply"])
    row = Node("lax.index_in_dim", (ref(a), 0), {"axis": 0, "keepdims": False}) if a.ndim > 1 else ref(a)
    return Node(f"jnp.{name}", (last, Node("jnp.ravel", (row,))))


@kind("index", weight=1.2)
def gather_batched(d: Draw) -> Node:
    """lax.gather with a batching dimension, as vmap makes it from indexing."""
    a = d.number(2)
    k = d.integer(1, a.ndim - 1)
    count = d.choice([1, 2, 4])
    fill = {"kind": "ints", "low": -1, "high": a.shape[k], "seed": d.integer(0, 999)}
    indices = d.like((a.shape[0], count, 1), "int32", fill)
    sizes = [1 if i == 0 else d.integer(1, n) if i == k else n for i, n in enumerate(a.shape)]
    numbers = {
        "call": "lax.GatherDimensionNumbers",
        "kwargs": {
            "offset_dims": list(range(2, 1 + a.ndim)),
            "collapsed_slice_dims": [],
            "start_index_map": [k],
            "operand_batching_dims": [0],
            "start_indices_batching_dims": [0],
        },
    }
    return Node("lax.gather", (ref(a), ref(indices), numbers, sizes), {"mode": "clip"})


@kind("index", weight=1.2)
def scatter_batched(d: Draw) -> Node:
    """lax.scatter_add, scatter_max or scatter_min with a batching dimension."""
    a = d.number(2)
    k = d.integer(1, a.ndim - 1)
    count = d.choice([1, 2, 4])
    fill = {"kind": "ints", "low": -1, "high": a.shape[k], "seed": d.integer(0, 999)}
    indices = d.like((a.shape[0], count, 1), "int32", fill)
    sizes = [d.integer(1, n) if i == k else n for i, n in enumerate(a.shape)][1:]
    update = d.like((a.shape[0], count, *sizes), a.dtype)
    numbers = {
        "call": "lax.ScatterDimensionNumbers",
        "kwargs": {
            "update_window_dims": list(range(2, 1 + a.ndim)),
            "inserted_window_dims": [],
            "scatter_dims_to_operand_dims": [k],
            "operand_batching_dims": [0],
            "scatter_indices_batching_dims": [0],
        },
    }
    name = d.choice(["scatter_add", "scatter_max", "scatter_min", "scatter_add"])
    return Node(
        f"lax.{name}", (ref(a), ref(indices), ref(update), numbers), {"mode": d.choice(["clip", "fill"])}
    )


@kind("window", weight=1)
def correlated(d: Draw) -> Node:
    """The correlation of two vectors."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim == 1)
    b = d.like((d.integer(1, min(5, a.shape[0])),), "float32")
    return Node("jnp.correlate", (ref(a), ref(b)), {"mode": d.choice(["full", "same", "valid"])})


@kind("dot", weight=1)
def several_products(d: Draw) -> Node:
    """A product of three values, or of a value with itself."""
    a = d.value(lambda v: v.is_float and v.ndim in (2, 3), size=400)
    letters = "ab" if a.ndim == 2 else "zab"
    if d.chance(0.5):
        return Node(
            "jnp.einsum",
            (f"{letters},{letters.replace('a', 'c')}->{letters.replace('b', 'c')}", ref(a), ref(a)),
        )
    b = d.like((a.shape[-1], d.choice([2, 4, 8])), a.dtype)
    c = d.like((b.shape[1], d.choice([1, 2, 4])), a.dtype)
    return Node("jnp.einsum", (f"{letters},bd,de->{letters.replace('b', 'e')}", ref(a), ref(b), ref(c)))


@kind("shape", weight=0.6)
def rolled_axes(d: Draw) -> Node:
    """Dimensions merged into one, or an array above its own flip."""
    a = d.value(ndim=2)
    if d.chance(0.5):
        return Node("lax.collapse", (ref(a), 0, d.integer(1, a.ndim)))
    return Node("jnp.vstack", ([ref(a), Node("jnp.flip", (ref(a),), {"axis": 0})],))
