# SPDX-License-Identifier: Apache-2.0
"""Uncommon ways to call derivatives, loops, batches and compiled functions, each in one sharded program.

The program is that of `programs.forms.base`: f(x) = x * s(x). A case returns f(x) if its calls work as documented, and
other values otherwise. If values cannot show it (a shape, a sharding, two calls that differ), the case raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import SingleDeviceSharding

from meshmark.operations.programs.forms.base import ProgramForm, at, over, whole
from meshmark.operations.programs.forms.options import through, wrong

MATRIX = ((1.0, 2, 3), (4, 5, 6), (7, 8, 10))
"""A matrix that is not symmetric."""


def off(*pairs):
    """The sum of the absolute differences of (found, expected) pairs: zero if all are equal."""
    return sum(jnp.abs(found - expected).sum() for found, expected in pairs)


# Derivatives.


def _several_arguments(mesh, a, x):
    """Gradients by several arguments in another order, of a tree, and with auxiliary results."""

    def same(y):
        ones = jnp.ones_like(y)
        by_q, by_p = jax.grad(lambda p, q: (p * p * q).sum(), argnums=(1, 0))(y, 3 * ones)
        tree = jax.grad(lambda t: (t["b"] * t["a"] + t["b"]).sum())({"b": 2 * y, "a": 3 * ones})
        (value, more), slope = jax.value_and_grad(lambda p: ((2 * p).sum(), {"k": 3 * p}), has_aux=True)(y)
        primal, tangent, beside = jax.jvp(lambda p: (p * p, 5 * p), (y,), (ones,), has_aux=True)
        lost = off(
            (by_p, 6 * y), (by_q, y * y), (tree["a"], 2 * y), (tree["b"], 4 * ones), (more["k"], 3 * y)
        )
        return (
            y
            + lost
            + off((slope, 2 * ones), (value, 2 * y.sum()), (primal, y * y), (tangent, 2 * y), (beside, 5 * y))
        )

    return through(mesh, a, same)(x)


def _pulled_twice(mesh, a, x):
    """A pullback that is called twice, a transposed linear function, custom rules and checkpoints with a number."""

    def same(y):
        ones = jnp.ones_like(y)
        _, pull = jax.vjp(lambda p: p * p, y)
        first, second = pull(ones)[0], pull(3 * ones)[0]
        turned = jax.linear_transpose(lambda p: 3 * p, y)(y)[0]
        rule = jax.custom_jvp(lambda k, p: k * p, nondiff_argnums=(0,))
        rule.defjvp(lambda k, primals, tangents: (k * primals[0], k * tangents[0]))
        pushed = jax.jvp(lambda p: rule(7, p), (y,), (ones,))[1]
        kept = jax.checkpoint(lambda k, p: k * p * p if k > 1 else p, static_argnums=(0,))
        again = jax.grad(lambda p: kept(3, p).sum())(y)
        closed = jax.grad(lambda k: (k * y * y).sum())(2.0)
        lost = off(
            (first, 2 * y),
            (second, 6 * y),
            (turned, 3 * y),
            (pushed, 7 * ones),
            (closed, (y * y).sum()),
            (again, 6 * y),
        )
        return y + lost

    return through(mesh, a, same)(x)


def _matrices_of_derivatives(mesh, a, x):
    """Jacobians of a linear map with a matrix that is not symmetric, and the Hessian of its quadratic form."""

    def same(y):
        m, v = jnp.array(MATRIX, y.dtype), y[0, :3]

        def linear(u):
            return (m * u).sum(axis=1)

        def form(u):
            return (u * linear(u)).sum()

        lost = off((jax.jacfwd(linear)(v), m), (jax.jacrev(linear)(v), m), (jax.hessian(form)(v), m + m.T))
        return y + lost

    return through(mesh, a, same)(x)


def _through_branches(mesh, a, x):
    """Derivatives through branches and loops: of the taken branch, and of every iteration."""

    def same(y):
        def branched(p):
            return lax.cond(p[0, 0] > -1, lambda q, r: 3 * q - r, lambda q, r: q + r, p, 2 * p)

        def looped(p):
            return lax.fori_loop(0, 3, lambda i, c: c + i * p, p)

        slopes = [jax.grad(lambda p, f=f: f(p).sum())(y) for f in (branched, looped)]
        pushed = jax.jvp(
            lambda p: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, 3 * c[1]), (0, p))[1],
            (y,),
            (y,),
        )
        return y + off((slopes[0], jnp.ones_like(y)), (slopes[1], 4 * jnp.ones_like(y)), (pushed[1], 9 * y))

    return through(mesh, a, same)(x)


# Loops and branches.


def _ends_of_loops(mesh, a, x):
    """Loops without iterations, without inputs, and with a remainder after unrolling; a branch of two operands."""

    def same(y):
        none = lax.fori_loop(0, 0, lambda i, c: c + 1, y)
        backward = lax.fori_loop(3, 1, lambda i, c: c + 1, y)
        started = lax.while_loop(lambda c: c.min() < -1, lambda c: c + 1, y)
        from_two = lax.fori_loop(2, 5, lambda i, c: c + i, y)
        last, stacked = lax.scan(lambda c, _: (2 * c, c), y, None, length=5)
        rest, _ = lax.scan(lambda c, k: (2 * c + k, None), y, jnp.arange(1.0, 6), unroll=3)
        chosen = lax.cond(y.min() < -1, lambda p, q: q - p, lambda p, q: p - q, y, 3 * y)
        lost = off((none, y), (backward, y), (started, y), (from_two, y + 9), (last, 32 * y))
        return y + lost + off((stacked[4], 16 * y), (stacked[0], y), (rest, 32 * y + 57), (chosen, -2 * y))

    return through(mesh, a, same)(x)


def _scans_from_the_right(mesh, a, x):
    """Associative scans of a non-commutative function and of a sum, along either dimension, from either end."""

    def same(y):
        def joined(first, second):
            return second[0] * first[0], second[0] * first[1] + second[1]

        ones = jnp.ones_like(y)
        forward = lax.associative_scan(joined, (ones, y), axis=1)[1]
        right = lax.associative_scan(jnp.add, y, axis=0, reverse=True)
        after = jnp.pad(right[1:], ((0, 1), (0, 0)))
        before = jnp.pad(forward[:, :-1], ((0, 0), (1, 0)))
        return y + off((forward - before, y), (right - after, y))

    return through(mesh, a, same)(x)


# Batches.


def _sizes_of_batches(mesh, a, x):
    """vmap with an explicit size, of a tree, with a result that is equal for all elements, and over two dimensions."""

    def same(y):
        n = y.shape[0]
        told = jax.vmap(lambda: jnp.arange(3.0), axis_size=n)()
        tree = jax.vmap(lambda t, k: t["p"] * k + t["q"], in_axes=({"p": 0, "q": None}, None))(
            {"p": y, "q": y[0]}, 2.0
        )
        alike = jax.vmap(lambda p: (p, jnp.float32(3)), out_axes=(0, None))(y)
        outer = jax.vmap(jax.vmap(lambda p, q: p - q, in_axes=(0, None)), in_axes=(None, 0), out_axes=1)(
            y, y[:2]
        )
        lost = off((told, jnp.tile(jnp.arange(3.0), (n, 1))), (tree, 2 * y + y[0]), (alike[0], y))
        return y + lost + off((alike[1], 3), (outer, y[:, None] - y[None, :2]))

    return through(mesh, a, same)(x)


# Calls and shardings.


def _numbers_in_turn(mesh, a, x):
    """One jitted function of Python numbers, keywords and closed-over arrays that change from call to call."""
    times = jax.jit(lambda y, k, *, plus=0: whole(mesh, a)(y) * k + plus, out_shardings=at(mesh, a))
    one = np.asarray(times(x, 1))
    for k, plus in ((2, 0), (3, 5), (2.5, 5), (True, 7), (np.float32(4), 7)):
        wrong(
            not np.array_equal(times(x, k, plus=plus), one * k + plus),
            f"a call with {k!r} and {plus} is another's",
        )
    for k in (1, 2):
        added = jnp.full((1, x.shape[1]), k, x.dtype)
        wrong(
            not np.array_equal(jax.jit(lambda y, added=added: y + added)(x), np.asarray(x) + k),
            "an old array",
        )
    first, second = jax.jit(lambda *, p, q: (p - q, q))(q=x, p=2 * x)
    wrong(not np.array_equal(first, x) or not np.array_equal(second, x), "named arguments changed places")
    return times(x, 1)


def _one_device(mesh, a, x):
    """Arrays on one device stay there, on whichever device; blocks go from one device to another."""
    for device in (mesh.devices.flat[-1], mesh.devices.flat[1 % mesh.size]):
        for place in (device, SingleDeviceSharding(device)):
            there = jax.device_put(x, place)
            for y in (there, there + 1, jax.jit(lambda b: b * 2)(there)):
                wrong(y.devices() != {device}, f"an array of {device} is on {y.devices()}")
            wrong(not np.array_equal(there, x), f"an array put on {device} is another")
    return jax.jit(over(mesh, a))(jax.device_put(there, at(mesh, a)))


def _told_before(mesh, a, x):
    """`eval_shape` and `lower` report the shapes and dtypes of the results."""
    run = jax.jit(lambda y: {"f": whole(mesh, a)(y), "rows": y[:3].T.astype(jnp.int32)})
    told, lowered = jax.eval_shape(run, x), run.lower(x)
    found = run(x)
    for name, y in found.items():
        for said in (told[name], lowered.out_info[name]):
            wrong(
                (said.shape, said.dtype) != (y.shape, y.dtype),
                f"the shape or dtype of {name} was told as {said}",
            )
    return jax.device_put(found["f"], at(mesh, a))


def _types_of_results(mesh, a, x):
    """The dtypes of results follow the promotion rules, for sharded arrays, compiled."""
    half, small, byte = x.astype(jnp.bfloat16), x.astype(jnp.int8), x.astype(jnp.uint8)
    told = {
        "bfloat16": lambda: (
            half.sum(),
            half * 2.0,
            half + small,
            jnp.where(half > 1, half, 0),
            jnp.mean(half),
        ),
        "float16": lambda: (half.astype(jnp.float16) + 1.5, jnp.sqrt(half.astype(jnp.float16)).max(0)),
        "float32": lambda: (
            half + jnp.float16(1),
            jnp.mean(small),
            x / 2,
            small / byte,
            half @ x.T,
            x + byte,
        ),
        "int32": lambda: (
            jnp.argmax(x, 0),
            x.argsort(0),
            jnp.sum(small, 0),
            (x > 1).cumsum(0),
            lax.top_k(x, 2)[1],
        ),
        "int16": lambda: (small + byte, jnp.maximum(small, byte)),
        "int8": lambda: (
            small + 1,
            small.max(0),
            -small,
            small // 3,
            jnp.sort(small),
            jnp.where(x > 1, small, 2),
        ),
        "uint8": lambda: (byte + 1, byte.min(1), byte >> 1, jnp.clip(byte, 1, 3), jnp.flip(byte, 0)),
        "uint32": lambda: (byte.sum(0), lax.population_count(byte.astype(jnp.uint32))),
        "bool": lambda: (x > 1, small == byte, jnp.isnan(half), (x > 1).any(0), (byte > 1) & (x > 2)),
    }
    for dtype, results in told.items():
        for number, y in enumerate(jax.jit(results)()):
            wrong(y.dtype != dtype, f"result {number} of those of {dtype} is {y.dtype}")
    weak, strong = jax.jit(lambda: (jnp.asarray(2) * 3, x[0, 0] * 3))()
    wrong(not weak.weak_type or strong.weak_type, "a number of no dtype has one, or an array has none")
    return jax.jit(over(mesh, a))(x)


# Specs of shard_map.


def _specs_of_trees(mesh, a, x):
    """Specs for trees, one spec for all arguments, outputs with different specs, and a number beside an array."""

    def f(tree, rest, k):
        total = lax.psum(tree["y"] * k, a)
        return {"f": tree["y"] * total, "rest": (rest[0] - rest[1], lax.psum(rest[1].sum(), a))}

    outputs = {"f": P(a), "rest": (P(a), P())}
    mapped = jax.shard_map(f, mesh=mesh, in_specs=({"y": P(a)}, P(a), P()), out_specs=outputs)
    given = np.asarray(x)
    found = jax.jit(mapped)({"y": x}, (3 * given, given), np.float32(1))
    difference, total = found["rest"]
    wrong(not np.array_equal(difference, 2 * given), "arguments under one spec changed places")
    wrong(total.shape != () or float(total) != given.sum(), f"the sum of all blocks is {total}")
    both = jax.jit(jax.shard_map(lambda p, q: p - q, mesh=mesh, in_specs=P(a), out_specs=P(a)))
    wrong(not np.array_equal(both(3 * given, given), 2 * given), "arguments under one spec changed places")
    return found["f"]


def _axes_in_turn(mesh, a, x):
    """A dimension sharded over all mesh axes, the last axis first: blocks and device indices follow the spec."""
    axes = tuple(reversed(mesh.axis_names))
    mapped = jax.shard_map(
        lambda b: (b, lax.axis_index(axes)[None].astype(jnp.int32), b[:1] * 0 + lax.axis_size(axes)),
        mesh=mesh,
        in_specs=P(axes),
        out_specs=P(axes),
    )
    there = jax.device_put(x, at(mesh, axes))
    found, places, size = jax.jit(mapped)(there)
    wrong(not np.array_equal(found, x), f"blocks over {axes} changed places")
    wrong(not np.array_equal(places, np.arange(mesh.size)), f"devices over {axes} count {places}")
    wrong(not np.all(np.asarray(size) == mesh.size), f"the axes {axes} have another size")
    return jax.jit(over(mesh, a))(jax.device_put(found, at(mesh, a)))


FUNCTION_FORMS: dict[str, Callable[..., Any]] = {
    "several_arguments": _several_arguments,
    "pulled_twice": _pulled_twice,
    "matrices_of_derivatives": _matrices_of_derivatives,
    "through_branches": _through_branches,
    "ends_of_loops": _ends_of_loops,
    "scans_from_the_right": _scans_from_the_right,
    "sizes_of_batches": _sizes_of_batches,
    "numbers_in_turn": _numbers_in_turn,
    "one_device": _one_device,
    "told_before": _told_before,
    "types_of_results": _types_of_results,
    "specs_of_trees": _specs_of_trees,
    "axes_in_turn": _axes_in_turn,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class FunctionForm(ProgramForm):
    """One sharded program with each uncommon way of calling derivatives, loops, batches and compiled functions."""

    name = "function_form"
    forms = FUNCTION_FORMS

    @staticmethod
    def host(mesh, x, *, form, axis):
        return FUNCTION_FORMS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
