# SPDX-License-Identifier: Apache-2.0
"""Small rules: special values in collectives and orders, rare dtypes, and random numbers."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, refused

BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _moves(n: int) -> dict[str, tuple[Callable, Callable[[np.ndarray], np.ndarray], P]]:
    """Collectives that move the blocks of an [n, columns] array with one row per device: each with what it gives, and
    the spec of that."""
    ring = [(k, (k + 1) % n) for k in range(n)]
    return {
        "ppermute": (lambda v: lax.ppermute(v, "d", ring), lambda h: np.roll(h, 1, 0), P("d")),
        "all_gather": (
            lambda v: lax.all_gather(v, "d", axis=1, tiled=True),
            lambda h: np.tile(h.reshape(1, -1), (n, 1)),
            P("d"),
        ),
        "all_to_all of one dimension": (
            lambda v: lax.all_to_all(v, "d", 1, 1, tiled=True),
            lambda h: np.swapaxes(h.reshape(n, n, -1), 0, 1).reshape(n, -1),
            P("d"),
        ),
        "all_to_all of two dimensions": (
            lambda v: lax.all_to_all(v, "d", 1, 0, tiled=True),
            lambda h: h,
            P(None, "d"),
        ),
    }


def _every_bit(line, grid):
    """All bits of each dtype through collectives that only move: numbers of each kind, and patterns that are none."""
    n = line.size
    kinds = [
        jnp.int8,
        jnp.uint8,
        jnp.int16,
        jnp.uint16,
        jnp.int32,
        jnp.uint32,
        jnp.float16,
        jnp.bfloat16,
        jnp.float32,
        jnp.complex64,
    ]
    kinds += [
        k
        for k in (getattr(jnp, f"float8_{e}", None) for e in ("e4m3fn", "e5m2", "e4m3b11fnuz"))
        if k is not None
    ]
    for kind in kinds:
        dtype = np.dtype(kind)
        size = np.dtype(np.float32).itemsize if dtype.kind == "c" else dtype.itemsize
        unit = BITS[size]
        one = np.array(_patterns(dtype, size), unit)
        host = np.resize(one, (n, n * 16)).astype(unit)
        host = np.ascontiguousarray(host).view(dtype)
        for name, (f, right, spec) in _moves(n).items():
            try:
                found = np.asarray(mapped(f, line, P("d"), spec)(host))
            except jax.errors.JaxRuntimeError as error:
                if dtype.name.startswith("float8") and "UNIMPLEMENTED" in str(error):
                    continue  # a backend may lack float8, which is an optional capability
                raise
            seen = np.ascontiguousarray(found).view(unit)
            expect(seen, np.ascontiguousarray(right(host)).view(unit), f"the bits of {dtype} after {name}")


def _patterns(dtype: np.dtype, size: int) -> list[int]:
    """Bit patterns: each bit alone, all of them, and mixed ones. For floats these are also infinities, zeros and
    subnormal numbers, but no NaN, whose bits arithmetic may change."""
    width = 8 * size
    mixed = [(k * 0x9E3779B97F4A7C15 % (1 << 64)) >> (64 - width) for k in range(1, 24)]
    every = [0, 3, 5, (1 << (width - 1)) + 1, (1 << width) - 1, *(1 << k for k in range(width)), *mixed]
    if dtype.kind in "iu":
        return every
    part = np.dtype(np.float32) if dtype.kind == "c" else dtype
    numbers = np.array(every, BITS[size]).view(part).astype(np.float64)
    return [bits for bits, number in zip(every, numbers, strict=True) if not np.isnan(number)]


def _overflow(line, grid):
    """Sums that wrap around or become infinite, and sums of integers that a float can't hold."""
    n = line.size
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32):
        info = np.iinfo(kind)
        for value in (info.max, info.min, info.max // 3 * 2, info.max - 7):
            host = np.full((n, n), value, kind)
            right = (
                np.array((int(value) * n) % (1 << info.bits), np.uint64)
                .astype(BITS[info.bits // 8])
                .view(kind)
            )
            sums = {
                "psum": mapped(lambda v: lax.psum(v, "d"), line, P("d"), P())(host),
                "psum_scatter": mapped(
                    lambda v: lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True),
                    line,
                    P("d"),
                    P(None, "d"),
                )(host),
            }
            for name, found in sums.items():
                expect(
                    found, np.full((1, n), right, kind), f"{name} of {n} times {value} as {np.dtype(kind)}"
                )
            reduced = jax.jit(lambda v, k=kind: jnp.sum(v, 0, dtype=k))(placed(line, host, "d"))
            expect(reduced, np.full(n, right, kind), f"the sum of {n} times {value} as {np.dtype(kind)}")
        steps = (np.arange(n * n).reshape(n, n) * 3 + info.max // 2).astype(kind)
        right = steps.astype(object).sum(0)
        wrapped = (
            np.array([int(v) % (1 << info.bits) for v in right], np.uint64)
            .astype(BITS[info.bits // 8])
            .view(kind)
        )
        expect(
            mapped(lambda v: lax.psum(v, "d"), line, P("d"), P())(steps),
            wrapped[None],
            f"psum of large {np.dtype(kind)}",
        )
        expect(
            mapped(
                lambda v: lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True),
                line,
                P("d"),
                P(None, "d"),
            )(steps),
            wrapped[None],
            f"psum_scatter of large {np.dtype(kind)}",
        )
    if n > 1:
        for kind in (np.float16, jnp.bfloat16, np.float32):
            largest = np.array(jnp.finfo(kind).max).astype(kind)
            for sign in (1, -1):
                host = np.full((n, 1), largest, kind) * np.array(sign, kind)
                found = np.asarray(mapped(lambda v: lax.psum(v, "d"), line, P("d"), P())(host)).astype(
                    np.float64
                )
                wrong(
                    not (np.isinf(found) & (np.sign(found) == sign)).all(),
                    f"psum of the largest {np.dtype(kind)} is {found}",
                )
    with jax.enable_x64(True):
        thirds = np.arange(n) + 1 / 3
        for name, host in (
            ("float64", thirds * 2.0**-40 + 1),
            ("int64", np.arange(n) + 2**53 + 1),
            ("uint64", np.arange(n, dtype=np.uint64) + np.uint64(2**63)),
        ):
            found = np.asarray(mapped(lambda v: lax.psum(v, "d"), line, P("d"), P())(host))
            if host.dtype.kind == "f":
                far = abs(found[0] - host.sum()) / host.sum()
                wrong(
                    found.dtype != host.dtype or far > n * np.finfo(np.float64).eps,
                    f"psum of float64 is off by {far}",
                )
            else:
                right = np.array(sum(map(int, host)) % 2**64, np.uint64).view(host.dtype)
                expect(found, right[None], f"psum of {name}")
            move = _moves(n)["ppermute"][0]
            expect(
                mapped(move, line, P("d"), P("d"))(host),
                np.roll(host, 1),
                f"ppermute of {name}",
            )
    for real, imaginary in ((lambda k: k, lambda k: 3 + 0 * k), (lambda k: 0 * k, lambda k: -k)):
        host = (real(np.arange(n)) + 1j * imaginary(np.arange(n))).astype(np.complex64)
        found = np.asarray(mapped(lambda v: lax.pmean(v, "d"), line, P("d"), P())(host))
        # The sum is exact. Its mean is a quotient, or a product with a rounded 1/n: two roundings, so one eps.
        off = found.astype(np.complex128) - host.sum() / n
        largest = np.finfo(np.float32).eps * max(abs(host.sum().real), abs(host.sum().imag)) / n
        wrong(max(abs(off.real).max(), abs(off.imag).max()) > largest, f"pmean of {host} is {found}")


def _orders(line, grid):
    """Zeros of both signs, ties, NaN and infinities in sorts, along whole and sharded dimensions."""
    n = line.size
    zeros = np.resize(np.array([0.0, -0.0, 0.0, -0.0], np.float32), (n, 8))
    for kind in (np.float32, jnp.bfloat16, np.float16):
        x = placed(line, zeros.astype(kind), "d")
        expect(
            jax.jit(lambda v: jnp.argsort(v, axis=1))(x),
            np.tile(np.arange(8, dtype=np.int32), (n, 1)),
            f"argsort of zeros of {np.dtype(kind)}",
        )
        found = jax.jit(lambda v: lax.sort(v, dimension=1))(x)
        expect(
            np.signbit(np.asarray(found).astype(np.float32)),
            np.signbit(zeros),
            f"the signs of sorted zeros of {np.dtype(kind)}",
        )
        hard = np.resize(np.array([2, np.nan, -np.inf, np.inf, -1, np.nan, 0, 1]), (n, 8)).astype(kind)
        right = np.tile(np.argsort(hard[0].astype(np.float32), kind="stable").astype(np.int32), (n, 1))
        expect(
            jax.jit(lambda v: jnp.argsort(v, axis=1))(placed(line, hard, "d")),
            right,
            f"argsort of hard numbers of {np.dtype(kind)}",
        )
        first = int(np.flatnonzero(np.isnan(hard[0].astype(np.float32)))[0])
        for name in ("argmax", "argmin"):
            found = jax.jit(lambda v, name=name: getattr(jnp, name)(v, 1))(placed(line, hard, "d"))
            expect(found, np.full(n, first, np.int32), f"{name} of numbers with NaN as {np.dtype(kind)}")
    pairs = np.resize(np.array([3, 1, 2, 1, 3, 2, 1, 3], np.int32), (n, 8))
    place = np.tile(np.arange(8, dtype=np.int32), (n, 1))
    for descending in (False, True):
        order = np.argsort(-pairs[0] if descending else pairs[0], kind="stable").astype(np.int32)
        found = jax.jit(lambda v, d=descending: jnp.argsort(v, axis=1, stable=True, descending=d))(
            placed(line, pairs, "d")
        )
        expect(found, np.tile(order, (n, 1)), f"argsort with ties, descending {descending}")
    keys, values = jax.jit(lambda k, v: lax.sort((k, v), dimension=1, num_keys=1))(
        placed(line, pairs, "d"), placed(line, place, "d")
    )
    order = np.argsort(pairs[0], kind="stable")
    expect(keys, np.sort(pairs, 1), "sorted keys")
    expect(values, np.tile(order.astype(np.int32), (n, 1)), "what is sorted with the keys")
    largest = {
        name: mapped(lambda v, f=f: f(v, "d"), line, P("d"), P())
        for name, f in (("pmax", lax.pmax), ("pmin", lax.pmin))
    }
    for name, f in largest.items():
        side = -np.inf if name == "pmax" else np.inf
        host = np.full((n, 2), side, np.float32)
        expect(f(host), np.full((1, 2), side, np.float32), f"{name} of {side} alone")
        host[n - 1, 1] = 5
        expect(f(host), np.array([[side, 5]], np.float32), f"{name} of {side} and one number")


def _narrow_dtypes(line, grid):
    """Casts to four bits, arrays of keys, promotions of float8, and order of parts of narrow dtypes."""
    n = line.size
    whole = np.resize(np.arange(-16, 16), 4 * n)
    for kind, low, high in ((jnp.int4, -8, 8), (jnp.uint4, 0, 16)):
        for source in (np.int8, np.int16, np.int32):
            right = ((whole - low) % 16 + low).astype(np.int8)
            found = jax.jit(lambda v, k=kind: v.astype(k).astype(jnp.int8))(
                placed(line, whole.astype(source), "d")
            )
            expect(found, right, f"{np.dtype(source)} as {np.dtype(kind)}")
        inside = np.resize(np.arange(low, high), 4 * n).astype(np.int8).astype(kind)
        expect(
            np.asarray(placed(line, inside, "d")).astype(np.int8),
            inside.astype(np.int8),
            f"{np.dtype(kind)} on the devices",
        )
    for source, target in (
        (np.int32, np.int8),
        (np.int32, np.uint8),
        (np.int16, np.int8),
        (np.uint32, np.int16),
        (np.int32, np.uint16),
    ):
        host = (np.arange(4 * n) * 77 - 1000).astype(source)
        found = jax.jit(lambda v, t=target: v.astype(t))(placed(line, host, "d"))
        expect(found, host.astype(target), f"{np.dtype(source)} as {np.dtype(target)}")
    one, other = np.ones(n, jnp.float8_e4m3fn), np.ones(n, jnp.float8_e5m2)
    for name, f in (
        ("sum", jnp.add),
        ("choice", lambda p, q: jnp.where(p > 0, p, q)),
        ("product", jnp.multiply),
    ):
        refused(
            f"a {name} of two kinds of float8",
            "promotion",
            lambda f=f: jax.jit(f)(placed(line, one, "d"), placed(line, other, "d")),
        )
    keys = jax.random.split(jax.random.key(0), 2 * n)
    data = np.asarray(jax.random.key_data(keys))
    for name, f, right in (
        ("keys[::-1]", lambda k: k[::-1], data[::-1]),
        ("flipped keys", jnp.flip, data[::-1]),
        ("rolled keys", lambda k: jnp.roll(k, 1), np.roll(data, 1, 0)),
        ("keys[1::2]", lambda k: k[1::2], data[1::2]),
        ("taken keys", lambda k: k[jnp.arange(k.size)[::-1]], data[::-1]),
        ("reshaped keys", lambda k: k.reshape(2, -1).T, np.swapaxes(data.reshape(2, n, -1), 0, 1)),
        ("keys side by side", lambda k: jnp.concatenate([k[n:], k[:n]]), np.roll(data, n, 0)),
        (
            "chosen keys",
            lambda k: jnp.where(jnp.arange(2 * n) < n, k, k[::-1]),
            np.concatenate([data[:n], data[::-1][n:]]),
        ),
    ):
        expect(jax.random.key_data(jax.jit(f)(keys)), right, name)
        expect(jax.random.key_data(f(keys)), right, f"{name}, eager")


def _random(line, grid):
    """Bits of narrow types, keys in grids and batches, choices and permutations along an axis, and numbers that must
    differ between rows."""
    n = line.size
    key = jax.random.key(5)
    for kind, width in ((np.uint8, 8), (np.uint16, 16), (np.uint32, 32)):
        bits = np.asarray(jax.jit(lambda kind=kind: jax.random.bits(key, (4096,), kind))())
        for k in range(width):
            share = float(((bits >> k) & 1).mean())
            wrong(not 0.4 < share < 0.6, f"bit {k} of random {np.dtype(kind)} is set in {share:.0%}")
    for kind in (np.int8, np.int16, np.int32):
        info = np.iinfo(kind)
        drawn = np.asarray(jax.random.randint(key, (4096,), info.min, info.max, kind)).astype(np.int64)
        spread = drawn.max() - drawn.min()
        wrong(spread < 0.9 * (info.max - info.min), f"random {np.dtype(kind)} reach over {spread} numbers")
    for implementation in ("threefry2x32", "rbg", "unsafe_rbg"):
        one = jax.random.key(7, impl=implementation)
        for shape in ((8,), (4, 2), (2, 3, 2)):
            data = np.asarray(jax.random.key_data(jax.random.split(one, shape)))
            rows = data.reshape(-1, data.shape[-1])
            expect(data.shape[: len(shape)], shape, f"the shape of keys of {implementation}")
            expect(
                len(np.unique(rows, axis=0)),
                len(rows),
                f"different keys of {implementation} in a grid of {shape}",
            )
        steps = np.array([5, 7, 9, 11, 5], np.uint32)
        alone = np.stack([np.asarray(jax.random.key_data(jax.random.fold_in(one, int(s)))) for s in steps])
        expect(len(np.unique(alone, axis=0)), 4, f"different keys of fold_in of {implementation}")
        if implementation == "threefry2x32":  # others may differ in a batch
            folded = jax.jit(jax.vmap(lambda s, k=one: jax.random.key_data(jax.random.fold_in(k, s))))(steps)
            expect(folded, alone, "keys of fold_in in a batch")
            drawn = jax.vmap(lambda k: jax.random.bits(k, (3,)))(jax.random.split(one, 6))
            each = np.stack([np.asarray(jax.random.bits(k, (3,))) for k in jax.random.split(one, 6)])
            expect(drawn, each, "bits of keys in a batch")
    rows, columns = 2 * n, 9
    table = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    kept = placed(line, table, "d")
    for axis in (0, 1):
        other = 1 - axis
        size = table.shape[axis]
        picked = np.asarray(jax.random.choice(key, kept, (min(size, 3),), replace=False, axis=axis))
        at = np.take(picked, 0, other) // columns if axis == 0 else np.take(picked, 0, other) % columns
        expect(picked, np.take(table, at, axis), f"a choice without replacement along axis {axis}")
        expect(len(set(at.tolist())), min(size, 3), f"different choices along axis {axis}")
        mixed = np.asarray(jax.random.permutation(key, kept, axis=axis))
        order = np.take(mixed, 0, other) // columns if axis == 0 else np.take(mixed, 0, other) % columns
        expect(sorted(order.tolist()), list(range(size)), f"a permutation along axis {axis}")
        expect(mixed, np.take(table, order, axis), f"what is moved along axis {axis}")
        single = np.asarray(jax.random.permutation(key, kept, axis=axis, independent=True))
        expect(np.sort(single, axis), table, f"what is moved alone along axis {axis}")
        if size > 3:
            moved = np.take(single, 0, other) - np.take(table, 0, other)
            last = np.take(single, -1, other) - np.take(table, -1, other)
            wrong(np.array_equal(moved, last), f"independent permutations along axis {axis} are one")
    for shape in ((3, 4, 8), (2, 4, 8), (5, 3)):
        for name, draw in (
            ("uniform", jax.random.uniform),
            ("normal", jax.random.normal),
            ("bits", jax.random.bits),
        ):
            drawn = np.asarray(jax.jit(lambda draw=draw, shape=shape: draw(key, shape))())
            for axis in range(len(shape)):
                lines = np.moveaxis(drawn, axis, 0).reshape(shape[axis], -1)
                expect(
                    len(np.unique(lines, axis=0)),
                    shape[axis],
                    f"different rows of {name} of shape {shape} along axis {axis}",
                )
    logits = np.array([[0.0, 1, 2, 3, 4], [4, 3, 2, 1, 0]], np.float32).T
    taken = np.asarray(jax.random.categorical(key, logits, axis=0, shape=(5, 2), replace=False))
    expect(
        np.sort(taken, 0),
        np.tile(np.arange(5, dtype=taken.dtype)[:, None], (1, 2)),
        "all classes without replacement along axis 0",
    )
    sure = np.where(np.eye(4, dtype=bool), 0.0, -np.inf).astype(np.float32)
    for axis in (0, 1, -1):
        expect(
            jax.random.categorical(key, sure, axis=axis),
            np.arange(4, dtype=np.int32),
            f"the only class along axis {axis}",
        )
    for share in (0.0, 1.0):
        expect(jax.random.bernoulli(key, share, (n,)), np.full(n, bool(share)), f"bernoulli of {share}")


RULES_OF_VALUES: dict[str, Callable[..., None]] = {
    "every_bit": _every_bit,
    "overflow": _overflow,
    "orders": _orders,
    "narrow_dtypes": _narrow_dtypes,
    "random": _random,
}
