# SPDX-License-Identifier: Apache-2.0
"""Functions of whole numbers and of truths, on arrays that are cut along each dimension in turn.

Answers are NumPy's, whose integers wrap around as XLA's do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.cuts.running import hold, mixed

WIDTHS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)


def _extremes(kind: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The ends of a dtype's range, small numbers, powers of two, and numbers between, in a mixed order."""
    info = np.iinfo(kind)
    some = [
        info.max,
        info.min,
        0,
        1,
        2,
        3,
        info.max - 1,
        info.min + 1,
        info.max // 2 + 1,
        info.max // 3,
        7,
        100,
    ]
    some += [2**k for k in range(info.bits - 1)] + [info.max - 2**k for k in range(1, info.bits - 1, 2)]
    if info.min < 0:
        some += [-1, -2, -3, -7, info.min // 3, -(2 ** (info.bits // 2))]
    return np.array(some, np.int64)[mixed(shape, len(some), 7)].astype(kind)


def _bits_of(a: np.ndarray) -> np.ndarray:
    """[..., bits]: the bits of each number, the highest first."""
    bits = 8 * a.dtype.itemsize
    plain = a.astype(np.int64)[..., None] & ((1 << bits) - 1)
    return (plain >> np.arange(bits - 1, -1, -1)) & 1


def _numbers_of(kind: Any) -> Callable[[Any, Any], None]:
    def run(line, grid):
        n, info = line.size, np.iinfo(kind)
        x = _extremes(kind, (2 * n, 4 * n))
        y = _extremes(kind, (2 * n, 4 * n))[::-1, ::-1].copy()
        z = np.where((y == 0) | (y.astype(np.int64) == -1), np.array(3, kind), y)  # divides without overflow
        s = (mixed(x.shape, info.bits)).astype(kind)
        size, wide = x.dtype.itemsize, np.int64
        bits, a, b = _bits_of(x), x.astype(wide), z.astype(wide)
        quotient = np.sign(a) * np.sign(b) * (abs(a) // abs(b))
        unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size]
        with np.errstate(over="ignore"):
            members = {
                "x + y": (lambda x, y, z, s: x + y, x + y),
                "x - y": (lambda x, y, z, s: x - y, x - y),
                "x * y": (lambda x, y, z, s: x * y, x * y),
                "-x": (lambda x, y, z, s: -x, (-a).astype(kind)),
                "abs": (lambda x, y, z, s: jnp.abs(x), np.where(a < 0, -a, a).astype(kind)),
                "sign": (lambda x, y, z, s: jnp.sign(x), np.sign(a).astype(kind)),
                "x ** 3": (lambda x, y, z, s: x**3, x * x * x),
                "maximum": (lambda x, y, z, s: jnp.maximum(x, y), np.maximum(x, y)),
                "minimum": (lambda x, y, z, s: jnp.minimum(x, y), np.minimum(x, y)),
                "clip": (lambda x, y, z, s: jnp.clip(x, 3, 100), np.clip(a, 3, 100).astype(kind)),
                "x // z": (lambda x, y, z, s: x // z, (a // b).astype(kind)),
                "x % z": (lambda x, y, z, s: x % z, (a % b).astype(kind)),
                "lax.div": (lambda x, y, z, s: lax.div(x, z), quotient.astype(kind)),
                "lax.rem": (lambda x, y, z, s: lax.rem(x, z), (a - quotient * b).astype(kind)),
                "x & y": (lambda x, y, z, s: x & y, x & y),
                "x | y": (lambda x, y, z, s: x | y, x | y),
                "x ^ y": (lambda x, y, z, s: x ^ y, x ^ y),
                "~x": (lambda x, y, z, s: ~x, ~x),
                "x << s": (lambda x, y, z, s: x << s, x << s),
                "x >> s": (lambda x, y, z, s: x >> s, x >> s),
                "shift_right_logical": (
                    lambda x, y, z, s: lax.shift_right_logical(x, s),
                    (x.view(unsigned) >> s.astype(unsigned)).view(kind),
                ),
                "x < y": (lambda x, y, z, s: x < y, x < y),
                "x >= y": (lambda x, y, z, s: x >= y, x >= y),
                "x == y": (lambda x, y, z, s: x == y, x == y),
                "clz": (
                    lambda x, y, z, s: lax.clz(x),
                    np.where(bits.any(-1), bits.argmax(-1), info.bits).astype(kind),
                ),
                "population_count": (
                    lambda x, y, z, s: lax.population_count(x),
                    bits.sum(-1).astype(kind),
                ),
                **{
                    f"as {np.dtype(to)}": (lambda x, y, z, s, t=to: x.astype(t), x.astype(to))
                    for to in (*WIDTHS, np.float32, bool)
                },
                "bytes": (
                    lambda x, y, z, s: lax.bitcast_convert_type(x, jnp.uint8),
                    x.view(np.uint8).reshape(*x.shape, *([size] if size > 1 else [])),
                ),
                "sum of columns": (lambda x, y, z, s: jnp.sum(x, 0, dtype=kind), x.sum(0, dtype=kind)),
                "sum of rows": (lambda x, y, z, s: jnp.sum(x, 1, dtype=kind), x.sum(1, dtype=kind)),
                "product of columns": (lambda x, y, z, s: jnp.prod(x, 0, dtype=kind), x.prod(0, dtype=kind)),
                "cumsum": (lambda x, y, z, s: jnp.cumsum(x, 0, dtype=kind), x.cumsum(0, dtype=kind)),
                "largest": (lambda x, y, z, s: x.max(0), x.max(0)),
                "smallest": (lambda x, y, z, s: x.min(1), x.min(1)),
                "place of the largest": (lambda x, y, z, s: x.argmax(1), x.argmax(1).astype(np.int32)),
                "sort": (lambda x, y, z, s: jnp.sort(x, 0), np.sort(x, 0)),
                "sort down": (lambda x, y, z, s: jnp.sort(x, 1, descending=True), np.sort(x, 1)[:, ::-1]),
                "argsort": (
                    lambda x, y, z, s: jnp.argsort(x, 1, stable=True),
                    np.argsort(x, 1, kind="stable").astype(np.int32),
                ),
                # Of equal numbers the first one comes first, in both directions.
                "argsort down": (
                    lambda x, y, z, s: jnp.argsort(x, 1, stable=True, descending=True),
                    np.argsort(-a, 1, kind="stable").astype(np.int32),
                ),
                "product of matrices": (
                    lambda x, y, z, s: (
                        lax.dot(x, y.T, preferred_element_type=jnp.int32) if size < 4 else jnp.dot(x, y.T)
                    ),
                    (a @ y.astype(wide).T).astype(np.int32 if size < 4 else kind),
                ),
            }
        hold(line, grid, members, x, y, z, s)

    return run


def _truths(line, grid):
    """Counts beyond 256, truths that decide a branch or end a loop, and reductions of nothing."""
    n = line.size
    rows = n * -(-320 // n)
    x = mixed((rows, 2 * n), 5) > 0
    late = np.zeros((rows, 2 * n), bool)
    late[-1, -1] = True
    steps = mixed((rows, 2 * n), 11).astype(np.int32)
    steps[-1, -1] = 23

    def counted(steps):
        return lax.while_loop(lambda c: jnp.any(c[0] > 0), lambda c: (c[0] - 1, c[1] + 1), (steps, 0))[1]

    members = {
        "sum": (lambda x, y, s: jnp.sum(x), np.int32(x.sum())),
        "sum of columns": (lambda x, y, s: jnp.sum(x, 0), x.sum(0).astype(np.int32)),
        "sum of rows": (lambda x, y, s: jnp.sum(x, 1), x.sum(1).astype(np.int32)),
        "count_nonzero": (lambda x, y, s: jnp.count_nonzero(x, axis=0), x.sum(0).astype(np.int32)),
        "cumsum": (lambda x, y, s: jnp.cumsum(x, 0), x.cumsum(0).astype(np.int32)),
        "all": (lambda x, y, s: (x.all(), (x | ~x).all(), x.all(1)), (x.all(), np.True_, x.all(1))),
        "any": (lambda x, y, s: (y.any(), (x & ~x).any(), y.any(0)), (np.True_, np.False_, late.any(0))),
        "all of nothing": (
            lambda x, y, s: (x[:, :0].all(1), x[:0].all(0)),
            (np.ones(rows, bool), np.ones(2 * n, bool)),
        ),
        "any of nothing": (lambda x, y, s: (x[:, :0].any(1), x[:0].any()), (np.zeros(rows, bool), np.False_)),
        "sum of nothing": (lambda x, y, s: s[:, :0].sum(1), np.zeros(rows, np.int32)),
        "product of nothing": (lambda x, y, s: s[:0].prod(0), np.ones(2 * n, np.int32)),
        "largest of nothing": (lambda x, y, s: s[:0].max(0, initial=-3), np.full(2 * n, -3, np.int32)),
        "place of the first": (lambda x, y, s: jnp.argmax(y, 0), late.argmax(0).astype(np.int32)),
        "branch of any": (lambda x, y, s: lax.cond(jnp.any(y), lambda: 1, lambda: 0), np.int32(1)),
        "branch of all": (lambda x, y, s: lax.cond(jnp.all(~y), lambda: 1, lambda: 0), np.int32(0)),
        "branch of a number": (lambda x, y, s: lax.cond(s.max() > 20, lambda: 1, lambda: 0), np.int32(1)),
        "branch of a NaN": (
            lambda x, y, s: lax.cond(jnp.isfinite(jnp.where(y, jnp.nan, 1.0)).all(), lambda: 0, lambda: 1),
            np.int32(1),
        ),
        "choice": (lambda x, y, s: lax.switch(jnp.sum(y), [lambda: 5, lambda: 7]), np.int32(7)),
        "steps of a loop": (lambda x, y, s: counted(s), np.int32(23)),
        "steps of a loop for each column": (
            lambda x, y, s: jax.vmap(counted, 1)(s),
            steps.max(0).astype(np.int32),
        ),
        "where": (lambda x, y, s: jnp.where(x, s, -s), np.where(x, steps, -steps)),
        "select": (lambda x, y, s: lax.select_n(s % 3, s, s + 1, s + 2), steps + steps % 3),
        "logical": (lambda x, y, s: (x & y, x | y, x ^ y, ~x), (x & late, x | late, x ^ late, ~x)),
        "sorted": (lambda x, y, s: jnp.sort(x, 0), np.sort(x, 0)),
    }
    hold(line, grid, members, x, late, steps)


CUT_INTEGERS: dict[str, Callable[..., None]] = {
    **{f"numbers_of_{np.dtype(kind)}": _numbers_of(kind) for kind in WIDTHS},
    "truths": _truths,
}
