# SPDX-License-Identifier: Apache-2.0
"""Found by the hunt: cumulative functions and scans."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import numpy as np
from jax import lax

from meshmark.core.layout import Spec
from meshmark.operations.base import Argument, Plan, Request, Result
from meshmark.operations.programs.found.base import Found, small


class ScanOfMaximum(Found):
    """`lax.associative_scan` of the maximum, of an argument or of the result of a scatter."""

    name = "scan_of_maximum"
    kinds = ("scattered", "plain")
    dtypes: ClassVar[tuple[str, ...]] = ("int32",)

    def plan(self, request: Request) -> Plan:
        argument = small(request, (request.mesh.size,), ())
        options = {"scattered": request.variant["kind"] == "scattered"}
        return Plan((argument,), (Result(argument.shape, request.dtype, (None,)),), options, judge="bits")

    @staticmethod
    def auto(x, *, scattered):
        if scattered:
            x = x.at[:].max(2)
        return lax.associative_scan(lax.max, x, reverse=True)

    @staticmethod
    def reference(x, *, scattered):
        x = np.maximum(x, 2) if scattered else x
        return np.maximum.accumulate(x[::-1])[::-1]


class CumulativePair(Found):
    """Two cumulative functions of one array along its sharded dimension, in one program."""

    name = "cumulative_pair"
    kinds = ("sum_product", "product_sum", "sum_maximum", "maximum_sum", "minimum_maximum")
    dtypes: ClassVar[tuple[str, ...]] = ("int32",)

    def plan(self, request: Request) -> Plan:
        spec: Spec = (request.mesh.names,)
        x = small(request, (2 * request.mesh.size,), spec)
        functions = tuple(request.variant["kind"].split("_"))
        return Plan(
            (x,), (Result(x.shape, request.dtype, spec),) * 2, {"functions": functions}, judge="exact"
        )

    @staticmethod
    def auto(x, *, functions):
        every = {"sum": lax.cumsum, "product": lax.cumprod, "maximum": lax.cummax, "minimum": lax.cummin}
        return tuple(every[name](x) for name in functions)

    @staticmethod
    def reference(x, *, functions):
        every = {"sum": np.add, "product": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
        return tuple(every[name].accumulate(x, dtype=x.dtype) for name in functions)


class CumulativePullback(Found):
    """The pullback of `lax.cummax` with one element per device of one mesh axis; the other axes are unused. The
    cotangent is replicated, or sharded like the array (`placed`)."""

    name = "cumulative_pullback"
    kinds = ("first", "last", "placed")
    rare = kinds
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        kind, mesh = request.variant["kind"], request.mesh
        axis = mesh.names[-1 if kind == "last" else 0]
        n = mesh.sizes[axis]
        cotangent = small(request, (n,), (axis,) if kind == "placed" else ())
        result = Result((n,), request.dtype, (None,))
        x = Argument((n,), request.dtype, (axis,), zigzag, {})
        return Plan((x, cotangent), (result,), {}, judge="exact")

    @staticmethod
    def auto(x, cotangent):
        return jax.vjp(lax.cummax, x)[1](cotangent)[0]

    @staticmethod
    def reference(x, cotangent):
        made = np.zeros_like(x)
        for i, y in enumerate(cotangent):
            made[np.argmax(x[: i + 1])] += y
        return made


def zigzag(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """1, -1, 3, -3, 5, ...: distinct numbers, because JAX does not specify how equal maxima share a cotangent."""
    index = index.astype(np.int64)
    return np.where(index % 2, -index, index + 1).astype(dtype)
