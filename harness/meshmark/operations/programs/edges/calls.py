# SPDX-License-Identifier: Apache-2.0
"""Calls at their edges: rules and callbacks in batches, random numbers with shardings, what a call's arguments mean,
trees of several dtypes, and large arrays.

The program is that of `programs.forms.base`: f(x) = x * s(x).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import flatten_util, lax
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.edges.comparing import rows_of
from meshmark.operations.programs.forms.base import ProgramForm, at, explicit, over
from meshmark.operations.programs.forms.collective_options import parts_same_as, replicated, same_as
from meshmark.operations.programs.forms.options import wrong


def _batched_rules(mesh, a, x):
    """A custom rule for batches, along each dimension of a square array, and collectives over a batch's axis that is
    not the first dimension."""
    n = mesh.shape[a]
    square = np.arange(1.0, n * n + 1, dtype=np.float32).reshape(n, n)
    placed = jax.device_put(square, at(mesh, None, a))

    @jax.custom_batching.custom_vmap
    def running(v, w):
        return jnp.cumsum(v) - w

    @running.def_vmap
    def rule(axis_size, in_batched, v, w):
        v = v if in_batched[0] else jnp.broadcast_to(v, (axis_size, *v.shape))
        return jnp.cumsum(v, 1) - (w[:, None] if in_batched[1] else w), True

    for axis in (0, 1):
        for what, second, take in (("one", 2.0, lambda b: 2.0), ("each", square[0], lambda b: square[0, b])):
            batched = jax.vmap(running, in_axes=(axis, 0 if what == "each" else None), out_axes=axis)
            rows = [np.cumsum(np.take(square, b, axis)) - take(b) for b in range(n)]
            same_as(
                np.asarray(jax.jit(batched)(placed, jnp.asarray(second, jnp.float32))),
                np.stack(rows, axis).astype(np.float32),
                f"a rule for batches along dimension {axis} with {what} second argument",
            )
    ring = [(k, (k + 1) % n) for k in range(n)]
    given = np.arange(3 * n, dtype=np.float32).reshape(3, n)
    collectives: dict[str, Any] = {
        "ppermute": (lambda v: lax.ppermute(v, "i", ring), np.roll(given, 1, 1)),
        "psum": (lambda v: lax.psum(v, "i"), np.repeat(given.sum(1, keepdims=True), n, 1)),
        "all_gather": (
            lambda v: lax.all_gather(v, "i", axis=1),
            np.repeat(given[:, None], n, 1),  # [row, member, gathered]
        ),
        "axis_index": (lambda v: v * lax.axis_index("i"), given * np.arange(n, dtype=np.float32)),
    }
    for name, (f, right) in collectives.items():
        found = jax.jit(jax.vmap(f, in_axes=1, out_axes=1, axis_name="i"))(
            jax.device_put(given, at(mesh, None, a))
        )
        same_as(
            np.asarray(found), right.astype(np.float32), f"{name} over a batch along the second dimension"
        )
    return jax.jit(over(mesh, a))(x)


def _callbacks_in_batches(mesh, a, x):
    """What a callback is given in a batch, by each method, and how often it is called."""
    rows = rows_of(mesh, a)
    host = np.arange(rows, dtype=np.float32)
    placed = jax.device_put(host, at(mesh, a))
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    ranks: dict[str, set[Any]] = {}
    for method, shapes in (
        ("sequential", ((), ())),
        ("expand_dims", ((rows,), (1,))),
        ("broadcast_all", ((rows,), (rows,))),
    ):
        ranks[method] = set()

        def called(v, w, method=method):
            ranks[method].add((np.shape(v), np.shape(w)))
            return np.asarray(np.asarray(v) - 2 * np.asarray(w), np.float32)

        def one(v, w, called=called, method=method):
            return jax.pure_callback(called, scalar, v, w, vmap_method=method)

        found = jax.jit(jax.vmap(one, (0, None)))(placed, jnp.float32(3))
        same_as(np.asarray(found), host - 6, f"a callback in a batch by {method}")
        wrong(
            ranks[method] != {shapes},
            f"by {method} a callback was given {ranks[method]}, instead of {shapes}",
        )

    def read(v, w):
        return io_callback(lambda p, q: np.asarray(p - 2 * q, np.float32), scalar, v, w)

    for axes, arguments, right in (
        ((0, None), (placed, jnp.float32(3)), host - 6),
        ((None, 0), (jnp.float32(3), placed), 3 - 2 * host),
    ):
        found = jax.jit(jax.vmap(read, axes))(*arguments)
        same_as(np.asarray(found), right.astype(np.float32), f"an io_callback in a batch over {axes}")
    matrix = np.arange(2 * rows, dtype=np.float32).reshape(2, rows)
    for axis in (0, 1):
        seen: list[float] = []

        def noted(v, seen=seen):
            jax.debug.callback(lambda b: seen.append(float(np.sum(b))), v)
            return 2 * v

        found = jax.jit(jax.vmap(noted, in_axes=axis, out_axes=axis))(matrix)
        same_as(np.asarray(found), 2 * matrix, "what a noted batch gives")
        jax.effects_barrier()
        right = sorted(matrix.sum(1 - axis).tolist())
        wrong(
            sorted(seen) != right,
            f"a debug.callback in a batch along {axis} saw {sorted(seen)}, instead of {right}",
        )
    return jax.jit(over(mesh, a))(x)


def _keys(mesh, a, x):
    """Draws into a sharding, keys in a grid, permutations of columns, many draws, and a mask that is drawn again."""
    rows = rows_of(mesh, a)
    key = jax.random.key(7)
    draws: dict[str, Callable[..., Any]] = {
        "normal": jax.random.normal,
        "uniform": jax.random.uniform,
        "bits": jax.random.bits,
        "gumbel": jax.random.gumbel,
    }
    typed = explicit(mesh)
    for name, draw in draws.items():
        alone = np.asarray(jax.jit(lambda k, draw=draw: draw(k, (rows, 4)))(key))
        wrong(len(np.unique(alone, axis=0)) != rows, f"rows of {name} repeat")
        out = jax.jit(lambda k, draw=draw: draw(k, (rows, 4)), out_shardings=at(mesh, a))(key)
        parts = np.concatenate(
            [np.unique(np.asarray(s.data), axis=0) for s in out.addressable_shards if not s.replica_id]
        )
        wrong(len(np.unique(parts, axis=0)) != rows, f"rows of {name} repeat over the devices")
        with jax.set_mesh(typed):
            inside = np.asarray(jax.jit(lambda k, draw=draw: draw(k, (rows, 4), out_sharding=P(a)))(key))
        wrong(len(np.unique(inside, axis=0)) != rows, f"rows of {name} repeat in a draw into a sharding")
    for shape in ((2, 3), (3, 1, 2)):
        flat = jax.random.key_data(jax.random.split(key, int(np.prod(shape))))
        grid = jax.random.key_data(jax.random.split(key, shape))
        same_as(np.asarray(grid), np.asarray(flat).reshape(*shape, -1), f"keys in a grid of {shape}")
    table = np.arange(rows * 6).reshape(rows, 6)
    for axis in (0, 1):
        moved = jax.jit(lambda k, v, axis=axis: jax.random.permutation(k, v, axis=axis))(
            key, jax.device_put(table, at(mesh, a))
        )
        first = np.take(np.asarray(moved), 0, 1 - axis)
        order = first % 6 if axis else first // 6
        same_as(
            np.asarray(moved),
            np.take(table, order, axis).astype(moved.dtype),
            f"a permutation along axis {axis}",
        )
    many = np.asarray(jax.jit(lambda k: jax.random.bits(k, (1 << 17,)), out_shardings=at(mesh, None))(key))
    wrong(len(np.unique(many)) < many.size - 100, f"of {many.size} draws {len(np.unique(many))} differ")

    @jax.checkpoint
    def dropped(v, k):
        return jnp.where(jax.random.bernoulli(k, 0.5, v.shape), v * v, 0)

    ones = jax.device_put(np.ones((rows, 4), np.float32), at(mesh, a))
    for make in (jax.random.key, jax.random.PRNGKey):
        value, slope = jax.jit(lambda v, k: (dropped(v, k), jax.grad(lambda w: dropped(w, k).sum())(v)))(
            ones, make(3)
        )
        same_as(np.asarray(slope), 2 * np.asarray(value), "the gradient of a mask that is drawn again")
    return jax.jit(over(mesh, a))(x)


def _signatures(mesh, a, x):
    """None among donated leaves, donated arguments of one type, constants that are nearly alike, the shardings of
    gradients, and derivatives of what is exported."""
    rows = rows_of(mesh, a)
    host = np.arange(1, rows + 1, dtype=np.float32)

    def put(v, *spec):
        return jax.device_put(v, at(mesh, *spec))

    step = jax.jit(lambda state, more: ({"m": state["m"] + more, "v": None}, more * 2), donate_argnums=0)
    state, more = {"m": put(host, a), "v": None}, put(2 * host, a)
    after, doubled = step(state, more)
    same_as(np.asarray(after["m"]), 3 * host, "a donated tree with None")
    same_as(np.asarray(doubled), 4 * host, "what stands beside a donated tree with None")
    wrong(more.is_deleted(), "an argument is deleted that follows a donated tree with None")
    two = jax.jit(
        lambda p, q: (p + 1, 10 * q), donate_argnums=(0, 1), out_shardings=(at(mesh, a), at(mesh, a))
    )
    one, other = two(put(host, a), put(2 * host, a))
    same_as(np.asarray(one), host + 1, "the first of two donated arguments")
    same_as(np.asarray(other), 20 * host, "the second of two donated arguments")
    causal = np.tril(np.ones((rows, rows), np.float32))
    window = np.tril(np.triu(causal, -2))
    window[-1] = causal[-1]
    products = jax.jit(lambda v: (causal @ v, window @ v))(put(host, a))
    for what, right, found in zip(
        ("one", "the other"), (causal @ host, window @ host), products, strict=True
    ):
        same_as(np.asarray(found), right, f"a product with {what} of two nearly equal constants")
    spread = (at(mesh, a), at(mesh))
    both = jax.jit(lambda p, q: (p * q[0]).sum() + q.sum(), in_shardings=spread)
    slopes = jax.grad(both, argnums=(0, 1))(put(host, a), put(host))
    same_as(np.asarray(slopes[0]), np.full(rows, host[0]), "the gradient by the first argument")
    for slope, want in zip(slopes, spread, strict=True):
        wrong(
            not slope.sharding.is_equivalent_to(want, 1),
            f"a gradient has {slope.sharding}, instead of {want}",
        )
    pair = jax.jit(lambda v, w: (v * 2, v * w))
    exported = jax.export.export(pair)(put(host, a), put(host, a))
    for k, right in enumerate((2 + 0 * host, host)):
        slope = jax.jit(jax.grad(lambda v, w, k=k: (exported.call(v, w)[k]).sum()))(
            put(0 * host, a), put(host, a)
        )
        same_as(np.asarray(slope), right.astype(np.float32), f"the gradient of exported result {k}")
    return jax.jit(over(mesh, a))(x)


def _second_mesh(mesh, a, x):
    """One function under a mesh and under its reverse, and what Explicit axes say of described and batched results."""
    rows = rows_of(mesh, a)
    host = np.arange(rows, dtype=np.float32)
    doubled = jax.jit(lambda v: lax.with_sharding_constraint(v * 2, P(a)))
    for devices in (mesh.devices, mesh.devices.ravel()[::-1].reshape(mesh.devices.shape)):
        here = Mesh(devices, mesh.axis_names)
        with jax.set_mesh(here):
            found = doubled(host)
        right = NamedSharding(here, P(a)).devices_indices_map(host.shape)
        for shard in found.addressable_shards:
            same_as(np.asarray(shard.data), 2 * host[right[shard.device]], f"the part on {shard.device}")
    typed = explicit(mesh)
    matrix = host[:, None] + np.arange(4, dtype=np.float32)
    with jax.set_mesh(typed):
        placed = jax.device_put(matrix, NamedSharding(typed, P(a)))
        alike = jax.device_put(np.ones(4, np.float32), NamedSharding(typed, P()))
        described = jax.eval_shape(lambda v: {"w": v * 2}, placed)["w"]
        mapped = jax.jit(jax.vmap(lambda r: (r * 2, alike + 1)))(placed)
        for name, one in (("described", described), ("mapped", mapped[0]), ("unmapped", mapped[1])):
            spec = tuple(one.sharding.spec) + (None,) * (2 - len(one.sharding.spec))
            wrong(spec != (a, None), f"the {name} result has the spec {spec}, instead of {(a, None)}")
    same_as(np.asarray(mapped[1]), np.full((rows, 4), 2, np.float32), "what a batch does not change")
    return jax.jit(over(mesh, a))(x)


def _trees(mesh, a, x):
    """Flat vectors of trees of several dtypes, and means of whole and of narrow numbers."""
    rows = rows_of(mesh, a)
    tree = {
        "w": jax.device_put(np.arange(2 * rows).reshape(rows, 2).astype(jnp.bfloat16), at(mesh, a)),
        "b": jnp.ones(3, jnp.float32),
        "n": (None, jnp.arange(4, dtype=jnp.float16)),
    }
    flat, back = flatten_util.ravel_pytree(tree)
    again = back(2 * flat)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(tree), strict=True):
        same_as(
            np.asarray(one),
            (2 * np.asarray(other, np.float32)).astype(other.dtype),
            "a leaf of a flat vector",
        )
    wide = jax.device_put(np.full((rows, 128, 2), 100, np.float16), at(mesh, a))
    for axes in ((0, 1), 1, (0, 1, 2)):
        right = np.full(np.ones(wide.shape).mean(axes).shape, 100, np.float16)
        same_as(np.asarray(jax.jit(lambda v, axes=axes: v.mean(axes))(wide)), right, f"a mean over {axes}")
    n = mesh.shape[a]
    given = 3 * np.arange(n) + (np.arange(n) == 0)
    found = replicated(mesh, a, lambda b: lax.pmean(b, a), given.astype(np.int32))
    near = np.abs(found - given.mean()) < 1e-5 * abs(given.mean())
    wrong(
        not (near.all() and found.dtype == np.float32),
        f"a mean of whole numbers is {found} instead of {given.mean()}",
    )
    return jax.jit(over(mesh, a))(x)


def _large(mesh, a, x):
    """Arrays of more than a mebibyte whose dimensions no power of two divides: sums, extremes, moves, and a second call
    with other numbers."""
    rows = mesh.shape[a] * -(-70001 // mesh.shape[a])

    @jax.jit
    def run(v):
        return {
            "sum": v.sum(0),
            "sum of all": v.sum(),
            "sum of columns": v.sum(1),
            "mean": v.astype(jnp.float32).mean(0),
            "minimum": v.min(0),
            "place of the maximum": v.argmax(0),
            "product with ones": jnp.ones(rows, jnp.int32) @ v,
            "last rows": lax.dynamic_slice(v, (rows - 2, 1), (2, 3)),
            "turned rows": jnp.roll(v, rows // 3, 0),
            "reversed rows": v[::-1],
            "flat": v.reshape(-1)[-7:],
            "doubled": lax.with_sharding_constraint(2 * v, at(mesh, a)),
        }

    for start in (1, 5):
        host = (
            ((np.arange(5 * rows, dtype=np.int64) * 7919 + start) % 101 - 50)
            .astype(np.int32)
            .reshape(rows, 5)
        )
        right = {
            "sum": host.sum(0),
            "sum of all": host.sum(),
            "sum of columns": host.sum(1),
            "mean": None,
            "minimum": host.min(0),
            "place of the maximum": host.argmax(0),
            "product with ones": host.sum(0),
            "last rows": host[-2:, 1:4],
            "turned rows": np.roll(host, rows // 3, 0),
            "reversed rows": host[::-1],
            "flat": host.reshape(-1)[-7:],
            "doubled": 2 * host,
        }
        found = run(jax.device_put(host, at(mesh, a)))
        for what, one in right.items():
            if one is not None:
                parts_same_as(found[what], one.astype(np.int32), f"{what} of a large array")
        near = np.abs(np.asarray(found["mean"]) - host.mean(0)) <= 1e-4
        wrong(not near.all(), f"the mean of a large array is {found['mean']} instead of {host.mean(0)}")
    return jax.jit(over(mesh, a))(x)


def _square_mesh(mesh, a, x):
    """Two axes of one size, in both orders, and an axis of one device beside a longer one."""
    devices = mesh.devices.ravel()
    side = max(k for k in (1, 2, 4, 8) if k * k <= devices.size)
    square = Mesh(devices[: side * side].reshape(side, side), ("p", "q"))
    host = (
        np.random.default_rng(5).permutation(64 * side * side).reshape(8 * side, 8 * side).astype(np.float32)
    )
    for spec in (P("q", "p"), P("p", "q"), P(("q", "p")), P(None, ("q", "p")), P("q")):
        doubled = jax.shard_map(lambda v: 2 * v, mesh=square, in_specs=spec, out_specs=spec)
        placed = jax.device_put(host, NamedSharding(square, spec))
        parts_same_as(jax.jit(doubled)(placed), 2 * host, f"a shard_map by {spec}")
        held = jax.jit(lambda v, s=spec: lax.with_sharding_constraint(v + 1, NamedSharding(square, s)))(host)
        parts_same_as(held, host + 1, f"a constraint to {spec}")
        for name in ("argmax", "argmin"):
            for axis in (0, 1, None):
                found = jax.jit(lambda v, name=name, axis=axis: getattr(jnp, name)(v, axis))(placed)
                right = np.asarray(getattr(np, name)(host, axis), np.int32)
                parts_same_as(found, right, f"{name} along {axis} of {spec}")
    whole = (host % 5) - 2
    typed = explicit(square)
    for left, right in (
        (P(None, ("p", "q")), P(("p", "q"))),
        (P("p", "q"), P("q")),
        (P(None, "q"), P("q", "p")),
    ):
        with jax.set_mesh(typed):
            one = jax.device_put(whole, NamedSharding(typed, left))
            other = jax.device_put(whole.T.copy(), NamedSharding(typed, right))
            out = P(left[0] if left else None, right[1] if len(right) > 1 else None)
            found = jax.jit(lambda v, w, out=out: jnp.dot(v, w, out_sharding=out, precision="highest"))(
                one, other
            )
        parts_same_as(found, whole @ whole.T, f"a product of {left} and {right}")
    n = devices.size
    for shape, names in (((n, 1), ("p", "q")), ((1, n), ("p", "q")), ((1, n, 1), ("p", "q", "r"))):
        line = Mesh(devices.reshape(shape), names)
        given = np.arange(1, n + 1, dtype=np.float32)
        for axes in (names, names[::-1]):

            def block(v, axes=axes):
                return lax.psum(v, axes), lax.pmax(v[0], axes), lax.all_gather(v, axes, tiled=True)[None]

            summed = jax.shard_map(block, mesh=line, in_specs=P(names), out_specs=(P(), P(), P(names)))
            total, most, every = jax.jit(summed)(given)
            parts_same_as(total, given.sum(keepdims=True), f"a sum over {axes} of {shape}")
            parts_same_as(most, given.max(), f"a maximum over {axes} of {shape}")
            parts_same_as(every, np.tile(given, (n, 1)), f"what is gathered over {axes} of {shape}")
    return jax.jit(over(mesh, a))(x)


def _uneven_rows(mesh, a, x):
    """Rows that the axis does not divide, constrained to it: no row is lost, and what fills the last part is not
    seen."""
    n = mesh.shape[a]

    def results(v):
        v = lax.with_sharding_constraint(v, at(mesh, a))
        w = lax.with_sharding_constraint(v + v, at(mesh, a))
        return w, v.min(0), v.max(0), v.argmin(0), v.argmax(0), v[::-1], jnp.sort(v, 0), v[-1]

    run = jax.jit(results)
    for rows in (2 * n + 1, 3 * n - 1, max(n - 1, 1)):
        for kind in (np.int32, np.uint8, np.float32, jnp.bfloat16):
            low = 3 if np.dtype(kind).kind == "u" else -2
            host = (np.arange(3 * rows) * 7 % 11 + low).reshape(rows, 3)
            for given, sign in ((host, 1), (host + 20, 1), *([(-host - 20, -1)] if low < 0 else [])):
                given = given.astype(kind)
                wide = given.astype(np.float64)
                order = np.sort(wide, 0)
                right = (
                    2 * wide, wide.min(0), wide.max(0), wide.argmin(0), wide.argmax(0), wide[::-1], order, wide[-1],
                )  # fmt: skip
                for k, (found, one) in enumerate(zip(run(given), right, strict=True)):
                    what = f"result {k} of {rows} uneven rows of {np.dtype(kind)} ({sign})"
                    same_as(np.asarray(found), one.astype(np.int32 if k in (3, 4) else kind), what)
    return jax.jit(over(mesh, a))(x)


def _numbers(mesh, a, x):
    """Not-a-numbers under compiler options, small whole numbers in wider dtypes, functions in float64, and triangles of
    symmetric matrices."""
    rows = rows_of(mesh, a)
    host = np.where(np.arange(rows) % 3 == 0, np.nan, np.arange(rows)).astype(np.float32)
    placed = jax.device_put(host, at(mesh, a))
    for options in (None, {"xla_embed_ir_in_executable": True}, {"xla_dump_max_hlo_modules": 1}):
        run = jax.jit(
            lambda v: (jnp.isnan(v), jnp.maximum(v, 2), jax.nn.relu(v), v == v), compiler_options=options
        )
        right = (np.isnan(host), np.maximum(host, 2), np.maximum(host, 0), host == host)
        for found, one in zip(run(placed), right, strict=True):
            same_as(np.asarray(found), one, f"NaN with the options {options}")
    small = np.resize(np.arange(-8, 8), 2 * rows).reshape(rows, 2)
    for kind, given in ((jnp.int4, small), (jnp.uint4, small & 15)):
        narrow = jax.device_put(given.astype(np.int8), at(mesh, a)).astype(kind)
        for wider in (jnp.int8, jnp.int32, jnp.float32, jnp.bfloat16):
            found = jax.jit(lambda v, wider=wider: v.astype(wider))(narrow)
            same_as(np.asarray(found), given.astype(wider), f"{np.dtype(kind)} as {np.dtype(wider)}")
    whole = np.concatenate([np.arange(-9, 10), [-(2**31), 2**31 - 1]])
    whole = np.resize(whole, rows * 3).astype(np.int32)
    for divisor in (2, -2, 4, 7, -8, 1 << 20):
        quotient = np.trunc(whole / divisor).astype(np.int32)
        found = jax.jit(lambda v, d=divisor: (lax.div(v, jnp.int32(d)), v // d, v % d))(
            jax.device_put(whole, at(mesh, a))
        )
        right = (
            quotient,
            (whole.astype(np.int64) // divisor).astype(np.int32),
            (whole.astype(np.int64) % divisor),
        )
        for k, one in enumerate(right):
            same_as(np.asarray(found[k]), one.astype(np.int32), f"result {k} of a division by {divisor}")
    with jax.enable_x64(True):
        wide = np.linspace(0.1, 3, rows)
        for name in ("exp", "log", "sin", "tanh", "sqrt", "cbrt", "log1p", "expm1"):
            found = np.asarray(jax.jit(getattr(jnp, name))(jax.device_put(wide, at(mesh, a))))
            far = np.abs(found / getattr(np, name)(wide) - 1).max()
            wrong(found.dtype != np.float64 or far > 1e-12, f"{name} of float64 is off by {far}")
    pair = np.array([[[2.0, 9], [1, 2]], [[5, 7], [2, 2]]] * rows, np.float32)[:rows]
    for lower in (True, False):
        values, _ = jax.jit(
            lambda m, lower=lower: jnp.linalg.eigh(m, UPLO="L" if lower else "U", symmetrize_input=False)
        )(jax.device_put(pair, at(mesh, a)))
        off = pair[:, 1, 0] if lower else pair[:, 0, 1]
        both = pair.copy()
        both[:, 1, 0] = both[:, 0, 1] = off
        far = np.abs(np.asarray(values) - np.linalg.eigvalsh(both)).max()
        wrong(far > 1e-3, f"eigenvalues of the {'lower' if lower else 'upper'} triangle are off by {far}")
    return jax.jit(over(mesh, a))(x)


def _smap_axes(mesh, a, x):
    """`jax.smap` along each dimension, also counted from the end."""
    if not hasattr(jax, "smap"):
        raise Missing("this release has no jax.smap")
    n = mesh.shape[a]
    typed = explicit(mesh)
    host = np.arange(4.0 * n * n, dtype=np.float32).reshape(2 * n, 2 * n)
    for axis in (0, 1, -2, -1):
        spec = P(*(a if d == axis % 2 else None for d in range(2)))
        with jax.set_mesh(typed):
            moved = jax.smap(lambda v: v + lax.axis_index(a), in_axes=axis, out_axes=axis, axis_name=a)
            found = jax.jit(moved)(jax.device_put(host, NamedSharding(typed, spec)))
        number = np.expand_dims(np.arange(2 * n, dtype=np.float32) // 2, 1 - axis % 2)  # of the device
        parts_same_as(found, host + number, f"jax.smap along axis {axis}")
    return jax.jit(over(mesh, a))(x)


CALL_EDGES: dict[str, Callable[..., Any]] = {
    "batched_rules": _batched_rules,
    "callbacks_in_batches": _callbacks_in_batches,
    "keys": _keys,
    "signatures": _signatures,
    "second_mesh": _second_mesh,
    "trees": _trees,
    "large": _large,
    "square_mesh": _square_mesh,
    "uneven_rows": _uneven_rows,
    "numbers": _numbers,
    "smap_axes": _smap_axes,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class CallEdge(ProgramForm):
    """One sharded program, with checks of calls: batched rules and callbacks, keys, signatures, meshes, trees."""

    name = "call_edge"
    forms = CALL_EDGES
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        return CALL_EDGES[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
