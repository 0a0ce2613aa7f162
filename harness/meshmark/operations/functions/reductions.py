# SPDX-License-Identifier: Apache-2.0
"""Reductions and cumulative reductions of every kind, along sharded and unsharded dimensions and over the whole array.

Sums of integers are exact in any order, products are of powers of two, and the other functions compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.bounds import ARITHMETICS, Bounded
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.operations.base import Argument, Request, Result
from meshmark.operations.functions.cumulations import telescoping
from meshmark.operations.functions.wholes import Form, WholeFunction

SUMS = ("sum", "mean", "nansum", "count_nonzero", "nanmean")
EXTREMES = ("max", "min", "nanmax", "nanmin", "ptp", "argmax", "argmin", "nanargmax")
LOGIC = ("any", "all")


def powers(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """1 or -1. About one element in fifty is 2, -2, 1/2 or -1/2 instead, so that products stay near one."""
    pick = (bits >> np.uint64(20)) % np.uint64(100)
    sign = 1.0 - 2.0 * (bits >> np.uint64(63)).astype(np.float64)
    return (sign * np.where(pick == 0, 2.0, np.where(pick == 1, 0.5, 1.0))).astype(dtype)


def few(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """Zeros; about one element in a hundred is 1."""
    return ((bits >> np.uint64(20)) % np.uint64(97) == 0).astype(dtype)


def averaged(x: Any, axis: int | None) -> Any:
    """The mean. In a narrow dtype the derived bound of a sum of so many terms is useless. There the fills (summands, or
    `few` ones) make the sum exact in any order, so that only the division rounds."""
    if not isinstance(x, Bounded) or not x.arithmetic.u > ARITHMETICS["float32"].u:
        return x.mean(axis=axis)
    total = x.value.sum(axis=axis)
    return Bounded(total, np.zeros_like(total), x.arithmetic) / (x.value.size // total.size)


class Reduce(WholeFunction):
    """Sums, means, products, extremes, positions of extremes (of equal elements the first), `any` and `all`, along one
    dimension or over the whole array."""

    name = "reduce"
    family = "reductions"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for function in (*SUMS, "prod", *EXTREMES, *LOGIC):
            yield 0, {"function": function}
            yield 0 if function in ("sum", "max", "argmax") else 2, {"function": function, "ties": True}

    def dims(self) -> tuple[int | None, ...]:
        return (0, 1, None)

    def differentiable(self, options: Mapping[str, Any]) -> bool:
        return options["function"] in ("sum", "mean", "prod", "max", "min") and not options.get("ties")

    def form(self, request: Request, x: Argument) -> Form:
        variant, function = request.variant, request.variant["function"]
        dim = variant.get("dim")
        dims = (0, 1) if dim is None else (dim,)
        count = int(np.prod([x.shape[d] for d in dims]))
        kind = x.dtype
        fill: Any = values.distinct
        options: dict[str, Any] = {}
        if function in SUMS:
            fill, options = values.summands, {"terms": count}
            if 2 * count > 2 ** dtype_of(kind).digits:
                fill, options = few, {}
        elif function == "prod":
            fill = powers if dtype_of(kind).kind == "float" else few
        elif function in LOGIC:
            kind, fill = "bool", few
        if variant.get("ties") and function not in LOGIC:
            fill, options = few, {}
        x = Argument(x.shape, kind, x.spec, fill, options)
        result = kind
        if function in ("argmax", "argmin", "nanargmax", "count_nonzero"):
            result = "int32"
        if function in ("mean", "nanmean") and kind == "int32":
            result = "float32"
        shape = () if dim is None else (x.shape[1 - dim],)
        spec = () if dim is None else (x.spec[1 - dim],)
        whole_power = count & (count - 1) == 0
        return Form(
            (x,),
            (Result(shape, result, spec),),
            {"function": function, "dim": dim, "dtype": result},
            mixed=(dims,),
            kept=((),),
            judge="exact" if whole_power or function not in ("mean", "nanmean") else "bound",
            ruled=not (function == "prod" or (dim is None and "arg" in function)),
            wrt=(0,),
        )

    @staticmethod
    def whole(x, *, function, dim, dtype):
        return getattr(jnp, function)(x, axis=dim).astype(dtype)

    @staticmethod
    def reference(x, *, function, dim):
        if function in ("mean", "nanmean"):
            return averaged(x, dim)
        if function in ("argmax", "argmin", "nanargmax"):
            lines = x.reshape(-1) if dim is None else np.moveaxis(x, dim, 0)
            best = lines.min(axis=0) if function == "argmin" else lines.max(axis=0)
            return (lines == best).argmax(axis=0)
        return getattr(np, function)(x, axis=dim)

    @staticmethod
    def gradient(x, g, *, function, dim):
        g = g if dim is None else np.expand_dims(g, dim)
        if function == "sum":
            return np.broadcast_to(g, x.shape)
        if function == "mean":
            return np.broadcast_to(g / (x.size if dim is None else x.shape[dim]), x.shape)
        best = getattr(np, function)(x, axis=dim, keepdims=True)
        if function == "prod":
            return g * best / x
        ties = (x == best).sum(axis=dim, keepdims=True)
        return np.where(x == best, g / ties, 0)


class Cumulative(WholeFunction):
    """Cumulative sums, products, maxima and minima in both directions."""

    name = "cumulative"
    family = "reductions"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int32")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for function in ("cumsum", "cumprod", "cummax", "cummin"):
            yield 0, {"function": function, "reverse": True}
            yield 0 if function.startswith("cumm") else 2, {"function": function}

    def form(self, request: Request, x: Argument) -> Form:
        variant = request.variant
        dim, function = variant["dim"], variant["function"]
        fill: Any = values.distinct
        options: dict[str, Any] = {}
        if function == "cumsum":
            fill, options = values.summands, {"terms": x.shape[dim]}
        elif function == "cumprod":
            fill, options = few, {}
            if dtype_of(x.dtype).kind == "float":
                fill, options = telescoping, {"stride": x.shape[1] if dim == 0 else 1}
        x = Argument(x.shape, x.dtype, x.spec, fill, options)
        return Form(
            (x,),
            (Result(x.shape, x.dtype, x.spec),),
            {"function": function, "dim": dim, "reverse": variant.get("reverse", False)},
            mixed=((dim,),),
            kept=((dim,),),
            ruled=x.spec[dim] is None,
            wrt=(0,),
            terms=x.shape[dim],
        )

    def differentiable(self, options: Mapping[str, Any]) -> bool:
        return options["function"] != "cumprod"

    @staticmethod
    def whole(x, *, function, dim, reverse):
        return getattr(lax, function)(x, axis=dim, reverse=reverse)

    @staticmethod
    def reference(x, *, function, dim, reverse):
        running = {
            "cumsum": np.add,
            "cumprod": np.multiply,
            "cummax": np.maximum,
            "cummin": np.minimum,
        }[function]
        x = np.flip(x, dim) if reverse else x
        found = running.accumulate(x, axis=dim)
        return np.flip(found, dim) if reverse else found

    @staticmethod
    def gradient(x, g, *, function, dim, reverse):
        rows = np.moveaxis(np.flip(x, dim) if reverse else x, dim, 0)
        seeds = np.moveaxis(np.flip(g, dim) if reverse else g, dim, 0)
        result = np.zeros(rows.shape)
        if function == "cumsum":
            result = np.flip(np.cumsum(np.flip(seeds, 0), axis=0), 0)
        else:
            lines = np.arange(rows.shape[1])
            best = np.zeros(rows.shape[1], int)
            for i, row in enumerate(rows):
                newer = row > rows[best, lines] if function == "cummax" else row < rows[best, lines]
                best = np.where(newer, i, best)
                np.add.at(result, (best, lines), seeds[i])
        result = np.moveaxis(result, 0, dim)
        return np.flip(result, dim) if reverse else result


class Normalise(WholeFunction):
    """Functions with rounded reductions along a dimension: softmax, log-softmax, log-sum-exp, variance, layer norm and
    RMS norm."""

    name = "normalise"
    family = "reductions"
    one_mode = True
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for function in ("softmax", "log_softmax", "logsumexp", "var", "layer_norm", "rms_norm"):
            yield 0, {"function": function}

    def form(self, request: Request, x: Argument) -> Form:
        dim, function = request.variant["dim"], request.variant["function"]
        x = Argument(x.shape, x.dtype, x.spec, values.uniform)
        same = Result(x.shape, x.dtype, x.spec)
        less = Result((x.shape[1 - dim],), x.dtype, (x.spec[1 - dim],))
        smaller = function in ("logsumexp", "var")
        return Form(
            (x,),
            (less if smaller else same,),
            {"function": function, "dim": dim},
            mixed=((dim,),),
            kept=(() if smaller else (dim,),),
            judge="bound",
            ruled=True,
            wrt=(0,),
        )

    def rarely(self, options: Mapping[str, Any]) -> bool:
        """Whether the standard profile leaves out the gradient. It has those of softmax and layer norm; the others are
        parts of other operations: cross entropy, decoders and layers."""
        return options["function"] not in ("softmax", "layer_norm")

    @staticmethod
    def whole(x, *, function, dim):
        if function == "layer_norm":
            return jax.nn.standardize(x, axis=dim, epsilon=0.0625)
        if function == "rms_norm":
            return x / jnp.sqrt(jnp.mean(x * x, axis=dim, keepdims=True) + 0.0625)
        if function == "var":
            return jnp.var(x, axis=dim)
        return getattr(jax.nn, function)(x, axis=dim)

    @staticmethod
    def reference(x, *, function, dim):
        if function in ("var", "layer_norm"):
            middle = x - x.mean(axis=dim, keepdims=True)
            spread = (middle * middle).mean(axis=dim, keepdims=True)
            if function == "var":
                return (middle * middle).mean(axis=dim)
            return middle / np.sqrt(spread + 0.0625)
        if function == "rms_norm":
            return x / np.sqrt((x * x).mean(axis=dim, keepdims=True) + 0.0625)
        largest = x.max(axis=dim, keepdims=True)
        powers_ = np.exp(x - largest)
        total = powers_.sum(axis=dim, keepdims=True)
        if function == "softmax":
            return powers_ / total
        if function == "log_softmax":
            return x - largest - np.log(total)
        return (np.log(total) + largest).sum(axis=dim)

    @staticmethod
    def gradient(x, g, *, function, dim):
        n = x.shape[dim]
        if function in ("logsumexp", "var"):
            g = np.expand_dims(g, dim)
        if function in ("var", "layer_norm", "rms_norm"):
            middle = x if function == "rms_norm" else x - x.mean(axis=dim, keepdims=True)
            if function == "var":
                return middle * g * (2 / n)
            spread = np.sqrt((middle * middle).mean(axis=dim, keepdims=True) + 0.0625)
            y = middle / spread
            back = g - y * (g * y).mean(axis=dim, keepdims=True)
            return (back if function == "rms_norm" else back - g.mean(axis=dim, keepdims=True)) / spread
        powers_ = np.exp(x - x.max(axis=dim, keepdims=True))
        p = powers_ / powers_.sum(axis=dim, keepdims=True)
        if function == "softmax":
            return p * (g - (p * g).sum(axis=dim, keepdims=True))
        return p * g if function == "logsumexp" else g - p * g.sum(axis=dim, keepdims=True)
