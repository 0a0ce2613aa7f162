# SPDX-License-Identifier: Apache-2.0
"""Uncommon options of jit, pmap, loops, batches, callbacks and array functions, each in one sharded program.

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

from meshmark.operations.programs.forms.base import ProgramForm, at, explicit, over, whole


def wrong(truth, what):
    """Raise RuntimeError if `truth` holds."""
    if truth:
        raise RuntimeError(what)


def through(mesh, a, same):
    """The jitted f(y) + (y - x), where y = same(x) should equal x. The difference is there because f(-x) = f(x)."""

    def f(x):
        y = same(x)
        return whole(mesh, a)(y) + (y - x)

    return jax.jit(f, out_shardings=at(mesh, a))


# jit and its caches.


def _static_arguments(mesh, a, x):
    """Each value of a static argument has its own program."""
    times = jax.jit(lambda y, k: whole(mesh, a)(y) * k, static_argnums=1, out_shardings=at(mesh, a))
    three, one = times(x, 3), times(x, 1)
    wrong(
        not np.array_equal(three, 3 * np.asarray(one)),
        "a static argument of 3 gave the program of another value",
    )
    return one


def _static_names(mesh, a, x):
    """A static argument by name, with a string as its value."""

    def chosen(y, *, way):
        return whole(mesh, a)(y) if way == "f" else y

    run = jax.jit(chosen, static_argnames="way", out_shardings=at(mesh, a))
    wrong(not np.array_equal(run(x, way="same"), x), "a static name of the first call gave another program")
    return run(x, way="f")


def _dtypes_in_turn(mesh, a, x):
    """One jitted function of arrays with three dtypes and one shape."""
    run = jax.jit(whole(mesh, a), out_shardings=at(mesh, a))
    for kind in (jnp.int32, jnp.float32, jnp.bfloat16):
        found = run(x.astype(kind))
        wrong(found.dtype != kind, f"a call with {np.dtype(kind)} gave {found.dtype}")
    return run(x)


def _shapes_in_turn(mesh, a, x):
    """One jitted function of an array and of a number."""
    run = jax.jit(lambda y: y + y)
    wrong(
        np.asarray(run(2)) != 4 or run(x[:, :1]).shape != (x.shape[0], 1), "a call gave the shape of another"
    )
    return jax.jit(whole(mesh, a), out_shardings=at(mesh, a))(run(x) - x)


def _many_calls(mesh, a, x):
    """Five calls of one program give equal results."""
    run = over(mesh, a)
    jitted = jax.jit(run)
    found = [np.asarray(jitted(x)) for _ in range(5)]
    wrong(any(not np.array_equal(found[0], f) for f in found), "calls of one program differ")
    return jitted(x)


def _donated_pair(mesh, a, x):
    """Two donated arrays of one shape are not mixed up, and an array that is not donated stays."""
    given = [jax.device_put(np.asarray(x) + k, at(mesh, a)) for k in (0, 1)]

    def step(y, z, kept):
        return whole(mesh, a)(y), z + kept

    run = jax.jit(step, donate_argnums=(0, 1), out_shardings=(at(mesh, a), at(mesh, a)))
    found, other = run(*given, x)
    wrong(x.is_deleted(), "an array that was not donated is deleted")
    wrong(not np.array_equal(other, 2 * np.asarray(x) + 1), "a donated array gave the result of another")
    return found


def _donated_name(mesh, a, x):
    """A tree that is donated by argument name."""
    given = {"y": jax.device_put(np.asarray(x), at(mesh, a)), "k": jnp.float32(1)}
    run = jax.jit(lambda tree: {"y": whole(mesh, a)(tree["y"]), "k": tree["k"]}, donate_argnames="tree")
    return jax.device_put(run(tree=given)["y"], at(mesh, a))


def _unused(mesh, a, x):
    """Arguments that the program does not use, kept and dropped."""
    keep = jax.jit(lambda u, y, v: whole(mesh, a)(y), keep_unused=True, out_shardings=at(mesh, a))
    leave = jax.jit(lambda u, y, v: whole(mesh, a)(y), out_shardings=at(mesh, a))
    wrong(not np.array_equal(keep(x + 1, x, 7), leave(x + 1, x, 7)), "an unused argument changes a result")
    return leave(x + 2, x, 8)


def _attributes(mesh, a, x):
    """The attributes of a sharded array."""
    n, rows = mesh.shape[a], x.shape[0] // mesh.shape[a]
    wrong(x.is_fully_replicated and n > 1, "a sharded array says that it is replicated")
    wrong(not x.is_fully_addressable or not x.committed or x.weak_type, "an array is not what it was put as")
    wrong(x.sharding.shard_shape(x.shape) != (rows, x.shape[1]), "the shape of a shard is another")
    held = {(s.index[0].start or 0) // rows for s in x.addressable_shards}
    wrong(held != {*range(n)} or x.sharding.num_devices != mesh.size, "shards are missing")
    first = [s for s in x.addressable_shards if s.replica_id == 0]
    wrong(len(first) != n, "replicas of one shard have one number")
    return jax.jit(over(mesh, a))(x)


def _typed(mesh, a, x):
    """Types under Explicit axes, also of intermediate results: one spec entry per dimension."""
    m = explicit(mesh)
    seen = {}

    def f(y):
        columns = y.T
        seen.update(y=jax.typeof(y), columns=jax.typeof(columns), sum=jax.typeof(y.sum(axis=1)))
        return columns.T

    with jax.set_mesh(m):
        y = jax.jit(f)(jax.device_put(x, at(m, a)))
    specs = {name: tuple(t.sharding.spec) for name, t in seen.items()}
    wrong(specs != {"y": (a, None), "columns": (None, a), "sum": (a,)}, f"types are {specs}")
    return jax.jit(over(mesh, a))(jax.device_put(y, at(mesh, a)))


# pmap.


def on_a_line(mesh, a, x, function, **options):
    """The pmap over the devices of one line of the last axis, and x as one block of rows per device."""
    n = mesh.shape[a]
    devices = list(mesh.devices.reshape(-1, n)[0])
    return jax.pmap(function, axis_name="i", devices=devices, **options), np.asarray(x).reshape(
        n, -1, x.shape[1]
    )


def _pmap_axes(mesh, a, x):
    """pmap with an unmapped argument, and a result that is mapped along its second dimension."""
    run, blocks = on_a_line(mesh, a, x, lambda b, k: b * lax.psum(b, "i") + k, in_axes=(0, None), out_axes=1)
    found = np.asarray(run(blocks, np.float32(5))) - 5
    return jax.device_put(np.moveaxis(found, 1, 0).reshape(x.shape), at(mesh, a))


def _pmap_second(mesh, a, x):
    """pmap over the second dimension of its argument, with a static argument."""
    run, blocks = on_a_line(
        mesh, a, x, lambda b, k: b * lax.psum(b, "i") * k, in_axes=1, static_broadcasted_argnums=1
    )
    turned = np.ascontiguousarray(np.moveaxis(blocks, 0, 1))
    found = np.asarray(run(turned, 2)) - np.asarray(run(turned, 1))
    return jax.device_put(found.reshape(x.shape), at(mesh, a))


# Loops and branches.


def _scan_backward(mesh, a, x):
    """A reversed scan of five steps, unrolled by two, and its stacked outputs."""

    def same(y):
        def step(c, k):
            return 2 * c + k * y, c

        steps = jnp.arange(1, 6, dtype=y.dtype)
        last, seen = lax.scan(step, jnp.zeros_like(y), steps, reverse=True, unroll=2)
        return last - 128 * y + seen[1] - 31 * y

    return through(mesh, a, same)(x)


def _switch_clamped(mesh, a, x):
    """A switch index past the last branch takes the last branch; an index below zero takes the first."""

    def same(y):
        far = jnp.where(y.min() > -1, 7, 0)
        branches = [lambda b: b + 1, lambda b: b * 0, lambda b: b + 2]
        return lax.switch(far, branches, y) + lax.switch(-far, branches, y) - y - 3

    return through(mesh, a, same)(x)


def _lanes(mesh, a, x):
    """A loop under vmap with a different number of iterations for each element of the batch."""

    def same(y):
        def turn(column, n):
            def step(state):
                i, c = state
                return i + 1, c + i + 1

            return lax.while_loop(lambda state: state[0] < n, step, (jnp.int32(0), column))[1]

        turns = jnp.arange(y.shape[1]) % 4
        sums = (turns * (turns + 1) // 2).astype(y.dtype)
        return jax.vmap(turn, in_axes=(1, 0), out_axes=1)(y, turns) - sums

    return through(mesh, a, same)(x)


def _mapped(mesh, a, x):
    """lax.map in batches with a remainder, and an associative scan from the right."""

    def same(y):
        columns = lax.map(lambda c: c * 2, y.T[:7], batch_size=3)
        right = lax.associative_scan(jnp.add, y, axis=1, reverse=True)
        alone = right - jnp.pad(right[:, 1:], ((0, 0), (0, 1)))
        return alone.at[:, :7].add(columns.T - 2 * y[:, :7])

    return through(mesh, a, same)(x)


# Batches and derivatives.


def _vmap_of_some(mesh, a, x):
    """vmap over only one argument, and over columns by a negative axis."""

    def same(y):
        weights = jnp.arange(1, y.shape[0] + 1, dtype=y.dtype)
        found = jax.vmap(lambda column, w: column * w, in_axes=(-1, None), out_axes=1)(y, weights)
        return found - y * (weights - 1)[:, None]

    return through(mesh, a, same)(x)


def _linearized_twice(mesh, a, x):
    """A linearized function that is called with two tangents."""

    def same(y):
        _, push = jax.linearize(lambda b: b * b, y)
        one = jnp.ones_like(y)
        return (push(3 * one) - push(one)) / 4

    return through(mesh, a, same)(x)


def _ties(mesh, a, x):
    """Equal elements share the gradient of their maximum."""

    def same(y):
        first, second = jax.grad(lambda p: jnp.max(jnp.stack(p), axis=0).sum())((y, y))
        return y * (2 * first) + (first - second)

    return through(mesh, a, same)(x)


def _policy(mesh, a, x):
    """A checkpoint policy that saves nothing, and a custom_vjp rule with a non-differentiable argument."""

    def same(y):
        kept = jax.checkpoint(
            lambda b: (b * 2) * jnp.ones_like(b), policy=jax.checkpoint_policies.nothing_saveable
        )
        rule = jax.custom_vjp(lambda k, b: k * b, nondiff_argnums=(0,))
        rule.defvjp(lambda k, b: (k * b, b), lambda k, b, g: (k * g + 0 * b,))
        return y * (jax.grad(lambda b: rule(3, kept(b)).sum())(y) - 5)

    return through(mesh, a, same)(x)


# Callbacks.


def _callback_of_a_batch(mesh, a, x):
    """A host function under vmap, with each vmap_method: rows keep their places."""

    def same(y):
        kind = jax.ShapeDtypeStruct(y.shape[1:], y.dtype)
        places = jnp.arange(y.shape[0], dtype=y.dtype)
        found = 0
        for method in ("sequential", "expand_dims", "broadcast_all"):

            def called(i, row, method=method):
                add = lambda i, row: np.asarray(row + np.asarray(i)[..., None], np.float32)  # noqa: E731
                return jax.pure_callback(add, kind, i, row, vmap_method=method)

            found = found + jax.vmap(called)(places, y)
        return found - 3 * places[:, None] - 2 * y

    return through(mesh, a, same)(x)


# Functions of arrays.


def _filled_with_nan(mesh, a, x):
    """By default an index past the end gives NaN, and an index below zero counts from the end."""

    def same(y):
        rows = y.shape[0]
        found = jnp.take(y, np.arange(-1, rows + 1), axis=0)
        lost = jnp.isnan(found[-1]).all() & (found[0] == y[-1]).all()
        return jnp.where(lost, found[1:-1], -1)

    return through(mesh, a, same)(x)


def _rolled_twice(mesh, a, x):
    """Two shifts at once, and the shifts back one after the other."""
    return through(mesh, a, lambda y: jnp.roll(jnp.roll(jnp.roll(y, (3, -2), (0, 1)), 2, 1), -3, 0))(x)


def _order_downward(mesh, a, x):
    """A stable descending argsort."""

    def same(y):
        order = jnp.argsort(y, axis=0, descending=True, stable=True)
        ranked = jnp.take_along_axis(y, order, axis=0)
        equal = ranked[1:] == ranked[:-1]
        right = (ranked[1:] <= ranked[:-1]) & (~equal | (order[1:] > order[:-1]))
        return jnp.where(right.all(), y, -1)

    return through(mesh, a, same)(x)


def _repeated(mesh, a, x):
    """`jnp.repeat` with a count for each row and a total length."""

    def same(y):
        times = np.arange(y.shape[0]) % 3 + 1
        found = jnp.repeat(y, times, axis=0, total_repeat_length=int(times.sum()))
        return found[np.cumsum(times) - 1]

    return through(mesh, a, same)(x)


def _two_dimensions_reversed(mesh, a, x):
    """Two dimensions reversed at once, four equal parts joined, and a cyclic transpose of three dimensions and back."""

    def same(y):
        back = jnp.flip(lax.rev(y, (0, 1)), 0)[:, ::-1]
        third = y.shape[0] // 4
        parts = jnp.concatenate(
            [back[:third], back[third : 2 * third], back[2 * third : 3 * third], back[3 * third :]]
        )
        cube = parts.reshape(third, 4, -1)
        return jnp.transpose(jnp.transpose(cube, (1, 2, 0)), (2, 0, 1)).reshape(y.shape)

    return through(mesh, a, same)(x)


OPTIONS: dict[str, Callable[..., Any]] = {
    "static_arguments": _static_arguments,
    "static_names": _static_names,
    "dtypes_in_turn": _dtypes_in_turn,
    "shapes_in_turn": _shapes_in_turn,
    "many_calls": _many_calls,
    "donated_pair": _donated_pair,
    "donated_name": _donated_name,
    "unused": _unused,
    "attributes": _attributes,
    "typed": _typed,
    "pmap_axes": _pmap_axes,
    "pmap_second": _pmap_second,
    "scan_backward": _scan_backward,
    "switch_clamped": _switch_clamped,
    "lanes": _lanes,
    "mapped": _mapped,
    "vmap_of_some": _vmap_of_some,
    "linearized_twice": _linearized_twice,
    "ties": _ties,
    "policy": _policy,
    "callback_of_a_batch": _callback_of_a_batch,
    "filled_with_nan": _filled_with_nan,
    "rolled_twice": _rolled_twice,
    "order_downward": _order_downward,
    "repeated": _repeated,
    "two_dimensions_reversed": _two_dimensions_reversed,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class ProgramOption(ProgramForm):
    """One sharded program with each option of jit, pmap, loops, batches, callbacks and array functions."""

    name = "program_option"
    forms = OPTIONS

    @staticmethod
    def host(mesh, x, *, form, axis):
        return OPTIONS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
