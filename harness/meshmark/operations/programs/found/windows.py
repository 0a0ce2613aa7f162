# SPDX-License-Identifier: Apache-2.0
"""Found by the hunt: windows of arrays."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.layout import Spec
from meshmark.operations.base import Argument, Plan, Request, Result
from meshmark.operations.models.programs import constrained
from meshmark.operations.programs.found.base import Found, small


class WindowGather(Found):
    """`lax.gather` of windows that span a whole sharded dimension."""

    name = "window_gather"
    kinds = ("whole",)
    axes = 2

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        first, second = mesh.names[:2]
        n, m = mesh.sizes[first], mesh.sizes[second]
        rows = window = 2 * n
        starts = Argument((n, 1), "int32", (first,), values.tokens, {"below": rows})
        table = small(request, (rows, m, 1), (first,))
        result = Result((window, n, m, 1), request.dtype, (None, None, second))
        return Plan((starts, table), (result,), {"window": window}, judge="bits")

    @staticmethod
    def auto(starts, table, *, window):
        numbers = lax.GatherDimensionNumbers(
            offset_dims=(0, 2, 3), collapsed_slice_dims=(), start_index_map=(0,)
        )
        return lax.gather(table, starts, numbers, (window, *table.shape[1:]))

    @staticmethod
    def reference(starts, table, *, window):
        firsts = np.clip(starts[:, 0].astype(int), 0, len(table) - window)
        return np.stack([table[first : first + window] for first in firsts], axis=1)


NEUTRAL = {"sum": 0.0, "product": 1.0, "maximum": -np.inf, "minimum": np.inf}
"""The number that changes no result of a reduction."""


class WindowPair(Found):
    """Two reductions of one array over windows that overlap along its sharded dimension, in one program: of three
    elements each, or the largest and the sum of each 3 x 3 pixels of an image, as networks pool."""

    name = "window_pair"
    kinds = ("maximum_sum", "sum_product", "minimum_maximum", "pools")
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        kind, every = request.variant["kind"], request.mesh.names
        shape: tuple[int, ...] = (2 * request.mesh.size,)
        spec: Spec = (every,)
        window: tuple[int, ...] = (3,)
        if kind == "pools":
            kind, shape, spec, window = "maximum_sum", (2, *shape, 4, 2), (None, every), (1, 3, 3, 1)
        x = small(request, shape, spec)
        options = {"functions": tuple(kind.split("_")), "window": window}
        return Plan((x,), (Result(shape, request.dtype, spec),) * 2, options, judge="exact")

    @staticmethod
    def auto(x, *, functions, window):
        every = {"sum": lax.add, "product": lax.mul, "maximum": lax.max, "minimum": lax.min}
        return tuple(
            lax.reduce_window(x, NEUTRAL[name], every[name], window, (1,) * x.ndim, "SAME")
            for name in functions
        )

    @staticmethod
    def reference(x, *, functions, window):
        every = {"sum": np.sum, "product": np.prod, "maximum": np.max, "minimum": np.min}
        found = []
        for name in functions:
            padded = np.pad(x, [(n // 2, n // 2) for n in window], constant_values=NEUTRAL[name])
            windows = np.lib.stride_tricks.sliding_window_view(padded, window)
            found.append(every[name](windows, axis=tuple(range(x.ndim, 2 * x.ndim))))
        return tuple(found)


class WindowMaximaTangent(Found):
    """The tangent of maxima over windows of one element. The tangent is sharded or replicated; the result is
    replicated."""

    name = "window_maxima_tangent"
    kinds = ("sharded", "whole")
    rare = ("sharded",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        shape = (2 * mesh.size,)
        place: Spec = () if request.variant["kind"] == "whole" else (mesh.names,)
        arguments = (small(request, shape, ()), small(request, shape, place))
        return Plan(arguments, (Result(shape, request.dtype, (None,)),), {}, judge="exact")

    @staticmethod
    def auto(x, tangent):
        def maxima(v):
            return constrained(lax.reduce_window(v, -jnp.inf, lax.max, (1,), (1,), "VALID"), None)

        return jax.jvp(maxima, (x,), (tangent,))[1]

    @staticmethod
    def reference(x, tangent):
        return tangent


class RowConvolution(Found):
    """A convolution along a dimension that is sharded over the last of several mesh axes.

    given, held, padded: by a kernel that is longer than the result; an argument, or numbers that the program holds.
    sharded: by a kernel of three numbers that is a part of a sharded vector.
    polynomials: `jnp.polymul` of parts of two sharded vectors."""

    name = "row_convolution"
    kinds = ("given", "held", "padded", "sharded", "polynomials")
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    axes = 2

    def plan(self, request: Request) -> Plan:
        kind, size = request.variant["kind"], 2 * max(request.mesh.size, 2)
        spec: Spec = (request.mesh.names[-1],)
        length = {"sharded": 3, "polynomials": 2}.get(kind, 3 * size // 4)
        pad = max(size // 8, 1) if kind == "padded" else 0
        kernel: tuple[Argument, ...] = ()
        if kind == "given":
            kernel = (small(request, (length,), ()),)
        elif kind in ("sharded", "polynomials"):
            kernel = (small(request, (size,), spec),)
        count = 4 if kind == "polynomials" else size + 2 * pad - length + 1
        options = {"kind": kind, "length": length, "pad": pad}
        arguments = (small(request, (size,), spec), *kernel)
        return Plan(arguments, (Result((count,), request.dtype, (None,)),), options, judge="exact")

    @staticmethod
    def auto(x, *kernel, kind, length, pad):
        weights = kernel[0][:length] if kernel else jnp.arange(length, dtype=x.dtype) % 4
        if kind == "polynomials":
            return constrained(jnp.polymul(x[:3], weights), None)
        return constrained(jnp.convolve(jnp.pad(x, (pad, pad)), weights, "valid", precision="highest"), None)

    @staticmethod
    def reference(x, *kernel, kind, length, pad):
        weights = kernel[0][:length] if kernel else np.arange(length, dtype=x.dtype) % 4
        if kind == "polynomials":
            return np.convolve(x[:3], weights)
        return np.convolve(np.pad(x, (pad, pad)), weights, "valid")
