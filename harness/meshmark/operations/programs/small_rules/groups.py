# SPDX-License-Identifier: Apache-2.0
"""Small rules: members of collectives in every order. Names of one to three axes, groups whose members are not sorted,
shuffles over axes of every size, and batches of collectives that split one dimension and join another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices


def _cube(line: Any) -> Mesh:
    """All devices over three axes, as even as their number allows."""
    size = line.size
    first = 2 if size % 2 == 0 else 1
    second = 2 if (size // first) % 2 == 0 else 1
    return Mesh(line.devices.reshape(first, second, -1), ("x", "y", "z"))


def _orders(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for length in (1, 2, 3):
        yield from itertools.permutations(names, length)


def _axis_indices(line, grid):
    """The place of a device, the number of members and what each member gets, by one to three names in every order, in
    regions that are manual over these axes alone and over all."""
    mesh = _cube(line)
    places = dict(zip(mesh.axis_names, np.indices(mesh.devices.shape), strict=True))
    spec = P(*mesh.axis_names)
    code = mixed(mesh.devices.shape, 97, 7).astype(np.int32)

    def inside(value: Any, over: tuple[str, ...]) -> dict[str, Any]:
        whole = lax.all_gather(value.reshape(()), over)
        return {
            "the index": jnp.full(value.shape, lax.axis_index(over), jnp.int32),
            "the size": jnp.full(value.shape, lax.axis_size(over), jnp.int32),
            "the sum": lax.psum(value, over),
            "the gathered": jnp.sum(whole * jnp.arange(1, whole.size + 1)).reshape(value.shape),
        }

    def run(value: Any) -> dict[tuple[str, ...], Any]:
        return {over: inside(value, over) for over in _orders(mesh.axis_names)}

    region = jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    for over, found in jax.device_get(jax.jit(region)(code)).items():
        _check_places(found, over, mesh, places, code, "in a region over all axes")
    for number in (1, 2):
        for over in itertools.permutations(mesh.axis_names, number):
            held = P(*(name if name in over else None for name in mesh.axis_names))
            part = jax.shard_map(
                lambda value, over=over: jnp.full(value.shape, lax.axis_index(over), jnp.int32),
                mesh=mesh,
                in_specs=held,
                out_specs=held,
                axis_names=set(over),
            )
            right = _index(places, over, mesh).astype(np.int32)
            expect(
                np.asarray(jax.jit(part)(code)), right, f"the index by {over} in a region over these alone"
            )


def _index(places: dict[str, np.ndarray], over: tuple[str, ...], mesh: Mesh) -> np.ndarray:
    """The place of each device among the members, the first name counting most."""
    index = np.zeros(mesh.devices.shape, int)
    for name in over:
        index = index * mesh.shape[name] + places[name]
    return index


def _check_places(
    found: dict[str, Any],
    over: tuple[str, ...],
    mesh: Mesh,
    places: dict[str, np.ndarray],
    code: np.ndarray,
    where: str,
) -> None:
    index = _index(places, over, mesh)
    axes = tuple(mesh.axis_names.index(name) for name in over)
    right = {
        "the index": index,
        "the size": np.full(code.shape, np.prod([mesh.shape[name] for name in over])),
        "the sum": np.broadcast_to(code.sum(axes, keepdims=True), code.shape),
        "the gathered": np.broadcast_to((code * (index + 1)).sum(axes, keepdims=True), code.shape),
    }
    for said, answer in right.items():
        expect(np.asarray(found[said]), answer.astype(np.int32), f"{said} by {over} {where}")


def _shuffles(line, grid):
    """pshuffle by permutations that are not their own inverses, over axes of three devices and more."""
    sizes = range(3, line.size + 1) if may_leave_out_devices() else [line.size] * (line.size > 2)
    for size in sizes:
        mesh = Mesh(line.devices.ravel()[:size], ("d",))
        rows = mixed((size, 2), 89, 7).astype(np.int32)
        for permutation in ([*range(1, size), 0], [size - 1, *range(size - 1)], [1, 2, 0, *range(3, size)]):
            region = jax.shard_map(
                lambda v, permutation=permutation: lax.pshuffle(v, "d", permutation),
                mesh=mesh,
                in_specs=P("d"),
                out_specs=P("d"),
            )
            right = rows[np.array(permutation)]
            expect(np.asarray(jax.jit(region)(rows)), right, f"pshuffle by {permutation} over {size}")


def _unsorted_groups(line, grid):
    """pswapaxes, all_to_all, all_gather and psum_scatter over groups whose members are in another order than devices,
    tiled and not, with their gradients."""
    size = line.size
    groups = [[2 * k + 1, 2 * k] if k % 2 == 0 else [2 * k, 2 * k + 1] for k in range(size // 2)]
    if size % 2:
        groups = [[*reversed(range(size))]]
    rows = mixed((size, len(groups[0]), 3), 61, 7).astype(np.float32)

    def members(device: int) -> list[int]:
        return next(group for group in groups if device in group)

    def place(device: int) -> int:
        return members(device).index(device)

    swapped = np.stack([np.stack([rows[m, place(d)] for m in members(d)]) for d in range(size)])
    sums = np.stack([sum(rows[m, place(d)] for m in members(d)) for d in range(size)])
    gathered = np.stack([np.stack([rows[m] for m in members(d)]) for d in range(size)])
    calls = {
        "pswapaxes": (lambda v: lax.pswapaxes(v[0], "d", 0, axis_index_groups=groups)[None], swapped),
        "all_to_all": (
            lambda v: lax.all_to_all(v[0], "d", 0, 0, axis_index_groups=groups, tiled=True)[None],
            swapped,
        ),
        "all_gather": (lambda v: lax.all_gather(v[0], "d", axis_index_groups=groups)[None], gathered),
        "psum_scatter": (
            lambda v: lax.psum_scatter(v[0], "d", axis_index_groups=groups)[None],
            sums,
        ),
    }
    for name, (call, right) in calls.items():
        region = jax.shard_map(call, mesh=line, in_specs=P("d"), out_specs=P("d"), check_vma=False)
        expect(np.asarray(jax.jit(region)(rows)), right.astype(np.float32), f"{name} over {groups}")
        weights = mixed(right.shape, 11, 3).astype(np.float32)
        slope = jax.jit(jax.grad(lambda v, region=region, w=weights: (region(v) * w).sum()))(rows)
        expect(
            np.asarray(slope),
            _transposed(name, weights, groups, rows.shape),
            f"the gradient of {name} over {groups}",
        )


def _transposed(
    name: str, weights: np.ndarray, groups: list[list[int]], shape: tuple[int, ...]
) -> np.ndarray:
    """The cotangent of each device's argument."""
    found = np.zeros(shape, np.float32)
    for group in groups:
        for to, receiver in enumerate(group):
            for of, sender in enumerate(group):
                if name == "all_gather":
                    found[sender] += weights[receiver, of]
                elif name == "psum_scatter":
                    found[sender, to] += weights[receiver]
                else:
                    found[sender, to] += weights[receiver, of]
    return found


def _batches_of_collectives(line, grid):
    """Collectives under vmap inside a region, with the batch in front and behind, and each one by itself."""
    size = line.size
    rows = mixed((size, size, 2 * size, 3), 89, 7).astype(np.int32)
    blocks = np.moveaxis(rows, -1, 1)  # [device, row of the batch, size, 2 * size]
    total = blocks.sum(0, dtype=np.int32)
    pairs = [slice(2 * k, 2 * k + 2) for k in range(size)]

    def each(answer: Callable[[int, np.ndarray], np.ndarray]) -> np.ndarray:
        """answer(device, the blocks of all devices) for each device and each row of the batch."""
        return np.stack([np.stack([answer(d, blocks[:, k]) for k in range(3)]) for d in range(size)])

    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "psum_scatter": (lambda v: lax.psum_scatter(v, "d"), total.swapaxes(0, 1)),
        "psum_scatter, tiled": (
            lambda v: lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True),
            np.stack([total[..., pairs[d]] for d in range(size)]),
        ),
        "all_to_all": (lambda v: lax.all_to_all(v, "d", 0, 0), each(lambda d, b: b[:, d])),
        "all_to_all to the last": (lambda v: lax.all_to_all(v, "d", 0, 1), each(lambda d, b: b[:, d].T)),
        "all_to_all, tiled": (
            lambda v: lax.all_to_all(v, "d", 1, 0, tiled=True),
            each(lambda d, b: np.concatenate([*b[..., pairs[d]]])),
        ),
        "all_to_all, tiled to the last": (
            lambda v: lax.all_to_all(v, "d", 0, 1, tiled=True),
            each(lambda d, b: b[:, d].reshape(1, -1)),
        ),
        "all_gather": (lambda v: lax.all_gather(v, "d", axis=1), each(lambda d, b: b.swapaxes(0, 1))),
        "all_gather, tiled": (
            lambda v: lax.all_gather(v, "d", axis=1, tiled=True),
            each(lambda d, b: np.concatenate([*b], 1)),
        ),
        "ppermute": (
            lambda v: lax.ppermute(v, "d", [(k, (k + 1) % size) for k in range(size)]),
            np.roll(blocks, 1, 0),
        ),
        "pmax": (lambda v: lax.pmax(v, "d"), each(lambda d, b: b.max(0))),
    }

    def run(v: Any) -> dict[str, Any]:
        found = {}
        for name, (call, _) in calls.items():
            alone = jnp.stack([call(v[0, ..., k]) for k in range(3)])
            found[name] = {"alone": alone[None], "in front": jax.vmap(call)(jnp.moveaxis(v[0], -1, 0))[None]}
            if name != "psum_scatter":  # results/findings/untiled-psum-scatter-in-a-batch
                behind = jax.vmap(call, in_axes=-1, out_axes=-1)(v[0])
                found[name]["behind"] = jnp.moveaxis(behind, -1, 0)[None]
        return found

    region = jax.shard_map(run, mesh=line, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    for name, ways in jax.device_get(jax.jit(region)(rows)).items():
        for way, found in ways.items():
            expect(found, calls[name][1], f"a batch of {name}, {way}")


RULES_OF_GROUPS = {
    "axis_indices": _axis_indices,
    "shuffles": _shuffles,
    "unsorted_groups": _unsorted_groups,
    "batches_of_collectives": _batches_of_collectives,
}
