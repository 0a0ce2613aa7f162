# SPDX-License-Identifier: Apache-2.0
"""Small rules: options of functions that no other rule uses (words of padding, descending orders, several dimensions at
once), and values at which a shorter formula fails. Arrays are cut every way, and answers are NumPy's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.cuts.running import mixed, placements
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect


def _windows(x: Any, k: Any, strides: Any, pads: Any, dilation: Any, groups: int) -> np.ndarray:
    """A convolution by its definition: x is [batch, channels, ...], k is [results, channels of a group, ...]."""
    padded: Any = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads))
    spans = [(n - 1) * d + 1 for n, d in zip(k.shape[2:], dilation, strict=True)]
    sizes = [(n - s) // t + 1 for n, s, t in zip(padded.shape[2:], spans, strides, strict=True)]
    out: Any = np.zeros((x.shape[0], k.shape[0], *sizes))
    width, each = k.shape[1], k.shape[0] // groups
    for place in itertools.product(*map(range, sizes)):
        starts = [p * t for p, t in zip(place, strides, strict=True)]
        cut: Any = tuple(slice(a, a + s, d) for a, s, d in zip(starts, spans, dilation, strict=True))
        for g in range(groups):
            window = padded[(slice(None), slice(g * width, (g + 1) * width), *cut)]
            kernel = k[g * each : (g + 1) * each].astype(np.float64)
            axes = list(range(1, x.ndim))
            out[(slice(None), slice(g * each, (g + 1) * each), *place)] = np.tensordot(
                window, kernel, (axes, axes)
            )
    return out


def _pads(name: str, size: int, window: int, stride: int, dilation: int) -> tuple[int, int]:
    """The padding that a word means: for SAME, size / stride results, and the odd row at the end (SAME_LOWER: at the
    beginning). Source: the documentation of jax.lax.conv_general_dilated and TensorFlow's of SAME."""
    if name == "VALID":
        return 0, 0
    span = (window - 1) * dilation + 1
    total = max((math.ceil(size / stride) - 1) * stride + span - size, 0)
    less, more = total // 2, total - total // 2
    return (less, more) if name == "SAME" else (more, less)


def _padding_words(line, grid):
    """Convolutions with each word of padding, with strides, dilations and groups, and their gradients."""
    kinds = [
        *itertools.product(("SAME", "SAME_LOWER", "VALID"), ((5,), (6,)), ((2,), (3,)), (1, 2)),
        *itertools.product(("SAME", "SAME_LOWER"), ((5, 4),), ((2, 3),), (2, 3)),
    ]
    programs, given, answers = [], [], []
    for turn, (word, sizes, window, stride) in enumerate(kinds):
        dilation, groups = (1, 2, 1)[turn % 3], 1 + turn % 2
        x = mixed((line.size, 2, *sizes), 7, 5).astype(np.float32)
        k = mixed((4, 2 // groups, *window), 5, 3).astype(np.float32)
        strides, dilations = (stride,) * len(sizes), (dilation,) * len(sizes)
        pads = [_pads(word, n, w, stride, dilation) for n, w in zip(sizes, window, strict=True)]
        right = partial(_windows, x, strides=strides, pads=pads, dilation=dilations, groups=groups)
        weights = mixed(right(k).shape, 5, 7).astype(np.float32)
        run = partial(
            lax.conv_general_dilated,
            window_strides=strides,
            padding=word,
            rhs_dilation=dilations,
            feature_group_count=groups,
        )

        def every(x, k, run=run, weights=weights):
            return run(x, k), *jax.grad(lambda a, b: (run(a, b) * weights).sum(), (0, 1))(x, k)

        programs.append(every)
        given.append((placed(line, x, "d"), k))
        what = f"a convolution of {sizes} with {window}, {word}, stride {stride}, dilation {dilation}, {groups} groups"
        answers.append((what, x, k, weights, right))
    found = jax.jit(lambda given: [f(*a) for f, a in zip(programs, given, strict=True)])(given)
    for (seen, of_x, of_k), (what, x, k, weights, right) in zip(jax.device_get(found), answers, strict=True):
        expect(seen, right(k).astype(np.float32), what)
        # A convolution is linear in each argument: the slopes times the argument add up to the result.
        total = np.float32((right(k) * weights).sum())
        expect(np.float32((of_x * x).sum()), total, f"the slopes by the input of {what}")
        for row in range(len(k)):
            alone = np.zeros_like(k)
            alone[row] = k[row]
            part = np.float32((right(alone) * weights).sum())
            expect(
                np.float32((of_k[row] * k[row]).sum()),
                part,
                f"the slopes by row {row} of the kernel of {what}",
            )


def _orders_with_ties(line, grid):
    """argsort and sort in both directions, stable, of values with ties, along each dimension; places of extremes."""
    host = np.ascontiguousarray(mixed((2 * line.size, 6), 4, 3).astype(np.float32))
    for where, (x,) in placements(line, grid, (host,)):
        for axis in (0, 1, -1):
            found = jax.jit(
                lambda v, axis=axis: {
                    "argsort": jnp.argsort(v, axis),
                    "argsort descending": jnp.argsort(v, axis, descending=True),
                    "argsort stable descending": jnp.argsort(v, axis, stable=True, descending=True),
                    "sort descending": jnp.sort(v, axis, descending=True),
                    "argmax": jnp.argmax(v, axis),
                    "argmin": jnp.argmin(v, axis),
                    "argmax, kept": jnp.argmax(v, axis, keepdims=True),
                }
            )(x)
            down = np.argsort(-host, axis, kind="stable").astype(np.int32)
            answers = {
                "argsort": np.argsort(host, axis, kind="stable").astype(np.int32),
                "argsort descending": down,
                "argsort stable descending": down,
                "sort descending": np.take_along_axis(host, down, axis),
                "argmax": host.argmax(axis).astype(np.int32),
                "argmin": host.argmin(axis).astype(np.int32),
                "argmax, kept": host.argmax(axis, keepdims=True).astype(np.int32),
            }
            for name, right in answers.items():
                expect(np.asarray(found[name]), right, f"{name} along {axis}, {where},")


def _turned_dimensions(line, grid):
    """flip, rev, rot90, roll and moveaxis of several dimensions at once, of arrays of ranks 3 and 5."""
    for rank in (3, 5):
        host = mixed((2 * line.size, 3, 2, 3, 2)[:rank], 97, 7).astype(np.float32)
        several = [*itertools.combinations(range(-1, rank - 1), 2), (0, 1, 2)]
        for where, (x,) in placements(line, grid, (host,)):

            def every(v, several=several, rank=rank):
                found = {}
                for axes in several:
                    found[f"flip of {axes}"] = jnp.flip(v, axes)
                    found[f"rev of {axes}"] = lax.rev(v, [a % rank for a in axes])
                    found[f"roll of {axes}"] = jnp.roll(v, range(1, len(axes) + 1), axes)
                found["flip of all"] = jnp.flip(v)
                found["a slice of steps back"] = v[(slice(None, None, -1),) * rank]
                found["rot90"] = jnp.rot90(v, 1, (0, rank - 1))
                found["moveaxis"] = jnp.moveaxis(v, (0, -1), (-1, 1))
                return found

            answers: dict[str, np.ndarray] = {}
            for axes in several:
                answers[f"flip of {axes}"] = answers[f"rev of {axes}"] = np.flip(host, axes)
                answers[f"roll of {axes}"] = np.roll(host, range(1, len(axes) + 1), axes)
            answers["flip of all"] = answers["a slice of steps back"] = np.flip(host)
            answers["rot90"] = np.rot90(host, 1, (0, rank - 1))
            answers["moveaxis"] = np.moveaxis(host, (0, -1), (-1, 1))
            found = jax.jit(every)(x)
            for name, right in answers.items():
                expect(np.asarray(found[name]), right, f"{name}, of rank {rank}, {where},")


def _edges_of_functions(line, grid):
    """Functions at values where a shorter formula fails: NaN in clamp and argmin, rows of -inf, sums that overflow on
    the way to a mean, products with zeros, and matrices of both signs."""
    n = 2 * line.size
    nan, inf = np.nan, np.inf
    host = mixed((n, 6), 9).astype(np.float32)
    with_nan, low, zeros = host.copy(), np.zeros((n, 6), np.float32), host.copy()
    with_nan[1::3, 2], with_nan[0, 0] = nan, nan
    low[:, :2], low[n // 2] = -inf, -inf
    zeros[::2, 1], zeros[::4, 4] = 0, 0
    half = np.full((n, 6), 60000, np.float16)
    orders = [list(itertools.permutations(range(3)))[k % 6] for k in range(n)]
    signs = 2 * np.stack([np.eye(3, dtype=np.float32)[list(order)] for order in orders])
    swapped = np.array([round(np.linalg.det(one)) for one in signs / 2], np.float32)
    others = np.stack([np.prod(np.delete(zeros, k, 1), 1) for k in range(6)], 1)
    sums = np.arange(6) - 1.0
    with np.errstate(divide="ignore"):
        running = np.where(np.isneginf(low), -inf, np.log(np.maximum(sums, 1))).astype(np.float32)
    members: dict[str, tuple[Callable[[Any], Any], np.ndarray, np.ndarray]] = {
        "clamp": (lambda v: lax.clamp(-1.0, v, 3.0), with_nan, np.clip(with_nan, -1, 3)),
        "clip": (lambda v: jnp.clip(v, -1, 3), with_nan, np.clip(with_nan, -1, 3)),
        "argmin": (lambda v: jnp.argmin(v, 1), with_nan, np.argmin(with_nan, 1).astype(np.int32)),
        "argmax": (lambda v: jnp.argmax(v, 1), with_nan, np.argmax(with_nan, 1).astype(np.int32)),
        "argmin of columns": (lambda v: jnp.argmin(v, 0), with_nan, np.argmin(with_nan, 0).astype(np.int32)),
        "a mean": (lambda v: v.mean(1), half, half[:, 0]),
        "a mean of all": (lambda v: v.mean(), half, half[0, 0]),
        "a mean of columns": (lambda v: jnp.mean(v, 0), half, half[0]),
        "the sign of slogdet": (lambda v: jnp.linalg.slogdet(v)[0], signs, swapped),
        "det": (jnp.linalg.det, signs, 8 * swapped),
        "the gradient of prod": (jax.grad(lambda v: jnp.prod(v, 1).sum()), zeros, others),
        "logsumexp of rows of -inf": (
            lambda v: jnp.isneginf(jax.nn.logsumexp(v, 1)),
            low,
            np.arange(n) == n // 2,
        ),
        "the gradient of ifft": (
            jax.grad(lambda v: jnp.fft.ifft(v.astype(jnp.complex64), axis=1).real[:, 0].sum()),
            host[:, :4],
            np.full((n, 4), 0.25, np.float32),
        ),
    }
    for name, (run, given, right) in members.items():
        for where, (x,) in placements(line, grid, (given,)):
            found = np.asarray(jax.jit(run)(x))
            expect(found, right, f"{name}, {where},")
    for where, (x,) in placements(line, grid, (low,)):
        found = np.asarray(jax.jit(lambda v: lax.cumlogsumexp(v, 1))(x))
        # Each step rounds an exponential and a logarithm: a few units of float32, far from the NaN of a short formula.
        near = np.allclose(found, running, rtol=1e-5, atol=1e-6, equal_nan=True)
        wrong(not near, f"cumlogsumexp, {where}, is {found.tolist()} instead of {running.tolist()}"[:600])


RULES_OF_CORNERS: dict[str, Callable[..., None]] = {
    "padding_words": _padding_words,
    "orders_with_ties": _orders_with_ties,
    "turned_dimensions": _turned_dimensions,
    "edges_of_functions": _edges_of_functions,
}
