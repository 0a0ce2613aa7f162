# SPDX-License-Identifier: Apache-2.0
"""Small rules of batches along cut dimensions and of keys, from real reports: control by cut indices beside numbers and
arrays of no mesh, draws by batches of keys, and folded numbers. The docstring of each rule has the number of its
report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.reported_slopes import WAYS, typed_as
from meshmark.operations.programs.small_rules.storage import SENDS

KINDS = ("threefry2x32", "rbg", "unsafe_rbg")
"""JAX's generators of random numbers."""


def _words(key: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


def _threefry(key: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Threefry-2x32 with twenty rounds of a key of two words and pairs of counts, as its authors define it."""
    turns = ((13, 15, 26, 6), (17, 29, 16, 24))
    words = [int(key[0]), int(key[1]), int(key[0]) ^ int(key[1]) ^ 0x1BD11BDA]
    mask = 0xFFFFFFFF
    a, b = (int(counts[0]) + words[0]) & mask, (int(counts[1]) + words[1]) & mask
    for turn in range(5):
        for by in turns[turn % 2]:
            a = (a + b) & mask
            b = ((b << by) | (b >> (32 - by))) & mask
            b ^= a
        a = (a + words[(turn + 1) % 3]) & mask
        b = (b + words[(turn + 2) % 3] + turn + 1) & mask
    return np.array([a, b], np.uint32)


def _folded(key: np.ndarray, number: int) -> np.ndarray:
    """A key of threefry, or the two of rbg, with a number folded in."""
    counts = np.array([0, number & 0xFFFFFFFF], np.uint32)
    return np.concatenate([_threefry(half, counts) for half in key.reshape(-1, 2)])


def _bits(key: np.ndarray, count: int) -> np.ndarray:
    """The bits that JAX draws by a key of threefry."""
    pairs = [_threefry(key, np.array([0, k], np.uint32)) for k in range(count)]
    return np.array([a ^ b for a, b in pairs], np.uint32)


def _draws_of_rbg_in_batches(line, grid):
    """Draws by a batch of cut keys (jax#34497). Those of threefry send nothing and are those of each key. The others
    draw by the first key of the batch, as their documentation says, and wait for it; in a region each device draws by
    its own keys and sends nothing."""
    n = line.size
    there = NamedSharding(line, P("d"))
    for kind in KINDS:
        alone = jax.random.split(jax.random.key(1, impl=kind), 2 * n)
        words = _words(alone)
        expect(len(np.unique(words, axis=0)), 2 * n, f"how many of the keys of {kind} differ")
        keys = jax.device_put(alone, there)
        for name in ("bits", "uniform") if kind == "threefry2x32" else ("bits",):

            def draw(key: Any, shape: tuple[int, ...] = (3,), name: str = name) -> Any:
                return getattr(jax.random, name)(key, shape)

            what = f"{name} of a batch of keys of {kind}"
            batch = jax.jit(jax.vmap(draw), in_shardings=there, out_shardings=there).lower(keys).compile()
            region = mapped(jax.vmap(draw), line, P("d"), P("d")).lower(keys).compile()
            if kind == "threefry2x32":
                right = np.stack([_bits(row, 3) for row in words])
                if name == "uniform":
                    right = ((right >> 9) | np.uint32(0x3F800000)).view(np.float32) - 1
                own = right
            else:
                right = np.asarray(draw(alone[0], (2 * n, 3)))
                two = jax.jit(lambda key, draw=draw: draw(key, (2, 3)))
                own = np.concatenate([np.asarray(two(alone[2 * k])) for k in range(n)])
            for rows in (right, own):
                expect(len(np.unique(rows, axis=0)), 2 * n, f"how many rows of {what} differ")
            on_each_device(batch(keys), right, what)
            on_each_device(region(keys), own, f"{what} in a region")
            for run, where in ((region, " in a region"), (batch, "")):
                if run is region or kind == "threefry2x32":
                    text = run.as_text()
                    wrong(any(word in text for word in SENDS), f"{what}{where} sends data")


def _orders_of_folded_numbers(line, grid):
    """Numbers that are folded into a key (jax#21405): in another order they make another key, for each generator."""
    n = line.size
    numbers = np.arange(2 * n, dtype=np.uint32) * 7 + 1

    def twice(key: Any, a: Any, b: Any) -> Any:
        return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(key, a), b))

    for kind in KINDS:
        key = jax.random.key(42, impl=kind)
        words = _words(key)
        once = jax.jit(lambda k, key=key: jax.random.key_data(jax.random.fold_in(key, k)))
        single = [np.asarray(once(k)) for k in numbers]
        expect(len({w.tobytes() for w in single}), 2 * n, f"how many keys of {kind} with one number differ")
        if kind == "unsafe_rbg":
            continue
        each = jax.jit(jax.vmap(twice, in_axes=(None, 0, None)))
        other = jax.jit(jax.vmap(lambda key, b, a: twice(key, a, b), in_axes=(None, 0, None)))
        for a in (2, 2**31 + 5):
            first = np.stack([_folded(_folded(words, int(k)), a) for k in numbers])
            last = np.stack([_folded(_folded(words, a), int(k)) for k in numbers])
            cut = placed(line, numbers, "d")
            on_each_device(each(key, cut, np.uint32(a)), first, f"keys of {kind} with a number and {a}")
            on_each_device(other(key, cut, np.uint32(a)), last, f"keys of {kind} with {a} and a number")
            eager = twice(key, int(numbers[1]), a) if a < 2**31 else twice(key, int(numbers[1]), np.uint32(a))
            expect(np.asarray(eager), first[1], f"a key of {kind} with a number and {a}, eager")
            wrong(bool((first == last).all(1).any()), f"a key of {kind} with {a} and a number is another's")
    for kind in KINDS[::-1]:  # last: JAX breaks unsafe_rbg
        key = jax.random.key(42, impl=kind)
        there, back = (np.asarray(twice(key, a, b)) for a, b in ((1, 2), (2, 1)))
        wrong(
            np.array_equal(there, back),
            f"a key of {kind} with 1 and 2 is that with 2 and 1: {there.tolist()}",
        )


def _control(numbers: np.ndarray) -> dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], np.ndarray]]]:
    """Programs of an argument that is not in the batch and of one index of it, and their answers."""
    turns = numbers.astype(np.int64)

    def chosen(v: Any, i: Any) -> Any:
        branches = [lambda a, k=k: a[0] * k + a[1] for k in range(5)]
        return lax.switch(i, branches, (v, i.astype(np.float32)))

    def either(v: Any, i: Any) -> Any:
        return lax.cond(i > 1, lambda a: a[0] + a[1], lambda a: a[1] - 1, (v, i.astype(np.float32)))

    def doubled(v: Any, i: Any) -> Any:
        return lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, c[1] * 2), (i, v))[1]

    def scanned(v: Any, i: Any) -> Any:
        return lax.scan(lambda c, _: (c * 2 + i, c), v, None, length=3)[0]

    def nested(v: Any, i: Any) -> Any:
        return lax.cond(i > 0, lambda q: lax.cond(i > 2, lambda w: w * 3, lambda w: w + 1, q), lambda q: q, v)

    return {
        "a product": (lambda v, i: v * i, lambda v: v * turns),
        "a select": (
            lambda v, i: jnp.where(i > 1, v, v + i),
            lambda v: np.where(turns > 1, v, v + turns),
        ),
        "switch": (chosen, lambda v: v * turns + turns),
        "cond": (either, lambda v: np.where(turns > 1, v + turns, turns - 1)),
        "while_loop": (doubled, lambda v: v * 2**turns),
        "scan": (scanned, lambda v: v * 8 + 7 * turns),
        "cond in cond": (nested, lambda v: np.where(turns > 2, v * 3, np.where(turns > 0, v + 1, v))),
    }


def _judged_control(line: Any, value: Any, number: float, names: tuple[str, ...], word: str) -> None:
    """Batches along cut indices of the named programs, with one argument outside of the batch."""
    host = (np.arange(2 * line.size) * 3 % 5).astype(np.int32)
    programs = _control(host)
    indices = placed(explicit(line), host, "d")
    for name in names:
        call, right = programs[name]
        for way, run in WAYS:
            found = run(jax.vmap(call, in_axes=(None, 0)))(value, indices)
            what = f"{name} by cut indices beside {word}, {way},"
            typed_as(found, P("d"), right(number).astype(np.float32), what)


STRAIGHT = ("a product", "a select")
CONTROL = ("cond", "cond in cond", "switch", "while_loop", "scan")


def _numbers_in_batched_control(line, grid):
    """Control by a batch of cut indices beside an unmapped number of the mesh, of NumPy and of Python (jax#29637)."""
    with jax.set_mesh(explicit(line)):
        here = jax.device_put(np.float32(10), P())
        _judged_control(line, here, 10, (*STRAIGHT, *CONTROL), "an array of the mesh")
        made, given = jnp.float32(-3), np.float32(-3)
        _judged_control(line, made, -3, (*STRAIGHT, *CONTROL), "a number made there")
        _judged_control(line, given, -3, STRAIGHT, "a number of NumPy")
        _judged_control(line, given, -3, CONTROL, "a number of NumPy")  # last: JAX breaks it
        _judged_control(line, -3.0, -3, CONTROL, "a number of Python")


def _arrays_of_no_mesh_in_batched_control(line, grid):
    """The same beside keys and arrays that were made before the mesh was set (jax#29694)."""
    seven, row, key = jnp.float32(7), jnp.arange(3, dtype=np.float32), jax.random.key(42)
    drawn = np.float32(jax.random.uniform(key, ()))
    host = (np.arange(2 * line.size) * 3 % 5).astype(np.int32)

    def draws(q: Any, i: Any) -> Any:
        return lax.switch(i, [lambda q, k=k: jax.random.uniform(q, ()) + k for k in range(5)], q)

    def rows(q: Any, i: Any) -> Any:
        return lax.cond(i > 1, lambda q: q * 2, lambda q: q - 1, q)

    with jax.set_mesh(explicit(line)):
        indices = jax.device_put(host, P("d"))
        _judged_control(line, seven, 7, STRAIGHT, "an array of no mesh")
        for way, run in WAYS:
            found = run(jax.vmap(lambda q, i: jax.random.uniform(q, ()) + i, in_axes=(None, 0)))(key, indices)
            typed_as(
                found,
                P("d"),
                drawn + host.astype(np.float32),
                f"draws beside cut indices by a key of no mesh, {way},",
            )
        _judged_control(line, seven, 7, CONTROL, "an array of no mesh")  # last: JAX breaks it
        for way, run in WAYS:
            found = run(jax.vmap(rows, in_axes=(None, 0)))(row, indices)
            right = np.where(host[:, None] > 1, np.arange(3) * 2, np.arange(3) - 1).astype(np.float32)
            typed_as(found, P("d"), right, f"cond by cut indices beside a row of no mesh, {way},")
            found = run(jax.vmap(draws, in_axes=(None, 0)))(key, indices)
            typed_as(
                found,
                P("d"),
                drawn + host.astype(np.float32),
                f"switch by cut indices beside a key of no mesh, {way},",
            )


RULES_OF_REPORTED_BATCHES: dict[str, Callable[..., None]] = {
    "draws_of_rbg_in_batches": _draws_of_rbg_in_batches,
    "orders_of_folded_numbers": _orders_of_folded_numbers,
    "numbers_in_batched_control": _numbers_in_batched_control,
    "arrays_of_no_mesh_in_batched_control": _arrays_of_no_mesh_in_batched_control,
}
