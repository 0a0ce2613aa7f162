# SPDX-License-Identifier: Apache-2.0
"""Effects whose result depends on a varying number: bits of a state, callbacks and mutable arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from meshmark.operations.programs.varying.judging import Pairs, varying_axes


def _generated(k):
    start = jnp.arange(4, dtype=jnp.uint32) + jnp.uint32(k())
    return lax.rng_bit_generator(start, (4,))[1] % 8


BIT_GENERATOR: Pairs = {
    "lax.rng_bit_generator": (
        lambda x, k: x * _generated(k),
        lambda x, k: x * np.asarray(_generated(k)),
    )
}
"""Bits of a state that varies."""

NUMBER, ROW = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((4,), jnp.float32)


def _on_host(k):
    return np.float32(k + 1)


def _typed_callback(x, k):
    n = k()
    axes = jax.sharding.ManualAxisType(varying=frozenset(varying_axes(n)))
    kind = jax.ShapeDtypeStruct((), jnp.float32, manual_axis_type=axes)
    return x * jax.pure_callback(_on_host, kind, n)


CALLBACKS: Pairs = {
    "jax.pure_callback": (
        lambda x, k: x * jax.pure_callback(_on_host, NUMBER, k()),
        lambda x, k: x * (k() + 1),
    ),
    "jax.pure_callback of an array": (
        lambda x, k: x * jax.pure_callback(lambda n: np.arange(4, dtype=np.float32) * n, ROW, k()),
        lambda x, k: x * np.arange(4) * k(),
    ),
    "io_callback": (
        lambda x, k: x * io_callback(_on_host, NUMBER, k()),
        lambda x, k: x * (k() + 1),
    ),
    "jax.pure_callback with a declared type": (_typed_callback, lambda x, k: x * (k() + 1)),
}  # fmt: skip
"""Callbacks whose argument varies."""


def _kept(write, varies=False):
    """x times a mutable row that starts at ones and that `write(ref, number)` changes.

    varies: whether the row varies from the start. A write of what varies to a row that does not is refused."""

    def function(x, k):
        start = jnp.ones(4, x.dtype)
        ref = jax.new_ref(start + 0 * k() if varies else start)
        write(ref, k)
        return x * jax.freeze(ref)

    return function


def _ones(change):
    def define(x, k):
        copy = np.ones(4)
        change(copy, k())
        return x * copy

    return define


def _add_turn(ref, k):
    def body(i, carry):
        ref[i] = ref[i] + k()
        return carry

    lax.fori_loop(0, 3, body, 0)


def _read(x, k):
    ref = jax.new_ref(jnp.arange(4.0))
    return x * ref[k()]


MUTABLE_READS: Pairs = {"read at an index": (_read, lambda x, k: x * k())}
"""Mutable arrays that do not vary, read at an index that does."""

MUTABLE: Pairs = {
    "write of a value": (
        _kept(lambda ref, k: ref.__setitem__(0, 1.0 * k()), varies=True),
        _ones(lambda c, k: c.__setitem__(0, k)),
    ),
    "write at an index": (
        _kept(lambda ref, k: ref.__setitem__(k(), 7.0 + 0 * k()), varies=True),
        _ones(lambda c, k: c.__setitem__(k, 7)),
    ),
    "writes in a loop of three turns": (
        _kept(_add_turn, varies=True),
        _ones(lambda c, k: c.__setitem__(slice(3), 1 + k)),
    ),
}
"""Mutable arrays that vary, and are written to."""


def _in_branch(ref, k):
    def write():
        ref[0] = 7.0

    lax.cond(k() == 0, write, lambda: None)


def _in_turns(ref, k):
    def body(i, carry):
        ref[...] = ref[...] * 2
        return carry

    lax.fori_loop(0, k() + 1, body, 0)


MUTABLE_IN_BRANCHES: Pairs = {
    "write in a branch": (
        _kept(_in_branch),
        _ones(lambda c, k: c.__setitem__(0, 1 if k else 7)),
    ),
    "write in a loop": (
        _kept(_in_turns),
        lambda x, k: x * 2 ** (k() + 1),
    ),
}
"""Mutable arrays that only some devices write to, or more often than others."""
