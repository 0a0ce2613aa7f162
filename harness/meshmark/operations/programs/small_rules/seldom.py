# SPDX-License-Identifier: Apache-2.0
"""Small rules of batches and derivatives that few programs need: of references, choices, convolutions, windows and
ragged products, of linear calls, remat of custom rules, loops in checkpoints and complex functions.

They were written from the lines of JAX that no case executed (`python -m tests.studies.reach`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import linear_call

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused

WEIGHTS = np.arange(1, 7, dtype=np.float32)


def _batch(line: Any, columns: int = 6) -> np.ndarray:
    """Small whole numbers: a row for each of twice the devices."""
    return mixed((2 * line.size, columns), 23, 5).astype(np.float32)


def _references_in_batches(line, grid):
    """Reads, writes and sums through a reference in a batch: of the array, of the place, and of both; and its slope."""
    host = _batch(line)
    count = len(host)
    places = np.arange(count) * 5 % 6
    every = np.arange(count)

    def read(v: Any, k: Any) -> Any:
        return jax.new_ref(v)[k]

    def write(v: Any, k: Any) -> Any:
        r = jax.new_ref(v)
        r[k] = r[k] * 2 + 1
        return r[...]

    def add(v: Any, k: Any) -> Any:
        r = jax.new_ref(v)
        r[k] += 3
        r[0] += 1
        return r[...]

    def fill(v: Any, k: Any) -> Any:
        r = jax.new_ref(v)
        r[1:3] = v[k] * jnp.ones(2)
        return r[...]

    for way, axes in (("both", (0, 0)), ("the array", (0, None)), ("the place", (None, 0))):
        rows = host if axes[0] == 0 else np.tile(host[1], (count, 1))
        at = places if axes[1] == 0 else np.full(count, 2)
        given = (
            placed(line, host, "d") if axes[0] == 0 else host[1],
            placed(line, places, "d") if axes[1] == 0 else 2,
        )
        written, added, filled = rows.copy(), rows.copy(), rows.copy()
        written[every, at] = rows[every, at] * 2 + 1
        added[every, at] += 3
        added[:, 0] += 1
        filled[:, 1:3] = rows[every, at][:, None]
        for name, call, right in (
            ("a read", read, rows[every, at]),
            ("a write", write, written),
            ("a sum", add, added),
            ("a part", fill, filled),
        ):
            found = jax.jit(jax.vmap(call, in_axes=axes))(*given)
            expect(np.asarray(found), right, f"{name} through a reference in a batch of {way}")

    def loss(v: Any, k: Any) -> Any:
        r = jax.new_ref(v)
        r[k] = r[k] * r[0]
        return (r[...] * WEIGHTS).sum()

    slope = np.tile(WEIGHTS, (count, 1))
    for row, k in enumerate(places):
        slope[row, k] += WEIGHTS[k] * (host[row, 0] - 1)
        slope[row, 0] += WEIGHTS[k] * host[row, k]
    found = jax.jit(jax.vmap(jax.grad(loss)))(placed(line, host, "d"), placed(line, places, "d"))
    expect(np.asarray(found), slope, "the slope through a reference in a batch")


def _choices_in_batches(line, grid):
    """clamp, select_n and reductions by a function of the user, where each argument is a batch or is not."""
    host = _batch(line) - 9
    count = len(host)
    low = (np.arange(count) % 5 - 4).astype(np.float32)
    high = low + 3
    chosen = np.arange(count) % 3 > 0

    def cut(array: np.ndarray, axis: int | None) -> Any:
        return placed(line, array, "d") if axis == 0 else array[0]

    def repeated(array: np.ndarray, axis: int | None) -> np.ndarray:
        return np.broadcast_to(array if axis == 0 else array[:1], array.shape)

    for axes in ((0, 0, 0), (0, 0, None), (None, 0, 0), (None, 0, None), (0, None, 0)):
        given = [cut(array, axis) for array, axis in zip((low, host, high), axes, strict=True)]
        whole = [
            np.broadcast_to(array if axis == 0 else array[:1], array.shape)
            for array, axis in zip((low, host, high), axes, strict=True)
        ]
        right = np.minimum(np.maximum(whole[1], whole[0][:, None]), whole[2][:, None])
        found = jax.jit(jax.vmap(lax.clamp, in_axes=axes))(*given)
        expect(np.asarray(found), right, f"a batch of clamp along {axes}")
    for axes in ((0, 0, 0), (0, 0, None), (0, None, None), (None, 0, 0), (0, None, 0)):
        arrays = (chosen, host, host + 100)
        given = [cut(array, axis) for array, axis in zip(arrays, axes, strict=True)]
        whole = [
            np.broadcast_to(array if axis == 0 else array[:1], array.shape)
            for array, axis in zip(arrays, axes, strict=True)
        ]
        right = np.where(whole[0][:, None], whole[2], whole[1])
        found = jax.jit(jax.vmap(lax.select_n, in_axes=axes))(*given)
        expect(np.asarray(found), right, f"a batch of select_n along {axes}")

    def farthest(a: Any, b: Any) -> Any:
        return jnp.maximum(jnp.abs(a), jnp.abs(b))

    def largest(a: Any, b: Any) -> Any:
        later = (b[0] > a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))
        return jnp.where(later, b[0], a[0]), jnp.where(later, b[1], a[1])

    x = placed(line, host, "d")
    found = jax.jit(jax.vmap(lambda v: lax.reduce(v, np.float32(0), farthest, (0,))))(x)
    expect(np.asarray(found), np.abs(host).max(1), "a batch of a reduction by a function")
    start = (np.float32(-np.inf), np.int32(9))
    both = jax.vmap(lambda v, i: lax.reduce((v, i), start, largest, (0,)), in_axes=(0, None))
    values, places = jax.jit(both)(x, np.arange(6, dtype=np.int32))
    expect(np.asarray(values), host.max(1), "a batch of the largest by a function")
    expect(np.asarray(places), host.argmax(1).astype(np.int32), "a batch of its place")


def _convolved(image: np.ndarray, kernel: np.ndarray, features: int, batches: int) -> np.ndarray:
    """A convolution along one dimension: [batch, features, width] and [results, features, width]."""
    n, _, width = image.shape
    results, depth, size = kernel.shape
    out = np.zeros((n // batches, results, width - size + 1), np.float32)
    for o in range(results):
        group, part = o // (results // features), o // (results // batches)
        rows = image[part * (n // batches) : (part + 1) * (n // batches), group * depth : (group + 1) * depth]
        for w in range(width - size + 1):
            out[:, o, w] = (rows[:, :, w : w + size] * kernel[o]).sum((1, 2))
    return out


def _convolutions_in_batches(line, grid):
    """Batches of convolutions with groups of features and of the batch: of the image, of the kernel, and of both."""
    n = line.size
    image = mixed((n, 2, 4, 6), 7, 3).astype(np.float32)
    for features, batches in ((1, 1), (2, 1), (4, 1), (1, 2)):
        kernel = mixed((n, 4, 4 // features, 3), 5, 2).astype(np.float32)

        def call(a: Any, k: Any, features: int = features, batches: int = batches) -> Any:
            return lax.conv_general_dilated(
                a, k, (1,), "VALID", feature_group_count=features, batch_group_count=batches
            )

        for axes in ((0, 0), (0, None), (None, 0), (1, 2)):
            right = np.stack(
                [
                    _convolved(
                        image[0 if axes[0] is None else k],
                        kernel[0 if axes[1] is None else k],
                        features,
                        batches,
                    )
                    for k in range(n)
                ]
            )
            given = [
                array[0]
                if axis is None
                else placed(line, array, "d")
                if axis == 0
                else np.moveaxis(array, 0, axis)
                for array, axis in zip((image, kernel), axes, strict=True)
            ]
            found = jax.jit(jax.vmap(call, in_axes=axes))(*given)
            what = f"convolutions with {features} groups of features and {batches} of the batch, along {axes}"
            expect(np.asarray(found), right, what)


def _windows_in_batches(line, grid):
    """Slopes and tangents of pooled maxima and products in a batch."""
    order = np.array([3, 1, 4, 0, 5, 2])
    host = np.stack([np.roll(order, k) + k % 2 for k in range(2 * line.size)]).astype(np.float32)
    tangents = _batch(line)
    every = np.arange(len(host))
    x, moved = placed(line, host, "d"), placed(line, tangents, "d")

    def pooled(v: Any) -> Any:
        return lax.reduce_window(v, -jnp.inf, lax.max, (2,), (1,), "VALID")

    def multiplied(v: Any) -> Any:
        return lax.reduce_window(v, np.float32(1), lax.mul, (2,), (1,), "VALID")

    slopes, along = np.zeros_like(host), np.zeros((len(host), 5), np.float32)
    for k in range(5):
        largest = k + host[:, k : k + 2].argmax(1)
        slopes[every, largest] += WEIGHTS[k]
        along[:, k] = tangents[every, largest]
    found = jax.jit(jax.vmap(jax.grad(lambda v: (pooled(v) * WEIGHTS[:5]).sum())))(x)
    expect(np.asarray(found), slopes, "the slopes of pooled maxima in a batch")
    found = jax.jit(jax.vmap(lambda v, t: jax.jvp(pooled, (v,), (t,))[1]))(x, moved)
    expect(np.asarray(found), along, "the tangents of pooled maxima in a batch")
    found = jax.jit(jax.vmap(lambda v, t: jax.jvp(multiplied, (v,), (t,))[1]))(x, moved)
    right = host[:, :-1] * tangents[:, 1:] + host[:, 1:] * tangents[:, :-1]
    expect(np.asarray(found), right, "the tangents of pooled products in a batch")


def _ragged_products_in_batches(line, grid):
    """Batches of ragged products, each with groups of its own; where one argument is not a batch JAX refuses."""
    n = line.size
    rows = mixed((n, 6, 4), 7, 3).astype(np.float32)
    matrices = mixed((n, 2, 4, 3), 5, 2).astype(np.float32)
    first = (np.arange(n) * 5 % 7).astype(np.int32)
    groups = np.stack([first, 6 - first], 1)
    right = np.stack(
        [np.concatenate([r[:k] @ m[0], r[k:] @ m[1]]) for r, m, k in zip(rows, matrices, first, strict=True)]
    )
    given = [placed(line, array, "d") for array in (rows, matrices, groups)]
    found = jax.jit(jax.vmap(lax.ragged_dot))(*given)
    expect(np.asarray(found), right, "a batch of ragged products")
    refused(
        "a batch of ragged products of one matrix",
        "NYI|NotImplementedError",
        lambda: jax.vmap(lax.ragged_dot, in_axes=(0, None, 0))(given[0], matrices[0], given[2]),
    )


def _slopes_of_multiplied_parts(line, grid):
    """Slopes of parts that are multiplied by others: by the array and by the factors. The transpose of the product."""
    host = _batch(line)
    places, factors = np.array([0, 2, 3]), np.array([2, 3, 5], np.float32)

    def multiplied(v: Any, u: Any) -> Any:
        return v.at[places].mul(u, unique_indices=True)

    def loss(v: Any, u: Any) -> Any:
        return (multiplied(v, u) * WEIGHTS).sum()

    by_array = WEIGHTS.copy()
    by_array[places] *= factors
    run = jax.jit(jax.vmap(jax.grad(loss, (0, 1)), in_axes=(0, None)))
    found = run(placed(line, host, "d"), factors)
    expect(np.asarray(found[0]), np.tile(by_array, (len(host), 1)), "the slopes by the array")
    expect(np.asarray(found[1]), WEIGHTS[places] * host[:, places], "the slopes by the factors")
    back = jax.linear_transpose(lambda v: multiplied(v, factors), host[0])
    expect(np.asarray(back(WEIGHTS)[0]), by_array, "the transpose of a product of parts")
    twice = jax.grad(lambda v: v.at[np.array([0, 0])].mul(factors[:2]).sum())(host[0])
    expect(
        np.asarray(twice), np.array([6, 1, 1, 1, 1, 1], np.float32), "the slope of a part multiplied twice"
    )


def _linear_calls(line, grid):
    """linear_call and custom_gradient: the call, and the slope that the user gives."""
    host = _batch(line)
    x = placed(line, host, "d")

    def scaled(v: Any) -> Any:
        return linear_call(lambda r, a: a * r, lambda r, ct: ct * r * 10, 3.0, v)

    expect(np.asarray(jax.jit(scaled)(x)), 3 * host, "a linear call")
    found = jax.jit(jax.grad(lambda v: (scaled(v) * WEIGHTS).sum()))(x)
    expect(np.asarray(found), np.tile(30 * WEIGHTS, (len(host), 1)), "the slope of a linear call")

    @jax.custom_gradient
    def squared(v: Any) -> Any:
        return v**2, lambda g: g * 7 * v

    found = jax.jit(jax.vmap(jax.grad(lambda v: squared(v).sum())))(x)
    expect(np.asarray(found), 7 * host, "the slope of a function with a gradient of its own")
    expect(np.asarray(jax.jit(squared)(x)), host**2, "a function with a gradient of its own")


def _rules_with_optimized_remat(line, grid):
    """A custom rule with `optimize_remat`: the result and its own slope, under jit, checkpoint and batches."""
    host = _batch(line)
    x = placed(line, host, "d")

    @jax.custom_vjp
    def scaled(v: Any, s: Any) -> Any:
        return v * s

    def forward(v: Any, s: Any) -> Any:
        return v * s, (v, s)

    def backward(kept: Any, g: Any) -> Any:
        return g * kept[1] * 10, (g * kept[0]).sum() * 100

    scaled.defvjp(forward, backward, optimize_remat=True)
    three = np.float32(3)
    ways: dict[str, Callable[[Any], Any]] = {
        "plain": lambda f: f,
        "checkpoint": jax.checkpoint,
        "jit": jax.jit,
        "checkpoint of jit": lambda f: jax.checkpoint(jax.jit(f)),
        "jit of checkpoint": lambda f: jax.jit(jax.checkpoint(f)),
    }
    for name, way in ways.items():
        call = way(scaled)
        expect(np.asarray(jax.jit(call)(x, three)), 3 * host, f"a rule, {name}")
        by_both = jax.jit(jax.grad(lambda v, s, call=call: call(v, s).sum(), (0, 1)))(x, three)
        expect(np.asarray(by_both[0]), np.full_like(host, 30), f"the slope by the array, {name}")
        expect(np.asarray(by_both[1]), host.sum(dtype=np.float32) * 100, f"the slope by the number, {name}")
        each = jax.jit(jax.vmap(jax.grad(lambda v, call=call: call(v, three).sum())))(x)
        expect(np.asarray(each), np.full_like(host, 30), f"the slopes in a batch, {name}")


def _loops_in_checkpoints(line, grid):
    """Loops inside of a checkpoint: their tangents, linearized functions and slopes."""
    host = (_batch(line) % 3 + 1).astype(np.float32)
    x = placed(line, host, "d")

    def powered(v: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * v), (0, v))[1]

    def counted(v: Any) -> Any:
        return lax.fori_loop(0, 3, lambda k, c: c * v, v)

    right = 4 * host**3
    for name, call in (("while_loop", powered), ("fori_loop", counted)):
        run = jax.checkpoint(call)
        found = jax.jit(lambda v, run=run: jax.jvp(run, (v,), (jnp.ones_like(v),))[1])(x)
        expect(np.asarray(found), right, f"the tangents of {name} in a checkpoint")
    found = jax.jit(jax.grad(lambda v: jax.checkpoint(counted)(v).sum()))(x)
    expect(np.asarray(found), right, "the slope of fori_loop in a checkpoint")
    _, push = jax.linearize(jax.checkpoint(lambda v: 5 * v * powered(lax.stop_gradient(v))), x)
    expect(
        np.asarray(push(jnp.ones_like(x))), 5 * host**4, "a linearized function with a loop in a checkpoint"
    )


POINTS = np.array([0.5 + 0.3j, 1 - 2j, 2 + 1j, 0.25 - 0.5j, 3 + 0.125j, 0.75 + 1.5j])
"""Points away from the cuts of the functions, in the right half of the plane."""


def _complex_slopes(line, grid, points: np.ndarray = POINTS):
    """Tangents of functions of complex numbers. At these points no function loses more than three digits of float32."""
    z = np.tile(points.astype(np.complex64), (line.size, 1))
    x, exact = placed(line, z, "d"), z.astype(np.complex128)
    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "arcsinh": (jnp.arcsinh, 1 / np.sqrt(exact * exact + 1)),
        "arctanh": (jnp.arctanh, 1 / (1 - exact * exact)),
        "arcsin": (jnp.arcsin, 1 / np.sqrt(1 - exact * exact)),
        "arccos": (jnp.arccos, -1 / np.sqrt(1 - exact * exact)),
        "arctan": (jnp.arctan, 1 / (1 + exact * exact)),
        "log1p": (jnp.log1p, 1 / (1 + exact)),
        "expm1": (jnp.expm1, np.exp(exact)),
        "sqrt": (jnp.sqrt, 0.5 / np.sqrt(exact)),
        "tanh": (jnp.tanh, 1 / np.cosh(exact) ** 2),
        "sinh": (jnp.sinh, np.cosh(exact)),
        "tan": (jnp.tan, 1 / np.cos(exact) ** 2),
        "reciprocal": (jnp.reciprocal, -1 / exact**2),
        "arccosh": (jnp.arccosh, 1 / (np.sqrt(exact - 1) * np.sqrt(exact + 1))),  # last: 0.10 breaks it
    }
    for name, (call, right) in calls.items():
        found = jax.jit(lambda v, call=call: jax.jvp(call, (v,), (jnp.ones_like(v),))[1])(x)
        seen = np.asarray(found)
        near = np.abs(seen - right) < 1e-4 * np.abs(right)
        first = np.unravel_index(np.argmin(near), near.shape)
        what = (
            f"the tangent of {name} at {exact[first]:.3g} is {seen[first]:.3g} instead of {right[first]:.3g}"
        )
        wrong(not near.all(), what)


def _complex_slopes_to_the_left(line, grid):
    """The same in the left half of the plane."""
    _complex_slopes(line, grid, -POINTS.conj())


RULES_SELDOM_USED: dict[str, Callable[..., None]] = {
    "references_in_batches": _references_in_batches,
    "choices_in_batches": _choices_in_batches,
    "convolutions_in_batches": _convolutions_in_batches,
    "windows_in_batches": _windows_in_batches,
    "ragged_products_in_batches": _ragged_products_in_batches,
    "slopes_of_multiplied_parts": _slopes_of_multiplied_parts,
    "linear_calls": _linear_calls,
    "rules_with_optimized_remat": _rules_with_optimized_remat,
    "loops_in_checkpoints": _loops_in_checkpoints,
    "complex_slopes": _complex_slopes,
    "complex_slopes_to_the_left": _complex_slopes_to_the_left,
}
