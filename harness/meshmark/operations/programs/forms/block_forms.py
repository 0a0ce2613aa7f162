# SPDX-License-Identifier: Apache-2.0
"""Collectives in uncommon shard_maps and pmaps: over some axes only, nested, eager and without jit, in branches and
loops that differ between lines of devices, in pmaps of trees. Also arguments that jit returns, and its cache.

The program is that of `programs.forms.base`: f(x) = x * s(x). The values on the devices are compared with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.options import wrong


def collected(a, n):
    """A function of one block [rows, n * columns]: the results of every collective over the axis a of n devices."""
    turn = [(i, (i + 1) % n) for i in range(n)]

    def local(b):
        i = lax.axis_index(a)
        gathered = lax.all_gather(b, a)
        return (
            b * lax.psum(b, a),
            lax.pmax(b, a) - lax.pmin(b, a) + i.astype(b.dtype),
            lax.ppermute(b, a, turn),
            (gathered * jnp.arange(1.0, n + 1)[:, None, None]).sum(axis=0),
            lax.all_gather(b[:, :1], a, axis=1, tiled=True),
            lax.psum_scatter(b, a, scatter_dimension=1, tiled=True),
            lax.all_to_all(b, a, 1, 0, tiled=True).reshape(b.shape[0], -1),
        )

    return local


def in_blocks(given, n):
    """The expected results of `collected` for a whole array [n * rows, n * columns], with the blocks joined."""
    b = given.reshape(n, -1, given.shape[1])
    rows, columns = b.shape[1], b.shape[2]
    numbers = np.arange(n, dtype=given.dtype)[:, None, None]
    total = b.sum(axis=0)
    parts = total.reshape(rows, n, -1).swapaxes(0, 1)
    sent = b.reshape(n, rows, n, -1).transpose(2, 0, 1, 3).reshape(n, n * rows, -1)
    every = np.moveaxis(b[:, :, 0], 0, 1)
    results = (
        b * total,
        b.max(axis=0) - b.min(axis=0) + numbers,
        np.roll(b, 1, axis=0),
        np.broadcast_to((b * (numbers + 1)).sum(axis=0), b.shape),
        np.broadcast_to(every, (n, *every.shape)),
        parts,
        sent.reshape(n, rows, columns),
    )
    return tuple(np.concatenate(list(r)) for r in results)


def compare_collectives(found, given, n, what):
    """Raise if the results of `collected` differ from NumPy's."""
    for number, (y, own) in enumerate(zip(found, in_blocks(given, n), strict=True)):
        same_as(np.asarray(y), own.astype(given.dtype), f"collective {number} {what}")


def _over_some_axes(mesh, a, x):
    """Every collective in a shard_map that is manual over one axis. The columns of the array are replicated or stay
    sharded over the other axis. Also the gradients."""
    n, given, first = mesh.shape[a], np.asarray(x), mesh.axis_names[0]
    results = len(in_blocks(given, n))
    for columns in (None, first):
        there = jax.device_put(x, at(mesh, a, columns))
        mapped = jax.shard_map(
            collected(a, n), mesh=mesh, in_specs=P(a), out_specs=(P(a),) * results, axis_names={a}
        )
        compare_collectives(jax.jit(mapped)(there), given, n, f"over some axes, with columns over {columns},")
    turn = [(i, (i + 1) % n) for i in range(n)]

    def smooth(b):
        scattered = lax.psum_scatter(b, a, scatter_dimension=1, tiled=True)
        return b * lax.psum(b, a) + 2 * lax.ppermute(b, a, turn), scattered

    mapped = jax.shard_map(smooth, mesh=mesh, in_specs=P(a), out_specs=(P(a), P(None, a)), axis_names={a})
    slopes = jax.jit(jax.grad(lambda y: sum(v.sum() for v in mapped(y))))(there)
    total = given.reshape(n, -1, given.shape[1]).sum(axis=0)
    same_as(np.asarray(slopes), 2 * np.tile(total, (n, 1)) + 3, "a gradient over some axes")
    return jax.jit(over(mesh, a))(x)


def _one_inside_another(mesh, a, x):
    """A shard_map over one axis inside a shard_map over the other: collectives over the inner axis, the outer axis and
    both."""
    first = mesh.axis_names[0]
    m, n = mesh.shape[first], mesh.shape[a]
    given = np.asarray(x)

    def inner(b):
        both = lax.psum(b, (first, a))
        place = lax.axis_index(first) * n + lax.axis_index(a)
        return b * lax.psum(b, a), b * lax.psum(b, first), both + 0 * b, b + place.astype(b.dtype)

    def outer(b):
        return jax.shard_map(inner, in_specs=P(None, a), out_specs=(P(None, a),) * 4, axis_names={a})(b)

    mapped = jax.shard_map(outer, mesh=mesh, in_specs=P(first), out_specs=(P(first),) * 4, axis_names={first})
    found = jax.jit(mapped)(x)
    b = given.reshape(m, given.shape[0] // m, n, -1).transpose(0, 2, 1, 3)  # [first, last, rows, columns]
    numbers = np.arange(m * n, dtype=np.float32).reshape(m, n, 1, 1)
    wanted = (
        b * b.sum(axis=1, keepdims=True),
        b * b.sum(axis=0, keepdims=True),
        np.broadcast_to(b.sum(axis=(0, 1)), b.shape),
        b + numbers,
    )
    for number, (y, own) in enumerate(zip(found, wanted, strict=True)):
        same_as(
            np.asarray(y),
            own.transpose(0, 2, 1, 3).reshape(given.shape),
            f"collective {number} of two shard_maps",
        )
    return jax.jit(over(mesh, a))(x)


def _gradient_of_two(mesh, a, x):
    """The gradient through a shard_map over one axis inside a shard_map over the other."""
    first = mesh.axis_names[0]

    def inner(b):
        return b * lax.psum(b, a)

    def outer(b):
        return jax.shard_map(inner, in_specs=P(None, a), out_specs=P(None, a), axis_names={a})(b)

    mapped = jax.shard_map(outer, mesh=mesh, in_specs=P(first), out_specs=P(first), axis_names={first})
    slope = jax.jit(jax.grad(lambda y: mapped(y).sum()))(x)
    b = np.asarray(x).reshape(x.shape[0], mesh.shape[a], -1)
    own = 2 * b.sum(axis=1, keepdims=True) + 0 * b
    same_as(np.asarray(slope), own.reshape(x.shape), "a gradient through two shard_maps")
    return jax.jit(over(mesh, a))(x)


def _step_by_step(mesh, a, x):
    """Every collective in a shard_map that runs eagerly, and with jit disabled."""
    n, given = mesh.shape[a], np.asarray(x)
    results = len(in_blocks(given, n))
    mapped = jax.shard_map(collected(a, n), mesh=mesh, in_specs=P(a), out_specs=(P(a),) * results)
    compare_collectives(mapped(x), given, n, "run eagerly")
    with jax.disable_jit():
        compare_collectives(jax.jit(mapped)(x), given, n, "where jit is off")
    return jax.jit(over(mesh, a))(x)


def _each_line(mesh, a, x):
    """Each line of devices takes its own branch and its own number of loop iterations, with collectives in both. A loop
    ends when its devices agree. There is no permutation here, because it needs all devices of the mesh."""
    first = mesh.axis_names[0]
    m, n = mesh.shape[first], mesh.shape[a]

    def shifted(v):
        return lax.all_gather(v, a)[lax.axis_index(a) - 1]

    def local(b):
        i, y = lax.axis_index(first), b[0, 0]
        branch = lax.cond(i == 0, lambda v: lax.psum(v, a), shifted, y)
        chosen = lax.switch(i, [lambda v, k=k: lax.psum(v, a) + 0 * v + k for k in range(m)], y)
        turned = lax.fori_loop(0, i + 1, lambda _, v: shifted(v), y)

        def unequal(c):
            return lax.pmax(c[1], a) > 20

        ended = lax.while_loop(unequal, lambda c: (c[0] + 1, c[1] - 3.0), (jnp.int32(0), y))
        return jnp.stack([branch, chosen, turned, ended[0].astype(y.dtype), ended[1]])[None, None]

    given = (np.arange(m * n, dtype=np.float32) * 5 + 1).reshape(m, n)
    mapped = jax.shard_map(local, mesh=mesh, in_specs=P(first, a), out_specs=P(first, a), check_vma=False)
    found = jax.jit(mapped)(given)
    turns = np.maximum(0, np.ceil((given.max(axis=1, keepdims=True) - 20) / 3)) + 0 * given
    sums = given.sum(axis=1, keepdims=True) + 0 * given
    numbers = np.arange(m, dtype=np.float32)[:, None]
    wanted = np.stack(
        [
            np.where(numbers == 0, sums, np.roll(given, 1, axis=1)),
            sums + numbers,
            np.stack([np.roll(row, k + 1) for k, row in enumerate(given)]),
            turns,
            given - 3 * turns,
        ],
        axis=-1,
    )
    same_as(np.asarray(found), wanted.astype(np.float32), "what lines of devices do")
    return jax.jit(over(mesh, a))(x)


def _pmap_trees(mesh, a, x):
    """pmap of trees, with results that are equal on all devices, a leaf that is mapped along its second dimension,
    devices in another order, a donated argument, and a gradient."""
    n, given = mesh.shape[a], np.asarray(x)
    devices = list(mesh.devices.reshape(-1, n)[0])[::-1]
    blocks = given.reshape(n, -1, given.shape[1])
    options = {"axis_name": "i", "devices": devices}

    def tree(t, k):
        total = lax.psum(t["p"] * k, "i")
        return {"f": t["p"] * total, "q": (t["q"][0] - k, lax.axis_index("i"))}, total

    run = jax.pmap(tree, in_axes=({"p": 0, "q": [1]}, None), out_axes=(0, None), **options)
    found, total = run({"p": blocks, "q": [np.moveaxis(blocks, 0, 1)]}, np.float32(1))
    same_as(np.asarray(total), blocks.sum(axis=0), "a result that no device varies")
    same_as(np.asarray(found["f"]), blocks * blocks.sum(axis=0), "a leaf of a tree by pmap")
    same_as(np.asarray(found["q"][0]), blocks - 1, "a leaf that is mapped along its second dimension")
    same_as(np.asarray(found["q"][1]), np.arange(n, dtype=np.int32), "the numbers of devices")
    wrong([s.device for s in found["f"].addressable_shards] != devices, "blocks are on other devices")
    slope = jax.pmap(jax.grad(lambda b: (lax.psum(b, "i") * b).sum()), **options)(blocks)
    same_as(np.asarray(slope), blocks.sum(axis=0) + n * 0 * blocks + blocks.sum(axis=0), "a gradient by pmap")
    donated = jax.pmap(lambda b: b + 1, donate_argnums=0, **options)
    kept = jax.pmap(lambda b: 2 * b, **options)(blocks)
    same_as(np.asarray(donated(kept)), 2 * blocks + 1, "a donated argument of pmap")
    return jax.jit(over(mesh, a))(x)


# Arguments that jit returns, and its cache.


def _handed_through(mesh, a, x):
    """Results that are arguments: unchanged, twice, with another sharding, and beside donated arguments. Also constants
    as results. Donating one array leaves the others unchanged."""
    given, place, columns = np.asarray(x), at(mesh, a), at(mesh, None, a)
    more = jax.device_put(given + 1, place)

    def f(p, q):
        return p, q, p, jnp.full((3, 2), 7.0), p + q, q

    for places in (None, (place, columns, columns, at(mesh), place, place)):
        options = {} if places is None else {"out_shardings": places}
        for _ in range(2):
            found = jax.jit(f, **options)(x, more)
            wanted = (given, given + 1, given, np.full((3, 2), 7, np.float32), 2 * given + 1, given + 1)
            for number, (y, own) in enumerate(zip(found, wanted, strict=True)):
                same_as(np.asarray(y), own, f"result {number} of those that are handed through")
                if places is not None:
                    wrong(
                        not y.sharding.is_equivalent_to(places[number], y.ndim),
                        f"result {number} is at {y.sharding}",
                    )
    given_away = jax.device_put(given + 2, place)
    same, summed, kept = jax.jit(lambda p, q: (p, p + q, q), donate_argnums=0)(given_away, more)
    same_as(np.asarray(same), given + 2, "a donated argument that is a result")
    same_as(np.asarray(summed), 2 * given + 3, "a sum with a donated argument")
    same_as(np.asarray(kept), given + 1, "a result beside a donated argument")
    same_as(np.asarray(more), given + 1, "an argument beside a donated one")
    outer = jax.jit(lambda p: jax.jit(lambda q: (q, 2 * q))(p)[::-1])
    double, itself = outer(x)
    same_as(np.asarray(itself), given, "what an inner function hands through")
    same_as(np.asarray(double), 2 * given, "what comes beside it")
    return jax.jit(over(mesh, a))(x)


def _trees_in_turn(mesh, a, x):
    """One jitted function of trees with different structures in turn: keys in another order, missing leaves, named
    tuples, a custom class, and equal leaves in other places."""
    import collections

    pair = collections.namedtuple("pair", "p q")

    class Kept:
        """A custom class with a number that is not a leaf."""

        def __init__(self, leaf, times):
            self.leaf, self.times = leaf, times

    jax.tree_util.register_pytree_node(
        Kept, lambda k: ((k.leaf,), k.times), lambda times, c: Kept(c[0], times)
    )
    given = np.asarray(x)
    run = jax.jit(lambda t: jax.tree.map(lambda leaf: 2 * leaf, t))
    more = x + 1
    for tree, leaves in (
        ({"p": x, "q": more}, [given, given + 1]),
        ({"q": x, "p": more}, [given + 1, given]),
        ({"p": more, "q": None, "r": x}, [given + 1, given]),
        ({"p": None, "q": more, "r": x}, [given + 1, given]),
        (pair(x, more), [given, given + 1]),
        (pair(q=x, p=more), [given + 1, given]),
        ((x, [more]), [given, given + 1]),
        ([(x,), more], [given, given + 1]),
        (collections.OrderedDict([("q", x), ("p", more)]), [given, given + 1]),
        ({}, []),
    ):
        found = run(tree)
        wrong(jax.tree.structure(found) != jax.tree.structure(tree), f"a tree came back as {found}")
        for y, own in zip(jax.tree.leaves(found), leaves, strict=True):
            same_as(np.asarray(y), 2 * own, "a leaf of a tree")
    times = jax.jit(lambda k: k.leaf * k.times)
    for number in (3, 5, 3):
        same_as(np.asarray(times(Kept(x, number))), number * given, f"a class that keeps {number}")
    return jax.jit(over(mesh, a))(x)


def _alike_but_not_equal(mesh, a, x):
    """Calls of one jitted function with arguments that are easily taken for equal: True, 1 and 1.0, Python and NumPy
    numbers, zeros of both signs, an array and its transpose. Also partial functions and lambdas that differ only in a
    number."""
    import functools

    given = np.asarray(x)
    run = jax.jit(lambda y, k: (y * k, jnp.asarray(k)))
    for k, kind in (
        (1, "int32"),
        (True, "bool"),
        (1.0, "float32"),
        (np.int8(1), "int8"),
        (np.float16(1), "float16"),
    ):
        found, number = run(x, k)
        same_as(np.asarray(found), given, f"a product with {k!r}")
        wrong(number.dtype != kind, f"{k!r} is {number.dtype} in a program that had another number")
    signs = jax.jit(lambda y, k: jnp.copysign(y + 1, k))
    for k in (0.0, -0.0, 0.0):
        same_as(np.asarray(signs(x, k)), np.copysign(given + 1, np.float32(k)), f"a sign of {k}")
    square = x[: x.shape[1]]
    turned = jax.jit(lambda p, q: p - q)
    same_as(
        np.asarray(turned(square, square.T)),
        given[: x.shape[1]] - given[: x.shape[1]].T,
        "a transposed argument",
    )
    same_as(
        np.asarray(turned(square.T, square)),
        given[: x.shape[1]].T - given[: x.shape[1]],
        "a transposed argument",
    )

    def shifted(k, y):
        return y + k

    for k in (1, 2, 1):
        same_as(np.asarray(jax.jit(functools.partial(shifted, k))(x)), given + k, f"a function with {k}")
        same_as(np.asarray(jax.jit(lambda y, k=k: y * k)(x)), given * k, f"a function that keeps {k}")
    return jax.jit(over(mesh, a))(x)


def _named_places(mesh, a, x):
    """The sharding of results: `out_shardings` for all results or for some, none, or a constraint. An argument whose
    sharding differs from `in_shardings` is refused (ValueError)."""
    given, place, columns = np.asarray(x), at(mesh, a), at(mesh, None, a)
    turned = jax.device_put(given, columns)
    own = jax.jit(
        lambda y, z: {"p": y + 1, "q": (2 * z, 3 * y)}, in_shardings=(place, None), out_shardings=columns
    )
    some = jax.jit(lambda y: (y + 1, 2 * y), out_shardings=(columns, None))
    held = jax.jit(lambda y: lax.with_sharding_constraint(y + 1, columns) * 2)
    for _ in range(2):
        for y in (x, given):
            found = own(y, turned)
            for leaf, wanted in (
                (found["p"], given + 1),
                (found["q"][0], 2 * given),
                (found["q"][1], 3 * given),
            ):
                same_as(np.asarray(leaf), wanted, "a leaf of a tree that has one place")
                wrong(not leaf.sharding.is_equivalent_to(columns, 2), f"a leaf is at {leaf.sharding}")
            first, second = some(y)
            same_as(np.asarray(first), given + 1, "a result with a place")
            same_as(np.asarray(second), 2 * given, "a result without one")
            wrong(not first.sharding.is_equivalent_to(columns, 2), f"a result is at {first.sharding}")
            same_as(np.asarray(held(y)), 2 * given + 2, "a result of a constraint")
    if mesh.shape[a] > 1:  # over one device all places are the same
        try:
            own(turned, turned)
        except ValueError:
            moved = jax.device_put(turned, NamedSharding(mesh, P(a)))
            same_as(np.asarray(own(moved, x)["p"]), given + 1, "an argument that was moved")
        else:
            raise Missing("this release moves an argument to the place that jit names")
    return jax.jit(over(mesh, a))(x)


BLOCK_FORMS: dict[str, Callable[..., Any]] = {
    "over_some_axes": _over_some_axes,
    "one_inside_another": _one_inside_another,
    "gradient_of_two": _gradient_of_two,
    "step_by_step": _step_by_step,
    "each_line": _each_line,
    "pmap_trees": _pmap_trees,
    "handed_through": _handed_through,
    "trees_in_turn": _trees_in_turn,
    "alike_but_not_equal": _alike_but_not_equal,
    "named_places": _named_places,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class BlockForm(ProgramForm):
    """One sharded program, with checks of collectives in uncommon shard_maps and pmaps, and of what jit returns."""

    name = "block_form"
    forms = BLOCK_FORMS
    two_axes = ("over_some_axes", "one_inside_another", "gradient_of_two", "each_line")

    @staticmethod
    def host(mesh, x, *, form, axis):
        return BLOCK_FORMS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
