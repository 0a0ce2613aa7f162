# SPDX-License-Identifier: Apache-2.0
"""Small rules: arguments of functions that few programs use, in each combination."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.stats
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import hold, hold_near, mixed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.small_rules.comparing import expect


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Attention in 64 bits. q: [batch, queries, heads, size]. seen: [batch, queries, keys], whether a query sees a key;
    each query sees one at least."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k, dtype=np.float64) / np.sqrt(q.shape[-1])
    scores = np.where(seen[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)


def _attention(line, grid):
    """Attention with lengths, causal and not, and with windows of two widths, with as many keys as queries and more."""
    batch, heads, size = line.size, 2, 4
    for queries, keys in ((4, 4), (4, 6)):
        q = (mixed((batch, queries, heads, size), 7) - 3).astype(np.float32) / 2
        k = (mixed((batch, keys, heads, size), 5, 3) - 2).astype(np.float32) / 2
        v = mixed((batch, keys, heads, size), 9, 7).astype(np.float32)
        lengths = 1 + mixed((batch,), keys).astype(np.int32)
        before = np.arange(queries)[:, None] - np.arange(keys)  # how far a key lies before a query
        short = np.arange(keys) < lengths[:, None, None]
        members = {}
        for causal in (False, True):
            seen = np.broadcast_to(before >= 0 if causal else before == before, (batch, queries, keys))
            members[f"attention with lengths, causal={causal}"] = (
                lambda q, k, v, n, c=causal: jax.nn.dot_product_attention(
                    q, k, v, is_causal=c, key_value_seq_lengths=n
                ),
                _attended(q, k, v, seen & short),
            )
        for left, right in ((0, 1), (1, 0), (2, 1), (1, 3)):
            seen = np.broadcast_to((before <= left) & (-before <= right), (batch, queries, keys))
            members[f"attention with the window ({left}, {right})"] = (
                lambda q, k, v, n, w=(left, right): jax.nn.dot_product_attention(
                    q, k, v, local_window_size=w
                ),
                _attended(q, k, v, seen),
            )
        hold_near(line, grid, members, q, k, v, lengths)


def _segments_and_fills(line, grid):
    """Numbers of segments below zero and too large, values that fill what is outside, and places of narrow types."""
    n = line.size
    members: dict[str, Any] = {}
    x = mixed((2 * n, 4), 9).astype(np.int32)
    ids = (mixed((2 * n,), 7) - 2).astype(np.int32)  # -2 to 4, for three segments

    def combined(method, start):
        out = np.full((3, 4), start, np.int32)
        for i, row in zip(ids, x, strict=True):
            if 0 <= i < 3:
                out[i] = method(out[i], row)
        return out

    info = np.iinfo(np.int32)
    for name, method, start in (
        ("segment_sum", np.add, 0),
        ("segment_max", np.maximum, info.min),
        ("segment_min", np.minimum, info.max),
        ("segment_prod", np.multiply, 1),
    ):
        members[f"{name} of rows"] = (
            lambda x, i, name=name: getattr(jax.ops, name)(x, i, 3),
            combined(method, start),
        )
        members[f"{name} of numbers"] = (
            lambda x, i, name=name: getattr(jax.ops, name)(x[:, 1], i, 3),
            combined(method, start)[:, 1],
        )
    hold(line, grid, members, x, ids)
    places = np.array([0, 2 * n - 1, 2 * n, -1, -2 * n - 1, 5 * n], np.int32)
    for kind in (jnp.bfloat16, np.float16, np.float32, np.int8, np.uint16, np.int32):
        values = (mixed((2 * n, 4), 9)).astype(kind)
        inside = np.array([-2 * n <= p < 2 * n for p in places])
        read = values[np.clip(places, -2 * n, 2 * n - 1)]
        right = np.where(inside[:, None], read, np.array(5, kind))
        hold(
            line,
            grid,
            {f"filled rows of {np.dtype(kind).name}": (
                lambda v, p: v.at[p].get(mode="fill", fill_value=5),
                right,
            )},
            values,
            places,
        )  # fmt: skip


def _narrow_places(line: Any, grid: Any, kinds: tuple[Any, ...], written: bool) -> None:
    """Places of narrow types in a dimension of 256, as arguments of the program or (written) as numbers in it."""
    long = mixed((256, line.size), 97, 7).astype(np.int32)
    changed = long.copy()
    changed[200:202] = -1
    for kind in kinds:
        places = np.array([200, 255], kind)

        def at_places(x, given, places=places):
            first, last = places if written else given
            first, last, none = (jnp.asarray(v, places.dtype) for v in (first, last, 0))
            new = jnp.full((2, x.shape[1]), -1, x.dtype)
            return (
                lax.dynamic_slice(x, (first, none), (2, x.shape[1])),
                lax.dynamic_index_in_dim(x, last, 0),
                lax.dynamic_update_slice(x, new, (first, none)),
                x[first],
                x[jnp.stack([first, last])],
            )

        right = (long[200:202], long[255:], changed, long[200], long[[200, 255]])
        hold(line, grid, {f"places of {np.dtype(kind).name}": (at_places, right)}, long, places)


def _places(line, grid):
    """Places of each type, as arguments; and of the types that a released JAX reads well, as numbers in the program."""
    _narrow_places(line, grid, (np.uint8, np.int16, np.uint16, np.int32, np.uint32), False)
    _narrow_places(line, grid, (np.int16, np.uint16, np.int32, np.uint32), True)


def _places_of_uint8(line, grid):
    """Places of uint8 above 127 that are numbers in the program."""
    _narrow_places(line, grid, (np.uint8,), True)


def _running(x: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Running sums and running products of a matrix along each dimension, into three dtypes."""
    sums, products = {}, {}
    for axis in (0, 1, -1, -2):
        for kind in (bool, np.int32, np.float32):
            what = f"along {axis} into {np.dtype(kind).name}"
            sums[f"cumsum {what}"] = (
                lambda v, a=axis, k=kind: jnp.cumsum(v, a, dtype=k),
                np.cumsum(x, axis, dtype=kind),
            )
            products[f"cumprod {what}"] = (
                lambda v, a=axis, k=kind: jnp.cumprod(v, a, dtype=k),
                np.cumprod(x, axis, dtype=kind),
            )
    return sums, products


def _running_pairs(line, grid):
    """Running sums, products and extremes of one array in one program."""
    x = (mixed((2 * line.size, 6), 3) - 1).astype(np.int32)
    members = {
        "a running sum": (lambda v: lax.cumsum(v, 0), np.cumsum(x, 0, dtype=np.int32)),
        "a running product": (lambda v: lax.cumprod(v, 0), np.cumprod(x, 0, dtype=np.int32)),
        "a running maximum": (lambda v: lax.cummax(v, 0), np.maximum.accumulate(x, 0)),
        "a running minimum": (lambda v: lax.cummin(v, 0), np.minimum.accumulate(x, 0)),
    }
    # Each alone first: a known issue of a pair must not hide that one is wrong by itself.
    for name, member in members.items():
        hold(line, grid, {f"{name} alone": member}, x)
    for pair in itertools.combinations(members, 2):
        hold(line, grid, {name: members[name] for name in pair}, x)


def _reductions(line, grid):
    """Reductions of halves that a mask cuts, weighted sums of exponentials, modes along each axis, the largest of
    rows, running sums into another dtype, and keys that are split into shapes."""
    n = line.size
    members: dict[str, Any] = {}
    for kind in (jnp.bfloat16, np.float16):
        info = jnp.finfo(kind)
        host = np.where(mixed((n, 2048), 2) == 1, 1 + float(info.eps), 1.0)
        mask = np.arange(2048) < 771 + np.arange(n)[:, None]
        right = ((host * mask).sum(1) / mask.sum(1)).astype(kind)
        name = np.dtype(kind).name
        hold(
            line,
            grid,
            {
                f"the mean of some {name}": (lambda x, m: jnp.mean(x, 1, where=m), right),
                f"the number of some {name}": (
                    lambda x, m: jnp.sum(jnp.ones_like(x), 1, where=m, dtype=jnp.float32),
                    mask.sum(1).astype(np.float32),
                ),
            },
            host.astype(kind),
            mask,
        )
    x = (mixed((2 * n, 4), 5) - 2).astype(np.float32)
    x[::3] = -np.inf
    weights = (mixed((2 * n, 4), 3, 7) + 1).astype(np.float32)
    with np.errstate(divide="ignore"):
        sums = np.log((weights * np.exp(x.astype(np.float64))).sum(1))
        doubled = np.log(2 * np.exp(x.astype(np.float64)).sum(1))
    hold(
        line,
        grid,
        {
            "logsumexp with weights": (lambda x, w: jax.nn.logsumexp(x, 1, b=w), sums.astype(np.float32)),
            "logsumexp with one weight": (
                lambda x, w: jax.nn.logsumexp(x, 1, b=2.0),
                doubled.astype(np.float32),
            ),
            "logaddexp": (
                lambda x, w: jnp.logaddexp(x, x - 1),
                np.logaddexp(np.float64(x), np.float64(x) - 1).astype(np.float32),
            ),
        },
        x,
        weights,
        most=64,
    )
    whole = mixed((2 * n, 6), 3, 7).astype(np.int32)
    flags = (mixed((2 * n, 6), 3) - 1).astype(np.int32)  # -1 to 1: sums that come back to zero

    def mode_of(values, axis):
        counts = np.stack([(values == k).sum(axis) for k in range(3)])
        return counts.argmax(0).astype(np.int32)

    for axis in (0, 1, -1, -2):
        members[f"mode along {axis}"] = (
            lambda w, f, a=axis: jax.scipy.stats.mode(w, axis=a).mode,
            mode_of(whole, axis),
        )
    hold(line, grid, members, whole, flags)
    numbers = mixed((2 * n, 2 * n), 997, 389).astype(np.int32)
    largest = {}
    for k in range(1, min(4, 2 * n + 1)):
        first = np.argsort(-numbers, 1, kind="stable")[:, :k].astype(np.int32)
        right = (np.take_along_axis(numbers, first, 1), first)
        largest[f"the largest {k}"] = (lambda x, k=k: lax.top_k(x, k), right)
    hold(line, grid, largest, numbers)
    for group in _running(flags):
        hold(line, grid, group, flags)
    key = jax.random.key(3)
    flat = np.asarray(jax.random.key_data(jax.random.split(key, 6 * n)))
    for shape in ((6 * n,), (2 * n, 3), (3, 2 * n), (n, 2, 3)):
        for spec in (P("d"), P(None, "d"), P()):
            if len(spec) > len(shape) or (shape[len(spec) - 1] % n and len(spec)):
                continue
            split = jax.jit(
                lambda k, s=shape: jax.random.key_data(jax.random.split(k, s)),
                out_shardings=NamedSharding(line, spec),
            )
            expect(np.asarray(split(key)), flat.reshape(*shape, -1), f"a key split into {shape} over {spec}")
    folds = [0, 1, 2**16, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1]
    data = {
        k: np.asarray(jax.random.key_data(jax.random.fold_in(key, np.uint32(k)))).tobytes() for k in folds
    }
    wrong(len(set(data.values())) < len(folds), "fold_in of different numbers gives equal keys")


def _factorizations(line, grid):
    """Triangular solves from both sides with each option, of real and complex batches; eigenvalues by one triangle."""
    n, size = line.size, 3
    real = (mixed((n, size, size), 7) - 3) / 8.0 + 3 * np.eye(size)
    turned = (mixed((n, size, size), 5, 3) - 2) / 8.0
    for a in (real.astype(np.float32), (real + 1j * turned).astype(np.complex64)):
        b = ((mixed((n, size, size), 9, 7) - 4) / 4.0).astype(a.dtype)
        members = {}
        for left, lower, transposed, conjugate, unit in itertools.product((False, True), repeat=5):
            # JAX documents the conjugate with the transpose alone.
            if conjugate and not (transposed and np.iscomplexobj(a)):
                continue
            m = np.tril(a) if lower else np.triu(a)
            if unit:
                m = m - np.einsum("bi,ij->bij", np.einsum("bii->bi", m), np.eye(size)) + np.eye(size)
            m = np.swapaxes(m, 1, 2) if transposed else m
            m = m.conj() if conjugate else m
            right = (
                np.linalg.solve(m, b)
                if left
                else np.swapaxes(np.linalg.solve(np.swapaxes(m, 1, 2), np.swapaxes(b, 1, 2)), 1, 2)
            )
            members[
                f"left={left}, lower={lower}, transposed={transposed}, conjugate={conjugate}, unit={unit}"
            ] = (
                lambda a, b, o=(left, lower, transposed, conjugate, unit): lax.linalg.triangular_solve(
                    a, b, left_side=o[0], lower=o[1], transpose_a=o[2], conjugate_a=o[3], unit_diagonal=o[4]
                ),
                right.astype(a.dtype),
            )
        hold_near(line, grid, members, a, b)
        ways = {}
        for triangle in ("L", "U"):
            ways[f"eigenvalues by the triangle {triangle}"] = (
                lambda a, t=triangle: jnp.linalg.eigh(a, UPLO=t, symmetrize_input=False)[0],
                np.linalg.eigvalsh(a, UPLO=triangle).astype(np.float32),
            )
        hold_near(line, grid, ways, a)


RULES_OF_FUNCTIONS: dict[str, Callable[..., None]] = {
    "attention": _attention,
    "segments_and_fills": _segments_and_fills,
    "places": _places,
    "places_of_uint8": _places_of_uint8,
    "reductions": _reductions,
    "running_pairs": _running_pairs,
    "factorizations": _factorizations,
}
