# SPDX-License-Identifier: Apache-2.0
"""Programs over Explicit axes for `option_forms`: functions with `out_sharding`, arrays of sizes that the mesh does not
divide, pullbacks of complex sums.

Each function takes the mesh, its last axis, and the input sharded over that axis. Wrong results raise an exception.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from meshmark.core.bounds import FLOAT32
from meshmark.operations.programs.forms.base import at, explicit, over
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.options import wrong


def lies(array, place, what):
    """Raise RuntimeError if the sharding of an array is not equivalent to `place`."""
    wrong(not array.sharding.is_equivalent_to(place, array.ndim), f"{what} is placed as {array.sharding}")


def takes(function, option):
    """Whether the function of this release has an option."""
    return option in inspect.signature(function).parameters


EXACT_DRAWS = ("bits", "uniform", "rademacher")
ROUNDED_DRAWS = ("normal", "exponential", "gumbel", "laplace", "logistic", "cauchy")
"""Draws that apply an elementary function to a uniform draw."""

DRAWN = 2 * 2 * FLOAT32.elementary * FLOAT32.u
"""How far the draws of two programs may differ: in each at most two nested elementary functions. The logarithm of a
number near one turns a relative error into an absolute one."""


def _into_shardings(mesh, a, x):
    """`out_sharding=` of functions that create, multiply, reduce and draw, inside jit with Explicit axes: the values,
    the types and the shardings of the results."""
    m = explicit(mesh)
    n, given = mesh.shape[a], np.asarray(x)
    k = 4 * n
    square, kernel = given[:k, :k], np.array([[1.0, 2], [3, -1]], np.float32)[None, None]
    key = jax.random.key(3)
    places = np.arange(k, dtype=np.int32) % 5
    hot = (places[:, None] == np.arange(8)) * np.float32(1)
    line, rows, columns = P(a), P(a, None), P(None, a)
    with jax.set_mesh(m):
        there, whole = jax.device_put(square, at(m, a)), jax.device_put(square, at(m))
        spots = jax.device_put(places, at(m))
        wide = np.stack([square[None]])
        correlated = sum(
            kernel[0, 0, i, j] * np.pad(square, ((0, 1), (0, 1)))[i : i + k, j : j + square.shape[1]]
            for i in range(2)
            for j in range(2)
        )
        calls = (
            (jnp.arange, lambda o: jnp.arange(k, out_sharding=o), line, np.arange(k, dtype=np.int32)),
            (jnp.array, lambda o: jnp.array(square, out_sharding=o), rows, square),
            (jnp.zeros_like, lambda o: jnp.zeros_like(whole, out_sharding=o), rows, 0 * square),
            (jnp.ones_like, lambda o: jnp.ones_like(whole, out_sharding=o), columns, 0 * square + 1),
            (jnp.full_like, lambda o: jnp.full_like(whole, 7, out_sharding=o), rows, 0 * square + 7),
            (jnp.ravel, lambda o: jnp.ravel(there, out_sharding=o), line, square.ravel()),
            (jax.nn.one_hot, lambda o: jax.nn.one_hot(reshard(spots, P(a)), 8, out_sharding=o), rows, hot),
            (jnp.dot, lambda o: jnp.dot(there, there.T, out_sharding=o), columns, square @ square.T),
            (jnp.matmul, lambda o: jnp.matmul(there.T, there, out_sharding=o), P(), square.T @ square),
            (
                jnp.tensordot,
                lambda o: jnp.tensordot(there, there, (0, 0), out_sharding=o),
                P(),
                square.T @ square,
            ),
            (
                jnp.einsum,
                lambda o: jnp.einsum("ij,kj->ki", there, whole, out_sharding=o),
                columns,
                square @ square.T,
            ),
            (
                lax.dot_general,
                lambda o: lax.dot_general(there, there, (((1,), (1,)), ((), ())), out_sharding=o),
                rows,
                square @ square.T,
            ),
            (
                lax.conv_general_dilated,
                lambda o: lax.conv_general_dilated(
                    jax.device_put(wide, at(m)), kernel, (1, 1), ((0, 1), (0, 1)), out_sharding=o
                ),
                P(None, None, a, None),
                correlated[None, None],
            ),
            (lax.reduce_sum, lambda o: lax.reduce_sum(there, (0,), out_sharding=o), P(), square.sum(axis=0)),
            (jnp.sum, lambda o: jnp.sum(there, axis=0, out_sharding=o), P(), square.sum(axis=0)),
            (
                jax.ops.segment_sum,
                lambda o: jax.ops.segment_sum(whole, spots, 8, out_sharding=o),
                columns,
                np.float32(hot.T @ square),
            ),
            (
                jnp.bincount,
                lambda o: jnp.bincount(spots, length=8, out_sharding=o),
                P(),
                np.bincount(places, minlength=8).astype(np.int32),
            ),
            (
                jnp.repeat,
                lambda o: jnp.repeat(whole, 2, axis=0, out_sharding=o),
                rows,
                square.repeat(2, axis=0),
            ),
            (
                lax.broadcast,
                lambda o: lax.broadcast(whole, (2,), out_sharding=o),
                P(None, a),
                np.stack([square] * 2),
            ),
            (jnp.take, lambda o: whole.at[spots].get(out_sharding=o), rows, square[places]),
        )
        for function, call, spec, right in calls:
            name = getattr(function, "__name__", str(function))
            if function is not jnp.take and not takes(function, "out_sharding"):
                continue
            spec = P(*spec, *(None,) * (right.ndim - len(spec)))
            if any(e and size % n for e, size in zip(spec, right.shape, strict=True)):
                spec = P()
            spec = spec if any(spec) else P()
            kinds = []

            def run(f=call, o=spec, kinds=kinds):
                found = f(o)
                kinds.append(jax.typeof(found).sharding.spec)
                return found

            found = jax.jit(run)()
            same_as(np.asarray(found), right.astype(found.dtype), f"{name} into {spec}")
            lies(found, NamedSharding(m, spec), f"{name} into {spec}")
            wrong(
                tuple(filter(None, kinds[0])) != tuple(filter(None, spec)),
                f"the type of {name} into {spec} has {kinds[0]}",
            )
        for name in (*EXACT_DRAWS, *ROUNDED_DRAWS):
            draw = getattr(jax.random, name)
            if takes(draw, "out_sharding"):
                found = jax.jit(lambda draw=draw: draw(key, (k, 2), out_sharding=rows))()
                alone = np.asarray(jax.jit(lambda draw=draw: draw(key, (k, 2)))())
                away = 0.0 if name in EXACT_DRAWS else DRAWN
                near = np.allclose(np.asarray(found), alone, rtol=away, atol=away)
                wrong(not near, f"{name} into {rows} draws other numbers")
                lies(found, NamedSharding(m, rows), f"{name} into {rows}")
    return jax.jit(over(mesh, a))(x)


def _host_array_into_a_sharding(mesh, a, x):
    """`jnp.asarray` of a host array with out_sharding, inside and outside jit."""
    m = explicit(mesh)
    given = np.asarray(x)
    with jax.set_mesh(m):
        for found in (
            jax.jit(lambda: jnp.asarray(given, out_sharding=P(a)))(),
            jnp.asarray(given, out_sharding=P(a)),
        ):
            same_as(np.asarray(found), given, "a host array")
            lies(found, at(m, a), f"a host array into {P(a)}")
    return jax.jit(over(mesh, a))(x)


def refuses(error):
    """Whether an exception refuses a size that the mesh does not divide. Internal errors do not count."""
    kind = isinstance(error, (TypeError, ValueError)) or type(error).__name__ == "ShardingTypeError"
    return kind and re.search(r"not (evenly )?(divide|divisible)", str(error)) is not None


def _uneven_beside_explicit(mesh, a, x):
    """Arrays with Explicit axes and sizes that the mesh does not divide. Along an unsharded dimension functions and
    gradients are right and the other dimension keeps its sharding. Along a sharded one a result is right or refused."""
    m = explicit(mesh)
    n, given = mesh.shape[a], np.asarray(x)
    columns = n * (given.shape[1] // n) or n
    host = np.resize(given, (given.shape[0], columns))
    functions = {
        "cut": lambda w, y: y[1:],
        "cut twice": lambda w, y: y[1:-2][::-1],
        "joined": lambda w, y: w.concatenate([y[1:], y[:2]], axis=0),
        "padded": lambda w, y: w.pad(y, ((1, 2), (0, 0))),
        "running": lambda w, y: w.cumsum(y[1:], axis=0),
        "sorted": lambda w, y: w.sort(y[:-1], axis=0),
        "rolled": lambda w, y: w.roll(y[1:], 2, axis=0),
        "chosen": lambda w, y: w.where(y[1:] > 1, y[:-1], -y[1:]),
        "turned": lambda w, y: y[3:].T[:, ::2].T,
        "summed": lambda w, y: (y[1:] * 2).sum(axis=0, keepdims=True),
    }
    with jax.set_mesh(m):
        there = jax.device_put(host, at(m, None, a))
        for name, f in functions.items():
            found = jax.jit(lambda y, f=f: f(jnp, y))(there)
            same_as(np.asarray(found), f(np, host), f"{name} rows")
            lies(found, at(m, None, a), f"{name} rows")
        slope = jax.jit(
            jax.grad(lambda y: (jnp.pad(y[1:], ((0, 2), (0, 0))) * jnp.cumsum(y, axis=0)[:1]).sum())
        )
        first, below = host[:1], host[1:].sum(axis=0, keepdims=True)
        right = np.concatenate([below, np.repeat(first, len(host) - 1, axis=0)])
        same_as(np.asarray(slope(there)), right, "the gradient of uneven rows")
        lies(slope(there), at(m, None, a), "the gradient of uneven rows")
        # One device divides every size. Functions along a sharded dimension are then refused for other reasons.
        for name, f in functions.items() if n > 1 else ():
            flat = jax.device_put(host.T.copy(), at(m, a))
            try:
                found = jax.jit(lambda y, f=f: f(jnp, y))(flat)
            except Exception as error:
                wrong(not refuses(error), f"{name} sharded rows raise {type(error).__name__}: {error}")
                continue
            same_as(np.asarray(found), f(np, host.T), f"{name} sharded rows")
        for place in (at(m, a), at(m, mesh.axis_names)):
            try:
                found = jax.jit(lambda y, s=place.spec: reshard(y, s))(jax.device_put(host[: n + 1], at(m)))
            except Exception as error:
                wrong(not refuses(error), f"a reshard raises {type(error).__name__}: {error}")
                continue
            same_as(np.asarray(found), host[: n + 1], f"an uneven array into {place}")
    return jax.jit(over(mesh, a))(x)


def _complex_pulls(mesh, a, x):
    """Pullbacks of a complex sum with a real exponential, for each row of a batch over Explicit axes (jax#31879)."""
    m = explicit(mesh)
    n, given = mesh.shape[a], np.asarray(x)
    batch, weights = given[: 2 * n, :4] / 4, given[:4, :3] / 8

    def pulled(w, rows):
        def of(v, row):
            y = jnp.dot(row, v, precision="highest")
            return jnp.sum(jnp.log1p(jnp.exp(-2 * y))) + 1j * jnp.sum(y)

        def one(row):
            r, pull = jax.vjp(lambda v: of(v, row), w)
            return pull(jnp.full_like(r, 2 - 1j))[0]

        return jax.vmap(one)(rows)

    y = batch.astype(np.float64) @ weights
    slope = 2 * -2 / (1 + np.exp(2 * y)) + 1  # 2 from the real part, -1j * 1j from the imaginary part
    right = batch[:, :, None] * slope[:, None, :]
    # The slope changes by at most twice the error of y, a sum of four products. Its magnitude is at most 4. The error
    # of the exponential enters with a quarter of 4, that of the quotient is 4 units of 4 (meshmark.core.bounds), and
    # each of six roundings is one unit of 4.
    summed = 4 * FLOAT32.u * (np.abs(batch) @ np.abs(weights))
    own = (FLOAT32.elementary + 4 * 4 + 6 * 4) * FLOAT32.u
    bound = np.abs(batch)[:, :, None] * (2 * summed + own)[:, None, :]
    with jax.set_mesh(m):
        rows, w = jax.device_put(batch, at(m, a)), jax.device_put(weights, at(m))
        found = jax.jit(pulled)(w, rows)
        wrong(
            not np.all(np.abs(np.asarray(found) - right) <= bound),
            "a pull of a complex sum is another",
        )
        lies(found, at(m, a), "a pull of a complex sum")
    return jax.jit(over(mesh, a))(x)


EXPLICIT_FORMS: dict[str, Callable[..., Any]] = {
    "into_shardings": _into_shardings,
    "host_array_into_a_sharding": _host_array_into_a_sharding,
    "uneven_beside_explicit": _uneven_beside_explicit,
    "complex_pulls": _complex_pulls,
}
