# SPDX-License-Identifier: Apache-2.0
"""Functions of special numbers, of complex numbers and of numbers of few bits, on arrays that are cut along each
dimension in turn.

Exact answers are computed in 64 bits and rounded once to the dtype. For +, - and * that is the rounded result itself,
since 53 bits hold more than twice those of float32 and two more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.cuts.running import Members, hold, mixed

HALVES = (jnp.bfloat16, np.float16)


def _special(kind: Any, shape: tuple[int, ...]) -> np.ndarray:
    """NaN, infinities, zeros, halves between whole numbers, large and small numbers, the largest of the dtype. All are
    normal, and so are their products."""
    largest = float(jnp.finfo(kind).max)
    some = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        3.5,
        1,
        -1,
        3,
        90,
        -80,
        1 / 3,
    ]
    some += [2**-6, -(2**-6), 100, largest, -largest, 17.25, -7]
    return np.array(some)[mixed(shape, len(some), 7)].astype(kind)


def _rounding(kind: Any) -> Callable[[Any], np.ndarray]:
    """A function that rounds numbers of 64 bits once, to the dtype."""
    return lambda answer: np.asarray(answer, np.float64).astype(kind)


def _arithmetic(kind: Any, x: np.ndarray, y: np.ndarray) -> Members:
    """Functions of one and two numbers that are exact or rounded once, comparisons and choices."""
    a, b, rounded = x.astype(np.float64), y.astype(np.float64), _rounding(kind)
    zero = np.array(0, kind)
    with np.errstate(all="ignore"):
        return {
            "x + y": (lambda x, y: x + y, rounded(a + b)),
            "x - y": (lambda x, y: x - y, rounded(a - b)),
            "x * y": (lambda x, y: x * y, rounded(a * b)),
            "x * 0": (lambda x, y: x * zero, rounded(a * 0)),
            "0 * x": (lambda x, y: 0.0 * x, rounded(a * 0)),
            "x - x": (lambda x, y: x - x, rounded(a - a)),
            "x + 0": (lambda x, y: x + zero, rounded(a)),
            "-x": (lambda x, y: -x, rounded(-a)),
            "abs": (lambda x, y: jnp.abs(x), rounded(abs(a))),
            "sign": (lambda x, y: jnp.sign(x), rounded(np.sign(a))),
            "signbit": (
                lambda x, y: jnp.signbit(jnp.where(jnp.isnan(x), 1, x)),
                np.signbit(np.where(np.isnan(a), 1, a)),
            ),
            "copysign": (
                lambda x, y: jnp.copysign(jnp.abs(x), -x)[~np.isnan(a)],
                rounded(-a)[~np.isnan(a)],
            ),
            "round": (lambda x, y: jnp.round(x), rounded(np.rint(a))),
            "rint": (lambda x, y: jnp.rint(x), rounded(np.rint(a))),
            "round away": (
                lambda x, y: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
                rounded(np.where(abs(a) < 1e6, np.sign(a) * np.floor(abs(a) + 0.5), a)),
            ),
            "floor": (lambda x, y: jnp.floor(x), rounded(np.floor(a))),
            "ceil": (lambda x, y: jnp.ceil(x), rounded(np.ceil(a))),
            "trunc": (lambda x, y: jnp.trunc(x), rounded(np.trunc(a))),
            "square": (lambda x, y: jnp.square(x), rounded(a * a)),
            "maximum": (lambda x, y: jnp.maximum(x, y), rounded(np.maximum(a, b))),
            "minimum": (lambda x, y: jnp.minimum(x, y), rounded(np.minimum(a, b))),
            "fmax": (lambda x, y: jnp.fmax(x, y), rounded(np.fmax(a, b))),
            "clip": (lambda x, y: jnp.clip(x, -2, 3), rounded(np.clip(a, -2, 3))),
            "relu": (lambda x, y: jax.nn.relu(x), rounded(np.maximum(a, 0))),
            "heaviside": (lambda x, y: jnp.heaviside(x, 1), rounded(np.heaviside(a, 1))),
            "compared": (
                lambda x, y: (x < y, x <= y, x == y, x != y, x > y, x >= y),
                (a < b, a <= b, a == b, a != b, a > b, a >= b),
            ),
            "kinds": (
                lambda x, y: (jnp.isnan(x), jnp.isinf(x), jnp.isfinite(x), jnp.isposinf(x)),
                (np.isnan(a), np.isinf(a), np.isfinite(a), np.isposinf(a)),
            ),
            "where": (lambda x, y: jnp.where(x > 0, x, y), rounded(np.where(a > 0, a, b))),
            "nan_to_num": (
                lambda x, y: jnp.nan_to_num(x, nan=7, posinf=8, neginf=-9),
                rounded(np.nan_to_num(a, nan=7, posinf=8, neginf=-9)),
            ),
        }


def _reductions(kind: Any, x: np.ndarray, whole: np.ndarray) -> Members:
    """Extremes, sums, orders, running functions and windows.

    whole: NaN, infinities and small whole numbers, whose sums are exact in any order."""
    a, rounded = x.astype(np.float64), _rounding(kind)
    known, total = np.where(np.isnan(a), 0, a), whole.astype(np.float64)
    with np.errstate(all="ignore"):
        members: dict[str, Any] = {
            # Over devices XLA's CPU backend loses a NaN (docs/findings.md); `every_value` has cases of that.
            "largest": (
                lambda x, w: (
                    jnp.where(jnp.isnan(x), 0, x).max(0),
                    jnp.where(jnp.isnan(x), 0, x).max(1),
                ),
                (rounded(known.max(0)), rounded(known.max(1))),
            ),
            "smallest": (
                lambda x, w: (
                    jnp.where(jnp.isnan(x), 0, x).min(0),
                    jnp.where(jnp.isnan(x), 0, x).min(1),
                ),
                (rounded(known.min(0)), rounded(known.min(1))),
            ),
            "nanmax": (lambda x, w: jnp.nanmax(x, 0), rounded(np.nanmax(a, 0))),
            "place of the largest": (
                lambda x, w: (x.argmax(0), x.argmax(1)),
                (a.argmax(0).astype(np.int32), a.argmax(1).astype(np.int32)),
            ),
            "place of the smallest": (lambda x, w: x.argmin(1), a.argmin(1).astype(np.int32)),
            "sums": (
                lambda x, w: (w.sum(0), w.sum(1)),
                (rounded(total.sum(0)), rounded(total.sum(1))),
            ),
            "nansum": (lambda x, w: jnp.nansum(w, 0), rounded(np.nansum(total, 0))),
            "sorts": (
                lambda x, w: (jnp.sort(x, 0), jnp.sort(x, 1)),
                (rounded(np.sort(a, 0)), rounded(np.sort(a, 1))),
            ),
            "cummax": (lambda x, w: lax.cummax(x, 0), rounded(np.maximum.accumulate(a, 0))),
            "cummin": (
                lambda x, w: lax.cummin(x, 1, reverse=True),
                rounded(np.minimum.accumulate(a[:, ::-1], 1)[:, ::-1]),
            ),
            "windows": (
                lambda x, w: lax.reduce_window(x, np.array(-np.inf, kind), lax.max, (2, 1), (1, 1), "VALID"),
                rounded(np.maximum(a[1:], a[:-1])),
            ),
        }
        if kind == np.float32:
            members |= {
                "reduce_precision": (
                    lambda x, w: lax.reduce_precision(x * np.float32(1.001), 8, 7),
                    (x * np.float32(1.001)).astype(jnp.bfloat16).astype(np.float32),
                ),
                "bits of bfloat16": (
                    lambda x, w: lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.int16)[~np.isnan(a)],
                    x.astype(jnp.bfloat16).view(np.int16)[~np.isnan(a)],
                ),
            }
    return members


def _smooth(kind: Any, x: np.ndarray, y: np.ndarray, small: np.ndarray) -> Members:
    """Functions that XLA approximates. small: numbers near 0, for `log1p` and `expm1`."""
    a, b, rounded = x.astype(np.float64), y.astype(np.float64), _rounding(kind)
    e = np.exp
    with np.errstate(all="ignore"):
        return {
            "sigmoid": (lambda x, y, s: jax.nn.sigmoid(x), rounded(1 / (1 + e(-a)))),
            "silu": (lambda x, y, s: jax.nn.silu(x), rounded(a / (1 + e(-a)))),
            "softplus": (lambda x, y, s: jax.nn.softplus(x), rounded(np.logaddexp(a, 0))),
            "tanh": (lambda x, y, s: jnp.tanh(x), rounded(np.tanh(a))),
            "exp": (lambda x, y, s: jnp.exp(x), rounded(e(a))),
            "sqrt": (lambda x, y, s: jnp.sqrt(jnp.abs(x)), rounded(np.sqrt(abs(a)))),
            "logaddexp": (lambda x, y, s: jnp.logaddexp(x, y), rounded(np.logaddexp(a, b))),
            "log1p": (
                lambda x, y, s: jnp.log1p(s),
                rounded(np.log1p(small.astype(float))),
            ),
            "expm1": (
                lambda x, y, s: jnp.expm1(s),
                rounded(np.expm1(small.astype(float))),
            ),
        }


def _specials_of(kind: Any) -> Callable[[Any, Any], None]:
    def run(line, grid):
        n = line.size
        x = _special(kind, (2 * n, 4 * n))
        y = _special(kind, (2 * n, 4 * n))[::-1, ::-1].copy()
        a = x.astype(np.float64)
        whole = np.where(np.isfinite(a), mixed(a.shape, 5), a).astype(kind)
        with np.errstate(invalid="ignore"):
            small = (np.where(abs(a) <= 3, a, 0.25) * 2.0**-8).astype(kind)
        hold(line, grid, _arithmetic(kind, x, y), x, y)
        hold(line, grid, _reductions(kind, x, whole), x, whole)
        # XLA's approximations of float32 differ between backends by up to a hundred units of the last place.
        most = 1024 if kind == np.float32 else 8
        hold(line, grid, _smooth(kind, x, y, small), x, y, small, most=most, last=True)
        _of_masked(line, grid, kind)
        _with_nan(line, grid, kind)

    return run


def _with_nan(line, grid, kind):
    """Maxima and minima of numbers and NaN along a dimension that is too odd to be cut."""
    n = line.size
    x = _special(kind, (2 * n + 1, 4 * n))
    a, ids = x.astype(np.float64), mixed((2 * n + 1,), 3).astype(np.int32)

    def by_segment(method, start):
        out = np.full((3, a.shape[1]), float(start))
        for k, row in zip(ids, a, strict=True):
            out[k] = method(out[k], row)
        return out.astype(kind)

    def zeros():
        return jnp.zeros((3, x.shape[1]), kind)

    with np.errstate(all="ignore"):
        members = {
            "largest": (lambda x, i: x.max(0), a.max(0).astype(kind)),
            "smallest": (lambda x, i: x.min(0), a.min(0).astype(kind)),
            "segment_max": (lambda x, i: jax.ops.segment_max(x, i, 3), by_segment(np.maximum, -np.inf)),
            "segment_min": (lambda x, i: jax.ops.segment_min(x, i, 3), by_segment(np.minimum, np.inf)),
            "at max": (lambda x, i: zeros().at[i].max(x), by_segment(np.maximum, 0)),
            "at min": (lambda x, i: zeros().at[i].min(x), by_segment(np.minimum, 0)),
            "at add": (
                lambda x, i: zeros().at[i].add(jnp.where(jnp.isfinite(x), 1, x)),
                by_finite(a, ids).astype(kind),
            ),
        }
    hold(line, grid, members, x, ids)


def by_finite(a: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """[3, columns]: sums of rows by segment, in which each finite number counts as 1."""
    out = np.zeros((3, a.shape[1]))
    for k, row in zip(ids, np.where(np.isfinite(a), 1, a), strict=True):
        out[k] += row
    return out


def _of_masked(line, grid, kind):
    """Sums of exponentials of masked numbers, whose first or only numbers are -inf."""
    n = line.size
    masked = np.where(mixed((2 * n, 4 * n), 3) > 0, -np.inf, mixed((2 * n, 4 * n), 4)).astype(kind)
    masked[: n + 1, 0] = masked[0, :] = -np.inf
    a = masked.astype(np.float64)
    with np.errstate(all="ignore"):
        members = {
            "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 0), np.logaddexp.accumulate(a, 0).astype(kind)),
            "logsumexp": (
                lambda x: (jax.nn.logsumexp(x, 0), jax.nn.logsumexp(x, 1)),
                (np.logaddexp.reduce(a, 0).astype(kind), np.logaddexp.reduce(a, 1).astype(kind)),
            ),
            "softmax": (
                lambda x: jax.nn.softmax(jnp.where(jnp.isneginf(x).all(1, keepdims=True), 0, x), 1),
                _softmax(np.where(np.isneginf(a).all(1, keepdims=True), 0, a)).astype(kind),
            ),
        }
    # Each step of a running sum rounds.
    hold(line, grid, members, masked, most=(1024 if kind == np.float32 else 16) + 2 * len(masked), last=True)


def _softmax(a: np.ndarray) -> np.ndarray:
    parts = np.exp(a - a.max(1, keepdims=True))
    return parts / parts.sum(1, keepdims=True)


def _complex(line, grid):
    """Complex numbers: parts, products, sums over a dimension that is cut, and moduli of large and small numbers."""
    n = line.size
    re, im = mixed((2 * n, 4 * n), 9) - 4, mixed((2 * n, 4 * n), 7, 3) - 3
    x = (re + 1j * im).astype(np.complex64)
    y = (im[::-1] - 2j * re[:, ::-1]).astype(np.complex64)
    far = (x * np.float32(2.0**70)).astype(np.complex64)
    near = (x * np.float32(2.0**-70)).astype(np.complex64)
    exact = {
        "x * y": (lambda x, y, f, s: x * y, x * y),
        "parts": (
            lambda x, y, f, s: (x.real, x.imag, jnp.conj(x), -x, x * 1j),
            (x.real, x.imag, np.conj(x), -x, x * np.complex64(1j)),
        ),
        "x @ y": (lambda x, y, f, s: jnp.dot(x, y.T, precision="highest"), x @ y.T),
        "x.H @ y": (lambda x, y, f, s: jnp.dot(x.conj().T, y, precision="highest"), x.conj().T @ y),
        "einsum": (
            lambda x, y, f, s: jnp.einsum("ij,ij->j", x, y, precision="highest"),
            np.einsum("ij,ij->j", x, y),
        ),
        "vdot": (lambda x, y, f, s: jnp.vdot(x, y, precision="highest"), np.vdot(x, y)),
        "sums": (lambda x, y, f, s: (x.sum(0), x.sum(1), x.sum()), (x.sum(0), x.sum(1), x.sum())),
        "cumsum": (lambda x, y, f, s: jnp.cumsum(x, 0), np.cumsum(x, 0)),
        "turned": (
            lambda x, y, f, s: (x.T, x[::-1], jnp.roll(x, 1, 0)),
            (x.T, x[::-1], np.roll(x, 1, 0)),
        ),
        "equal": (lambda x, y, f, s: (x == y, x != y), (x == y, x != y)),
        "made": (lambda x, y, f, s: lax.complex(x.imag, x.real), (x.imag + 1j * x.real).astype(np.complex64)),
        "written": (
            lambda x, y, f, s: x.at[jnp.array([0, 1, 0])].add(y[:3] if len(y) > 2 else jnp.stack([y[0]] * 3)),
            _added(x, y[:3] if len(y) > 2 else np.stack([y[0]] * 3)),
        ),
    }
    hold(line, grid, exact, x, y, far, near)

    def modulus(z):
        return np.hypot(z.real.astype(np.float64), z.imag.astype(np.float64)).astype(np.float32)

    smooth = {
        "abs": (lambda x, y, f, s: jnp.abs(x), modulus(x)),
        "abs of large": (lambda x, y, f, s: jnp.abs(f), modulus(far)),
        "abs of small": (lambda x, y, f, s: jnp.abs(s), modulus(near)),
        "angle": (
            lambda x, y, f, s: jnp.angle(jnp.where(x == 0, 1, x)),
            np.angle(np.where(x == 0, 1, x)).astype(np.float32),
        ),
    }
    hold(line, grid, smooth, x, y, far, near, most=64, last=True)


def _added(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    out = x.copy()
    for k, row in zip((0, 1, 0), rows, strict=True):
        out[k] += row
    return out


def _few_bits(line, grid):
    """int4, uint4 and float8: pieces that start in the middle of a byte, and products of two kinds of float8."""
    n = line.size
    for kind in (jnp.int4, jnp.uint4):
        low = -8 if kind == jnp.int4 else 0
        x = mixed((2 * n, 8 * n), 16).astype(np.int32) + low

        def whole(v):
            return v.astype(jnp.int32)

        members = {
            "pieces": (
                lambda v, k=kind: tuple(whole(p) for p in _pieces(v.astype(k))),
                tuple(_pieces(x)),
            ),
            "moved": (
                lambda v, k=kind: (
                    whole(jnp.roll(v.astype(k), 1, 1)),
                    whole(v.astype(k).T),
                    whole(v.astype(k).reshape(-1)[3:-2]),
                    whole(jnp.concatenate([v.astype(k)[:, 1:], v.astype(k)[:, :1]], 1)),
                    whole(jnp.pad(v.astype(k), ((0, 0), (1, 2)))),
                ),
                (
                    np.roll(x, 1, 1),
                    x.T,
                    x.reshape(-1)[3:-2],
                    np.concatenate([x[:, 1:], x[:, :1]], 1),
                    np.pad(x, ((0, 0), (1, 2))),
                ),
            ),
            "started": (
                lambda v, k=kind: whole(lax.dynamic_slice(v.astype(k), (1, v[0, 0] * 0 + 3), (2 * n - 1, 4))),
                x[1:, 3:7],
            ),
        }
        _if_implemented(lambda m=members, x=x: hold(line, grid, m, x))
    x, y = mixed((2 * n, 4 * n), 9) - 4, mixed((2 * n, 4 * n), 7, 3) - 3
    kinds = (jnp.float8_e4m3fn, jnp.float8_e5m2)
    products = {
        f"{np.dtype(one)} times {np.dtype(other)}": (
            lambda x, y, one=one, other=other: lax.dot_general(
                x.astype(one),
                y.astype(other),
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            ),
            (x @ y.T).astype(np.float32),
        )
        for one in kinds
        for other in kinds
    }
    _if_implemented(lambda: hold(line, grid, products, x.astype(np.float32), y.astype(np.float32)))


def _pieces(v: Any) -> list[Any]:
    return [v[:, 1:], v[:, 3:], v[1:, 1:4], v[:, ::2], v[:, 1::3], v[:, -3:], v[::-1, ::-1]]


def _if_implemented(call: Callable[[], None]) -> None:
    """A plugin's backend may lack types of few bits, which are optional. XLA's CPU backend has them."""
    try:
        call()
    except jax.errors.JaxRuntimeError as error:
        if "UNIMPLEMENTED" not in str(error) or jax.default_backend() == "cpu":
            raise


CUT_FLOATS: dict[str, Callable[..., None]] = {
    **{f"specials_of_{np.dtype(kind)}": _specials_of(kind) for kind in (np.float32, *HALVES)},
    "complex_numbers": _complex,
    "few_bits": _few_bits,
}
