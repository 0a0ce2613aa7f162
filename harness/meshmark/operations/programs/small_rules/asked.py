# SPDX-License-Identifier: Apache-2.0
"""Small rules: what a call asks for, where a shortcut would answer another question. Sums in a wider type, slopes at
zeros and ties, the types of the slopes of each argument, an out_sharding beside the one that follows, and functions
along a sharded dimension of Explicit axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from meshmark.operations.programs.cuts.running import hold, mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused

NARROW = (
    (np.int8, np.int32),
    (np.int16, np.int32),
    (ml_dtypes.bfloat16, np.float32),
    (np.float16, np.float32),
)
"""Dtypes with a wider one: the sums below are beyond the narrow one, or need more of its digits, and exact in the
wider."""


def _wider_sums(line, grid):
    """Sums, running sums, products of matrices and convolutions with `dtype` or `preferred_element_type`. Their results
    don't fit into the dtype of their arguments."""
    for narrow, wide in NARROW:
        host = (mixed((4 * line.size, 6), 101, 7) + 1).astype(narrow)
        right = host.astype(wide)
        members = {}
        for axis in (0, 1):
            members[f"the sum along {axis}"] = (
                lambda x, axis=axis, to=wide: jnp.sum(x, axis, dtype=to),
                right.sum(axis, dtype=wide),
            )
            members[f"the running sum along {axis}"] = (
                lambda x, axis=axis, to=wide: jnp.cumsum(x, axis, dtype=to),
                right.cumsum(axis, dtype=wide),
            )
        asked = {"preferred_element_type": wide}
        members |= {
            "x.T @ x": (lambda x, o=asked: jnp.matmul(x.T, x, **o), right.T @ right),
            "the dot of x.T and x": (lambda x, o=asked: jnp.dot(x.T, x, **o), right.T @ right),
            "the tensordot of x and x": (
                lambda x, o=asked: jnp.tensordot(x, x, ((0,), (0,)), **o),
                right.T @ right,
            ),
            "an einsum of x and x": (
                lambda x, o=asked: jnp.einsum("ki,kj->ij", x, x, **o),
                right.T @ right,
            ),
            "the inner product of x and x": (lambda x, o=asked: jnp.inner(x, x, **o), right @ right.T),
            "the dot_general over rows": (
                lambda x, o=asked: lax.dot_general(x, x, (((0,), (0,)), ((), ())), **o),
                right.T @ right,
            ),
            "the convolution along dimension 0": (
                lambda x, o=asked: _convolved(x, **o),
                _convolution(right),
            ),
        }
        hold(line, grid, members, host)


KERNEL = (55, 99, 72)


def _convolved(x, **options):
    """Each column of x with KERNEL, along dimension 0. The kernel is not a part of x: XLA's partitioner counts the
    replicas of a sharded one (results/findings/convolution-counts-replicas)."""
    sides = x.T[:, None, :], jnp.asarray(KERNEL, x.dtype)[None, None, :]
    return lax.conv_general_dilated(*sides, (1,), "VALID", **options)[:, 0].T


def _convolution(x):
    """The same in NumPy."""
    return np.stack([np.correlate(column, np.asarray(KERNEL, x.dtype), "valid") for column in x.T], 1)


def _slopes_at_zeros(line, grid):
    """Slopes of products and running products of which some factors are zero, and of the larger of equal numbers."""
    count = 2 * line.size
    host = (mixed((count, 4), 3, 5) + 1).astype(np.float32)
    host[:, 1:] = 1
    host[1::3, 1] = 2
    host[0, 0] = host[count - 1, 2] = host[0, 3] = host[count // 2, 3] = 0  # one zero, none, one, two
    host[1:, 0] = np.where(np.arange(1, count) % 5 == 0, 2, 1)
    for axis in (0, 1):
        others = np.stack(
            [np.prod(np.delete(host, k, axis), axis) for k in range(host.shape[axis])], axis
        ).astype(np.float32)
        weights = np.ones_like(host)
        running = _running_slopes(host, axis)
        largest = host.max(axis, keepdims=True)
        ties = (host == largest) / (host == largest).sum(axis, keepdims=True)
        members = {
            f"the gradient of the product along {axis}": (
                jax.grad(lambda x, axis=axis: jnp.sum(jnp.prod(x, axis))),
                others,
            ),
            f"the gradient of the kept product along {axis}": (
                jax.grad(lambda x, axis=axis: jnp.sum(jnp.prod(x, axis, keepdims=True))),
                others,
            ),
            f"the tangent of the product along {axis}": (
                lambda x, axis=axis, w=weights: jax.jvp(lambda v: jnp.prod(v, axis), (x,), (jnp.asarray(w),))[
                    1
                ],
                others.sum(axis),
            ),
            f"the gradient of running products along {axis}": (
                jax.grad(lambda x, axis=axis: jnp.sum(jnp.cumprod(x, axis))),
                running,
            ),
        }
        hold(line, grid, members, host)
        near = {
            f"the gradient of the largest along {axis}": (
                jax.grad(lambda x, axis=axis: jnp.sum(jnp.max(x, axis))),
                ties.astype(np.float32),
            )
        }
        hold(line, grid, near, host, most=1)


def _running_slopes(host: np.ndarray, axis: int) -> np.ndarray:
    """The gradient of the sum of all running products: for each factor, the sum of the products that have it, without
    it."""
    rows = np.moveaxis(host, axis, 0).astype(np.float64)
    found = np.zeros_like(rows)
    for k in range(len(rows)):
        without = rows.copy()
        without[k] = 1
        found[k] = np.cumprod(without, 0)[k:].sum(0)
    return np.moveaxis(found, 0, axis).astype(np.float32)


def _types_of_slopes(line, grid):
    """The slopes of each of three arguments over Explicit axes lie as the argument does, by every way to ask for them,
    and in the order that was asked for."""
    m = explicit(grid)
    side = 2 * m.size
    hosts = [(mixed((side, side), 7, step) - 3).astype(np.float32) for step in (5, 11, 13)]
    specs = (PartitionSpec("x", None), PartitionSpec(None, "y"), PartitionSpec("y", "x"))

    def loss(a, b, c):
        far = [jax.sharding.reshard(v, PartitionSpec()) for v in (a, b, c)]
        return jnp.sum(far[0] * far[1] + 3 * far[2] * far[1])

    right = (hosts[1], hosts[0] + 3 * hosts[2], 3 * hosts[1])
    with jax.set_mesh(m):
        given = [jax.device_put(h, s) for h, s in zip(hosts, specs, strict=True)]
        for which in ((0, 1, 2), (2, 0), (1,), (2,), 1, 2):
            ways = {
                "grad": lambda which=which: jax.grad(loss, which)(*given),
                "jitted grad": lambda which=which: jax.jit(jax.grad(loss, which))(*given),
                "value_and_grad": lambda which=which: jax.value_and_grad(loss, which)(*given)[1],
                "grad with aux": lambda which=which: jax.grad(
                    lambda *v: (loss(*v), v[0]), which, has_aux=True
                )(*given)[0],
            }
            for name, ask in ways.items():
                found = ask()
                pairs = zip(which, found, strict=True) if isinstance(which, tuple) else [(which, found)]
                for k, slope in pairs:
                    what = f"the slope of argument {k} by {name} of {which}"
                    expect(jax.typeof(slope).sharding.spec, specs[k], f"the spec of {what}")
                    expect(np.asarray(slope), right[k], what)
        _, pull = jax.vjp(loss, *given)
        for k, slope in enumerate(pull(jnp.float32(1))):
            expect(jax.typeof(slope).sharding.spec, specs[k], f"the spec of the cotangent of argument {k}")
            expect(np.asarray(slope), right[k], f"the cotangent of argument {k}")


def _asked_shardings(line, grid):
    """An out_sharding where another one follows from the arguments, for each function of products that takes it."""
    m = explicit(grid)
    side = 2 * m.size
    host = (mixed((side, side), 7, 5) - 3).astype(np.float32)
    calls = {
        "einsum": lambda a, b, **o: jnp.einsum("ij,jk->ik", a, b, **o),
        "einsum of three": lambda a, b, **o: jnp.einsum("ij,jk,kl->il", a, b, b, **o),
        "matmul": jnp.matmul,
        "dot": jnp.dot,
        "tensordot": lambda a, b, **o: jnp.tensordot(a, b, 1, **o),
        "dot_general": lambda a, b, **o: lax.dot_general(a, b, (((1,), (0,)), ((), ())), **o),
    }
    right = host @ host
    with jax.set_mesh(m):
        a = jax.device_put(host, PartitionSpec("x", None))
        b = jax.device_put(host, PartitionSpec(None, "y"))
        for name, f in calls.items():
            right_side = jax.device_put(host, PartitionSpec()) if name == "einsum of three" else b
            answer = right @ host if name == "einsum of three" else right
            for spec in (PartitionSpec(None, None), PartitionSpec("y", "x"), PartitionSpec(None, "x")):
                run = partial(f, out_sharding=spec)
                for way in ("eager", "compiled"):
                    found = (jax.jit(run) if way == "compiled" else run)(a, right_side)
                    what = f"{name}, {way}, with the out_sharding {spec}"
                    expect(jax.typeof(found).sharding.spec, spec, f"the spec of {what}")
                    expect(np.asarray(found), answer, what)


ALONG = {
    "cumsum": lambda x, axis: jnp.cumsum(x, axis),
    "cumprod": lambda x, axis: jnp.cumprod(x, axis),
    "cummax": lambda x, axis: lax.cummax(x, axis),
    "cumlogsumexp": lambda x, axis: lax.cumlogsumexp(x, axis),
}
"""Functions that JAX 0.10.2 to 0.12.0.1 refuse along a sharded dimension of Explicit axes."""


def _along_shards(line, grid):
    """Running functions along a sharded dimension of Explicit axes are refused. Along another one they keep the
    type."""
    m = explicit(grid)
    if m.size == 1:
        return
    host = np.ones((2 * m.size, 2 * m.size), np.float32)
    with jax.set_mesh(m):
        x = jax.device_put(host, PartitionSpec(("x", "y"), None))
        for (name, f), way in itertools.product(ALONG.items(), ("eager", "compiled")):
            cut, whole = (partial(f, axis=axis) for axis in (0, 1))
            if way == "compiled":
                cut, whole = jax.jit(cut), jax.jit(whole)
            refused(f"{name}, {way}, along a sharded dimension", "[Ss]hard", lambda cut=cut: cut(x))
            spec = jax.typeof(whole(x)).sharding.spec
            expect(spec, jax.typeof(x).sharding.spec, f"the spec of {name}, {way}")


def _parts_of_one_type(line, grid):
    """Parts of one array that are of two dtypes, or that hold a part that lies elsewhere, are refused."""
    devices = list(line.devices.flat)
    if len(devices) == 1 or jax.process_count() > 1:
        return
    spread = NamedSharding(line, PartitionSpec("d"))
    parts = [jax.device_put(np.full(2, k, np.float32), d) for k, d in enumerate(devices)]
    for kind in (np.int32, np.float16):
        for at in (0, len(devices) - 1):
            mixed_parts = [p.astype(kind) if k == at else p for k, p in enumerate(parts)]
            refused(
                f"an array of parts of which part {at} is {np.dtype(kind)}",
                "dtype",
                lambda given=mixed_parts: jax.make_array_from_single_device_arrays(
                    (2 * len(devices),), spread, given
                ),
            )


def _weighted(*arrays):
    """Not the array itself: a compiler leaves out a gather and a cut that follow each other."""
    return sum(k * one for k, one in enumerate(arrays, 2))


def _sent_by_own_rules(line, grid):
    """A function with its own partitioning that asks for the sharding that its argument has sends nothing."""
    from jax.experimental.custom_partitioning import custom_partitioning

    if line.size == 1:
        return
    for count in (1, 2):
        f = custom_partitioning(_weighted)

        def partition(m, shapes, result, count=count):
            place = result.sharding
            return m, _weighted, place, (place,) * count

        f.def_partition(
            partition,
            infer_sharding_from_operands=lambda m, shapes, result: shapes[0].sharding,
            sharding_rule=f"{', '.join(['i j'] * count)} -> i j",
        )
        for mesh, spec in ((line, ("d",)), (line, (None, "d")), (grid, ("x", "y"))):
            host = (mixed((2 * line.size, 2 * line.size), 9, 7)).astype(np.float32)
            given = [placed(mesh, host, *spec)] * count
            run = jax.jit(f).lower(*given).compile()
            text = run.as_text() or ""
            moved = [kind for kind in ("all-gather", "all-reduce", "all-to-all", "permute") if kind in text]
            what = f"a function of {count} with its own partitioning, over {spec},"
            wrong(bool(moved), f"{what} sends by {', '.join(moved)}, where nothing need be sent")
            expect(np.asarray(run(*given)), _weighted(*[host] * count), what)


RULES_OF_WHAT_IS_ASKED: dict[str, Callable[..., None]] = {
    "wider_sums": _wider_sums,
    "slopes_at_zeros": _slopes_at_zeros,
    "types_of_slopes": _types_of_slopes,
    "asked_shardings": _asked_shardings,
    "along_shards_refused": _along_shards,
    "parts_of_one_type": _parts_of_one_type,
    "sent_by_own_rules": _sent_by_own_rules,
}
