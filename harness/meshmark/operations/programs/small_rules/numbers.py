# SPDX-License-Identifier: Apache-2.0
"""Small rules: numbers that NumPy loops work out one by one. Windows, shifts, tangents of matrix functions, images,
slopes beside masked numbers, the largest of rows, and counts of long rows of halves."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.ndimage
import jax.scipy.special
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import hold, hold_near, mixed
from meshmark.operations.programs.forms.options import wrong

SPANS: tuple[tuple[int, int, tuple[int, int], int, int], ...] = (
    (1, 1, (0, 0), 1, 1),
    (1, 1, (0, 0), 2, 1),
    (1, 1, (1, 2), 3, 1),
    (1, 2, (1, 0), 1, 1),
    (1, 3, (0, 1), 2, 1),
    (2, 1, (1, 0), 1, 1),
    (3, 2, (0, 2), 1, 2),
    (2, 1, (1, 2), 2, 1),
    (3, 1, (2, 1), 2, 3),
    (2, 3, (3, 0), 3, 2),
)
"""Windows along one dimension: size, stride, padding, and the dilations of what is read and of the window."""


def _windowed(x: np.ndarray, method: Any, start: Any, spans: tuple[Any, ...]) -> np.ndarray:
    """The reduction of each window. spans: one of SPANS for each dimension."""
    spread = np.full(
        [(size - 1) * s[3] + 1 + sum(s[2]) for size, s in zip(x.shape, spans, strict=True)], start
    )
    spread = spread.astype(x.dtype)
    inner = [
        slice(s[2][0], s[2][0] + (size - 1) * s[3] + 1, s[3]) for size, s in zip(x.shape, spans, strict=True)
    ]
    spread[tuple(inner)] = x
    sizes = [
        max(0, (size - (s[0] - 1) * s[4] - 1) // s[1] + 1)
        for size, s in zip(spread.shape, spans, strict=True)
    ]
    out = np.full(sizes, start, x.dtype)
    for place in np.ndindex(*(s[0] for s in spans)):  # each number of a window, for all windows
        seen = tuple(
            slice(p * s[4], p * s[4] + size * s[1], s[1])
            for p, s, size in zip(place, spans, sizes, strict=True)
        )
        out = method(out, spread[seen][tuple(slice(size) for size in sizes)])
    return out


def _starts(kind: Any) -> tuple[tuple[str, Any, Any, Any], ...]:
    """Reductions with their starts. An extreme may start at any number; a sum starts at zero, since its start may be
    added more than once."""
    least, most = (-np.inf, np.inf) if kind == np.float32 else (np.iinfo(kind).min, np.iinfo(kind).max)
    return (
        ("sum", np.add, lax.add, 0),
        ("maximum", np.maximum, lax.max, least),
        ("minimum", np.minimum, lax.min, most),
        ("maximum from 3", np.maximum, lax.max, 3),
        ("minimum from 4", np.minimum, lax.min, 4),
    )


def _chosen_spans(kind: Any, rank: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """(the number of a reduction, what a window does along each dimension): a part of all pairs, to save time.

    Windows of one number in all of three dimensions are left out: where they have many results, they are wrong in
    released JAX on one device already (`_holes`)."""
    part = 2 * (rank == 3) + (kind == np.int32)
    for i, j in itertools.product(range(len(SPANS)), repeat=2):
        spans = tuple(SPANS[k] for k in (i, j, (3 * i + j + 1) % len(SPANS))[:rank])
        skipped = rank == 3 and ((i // 2 + j) % 2 or all(s[0] == 1 for s in spans))
        if (i + 3 * j) % 6 == part and not skipped:
            yield i + 2 * j + j // 5, spans


def _windows_of(kind: Any) -> Callable[..., None]:
    def run(line, grid):
        """Sums and extremes of windows with strides, unequal padding, holes in what is read and in the window."""
        n, starts = line.size, _starts(kind)
        for rank, shape in ((2, (2 * n, 2 * n)), (3, (2 * n, 2 * n, 5))):
            x = (mixed(shape, 19, 7) - 6).astype(kind)
            members = {}
            for number, spans in _chosen_spans(kind, rank):
                name, method, function, start = starts[number % len(starts)]
                given = tuple(zip(*spans, strict=True))

                def reduced(x, start=start, function=function, given=given):
                    return lax.reduce_window(x, np.array(start, x.dtype), function, *given)

                what = f"the {name} of windows {spans} of {np.dtype(kind).name}"
                members[what] = (reduced, _windowed(x, method, start, spans))
            hold(line, grid, members, x)

    return run


def _holes(line, grid):
    """Windows of one number in a large array with holes: the holes hold the start."""
    x = mixed((16, 16, 6), 997, 7).astype(np.float32) + 1
    for base, stride in (
        ((2, 1, 1), (1, 1, 1)),
        ((2, 3, 1), (1, 1, 2)),
        ((1, 2, 2), (1, 2, 1)),
        ((2, 3, 2), (1, 1, 1)),
    ):
        spans = tuple((1, s, (0, 0), b, 1) for s, b in zip(stride, base, strict=True))
        for name, method, function, start in _starts(np.float32)[:3]:
            run = jax.jit(
                lambda x, f=function, start=start, base=base, stride=stride: lax.reduce_window(
                    x, np.float32(start), f, (1, 1, 1), stride, ((0, 0),) * 3, base_dilation=base
                )
            )
            found = run(jax.device_put(x, NamedSharding(line, P())))
            right = _windowed(x, method, start, spans)
            off = int((np.asarray(found) != right).sum())
            what = f"the {name} of single numbers with holes {base} and strides {stride}"
            wrong(off > 0, f"{what}: {off} of {right.size} are wrong")


def _shifted(x: np.ndarray, amounts: np.ndarray, way: str) -> np.ndarray:
    """Shifts by whole numbers that may be as large as the number of bits and larger."""
    kind = x.dtype
    bits = 8 * kind.itemsize
    whole, far = x.astype(object), amounts.astype(object)
    if way == "logical":
        whole = whole % 2**bits
    moved = np.vectorize(lambda v, a: v * 2**a if way == "left" else v // 2**a, otypes=[object])(whole, far)
    moved = moved % 2**bits
    if kind.kind == "i":
        moved = np.where(moved >= 2 ** (bits - 1), moved - 2**bits, moved)
    return moved.astype(kind)


SHIFTS: dict[str, Callable[..., Any]] = {
    "left": lambda x, a: lax.shift_left(x, a),
    "logical": lambda x, a: lax.shift_right_logical(x, a),
    "arithmetic": lambda x, a: lax.shift_right_arithmetic(x, a),
}


def _shifts(line, grid):
    """Shifts by each amount from zero to more than all bits: by numbers in the program, by a number and by arrays."""
    n = line.size
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32):
        info, bits = np.iinfo(kind), 8 * np.dtype(kind).itemsize
        size = bits + 2
        x = ((mixed((2 * n, size), 2**16, 48271) * 65521 + mixed((2 * n, size), 65521, 31)) % 2**32).astype(
            np.uint32
        )
        x = x.astype(kind)
        x[:, 0], x[:, 1], x[:, 2], x[:, 3] = info.min, info.max, 1, info.max // 3
        amounts = mixed((2 * n, size), size, 3).astype(kind)
        inside = amounts % bits
        members = {}
        for way, shift in SHIFTS.items():
            # An arithmetic shift of unsigned numbers takes the first bit for a sign.
            read = x.astype(f"i{bits // 8}") if way == "arithmetic" else x
            counted = [_shifted(read, np.full_like(amounts, a), way).astype(kind) for a in range(size)]
            name = f"{way} shifts of {np.dtype(kind).name}"
            members[f"{name} by numbers in the program"] = (
                lambda x, a, b, s=shift, k=kind, size=size: [
                    s(x, k(c)) for c in (0, 1, size - 3, size - 2, size - 1)
                ],
                [counted[c] for c in (0, 1, -3, -2, -1)],
            )
            members[f"{name} by one number"] = (
                lambda x, a, b, s=shift: lax.map(functools.partial(s, x), b),
                np.stack(counted),
            )
            members[f"{name} by an array"] = (
                lambda x, a, b, s=shift: s(x, a),
                _shifted(read, amounts, way).astype(kind),
            )
            members[f"{name} in a batch"] = (
                lambda x, a, b, s=shift: jax.vmap(s)(x[:, 0], a[:, 0]),
                _shifted(read[:, 0], amounts[:, 0], way).astype(kind),
            )
        native = "arithmetic" if info.min < 0 else "logical"
        members[f"jnp.left_shift of {np.dtype(kind).name}"] = (
            lambda x, a, b, bits=bits: jnp.left_shift(x, a % bits),
            _shifted(x, inside, "left"),
        )
        members[f"jnp.right_shift of {np.dtype(kind).name}"] = (
            lambda x, a, b, bits=bits: jnp.right_shift(x, a % bits),
            _shifted(x, inside, native),
        )
        hold(line, grid, members, x, amounts, np.arange(size).astype(kind))


def _signed(q: Any, r: Any, xp: Any) -> tuple[Any, Any]:
    """The factors with signs such that the diagonal of r is not negative: libraries differ in them."""
    sign = xp.sign(xp.diagonal(r, axis1=-2, axis2=-1))
    return q * sign[..., None, :], r * sign[..., :, None]


def _slope_of(f: Callable[..., Any], given: list[np.ndarray], along: list[np.ndarray]) -> Any:
    """The derivative of a NumPy function by central differences in 64 bits."""
    step = 1e-6
    left, right = (
        f(*(a.astype(np.float64) + s * d.astype(np.float64) for a, d in zip(given, along, strict=True)))
        for s in (-step, step)
    )
    return jax.tree.map(lambda a, b: (b - a) / (2 * step), left, right)


def _matrix_functions() -> dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """Functions of matrices: (the kinds of their arguments, in JAX, in NumPy). s is square, p symmetric and positive,
    t tall, w wide, v some vectors."""

    def both(name, kinds, **options):
        return (
            kinds,
            lambda *a: getattr(jnp.linalg, name)(*a, **options),
            lambda *a: getattr(np.linalg, name)(*a, **options),
        )

    found = {
        "cholesky": both("cholesky", "p"),
        "eigenvalues": both("eigvalsh", "p"),
        "solve": both("solve", "sv"),
        "inv": both("inv", "s"),
        "det": both("det", "s"),
        "slogdet": ("s", lambda a: jnp.linalg.slogdet(a)[1], lambda a: np.linalg.slogdet(a)[1]),
        "det of a matrix of less rank": both("det", "l"),
    }
    for kind in "stw":
        found[f"qr, {kind}"] = (
            kind,
            lambda a: _signed(*jnp.linalg.qr(a), jnp),
            lambda a: _signed(*np.linalg.qr(a), np),
        )
        found[f"singular values, {kind}"] = both("svd", kind, compute_uv=False)
        found[f"pinv, {kind}"] = both("pinv", kind)
    return found


def _matrix_tangents(line, grid):
    """Derivatives of functions of matrices along a direction, beside differences in 64 bits."""
    batch, size = 2 * line.size, 4

    def some(rows, columns, below, step):
        return (mixed((batch, rows, columns), below, step) - below // 2) / below

    eye, ramp = np.eye(size), np.diag(np.arange(size))
    given = {
        "s": (some(size, size, 13, 5) + 2 * eye + ramp, some(size, size, 11, 3)),
        "t": (some(6, size, 13, 5) + np.eye(6, size) @ (eye + ramp), some(6, size, 11, 3)),
        "w": (some(size, 6, 13, 5) + (eye + ramp) @ np.eye(size, 6), some(size, 6, 11, 3)),
        "v": (some(size, 3, 17, 7), some(size, 3, 7, 3)),
    }
    square, along = given["s"]
    given["p"] = (square @ square.swapaxes(1, 2), along + along.swapaxes(1, 2))
    less = square.copy()
    less[:, 2] = less[:, 0] - less[:, 1]
    given["l"] = (less, along)
    given = {kind: tuple(v.astype(np.float32) for v in pair) for kind, pair in given.items()}
    order = list(given)
    members = {}
    for name, (kinds, function, other) in _matrix_functions().items():

        def tangent(*arrays, kinds=kinds, function=function):
            at = [2 * order.index(k) for k in kinds]
            return jax.jvp(function, [arrays[k] for k in at], [arrays[k + 1] for k in at])[1]

        right = _slope_of(other, [given[k][0] for k in kinds], [given[k][1] for k in kinds])
        members[f"the tangent of {name}"] = (tangent, right)
    hold_near(line, grid, members, *(v for pair in given.values() for v in pair))


def _resized(x: np.ndarray, shape: tuple[int, ...], linear: bool, antialias: bool) -> np.ndarray:
    """Resizing, one dimension after the other, by the weight of each old pixel in each new one."""
    out = x.astype(np.float64)
    for axis, (old, new) in enumerate(zip(x.shape, shape, strict=True)):
        if old == new:
            continue
        weights = np.zeros((new, old))
        for i in range(new):
            at = (i + 0.5) * old / new - 0.5  # the middle of the new pixel, in old pixels
            wide = max(1.0, old / new) if antialias else 1.0
            for j in range(old):
                weights[i, j] = max(0.0, 1 - abs(at - j) / wide) if linear else j == math.floor(at + 0.5)
        out = np.moveaxis(np.tensordot(weights / weights.sum(1, keepdims=True), out, (1, axis)), 0, axis)
    return out


def _sizes(line, grid):
    """Images made larger and smaller, along dimensions that are cut and that are not."""
    n = line.size
    x = (mixed((2 * n, 9, 5), 23, 7) - 11).astype(np.float32)
    near, exact = {}, {}
    # With these sizes no middle of a pixel lies on an old edge, but for halved rows.
    for shape in (
        (2 * n, 14, 5),
        (2 * n, 4, 5),
        (6 * n, 9, 5),
        (4 * n, 4, 8),
        (2 * n, 9, 3),
        (n, 9, 5),
        (n, 14, 2),
    ):
        for antialias in (True, False):
            near[f"linear to {shape}, antialias={antialias}"] = (
                lambda x, s=shape, a=antialias: jax.image.resize(x, s, "linear", antialias=a),
                _resized(x, shape, True, antialias),
            )
        if shape[0] == n:
            continue
        for kind in (np.float32, np.int32):
            exact[f"nearest to {shape} of {np.dtype(kind).name}"] = (
                lambda x, s=shape, k=kind: jax.image.resize(x.astype(k), s, "nearest"),
                _resized(x, shape, False, False).astype(kind),
            )
    hold_near(line, grid, near, x)
    hold(line, grid, exact, x)


MODES = ("constant", "nearest", "wrap", "mirror", "reflect")
OUTSIDE = 7


def _inside(index: int, size: int, mode: str) -> int:
    """The place that a place outside stands for; -1 for a constant."""
    if 0 <= index < size:
        return index
    if mode == "constant":
        return -1
    if mode == "nearest":
        return min(max(index, 0), size - 1)
    if mode == "wrap":
        return index % size
    period = 2 * (size - 1) if mode == "mirror" else 2 * size
    turned = index % period
    return turned if turned < size else period - turned - (mode == "reflect")


def _read(image: np.ndarray, places: list[np.ndarray], order: int, mode: str) -> np.ndarray:
    """What map_coordinates gives, place by place: whole numbers are rounded, halves away from zero."""
    out = np.zeros(places[0].shape)
    for at in np.ndindex(*out.shape):
        nodes = []
        for p in places:
            first = math.floor(p[at]) if order else math.floor(p[at] + 0.5)
            part = float(p[at]) - first if order else 0.0
            nodes.append(((first, 1 - part), (first + 1, part)))
        for corner in itertools.product(*nodes):
            where = [_inside(k, size, mode) for (k, _), size in zip(corner, image.shape, strict=True)]
            value = OUTSIDE if -1 in where else image[tuple(where)]
            out[at] += float(value) * math.prod(weight for _, weight in corner)
    if image.dtype.kind in "iu":
        out = np.sign(out) * np.floor(abs(out) + 0.5)
    return out.astype(image.dtype)


def _read_images(line: Any, grid: Any, tail: tuple[int, ...]) -> None:
    """Images of each dtype, read at places inside and outside, past those that int8 and uint8 hold."""
    n = line.size
    kinds = (np.float32, np.int8, np.uint8, np.int32)
    shape, count = (-(-300 // n) * n, *tail), (2 * n, 8)
    far = (mixed(count, 1201, 379) * 3 % 1201 - 450) + np.choose(mixed(count, 3, 7), [0, 0.25, 0.75])
    near = (mixed(count, 23, 7) - 9) + np.choose(mixed(count, 3, 5), [0.75, 0, 0.25])
    places = [v.astype(np.float32) for v in (far, near)[: len(shape)]]
    images = [
        (mixed(shape, 251, 31) - (100 if kind in (np.float32, np.int32) else 0)).astype(kind)
        for kind in kinds
    ]
    members = {}
    for (number, image), mode, order in itertools.product(enumerate(images), MODES, (0, 1)):
        # To save time: order 0 of one dtype, and two dimensions of two.
        if number != 2 and (order == 0 or (tail and number != 1)):
            continue

        def read(*given, number=number, mode=mode, order=order):
            return jax.scipy.ndimage.map_coordinates(
                given[number], list(given[len(kinds) :]), order, mode=mode, cval=OUTSIDE
            )

        name = f"{image.dtype.name} of shape {shape} at places, order={order}, mode={mode}"
        members[name] = (read, _read(image, places, order, mode))
    hold(line, grid, members, *images, *places)


def _images(line, grid):
    """Lines of numbers that are read at places, as `_read_images` says."""
    _read_images(line, grid, ())


def _images_of_rows(line, grid):
    """Images of two dimensions that are read at places, as `_read_images` says."""
    _read_images(line, grid, (6,))


def _masked_functions() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Functions of a row and a mask: (in JAX, the value and slope in NumPy). The second takes the numbers that the mask
    keeps and their weights, or one weight for the row."""

    def softmax(x, w):
        p = np.exp(x - x.max())
        p /= p.sum()
        return p, p * (w - (p * w).sum())

    def log_softmax(x, w):
        p = softmax(x, w)[0]
        return np.log(p), w - p * w.sum()

    def standardize(x, w):
        y = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        return y, (w - w.mean() - y * (y * w).mean()) / np.sqrt(x.var() + 1e-5)

    def logsumexp(x, w):
        return np.log(np.exp(x).sum()), softmax(x, 0 * x)[0] * w[0]

    return {
        "softmax": (lambda x, m: jax.nn.softmax(x, 1, where=m), softmax),
        "log_softmax": (lambda x, m: jax.nn.log_softmax(x, 1, where=m), log_softmax),
        "standardize": (lambda x, m: jax.nn.standardize(x, 1, where=m), standardize),
        "logsumexp, where": (lambda x, m: jax.scipy.special.logsumexp(x, 1, where=m), logsumexp),
        "logsumexp, b": (lambda x, m: jax.scipy.special.logsumexp(x, 1, b=m.astype(x.dtype)), logsumexp),
        "sum": (lambda x, m: jnp.sum(x, 1, where=m), lambda x, w: (x.sum(), w[0] + 0 * x)),
        "mean": (lambda x, m: jnp.mean(x, 1, where=m), lambda x, w: (x.mean(), w[0] / x.size + 0 * x)),
        "var": (
            lambda x, m: jnp.var(x, 1, where=m),
            lambda x, w: (x.var(), 2 * w[0] * (x - x.mean()) / x.size),
        ),
        "max": (
            lambda x, m: jnp.max(x, 1, where=m, initial=-50),
            lambda x, w: (x.max(), w[0] * (x == x.max())),
        ),
        "min": (
            lambda x, m: jnp.min(x, 1, where=m, initial=50),
            lambda x, w: (x.min(), w[0] * (x == x.min())),
        ),
    }


def _masked_slopes(line, grid):
    """Values and slopes of functions with a mask, where the numbers outside are huge, infinite or no numbers."""
    n, size = line.size, 6
    mask = mixed((2 * n, size), 5, 3) < 3
    mask[:, 1] = mask[:, 4] = True
    mask[:, 0] = False
    x = (np.arange(2 * n * size).reshape(2 * n, size) * 7 % 11 / 4 - 1).astype(np.float32)
    weights = (mixed((2 * n, size), 9, 7) - 4).astype(np.float32) / 4
    members = {}
    fills = {"huge": 1e30, "less than huge": -1e30, "inf": np.inf, "-inf": -np.inf, "nan": np.nan}
    for (name, (function, right)), fill in itertools.product(_masked_functions().items(), fills):
        if name in ("standardize", "var") and not np.isfinite(fills[fill]):
            continue  # the slopes are NaN in released JAX: zero times the square's slope at the masked number
        pairs = [right(x[r][mask[r]].astype(np.float64), weights[r][mask[r]]) for r in range(2 * n)]
        slopes = np.zeros(x.shape)
        slopes[mask] = np.concatenate([s for _, s in pairs])
        whole = np.ndim(pairs[0][0]) == 1
        values = np.zeros(x.shape) if whole else np.array([v for v, _ in pairs])
        if whole:
            values[mask] = np.concatenate([v for v, _ in pairs])
        first = np.argmax(mask, 1)  # the weight of a row is that of its first number

        def both(x, m, w, f=function, fill=fills[fill], whole=whole, first=first):
            x = jnp.where(m, x, fill)

            def total(x):
                y = f(x, m)
                y = jnp.where(m, y, 0) if whole else y
                w_of = w if whole else jnp.take_along_axis(w, first[:, None], 1)[:, 0]
                return (y * w_of).sum(), y

            slope, y = jax.grad(total, has_aux=True)(x)
            return y, jnp.where(m, slope, 0), (jnp.where(m, 0, slope) != 0).sum()

        members[f"{name} beside {fill}"] = (both, (values, slopes, np.zeros((), np.int32)))
    hold_near(line, grid, members, x, mask, weights)


def _top_parts(line, grid):
    """The largest and the smallest of rows, and orders, with an extreme number at each place of a row in turn."""
    n = line.size
    for kind in (np.float32, np.int32, jnp.bfloat16):
        members, arrays = {}, []
        edges = [("high", 99), ("low", -99)]
        if kind != np.int32:
            edges += [("inf", np.inf), ("-inf", -np.inf), ("nan", np.nan)]
        for size, (edge, number) in itertools.product(sorted({2 * n, 16}), edges):
            rows = size * (n if size % n else 1)
            x = (mixed((rows, size), 5, 3) - 2).astype(kind)
            x[np.arange(rows), np.arange(rows) % size] = number
            at = len(arrays)
            arrays.append(x)
            wide = x.astype(np.float64)
            falling = np.argsort(-wide, 1, kind="stable").astype(np.int32)
            rising = np.argsort(wide, 1, kind="stable").astype(np.int32)
            tasks = {
                "argmax": (lambda x: jnp.argmax(x, 1), np.argmax(wide, 1).astype(np.int32)),
                "argmin": (lambda x: jnp.argmin(x, 1), np.argmin(wide, 1).astype(np.int32)),
                "sort": (lambda x: lax.sort(x, dimension=1), np.take_along_axis(x, rising, 1)),
                "argsort": (lambda x: jnp.argsort(x, 1), rising),
            }
            if edge != "nan":
                for k in sorted({1, min(2, size), size}):
                    places = falling[:, :k]
                    tasks[f"top {k}"] = (
                        lambda x, k=k: lax.top_k(x, k),
                        (np.take_along_axis(x, places, 1), places),
                    )
            for task, (function, right) in tasks.items():
                name = f"{task} of rows of {size} {np.dtype(kind).name} with {edge} at each place"
                members[name] = (lambda *a, f=function, at=at: f(a[at]), right)
        hold(line, grid, members, *arrays)


def _long_counts(line, grid):
    """Sums, means and other counts of long rows of halves, whose exact answers are numbers of the same type."""
    n = line.size
    for kind, size in itertools.product((jnp.bfloat16, np.float16), (512, 4096)):
        name, rows = np.dtype(kind).name, 2 * n
        ones = np.ones((rows, size))
        gaps = ones.copy()
        gaps[:, size // 4 : size // 2] = np.nan
        gaps[:, : size // 4] = 2  # three quarters: (2 + 1 + 1) / 3
        flips = np.where(mixed((rows, size), 2) == 1, 1.0, -1.0)
        flips[:, 1::2] = -flips[:, ::2]
        flips += 1  # 0 and 2 in equal parts
        some = np.zeros((rows, size))
        some[:, : 4 ** int(math.log2(size) / 2)] = 1
        full = np.ones(rows)
        answers: dict[str, tuple[Any, Any]] = {
            "sum": (lambda o, g, f, s: jnp.sum(o, 1), full * size),
            "sum of halves of it": (lambda o, g, f, s: jnp.sum(f, 1), full * size),
            "mean": (lambda o, g, f, s: jnp.mean(o, 1), full),
            "mean of 0 and 2": (lambda o, g, f, s: jnp.mean(f, 1), full),
            "nansum": (lambda o, g, f, s: jnp.nansum(g, 1), full * size),
            "nanmean": (lambda o, g, f, s: jnp.nanmean(jnp.where(g == 2, 1, g).astype(g.dtype), 1), full),
            "var": (lambda o, g, f, s: jnp.var(f, 1), full),
            "std": (lambda o, g, f, s: jnp.std(f, 1), full),
            "average": (lambda o, g, f, s: jnp.average(o, 1), full),
            "average with weights": (lambda o, g, f, s: jnp.average(f, 1, weights=o), full),
            "norm": (lambda o, g, f, s: jnp.linalg.norm(s, axis=1), np.sqrt(some.sum(1))),
            "norm of order 1": (lambda o, g, f, s: jnp.linalg.norm(s, 1, axis=1), some.sum(1)),
            "sum where": (lambda o, g, f, s: jnp.sum(o, 1, where=s > 0), some.sum(1)),
            "sum of columns": (lambda o, g, f, s: jnp.sum(o.reshape(-1, 2), 0), np.full(2, rows * size / 2)),
        }
        members: dict[str, Any] = {
            f"{what} of {size} {name}": (function, right.astype(kind))
            for what, (function, right) in answers.items()
            if (right.astype(kind).astype(np.float64) == right).all()
        }
        members[f"count_nonzero of {size} {name}"] = (
            lambda o, g, f, s: jnp.count_nonzero(f, 1),
            np.full(rows, size // 2, np.int32),
        )
        hold(line, grid, members, *(v.astype(kind) for v in (ones, gaps, flips, some)))


RULES_OF_NUMBERS: dict[str, Callable[..., None]] = {
    "windows": _windows_of(np.float32),
    "windows_of_int32": _windows_of(np.int32),
    "holes": _holes,
    "shifts": _shifts,
    "matrix_tangents": _matrix_tangents,
    "image_sizes": _sizes,
    "images": _images,
    "images_of_rows": _images_of_rows,
    "masked_slopes": _masked_slopes,
    "top_parts": _top_parts,
    "long_counts": _long_counts,
}
