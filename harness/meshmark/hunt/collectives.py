# SPDX-License-Identifier: Apache-2.0
"""The operations that are drawn inside shard_map: collectives over the manual axes."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import Draw, Miss, kind
from meshmark.hunt.elementwise import ref
from meshmark.program_data.program import Node


def _axes(d: Draw) -> tuple[Any, int]:
    """(name of one manual axis or a list of several names in any order, product of their sizes)."""
    if not d.manual:
        raise Miss
    chosen = [a for a in d.manual if d.chance(0.6)] or [d.choice(d.manual)]
    size = 1
    for _, n in chosen:
        size *= n
    names = [name for name, _ in chosen]
    if d.chance(0.5):
        d.random.shuffle(names)
    return (names[0] if len(names) == 1 else names), size


@kind("collective", weight=2)
def psum(d: Draw) -> Node:
    """psum, pmax, pmin."""
    axes, _ = _axes(d)
    return Node(f"lax.{d.choice(['psum', 'psum', 'pmax', 'pmin'])}", (ref(d.number()), axes))


@kind("collective", weight=0.7, rounds=True)
def pmean(d: Draw) -> Node:
    """The mean over one or several axes."""
    axes, _ = _axes(d)
    return Node("lax.pmean", (ref(d.floating()), axes))


@kind("collective", weight=1)
def shuffled(d: Draw) -> Node:
    """pshuffle: a permutation by the source of each device."""
    axes, size = _axes(d)
    a = d.value(size=3000 // size)
    return Node("lax.pshuffle", (ref(a), axes, d.permutation(size)))


@kind("collective", weight=1)
def swapped_axes(d: Draw) -> Node:
    """pswapaxes: a mesh axis and a dimension of its size swapped; or an untiled all_to_all."""
    axes, size = _axes(d)
    a = d.value(ndim=1)
    at = d.choice([k for k, n in enumerate(a.shape) if n == size])
    if d.chance(0.5):
        return Node("lax.pswapaxes", (ref(a), axes, at))
    return Node("lax.all_to_all", (ref(a), axes, at, d.integer(0, a.ndim - 1)))


@kind("collective", weight=1.5)
def all_gather(d: Draw) -> Node:
    """all_gather along any dimension."""
    axes, size = _axes(d)
    a = d.value(size=3000 // size)
    tiled = a.ndim > 0 and d.chance(0.6)
    return Node("lax.all_gather", (ref(a), axes), {"axis": d.integer(0, a.ndim - tiled), "tiled": tiled})


@kind("collective", weight=1.5)
def psum_scatter(d: Draw) -> Node:
    """psum_scatter along a dimension that the axis size divides."""
    axes, size = _axes(d)
    a = d.number(1)
    at = d.choice([k for k, n in enumerate(a.shape) if n % size == 0])
    tiled = a.shape[at] != size or d.chance(0.7)
    return Node("lax.psum_scatter", (ref(a), axes), {"scatter_dimension": at, "tiled": tiled})


@kind("collective", weight=1.5)
def all_to_all(d: Draw) -> Node:
    """all_to_all, tiled."""
    axes, size = _axes(d)
    a = d.value(ndim=1)
    at = d.choice([k for k, n in enumerate(a.shape) if n % size == 0])
    return Node(
        "lax.all_to_all",
        (ref(a), axes),
        {"split_axis": at, "concat_axis": d.integer(0, a.ndim - 1), "tiled": True},
    )


@kind("collective", weight=1.5)
def ppermute(d: Draw) -> Node:
    """A permutation of all or some devices along one or several axes."""
    axes, size = _axes(d)
    a = d.value(size=3000 // size)
    to = d.permutation(size)
    left = size if d.chance(0.6) else d.integer(1, size)
    pairs = [[i, to[i]] for i in d.permutation(size)[:left]]
    return Node("lax.ppermute", (ref(a), axes, pairs))


@kind("collective", weight=0.7, continuous=False)
def axis_index(d: Draw) -> Node:
    """A value plus the device's index along an axis."""
    if not d.manual:
        raise Miss
    a = d.value(lambda v: v.dtype == "int32")
    return Node("jnp.add", (ref(a), Node("lax.axis_index", (d.choice(d.manual)[0],))))
