# SPDX-License-Identifier: Apache-2.0
"""Small rules of batches and places: indices out of range in a batch, collectives over its axis, gradients of groups of
collectives and of convolutions, places that only the run knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect


def _filled_in_batches(line, grid):
    """Indices in range and out of it in every mode, where array and indices are a batch, or only one of them is."""
    n = line.size
    host = mixed((n, 6), 97, 7).astype(np.float32)
    chosen = np.tile(np.array([0, 5, 9, -1, -6, -9, 2]), (n, 1)) + 0 * np.arange(n)[:, None]
    chosen[:, 0] = np.arange(n) % 6
    wrapped = np.where(chosen < 0, chosen + 6, chosen)
    inside = (wrapped >= 0) & (wrapped < 6)
    clipped = np.clip(wrapped, 0, 5)

    def taken(rows: np.ndarray, at: np.ndarray) -> np.ndarray:
        return np.take_along_axis(np.broadcast_to(rows, (n, 6)), at, 1)

    modes: dict[str, tuple[dict[str, Any], float | None]] = {
        "fill": ({"mode": "fill"}, np.nan),
        "fill with 7": ({"mode": "fill", "fill_value": 7.0}, 7.0),
        "fill with infinity": ({"mode": "fill", "fill_value": -np.inf}, -np.inf),
        "clip": ({"mode": "clip"}, None),
    }
    for name, (options, fill) in modes.items():
        for way, axes, rows, at in (
            ("both", (0, 0), host, chosen),
            ("the array", (0, None), host, chosen[0]),
            ("the indices", (None, 0), host[0], chosen),
        ):
            safe = np.broadcast_to(clipped if at.ndim == 2 else clipped[0], chosen.shape)
            there = np.broadcast_to(inside if at.ndim == 2 else inside[0], chosen.shape)
            right = taken(rows, safe)
            if fill is not None:
                right = np.where(there, right, np.float32(fill))
            elif name == "clip":  # a negative place is clipped to the first
                low = np.broadcast_to(at, chosen.shape)
                right = taken(rows, np.clip(np.where(low < -6, 0, np.where(low < 0, low + 6, low)), 0, 5))
            given = (
                placed(line, rows, "d") if rows.ndim == 2 else rows,
                placed(line, at, "d") if at.ndim == 2 else at,
            )
            calls: dict[str, Callable[..., Any]] = {
                "at.get": lambda v, i, o=options: v.at[i].get(**o),
            }
            if fill is not None:
                calls["take"] = lambda v, i, o=options: jnp.take(v, i, **o)
            for call_name, call in calls.items():
                found = jax.jit(jax.vmap(call, in_axes=axes))(*given)
                expect(
                    np.asarray(found), right.astype(np.float32), f"{call_name} by {name} in a batch of {way}"
                )


def _exchanges_in_batches(line, grid):
    """all_to_all, psum_scatter and all_gather over a batch's axis, from and to every dimension, tiled and not."""
    for size, places in ((2, (0,)), (3, (0, -1))):
        host = mixed((size, size, 2 * size, 3), 97, 7).astype(np.float32)

        def run(call: Callable[[Any], Any], axis: int, host: np.ndarray = host) -> np.ndarray:
            batch = jax.vmap(call, in_axes=axis, axis_name="i")
            return np.asarray(jax.jit(batch)(np.moveaxis(host, 0, axis)))

        for axis in places:
            for split in (0, 1):
                parts = np.stack(np.split(host, size, 1 + split), 1)  # [from, to, ...]
                for into in (0, 1, 2):
                    right = np.stack(
                        [np.concatenate([parts[k, j] for k in range(size)], into) for j in range(size)]
                    )
                    found = run(lambda v, s=split, c=into: lax.all_to_all(v, "i", s, c, tiled=True), axis)
                    expect(
                        found,
                        right,
                        f"a tiled exchange of {size} from {split} to {into}, the batch at {axis}",
                    )
                total = host.sum(0)
                found = run(
                    lambda v, s=split: lax.psum_scatter(v, "i", scatter_dimension=s, tiled=True), axis
                )
                right = np.stack(np.split(total, size, split))
                expect(found, right, f"a tiled sum of {size} along {split}, the batch at {axis}")
            for into in (0, 1, 2):
                found = run(lambda v, c=into: lax.all_gather(v, "i", axis=c, tiled=True), axis)
                whole = np.concatenate([*host], into)
                expect(
                    found,
                    np.stack([whole] * size),
                    f"a tiled gather of {size} to {into}, the batch at {axis}",
                )
                found = run(lambda v, c=into: lax.all_gather(v, "i", axis=c), axis)
                expect(found, np.stack([np.stack([*host], into)] * size), f"a gather of {size} to {into}")
            turn = [(k, (k + 1) % size) for k in range(size)]
            found = run(lambda v, turn=turn: lax.ppermute(v, "i", turn), axis)
            expect(found, np.roll(host, 1, 0), f"a turn of {size}, the batch at {axis}")


def _slopes_of_grouped_exchanges(line, grid):
    """Gradients of collectives over groups of devices: they go back within each group."""
    n = line.size
    if n % 2 or n < 4:
        return
    half = n // 2
    for name, groups in (
        ("halves", [list(range(half)), list(range(half, n))]),
        ("every other", [list(range(0, n, 2)), list(range(1, n, 2))]),
    ):
        host = mixed((n, half, 2), 97, 7).astype(np.float32)
        weights = mixed((n, half, 2), 89, 3).astype(np.float32)

        def slope(call: Callable[[Any], Any], weights: np.ndarray, host: np.ndarray = host) -> np.ndarray:
            region = mapped(
                lambda b, w: w * call(b[0])[None], line, (P("d"), P("d")), P("d"), check_vma=False
            )
            return np.asarray(jax.jit(jax.grad(lambda v: region(v, weights).sum()))(host))

        back = np.zeros_like(host)
        totals = np.zeros_like(host)
        for group in groups:
            for j, to in enumerate(group):
                for k, source in enumerate(group):
                    back[source, j] = weights[to, k]
            totals[group] = weights[group].sum(0)
        found = slope(
            lambda b, g=groups: lax.all_to_all(b, "d", 0, 0, tiled=True, axis_index_groups=g), weights
        )
        expect(found, back, f"the gradient of an exchange within {name}")
        found = slope(lambda b, g=groups: lax.psum(b, "d", axis_index_groups=g), weights)
        expect(found, totals, f"the gradient of a sum within {name}")
        found = slope(lambda b, g=groups: lax.pmean(b, "d", axis_index_groups=g), weights * half)
        expect(found, totals, f"the gradient of a mean within {name}")
        mean = mapped(
            lambda b, g=groups: lax.pmean(b, "d", axis_index_groups=g), line, P("d"), P("d"), check_vma=False
        )
        right = np.zeros_like(host)
        for group in groups:
            right[group] = (host[group].sum(0) / np.float32(half)).astype(np.float32)
        if half & (half - 1) == 0:
            expect(np.asarray(mean(host)), right, f"a mean within {name}")


def _dynamic_places(line, grid):
    """Slices, reads and updates from a place that only the run knows: negative places count from the end, and places
    past an end are moved to it."""
    n = 2 * line.size
    host = np.arange(1, n + 1, dtype=np.float32)
    x = placed(line, host, "d")
    square = mixed((n, 4), 97, 7).astype(np.float32)
    y = placed(line, square, "d")
    ones = np.full(2, 99, np.float32)

    def start(place: int, size: int) -> int:
        return min(max(place + n if place < 0 else place, 0), n - size)

    def updated(place: int) -> np.ndarray:
        right, at = host.copy(), start(place, 2)
        right[at : at + 2] = ones
        return right

    def set_one(place: int) -> np.ndarray:
        right = host.copy()
        right[start(place, 1)] = 9
        return right

    calls: dict[str, tuple[Callable[[Any], Any], Callable[[int], Any]]] = {
        "brackets": (lambda i: x[i], lambda k: host[start(k, 1)]),
        "brackets of rows": (lambda i: y[i], lambda k: square[start(k, 1)]),
        "brackets of elements": (lambda i: y[i, 1], lambda k: square[start(k, 1), 1]),
        "dynamic_slice": (lambda i: lax.dynamic_slice(x, (i,), (2,)), lambda k: host[start(k, 2) :][:2]),
        "dynamic_slice_in_dim": (
            lambda i: lax.dynamic_slice_in_dim(y, i, 2),
            lambda k: square[start(k, 2) :][:2],
        ),
        "dynamic_index_in_dim": (
            lambda i: lax.dynamic_index_in_dim(x, i, 0, False),
            lambda k: host[start(k, 1)],
        ),
        "dynamic_update_slice": (lambda i: lax.dynamic_update_slice(x, ones, (i,)), updated),
        "dynamic_update_slice_in_dim": (lambda i: lax.dynamic_update_slice_in_dim(x, ones, i, 0), updated),
        "dynamic_update_index_in_dim": (
            lambda i: lax.dynamic_update_index_in_dim(x, np.float32(9), i, 0),
            set_one,
        ),
    }
    for name, (call, right) in calls.items():
        run = jax.jit(call)
        for dtype in (np.int32, np.int8):
            for place in (0, 1, n - 1, n, n + 3, -1, -2, -n, -n - 3):
                found = np.asarray(run(dtype(place)))
                expect(found, right(place), f"{name} at {place} of {n}, an index of {np.dtype(dtype).name}")


def _slopes_of_convolutions(line, grid):
    """Gradients of convolutions of one, two and three dimensions, with strides, by the image and by the kernel."""
    n = line.size
    for dims, strides in ((1, (1,)), (1, (2,)), (2, (1, 2)), (3, (1, 1, 1)), (3, (2, 1, 1))):
        size = (5, 4, 6)[:dims]
        kernel_size = (3, 2, 3)[:dims]
        image = mixed((n, 2, *size), 11, 3).astype(np.float32)
        kernel = mixed((3, 2, *kernel_size), 7, 2).astype(np.float32)
        places = tuple((s - k) // step + 1 for s, k, step in zip(size, kernel_size, strides, strict=True))
        ct = mixed((n, 3, *places), 9, 5).astype(np.float32)

        def loss(v: Any, k: Any, ct: np.ndarray = ct, strides: tuple[int, ...] = strides) -> Any:
            return (lax.conv_general_dilated(v, k, strides, "VALID") * ct).sum()

        by_image, by_kernel = np.zeros_like(image), np.zeros_like(kernel)
        for offset in np.ndindex(*kernel_size):
            seen = tuple(
                slice(o, o + step * (p - 1) + 1, step)
                for o, step, p in zip(offset, strides, places, strict=True)
            )
            at = (slice(None), slice(None))
            by_image[(*at, *seen)] += np.einsum("no...,oc->nc...", ct, kernel[(*at, *offset)])
            part = image[(*at, *seen)].reshape(n, 2, -1)
            by_kernel[(*at, *offset)] = np.einsum("nop,ncp->oc", ct.reshape(n, 3, -1), part)
        for spec in ("d",), ():
            found = jax.jit(jax.grad(loss, (0, 1)))(placed(line, image, *spec), kernel)
            what = f"a convolution of {dims} dimensions, strides {strides}, over {spec}"
            expect(np.asarray(found[0]), by_image, f"the gradient by the image of {what}")
            expect(np.asarray(found[1]), by_kernel, f"the gradient by the kernel of {what}")


RULES_OF_BATCHED_CALLS: dict[str, Callable[..., None]] = {
    "filled_in_batches": _filled_in_batches,
    "exchanges_in_batches": _exchanges_in_batches,
    "slopes_of_grouped_exchanges": _slopes_of_grouped_exchanges,
    "dynamic_places": _dynamic_places,
    "slopes_of_convolutions": _slopes_of_convolutions,
}
