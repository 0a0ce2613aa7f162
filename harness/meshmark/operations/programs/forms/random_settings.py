# SPDX-License-Identifier: Apache-2.0
"""Random number settings in turn in one process: key implementations, the two orders of Threefry, an offset of seeds.

The program is that of `programs.forms.base`: f(x) = x * s(x). Next to it compiled functions of whole sharded arrays
draw under one setting after the other, twice. Each setting has its own numbers, and none keeps those of the setting
before. The expected Threefry numbers are those of `creation`, in NumPy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from meshmark.operations.functions.creation import bits_of, threefry, unit
from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.options import wrong


def in_halves(key: tuple[int, int], size: int) -> np.ndarray:
    """uint32[size]: the random bits in Threefry's older order. The first half of the counters is paired with the second
    half, an odd size has one more counter, and the first output words come before the second ones."""
    half = (size + 1) // 2
    counters = np.arange(2 * half, dtype=np.uint32)
    counters[size:] = 0
    return np.concatenate(threefry(key, counters[:half], counters[half:]))[:size]


def placed(mesh, a):
    """The shardings of draws: over the last axis, over all axes, and replicated."""
    return at(mesh, a), at(mesh, mesh.axis_names), at(mesh)


KINDS = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}
"""The key implementations, and the number of words of a key."""


def _kinds_of_keys(mesh, a, x):
    """Each key implementation in a context, in turn: the keys have it, and their draws equal those of one device. A key
    with an explicit implementation keeps it."""
    size, kept = 6 * mesh.size, jax.random.key(7, impl="threefry2x32")
    named = jax.jit(lambda key: jax.random.bits(key, (size,)), out_shardings=at(mesh, mesh.axis_names))
    for _ in range(2):
        for kind, words in KINDS.items():
            own = jax.random.key(7, impl=kind)
            with jax.default_prng_impl(kind):
                key = jax.random.key(7)
                wrong(str(jax.random.key_impl(key)) != kind, f"a key is {jax.random.key_impl(key)}")
                wrong(jax.random.key_data(key).shape != (words,), f"a key of {kind} has other words")
                same_as(
                    np.asarray(named(kept)), bits_of((0, 7), (size,)), "bits of a key that names its kind"
                )
                new = jax.jit(lambda: jax.random.bits(jax.random.key(7), (size,)))
                drawn = np.asarray(jax.random.bits(own, (size,)))
                same_as(np.asarray(new()), drawn, f"bits in a context of {kind}")
    wrong(
        str(jax.random.key_impl(jax.random.key(7))) != "threefry2x32",
        "a kind of keys stays after its context",
    )
    return jax.jit(over(mesh, a))(x)


def _kinds_in_turn(mesh, a, x):
    """One compiled function that makes a key, in a context of each key implementation in turn."""
    data = jax.jit(lambda: jax.random.key_data(jax.random.key(7)))
    for _ in range(2):
        for kind in KINDS:
            own = np.asarray(jax.random.key_data(jax.random.key(7, impl=kind)))
            with jax.default_prng_impl(kind):
                same_as(np.asarray(data()), own, f"a key that is made in a context of {kind}")
    return jax.jit(over(mesh, a))(x)


def _orders_of_threefry(mesh, a, x):
    """Both orders of Threefry in a context, in turn, for an even and an odd number of elements: bits and uniform
    numbers of arrays in three shardings, and bits in each block of a shard_map."""
    even, odd = 6 * mesh.size, 6 * mesh.size + 1

    def draws(key):
        return *(jax.random.bits(key, (even,)) for _ in placed(mesh, a)), jax.random.uniform(key, (odd,))

    run = jax.jit(draws, out_shardings=(*placed(mesh, a), at(mesh)))
    for _ in range(2):
        for on in (True, False):
            with jax.threefry_partitionable(on):
                *bits, fractions = run(jax.random.key(11, impl="threefry2x32"))
            made = bits_of((0, 11), (even,)) if on else in_halves((0, 11), even)
            for found in bits:
                what = f"with threefry_partitionable {on} at {found.sharding.spec}"
                same_as(np.asarray(found), made, f"bits {what}")
            made = bits_of((0, 11), (odd,)) if on else in_halves((0, 11), odd)
            same_as(np.asarray(fractions), unit(made), f"fractions with threefry_partitionable {on}")
    local = jax.jit(
        jax.shard_map(
            lambda seeds: jax.random.bits(jax.random.key(seeds[0], impl="threefry2x32"), (5,)),
            mesh=mesh,
            in_specs=P(a),
            out_specs=P(a),
        )
    )
    seeds = jax.device_put(np.arange(mesh.shape[a]), at(mesh, a))
    for on in (True, False, True):
        with jax.threefry_partitionable(on):
            wanted = [bits_of((0, s), (5,)) if on else in_halves((0, s), 5) for s in range(mesh.shape[a])]
            same_as(np.asarray(local(seeds)), np.concatenate(wanted), f"bits of blocks, {on}")
    return jax.jit(over(mesh, a))(x)


@contextlib.contextmanager
def offset(by: int) -> Iterator[None]:
    """A context that adds an offset to all seeds."""
    name = "jax_random_seed_offset"
    before = getattr(jax.config, name)
    jax.config.update(name, by)
    try:
        yield
    finally:
        jax.config.update(name, before)


def _offset_of_seeds(mesh, a, x):
    """Offsets of all seeds in turn: keys made inside or outside a program are those of other seeds. The numbers that an
    existing key draws stay."""
    size = 4 * mesh.size
    inside = jax.jit(
        lambda: jax.random.bits(jax.random.key(5, impl="threefry2x32"), (size,)),
        out_shardings=at(mesh, mesh.axis_names),
    )
    with_key = jax.jit(lambda key: jax.random.bits(key, (size,)), out_shardings=at(mesh, a))
    kept = jax.random.key(5, impl="threefry2x32")
    for by in (0, 3, 1, 0, 3):
        with offset(by):
            wanted = bits_of((0, 5 + by), (size,))
            key = jax.random.key(5, impl="threefry2x32")
            same_as(np.asarray(with_key(key)), wanted, f"bits of a key with an offset of {by}")
            same_as(
                np.asarray(with_key(kept)), bits_of((0, 5), (size,)), "bits of a key that was made before"
            )
            same_as(np.asarray(inside()), wanted, f"bits of a program with an offset of {by}")
            old = jax.random.PRNGKey(5)
            same_as(np.asarray(old), np.array([0, 5 + by], np.uint32), f"an older key with an offset of {by}")
    return jax.jit(over(mesh, a))(x)


def _choices_of_rows(mesh, a, x):
    """Permutations, choices and categories drawn from sharded arrays: the same in every sharding, each element once,
    each with its own row, and none with zero weight."""
    n = mesh.size
    rows = np.arange(12 * n, dtype=np.int32).reshape(4 * n, 3)
    key = jax.random.key(3, impl="threefry2x32")
    weights = np.tile(np.array([0, 1, 0, 3], np.float32), n)
    places = at(mesh, a), at(mesh)
    chance = np.where(weights > 0, np.log(np.maximum(weights, 1)), -np.inf).astype(np.float32)

    def draws(rows, weights, chance):
        few = (2 * n,)
        return {
            "permutation": jax.random.permutation(key, rows),
            "choice": jax.random.choice(key, rows, few),
            "choice without replacement": jax.random.choice(key, rows, few, replace=False),
            "choice by weight": jax.random.choice(key, len(weights), few, p=weights / weights.sum()),
            "category": jax.random.categorical(key, chance, shape=few),
        }

    found = [
        {
            name: np.asarray(drawn)
            for name, drawn in jax.jit(draws)(*jax.device_put((rows, weights, chance), place)).items()
        }
        for place in places
    ]
    for name, first in found[-1].items():
        for other, place in zip(found, places, strict=True):
            same_as(other[name], first, f"{name}: what was drawn of an array at {place.spec}")
        if name == "permutation":
            same_as(first[np.argsort(first[:, 0])], rows, "rows after a permutation")
        elif first.ndim == 2:
            same_as(first, rows[first[:, 0] // 3], f"rows of a {name}")
            wrong("without" in name and len({*first[:, 0]}) < len(first), "a row is chosen twice")
        else:
            wrong(not np.all(weights[first] > 0), f"{name}: something without weight is drawn")
    return jax.jit(over(mesh, a))(x)


RANDOM_SETTINGS: dict[str, Callable[..., Any]] = {
    "kinds_of_keys": _kinds_of_keys,
    "kinds_in_turn": _kinds_in_turn,
    "orders_of_threefry": _orders_of_threefry,
    "offset_of_seeds": _offset_of_seeds,
    "choices_of_rows": _choices_of_rows,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class RandomSetting(ProgramForm):
    """One sharded program, with checks of random draws under each setting in turn."""

    name = "random_setting"
    forms = RANDOM_SETTINGS

    @staticmethod
    def host(mesh, x, *, form, axis):
        return RANDOM_SETTINGS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
