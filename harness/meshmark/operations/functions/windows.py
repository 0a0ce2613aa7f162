# SPDX-License-Identifier: Apache-2.0
"""Windows that cross shards: convolutions in one to three dimensions, and reductions over windows.

Inputs are small integers, so that every sum is exact. Strided convolutions once had wrong results (jax#16894).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.layout import Spec
from meshmark.operations.base import Argument, Request, Result
from meshmark.operations.functions.wholes import Form, WholeFunction
from meshmark.operations.placements.placement import spec_of

CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strided": {"stride": 2},
    "valid": {"padding": (0, 0)},
    "uneven": {"padding": (2, -1), "stride": 3},
    "transposed": {"lhs": 2, "padding": (1, 2)},
    "dilated": {"rhs": 3, "padding": (3, 3)},
    "grouped": {"groups": 2},
    "batch_grouped": {"batch_groups": 2},
    "flat": {"rank": 2},
    "flat_strided": {"rank": 2, "stride": 2, "padding": (0, 1)},
    "solid": {"rank": 3},
}
"""Convolutions by name: stride, padding, dilations of the input (lhs) and the kernel (rhs), groups, dimensions. What is
missing is one; the padding then keeps the size for a kernel of three."""


def dilated(x: np.ndarray, factor: int) -> np.ndarray:
    """x with zeros between its elements, along every dimension from the third on."""
    shape = [*x.shape[:2], *((s - 1) * factor + 1 for s in x.shape[2:])]
    result = np.zeros(shape, x.dtype)
    result[(slice(None), slice(None), *(slice(None, None, factor) for _ in x.shape[2:]))] = x
    return result


def padded(x: np.ndarray, low: int, high: int) -> np.ndarray:
    """x with zeros before and after it, along every dimension from the third on. Negative padding removes elements."""
    ends = [(0, 0), (0, 0), *((max(low, 0), max(high, 0)) for _ in x.shape[2:])]
    x = np.pad(x, ends)
    cut = slice(max(-low, 0), min(high, 0) or None)
    return x[(slice(None), slice(None), *(cut for _ in x.shape[2:]))]


def taps(
    size: Sequence[int], kernel: Sequence[int], stride: int, rhs: int
) -> Iterator[tuple[tuple, tuple[slice, ...]]]:
    """For each position in the kernel, the slices of the padded input that it multiplies."""
    counts = [(s - (k - 1) * rhs - 1) // stride + 1 for s, k in zip(size, kernel, strict=True)]
    for place in itertools.product(*map(range, kernel)):
        yield (
            place,
            tuple(
                slice(p * rhs, p * rhs + (c - 1) * stride + 1, stride)
                for p, c in zip(place, counts, strict=True)
            ),
        )


def convolved(x, w, stride, padding, lhs, rhs):
    """The convolution of one group, [batch, in, ...] with [out, in, ...], as a sum over the positions of the kernel."""
    x = padded(dilated(x, lhs), *padding)
    total = 0
    for place, met in taps(x.shape[2:], w.shape[2:], stride, rhs):
        part = x[(slice(None), slice(None), *met)]
        total = total + np.einsum("ni...,oi->no...", part, w[(slice(None), slice(None), *place)])
    return total


class Convolution(WholeFunction):
    """`lax.conv_general_dilated` with stride, padding, dilation of input and kernel, feature and batch groups. The
    batch is sharded, and also the first spatial dimension, or the channels of input or output."""

    name = "convolution"
    family = "windows"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for kind in CONVOLUTIONS:
            yield 0, {"kind": kind, "sharded": "space"}
        yield 0, {"kind": "plain", "sharded": "in"}
        yield 0, {"kind": "strided", "sharded": "out"}

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def differentiable(self, options: Mapping[str, Any]) -> bool:
        return "grouped" not in options["kind"]

    def form(self, request: Request, x: Argument) -> Form:
        variant, n = request.variant, request.mesh.size
        given = CONVOLUTIONS[variant["kind"]]
        options = {
            "stride": given.get("stride", 1),
            "padding": given.get("padding", (1, 1)),
            "lhs": given.get("lhs", 1),
            "rhs": given.get("rhs", 1),
            "groups": given.get("groups", 1),
            "batch_groups": given.get("batch_groups", 1),
        }
        rank, sharded = given.get("rank", 1), variant["sharded"]
        channels = 4 if sharded == "space" else 2 * n
        space = (2 * n if sharded == "space" else 8, 5, 4)[:rank]
        batch, other = spec_of(variant["of"])
        place = {"space": 2, "in": 1, "out": 0}[sharded]
        spec: Spec = tuple(other if d == place and place else None for d in range(1, 2 + rank))
        small = (values.tokens, {"below": 5})
        image = Argument((2 * n, channels, *space), x.dtype, (batch, *spec), *small)
        kernel_spec = (other if sharded == "out" else None, other if sharded == "in" else None)
        kernel = Argument(
            (channels, channels // options["groups"], *(3,) * rank),
            x.dtype,
            (*kernel_spec, *(None,) * rank),
            *small,
        )
        sizes = [
            ((s - 1) * options["lhs"] + 1 + sum(options["padding"]) - 2 * options["rhs"] - 1)
            // options["stride"]
            + 1
            for s in space
        ]
        divides = sizes[0] % n == 0
        rows = 2 * n // options["batch_groups"]
        batch_kept = batch if options["batch_groups"] == 1 else None
        result = Result(
            (rows, channels, *sizes),
            x.dtype,
            (
                batch_kept,
                other if sharded == "out" else None,
                other if sharded == "space" and divides else None,
                *(None,) * (rank - 1),
            ),
        )
        mixed = (0,) if options["batch_groups"] > 1 else ()
        return Form(
            (image, kernel),
            (result,),
            options,
            mixed=((*mixed, 1, 2), (1,)),
            kept=((2,) if divides else (),),
            ruled=False,
            wrt=(0, 1),
            terms=1 << 16,
        )

    @staticmethod
    def whole(x, w, *, stride, padding, lhs, rhs, groups, batch_groups):
        rank = x.ndim - 2
        return lax.conv_general_dilated(
            x,
            w,
            (stride,) * rank,
            [padding] * rank,
            (lhs,) * rank,
            (rhs,) * rank,
            feature_group_count=groups,
            batch_group_count=batch_groups,
            precision="highest",
        )

    @staticmethod
    def reference(x, w, *, stride, padding, lhs, rhs, groups, batch_groups):
        parts = [
            convolved(a, b, stride, padding, lhs, rhs)
            for a, b in zip(
                np.split(x, groups, 1) if groups > 1 else np.split(x, batch_groups, 0),
                np.split(w, max(groups, batch_groups), 0),
                strict=True,
            )
        ]
        return np.concatenate(parts, axis=1)

    @staticmethod
    def gradient(x, w, g, *, stride, padding, lhs, rhs):
        wide = padded(dilated(x, lhs), *padding)
        dwide, dw = np.zeros_like(wide), np.zeros_like(w)
        for place, met in taps(wide.shape[2:], w.shape[2:], stride, rhs):
            at, tap = (slice(None), slice(None), *met), (slice(None), slice(None), *place)
            dwide[at] += np.einsum("no...,oi->ni...", g, w[tap])
            flat = wide[at].reshape(*wide.shape[:2], -1)
            dw[tap] = np.einsum("nok,nik->oi", g.reshape(*g.shape[:2], -1), flat)
        low, high = padding
        back = padded(dwide, -low, -high)
        return back[(slice(None), slice(None), *(slice(None, None, lhs) for _ in x.shape[2:]))], dw


WINDOWS: dict[str, dict[str, Any]] = {
    "pool": {"window": 2, "stride": 2},
    "overlap": {"window": 3, "padding": (1, 1)},
    "uneven": {"window": 5, "stride": 3, "padding": (2, 1)},
    "dilated": {"window": 3, "base": 2, "rhs": 2, "padding": (1, 1)},
}
"""Windows by name: size, stride, padding, dilation of the input (base) and of the window (rhs)."""


class ReduceWindow(WholeFunction):
    """`lax.reduce_window` with sums, maxima and minima along one dimension."""

    name = "reduce_window"
    family = "windows"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int32")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for kind in WINDOWS:
            for function in ("add", "max", "min"):
                yield 0 if function != "min" else 2, {"function": function, "kind": kind}

    def differentiable(self, options: Mapping[str, Any]) -> bool:
        return options["function"] == "add" or options["kind"] in ("pool", "overlap")

    def form(self, request: Request, x: Argument) -> Form:
        variant = request.variant
        dim, given = variant["dim"], WINDOWS[variant["kind"]]
        options = {
            "dim": dim,
            "function": variant["function"],
            "window": given["window"],
            "stride": given.get("stride", 1),
            "padding": given.get("padding", (0, 0)),
            "base": given.get("base", 1),
            "rhs": given.get("rhs", 1),
        }
        x = Argument(x.shape, x.dtype, x.spec, values.summands, {"terms": 64})
        reach = (options["window"] - 1) * options["rhs"] + 1
        size = ((x.shape[dim] - 1) * options["base"] + 1 + sum(options["padding"]) - reach) // options[
            "stride"
        ] + 1
        divides = size % request.mesh.size == 0
        shape = tuple(size if d == dim else s for d, s in enumerate(x.shape))
        spec = tuple(e if d != dim or divides else None for d, e in enumerate(x.spec))
        return Form(
            (x,),
            (Result(shape, x.dtype, spec),),
            options,
            mixed=((dim,),),
            kept=((dim,) if divides else (),),
            ruled=False,
            wrt=(0,),
        )

    @staticmethod
    def whole(x, *, dim, function, window, stride, padding, base, rhs):
        start = {"add": 0, "max": extreme(x.dtype, -1), "min": extreme(x.dtype, 1)}[function]
        along = [(n if d == dim else 1) for n in (window, stride, base, rhs) for d in range(2)]
        return lax.reduce_window(
            x,
            np.array(start, x.dtype),
            {"add": lax.add, "max": lax.max, "min": lax.min}[function],
            along[:2],
            along[2:4],
            [padding if d == dim else (0, 0) for d in range(2)],
            along[4:6],
            along[6:],
        )

    @staticmethod
    def reference(x, *, dim, function, window, stride, padding, base, rhs):
        rows = np.moveaxis(x, dim, 0)
        found = []
        for members in members_of(len(rows), window, stride, padding, base, rhs):
            if not members:
                found.append(np.full(rows.shape[1:], {"add": 0, "max": -np.inf, "min": np.inf}[function]))
            else:
                found.append(getattr(np, {"add": "sum"}.get(function, function))(rows[members], axis=0))
        return np.moveaxis(np.array(found), 0, dim)

    @staticmethod
    def gradient(x, g, *, dim, function, window, stride, padding, base, rhs):
        rows, seeds = np.moveaxis(x, dim, 0), np.moveaxis(g, dim, 0)
        result = np.zeros(rows.shape)
        lines = np.arange(rows.shape[1])
        for members, seed in zip(
            members_of(len(rows), window, stride, padding, base, rhs), seeds, strict=True
        ):
            if function == "add":
                result[members] += seed
            elif members:
                part = rows[members]
                best = part.argmax(axis=0) if function == "max" else part.argmin(axis=0)
                np.add.at(result, (np.array(members)[best], lines), seed)
        return np.moveaxis(result, 0, dim)


def extreme(dtype, sign):
    """The identity element of a maximum (sign -1) or a minimum (sign 1)."""
    if dtype.kind == "i":
        return np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min
    return sign * np.inf


def members_of(
    size: int, window: int, stride: int, padding: tuple[int, int], base: int, rhs: int
) -> list[list[int]]:
    """The indices of the input elements in each window."""
    wide = (size - 1) * base + 1
    reach = (window - 1) * rhs + 1
    starts = range(-padding[0], wide + padding[1] - reach + 1, stride)
    return [
        [(at // base) for at in range(start, start + reach, rhs) if 0 <= at < wide and at % base == 0]
        for start in starts
    ]
