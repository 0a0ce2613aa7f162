# SPDX-License-Identifier: Apache-2.0
"""Uncommon options and values of collectives and shard_map, each in one sharded program.

The program is that of `programs.forms.base`: f(x) = x * s(x). A case returns f(x) if its option works as documented,
and other values otherwise. If values cannot show it (a dtype, a sharding, a type), the case raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import ProgramForm, at, local, over
from meshmark.operations.programs.forms.options import wrong


def blocks(mesh, a, x, same, **options):
    """f(y) + (y - block) of each block, where y = same(block) should equal the block."""

    def f(block):
        y = same(block)
        return local(a)(y) + (y - block)

    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P(a), out_specs=P(a), **options))(x)


def replicated(mesh, a, function, *arrays, **options):
    """The value on each device of a line, as an array with one row per device."""
    mapped = jax.shard_map(lambda *b: function(*b)[None], mesh=mesh, in_specs=P(a), out_specs=P(a), **options)
    return np.asarray(jax.jit(mapped)(*arrays))


def same_as(found, expected, what):
    """Raise RuntimeError if an array differs from the expected one in shape, dtype or values. NaN equals NaN."""
    expected = np.asarray(expected)
    wrong(
        found.shape != expected.shape or found.dtype != expected.dtype,
        f"{what} is {found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}",
    )
    wrong(not np.array_equal(found, expected, equal_nan=True), f"{what} is {found} instead of {expected}")


def parts_same_as(found, expected, what):
    """Raise RuntimeError if an array differs from the expected one, or if a device holds another part of it.

    The whole array is read from one replica of each part, so another replica can be wrong beside it."""
    expected = np.asarray(expected)
    same_as(np.asarray(found), expected, what)
    for shard in found.addressable_shards:
        same_as(np.asarray(shard.data), expected[shard.index], f"the part on {shard.device} of {what}")


# Values.


def _half_overflow(mesh, a, x):
    """Float16 sums beyond 65504 are infinite, with their sign. Sums up to there are exact."""
    n = mesh.shape[a]
    given = np.array([[65504, -65504, 65504 // n // 32 * 32, 1]] * n, np.float16)
    found = replicated(mesh, a, lambda b: lax.psum(b[0], a), given)
    sums = n * given.astype(np.float64)
    same_as(
        found, np.where(np.abs(sums) > 65519, np.copysign(np.inf, sums), sums).astype(np.float16), "a sum"
    )
    return jax.jit(over(mesh, a))(x)


def _nothing_but_infinity(mesh, a, x):
    """pmax of negative infinities and pmin of positive infinities are infinite."""
    n = mesh.shape[a]
    for kind in (np.float32, jnp.bfloat16):
        given = np.array([[-np.inf, np.inf]] * n).astype(kind)
        found = replicated(mesh, a, lambda b: jnp.stack([lax.pmax(b[0, 0], a), lax.pmin(b[0, 1], a)]), given)
        same_as(found, given, f"a maximum and a minimum of {np.dtype(kind)}")
    return jax.jit(over(mesh, a))(x)


def _signs(mesh, a, x):
    """pmax and pmin of the extremes of each integer dtype, also unsigned ones beyond the largest signed integer."""
    n = mesh.shape[a]
    for kind in (np.uint8, np.uint16, np.uint32, np.int8, np.int16, np.int32):
        ends = np.iinfo(kind)
        given = np.full((n, 3), ends.max // 2, kind)
        given[-1] = ends.max, ends.min, ends.max

        def extremes(b):
            return jnp.stack([lax.pmax(b[0, 0], a), lax.pmin(b[0, 1], a), lax.pmin(b[0, 2], a)])

        wanted = [ends.max, ends.min, given[:, 2].min()]
        found = replicated(mesh, a, extremes, given)
        same_as(found, np.array([wanted] * n, kind), f"a maximum and two minima of {np.dtype(kind)}")
    return jax.jit(over(mesh, a))(x)


def _constants(mesh, a, x):
    """Collectives over every axis of the mesh, of Python and NumPy numbers that are equal on all devices."""
    axes, n = tuple(mesh.axis_names), mesh.size
    seen = {}

    def same(b):
        seen.update(one=lax.psum(1, axes), two=lax.psum(2.5, axes), mean=lax.pmean(3, axes))
        held = lax.psum(np.full(2, 3, np.int32), axes) - 3 * n
        return (
            b * (seen["two"] / (2.5 * n)) * seen["one"] / n + held.sum() + lax.pmax(np.float32(4), axes) - 4
        )

    y = blocks(mesh, a, x, same)
    wrong(
        seen["one"] != n or isinstance(seen["one"], jax.Array), f"the sum of 1 is {seen['one']} and not {n}"
    )
    return y


# Dimensions and axes.


def _third_dimension(mesh, a, x):
    """Scatter, gather and exchange along the third dimension, and the exchange back."""
    n = mesh.shape[a]

    def same(b):
        cube = jnp.tile(
            b.reshape(2, -1, 1, b.shape[1]), (1, 1, n, 1)
        )  # the third dimension has one part per device
        mine = lax.psum_scatter(cube + lax.axis_index(a) * 0, a, scatter_dimension=2, tiled=True)
        alone = lax.psum_scatter(cube, a, scatter_dimension=2)
        places = jnp.arange(n, dtype=b.dtype)[None, None, :, None]
        back = lax.all_gather(b.reshape(2, -1, 1, b.shape[1]), a, axis=2, tiled=True)
        own = lax.dynamic_slice_in_dim(back, lax.axis_index(a), 1, 2)
        there = lax.all_to_all(cube + places, a, split_axis=2, concat_axis=0, tiled=True)
        home = lax.all_to_all(there, a, split_axis=0, concat_axis=2, tiled=True) - places
        total = lax.psum(b, a)
        lost = jnp.abs(mine[:, :, 0] - alone).sum() + jnp.abs(mine.reshape(b.shape) - total).sum()
        return b + lost + (own.reshape(b.shape) - b) + (home[:, :, n - 1].reshape(b.shape) - b)

    return blocks(mesh, a, x, same)


def _scattered_third(mesh, a, x):
    """Each device's part of a sum that differs along its third dimension."""
    n = mesh.shape[a]

    def parts(b):
        cube = (
            jnp.broadcast_to(jnp.arange(2 * n)[None, None, :], (2, 3, 2 * n)) * (lax.axis_index(a) + 1) + b[0]
        )
        return lax.psum_scatter(cube, a, scatter_dimension=2, tiled=True)

    found = replicated(mesh, a, parts, np.zeros(n, np.int32))
    sums = np.arange(2 * n).reshape(n, 1, 1, 2) * (n * (n + 1) // 2)
    same_as(found, np.broadcast_to(sums, (n, 2, 3, 2)).astype(np.int32), "the parts of a sum")
    return jax.jit(over(mesh, a))(x)


def _batch_and_devices(mesh, a, x):
    """Collectives over a mesh axis and a batch axis at once, in either order."""
    n, k = mesh.shape[a], 3

    def summed(b):
        rows = jnp.stack([b[0] + 10 * i for i in range(k)])

        def one(v):
            both = (
                lax.psum(v, ("k", a)),
                lax.psum(v, (a, "k")),
                lax.pmax(v, ("k", a)),
                lax.pmean(v * k * n, (a, "k")),
            )
            return jnp.stack([*both, lax.psum(v, "k"), lax.psum(v, a)])

        return jax.vmap(one, axis_name="k")(rows)

    given = np.arange(n, dtype=np.int32).astype(np.float32)
    # With check_vma JAX refuses a batch axis together with a mesh axis (docs/findings.md).
    found = replicated(mesh, a, summed, given, check_vma=False)
    rows = given[:, None] + 10 * np.arange(k)  # [device, row]
    every, large = rows.sum(), rows.max()
    wanted = [
        [[every, every, large, every, rows[d].sum(), rows[:, i].sum()] for i in range(k)] for d in range(n)
    ]
    same_as(found, np.array(wanted, np.float32), "what is added up over a batch and devices")
    return jax.jit(over(mesh, a))(x)


def _batched(mesh, a, x):
    """Collectives under vmap along the second dimension: the batch keeps its place."""

    def same(b):
        gathered = jax.vmap(lambda c: lax.all_gather(c, a), in_axes=1, out_axes=2)(b)
        turn = [(i, (i + 1) % mesh.shape[a]) for i in range(mesh.shape[a])]
        there = jax.vmap(lambda c: lax.ppermute(c, a, turn), in_axes=1, out_axes=1)(b)
        home = lax.ppermute(there, a, [(j, i) for i, j in turn])
        return gathered[lax.axis_index(a)] + home - b

    return blocks(mesh, a, x, same)


def _axis_of_one(mesh, a, x):
    """A mesh with an axis of one device: collectives over it change nothing, and arrays over it are indexed right."""
    m = Mesh(mesh.devices[..., None], (*mesh.axis_names, "one"))

    def same(b):
        lost = lax.all_gather(b, "one", axis=1, tiled=True) + lax.all_gather(b, "one", axis=0)[0] - 2 * b
        lost += lax.all_to_all(b, "one", 0, 1, tiled=True) - lax.psum_scatter(b, "one", tiled=True)
        lost += lax.ppermute(b, "one", [(0, 0)]) - lax.pmax(b, "one") + lax.axis_index("one").astype(b.dtype)
        return lax.psum(b, "one") + lost

    def f(block):
        y = same(block)
        return local(a)(y) + (y - block)

    spec = P((a, "one"))
    mapped = jax.jit(jax.shard_map(f, mesh=m, in_specs=spec, out_specs=spec))
    rows = np.arange(x.shape[0])[::-1]
    for place in (P("one"), P(a, "one"), P(("one", a))):
        there = jax.device_put(np.asarray(x), NamedSharding(m, place))
        for taken in (jax.jit(lambda y: y[rows]), jax.jit(lambda y: jnp.take(y, rows, axis=0))):
            same_as(np.asarray(taken(there)), np.asarray(x)[rows], f"an array over {place} taken in reverse")
    return jax.device_put(mapped(np.asarray(x)), at(mesh, a))


def _cycle(mesh, a, x):
    """Cyclic transposes of three equal dimensions, forward and back, sharded along one and along two of them."""
    n, first = 2 * mesh.size, mesh.axis_names[0]
    cube = np.arange(n**3, dtype=np.float32).reshape(n, n, n)
    places = {P(a): (P(None, None, a), P(None, a, None))}
    if first != a:
        places[P(None, first, a)] = (P(first, a, None), P(a, None, first))
    for place, after in places.items():
        there = jax.device_put(cube, NamedSharding(mesh, place))
        for order, spec in zip(((1, 2, 0), (2, 0, 1)), after, strict=True):
            turned = jax.jit(lambda y, order=order: jnp.transpose(y, order), out_shardings=at(mesh, *spec))(
                there
            )
            wrong(
                any(
                    not np.array_equal(s.data, cube.transpose(order)[s.index])
                    for s in turned.addressable_shards
                ),
                f"dimensions {order} of an array over {place} are in another order",
            )
    return jax.jit(over(mesh, a))(x)


# Arrays that are made like others.


def _made_alike(mesh, a, x):
    """Arrays made like a sharded one have its sharding, or the one that `device` gives."""
    made = {
        "zeros_like": (jnp.zeros_like, 0),
        "ones_like": (jnp.ones_like, 1),
        "full_like": (lambda y, **k: jnp.full_like(y, 3, **k), 3),
        "empty_like": (jnp.empty_like, None),
    }
    for name, (function, value) in made.items():
        for y in (function(x), function(x, dtype=jnp.int32)):
            wrong(not y.sharding.is_equivalent_to(x.sharding, 2), f"{name} is placed as {y.sharding}")
            wrong(value is not None and not np.all(np.asarray(y) == value), f"{name} has another value")
        other = function(x, device=at(mesh, None, a))
        wrong(
            not other.sharding.is_equivalent_to(at(mesh, None, a), 2), f"{name} is placed as {other.sharding}"
        )
    return jax.jit(over(mesh, a))(x + jnp.zeros_like(x))


COLLECTIVE_OPTIONS: dict[str, Callable[..., Any]] = {
    "half_overflow": _half_overflow,
    "nothing_but_infinity": _nothing_but_infinity,
    "signs": _signs,
    "constants": _constants,
    "third_dimension": _third_dimension,
    "scattered_third": _scattered_third,
    "batch_and_devices": _batch_and_devices,
    "batched": _batched,
    "axis_of_one": _axis_of_one,
    "cycle": _cycle,
    "made_alike": _made_alike,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class CollectiveOption(ProgramForm):
    """One sharded program with each uncommon option of collectives and shard_map."""

    name = "collective_option"
    forms = COLLECTIVE_OPTIONS

    @staticmethod
    def host(mesh, x, *, form, axis):
        return COLLECTIVE_OPTIONS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
