# SPDX-License-Identifier: Apache-2.0
"""Small rules of wide numbers and of Python's: collectives of 64 bits, sums of a Python number over some axes, means
and indices in regions over some axes, loops whose steps come in groups that do not divide them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect


def _wide(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Distinct numbers that 32 bits can't hold, whose sums 64 bits hold exactly."""
    numbers = mixed(shape, 97, 7).astype(np.int64) * (2**33 + 1) + 3
    return (numbers + 1j * numbers[::-1] if np.dtype(dtype).kind == "c" else numbers).astype(dtype)


def _collectives_of_64_bits(line, grid):
    """Collectives and sums of 64-bit numbers that 32 bits can't hold."""
    n = line.size
    with jax.enable_x64(True):
        for dtype in (np.float64, np.int64, np.uint64, np.complex128):
            host = _wide((n, n), dtype)
            total = host.sum(0)
            x = placed(line, host, "d")
            calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
                "psum": (lambda b: lax.psum(b, "d"), np.tile(total, (n, 1))),
                "psum_scatter": (lambda b: lax.psum_scatter(b[0], "d", tiled=True)[None], total[:, None]),
                "all_gather": (
                    lambda b: lax.all_gather(b, "d", tiled=True)[::-1][:1],
                    np.tile(host[-1], (n, 1)),
                ),
                "all_to_all": (lambda b: lax.all_to_all(b, "d", 1, 1, tiled=True), host.T),
                "ppermute": (
                    lambda b: lax.ppermute(b, "d", [(k, (k + 1) % n) for k in range(n)]),
                    np.roll(host, 1, 0),
                ),
            }
            if dtype is not np.complex128:
                calls["pmax"] = (lambda b: lax.pmax(b, "d"), np.tile(host.max(0), (n, 1)))
                calls["pmin"] = (lambda b: lax.pmin(b, "d"), np.tile(host.min(0), (n, 1)))
            for name, (body, right) in calls.items():
                found = mapped(body, line, P("d"), P("d"), check_vma=False)(x)
                expect(np.asarray(found), right, f"{name} of {np.dtype(dtype).name}")
            wholes: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
                "a sum": (lambda v: v.sum(0), total),
                "a running sum": (lambda v: jnp.cumsum(v, 0), np.cumsum(host, 0)),
                "a product with ones": (lambda v: jnp.ones((1, n), v.dtype) @ v, total[None]),
                "a gather of rows": (lambda v: v[jnp.array([n - 1, 0])], host[[n - 1, 0]]),
            }
            for name, (call, right) in wholes.items():
                expect(np.asarray(jax.jit(call)(x)), right, f"{name} of {np.dtype(dtype).name}")


def _meshes(line: Mesh) -> tuple[Mesh, ...]:
    """Meshes of all devices over two and three axes."""
    devices = line.devices.ravel()
    even = 2 if devices.size % 2 == 0 else 1
    twice = 2 if devices.size % 4 == 0 else 1
    return (
        Mesh(devices.reshape(even, -1), ("x", "y")),
        Mesh(devices.reshape(even, twice, -1), ("x", "y", "z")),
    )


def _sums_of_python_numbers(line, grid):
    """Collectives of a Python number and of an array of ones, over every choice of axes: they count devices."""
    for mesh in _meshes(line):
        names = mesh.axis_names
        host = np.ones(mesh.devices.shape, np.float32)
        for count in range(1, len(names) + 1):
            for axes in itertools.permutations(names, count):
                size = int(np.prod([mesh.shape[a] for a in axes]))

                def body(b, axes=axes):
                    numbers = (
                        lax.psum(1, axes),
                        lax.psum(2.0, axes),
                        lax.pmean(3.0, axes),
                        lax.psum(b, axes),
                    )
                    return jnp.stack(
                        [jnp.broadcast_to(jnp.asarray(v, b.dtype), b.shape) for v in numbers], -1
                    )

                found = np.asarray(mapped(body, mesh, P(*names), P(*names), check_vma=False)(host))
                right = np.broadcast_to(np.array([size, 2 * size, 3, size], np.float32), (*host.shape, 4))
                expect(found, right, f"sums of Python numbers over {axes} of a mesh of {mesh.devices.shape}")


def _means_in_partial_regions(line, grid):
    """Means, sums, largest and indices over the manual axes of regions over one or two of three axes."""
    mesh = _meshes(line)[1]
    names, sizes = mesh.axis_names, mesh.devices.shape
    host = mixed(sizes, 8, 3).astype(np.float32) * 840  # each mean is an integer
    for count in (1, 2):
        for manual in itertools.combinations(names, count):
            for axes in [manual] if count == 1 else [manual, manual[:1], manual[1:], manual[::-1]]:
                spec = P(*(a if a in manual else None for a in names))
                over = tuple(names.index(a) for a in axes)
                index = np.zeros(sizes, np.float32)
                for a in axes:
                    place = np.arange(mesh.shape[a]).reshape([-1 if b == a else 1 for b in names])
                    index = index * mesh.shape[a] + place
                calls: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray]] = {
                    "pmean": (lambda b, a: 0 * b + lax.pmean(b, a), host.mean(over, keepdims=True)),
                    "psum": (lambda b, a: 0 * b + lax.psum(b, a), host.sum(over, keepdims=True)),
                    "pmax": (lambda b, a: 0 * b + lax.pmax(b, a), host.max(over, keepdims=True)),
                    "axis_index": (lambda b, a: 0 * b + lax.axis_index(a), index),
                }
                for name, (call, right) in calls.items():
                    run = jax.shard_map(
                        lambda b, c=call, a=axes: c(b, a),
                        mesh=mesh,
                        in_specs=spec,
                        out_specs=spec,
                        axis_names=set(manual),
                        check_vma=False,
                    )
                    found = np.asarray(jax.jit(run)(host))
                    what = f"{name} over {axes} in a region over {manual} of a mesh of {sizes}"
                    expect(found, np.broadcast_to(right, sizes).astype(np.float32), what)


def _indices_in_nested_regions(line, grid):
    """Indices and sizes of the outer and of the inner axis, in a region in a region."""
    rows, columns = grid.devices.shape
    host = np.zeros((rows, columns), np.float32)
    numbers = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    for first, second in (("x", "y"), ("y", "x")):
        sizes = {"x": rows, "y": columns}

        def inner(b):
            number = lax.axis_index("x") * columns + lax.axis_index("y")
            return b + number + 1000 * lax.axis_size("x") + 100000 * lax.axis_size("y")

        def outer(b, second=second):
            before = lax.axis_index("y" if second == "x" else "x") * 0
            spec = P(*(a if a == second else None for a in "xy"))
            return before + jax.shard_map(inner, in_specs=spec, out_specs=spec, axis_names={second})(b)

        spec = P(*(a if a == first else None for a in "xy"))
        run = jax.shard_map(outer, mesh=grid, in_specs=spec, out_specs=spec, axis_names={first})
        with jax.set_mesh(grid):
            found = np.asarray(jax.jit(run)(host))
        right = numbers + 1000 * sizes["x"] + 100000 * sizes["y"]
        expect(found, right, f"indices in a region over {second} in a region over {first}")


def _steps_in_groups(line, grid):
    """scan and map with `unroll` and batches that do not divide the number of steps, forwards and backwards."""
    n = line.size
    host = mixed((7, n), 97, 7).astype(np.float32)
    start = np.arange(n, dtype=np.float32)
    x, by = placed(line, start, "d"), placed(line, host, None, "d")
    for unroll in (1, 2, 3, 7, 9, True):
        for reverse in (False, True):

            def run(c, w, unroll=unroll, reverse=reverse):
                return lax.scan(lambda c, w: (2 * c + w, c - w), c, w, unroll=unroll, reverse=reverse)

            carry, rows = start, np.zeros_like(host)
            for k in range(7)[:: -1 if reverse else 1]:
                rows[k] = carry - host[k]
                carry = 2 * carry + host[k]
            last, steps = jax.jit(run)(x, by)
            what = f"a scan of 7 steps with unroll={unroll}, reverse={reverse}"
            expect(np.asarray(last), carry, f"the carry of {what}")
            expect(np.asarray(steps), rows, f"the results of {what}")
    for size in (1, 2, 3, 7, 9):
        found = jax.jit(lambda w, size=size: lax.map(lambda row: row * row, w, batch_size=size))(by)
        expect(np.asarray(found), host * host, f"a map of 7 rows with batch_size={size}")


RULES_OF_WIDE_NUMBERS = {
    "collectives_of_64_bits": _collectives_of_64_bits,
    "sums_of_python_numbers": _sums_of_python_numbers,
    "means_in_partial_regions": _means_in_partial_regions,
    "indices_in_nested_regions": _indices_in_nested_regions,
    "steps_in_groups": _steps_in_groups,
}
