# SPDX-License-Identifier: Apache-2.0
"""Small rules of calls that JAX must refuse, on cut arrays: shapes, products, indices, loops and derivatives.

As those of `small_rules.bad_calls`, they were found by the lines of JAX that no case executed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.bad_calls import refuse_all


def _cut(line: Any) -> tuple[Any, Any, Any]:
    """(a vector of 2 n, a matrix of 2 n rows and 6 columns, 2 n whole numbers), cut over the line of n devices."""
    n = 2 * line.size
    return (
        placed(line, np.ones(n, np.float32), "d"),
        placed(line, np.ones((n, 6), np.float32), "d"),
        placed(line, np.arange(n, dtype=np.int32), "d"),
    )


def _bad_shapes(line, grid):
    """Functions that move or combine elements, of shapes, dtypes and dimensions that don't fit."""
    v, m, i = _cut(line)
    n = 2 * line.size
    short, zero = np.ones(n + 1, np.float32), np.float32(0)
    empty = jnp.ones((0, 2))
    refuse_all(
        {
            "nothing concatenated": ("non-empty sequence", lambda: lax.concatenate([], 0)),
            "two ranks concatenated": ("different numbers of dimensions", lambda: lax.concatenate([m, v], 0)),
            "other sizes concatenated": (
                "dimensions other than the one",
                lambda: lax.concatenate([m, m[:, :5]], 0),
            ),
            "other sizes stacked": (
                "same shape|must have the same shape|dimensions other",
                lambda: jnp.stack([m, m[:, :5]]),
            ),
            "a broadcast to another size": (
                "sizes must either",
                lambda: lax.broadcast_in_dim(m, (n, 7), (0, 1)),
            ),
            "a sum of two shapes": ("incompatible shapes", lambda: lax.add(m, jnp.ones((n, 5)))),
            "a sum of two ranks": ("same number of dimensions", lambda: lax.add(m, v)),
            "a sum of two dtypes": ("the same dtypes", lambda: lax.add(v, i)),
            "a choice among nothing": ("at least one case", lambda: lax.select_n(v > 0)),
            "a choice among two shapes": ("the same shapes", lambda: lax.select_n(v > 0, v, short)),
            "a choice by other elements": ("`which` must be scalar", lambda: lax.select(short > 0, v, v)),
            "a choice by floats": ("must be boolean or integer", lambda: lax.select(v, v, v)),
            "limits of another shape": ("min.shape == operand.shape", lambda: lax.clamp(short, v, v)),
            "a sort by too many keys": ("must be between 1", lambda: lax.sort((v, v), num_keys=3)),
            "a sort of nothing": ("at least one operand", lambda: lax.sort(())),
            "a sort of two shapes": ("equal shapes", lambda: lax.sort((v, short))),
            "a sort along no dimension": ("out of bounds", lambda: lax.sort(v, dimension=1)),
            "the largest -1": ("must be nonnegative", lambda: lax.top_k(v, -1)),
            "more of the largest than there are": ("no larger than size", lambda: lax.top_k(v, n + 1)),
            "the largest complex numbers": ("complex", lambda: lax.top_k(v.astype(np.complex64), 1)),
            "a new dimension twice": ("repeated axis", lambda: lax.expand_dims(v, (0, 0))),
            "a dimension of six elements left out": ("not equal to one", lambda: lax.squeeze(m, (1,))),
            "a reshape to a negative size": ("must all be positive", lambda: lax.reshape(m, (-1, 5))),
            "a transpose of one dimension twice": ("permutation", lambda: lax.transpose(m, (0, 0))),
            "a dimension turned twice": ("must be unique", lambda: lax.rev(m, (0, 0))),
            "no dimension turned": ("less than operand ndim", lambda: lax.rev(m, (2,))),
            "padding of fewer dimensions": (
                "must equal the number of axes",
                lambda: lax.pad(m, zero, ((0, 0, 0),)),
            ),
            "padding that takes more than there is": (
                "not at least 0",
                lambda: lax.pad(m, zero, ((0, 0, 0), (-9, 0, 0))),
            ),
            "negative padding inside": (
                "must be nonnegative",
                lambda: lax.pad(m, zero, ((0, 0, -1), (0, 0, 0))),
            ),
            "padding of another dtype": (
                "same dtype",
                lambda: lax.pad(m, np.int32(0), ((0, 0, 0), (0, 0, 0))),
            ),
            "a dimension summed twice": ("duplicate value", lambda: lax.reduce(m, zero, lax.add, (0, 0))),
            "no dimension summed": ("out-of-bounds", lambda: lax.reduce(m, zero, lax.add, (2,))),
            "the place of the largest along no dimension": (
                "Invalid axis",
                lambda: lax.argmax(m, 2, np.int32),
            ),
            "a float as the place of the largest": ("integer type", lambda: lax.argmax(m, 0, np.float32)),
            "the place of the largest of nothing": ("non-empty", lambda: lax.argmax(empty, 0, np.int32)),
            "running sums along no dimension": ("out of bounds", lambda: lax.cumsum(m, 2)),
            "three bytes as words": (
                "Attempting to convert",
                lambda: lax.bitcast_convert_type(jnp.ones(3, np.int8), np.int32),
            ),
            "truth values as bytes": (
                "does not support bool",
                lambda: lax.bitcast_convert_type(v > 0, np.int8),
            ),
            "indices along no dimension": (
                "must be between 0",
                lambda: lax.broadcasted_iota(np.int32, (3,), 1),
            ),
            "truth values in order": ("does not accept dtype", lambda: lax.iota(bool, 3)),
            "dimensions joined backwards": ("Invalid dimension range", lambda: lax.collapse(m, 1, 0)),
            "an array as a fill value": ("scalar fill_value", lambda: lax.full((2,), v)),
            "a negative length": ("nonnegative", lambda: lax.full((-2,), 0)),
        }
    )


def _bad_products(line, grid):
    """Products, convolutions, windows and transforms of shapes, dimensions and options that don't fit."""
    v, m, _ = _cut(line)
    n = 2 * line.size
    images = placed(line, np.ones((n, 4, 8, 8), np.float32), "d")
    kernel, ones = np.ones((8, 4, 3, 3), np.float32), np.ones((n + 1, 6), np.float32)
    zero = np.float32(0)

    def product(a: Any, b: Any, contracted: Any, batch: Any = ((), ())) -> Callable[[], Any]:
        return lambda: lax.dot_general(a, b, (contracted, batch))

    def convolved(k: Any, **options: Any) -> Callable[[], Any]:
        given = {"window_strides": (1, 1), "padding": "SAME"} | options
        return lambda: lax.conv_general_dilated(images, k, **given)

    def windows(size: Any = (2, 2), strides: Any = (1, 1), start: Any = zero) -> Callable[[], Any]:
        return lambda: lax.reduce_window(m, start, lax.add, size, strides, "VALID")

    refuse_all(
        {
            "a product over two sizes": ("the same shape", product(m, m[:, :5], ((1,), (1,)))),
            "a product over no dimension": ("less than the number of axes", product(m, m, ((2,), (2,)))),
            "a product over one dimension twice": (
                "to be distinct",
                product(m, m, ((1, 1), (1, 1))),
            ),
            "a product over a dimension of the batch": (
                "disjoint",
                product(m, m, ((1,), (1,)), ((1,), (1,))),
            ),
            "a product of two batches": ("the same shape", product(m, ones, ((1,), (1,)), ((0,), (0,)))),
            "a product of two numbers of batches": (
                "equal numbers of",
                product(m, m, ((), ()), ((0, 1), (0,))),
            ),
            "a product of three dimensions without a word": (
                "must be specified",
                lambda: lax.dot(jnp.ones((2, 2, 2)), jnp.ones((2, 2, 2))),
            ),
            "a batch of products of vectors": ("at least 2D", lambda: lax.batch_matmul(v, v)),
            "a sum over no letter": ("did not appear", lambda: jnp.einsum("ij,kl->iq", m, m)),
            "more groups than matrices": (
                "group dimension size",
                lambda: lax.ragged_dot(m, jnp.ones((2, 6, 3)), jnp.ones(3, np.int32)),
            ),
            "groups of a half": (
                "integer",
                lambda: lax.ragged_dot(m, jnp.ones((2, 6, 3)), jnp.ones(2)),
            ),
            "a solution of another size": (
                "inconsistent size|shape",
                lambda: jnp.linalg.solve(jnp.ones((3, 3)), v),
            ),
            "a kernel of another rank": ("ndim to be equal", convolved(kernel[0])),
            "a kernel of other features": ("input feature dimension", convolved(kernel[:, :3])),
            "groups that don't divide the features": (
                "must divide lhs feature",
                convolved(kernel[:, :2], feature_group_count=3),
            ),
            "groups that don't divide the results": (
                "must be a multiple",
                convolved(kernel[:7, :2], feature_group_count=2),
            ),
            "no group of features": ("positive integer", convolved(kernel, feature_group_count=0)),
            "groups that don't divide the batch": (
                "must divide lhs batch",
                convolved(kernel, batch_group_count=n + 1),
            ),
            "groups of features and of the batch": (
                "At most one of",
                convolved(kernel[:, :2], batch_group_count=2, feature_group_count=2),
            ),
            "one stride of two": ("same number of dimensions", convolved(kernel, window_strides=(1,))),
            "padding of one dimension of two": ("explicit pads", convolved(kernel, padding=((0, 0),))),
            "padding by an unknown word": ("Unrecognized padding", convolved(kernel, padding="AROUND")),
            "a letter twice": (
                "duplicate characters",
                convolved(kernel, dimension_numbers=("NCHH", "OIHW", "NCHW")),
            ),
            "a kernel of integers": ("the same dtypes", convolved(kernel.astype(np.int32))),
            "windows of another rank": ("wrong number of window_dimensions", windows((2,))),
            "windows with one stride": ("inconsistent window_strides", windows(strides=(1,))),
            "windows that start with an array": ("to be scalars", windows(start=v)),
            "no kind of Fourier transform": ("Unknown FFT type", lambda: lax.fft(v, "XFT", (n,))),
            "a real transform of complex numbers": (
                "only real valued",
                lambda: jnp.fft.rfft(v.astype(np.complex64)),
            ),
            "a transform of another length": (
                "must be equal to fft_lengths",
                lambda: lax.fft(v.astype(np.complex64), "FFT", (n + 1,)),
            ),
        }
    )


def _bad_indices(line, grid):
    """Slices, updates, gathers and scatters past an array, of other ranks and dtypes, or unknown before the run."""
    v, m, i = _cut(line)
    n = 2 * line.size
    one = jnp.zeros((1, 1), np.int32)
    rows = ((1,), (0,), (0,))

    def gathered(dims: Any = rows, sizes: Any = (1, 6), by: Any = one, **options: Any) -> Callable[[], Any]:
        return lambda: lax.gather(m, by, lax.GatherDimensionNumbers(*dims), sizes, **options)

    def scattered(updates: Any, dims: Any = rows) -> Callable[[], Any]:
        return lambda: lax.scatter(m, one, updates, lax.ScatterDimensionNumbers(*dims))

    refuse_all(
        {
            "a slice past the end": ("less than or equal to operand", lambda: lax.slice(v, (0,), (n + 1,))),
            "a slice backwards": ("greater than or equal to zero", lambda: lax.slice(v, (1,), (0,))),
            "a larger slice": ("less than or equal to operand", lambda: lax.dynamic_slice(v, (0,), (n + 1,))),
            "a slice of one dimension of two": ("must match", lambda: lax.dynamic_slice(m, (0,), (2, 2))),
            "a slice from a half": ("must be integers", lambda: lax.dynamic_slice(v, (np.float32(0),), (2,))),
            "a larger update": (
                "must be smaller than operand",
                lambda: lax.dynamic_update_slice(v, jnp.ones(n + 1), (0,)),
            ),
            "an update of another rank": ("same rank", lambda: lax.dynamic_update_slice(m, v, (0, 0))),
            "an update of another dtype": (
                "the same dtypes",
                lambda: lax.dynamic_update_slice(v, i[:2], (0,)),
            ),
            "three indices of two dimensions": ("Too many indices", lambda: m[0, 0, 0]),
            "a half as an index": ("integer or boolean type", lambda: m[1.5]),
            "a list as an index": ("non-tuple sequence", lambda: m[[0, 1]]),
            "a longer mask": ("did not match", lambda: m[np.ones(n + 1, bool)]),
            "a mask that is not known": ("must be concrete", lambda: jax.jit(lambda a, b: a[b])(v, v > 0)),
            "a slice that is not known": ("must (have|be) static", lambda: jax.jit(lambda a, b: a[:b])(v, 1)),
            "an element that is set": ("immutable", lambda: v.__setitem__(0, 1)),
            "a longer row": (
                "Incompatible (types|shapes) for broadcasting",
                lambda: m.at[0].set(jnp.ones(5)),
            ),
            "elements by an unknown mode": ("Invalid mode", lambda: jnp.take(v, i, mode="around")),
            "elements along another rank": (
                "same number of dimensions",
                lambda: jnp.take_along_axis(m, i, 0),
            ),
            "elements by floats": ("must be of integer type", lambda: jnp.take_along_axis(v, v, 0)),
            "segments by floats": (
                "integer or boolean type",
                lambda: jax.ops.segment_sum(v, v, num_segments=3),
            ),
            "a gather along no dimension": ("Invalid start_index_map", gathered(((0,), (0,), (3,)))),
            "a gather of larger parts": ("out of range", gathered(sizes=(1, 7))),
            "a gather by floats": ("integer type", gathered(by=jnp.zeros((1, 1)))),
            "a gather by an unknown mode": ("Unknown gather mode", gathered(mode="around")),
            "a scatter of larger parts": ("must not exceed the bounds", scattered(jnp.ones((1, 7)))),
            "a scatter along no dimension": (
                "Invalid scatter_dims",
                scattered(jnp.ones((1, 6)), ((1,), (0,), (4,))),
            ),
            "a search from the middle": (
                "invalid argument side",
                lambda: jnp.searchsorted(v, v, side="middle"),
            ),
            "repeats that are not known": (
                "concrete value is expected",
                lambda: jax.jit(lambda r: jnp.repeat(v, r))(i),
            ),
            "different elements of an unknown number": (
                "concrete value is expected",
                lambda: jax.jit(jnp.unique)(v),
            ),
            "other elements than zero of an unknown number": (
                "concrete value is expected",
                lambda: jax.jit(jnp.nonzero)(v),
            ),
            "an uneven split": ("equal division", lambda: jnp.split(v, n - 1 if n > 2 else 3)),
        }
    )


def _bad_loops(line, grid):
    """Loops and branches whose carry, bounds, conditions and results don't fit."""
    v, _m, i = _cut(line)
    longer = jnp.ones((2 * line.size + 1, 2))
    zero = np.float32(0)

    def same(a: Any) -> Any:
        return a

    def step(c: Any, x: Any) -> Any:
        return c, x

    refuse_all(
        {
            "a scan over two lengths": ("different leading axis", lambda: lax.scan(step, zero, (v, longer))),
            "a scan of another length": ("disagrees with", lambda: lax.scan(step, zero, v, length=1)),
            "a scan over nothing": ("`length` not provided", lambda: lax.scan(step, zero, None)),
            "a carry of another dtype": (
                "carry output must have equal types",
                lambda: lax.scan(lambda c, x: (c.astype(np.int32), x), zero, v),
            ),
            "a carry of another tree": (
                "same pytree structure",
                lambda: lax.scan(lambda c, x: ((c, c), x), zero, v),
            ),
            "a step without a result": ("must be a pair", lambda: lax.scan(lambda c, x: c, zero, v)),
            "a negative number of steps at once": (
                "non-negative",
                lambda: lax.scan(step, zero, v, unroll=-1),
            ),
            "a number in place of a step": ("should be a callable", lambda: lax.scan(3, zero, v)),
            "a condition of two values": (
                "boolean scalar",
                lambda: lax.while_loop(lambda c: jnp.ones(2, bool), same, zero),
            ),
            "a condition of a float": ("boolean scalar", lambda: lax.while_loop(same, same, zero)),
            "two conditions": (
                "boolean scalar",
                lambda: lax.while_loop(lambda c: (c < 1, c < 1), same, zero),
            ),
            "a body that loses a value": (
                "same pytree structure",
                lambda: lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0],), (zero, zero)),
            ),
            "a body of another dtype": (
                "equal types",
                lambda: lax.while_loop(lambda c: c < 1, lambda c: jnp.int32(c), zero),
            ),
            "the gradient of a loop of unknown length": (
                "Reverse-mode differentiation",
                lambda: jax.grad(lambda a: lax.while_loop(lambda c: c < 3, lambda c: 2 * c, a))(1.0),
            ),
            "bounds of two dtypes": (
                "equal types",
                lambda: lax.fori_loop(np.int8(0), np.int16(3), lambda k, c: c, zero),
            ),
            "a choice by two values": ("must be a scalar", lambda: lax.cond(v[:2] > 0, same, same, v)),
            "a choice by nothing": ("is None", lambda: lax.cond(None, same, same, v)),
            "branches of two dtypes": ("equal output types", lambda: lax.cond(True, same, jnp.int32, v)),
            "branches of two trees": (
                "same pytree structure",
                lambda: lax.cond(True, same, lambda a: (a,), v),
            ),
            "a number in place of a branch": ("should be callable", lambda: lax.cond(True, 3, same, v)),
            "no branch at all": ("Empty branch sequence", lambda: lax.switch(0, [], v)),
            "a half as the number of a branch": (
                "must be an integer",
                lambda: lax.switch(0.5, [same, same], v),
            ),
            "two numbers of a branch": ("must be scalar", lambda: lax.switch(i, [same, same], v)),
            "running results of two lengths": (
                "same first dimension",
                lambda: lax.associative_scan(lambda a, b: a, (v, longer)),
            ),
            "a map over two lengths": ("different leading axis", lambda: lax.map(same, (v, longer))),
        }
    )


def _bad_derivatives(line, grid):
    """Batches and derivatives whose sizes, dtypes, trees and axes don't fit."""
    v, _, i = _cut(line)
    longer = jnp.ones(2 * line.size + 1)

    def same(a: Any) -> Any:
        return a

    def loses(a: Any) -> Any:
        f = jax.custom_vjp(same)
        f.defvjp(lambda b: (b, None), lambda kept, g: (g, g))
        return f(a)

    _, back = jax.vjp(same, v)
    refuse_all(
        {
            "a batch of two sizes": ("inconsistent sizes", lambda: jax.vmap(lambda a, b: a)(v, longer)),
            "a batch along no dimension": ("rank should be at least", lambda: jax.vmap(same, in_axes=1)(v)),
            "a batch of nothing": ("at least one non-None", lambda: jax.vmap(same, in_axes=None)(v)),
            "a batch that is not returned": ("output was batched", lambda: jax.vmap(same, out_axes=None)(v)),
            "a batch returned along no dimension": (
                "out of bounds",
                lambda: jax.vmap(same, out_axes=3)(v),
            ),
            "the gradient of an array": ("scalar-output", lambda: jax.grad(same)(v)),
            "the gradient of an integer": ("real- or complex-valued", lambda: jax.grad(lambda a: a * a)(3)),
            "the gradient by no argument": (
                "positional arguments",
                lambda: jax.grad(same, argnums=2)(1.0),
            ),
            "a tangent of another shape": (
                "different primal and tangent shapes",
                lambda: jax.jvp(same, (v,), (longer,)),
            ),
            "a tangent of another dtype": ("dtypes must be equal", lambda: jax.jvp(same, (v,), (i,))),
            "a cotangent of another shape": ("VJP function", lambda: back(longer)),
            "a cotangent of another tree": ("tree structure", lambda: back((v,))),
            "a rule with a cotangent too many": ("bwd rule must produce", lambda: jax.grad(loses)(1.0)),
        }
    )


RULES_OF_BAD_SHAPES: dict[str, Callable[..., None]] = {
    "bad_shapes": _bad_shapes,
    "bad_products": _bad_products,
    "bad_indices": _bad_indices,
    "bad_loops": _bad_loops,
    "bad_derivatives": _bad_derivatives,
}
