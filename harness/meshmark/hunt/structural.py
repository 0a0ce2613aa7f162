# SPDX-License-Identifier: Apache-2.0
"""Draws operations that move parts of values: reshapes, slices, pads, concatenations."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import MOST, Draw, kind
from meshmark.hunt.elementwise import ref
from meshmark.program_data.program import Node


@kind("shape", weight=1.5)
def reshape(d: Draw) -> Node:
    """Dimensions merged or split."""
    a = d.value(ndim=1)
    shape = list(a.shape)
    if len(shape) > 1 and d.chance(0.5):
        at = d.integer(0, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    if d.chance(0.7):
        at = d.integer(0, len(shape) - 1)
        divisors = [k for k in range(2, shape[at]) if shape[at] % k == 0]
        if divisors:
            k = d.choice(divisors)
            shape[at : at + 1] = [k, shape[at] // k]
    if tuple(shape) == a.shape or len(shape) > 4:
        shape = [a.size]
    return Node("jnp.reshape", (ref(a), shape))


@kind("shape")
def transpose(d: Draw) -> Node:
    """Dimensions in another order."""
    a = d.value(ndim=2)
    return Node("jnp.transpose", (ref(a), d.permutation(a.ndim)))


@kind("shape", weight=0.6)
def broadcast(d: Draw) -> Node:
    """A new dimension, or dimensions tiled."""
    a = d.value(size=MOST // 8)
    if d.chance(0.5):
        return Node("jnp.broadcast_to", (ref(a), [d.choice([2, 3, 4, 8]), *a.shape]))
    if d.chance(0.5):
        return Node("jnp.expand_dims", (ref(a), d.integer(0, a.ndim)))
    return Node("jnp.tile", (ref(a), [d.choice([1, 2, 3]) for _ in range(max(a.ndim, 1))]))


@kind("shape", weight=0.7)
def repeat(d: Draw) -> Node:
    """Each element several times."""
    a = d.value(ndim=1, size=MOST // 4)
    return Node("jnp.repeat", (ref(a), d.integer(2, 3)), {"axis": d.axis(a)})


@kind("edge", weight=3)
def slice_(d: Draw) -> Node:
    """A static slice, strided or not."""
    a = d.value(ndim=1)
    start, stop, stride = [], [], []
    for n in a.shape:
        if d.chance(0.5):
            low = d.integer(0, min(n - 1, 3))
            high = d.integer(max(low + 1, n - 3), n)
        else:
            low, high = 0, n
        start.append(low)
        stop.append(high)
        stride.append(d.choice([1, 1, 1, 2, 3]))
    strides = [] if set(stride) == {1} or d.chance(0.5) else [stride]
    return Node("lax.slice", (ref(a), start, stop, *strides))


@kind("edge", weight=3)
def pad(d: Draw) -> Node:
    """lax.pad with low, high (also negative) and interior padding."""
    a = d.number(1, MOST // 4)
    config = []
    for n in a.shape:
        if d.chance(0.5):
            low = d.integer(-1, 3) if n > 3 else d.integer(0, 2)
            high = d.integer(-1, 3) if n > 3 else d.integer(0, 2)
            config.append([low, high, d.choice([0, 0, 0, 1, 2])])
        else:
            config.append([0, 0, 0])
    value: Any = {"call": "jnp.array", "kwargs": {"object": d.choice([0, 0, 7]), "dtype": a.dtype}}
    return Node("lax.pad", (ref(a), value, config))


@kind("edge")
def pad_mode(d: Draw) -> Node:
    """jnp.pad with reflected, repeated or wrapped edges."""
    a = d.number(1, MOST // 4)
    width = [
        [d.integer(0, min(2, n - 1)), d.integer(0, min(2, n - 1))] if d.chance(0.6) else [0, 0]
        for n in a.shape
    ]
    return Node(
        "jnp.pad", (ref(a), width), {"mode": d.choice(["edge", "reflect", "wrap", "symmetric", "constant"])}
    )


@kind("edge", weight=3)
def concatenate(d: Draw) -> Node:
    """Values joined along a dimension."""
    a = d.value(ndim=1, size=MOST // 3)
    axis = d.axis(a)
    fit = [
        v
        for v in d.values
        if v.dtype == a.dtype
        and v.ndim == a.ndim
        and all(n == m or k == axis for k, (n, m) in enumerate(zip(v.shape, a.shape, strict=True)))
    ]
    parts = [ref(a), *(ref(d.choice(fit)) for _ in range(d.integer(1, 2)))]
    return Node("jnp.concatenate", (parts,), {"axis": axis})


@kind("edge", weight=0.6)
def stack(d: Draw) -> Node:
    """Two values stacked along a new dimension."""
    a = d.value(size=MOST // 3)
    fit = [v for v in d.values if v.dtype == a.dtype and v.shape == a.shape]
    return Node("jnp.stack", ([ref(a), ref(d.choice(fit))],), {"axis": d.integer(0, a.ndim)})


@kind("edge", weight=1.5)
def roll(d: Draw) -> Node:
    """A cyclic shift."""
    a = d.value(ndim=1)
    axis = d.axis(a)
    return Node("jnp.roll", (ref(a), d.integer(-a.shape[axis], a.shape[axis])), {"axis": axis})


@kind("edge")
def flip(d: Draw) -> Node:
    """One or several dimensions reversed."""
    a = d.value(ndim=1)
    return Node("lax.rev", (ref(a), sorted(d.random.sample(range(a.ndim), d.integer(1, a.ndim)))))


@kind("edge", weight=0.7)
def diff(d: Draw) -> Node:
    """Differences of neighbours."""
    a = d.number(1)
    return Node("jnp.diff", (ref(a),), {"axis": d.axis(a, 3)})


@kind("edge", weight=0.7)
def split(d: Draw) -> Node:
    """A dimension split into two parts."""
    a = d.value(ndim=1)
    axis = d.axis(a, 2)
    at = d.integer(1, a.shape[axis] - 1)
    return Node("lax.split", (ref(a), [at, a.shape[axis] - at]), {"axis": axis})


@kind("elementwise", weight=0.5)
def real(d: Draw) -> Node:
    """The real or imaginary part of complex numbers."""
    a = d.value(lambda v: v.dtype == "complex64")
    return Node(f"jnp.{d.choice(['real', 'imag'])}", (ref(a),))


@kind("shape", weight=0.5)
def iota(d: Draw) -> Node:
    """The index along a dimension, in the shape of a value."""
    a = d.value(ndim=1)
    return Node("lax.broadcasted_iota", (d.choice(["int32", "float32"]), list(a.shape), d.axis(a)))


@kind("shape", weight=0.7)
def move_axes(d: Draw) -> Node:
    """Dimensions moved, swapped, rotated or merged into one; or dimensions of size one dropped."""
    a = d.value(ndim=2)
    one, other = d.permutation(a.ndim)[:2]
    which = d.choice(["jnp.moveaxis", "jnp.swapaxes", "jnp.rot90", "jnp.ravel", "jnp.squeeze"])
    if which == "jnp.rot90":
        return Node(which, (ref(a),), {"k": d.integer(1, 3), "axes": [one, other]})
    if which in ("jnp.ravel", "jnp.squeeze"):
        return Node(which, (ref(a),))
    return Node(which, (ref(a), one, other))


@kind("shape", weight=0.7)
def broadcast_in(d: Draw) -> Node:
    """lax.broadcast_in_dim: new dimensions among the existing ones."""
    a = d.value(size=MOST // 8)
    ndim = d.integer(max(a.ndim, 1), min(a.ndim + 2, 4))
    places = sorted(d.permutation(ndim)[: a.ndim])
    shape = [d.choice([1, 2, 3, 4, 8]) for _ in range(ndim)]
    for place, n in zip(places, a.shape, strict=True):
        shape[place] = n
    return Node("lax.broadcast_in_dim", (ref(a), shape, places))


@kind("shape", weight=0.6, continuous=False)
def bitcast(d: Draw) -> Node:
    """The bits of 32-bit integers as smaller integers, along a new dimension."""
    a = d.value(lambda v: v.dtype in ("int32", "uint32"), size=MOST // 4)
    return Node("lax.bitcast_convert_type", (ref(a), d.choice(["uint8", "int8", "uint16"])))


@kind("shape", weight=0.4, continuous=False)
def packed(d: Draw) -> Node:
    """Booleans packed into bytes, or bytes unpacked."""
    a = d.value(lambda v: v.dtype in ("bool", "uint8"), 1, MOST // 8)
    name = "packbits" if a.dtype == "bool" else "unpackbits"
    return Node(f"jnp.{name}", (ref(a),), {"axis": d.axis(a)})


@kind("edge", weight=0.8)
def roll_several(d: Draw) -> Node:
    """Cyclic shifts along several dimensions, or by a number that is not a constant."""
    a = d.value(ndim=1)
    if d.fresh and d.chance(0.5):
        shift = d.like((), "int32", {"kind": "data", "data": [d.integer(-3, 3)]})
        return Node("jnp.roll", (ref(a), ref(shift)), {"axis": d.axis(a)})
    axes = d.permutation(a.ndim)[: d.integer(1, 2)]
    return Node("jnp.roll", (ref(a), [d.integer(-3, 3) for _ in axes]), {"axis": axes})


@kind("edge", weight=0.7)
def insert_delete(d: Draw) -> Node:
    """A row inserted or deleted at a constant index."""
    a = d.number(1)
    axis = d.axis(a, 2)
    at = d.integer(0, a.shape[axis] - 1)
    if d.chance(0.5):
        return Node("jnp.delete", (ref(a), at), {"axis": axis})
    return Node("jnp.insert", (ref(a), at, d.choice([0, 7])), {"axis": axis})


@kind("edge", weight=0.6)
def resize(d: Draw) -> Node:
    """An image resized by nearest neighbours."""
    a = d.value(lambda v: v.dtype == "float32", 2)
    shape = [d.choice([n, n, 2 * n, max(1, n // 2), n + 1]) if n > 1 else n for n in a.shape]
    return Node("jax.image.resize", (ref(a), shape, "nearest"))
