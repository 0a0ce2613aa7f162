# SPDX-License-Identifier: Apache-2.0
"""Draws patterns that real code writes in several operations: shifts, halos, stencils, caches, blocks, masks.

Most kinds read one value more than once. So a partitioner, or a compiler that works in place, must keep the old
elements while it computes the new ones.
"""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import MOST, Draw, Value, kind
from meshmark.hunt.elementwise import ref
from meshmark.hunt.indexing import start_of
from meshmark.program_data.program import Node


def rows(a: Value, axis: int, low: int, high: int, stride: int = 1) -> Node:
    """The elements from low to high - 1 along a dimension, with this stride."""
    start = [low if k == axis else 0 for k in range(a.ndim)]
    stop = [high if k == axis else n for k, n in enumerate(a.shape)]
    strides = [[stride if k == axis else 1 for k in range(a.ndim)]] if stride > 1 else []
    return Node("lax.slice", (ref(a), start, stop, *strides))


def along(axis: int, index: Any) -> list[Any]:
    """An index that selects `index` along one dimension, and everything along the dimensions before it."""
    return [*([{"slice": [None, None, None]}] * axis), index]


def index_along(a: Value, axis: int) -> Node:
    """The int32 index of each element along a dimension."""
    return Node("lax.broadcasted_iota", ("int32", list(a.shape), axis))


def _shifted(d: Draw, a: Value, axis: int, k: int) -> tuple[Node, Any]:
    """(the value with elements set from those k places before or behind, the index of the k elements left over)."""
    n = a.shape[axis]
    if d.chance(0.5):
        moved = Node("at.set", (ref(a), along(axis, {"slice": [None, -k, None]}), rows(a, axis, k, n)))
        return moved, along(axis, -1 if k == 1 and d.chance(0.5) else {"slice": [n - k, None, None]})
    moved = Node("at.set", (ref(a), along(axis, {"slice": [k, None, None]}), rows(a, axis, 0, n - k)))
    return moved, along(axis, 0 if k == 1 and d.chance(0.5) else {"slice": [None, k, None]})


@kind("idiom", weight=2)
def shift_and_fill(d: Draw) -> Node:
    """Elements set from their neighbours. Those at the end are set, added to or multiplied."""
    a = d.number(1)
    axis = d.axis(a, 3)
    moved, left = _shifted(d, a, axis, d.integer(1, 2))
    name = d.choice(["set", "set", "add", "multiply"])
    return Node(f"at.{name}", (moved, left, d.choice([0, 1, 5])))


@kind("idiom", weight=1.5)
def updates(d: Draw) -> Node:
    """Two or three updates of slices of one array, with its own slices or with numbers."""
    a = d.number(1)
    axis = d.axis(a, 3)
    n = a.shape[axis]
    made: Any = ref(a)
    for _ in range(d.integer(2, 3)):
        size = d.integer(1, n - 1)
        to, source = d.integer(0, n - size), d.integer(0, n - size)
        update: Any = rows(a, axis, source, source + size) if d.chance(0.5) else d.choice([1, 2, 5])
        name = d.choice(["set", "set", "add", "max"])
        made = Node(f"at.{name}", (made, along(axis, {"slice": [to, to + size, None]}), update))
    return made


@kind("idiom", weight=2)
def moved_within(d: Draw) -> Node:
    """A slice written to another position of its own array. The starts are constants or values."""
    a = d.value(ndim=1)
    axis = d.axis(a, 2)
    n = a.shape[axis]
    size = d.integer(1, n)
    source, to = start_of(d, n), start_of(d, n)
    part = Node("lax.dynamic_slice_in_dim", (ref(a), source, size), {"axis": axis})
    return Node("lax.dynamic_update_slice_in_dim", (ref(a), part, to), {"axis": axis})


@kind("idiom", weight=1.5)
def interleaved(d: Draw) -> Node:
    """Every second element updated with the next one, or a value interleaved with its negative."""
    a = d.number(1, MOST // 2)
    axis = d.axis(a, 2)
    n = a.shape[axis] // 2 * 2
    if d.chance(0.5):
        odd = rows(a, axis, 1, n, 2)
        index = along(axis, {"slice": [0, n, 2]})
        return Node(f"at.{d.choice(['set', 'add'])}", (ref(a), index, odd))
    both = Node("jnp.stack", ([ref(a), Node("jnp.negative", (ref(a),))],), {"axis": axis + 1})
    return Node("jnp.reshape", (both, [2 * m if k == axis else m for k, m in enumerate(a.shape)]))


@kind("idiom", weight=1)
def swapped(d: Draw) -> Node:
    """Two rows swapped."""
    a = d.value(ndim=1)
    axis = d.axis(a, 2)
    i, j = d.permutation(a.shape[axis])[:2]
    one = Node("at.set", (ref(a), along(axis, i), Node("getitem", (ref(a), along(axis, j)))))
    return Node("at.set", (one, along(axis, j), Node("getitem", (ref(a), along(axis, i)))))


@kind("idiom", weight=1.5)
def shift(d: Draw) -> Node:
    """A shift that fills with zeros, by a pad, a concatenation, or a roll and a mask."""
    a = d.number(1)
    axis = d.axis(a, 2)
    n = a.shape[axis]
    k = d.integer(1, min(3, n - 1))
    which = d.choice(["pad", "negative pad", "concatenate", "mask"])
    zero: Any = {"call": "jnp.array", "kwargs": {"object": 0, "dtype": a.dtype}}
    left = d.chance(0.5)
    ends = [0, k] if left else [k, 0]
    if which == "pad":
        part = rows(a, axis, k, n) if left else rows(a, axis, 0, n - k)
        return Node("lax.pad", (part, zero, [[*(ends if i == axis else [0, 0]), 0] for i in range(a.ndim)]))
    if which == "negative pad":
        ends = [-k, k] if left else [k, -k]
        return Node("lax.pad", (ref(a), zero, [[*(ends if i == axis else [0, 0]), 0] for i in range(a.ndim)]))
    if which == "concatenate":
        zeros = Node("jnp.zeros_like", (rows(a, axis, 0, k),))
        parts = [rows(a, axis, k, n), zeros] if left else [zeros, rows(a, axis, 0, n - k)]
        return Node("jnp.concatenate", (parts,), {"axis": axis})
    rolled = Node("jnp.roll", (ref(a), -k if left else k), {"axis": axis})
    keep = Node("jnp.less", (index_along(a, axis), n - k)) if left else None
    keep = keep or Node("jnp.greater_equal", (index_along(a, axis), k))
    return Node("jnp.where", (keep, rolled, 0))


@kind("idiom", weight=1.5)
def halo(d: Draw) -> Node:
    """Rows of the other end added before or behind, or both: the halo of a ring."""
    a = d.value(ndim=1, size=MOST // 2)
    axis = d.axis(a, 2)
    n = a.shape[axis]
    k = d.integer(1, min(3, n))
    parts = [rows(a, axis, n - k, n), ref(a), rows(a, axis, 0, k)]
    parts = parts[: d.integer(2, 3)] if d.chance(0.6) else parts[1:]
    return Node("jnp.concatenate", (parts,), {"axis": axis})


@kind("idiom", weight=1.5)
def stencil(d: Draw) -> Node:
    """Neighbours combined, inside an array or around a ring."""
    a = d.number(1)
    axis = d.axis(a, 3)
    n = a.shape[axis]
    if d.chance(0.4):
        sides = [Node("jnp.roll", (ref(a), k), {"axis": axis}) for k in (1, -1)]
        return Node("jnp.subtract", (Node("jnp.add", (sides[0], sides[1])), ref(a)))
    sides = [rows(a, axis, 0, n - 2), rows(a, axis, 2, n)]
    both = Node(f"jnp.{d.choice(['add', 'subtract', 'maximum'])}", (sides[0], sides[1]))
    if d.chance(0.5):
        return Node("jnp.subtract", (both, rows(a, axis, 1, n - 1)))
    return Node("at.add", (ref(a), along(axis, {"slice": [1, n - 1, None]}), both))


@kind("idiom", weight=1.5)
def cache(d: Draw) -> Node:
    """A row written to a cache. The rows up to it are masked, and may be summed or multiplied."""
    a = d.value(lambda v: v.is_float, 2)
    axis = d.integer(0, a.ndim - 1)
    n = a.shape[axis]
    size = d.integer(1, min(2, n))
    row = d.like(tuple(size if k == axis else m for k, m in enumerate(a.shape)), a.dtype)
    at = start_of(d, n)
    full = Node("lax.dynamic_update_slice_in_dim", (ref(a), ref(row), at), {"axis": axis})
    masked = Node("jnp.where", (Node("jnp.less_equal", (index_along(a, axis), at)), full, 0))
    if d.chance(0.4):
        return masked
    if d.chance(0.5):
        return Node("jnp.sum", (masked,), {"axis": axis})
    letters = "abcde"[: a.ndim]
    names = f"{letters},{letters}->{letters.replace(letters[axis], '')}"
    return Node("jnp.einsum", (names, masked, full))


@kind("idiom", weight=1)
def masked(d: Draw) -> Node:
    """The elements on one side of a bound along a dimension, with a constant elsewhere."""
    a = d.number(1)
    axis = d.axis(a, 2)
    test = Node(
        f"jnp.{d.choice(['less', 'greater_equal'])}", (index_along(a, axis), start_of(d, a.shape[axis]))
    )
    return Node("jnp.where", (test, ref(a), d.choice([0, -9])))


@kind("idiom", weight=1)
def moving_sum(d: Draw) -> Node:
    """Sums of windows, as differences of a cumulative sum."""
    a = d.value(lambda v: v.dtype in ("float32", "int32"), 1)
    axis = d.axis(a, 3)
    n = a.shape[axis]
    k = d.integer(1, n - 1)
    low = Node("lax.cumsum", (rows(a, axis, 0, n - k),), {"axis": axis})
    whole = Node("lax.cumsum", (ref(a),), {"axis": axis})
    high = Node("lax.slice_in_dim", (whole, k, n), {"axis": axis})
    return Node("jnp.subtract", (high, low))


@kind("idiom", weight=1, continuous=False)
def ordered_by(d: Draw) -> Node:
    """A value in the order that sorts another one."""
    a = d.number(1)
    axis = d.axis(a)
    b = d.like(a.shape, d.choice([a.dtype, "float32"]))
    order = Node("jnp.argsort", (ref(a),), {"axis": axis, "stable": True})
    return Node("jnp.take_along_axis", (ref(b), order), {"axis": axis})


@kind("idiom", weight=1.5)
def blocks(d: Draw) -> Node:
    """Blocks of a dimension reduced; or the result also subtracted from the elements, as in blockwise quantization."""
    a = d.number(1)
    axis = d.axis(a, 2)
    n = a.shape[axis]
    k = d.choice([k for k in range(1, n + 1) if n % k == 0])
    split = Node("jnp.reshape", (ref(a), [*a.shape[:axis], n // k, k, *a.shape[axis + 1 :]]))
    name = d.choice(["max", "sum", "min"])
    over = d.choice([axis, axis + 1])
    if d.chance(0.5):
        return Node(f"jnp.{name}", (split,), {"axis": over})
    whole = Node(f"jnp.{name}", (split,), {"axis": over, "keepdims": True})
    return Node("jnp.reshape", (Node("jnp.subtract", (split, whole)), list(a.shape)))


@kind("idiom", weight=1)
def rearranged(d: Draw) -> Node:
    """A dimension split, transposed and perhaps merged again: space to depth, heads, a shuffle of channels."""
    a = d.value(ndim=1)
    axis = d.axis(a, 4)
    n = a.shape[axis]
    k = d.choice([k for k in range(2, n) if n % k == 0])
    split = Node("jnp.reshape", (ref(a), [*a.shape[:axis], k, n // k, *a.shape[axis + 1 :]]))
    turned = Node("jnp.swapaxes", (split, axis, d.integer(0, a.ndim)))
    return Node("jnp.reshape", (turned, list(a.shape))) if d.chance(0.5) else turned


@kind("idiom", weight=1)
def normalized(d: Draw) -> Node:
    """The elements minus the maximum, minimum or sum along a dimension."""
    a = d.number(1)
    name = d.choice(["max", "sum", "min"])
    whole = Node(f"jnp.{name}", (ref(a),), {"axis": d.axis(a), "keepdims": True})
    return Node("jnp.subtract", (ref(a), whole))


@kind("idiom", weight=1.2)
def looked_up(d: Draw) -> Node:
    """Rows of a table by indices, as a product with one-hot rows; or these rows added to the table again."""
    table = d.value(lambda v: v.is_float and v.ndim == 2 and v.shape[0] <= 16)
    n = table.shape[0]
    shape = tuple(d.choice([[4], [8], [2, 4], [3]]))
    fill = {"kind": "ints", "low": 0, "high": n - 1, "seed": d.integer(0, 999)}
    ids = d.like(shape, "int32", fill)
    hot = Node("nn.one_hot", (ref(ids), n), {"dtype": table.dtype})
    if d.chance(0.5):
        return Node("jnp.matmul", (hot, ref(table)))
    return Node("at.add", (ref(table), [ref(ids)], Node("jnp.take", (ref(table), ref(ids)), {"axis": 0})))


@kind("idiom", weight=1)
def windows_of(d: Draw) -> Node:
    """All windows of a dimension, by jnp.take with computed indices."""
    a = d.number(1, MOST // 4)
    axis = d.axis(a, 2)
    n = a.shape[axis]
    k = d.integer(1, min(4, n))
    first = Node("jnp.reshape", (Node("jnp.arange", (n - k + 1,)), [n - k + 1, 1]))
    places = Node("jnp.add", (first, Node("jnp.arange", (k,))))
    return Node("jnp.take", (ref(a), places), {"axis": axis})


@kind("idiom", weight=1)
def mirrored(d: Draw) -> Node:
    """A value and its reverse, concatenated or added."""
    a = d.number(1, MOST // 2)
    axis = d.axis(a)
    back = Node("lax.rev", (ref(a), [axis]))
    if d.chance(0.5):
        return Node("jnp.concatenate", ([ref(a), back],), {"axis": axis})
    return Node("jnp.add", (ref(a), back))


@kind("idiom", weight=1)
def scores(d: Draw) -> Node:
    """Products of a value with itself under a causal mask: attention without softmax."""
    a = d.value(lambda v: v.is_float and v.ndim in (2, 3), size=400)
    letters = "ab" if a.ndim == 2 else "zab"
    other = letters.replace("a", "c")
    out = letters.replace("b", "c")
    weights = Node("jnp.tril", (Node("jnp.einsum", (f"{letters},{other}->{out}", ref(a), ref(a))),))
    return Node("jnp.einsum", (f"{out},{other}->{letters}", weights, ref(a)))


@kind("idiom", weight=1, continuous=False)
def dispatched(d: Draw) -> Node:
    """Rows summed by the index of their largest element, as in a mixture-of-experts layer."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim == 2 and v.shape[1] <= 16)
    experts = a.shape[1]
    best = Node("jnp.argmax", (ref(a),), {"axis": 1})
    if d.chance(0.5):
        return Node("jax.ops.segment_sum", (ref(a), best), {"num_segments": experts})
    return Node("jnp.einsum", ("te,tb->eb", Node("nn.one_hot", (best, experts)), ref(a)))
