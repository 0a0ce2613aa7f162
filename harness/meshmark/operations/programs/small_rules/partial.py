# SPDX-License-Identifier: Apache-2.0
"""Small rules of regions that are manual over some axes of a mesh: run without jit, over axes of one device, in loops
within each other, and with automatic axes inside. And of pmap within other transforms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, auto_axes
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect


def _eager_regions_of_some_axes(line, grid):
    """A region over one of two axes gives the same with and without jit, and so does its gradient."""
    rows, columns = grid.devices.shape
    host = mixed((2 * rows * columns, 2 * rows * columns), 97, 7).astype(np.float32)
    x = placed(grid, host, "x", "y")
    for axis, size in (("x", rows), ("y", columns)):
        if size == 1:  # the finding sum-over-an-axis-of-one-device, which has cases of its own
            continue
        index = np.repeat(np.arange(size), host.shape[0] // size)[:, None].astype(np.float32)
        moved = np.roll(host.reshape(size, -1, host.shape[1]), 1, 0).reshape(host.shape)
        turn = [(k, (k + 1) % size) for k in range(size)]
        bodies = {
            "numbers by the index": (lambda b, a=axis: 2 * b + lax.axis_index(a), 2 * host + index, 2),
            "a sum": (lambda b, a=axis, s=size: s * b - lax.psum(b, a), None, None),
            "a turn": (lambda b, a=axis, t=turn: lax.ppermute(b, a, t), moved, 1),
        }
        for name, (body, right, slope) in bodies.items():
            call = jax.shard_map(body, mesh=grid, in_specs=P(axis), out_specs=P(axis), axis_names={axis})
            if right is None:
                total = host.reshape(size, -1, host.shape[1]).sum(0)
                right = size * host - np.tile(total, (size, 1))
            for way, run in (("eager", call), ("compiled", jax.jit(call))):
                what = f"{name} in a region over {axis}, {way}"
                expect(np.asarray(run(x)), right, what)
                if slope is not None:
                    found = jax.grad(lambda v, run=run: run(v).sum())(x)
                    expect(np.asarray(found), np.full_like(host, slope), f"the slope of {what}")


def _manual_axes_of_any_size(line, grid):
    """Indices, sums and turns over a manual axis of one device, and over one beside it, in regions over some axes."""
    n = line.size
    for shape in ((1, n), (n, 1)):
        mesh = Mesh(line.devices.reshape(shape), ("i", "j"))
        for axis, size in zip("ij", shape, strict=True):
            host = np.arange(2 * size, dtype=np.float32)
            turn = [(k, (k + 1) % size) for k in range(size)]
            members = {
                "an index": (lambda b, a=axis: b * 0 + lax.axis_index(a), np.repeat(np.arange(size), 2)),
                "a sum": (lambda b, a=axis: b * 0 + lax.psum(b.sum(), a), np.full(2 * size, host.sum())),
                "a turn": (lambda b, a=axis, t=turn: lax.ppermute(b, a, t), np.roll(host, 2)),
                "a gather": (
                    lambda b, a=axis: lax.all_gather(b, a, tiled=True)[:2] * 1,
                    np.tile(host[:2], size),
                ),
            }
            for name, (body, right) in members.items():
                run = jax.jit(
                    jax.shard_map(body, mesh=mesh, in_specs=P(axis), out_specs=P(axis), axis_names={axis})
                )
                what = f"{name} in a region over {axis} of a mesh of {shape[0]} x {shape[1]}"
                expect(np.asarray(run(host)), right.astype(np.float32), what)


def _loops_in_nested_regions(line, grid):
    """lax.map and scan in a region over one axis, in a loop in a region over the other axis."""
    rows, columns = grid.devices.shape
    host = mixed((2 * rows, 2 * columns), 97, 7).astype(np.float32)

    def within(v):
        return (
            jax.shard_map(
                lambda b: lax.map(lambda e: e + 1, b), in_specs=P("y"), out_specs=P("y"), axis_names={"y"}
            )(v)
            + 2
        )

    def scanned(v):
        inner = jax.shard_map(
            lambda b: lax.scan(lambda c, e: (c, e * 3), 0.0, b)[1],
            in_specs=P("y"),
            out_specs=P("y"),
            axis_names={"y"},
        )
        return inner(v) + 1

    for name, f, right in (("map", within, host + 6), ("scan", scanned, 3 * host + 4)):
        outer = jax.shard_map(
            lambda b, f=f: lax.map(f, b), mesh=grid, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}
        )
        with jax.set_mesh(grid):
            found = jax.jit(lambda v, outer=outer: outer(v) + 3)(host)
        expect(np.asarray(found), right, f"a loop of a region with a {name} in another region")


def _automatic_part(host, grid, axes):
    """Rows that are read in automatic axes, in a region over the axis "x" of two Explicit ones."""
    typed = explicit(grid)
    with jax.set_mesh(typed):
        part = auto_axes(lambda b: b[::-1] * 2, axes=axes, out_sharding=P())
        run = jax.shard_map(
            part, mesh=typed, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}, check_vma=False
        )
        found = np.asarray(jax.jit(run)(placed(typed, host, "x")))
    rows = grid.devices.shape[0]
    right = host.reshape(rows, -1, host.shape[1])[:, ::-1].reshape(host.shape) * 2
    expect(found, right, f"automatic axes {axes or 'that are not named'} in a region over one axis")


def _named_axes_made_automatic(line, grid):
    """auto_axes of the other axis, in a region over one of two Explicit axes."""
    _automatic_part(mixed((2 * grid.devices.shape[0], 4), 97, 7).astype(np.float32), grid, ("y",))


def _other_axes_made_automatic(line, grid):
    """auto_axes of all axes that are left, in a region over one of two Explicit axes."""
    _automatic_part(mixed((2 * grid.devices.shape[0], 4), 97, 7).astype(np.float32), grid, None)


def _pmap_in_transforms(line, grid):
    """pmap in vmap, lax.map, loops and jit, with axes of its own, and with several types in turn."""
    n = jax.local_device_count()
    host = mixed((n, 2, 5), 97, 7).astype(np.float32)
    others = mixed((3, 5), 9, 7).astype(np.float32)

    def products(v):
        return jax.pmap(lambda rows: lax.map(lambda row: row @ v, rows))(host)

    right = np.einsum("dbk,ck->cdb", host, others)
    expect(np.asarray(jax.vmap(products)(others)), right, "a vmap of a pmap")
    expect(np.asarray(lax.map(products, others)), right, "a lax.map of a pmap")

    def unmapped(v):
        return jax.pmap(lambda a, b: a[0, 0] * 0 + b, in_axes=(0, None))(host, v)

    right = np.repeat(others[:, None], n, 1)
    expect(
        np.asarray(jax.vmap(unmapped)(others)), right, "a vmap of a pmap of an argument that it does not map"
    )
    expect(
        np.asarray(lax.map(unmapped, others)),
        right,
        "a lax.map of a pmap of an argument that it does not map",
    )
    last = jax.pmap(lambda v: 2 * v, out_axes=1)
    rows = host[:, 0]
    expect(np.asarray(jax.jit(last)(rows)), 2 * rows.T, "a jit of a pmap with out_axes 1")
    turn = jax.pmap(
        jax.jit(lambda v: lax.ppermute(v, "p", [(k, (k + 1) % n) for k in range(n)])), axis_name="p"
    )
    looped = jax.jit(lambda v: lax.fori_loop(0, 3, lambda k, c: turn(c), v))
    expect(np.asarray(looped(rows)), np.roll(rows, 3, 0), "a loop of a pmap of a jit, in a jit")
    with jax.disable_jit():
        found = jax.pmap(lambda v: v + jnp.asarray(np.arange(5, dtype=np.float32)))(rows)
    expect(np.asarray(found), rows + np.arange(5, dtype=np.float32), "a pmap without jit")
    square = jax.pmap(lambda v: v * v, axis_name="p")
    for one in (host, rows, rows[:, 0], host.astype(np.int32), rows):
        expect(np.asarray(square(one)), one * one, f"a pmap of {one.dtype.name} of rank {one.ndim}")


RULES_OF_PARTIAL_REGIONS = {
    "eager_regions_of_some_axes": _eager_regions_of_some_axes,
    "manual_axes_of_any_size": _manual_axes_of_any_size,
    "loops_in_nested_regions": _loops_in_nested_regions,
    "named_axes_made_automatic": _named_axes_made_automatic,
    "other_axes_made_automatic": _other_axes_made_automatic,
    "pmap_in_transforms": _pmap_in_transforms,
}
