# SPDX-License-Identifier: Apache-2.0
"""Linear collectives and their derivatives: over groups in any order, over several axes in both orders, over the axis
of a batch, and of complex numbers. One program has all of them.

The program is that of `programs.forms.base`: f(x) = x * s(x). A collective is a linear function of the blocks of all
devices. NumPy computes it and its transpose for the blocks of all devices. JAX's values, tangents (`jax.jvp`) and
cotangents (`jax.vjp`, inside of a shard_map that does not check what varies) must be those numbers. All are whole, so
they are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.collective_options import replicated, same_as

Peers = Mapping[int, Sequence[int]]
"""The members of the group of each device, in the order of the group."""


Transposed = Callable[[np.ndarray, Peers, tuple[int, ...]], np.ndarray]
"""Takes cotangents, the groups and the shape of all blocks."""

Linear = tuple[Callable[..., Any], Callable[[np.ndarray, Peers], np.ndarray], Transposed]
"""A collective, and what it and its transpose do with the blocks [n, rows, columns] of all devices."""


def gathered(x: np.ndarray, peers: Peers, axis: int, tiled: bool) -> np.ndarray:
    """The blocks x[device, ...] of each group, side by side along an axis of a block, or stacked there."""
    join: Any = np.concatenate if tiled else np.stack
    return np.stack([join([x[k] for k in peers[i]], axis) for i in range(len(x))])


def summed(x: np.ndarray, peers: Peers) -> np.ndarray:
    """The sum of the blocks of each group."""
    return np.stack([sum(x[k] for k in peers[i]) for i in range(len(x))])


def scattered(x: np.ndarray, peers: Peers) -> np.ndarray:
    """Each member's part of its group's sum, along the rows of a block."""
    total = summed(x, peers)
    return np.stack([np.split(total[i], len(peers[i]))[peers[i].index(i)] for i in range(len(x))])


def exchanged(x: np.ndarray, peers: Peers, axis: int) -> np.ndarray:
    """Each member's part of the rows of each block of its group, side by side along an axis."""
    return np.stack(
        [
            np.concatenate([np.split(x[k], len(peers[i]))[peers[i].index(i)] for k in peers[i]], axis)
            for i in range(len(x))
        ]
    )


def returned(define: Callable[[np.ndarray, Peers], np.ndarray]) -> Transposed:
    """The transposed function of one that moves numbers: each cotangent goes back to the place that was read. A place
    of no number is 0."""

    def transposed(cotangent: np.ndarray, peers: Peers, shape: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(shape))
        places = define(np.arange(1, size + 1).reshape(shape), peers)
        sums = np.zeros(size + 1, cotangent.dtype)
        np.add.at(sums, places, cotangent)
        return sums[1:].reshape(shape)

    return transposed


def moving(function: Callable[..., Any], define: Callable[[np.ndarray, Peers], np.ndarray]) -> Linear:
    """A collective that moves numbers."""
    return function, define, returned(define)


COLLECTIVES: Mapping[str, Linear] = {
    "psum": (lambda b, a, **g: lax.psum(b, a, **g), summed, lambda c, peers, shape: summed(c, peers)),
    "psum_scatter": (
        lambda b, a, **g: lax.psum_scatter(b, a, scatter_dimension=0, tiled=True, **g),
        scattered,
        lambda c, peers, shape: gathered(c, peers, 0, True),
    ),
    "all_gather": moving(
        lambda b, a, **g: lax.all_gather(b, a, axis=1, **g),
        lambda x, peers: gathered(x, peers, 1, False),
    ),
    "all_gather, tiled": moving(
        lambda b, a, **g: lax.all_gather(b, a, axis=-1, tiled=True, **g),
        lambda x, peers: gathered(x, peers, 1, True),
    ),
    "all_to_all": moving(
        lambda b, a, **g: lax.all_to_all(b, a, 0, 1, tiled=True, **g),
        lambda x, peers: exchanged(x, peers, 1),
    ),
    "all_to_all along one axis": moving(
        lambda b, a, **g: lax.all_to_all(b, a, 0, 0, tiled=True, **g),
        lambda x, peers: exchanged(x, peers, 0),
    ),
}
"""By name: a collective of a block [rows, columns] over an axis, its definition, and that of its transpose."""


def averaged(x: np.ndarray, peers: Peers) -> np.ndarray:
    """The mean of the blocks of each group."""
    return summed(x, peers) / len(next(iter(peers.values())))


MEAN: Mapping[str, Linear] = {
    "pmean": (lambda b, a, **g: lax.pmean(b, a, **g), averaged, lambda c, peers, shape: averaged(c, peers))
}


def blocks(n: int, rows: int, kind: Any, columns: int = 3) -> np.ndarray:
    """[n, rows, columns]: whole numbers from -15 to 15, so that sums over a thousand devices are exact in float32. The
    two parts of a complex number differ."""
    found = (np.arange(n * rows * columns) * 7 % 31 - 15).reshape(n, rows, columns)
    return (found + 1j * found[:, ::-1] if np.dtype(kind).kind == "c" else found).astype(kind)


def compare(
    run: Callable[..., np.ndarray],
    pairs: Mapping[str, Linear],
    n: int,
    peers: Peers,
    kinds: Sequence[Any],
    **options: Any,
) -> None:
    """Compare values of each dtype, and tangents and cotangents of the inexact ones, with NumPy's definitions.

    run: maps a function of a block over the blocks [n, rows, 3] of arrays, and gives the results stacked."""
    size = len(next(iter(peers.values())))
    for name, (function, define, transposed) in pairs.items():
        for kind in kinds:
            # A sum beyond a narrow integer wraps: a cast from int64 does too, and one from a float is not defined.
            wide = {"c": np.complex128, "f": np.float64}.get(np.dtype(kind).kind, np.int64)
            times = size if name == "pmean" else 1  # so that means are whole
            x = blocks(n, 2 * size, kind) * times

            def f(b, function=function):
                return function(b, **options)

            wanted = define(x.astype(wide), peers)
            same_as(run(f, x), wanted.astype(kind), f"{name} of {np.dtype(kind)}")
            if np.dtype(kind).kind not in "fc":
                continue
            same_as(
                run(lambda b, t, f=f: jax.jvp(f, (b,), (t,))[1], x[::-1].copy(), x),
                wanted.astype(kind),
                f"the tangent of {name} of {np.dtype(kind)}",
            )
            cotangent = blocks(n, 1, kind, wanted[0].size).reshape(wanted.shape) * times
            same_as(
                run(lambda b, c, f=f: jax.vjp(f, b)[1](c)[0], x, cotangent),
                transposed(cotangent.astype(wide), peers, x.shape).astype(kind),
                f"the cotangent of {name} of {np.dtype(kind)}",
            )


def over_devices(mesh: Any, axes: Any) -> Callable[..., np.ndarray]:
    """Runs a function of a block in a shard_map: block i belongs to the i-th device along the axes, in their order."""

    def run(f, *arrays):
        mapped = jax.shard_map(
            lambda *b: f(*(c[0] for c in b))[None],
            mesh=mesh,
            in_specs=P(axes),
            out_specs=P(axes),
            check_vma=False,
        )
        return np.asarray(jax.jit(mapped)(*arrays))

    return run


def _groups(mesh, a, x):
    """Groups whose members are not in order: pairs of an even number of devices, else one group."""
    n = mesh.shape[a]
    order = [*range(n)][::-1]
    groups = [order[i :: n // 2] for i in range(n // 2)] if n % 2 == 0 else [order]
    peers = {i: group for group in groups for i in group}
    run = over_devices(mesh, a)
    options = {"a": a, "axis_index_groups": groups}
    compare(run, COLLECTIVES, n, peers, (np.int32, np.float32), **options)
    compare(run, MEAN, n, peers, (np.float32,), **options)
    return jax.jit(over(mesh, a))(x)


def _orders_of_axes(mesh, a, x):
    """Over all axes of the mesh, named in the order of the mesh and in the reverse order."""
    names = tuple(mesh.axis_names)
    peers = {i: range(mesh.size) for i in range(mesh.size)}
    for axes in {names, names[::-1]}:
        run = over_devices(mesh, axes)
        compare(run, COLLECTIVES, mesh.size, peers, (np.int8, np.float32), a=axes)
        compare(run, MEAN, mesh.size, peers, (np.float32,), a=axes)
        whole = jax.shard_map(
            lambda b, axes=axes: lax.all_gather(b, axes, tiled=True, to="invarying"),
            mesh=mesh,
            in_specs=P(axes),
            out_specs=P(),
        )
        weights = np.arange(1, mesh.size + 1, dtype=np.float32)
        slope = jax.jit(jax.grad(lambda v, f=whole, w=weights: (f(v) * w).sum()))(0 * weights)
        same_as(np.asarray(slope), weights, f"the gradient of what is gathered over {axes} for all devices")
    n = mesh.shape[a]
    given = np.arange(mesh.size) % 3 > 0
    mapped = jax.shard_map(lambda b: lax.psum(b, names), mesh=mesh, in_specs=P(names), out_specs=P())
    same_as(
        np.asarray(jax.jit(mapped)(given)), [np.int32(given.sum())], "a sum of truth values over all axes"
    )
    counts = replicated(mesh, a, lambda b: lax.psum(b, a), np.arange(n) % 3 > 0)
    same_as(counts, np.full((n, 1), (np.arange(n) % 3 > 0).sum(), np.int32), "a sum of truth values")
    return jax.jit(over(mesh, a))(x)


def _complex_numbers(mesh, a, x):
    """Of complex numbers: a transposed linear function does not conjugate."""
    n = mesh.shape[a]
    peers = {i: range(n) for i in range(n)}
    compare(over_devices(mesh, a), COLLECTIVES, n, peers, (np.complex64,), a=a)
    return jax.jit(over(mesh, a))(x)


def _batch(mesh, a, x):
    """Over the axis of a batch of sharded arrays, which is the first, the second or the last dimension."""
    k = 4
    peers = {i: range(k) for i in range(k)}
    for place in (0, 1, 2):

        def run(f, *arrays, place=place):
            moved = [jax.device_put(np.moveaxis(b, 0, place), at(mesh)) for b in arrays]
            mapped = jax.jit(jax.vmap(f, in_axes=place, out_axes=0, axis_name="k"))
            return np.asarray(mapped(*moved))

        compare(run, COLLECTIVES, k, peers, (np.int32, np.float32), a="k")
    given = np.arange(6, dtype=np.int32).reshape(2, 3)

    def unmapped(v, same):
        return v, lax.psum(same, "k"), lax.psum(3, "k"), lax.pmean(same * k, "k"), lax.pmax(same, "k")

    mapped = jax.vmap(unmapped, in_axes=(0, None), out_axes=(0, None, None, None, None), axis_name="k")
    seen = jax.jit(mapped)(jnp.zeros(k), given)
    wanted = (k * given, np.int32(3 * k), (given * k).astype(np.float32), given)
    for what, found, right in zip(("psum", "psum", "pmean", "pmax"), seen[1:], wanted, strict=True):
        same_as(np.asarray(found), right, f"{what} of what is the same in the whole batch")
    return jax.jit(over(mesh, a))(x)


def _partial_permutations(mesh, a, x):
    """Permutations that leave devices out, with values and derivatives: nothing arrives as zero. Shuffles by tuples."""
    n = mesh.shape[a]
    run = over_devices(mesh, a)
    for perm in ([(i, i + 1) for i in range(n - 1)], [(i, i - 1) for i in range(1, n)], [(0, n - 1)]):
        source = {j: i for i, j in perm}

        def define(v, peers, source=source):
            return np.stack([v[source[j]] if j in source else np.zeros_like(v[j]) for j in range(len(v))])

        pairs = {f"ppermute by {perm}": moving(lambda b, a, perm=perm: lax.ppermute(b, a, perm), define)}
        compare(run, pairs, n, {i: [i] for i in range(n)}, (np.int32, np.uint8, np.float32), a=a)
    turn = tuple((i + 1) % n for i in range(n))  # no inverse of itself
    given = np.arange(2 * n, dtype=np.int32).reshape(n, 2)
    for kind in (tuple, list):
        found = replicated(
            mesh, a, lambda b, kind=kind: lax.pshuffle(b[0], a, kind(turn)), given, check_vma=False
        )
        same_as(found, given[list(turn)], f"a shuffle by a {kind.__name__}")
    return jax.jit(over(mesh, a))(x)


def _swapped(mesh, a, axis, order):
    """Swap an axis of a matrix and of an array of three dimensions, which is transposed to that order before."""
    n = mesh.shape[a]
    pair = (np.arange(n * n * 2).reshape(n, n * 2), np.arange(n * n * 6).reshape(n, n * 2, 3))

    def swapped(flat, deep):
        tree = {"flat": flat[0].reshape(n, 2).T, "deep": deep[0].reshape(n, 2, 3).transpose(order)}
        there = lax.pswapaxes(tree, a, axis)
        return jnp.concatenate([there["flat"].ravel(), there["deep"].ravel()])

    found = replicated(mesh, a, swapped, *(t.astype(np.int32) for t in pair), check_vma=False)
    flat, deep = pair[0].reshape(n, n, 2), pair[1].reshape(n, n, 2, 3)
    rows = [[*flat[:, i].T.ravel(), *deep[:, i].transpose(order).ravel()] for i in range(n)]
    same_as(found, np.array(rows, np.int32), f"a swap of a tree along axis {axis}")


def _swapped_trees(mesh, a, x):
    """Swaps of a tree along the second axis of each leaf."""
    _swapped(mesh, a, 1, (1, 0, 2))
    return jax.jit(over(mesh, a))(x)


def _negative_axes(mesh, a, x):
    """Swaps of a tree along its last axis, which is another one in each leaf."""
    _swapped(mesh, a, -1, (1, 2, 0))
    return jax.jit(over(mesh, a))(x)


LINEAR_COLLECTIVES: dict[str, Callable[..., Any]] = {
    "groups": _groups,
    "orders_of_axes": _orders_of_axes,
    "complex_numbers": _complex_numbers,
    "batch": _batch,
    "partial_permutations": _partial_permutations,
    "swapped_trees": _swapped_trees,
    "negative_axes": _negative_axes,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class LinearCollective(ProgramForm):
    """Linear collectives with values, tangents and cotangents: groups, axes in any order, batches, complex numbers."""

    name = "linear_collective"
    forms = LINEAR_COLLECTIVES

    @staticmethod
    def host(mesh, x, *, form, axis):
        return LINEAR_COLLECTIVES[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
