# SPDX-License-Identifier: Apache-2.0
"""Small rules of what is long or odd: dimensions that an index type does not hold, draws of many numbers, shards with
an odd number of elements of a few bits, and calls with many arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect


def _long_dimensions(line, grid):
    """Places of narrow types, as arguments, in dimensions that are shorter and longer than their types hold."""
    n = line.size
    narrow, wide = (np.int8, np.uint8), (np.int16, np.uint16)
    for length, kinds in ((200, narrow), (320, (*narrow, np.int16)), (70_000, (*wide, np.int32, np.uint32))):
        length += -length % n
        host = mixed((length, 2), 97, 7).astype(np.int32)
        x = placed(line, host, "d")
        for kind in kinds:
            most = min(length, int(np.iinfo(kind).max) + 1) - 1
            last = np.array([most, most // 2 + 1, 0, most - 3], kind)
            at = last.astype(np.int64)
            column = np.stack([last, last[::-1]], 1)
            calls: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
                "take": (lambda v, p: jnp.take(v, p, axis=0), host[at]),
                "take of one": (lambda v, p: jnp.take(v, p[0], axis=0), host[at[0]]),
                "take_along_axis": (
                    lambda v, p: jnp.take_along_axis(v, jnp.stack([p, p[::-1]], 1), 0),
                    np.take_along_axis(host, column.astype(np.int64), 0),
                ),
                "dynamic_index_in_dim": (
                    lambda v, p: lax.dynamic_index_in_dim(v, p[0], 0, False),
                    host[at[0]],
                ),
                "one_hot": (
                    lambda v, p, m=length: jnp.argmax(jax.nn.one_hot(p[:2], m), 1),
                    at[:2].astype(np.int32),
                ),
            }
            if (
                holds := length - 1 <= np.iinfo(kind).max
            ):  # JAX refuses x[places] for a type that does not hold them all
                calls |= {
                    "x[places]": (lambda v, p: v[p], host[at]),
                    "x[places, 1]": (lambda v, p: v[p, 1], host[at, 1]),
                    "at[places].get": (lambda v, p: v.at[p].get(mode="clip"), host[at]),
                    "at[places].add": (lambda v, p: v.at[p].add(1)[p], host[at] + 1),
                    "segment_sum": (
                        lambda v, p, m=length: jax.ops.segment_sum(v[: p.size], p, num_segments=m)[p],
                        _sums_of_segments(host[: at.size], at)[at],
                    ),
                }
            found = jax.device_get(
                jax.jit(lambda v, p, calls=calls: {k: f(v, p) for k, (f, _) in calls.items()})(x, last)
            )
            for name, (_, right) in calls.items():
                what = f"{name} by places of {np.dtype(kind).name} in a dimension of {length}"
                expect(found[name], right, what)
            expect(
                np.asarray(jnp.take(x, last, axis=0)),
                host[at],
                f"eager take, {np.dtype(kind).name} in {length}",
            )
            if holds:
                expect(np.asarray(x[last]), host[at], f"eager x[places], {np.dtype(kind).name} in {length}")


def _sums_of_segments(rows: np.ndarray, segments: np.ndarray) -> np.ndarray:
    total = np.zeros((int(segments.max()) + 1, *rows.shape[1:]), rows.dtype)
    np.add.at(total, segments, rows)
    return total


def _long_draws(line, grid):
    """Draws of a hundred thousand numbers do not repeat, and are the same on one device and on all."""
    count = 2**17 + 2**12
    count -= count % (64 * line.size)
    spread = NamedSharding(line, P("d"))
    for impl in ("threefry2x32", "rbg"):
        key = jax.random.key(11, impl=impl)
        draws = {
            "bits": lambda k: jax.random.bits(k, (count,)),
            "uniform": lambda k: jax.random.uniform(k, (count,)),
            "normal": lambda k: jax.random.normal(k, (count,)),
            "places": lambda k: jax.random.randint(k, (count,), 0, 2**31 - 1),
        }
        for name, draw in draws.items():
            if impl == "rbg" and name not in ("bits", "uniform"):
                continue
            alone = np.asarray(jax.jit(draw)(key))
            apart = np.asarray(jax.jit(draw, out_shardings=spread)(key))
            what = f"{count} {name} of {impl}"
            for where, found in (("", alone), (" over all devices", apart)):
                flat = found.ravel()
                pieces = flat[: count // 64 * 64].reshape(64, -1)
                expect(
                    len({one.tobytes() for one in pieces}),
                    64,
                    f"the number of different 64ths of {what}{where}",
                )
                half = count // 2
                share = float((flat[:half] == flat[half : 2 * half]).mean())
                expect(share < 0.01, True, f"whether the halves of {what}{where} differ")
            if impl == "threefry2x32" and name != "normal":
                expect(apart, alone, f"{what}, drawn over all devices")


def _odd_shards(line, grid):
    """Arrays with an odd number of elements per shard, of all narrow dtypes: moved, read, computed with."""
    n = line.size
    turn = [(k, (k + 1) % n) for k in range(n)]
    parts_of_bytes = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")
    for kind in (*parts_of_bytes, "int8", "uint8", "bool_", "float8_e4m3fn"):
        if not hasattr(jnp, kind):  # not every release has each
            continue
        dtype = jnp.dtype(getattr(jnp, kind))
        for odd in (1, 3, 5):
            flat = (mixed((odd * n,), 97, 7) + 1) % (2 if kind in ("bool_", "int2") else 4)
            flat[odd - 1 :: odd] = 1  # the last element of each shard is not zero
            host = flat.astype(dtype)
            x = placed(line, host, "d")
            what = f"{odd} elements of {kind} per shard"
            expect(_wide(x), _wide(host), f"an array of {what}")
            for part in x.addressable_shards:
                expect(_wide(part.data), _wide(host[part.index]), f"a shard of {what}")
            expect(_wide(jax.jit(lambda v: v)(x)), _wide(host), f"a result of {what}")
            expect(_wide(jax.jit(lambda v: v[::-1])(x)), _wide(host[::-1]), f"the reverse of {what}")
            expect(_wide(jax.device_put(x, NamedSharding(line, P()))), _wide(host), f"{what}, gathered")
            if kind not in parts_of_bytes:  # XLA's CPU sends no elements of less than a byte
                sent = mapped(lambda b: lax.ppermute(b, "d", turn), line, P("d"), P("d"))(x)
                expect(_wide(sent), _wide(np.roll(host, odd)), f"{what}, sent on")


def _wide(array: Any) -> np.ndarray:
    """The numbers as float32."""
    return np.asarray(array).astype(np.float32)


def _many_leaves(line, grid):
    """Calls with 40, 130 and 300 arrays, in lists, names and trees: each is itself, and gets its own result."""
    for count in (40, 130, 300):
        _hold_leaves(line, count)


def _hold_leaves(line: Any, count: int) -> None:
    """Results, slopes and sums of so many arrays in one call."""
    n = line.size
    hosts = [np.full(n, k, np.float32) for k in range(count)]
    leaves = [placed(line, host, "d") for host in hosts]
    named = {f"layer_{k}": leaf for k, leaf in enumerate(leaves)}
    weights = np.arange(count, dtype=np.float32) % 7 + 1
    run = jax.jit(lambda every: [w * v for w, v in zip(weights, every, strict=True)])
    found = jax.device_get(run(leaves))
    for k in range(count):
        expect(found[k], weights[k] * hosts[k], f"result {k} of {count}")
    found = jax.device_get(jax.jit(lambda t: jax.tree.map(lambda v: v + 1, t))(named))
    for k in range(count):
        expect(found[f"layer_{k}"], hosts[k] + 1, f"result {k} of {count} by name")
    spread = jax.jit(lambda *every: every[::-1], out_shardings=NamedSharding(line, P()))
    found = jax.device_get(spread(*leaves))
    for k in range(count):
        expect(found[k], hosts[count - 1 - k], f"result {k} of {count} in reverse")
    slopes = jax.jit(
        jax.grad(lambda every: sum((w * v * v).sum() for w, v in zip(weights, every, strict=True)))
    )
    found = jax.device_get(slopes(leaves))
    for k in range(count):
        expect(found[k], 2 * weights[k] * hosts[k], f"slope {k} of {count}")
    region = mapped(
        lambda every: [lax.psum(v * w, "d") for v, w in zip(every, weights, strict=True)],
        line,
        P("d"),
        P(),
    )
    found = jax.device_get(region(leaves))
    for k in range(count):
        expect(found[k][0], np.float32(n * weights[k] * k), f"sum {k} of {count} in a shard_map")


RULES_OF_LENGTH = {
    "long_dimensions": _long_dimensions,
    "long_draws": _long_draws,
    "odd_shards": _odd_shards,
    "many_leaves": _many_leaves,
}
