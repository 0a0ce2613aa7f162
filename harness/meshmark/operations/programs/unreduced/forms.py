# SPDX-License-Identifier: Apache-2.0
"""Functions of unreduced arrays, in forms: what is right or refused in every release of JAX, and each wrong rule apart.

The helpers, and what a function owes, are in `sums`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.operations.programs.forms.base import at, explicit, run_jitted
from meshmark.operations.programs.forms.block_functions import near
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.unreduced.sums import (
    SHAPE,
    Pairs,
    check_right_or_refused,
    check_taken,
    parts_of,
    require_unreduced_types,
    sum_apart,
)

ONES = np.ones(SHAPE, np.float32)
ODD = np.arange(24).reshape(SHAPE) % 2 > 0
"""A mask: every second element."""

FIRST = np.array([[1], [0], [0], [0]], np.float32)
"""[4, 1]: 1 in the first row, and 0 in the others."""

# JAX may refuse the functions of a table named `..._OR_REFUSED`. Each of STACKED, JOINED_PLAIN, PADDED_NUMBER,
# CAST_BOOL, LARGEST, SUM_WITH_START, FILLED_LIKE, TURNED_RESHAPE and ADDED_NUMBER has one bug of released JAX
# (docs/findings.md). JAX must take the functions of the other tables.


def form_of(*groups: tuple[Callable[..., Any], Pairs]) -> Callable[..., Any]:
    """The form that calls each check with its functions, and then runs the program."""

    def form(mesh, a, x):
        for check, pairs in groups:
            check(mesh, a, pairs)
        return run_jitted(mesh, a, x)

    return form


JOINS: Pairs = {
    "concatenate twice": (lambda u: jnp.concatenate([u, u]), lambda s: np.concatenate([s, s])),
    "concatenate of columns": (lambda u: jnp.concatenate([u, u, u], 1), lambda s: np.concatenate([s] * 3, 1)),
    "concatenate with zeros": (
        lambda u: jnp.concatenate([u, np.zeros((1, 6), np.float32)]),
        lambda s: np.concatenate([s, np.zeros((1, 6))]),
    ),
    "hstack": (lambda u: jnp.hstack([u, u]), lambda s: np.hstack([s, s])),
    "vstack": (lambda u: jnp.vstack([u, u]), lambda s: np.vstack([s, s])),
    "dstack": (lambda u: jnp.dstack([u, u]), lambda s: np.dstack([s, s])),
    "append": (lambda u: jnp.append(u, u, 0), lambda s: np.append(s, s, 0)),
    "block": (lambda u: jnp.block([[u, u], [u, u]]), lambda s: np.block([[s, s], [s, s]])),
    "array of two": (lambda u: jnp.array([u, u]), lambda s: np.stack([s, s])),
    "stack of one": (lambda u: jnp.stack([u]), lambda s: np.stack([s])),
    "delete": (lambda u: jnp.delete(u, 1, 0), lambda s: np.delete(s, 1, 0)),
    "split": (lambda u: jnp.split(u, 2)[1], lambda s: s[2:]),
}
JOINS_OR_REFUSED: Pairs = {
    "concatenate with a replicated array": (
        lambda u: jnp.concatenate([u, jnp.ones((4, 6))]),
        lambda s: np.concatenate([s, ONES]),
    ),
    "tile": (lambda u: jnp.tile(u, (2, 1)), lambda s: np.tile(s, (2, 1))),
    "repeat": (lambda u: jnp.repeat(u, 2, 0), lambda s: np.repeat(s, 2, 0)),
}
STACKED: Pairs = {
    "jnp.stack": (lambda u: jnp.stack([u, u]), lambda s: np.stack([s, s])),
    "jnp.stack along the last": (lambda u: jnp.stack([u, u], -1), lambda s: np.stack([s, s], -1)),
}
JOINED_PLAIN: Pairs = {
    "concatenate with a NumPy array": (
        lambda u: jnp.concatenate([u, ONES]),
        lambda s: np.concatenate([s, ONES]),
    ),
    "vstack with a NumPy array": (lambda u: jnp.vstack([ONES, u]), lambda s: np.vstack([ONES, s])),
}
PADS: Pairs = {
    "pad by zero": (lambda u: jnp.pad(u, 1), lambda s: np.pad(s, 1)),
    "a negative pad": (lambda u: lax.pad(u, np.float32(3), [(-1, 0, 0), (0, 0, 0)]), lambda s: s[1:]),
    "a pad inside": (
        lambda u: lax.pad(u, np.float32(0), [(0, 0, 1), (0, 0, 0)]),
        lambda s: np.stack([s, 0 * s], 1).reshape(8, 6)[:7],
    ),
    "pad that wraps": (lambda u: jnp.pad(u, 1, mode="wrap"), lambda s: np.pad(s, 1, mode="wrap")),
}


def _mode(name: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return lambda u: jnp.pad(u, 1, mode=name), lambda s: np.pad(s, 1, mode=name)  # type: ignore[call-overload]


PADS_OR_REFUSED: Pairs = {
    f"pad by {name}": _mode(name) for name in ("edge", "reflect", "maximum", "mean", "linear_ramp")
}
PADDED_NUMBER: Pairs = {
    "jnp.pad by 3": (lambda u: jnp.pad(u, 1, constant_values=3.0), lambda s: np.pad(s, 1, constant_values=3)),
    "lax.pad by 3": (
        lambda u: lax.pad(u, np.float32(3), [(1, 0, 0), (0, 0, 0)]),
        lambda s: np.pad(s, ((1, 0), (0, 0)), constant_values=3),
    ),
}
LINEAR: Pairs = {
    "itself": (lambda u: u, lambda s: s),
    "u + u": (lambda u: u + u, lambda s: 2 * s),
    "the transpose": (lambda u: u.T, lambda s: s.T),
    "moveaxis": (lambda u: jnp.moveaxis(u[None], 0, 2), lambda s: s[..., None]),
    "einsum of a transpose": (lambda u: jnp.einsum("ij->ji", u), lambda s: s.T),
    "einsum of a sum": (lambda u: jnp.einsum("ij->i", u), lambda s: s.sum(1)),
    "einsum of a diagonal": (lambda u: jnp.einsum("ii->i", u[:, :4]), lambda s: np.diagonal(s[:, :4])),
    "a reshape that splits": (lambda u: u.reshape(2, 2, 6), lambda s: s.reshape(2, 2, 6)),
    "a new dimension": (lambda u: u[:, None], lambda s: s[:, None]),
    "squeeze": (lambda u: u[None].squeeze(0), lambda s: s),
    "a slice": (lambda u: u[1:3], lambda s: s[1:3]),
    "a slice with a step": (lambda u: u[::2, 1:], lambda s: s[::2, 1:]),
    "a row": (lambda u: u[1], lambda s: s[1]),
    "the last row": (lambda u: u[-1], lambda s: s[-1]),
    "an element": (lambda u: u[1, 2], lambda s: s[1, 2]),
    "a sum of rows": (lambda u: u.sum(0), lambda s: s.sum(0)),
    "a sum of all": (lambda u: u.sum(), lambda s: s.sum()),
    "a reduction by lax": (lambda u: lax.reduce(u, np.float32(0), lax.add, (0,)), lambda s: s.sum(0)),
    "associative_scan": (lambda u: lax.associative_scan(jnp.add, u), lambda s: s.cumsum(0)),
    "broadcast_to": (lambda u: jnp.broadcast_to(u, (2, 4, 6)), lambda s: np.stack([s, s])),
    "stop_gradient": (lax.stop_gradient, lambda s: s),
    "optimization_barrier": (lambda u: lax.optimization_barrier((u, u))[0], lambda s: s),
    "copy": (jnp.copy, lambda s: s),
    "real": (jnp.real, lambda s: s),
    "tril": (jnp.tril, np.tril),
    "triu": (jnp.triu, np.triu),
    "trace": (jnp.trace, np.trace),
    "where of two": (lambda u: jnp.where(ODD, u, u + u), lambda s: np.where(ODD, s, 2 * s)),
    "select": (lambda u: lax.select(ODD, u, u + u), lambda s: np.where(ODD, s, 2 * s)),
    "a reshard that changes nothing": (lambda u: reshard(u, jax.typeof(u).sharding), lambda s: s),
}
LINEAR_OR_REFUSED: Pairs = {
    "a reshape that joins": (lambda u: u.reshape(24), lambda s: s.reshape(24)),
    "the negative": (lambda u: -u, lambda s: -s),
    "u - u": (lambda u: u + u - u, lambda s: s),
    "diff": (lambda u: jnp.diff(u, axis=0), lambda s: np.diff(s, axis=0)),
    "flip": (lambda u: jnp.flip(u), lambda s: s[::-1, ::-1]),
    "rot90": (jnp.rot90, np.rot90),
    "roll": (lambda u: jnp.roll(u, 1, 0), lambda s: np.roll(s, 1, 0)),
    "cumsum": (lambda u: jnp.cumsum(u, 0), lambda s: s.cumsum(0)),
    "a sum of some": (lambda u: u.sum(where=ODD), lambda s: s[ODD].sum()),
    "where with zero": (lambda u: jnp.where(ODD, u, 0), lambda s: np.where(ODD, s, 0)),
    "where with one": (lambda u: jnp.where(ODD, u, 1), lambda s: np.where(ODD, s, 1)),
    "convolve": (lambda u: jnp.convolve(u[0], np.ones(2, np.float32)), lambda s: np.convolve(s[0], [1, 1])),
    "fft": (lambda u: jnp.fft.fft(u), np.fft.fft),
    "segment_sum": (
        lambda u: jax.ops.segment_sum(u, np.array([0, 0, 1, 1]), 2),
        lambda s: np.stack([s[:2].sum(0), s[2:].sum(0)]),
    ),
    "a sum of windows": (
        lambda u: lax.reduce_window(u, np.float32(0), lax.add, (2, 1), (1, 1), "VALID"),
        lambda s: s[1:] + s[:-1],
    ),
}
CASTS: Pairs = {
    "int8": (lambda u: u.astype(jnp.int8), lambda s: s),
    "int32": (lambda u: (u + u).astype(jnp.int32), lambda s: 2 * s),
    "bfloat16": (lambda u: u.astype(jnp.bfloat16).astype(jnp.float32), lambda s: s),
    "float16": (lambda u: u.astype(jnp.float16), lambda s: s),
    "complex64": (lambda u: u.astype(jnp.complex64), lambda s: s),
    "reduce_precision": (lambda u: lax.reduce_precision(u, 8, 7), lambda s: s),
}
CASTS_OR_REFUSED: Pairs = {
    "bits as integers": (
        lambda u: lax.bitcast_convert_type(u, jnp.int32),
        lambda s: s.astype(np.float32).view(np.int32),
    ),
    "half of it as integers": (lambda u: (u / 2).astype(jnp.int32), lambda s: np.trunc(s / 2)),
}
CAST_BOOL: Pairs = {
    "astype(bool)": (lambda u: u.astype(bool), lambda s: s != 0),
    "convert_element_type to bool": (
        lambda u: lax.convert_element_type(u, bool).astype(jnp.float32),
        lambda s: s != 0,
    ),
}
LARGEST: Pairs = {
    "max": (lambda u: u.max(), lambda s: s.max()),
    "min of columns": (lambda u: u.min(0), lambda s: s.min(0)),
    "reduce_max": (lambda u: lax.reduce_max(u, (0,)), lambda s: s.max(0)),
    "ptp": (jnp.ptp, np.ptp),
}
SUM_WITH_START: Pairs = {
    "sum with initial=2": (lambda u: u.sum(initial=2.0), lambda s: s.sum() + 2),
}
FILLED_LIKE: Pairs = {
    "ones_like": (jnp.ones_like, np.ones_like),
    "full_like": (lambda u: jnp.full_like(u, 3), lambda s: np.full_like(s, 3)),
}
TURNED_RESHAPE: Pairs = {
    "lax.reshape with dimensions": (
        lambda u: lax.reshape(u, (24,), dimensions=(1, 0)),
        lambda s: s.T.reshape(24),
    ),
}
INDEXED_OR_REFUSED: Pairs = {
    "rows by an array": (lambda u: u[jnp.array([3, 1])], lambda s: s[[3, 1]]),
    "take": (lambda u: jnp.take(u, np.array([0, 1]), 0), lambda s: s[:2]),
    "rows that are not there": (
        lambda u: u.at[jnp.array([0, 9])].get(mode="fill", fill_value=7.0),
        lambda s: np.stack([s[0], 0 * s[0] + 7]),
    ),
    "a row added to another": (lambda u: u.at[0].add(u[1]), lambda s: s + FIRST * s[1]),
    "a row added to zeros": (lambda u: jnp.zeros((4, 6)).at[0].add(u[0]), lambda s: FIRST * s[0]),
    "a row set to 1": (lambda u: u.at[0].set(1.0), lambda s: np.where(FIRST, 1, s)),
    "a row times 3": (lambda u: u.at[0].multiply(3.0), lambda s: np.where(FIRST, 3 * s, s)),
    "a row less 1": (lambda u: u.at[0].subtract(1.0), lambda s: s - FIRST),
    "a row of at least 0": (lambda u: u.at[0].max(0.0), lambda s: np.where(FIRST, np.maximum(s, 0), s)),
    "a row of the absolute": (lambda u: u.at[0].apply(jnp.abs), lambda s: np.where(FIRST, abs(s), s)),
    "dynamic_slice": (lambda u: lax.dynamic_slice(u, (2, 0), (2, 6)), lambda s: s[2:]),
    "dynamic_update_slice of itself": (
        lambda u: lax.dynamic_update_slice(u, u[1:2], (0, 0)),
        lambda s: np.where(FIRST, s[1], s),
    ),
    "dynamic_update_slice of ones": (
        lambda u: lax.dynamic_update_slice(u, ONES[:1], (0, 0)),
        lambda s: np.where(FIRST, 1, s),
    ),
    "fill_diagonal": (
        lambda u: jnp.fill_diagonal(u, 9.0, inplace=False),
        lambda s: np.where(np.eye(4, 6), 9, s),
    ),
    "insert": (lambda u: jnp.insert(u, 1, 0.0, 0), lambda s: np.insert(s, 1, 0, 0)),
}
ADDED_NUMBER: Pairs = {
    "u.at[0].add(1)": (lambda u: u.at[0].add(1.0), lambda s: s + FIRST),
    "u.at[rows].add(1)": (lambda u: u.at[jnp.array([0])].add(1.0), lambda s: s + FIRST),
}


def _resharded(mesh, a, x):
    """From an unreduced array to each placement, alone and where another axis cuts it."""
    require_unreduced_types()
    m = explicit(mesh)
    n, others = mesh.shape[a], [b for b in mesh.axis_names if b != a]
    parts = parts_of(mesh, a, 2 * mesh.size, 2 * n)
    ends = [P(), P(a), P(None, a)]
    for b in others:
        ends += [P(b), P(b, a), P((a, b)), P((b, a))]
    for start in (P(a), *(P(a, b) for b in others)):
        with jax.set_mesh(m):
            blocks = jax.device_put(parts, at(m, *start))
            for end in ends:

                def program(v, start=start, end=end):
                    ones = jnp.ones(n, v.dtype, out_sharding=P(a))
                    own = P(*start[1:2], *(None,) * (2 - len(start[1:2])), unreduced={a})
                    return reshard(jnp.einsum("b,bij->ij", ones, v, out_sharding=own), end)

                found = jax.jit(program)(blocks)
                near(found, parts.sum(axis=0), f"an unreduced array over {start[1:]} that moves to {end}")
                wrong(
                    not found.sharding.is_equivalent_to(at(m, *end), 2),
                    f"an unreduced array that moves to {end} lies {found.sharding}",
                )
    return run_jitted(mesh, a, x)


def _eager(mesh, a, x):
    """An unreduced result of a compiled program that is used outside of it."""
    require_unreduced_types()
    m, parts = explicit(mesh), parts_of(mesh, a, 4, 6)
    with jax.set_mesh(m):
        own = jax.jit(lambda v: sum_apart(v, a))(jax.device_put(parts, at(m, a)))
        for name, function, right in (
            ("itself", lambda u: u, parts.sum(0)),
            ("u + u", lambda u: u + u, 2 * parts.sum(0)),
            ("the transpose", lambda u: u.T, parts.sum(0).T),
            ("a sum of rows", lambda u: u.sum(0), parts.sum((0, 1))),
        ):
            near(reshard(function(own), P()), right, f"{name} of an unreduced array, eagerly")
            near(
                jax.jit(lambda u, f=function: reshard(f(u), P()))(own),
                right,
                f"{name} of an unreduced argument",
            )
    return run_jitted(mesh, a, x)


VALUES: dict[str, Callable[..., Any]] = {
    "linear": form_of((check_taken, LINEAR), (check_right_or_refused, LINEAR_OR_REFUSED)),
    "joins": form_of((check_taken, JOINS), (check_right_or_refused, JOINS_OR_REFUSED)),
    "pads": form_of((check_taken, PADS), (check_right_or_refused, PADS_OR_REFUSED)),
    "casts": form_of((check_taken, CASTS), (check_right_or_refused, CASTS_OR_REFUSED)),
    "indexed": form_of((check_right_or_refused, INDEXED_OR_REFUSED)),
    "resharded": _resharded,
    "eager": _eager,
    "stacked": form_of((check_right_or_refused, STACKED)),
    "joined_plain": form_of((check_right_or_refused, JOINED_PLAIN)),
    "padded_number": form_of((check_right_or_refused, PADDED_NUMBER)),
    "cast_bool": form_of((check_right_or_refused, CAST_BOOL)),
    "largest": form_of((check_right_or_refused, LARGEST)),
    "sum_with_start": form_of((check_right_or_refused, SUM_WITH_START)),
    "filled_like": form_of((check_right_or_refused, FILLED_LIKE)),
    "turned_reshape": form_of((check_right_or_refused, TURNED_RESHAPE)),
    "added_number": form_of((check_right_or_refused, ADDED_NUMBER)),
}
"""Each function takes a mesh, its last axis, and the input sharded over that axis. Forms from `stacked` on have one bug
of a released JAX each, so that its known issue hides nothing else."""
