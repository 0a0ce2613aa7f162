# SPDX-License-Identifier: Apache-2.0
"""Cumulative sums and products, and associative scans, along a sharded dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.operations.base import Argument, Request, Traffic, nbytes
from meshmark.operations.collective_base import SUMMED, groups_of
from meshmark.operations.functions.arrays import ArrayOperation


def after_blocks(combine, identity, x, axes, n, dim):
    """The combined last elements of all earlier devices' scanned blocks. `combine` is jnp.sum or jnp.prod."""
    ends = lax.all_gather(lax.slice_in_dim(x, -1, None, axis=dim), axes, axis=dim, tiled=True)
    before = jnp.arange(n) < lax.axis_index(axes)
    ends = jnp.where(jnp.expand_dims(before, 1 - dim), ends, jnp.full_like(ends, identity))
    return combine(ends, axis=dim, keepdims=True, dtype=x.dtype)


class Scan(ArrayOperation):
    """The base of running reductions along a dimension (wrong before jaxlib 0.4.29, jax#21403)."""

    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma", "pmap", "pjit")

    def traffic(self, request: Request, x: Argument, options: Mapping[str, Any]) -> tuple[Traffic, ...]:
        n = options["n"]
        payload = nbytes(x, request.mesh) // (x.shape[options["dim"]] // n) * n
        groups = groups_of(request.mesh.sizes, options["axes"])
        return (Traffic("all-gather", payload, tuple(groups)),) if n > 1 else ()


def steps(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, stride: int
) -> np.ndarray:
    """Differences h(i + 1) - h(i) of random integers h. Element i + 1 is the next one along the dimension with this
    stride. The sum of any number of consecutive elements is exact, because it is h(end) - h(start)."""
    room = np.uint64(64 - values.digits_of(dtype) + (values.kind_of(dtype) in "iu"))
    here = (values.random_bits(5, index) >> room).astype(np.int64)
    after = (values.random_bits(5, index + np.uint64(stride)) >> room).astype(np.int64)
    return (after - here).astype(dtype)


class Cumsum(Scan):
    """Running sum along a dimension."""

    name = "cumsum"
    fills: ClassVar[tuple[str, ...]] = SUMMED

    def arguments(self, request: Request, x: Argument) -> tuple[Argument, ...]:
        terms = x.shape[request.variant["dim"]]
        if values.digits_of(dtype_of(x.dtype).numpy) <= max(terms - 1, 0).bit_length():
            if request.variant.get("fill"):  # special values break the cancellation of the steps
                return (Argument(x.shape, x.dtype, x.spec, values.tokens, {"below": 2}),)
            stride = x.shape[1] if request.variant["dim"] == 0 else 1
            return (Argument(x.shape, x.dtype, x.spec, steps, {"stride": stride}),)
        return (Argument(x.shape, x.dtype, x.spec, values.summands, {"terms": terms}),)

    @staticmethod
    def auto(x, *, dim):
        return jnp.cumsum(x, axis=dim)

    @staticmethod
    def explicit(x, *, dim, axes, out_spec):
        if not axes:
            return jnp.cumsum(x, axis=dim)
        return auto_axes(lambda y: jnp.cumsum(y, axis=dim), out_sharding=P(*out_spec))(x)

    @staticmethod
    def manual(x, *, dim, axes, n):
        x = jnp.cumsum(x, axis=dim)
        return x + after_blocks(jnp.sum, 0, x, axes, n, dim) if axes else x

    @staticmethod
    def reference(x, *, dim):
        return np.cumsum(x, axis=dim)


def telescoping(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, stride: int
) -> np.ndarray:
    """Signed powers of two, +-2**(h(i + 1) - h(i)), with h random from 0 to 7. Element i + 1 is the next one along the
    dimension with this stride. Any product of consecutive elements is exact, with an exponent from -7 to 7."""
    here = values.random_bits(5, index) & np.uint64(7)
    after = values.random_bits(5, index + np.uint64(stride)) & np.uint64(7)
    sign = 1.0 - 2.0 * (bits >> np.uint64(63)).astype(np.float64)
    return np.ldexp(sign, after.astype(np.int64) - here.astype(np.int64)).astype(dtype)


class Cumprod(Scan):
    """Running product of powers of two along a dimension."""

    name = "cumprod"
    fills: ClassVar[tuple[str, ...]] = ("nan", "nan-one", "nan-first", "nan-last", "inf-one", "zeros")
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16")
    distance = 1

    def arguments(self, request: Request, x: Argument) -> tuple[Argument, ...]:
        stride = x.shape[1] if request.variant["dim"] == 0 else 1
        return (Argument(x.shape, x.dtype, x.spec, telescoping, {"stride": stride}),)

    @staticmethod
    def auto(x, *, dim):
        return jnp.cumprod(x, axis=dim)

    @staticmethod
    def explicit(x, *, dim, axes, out_spec):
        if not axes:
            return jnp.cumprod(x, axis=dim)
        return auto_axes(lambda y: jnp.cumprod(y, axis=dim), out_sharding=P(*out_spec))(x)

    @staticmethod
    def manual(x, *, dim, axes, n):
        x = jnp.cumprod(x, axis=dim)
        return x * after_blocks(jnp.prod, 1, x, axes, n, dim) if axes else x

    @staticmethod
    def reference(x, *, dim):
        return np.cumprod(x, axis=dim)


class AssociativeScan(Cumsum):
    """`lax.associative_scan` with addition."""

    name = "associative_scan"
    distance = 2
    modes = ("auto", "explicit", "pjit")

    @staticmethod
    def auto(x, *, dim):
        return lax.associative_scan(jnp.add, x, axis=dim)

    @staticmethod
    def explicit(x, *, dim, axes, out_spec):
        if not axes:
            return lax.associative_scan(jnp.add, x, axis=dim)
        scan = auto_axes(lambda y: lax.associative_scan(jnp.add, y, axis=dim), out_sharding=P(*out_spec))
        return scan(x)
