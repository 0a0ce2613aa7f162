# SPDX-License-Identifier: Apache-2.0
"""Rare options and ways of calling: rare options of functions, collectives of trees and of narrow dtypes, keyword
arguments, functions with auxiliary results, several draws in one program.

The program is that of `programs.forms.base`: f(x) = x * s(x). The expected values are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meshmark.operations.functions.distributions import DRAWS
from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.definitions import Pairs, points, sides, together
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.forms.rare_forms import replicated_rows

Cut = slice(None, 3)


def softmax(z: Any, axis: Any, where: Any = True) -> Any:
    """A softmax over the elements where `where` holds; the others are zero."""
    e = np.exp(z) * where
    return e / e.sum(axis=axis, keepdims=True)


def attended(z: Any, bias: Any, mask: Any, scale: float) -> Any:
    """Attention of one head with a bias, a mask and a scale."""
    return softmax(np.where(mask, z @ z.T * scale + bias, -1e9), 1) @ z


def spaced(z: Any, gap: int) -> Any:
    """z with `gap` zeros between neighbouring columns."""
    wide = np.zeros((len(z), (z.shape[1] - 1) * (gap + 1) + 1))
    wide[:, :: gap + 1] = z
    return wide


def slid(z: Any, taps: Any) -> Any:
    """The correlation of each row with three numbers, without padding."""
    return sum(t * z[:, i : i + z.shape[1] - 2] for i, t in enumerate(taps))


TAPS = np.array([1.0, 2.0, 4.0], np.float32)


def in_one(z: Any) -> Any:
    """[rows, 1, columns]: rows as a batch with one channel."""
    return z[:, None, :]


def _functions(mesh, a, x):
    """Array functions with rare options."""
    whole = points(mesh)
    n = len(whole[0])
    mask, at_ = np.tril(np.ones((n, n), bool)), np.array([0, n + 2, 2])
    kernel = TAPS[None, None]
    pairs: Pairs = {
        "softmax of two": (lambda y, z: jax.nn.softmax(y, (0, 1)), lambda y, z: softmax(y, (0, 1))),
        "glu": (lambda y, z: jax.nn.glu(y, 0), lambda y, z: y[: n // 2] / (1 + np.exp(-y[n // 2 :]))),
        "standardize": (
            lambda y, z: jax.nn.standardize(y, 1, mean=jnp.ones((n, 1)), variance=4 * jnp.ones((n, 1))),
            lambda y, z: (y - 1) / np.sqrt(4 + 1e-5),
        ),
        "log_softmax": (
            lambda y, z: jnp.where(mask, jax.nn.log_softmax(y, 1, where=mask), 0),
            lambda y, z: np.where(mask, np.log(softmax(y, 1, mask) + ~mask), 0),
        ),
        "attention": (
            lambda y, z: jax.nn.dot_product_attention(
                *(y[:, None],) * 3, bias=z[None], mask=jnp.asarray(mask)[None], scale=0.25
            )[:, 0],
            lambda y, z: attended(y, z, mask, 0.25),
        ),
        "letters and dots": (
            lambda y, z: jnp.einsum("...i,ji->...j", y, z[Cut]),
            lambda y, z: np.einsum("...i,ji->...j", y, z[Cut]),
        ),
        "median": (lambda y, z: jnp.median(y, (0, 1)), lambda y, z: np.median(y, (0, 1))),
        "midpoint": (
            lambda y, z: jnp.percentile(y, 30.0, axis=0, method="midpoint"),
            lambda y, z: np.percentile(y, 30.0, axis=0, method="midpoint"),
        ),
        "from zero": (
            lambda y, z: jnp.cumulative_sum(y, axis=1, include_initial=True),
            lambda y, z: np.concatenate([np.zeros((n, 1)), np.cumsum(y, axis=1)], axis=1),
        ),
        "from the right": (
            lambda y, z: jnp.searchsorted(jnp.sort(y[0]), y[:2, 0], side="right", method="sort"),
            lambda y, z: np.searchsorted(np.sort(y[0]), y[:2, 0], side="right"),
        ),
        "written, clipped": (
            lambda y, z: y.at[at_].min(z[Cut] / 2, mode="clip"),
            lambda y, z: with_rows(np.minimum, y, np.minimum(at_, n - 1), z[Cut] / 2),
        ),
        "written, promised": (
            lambda y, z: y.at[at_ % n].max(z[Cut] * 2, mode="promise_in_bounds"),
            lambda y, z: with_rows(np.maximum, y, at_ % n, z[Cut] * 2),
        ),
        "holes in a window": (
            lambda y, z: lax.reduce_window(y, 0.0, lax.add, (1, 3), (1, 1), "VALID", base_dilation=(1, 2)),
            lambda y, z: slid(spaced(y, 1), (1, 1, 1)),
        ),
        "padded below": (
            lambda y, z: lax.conv_general_dilated(in_one(y), kernel[:, :, :2], (1,), "SAME_LOWER")[:, 0],
            lambda y, z: 2 * y + np.pad(y, ((0, 0), (1, 0)))[:, :-1],
        ),
        "transposed": (
            lambda y, z: lax.conv_transpose(
                y[:, :, None], jnp.asarray(TAPS[:, None, None]), (2,), "VALID", transpose_kernel=True
            )[:, :, 0],
            lambda y, z: np.stack([np.convolve(r, TAPS) for r in spaced(y, 1)]),
        ),
        "cut and spaced": (
            lambda y, z: lax.pad(y[:, :, None] * TAPS, jnp.float32(0), (*((0, 0, 0),) * 2, (-1, 1, 1))),
            lambda y, z: np.stack([0 * y, y * 2, 0 * y, y * 4, 0 * y], axis=2),
        ),
        "turned ends": (
            lambda y, z: lax.rev(y.reshape(n, 2, -1), (0, 2)),
            lambda y, z: y.reshape(n, 2, -1)[::-1, :, ::-1],
        ),
        "five dimensions": (
            lambda y, z: y.reshape(2, n // 2, 1, 2, -1).transpose(1, 3, 4, 0, 2).reshape(-1, 2),
            lambda y, z: y.reshape(2, n // 2, 1, 2, -1).transpose(1, 3, 4, 0, 2).reshape(-1, 2),
        ),
        "five by name": (
            lambda y, z: jnp.transpose(y.reshape(2, n // 2, 1, 2, -1), (3, 0, 4, 1, 2)),
            lambda y, z: np.transpose(y.reshape(2, n // 2, 1, 2, -1), (3, 0, 4, 1, 2)),
        ),
        "joined with nothing": (
            lambda y, z: jnp.concatenate([y, z[:0], z[Cut]]),
            lambda y, z: np.concatenate([y, z[Cut]]),
        ),
        "a step of columns": (
            lambda y, z: lax.slice_in_dim(y, 1, n - 1, 3, axis=1),
            lambda y, z: y[:, 1 : n - 1 : 3],
        ),
        "over the diagonal": (lambda y, z: jnp.tril(y, 2), lambda y, z: np.tril(y, 2)),
        "the first that is true": (
            lambda y, z: jnp.select([y > 1, y > 0.5], [y, -y], 7.0),
            lambda y, z: np.select([y > 1, y > 0.5], [y, -y], 7.0),
        ),
        "weighed bins": (
            lambda y, z: jnp.histogram(y, 4, (0.0, 4.0), weights=z)[0],
            lambda y, z: np.histogram(y, 4, (0.0, 4.0), weights=z)[0],
        ),
        "products of segments": (
            lambda y, z: jax.ops.segment_prod(y[:4], jnp.array([0, 2, 0, 2]), 3),
            lambda y, z: np.stack([y[0] * y[2], np.ones(n), y[1] * y[3]]),
        ),
        "parted places": (
            lambda y, z: jnp.take_along_axis(y, jnp.argpartition(y, 1, axis=1), 1)[:, 1],
            lambda y, z: np.sort(y, axis=1)[:, 1],
        ),
        "updated from the end": (
            lambda y, z: lax.dynamic_update_slice(y, z[:1], (-2, jnp.int32(0))),
            lambda y, z: np.concatenate([y[:-2], z[:1], y[-1:]]),
        ),
        "covariance": (lambda y, z: jnp.cov(y[Cut], ddof=0), lambda y, z: np.cov(y[Cut], ddof=0)),
        "one dimension": (lambda y, z: jnp.tensordot(y, z, axes=1), lambda y, z: y @ z),
        "convolved": (
            lambda y, z: jnp.convolve(y[0], TAPS, mode="valid"),
            lambda y, z: np.convolve(y[0], TAPS, mode="valid"),
        ),
        "the least of rows": (
            lambda y, z: jnp.argmin(jnp.round(y), axis=0),
            lambda y, z: np.argmin(np.round(y), axis=0),
        ),
        "NaN of 16 bits": (
            lambda y, z: jnp.argmax(jnp.where(mask & ~mask.T, jnp.nan, y).astype(jnp.float16), axis=1)[1:],
            lambda y, z: np.zeros(n - 1),
        ),
        "points and their step": (
            lambda y, z: jnp.linspace(y[0], z[0], 5, retstep=True),
            lambda y, z: np.linspace(y[0], z[0], 5, retstep=True),
        ),
        "full of a row": (lambda y, z: jnp.full(y.shape, y[0]), lambda y, z: np.full(y.shape, y[0])),
        "a complex order": (
            lambda y, z: jnp.sort(lax.complex(jnp.round(y), z)[0]),
            lambda y, z: np.sort(np.round(y[0]) + 1j * z[0]),
        ),
        "the largest of 16 bits": (
            lambda y, z: lax.cummax(jnp.round(y).astype(jnp.bfloat16), 0).astype(jnp.float32),
            lambda y, z: np.maximum.accumulate(np.round(y), 0),
        ),
    }
    together(mesh, pairs, whole, *sides(mesh))
    return jax.jit(over(mesh, a))(x)


def with_rows(function: Any, y: Any, rows: Any, other: Any) -> Any:
    """A copy of y with y[row] = function(y[row], new) for each of the rows and others."""
    out = y.copy()
    for row, new in zip(rows, other, strict=True):
        out[row] = function(out[row], new)
    return out


def _trees(mesh, a, x):
    """Every collective of a tree of arrays, with keyword arguments."""
    n = mesh.shape[a]
    host = ((np.arange(n * n * 2) * 5 + 3) % 7).reshape(n, n, 2).astype(np.float32)
    ahead = [((i + 1) % n, i) for i in reversed(range(n))]

    def local(b):
        tree = {"one": b[0], "two": (b[0] * 2, b[0] + 1)}
        found = {
            "psum": lax.psum(tree, axis_name=a),
            "pmean": lax.pmean(tree, axis_name=a),
            "pmax": lax.pmax(tree, axis_name=a),
            "pmin": lax.pmin(tree, axis_name=a),
            "ppermute": lax.ppermute(tree, axis_name=a, perm=ahead),
            "psum_scatter": lax.psum_scatter(tree, axis_name=a),
            "all_to_all": lax.all_to_all(tree, axis_name=a, split_axis=0, concat_axis=0, tiled=True),
            "all_gather": lax.all_gather(tree, axis_name=a, axis=-1),
            "a list": lax.psum(b[0], [*mesh.axis_names]) * n / mesh.devices.size,
        }
        return jax.tree.map(lambda y: jnp.asarray(y)[None], found)

    mapped = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=P(a), check_vma=False)
    found = jax.jit(mapped)(host)
    others = mesh.devices.size // n
    for name, tree in found.items():
        copies = (host, host * 2, host + 1) if name != "a list" else (host * others,)
        for leaf, given in zip(jax.tree.leaves(tree), copies, strict=True):
            right = {
                "psum": lambda g: np.tile(g.sum(0), (n, 1, 1)),
                "a list": lambda g: np.tile(g.sum(0), (n, 1, 1)) * n / mesh.devices.size,
                "pmean": lambda g: np.tile(g.mean(0), (n, 1, 1)),
                "pmax": lambda g: np.tile(g.max(0), (n, 1, 1)),
                "pmin": lambda g: np.tile(g.min(0), (n, 1, 1)),
                "ppermute": lambda g: np.roll(g, -1, axis=0),
                "psum_scatter": lambda g: g.sum(0),
                "all_to_all": lambda g: g.transpose(1, 0, 2),
                "all_gather": lambda g: np.tile(g.transpose(1, 2, 0), (n, 1, 1, 1)),
            }[name](given)
            near = np.shape(leaf) == right.shape and np.allclose(leaf, right, rtol=1e-6)
            wrong(not near, f"{name} of a tree is {np.asarray(leaf)} instead of {right}")
    return jax.jit(over(mesh, a))(x)


def _many_bytes(mesh, a, x):
    """Sums and exchanges of 524,288 elements per device: one MiB in 16 bits, half a MiB in 8."""
    n = mesh.shape[a]
    count = 1 << 19
    for kind in ("bfloat16", "float16", "int8"):
        host = ((np.arange(n)[:, None] + np.arange(count) % 3) % 4).astype(kind)
        found = replicated_rows(mesh, a, lambda b: lax.psum(b, a), host)
        right = np.tile(host.astype(np.float32).sum(0), (n, 1)).astype(host.dtype)
        wrong(not np.array_equal(found, right), f"a sum of a mebibyte of {kind} is wrong")
        there = replicated_rows(
            mesh, a, lambda b: lax.ppermute(b, a, [(i, (i + 1) % n) for i in range(n)]), host
        )
        wrong(not np.array_equal(there, np.roll(host, 1, 0)), f"a mebibyte of {kind} arrives wrongly")
    return jax.jit(over(mesh, a))(x)


def _beside(mesh, a, x):
    """Trees under stop_gradient, callbacks with two results, reversed scans, checkpoints, custom gradients, converted
    closures, draws by row, loops with a tuple."""
    tree = {"one": x, "two": x + 1}

    def held(t):
        still = lax.stop_gradient(t)
        return sum((u * v).sum() for u, v in zip(jax.tree.leaves(t), jax.tree.leaves(still), strict=True))

    slope = jax.jit(jax.grad(held))(tree)
    for name, leaf in tree.items():
        same_as(np.asarray(slope[name]), np.asarray(leaf), "the gradient beside a tree that is held")

    def answer(y, z):
        return np.asarray(y) + 1, np.asarray(z) * 2

    kinds = (jax.ShapeDtypeStruct(x.shape, x.dtype),) * 2
    one, two = jax.jit(lambda y: jax.pure_callback(answer, kinds, y, y + 1))(x)
    same_as(np.asarray(one), np.asarray(x) + 1, "the first of two answers of the host")
    same_as(np.asarray(two), 2 * (np.asarray(x) + 1), "the second of two answers of the host")
    rows = np.asarray(x)
    back = jax.jit(lambda y: lax.scan(lambda c, r: (c + r, c * r), y[0] * 0, y, reverse=True)[1])(x)
    after = np.cumsum(rows[::-1], axis=0)[::-1] - rows
    same_as(np.asarray(back), after * rows, "a loop backward")
    pairs = jax.jit(
        lambda y: lax.scan(lambda c, r: (c + r[0], c * r[1]), y[0] * 0, (y, y + 1), reverse=True)[1]
    )
    same_as(np.asarray(pairs(x)), after * (rows + 1), "a loop with two inputs backward")
    saved = jax.checkpoint_policies.dots_saveable
    again = jax.checkpoint(lambda y, k: y * y * k, static_argnums=1, prevent_cse=False, policy=saved)
    same_as(np.asarray(jax.jit(lambda y: again(y, 3))(x)), 3 * rows * rows, "a recomputed value")
    slope = jax.jit(jax.grad(lambda y: again(y, 3).sum()))(x)
    same_as(np.asarray(slope), 6 * rows, "a gradient that is computed again")
    ruled = jax.custom_gradient(lambda y: (y * 2, lambda t: t * 5))
    same_as(np.asarray(jax.jit(ruled)(x)), rows * 2, "a value with a gradient of its own")
    closed, held_ = jax.closure_convert(lambda y: y * 3 + x, x)
    same_as(np.asarray(jax.jit(closed)(x, *held_)), rows * 4, "a function without its closure")
    key = jax.random.key(3)
    rolled = jax.jit(lambda y: jax.random.permutation(key, y, axis=1, independent=True))
    columns = np.tile(np.arange(rows.shape[1], dtype=np.float32), (len(rows), 1))
    mixed = np.asarray(rolled(jax.device_put(columns, x.sharding)))
    same_as(np.sort(mixed, axis=1), columns, "a permutation of each row")
    wrong((mixed == mixed[:1]).all(), "every row has the same permutation")
    small = np.asarray(jax.jit(lambda k: jax.random.randint(k, rows.shape, -3, 4, dtype=jnp.int8))(key))
    same_as(np.unique(small), np.arange(-3, 4, dtype=np.int8), "whole numbers of a byte")
    total = jax.jit(
        lambda y, k: lax.while_loop(lambda s: s[0] < k, lambda s: (s[0] + 1, s[1] + y), (0, y * 0))[1]
    )
    same_as(np.asarray(total(x, 3)), 3 * rows, "a loop with a tuple")
    return jax.jit(over(mesh, a))(x)


def _draws(mesh, a, x):
    """Distributions that draw without a loop and that no other standard case draws: the share of numbers below a point
    is the expected one, within six standard deviations."""
    names = ("lognormal", "rayleigh", "pareto", "truncated_normal", "multivariate_normal")
    shape = (32 * mesh.devices.size, 16)
    there = {n: at(mesh, *sides(mesh)) for n in names}
    draws = {n: DRAWS[n][0] for n in names if hasattr(jax.random, n)}

    def drawn(key):
        return {n: draw(jax.random.fold_in(key, i), shape) for i, (n, draw) in enumerate(draws.items())}

    places = {n: there[n] for n in draws}
    for name, found in jax.jit(drawn, out_shardings=places)(jax.random.key(11)).items():
        _, point, share = DRAWS[name]
        seen, spread = np.mean(np.asarray(found) <= point), math.sqrt(share * (1 - share) / found.size)
        wrong(abs(seen - share) > 6 * spread, f"{seen} of the draws of {name} are below {point}, not {share}")
    return jax.jit(over(mesh, a))(x)


def turned(mesh: Any) -> list[Mesh]:
    """Meshes of the devices: one axis, an axis of one device before it, two axes with the longer first, and three.
    Every second mesh has the devices in reverse order."""
    devices, n = mesh.devices.reshape(-1), mesh.devices.size
    shapes = [(n,), (1, n), *([(n // 2, 2)] if n % 2 == 0 else []), *([(2, 2, n // 4)] if n % 4 == 0 else [])]
    return [
        Mesh(devices[:: 1 - 2 * (i % 2)].reshape(s), ("x", "y", "z")[: len(s)]) for i, s in enumerate(shapes)
    ]


def _meshes(mesh, a, x):
    """Loops, branches, narrow dtypes and arrays of three to five dimensions on other meshes of the devices."""
    n = max(mesh.devices.size, 2)  # the programs write three rows
    host = ((np.arange(16 * n * n) * 7 + 3) % 5).reshape(2 * n, 4, 2 * n).astype(np.float32)
    rows = np.array([1, 1, 2 * n - 1])

    def function(m):
        here = at(m, m.axis_names[-1])

        def f(y, k):
            half = y.astype(jnp.float16)
            loop = lax.scan(lambda c, r: (c + r, c), half[0] * 0, half)
            return {
                "joined": jnp.concatenate([y, y[:, :, :3]], axis=2),
                "folded": jnp.reshape(y.reshape(2, n, 2, 2, 2 * n) + 1, (4 * n, 4 * n)),
                "written": y[:, 0].astype(jnp.int32).at[rows].add(host[:3, 1].astype(np.int32)),
                "read": lax.dynamic_slice(y.astype(jnp.bfloat16), (k, 0, 0), (n, 4, 2 * n)).astype(y.dtype),
                "added": loop[0].astype(y.dtype),
                "before": loop[1].astype(y.dtype),
                "until": lax.while_loop(lambda s: s[0] < k, lambda s: (s[0] + 1, s[1] + y), (0, y))[1],
                "chosen": lax.cond(k > 0, lambda z: z * 2, lambda z: z, y),
                "placed": lax.with_sharding_constraint(y.reshape(n, 2, 4, 2 * n) * 3, here),
                "within": lax.clamp(jnp.float16(1), half, jnp.float16(3)).astype(y.dtype),
                "windows": lax.conv_general_dilated(
                    y[None, None], jnp.ones((1, 1, 1, 2, 1)), (1, 1, 1), "VALID"
                )[0, 0],
            }

        return jax.jit(f)

    total = np.cumsum(host, axis=0)
    written = host[:, 0].astype(np.int32)
    np.add.at(written, rows, host[:3, 1].astype(np.int32))
    right = {
        "joined": np.concatenate([host, host[:, :, :3]], axis=2),
        "folded": host.reshape(4 * n, 4 * n) + 1,
        "written": written,
        "read": host[1 : n + 1],
        "added": total[-1],
        "before": total - host,
        "until": host * 2,
        "chosen": host * 2,
        "placed": host.reshape(n, 2, 4, 2 * n) * 3,
        "within": np.clip(host, 1, 3),
        "windows": host[:, :-1] + host[:, 1:],
    }
    for m in turned(mesh):
        placed = jax.device_put(
            host, at(m, m.axis_names[-1], None, m.axis_names[0] if len(m.shape) > 1 else None)
        )
        for name, found in function(m)(placed, 1).items():
            same_as(np.asarray(found), right[name], f"{name} on {m.devices.shape}")
    return jax.jit(over(mesh, a))(x)


SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 2.0, -2.0, -3.0], np.float32)


def _values(mesh, a, x):
    """Zeros of both signs, infinities and NaN in functions that distinguish them, and the signs of results."""
    n = mesh.shape[a]
    host = np.stack([np.roll(SPECIAL, i) for i in range(2 * n)])
    other = host[:, ::-1].copy()
    pairs = {
        "sign": (lambda y, z: jnp.sign(y), lambda y, z: np.sign(y)),
        "the next": (lambda y, z: jnp.nextafter(y, z), lambda y, z: np.nextafter(y, z)),
        "the next of zero": (
            lambda y, z: jnp.nextafter(y * 0, z),
            lambda y, z: np.nextafter(y * 0, z),
        ),
        "an arc": (lambda y, z: jnp.arctan2(y, z), lambda y, z: np.arctan2(y, z)),
        "a power": (lambda y, z: jnp.power(y, jnp.float32(3)), lambda y, z: np.power(y, np.float32(3))),
        "an inverse power": (lambda y, z: lax.integer_pow(y, -3), lambda y, z: 1 / (y * y * y)),
        "an order": (lambda y, z: lax.sort(jnp.abs(y)), lambda y, z: np.sort(np.abs(y))),
        "the largest": (lambda y, z: jnp.nanmax(y, axis=0), lambda y, z: np.nanmax(y, axis=0)),
        "the largest of NaN": (
            lambda y, z: jnp.nanmax(y * jnp.nan, axis=1),
            lambda y, z: np.full(len(y), np.nan, np.float32),
        ),
        "a sum of logarithms": (
            lambda y, z: jnp.logaddexp(y, y) - jnp.float32(math.log(2)),
            lambda y, z: y,
        ),
        "the least by approximation": (
            lambda y, z: lax.approx_min_k(jnp.where(jnp.isnan(y) | (y == 0), 9, y), 2, recall_target=1.0),
            lambda y, z: least(np.where(np.isnan(y) | (y == 0), 9, y)),
        ),
    }
    placed = [jax.device_put(h, at(mesh, a)) for h in (host, other)]
    found = jax.jit(lambda *y: {name: function(*y) for name, (function, _) in pairs.items()})(*placed)
    with np.errstate(all="ignore"):
        right = {name: define(host, other) for name, (_, define) in pairs.items()}
    for name, leaves in found.items():
        for mine, yours in zip(jax.tree.leaves(leaves), jax.tree.leaves(right[name]), strict=True):
            mine = np.asarray(mine)
            near = np.isclose(mine, yours, rtol=1e-5, atol=1e-6, equal_nan=True)
            if name not in (
                "sign",
                "a sum of logarithms",
                "an order",
                "the largest",
            ):  # their signs of zero may differ from NumPy's
                near &= np.isnan(mine) | (np.signbit(mine) == np.signbit(yours))
            if name.startswith("the next"):
                near &= (mine != 0) | (np.asarray(yours) == 0)
            wrong(not near.all(), f"{name} is {mine[~near][:4]} instead of {np.asarray(yours)[~near][:4]}")
    return jax.jit(over(mesh, a))(x)


def least(y: Any) -> Any:
    """The two least elements of each row, and their indices."""
    order = np.argsort(y, axis=1, kind="stable")[:, :2]
    return np.take_along_axis(y, order, 1), order


SPELLINGS: dict[str, Callable[..., Any]] = {
    "functions": _functions,
    "trees": _trees,
    "many_bytes": _many_bytes,
    "beside": _beside,
    "draws": _draws,
    "meshes": _meshes,
    "values": _values,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class SpellingForm(ProgramForm):
    """One sharded program, with checks of rare options and ways of calling."""

    name = "spelling_form"
    forms = SPELLINGS
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        return SPELLINGS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
