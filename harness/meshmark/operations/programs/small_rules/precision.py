# SPDX-License-Identifier: Apache-2.0
"""Small rules: numbers that a narrower type can't hold, places of narrow types, numbers of 64 bits, signs of zeros,
keys that differ, and draws that are placed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import hold, mixed, placements
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.hosts import on_each_device


def _product(x: Any, w: Any) -> Any:
    return jnp.dot(x, w, precision="highest")


def _transformed() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Ways to compute x @ w, each with its name."""
    yield "a product", _product
    for name in sorted(vars(jax.checkpoint_policies)):
        if name.startswith(("dots_", "everything_", "nothing_", "checkpoint_dots")) and "offload" not in name:
            policy = getattr(jax.checkpoint_policies, name)
            yield f"a product under the policy {name}", jax.checkpoint(_product, policy=policy)
    yield "a product in vmap", jax.vmap(_product, (0, None))
    yield "a product in a scan", lambda x, w: lax.scan(lambda c, r: (c, _product(r, w)), 0, x)[1]
    yield "a product in lax.map", lambda x, w: lax.map(lambda r: _product(r, w), x)
    yield "a product in a branch", lambda x, w: lax.cond(x.sum() > -1, _product, lambda x, w: 0 * x @ w, x, w)
    yield "a nested jit", jax.jit(_product)
    own = jax.custom_vjp(_product)
    own.defvjp(
        lambda x, w: (_product(x, w), (x, w)),
        lambda held, ct: (_product(ct, held[1].T), _product(held[0].T, ct)),
    )
    yield "a product with its own gradient", own
    yield "an einsum", lambda x, w: jnp.einsum("ij,jk->ik", x, w, precision="highest")
    yield (
        "a dot_general",
        lambda x, w: lax.dot_general(x, w, (((1,), (0,)), ((), ())), precision=lax.Precision.HIGHEST),
    )


def _fine_products(line, grid):
    """Products of numbers of 12 bits, and their gradients, in each transform: float32 holds the answers and bfloat16
    does not."""
    n = line.size
    x = (mixed((2 * n, 4), 2000, 377) + 2049).astype(np.float32)
    w = (mixed((4, 2), 7) - 3).astype(np.float32)
    ct = (mixed((2 * n, 2), 5) - 2).astype(np.float32)
    wide = x.astype(np.float64)
    right = (
        (wide @ w).astype(np.float32),
        (ct.astype(np.float64) @ w.T).astype(np.float32),
        (wide.T @ ct).astype(np.float32),
    )
    ways = dict(_transformed())

    def every(x, w, ct):
        found = {}
        for name, way in ways.items():
            y, pull = jax.vjp(way, x, w)
            found[name] = (y, *pull(ct))
        return found

    for where, given in placements(line, grid, (x, w, ct)):
        found = jax.device_get(jax.jit(every)(*given))
        for name, seen in found.items():
            for what, one, other in zip(
                ("", "the gradient by x of ", "the gradient by w of "), seen, right, strict=True
            ):
                expect(one, other, f"{what}{name}, {where},")
    block = mapped(lambda b, w: _product(b, w), line, (P("d"), P()), P("d"))
    expect(np.asarray(block(x, w)), right[0], "a product in a region")


def _indexed(kind: Any, x: np.ndarray, at: np.ndarray) -> dict[str, tuple[Callable[..., Any], np.ndarray]]:
    """Reads and writes of x, [rows, 2], and of its transpose y at six places and at pairs of them, with NumPy's
    answers. The first four places are not negative."""
    size = len(x)
    y, places = x.T, at.astype(np.int64) % size
    pair = np.stack([places, places[::-1]])
    flat, four = np.arange(12, dtype=np.int32), x[:4].copy()
    rows = np.arange(size)[:, None]

    def put(given: np.ndarray, where: np.ndarray, axis: int | None) -> np.ndarray:
        out = given.copy()
        np.put_along_axis(out, where, 7, axis)
        return out

    members: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
        "x[places]": (lambda x, y, at, pair: x[at], x[places]),
        "x[:, places]": (lambda x, y, at, pair: y[:, at], y[:, places]),
        "x[place]": (lambda x, y, at, pair: x[at[2]], x[places[2]]),
        "take": (lambda x, y, at, pair: jnp.take(x, at, axis=0), x[places]),
        "take_along_axis": (
            lambda x, y, at, pair: jnp.take_along_axis(y, pair, 1),
            np.take_along_axis(y, pair, 1),
        ),
        "put_along_axis": (
            lambda x, y, at, pair: jnp.put_along_axis(y, pair, 7, 1, inplace=False),
            put(y, pair, 1),
        ),
        "put_along_axis of all": (
            lambda x, y, at, pair: jnp.put_along_axis(
                jnp.asarray(flat.reshape(3, 4)), np.array([1, 6], kind), 7, None, inplace=False
            ),
            put(flat, np.array([1, 6]), 0).reshape(3, 4),
        ),
        "written rows": (
            lambda x, y, at, pair: x.at[at].set(-7),
            np.where(np.isin(rows, places), -7, x).astype(np.int32),
        ),
        "a slice": (lambda x, y, at, pair: lax.dynamic_slice_in_dim(x, at[2], 1, 0), x[places[2:3]]),
        "a row": (lambda x, y, at, pair: lax.dynamic_index_in_dim(x, at[5], 0), x[places[5:6]]),
        "a written row": (
            lambda x, y, at, pair: lax.dynamic_update_index_in_dim(
                x, np.full((1, 2), -7, np.int32), at[5], 0
            ),
            np.where(rows == places[5], -7, x).astype(np.int32),
        ),
        "a sum of segments": (
            lambda x, y, at, pair: jax.ops.segment_sum(four, at[:4], num_segments=size),
            np.stack([four[places[:4] == k].sum(0) for k in range(size)]).astype(np.int32),
        ),
    }
    return {f"{name} by places of {np.dtype(kind).name}": pairs for name, pairs in members.items()}


def _hold_indexed(line: Any, grid: Any, kind: Any, size: int, chosen: Callable[[str], bool]) -> None:
    size += -size % line.size
    x = mixed((size, 2), 997, 7).astype(np.int32)
    most, negative = min(np.iinfo(kind).max, size - 1), np.iinfo(kind).min < 0
    at = np.array([0, 3, most, most - 1, *((-5, -1) if negative else (5, 1))], kind)
    members = {name: pair for name, pair in _indexed(kind, x, at).items() if chosen(name)}
    hold(line, grid, members, x, x.T.copy(), at, np.stack([at, at[::-1]]))


def _narrow_indices(line, grid):
    """Reads and writes at places of each integer type, in arrays whose last row the type can name."""
    for kind, size in (
        (np.int8, 96),
        (np.uint8, 200),
        (np.int16, 300),
        (np.uint16, 300),
        (np.int32, 300),
        (np.uint32, 300),
    ):
        _hold_indexed(line, grid, kind, size, lambda name: True)


def _shorter_places(line, grid):
    """Whole reads at places of int8 in arrays of more than 127 rows."""
    _hold_indexed(
        line,
        grid,
        np.int8,
        200,
        lambda name: name.startswith(("take_", "put_along_axis of", "a slice", "a sum")),
    )


def _shorter_places_from_the_end(line, grid):
    """Reads and writes at negative places of int8 in arrays of more than 127 rows."""
    _hold_indexed(line, grid, np.int8, 200, lambda name: name.startswith(("take by", "a row", "a written")))


def _shorter_places_indexed(line, grid):
    """Indexing by int8 in arrays of more than 127 rows."""
    _hold_indexed(
        line, grid, np.int8, 200, lambda name: name.startswith(("x[", "written", "put_along_axis by"))
    )


def _wide_creation(line, grid):
    """Arrays of 64-bit numbers, made with a sharding as `device=`, from parts, and from callbacks."""
    n = 2 * grid.size
    big = 2**33 + 7
    with jax.enable_x64(True):
        for mesh, spec in ((line, P("d")), (grid, P("y")), (grid, P(("x", "y"))), (grid, P())):
            place = NamedSharding(mesh, spec)
            for kind in (np.int64, np.uint64, np.float64):
                right = (np.arange(n) + big).astype(kind)
                makers: dict[str, Callable[..., Any]] = {
                    "arange": lambda k, p: jnp.arange(n, dtype=k, device=p) + k(big),
                    "arange from a start": lambda k, p: jnp.arange(big, big + n, dtype=k, device=p),
                    "full": lambda k, p: jnp.full((n,), big, k, device=p) + np.arange(n).astype(k),
                    "asarray": lambda k, p: jnp.asarray((np.arange(n) + big).astype(k), device=p),
                    "array": lambda k, p: jnp.array((np.arange(n) + big).astype(k), device=p),
                    "device_put": lambda k, p: jax.device_put((np.arange(n) + big).astype(k), p),
                    "make_array_from_callback": lambda k, p: jax.make_array_from_callback(
                        (n,), p, lambda at: (np.arange(n) + big).astype(k)[at]
                    ),
                    "make_array_from_process_local_data": lambda k, p: jax.make_array_from_process_local_data(
                        p, (np.arange(n) + big).astype(k)
                    ),
                    "make_array_from_process_local_data of a shape": (
                        lambda k, p: jax.make_array_from_process_local_data(
                            p, (np.arange(n) + big).astype(k), (n,)
                        )
                    ),
                }
                for name, make in makers.items():
                    found = make(kind, place)
                    what = f"{name} of {kind.__name__} over {spec}"
                    on_each_device(found, right, what)
                    wrong(not found.sharding.is_equivalent_to(place, 1), f"{what} lies over {found.sharding}")


def _signs_of_zeros(line, grid):
    """Functions of elements that keep the sign of a zero, or give one that IEEE 754 names."""
    zeros = np.array([-0.0, 0.0], np.float32)
    host = np.tile(zeros, (2 * line.size, 2))
    kept: dict[str, Callable[..., Any]] = {
        **{
            name: getattr(jnp, name)
            for name in ("floor", "ceil", "trunc", "rint", "sqrt", "sin", "tan", "sinh", "tanh", "arcsin")
        },
        **{name: getattr(jnp, name) for name in ("arctan", "arcsinh", "expm1", "cbrt", "sign", "positive")},
        "lax.sign": lax.sign,
        "times 3": lambda v: v * 3,
        "over 3": lambda v: v / 3,
        "plus itself": lambda v: v + v,
        "a cast to bfloat16": lambda v: v.astype(jnp.bfloat16).astype(np.float32),
        "a reversal": lambda v: v[::-1, ::-1][::-1, ::-1],
        "a constraint": lambda v: lax.with_sharding_constraint(v, NamedSharding(line, P())),
        "a where": lambda v: jnp.where(v == 0, v, 1),
        "copysign": lambda v: jnp.copysign(0.0, v),
        "nextafter itself": lambda v: jnp.nextafter(v, v),
    }
    turned: dict[str, Callable[..., Any]] = {
        "negative": jnp.negative,
        "0 minus": lambda v: -0.0 - v,
        "times -1": lambda v: v * -1,
        "over -2": lambda v: v / -2,
    }
    gone: dict[str, Callable[..., Any]] = {"abs": jnp.abs, "square": jnp.square}
    minus = np.signbit(host)
    for kind in (np.float32, jnp.bfloat16, np.float16):
        given = host.astype(kind)
        for where, (x,) in placements(line, grid, (given,)):
            found = jax.device_get(
                jax.jit(lambda v: {name: f(v) for name, f in (kept | turned | gone).items()})(x)
            )
            for name, seen in found.items():
                right = minus if name in kept else ~minus if name in turned else np.zeros_like(minus)
                if name == "0 minus":
                    right = np.zeros_like(minus) | (host == 0) & ~minus
                bits = np.signbit(np.asarray(seen).astype(np.float32))
                wrong(
                    not np.array_equal(bits, right) or bool(np.any(np.asarray(seen) != 0)),
                    f"{name} of zeros of {np.dtype(kind).name}, {where}, is {np.asarray(seen)[:1].tolist()}",
                )


def _keys_apart(line, grid):
    """Keys that are split and folded differ, and are those of one device, whatever their number and placement."""
    n = line.size
    for name in ("threefry2x32", "rbg"):
        key = jax.random.key(11, impl=name)
        for count in (1, 3, 2 * n, (n, 3)):
            words = jax.random.key_data(jax.random.split(key, count))
            flat = np.asarray(words).reshape(-1, words.shape[-1])
            wrong(len(np.unique(flat, axis=0)) < len(flat), f"{count} keys of {name} repeat: {flat.tolist()}")
            made = jax.jit(lambda key, count=count: jax.random.key_data(jax.random.split(key, count)))(
                jax.device_put(key, NamedSharding(line, P()))
            )
            expect(np.asarray(made), np.asarray(words), f"{count} keys of {name} over all devices")
        cut = jax.device_put(jax.random.split(key, 2 * n), NamedSharding(line, P("d")))
        for what, call in (
            ("split in a batch", jax.vmap(lambda k: jax.random.split(k, 3))),
            ("folded", jax.vmap(lambda k: jax.random.fold_in(k, 7))),
            ("cloned", jax.random.clone),
        ):
            words = np.asarray(jax.random.key_data(jax.jit(call)(cut)))
            flat = words.reshape(-1, words.shape[-1])
            wrong(len(np.unique(flat, axis=0)) < len(flat), f"keys of {name} that are {what} repeat")
            alone = np.asarray(jax.random.key_data(jax.jit(call)(jax.random.split(key, 2 * n))))
            if name == "threefry2x32":
                expect(words, alone, f"keys of {name} that are {what}, over all devices")


DRAWS: dict[str, Callable[..., Any]] = {
    "bits": lambda k, s, p: jax.random.bits(k, s, out_sharding=p),
    "uniform": lambda k, s, p: jax.random.uniform(k, s, out_sharding=p),
    "normal": lambda k, s, p: jax.random.normal(k, s, out_sharding=p),
    "randint": lambda k, s, p: jax.random.randint(k, s, 0, 1000, out_sharding=p),
    "truncated_normal": lambda k, s, p: jax.random.truncated_normal(k, -2.0, 2.0, s, out_sharding=p),
}


def _draws_placed(line, grid):
    """Draws that `out_sharding` places over Explicit axes are those of one device."""
    size = 2 * grid.size
    key = jax.random.key(3, impl="threefry2x32")
    for shape, specs in (
        ((size,), (P("x"), P("y"), P(("y", "x")))),
        ((size, size), (P("x"), P(None, "y"), P("y", "x"))),
    ):
        alone = {name: np.asarray(draw(key, shape, None)) for name, draw in DRAWS.items()}
        typed = explicit(grid)
        with jax.set_mesh(typed):
            for spec in specs:
                place = NamedSharding(typed, spec)
                made = jax.jit(
                    lambda k, shape=shape, spec=spec: {name: f(k, shape, spec) for name, f in DRAWS.items()}
                )(key)
                eager = jax.random.normal(key, shape, out_sharding=spec)
                for name, found in [*made.items(), ("normal", eager)]:
                    what = f"{name} of {shape} over {spec}"
                    there = found.sharding
                    wrong(not there.is_equivalent_to(place, len(shape)), f"{what} lies over {there}")
                    seen, right = np.asarray(found), alone[name]
                    off = abs(seen.astype(np.float64) - right).max()
                    wrong(
                        off > (1e-5 if seen.dtype.kind == "f" else 0), f"{what} is {seen} instead of {right}"
                    )


RULES_OF_PRECISION: dict[str, Callable[..., None]] = {
    "fine_products": _fine_products,
    "narrow_indices": _narrow_indices,
    "shorter_places": _shorter_places,
    "shorter_places_from_the_end": _shorter_places_from_the_end,
    "shorter_places_indexed": _shorter_places_indexed,
    "wide_creation": _wide_creation,
    "signs_of_zeros": _signs_of_zeros,
    "keys_apart": _keys_apart,
    "draws_placed": _draws_placed,
}
