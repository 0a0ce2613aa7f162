# SPDX-License-Identifier: Apache-2.0
"""Small rules: options of functions inside shard_map, derivatives outside of jit, running functions backward, arrays
that are only described, trees of several ranks, callbacks over other devices, pmap's axes, and keys as arrays."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import compare_near, mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices
from meshmark.operations.programs.varying.judging import varying_axes

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Softmax attention of [b, t, n, h] where allowed, in NumPy."""
    scores = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), v)


def _attention_in_regions(line, grid):
    """Attention in shard_map over batches, by length, order, mask and bias."""
    b, t, s = 2 * line.size, 3, 6
    q, k, v = ((mixed((b, u, 2, 4), 11, w) / 8 - 0.6).astype(np.float32) for u, w in ((t, 5), (s, 7), (s, 3)))
    lengths = (mixed((b,), s) + 1).astype(np.int32)
    masks = mixed((b, 1, t, s), 3) > 0
    masks[..., 0] = True
    attend = jax.nn.dot_product_attention
    within = (np.arange(s) < lengths[:, None])[:, None, None, :]
    ways: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
        "lengths of keys": (lambda q, k, v, n, m: attend(q, k, v, key_value_seq_lengths=n), within),
        "causal": (lambda q, k, v, n, m: attend(q, k, v, is_causal=True), np.tril(np.ones((t, s), bool))),
        "masked": (lambda q, k, v, n, m: attend(q, k, v, mask=m), masks),
        "masked, of lengths": (
            lambda q, k, v, n, m: attend(q, k, v, mask=m, key_value_seq_lengths=n),
            masks & within,
        ),
    }

    def all_of(*given):
        with jax.default_matmul_precision("highest"):
            return [f(*given) for f, _ in ways.values()]

    found = mapped(all_of, line, P("d"), P("d"))(q, k, v, lengths, masks)
    for one, (name, (_, allowed)) in zip(found, ways.items(), strict=True):
        compare_near(np.asarray(one), _attended(q, k, v, allowed), f"attention in a region, {name},")


def _draws_in_regions(line, grid):
    """Keys that each device folds its number into, of each implementation: other draws on each device, those of the
    same fold outside. Rows that are permuted independently differ, and keep their numbers."""
    n = line.size
    for kind in ("threefry2x32", "rbg", "unsafe_rbg"):
        key = jax.random.key(7, impl=kind)

        def draw(key=key):
            return jax.random.bits(jax.random.fold_in(key, lax.axis_index("d")), (1, 4))

        found = np.asarray(mapped(draw, line, (), P("d"))())
        wrong(
            len({tuple(row) for row in found.tolist()}) != n, f"devices share draws of {kind}: {found[:, 0]}"
        )
        if kind == "threefry2x32":  # the other kinds may draw otherwise inside of another program
            right = np.concatenate([jax.random.bits(jax.random.fold_in(key, i), (1, 4)) for i in range(n)])
            expect(found, right, f"draws of {kind} by device")
    rows = np.tile(np.arange(24, dtype=np.int32), (4 * n, 1))
    for independent in (True, False):

        def shuffle(block, independent=independent):
            return jax.random.permutation(jax.random.key(1), block, axis=1, independent=independent)

        found = np.asarray(mapped(shuffle, line, P("d"), P("d"))(rows))
        expect(np.sort(found, 1), rows, f"the numbers of permuted rows, independent {independent}")
        kinds = len({tuple(row) for row in found[:4].tolist()})
        wrong(kinds != (4 if independent else 1), f"{kinds} orders in 4 rows, independent {independent}")


def _types_in_regions(line, grid):
    """Weak types of what shard_map gives, and the axes over which a result that is only described varies."""
    n = line.size
    small = placed(line, np.arange(n, dtype=np.int8), "d")
    for name, f in (
        ("the size of an axis", lambda: lax.axis_size("d") * 1),
        ("a number", lambda: jnp.asarray(3)),
        ("a sum of numbers", lambda: lax.psum(1, "d") * 1),
    ):
        for compiled in (True, False):
            made = jax.shard_map(f, mesh=line, in_specs=(), out_specs=P())
            y = (jax.jit(made) if compiled else made)()
            want = np.int32(n if name != "a number" else 3)
            expect(np.asarray(y), want, f"{name} from a region, compiled {compiled},")
            text = f"{name} from a region is of weak type {y.aval.weak_type}, compiled {compiled}"
            wrong(not y.aval.weak_type, text)
            expect(np.dtype((y + small).dtype).name, "int8", f"the dtype of {name} and int8")
    seen: list[str] = []

    def describe(x):
        kinds = jax.eval_shape(lambda t: (2 * t, t.sum()), x)
        seen.extend(str(sorted(varying_axes(kind))) for kind in kinds)
        return x

    mapped(describe, line, P("d"), P("d"))(small)
    expect(set(seen), {"['d']"}, "the axes over which a described result varies")


def _narrow_bits(line, grid):
    """Every pattern of each type of eight bits through collectives: numbers to the bit, NaN as NaN."""
    n = line.size
    patterns = np.resize(np.arange(256, dtype=np.uint8), (n, 256))
    for name in FLOAT8:
        host = patterns.view(jnp.dtype(name))

        def move(x):
            ring = [(i, (i + 1) % n) for i in range(n)]
            parts = lax.all_to_all(x[:, : 8 * n], "d", 1, 0, tiled=True)
            return lax.all_gather(x, "d", tiled=True), lax.ppermute(x, "d", ring), parts

        gathered, turned, parts = mapped(move, line, P("d"), (P(), P("d"), P(None, "d")), check_vma=False)(
            host
        )
        for found, right, what in (
            (gathered, host, "all_gather"),
            (turned, np.roll(host, 1, 0), "ppermute"),
            (parts, host[:, : 8 * n], "all_to_all"),
        ):
            expect(_with_one_nan(found), _with_one_nan(right), f"{what} of {name}")


def _with_one_nan(x: Any) -> np.ndarray:
    """The bits, with one pattern for every NaN."""
    host = np.asarray(x)
    return np.where(np.isnan(host.astype(np.float32)), np.uint8(0x7F), host.view(np.uint8))


def _eager_derivatives(line, grid):
    """Derivatives of sharded vectors without jit: square Jacobians, second orders, pullbacks that are called again."""
    m = 2 * line.size
    w = (mixed((m, m), 9, 7) - 4).astype(np.float32)
    host = (mixed((m,), 7) - 3).astype(np.float32)
    for where, x in (("cut", placed(line, host, "d")), ("cut by two", placed(grid, host, ("y", "x")))):

        def linear(v):
            return jnp.asarray(w) @ v

        with jax.default_matmul_precision("highest"):
            for name in ("jacfwd", "jacrev", "jacobian"):
                expect(np.asarray(getattr(jax, name)(linear)(x)), w, f"{name} of a vector that is {where}")
            both = w + w.T
            found = jax.hessian(lambda v: v @ linear(v))(x)
            expect(np.asarray(found), both, f"the second derivative by a vector that is {where}")
            tangent = np.roll(host, 3)
            _, moved = jax.jvp(linear, (x,), (jax.device_put(tangent, x.sharding),))
            expect(np.asarray(moved), w @ tangent, f"jvp at a vector that is {where}")
            for kind, pull in (
                ("vjp", jax.vjp(linear, x)[1]),
                ("transpose", jax.linear_transpose(linear, x)),
            ):
                for turn, cotangent in enumerate((host, 2 * tangent, host)):
                    (back,) = pull(jax.device_put(cotangent, x.sharding))
                    expect(np.asarray(back), cotangent @ w, f"call {turn} of a {kind}, {where}")
            region = jax.shard_map(
                lambda v: 3 * v, mesh=x.sharding.mesh, in_specs=x.sharding.spec, out_specs=x.sharding.spec
            )
            value, pull = jax.vjp(region, x)
            expect(np.asarray(value), 3 * host, f"the value beside a pullback, {where}")
            for turn, cotangent in enumerate((host, tangent, host)):
                (back,) = pull(jax.device_put(cotangent, x.sharding))
                expect(np.asarray(back), 3 * cotangent, f"call {turn} of a region's pullback, {where}")


def _running_slopes(line, grid):
    """Running sums, products, extremes and logarithms of sums, forward and backward, with their gradients: along the
    dimension that is whole, over Auto and over Explicit axes."""
    n = line.size
    host = (mixed((2 * n, 4), 97, 31) / 32 + 0.25).astype(np.float32)
    host[:, 1] += 3.5
    weights = (mixed((2 * n, 4), 5, 3) - 2).astype(np.float32)
    after = np.tril(np.ones((4, 4)))  # [result, argument]
    for mesh, reverse in itertools.product((line, explicit(line)), (False, True)):
        order = slice(None, None, -1) if reverse else slice(None)
        x = host.astype(np.float64)[:, order]
        w = weights.astype(np.float64)[:, order]
        log = np.logaddexp.accumulate(x, axis=1)
        top = np.maximum.accumulate(x, axis=1)
        product = np.cumprod(x, axis=1)
        first = top[:, :, None] == x[:, None, :]
        ways = {
            "cumsum": (np.cumsum(x, axis=1), w @ after),
            "cumprod": (product, (w * product) @ after / x),
            "cummax": (top, np.einsum("ri,rij->rj", w, first & (after > 0))),
            "cumlogsumexp": (log, np.einsum("ri,rij->rj", w, np.exp(x[:, None] - log[..., None]) * after)),
        }

        def all_of(a, w, reverse=reverse, names=tuple(ways)):
            runs = [functools.partial(getattr(lax, name), axis=1, reverse=reverse) for name in names]
            return [jax.grad(lambda v, f=f: (f(v) * w).sum())(a) for f in runs], [f(a) for f in runs]

        place = NamedSharding(mesh, P("d"))
        with jax.set_mesh(mesh):
            slopes, values = jax.jit(all_of)(jax.device_put(host, place), jax.device_put(weights, place))
        for name, slope, value in zip(ways, slopes, values, strict=True):
            right, back = ways[name]
            kind = f"{name}, reverse {reverse}, over {mesh.axis_types[0]},"
            compare_near(np.asarray(value), right[:, order].astype(np.float32), kind)
            compare_near(np.asarray(slope), back[:, order].astype(np.float32), f"the gradient of {kind}")


def _described_arrays(line, grid):
    """Arrays made after a description (ShapeDtypeStruct): its shape, dtype and sharding, or the one asked for."""
    n = line.size
    there, other = NamedSharding(line, P("d")), NamedSharding(grid, P(None, "y"))
    one = SingleDeviceSharding(line.devices.flat[0])
    for kind in (np.float32, np.int8, jnp.bfloat16):
        struct = jax.ShapeDtypeStruct((2 * n, n), kind, sharding=there)
        for name, made, value in (
            ("zeros_like", jnp.zeros_like, 0),
            ("ones_like", jnp.ones_like, 1),
            ("empty_like", jnp.empty_like, None),
            ("full_like", lambda s, **o: jnp.full_like(s, 3, **o), 3),
        ):
            for asked, options in ((there, {}), (other, {"device": other}), (one, {"device": one})):
                y = made(struct, **options)
                what = f"{name} of a description, {options or 'as it says'}"
                expect(y.shape, struct.shape, f"the shape of {what}")
                expect(np.dtype(y.dtype).name, np.dtype(kind).name, f"the dtype of {what}")
                wrong(not y.sharding.is_equivalent_to(asked, 2), f"{what} is placed as {y.sharding}")
                if value is not None:
                    expect(np.asarray(y), np.full(struct.shape, value, kind), what)


def _constrained_trees(line, grid):
    """One sharding for a tree whose leaves have several ranks: as a constraint, and as a prefix of jit's shardings."""
    n = line.size
    there = NamedSharding(line, P("d"))
    tree = {
        "a": np.arange(2 * n, dtype=np.float32),
        "b": [np.ones((n, 3), np.int32), np.zeros((n, 2, 2), np.float32)],
        "c": np.arange(3 * n, dtype=np.int8),
    }

    def double(t):
        return jax.tree.map(lambda v: 2 * v, t)

    for what, run in (
        ("a constraint", jax.jit(lambda t: lax.with_sharding_constraint(double(t), there))),
        ("a constraint outside of jit", lambda t: lax.with_sharding_constraint(double(t), there)),
        ("out_shardings", jax.jit(double, out_shardings=there)),
        ("in_shardings", jax.jit(lambda t: t, in_shardings=(there,))),
        ("device_put", lambda t: jax.device_put(t, there)),
    ):
        found = run(jax.tree.map(lambda v: placed(line, v), tree) if "constraint" in what else tree)
        times = 1 if what in ("in_shardings", "device_put") else 2
        for leaf, host in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
            expect(
                np.asarray(leaf),
                (times * host).astype(host.dtype),
                f"a leaf of rank {host.ndim} after {what}",
            )
            lies = leaf.sharding.is_equivalent_to(there, leaf.ndim)
            wrong(not lies, f"a leaf of rank {host.ndim} after {what} is placed as {leaf.sharding}")


def _callbacks_elsewhere(line, grid):
    """Callbacks in programs over the devices in another order, and over the last half of them."""
    if not may_leave_out_devices():
        return
    devices = list(line.devices.flat)
    for what, chosen in (("reversed", devices[::-1]), ("the last half", devices[len(devices) // 2 :])):
        mesh = Mesh(np.array(chosen), ("d",))
        host = np.arange(3 * len(chosen), dtype=np.float32)
        told: list[np.ndarray] = []

        def ask(x, kind=jax.pure_callback):
            return kind(lambda v: np.asarray(v) * 3, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

        def tell(x, told=told):
            jax.debug.callback(lambda v: told.append(np.asarray(v)), x)
            return 2 * x

        x = placed(mesh, host, "d")
        with jax.set_mesh(mesh):
            expect(np.asarray(mapped(ask, mesh, P("d"), P("d"))(x)), 3 * host, f"pure_callback, {what}")
            expect(
                np.asarray(jax.jit(lambda v: ask(v).sum())(placed(mesh, host))),
                3 * host.sum(),
                f"its sum, {what}",
            )
            expect(np.asarray(jax.jit(tell)(placed(mesh, host))), 2 * host, f"beside debug.callback, {what}")
            jax.effects_barrier()
        wrong(
            not told or not all(np.array_equal(t, host) for t in told), f"debug.callback, {what}, saw {told}"
        )


def _mapped_axes(line, grid):
    """jax.pmap stacks results along each axis that is asked for, also where all sizes agree."""
    if not hasattr(jax, "pmap") or jax.process_count() > 1:
        return
    n = jax.local_device_count()
    if n != line.size:
        return
    square = mixed((n, n), 97, 7).astype(np.float32)
    cube = mixed((n, n, n), 997, 7).astype(np.int32)
    for at, to in itertools.product((0, 1), (0, 1)):
        found = jax.pmap(lambda v: v + 1, in_axes=at, out_axes=to)(square)
        right = np.stack([np.take(square, i, at) + 1 for i in range(n)], to)
        expect(np.asarray(found), right, f"pmap of a square from axis {at} to {to}")
    for at, to in itertools.product((0, 1, 2), (0, 1, 2)):
        found = jax.pmap(lambda v: 2 * v, in_axes=at, out_axes=to)(cube)
        right = np.stack([2 * np.take(cube, i, at) for i in range(n)], to)
        expect(np.asarray(found), right, f"pmap of a cube from axis {at} to {to}")


def _keys_as_arrays(line, grid):
    """Typed keys that are sharded, used as arrays outside of jit: shapes, parts, orders and iteration."""
    n = line.size
    for kind, words in (("threefry2x32", 2), ("rbg", 4)):
        data = mixed((4 * n, words), 10**9, 77_777).astype(np.uint32)
        for where, sharding in (
            ("cut", NamedSharding(line, P("d"))),
            ("whole", NamedSharding(line, P())),
        ):
            keys = jax.device_put(jax.random.wrap_key_data(data, impl=kind), sharding)
            for what, found, right in (
                ("reshape", keys.reshape(4, n), data.reshape(4, n, words)),
                ("reshape by columns", keys.reshape(n, 4), data.reshape(n, 4, words)),
                ("transpose", keys.reshape(4, n).T, data.reshape(4, n, words).swapaxes(0, 1)),
                ("flatten", keys.reshape(2, -1).ravel(), data),
                ("a row", keys[3], data[3]),
                ("rows backward", keys[::-1], data[::-1]),
                ("rows by places", keys[np.array([3, 0, 2])], data[[3, 0, 2]]),
                ("concatenate", jnp.concatenate([keys, keys[:2]]), np.concatenate([data, data[:2]])),
                ("stack", jnp.stack([keys, keys]), np.stack([data, data])),
                (
                    "a choice",
                    jnp.where(data[:, 0] % 2 == 0, keys, keys[::-1]),
                    np.where(data[:, :1] % 2 == 0, data, data[::-1]),
                ),
                ("rows in turn", jnp.stack(list(keys)), data),
            ):
                expect(
                    np.asarray(jax.random.key_data(found)), right, f"{what} of {kind} keys that are {where}"
                )


RULES_OF_REGIONS: dict[str, Callable[..., None]] = {
    "attention_in_regions": _attention_in_regions,
    "draws_in_regions": _draws_in_regions,
    "types_in_regions": _types_in_regions,
    "narrow_bits": _narrow_bits,
    "eager_derivatives": _eager_derivatives,
    "running_slopes": _running_slopes,
    "described_arrays": _described_arrays,
    "constrained_trees": _constrained_trees,
    "callbacks_elsewhere": _callbacks_elsewhere,
    "mapped_axes": _mapped_axes,
    "keys_as_arrays": _keys_as_arrays,
}
