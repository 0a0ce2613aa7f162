# SPDX-License-Identifier: Apache-2.0
"""Small rules of two things that meet: a batch and an axis of one name, memory kinds and specs over several axes, equal
meshes, references and Explicit axes, keys and callbacks, NumPy and typed arrays, parts that choose nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed, reason_of
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices, refused


def _batches_of_one_name(line, grid):
    """A named batch around a region over an axis of the same name: a sum in the region is over the devices, since the
    inner name hides the outer one; or JAX refuses the name."""
    n = line.size
    host = mixed((3, n), 97, 7).astype(np.float32)
    region = jax.shard_map(
        lambda b: lax.psum(b, "d"), mesh=line, in_specs=P("d"), out_specs=P(), check_vma=False
    )
    try:
        found = np.asarray(jax.jit(jax.vmap(region, axis_name="d"))(host))
    except (TypeError, ValueError, NameError, NotImplementedError) as error:
        wrong(
            not re.search("axis|axes|name", reason_of(error)),
            f"the name is refused for another reason: {error}",
        )
        return
    expect(found, host.sum(1, keepdims=True), "a sum over an axis that has the name of a batch")


def _batches_from_the_end(line, grid):
    """Collectives over a batch of four along each dimension, counted from the start and from the end."""
    host = mixed((4, 4, 8), 97, 7).astype(np.float32)
    for d in (0, 1):
        pieces = [np.split(row, 4, d) for row in host]  # [sender][receiver]
        sums = np.split(host.sum(0), 4, d)
        calls: dict[str, tuple[Callable[[Any, int], Any], Any]] = {
            "all_to_all": (
                lambda v, k: lax.all_to_all(v, "i", k, k, tiled=True),
                [np.concatenate([sent[i] for sent in pieces], d) for i in range(4)],
            ),
            "psum_scatter": (lambda v, k: lax.psum_scatter(v, "i", scatter_dimension=k, tiled=True), sums),
            "all_gather": (
                lambda v, k: lax.all_gather(v, "i", axis=k, tiled=True),
                [np.concatenate([*host], d)] * 4,
            ),
        }
        if host.shape[1 + d] == 4:
            calls |= {
                "all_to_all of whole rows": (
                    lambda v, k: lax.all_to_all(v, "i", k, k),
                    [np.concatenate([sent[i] for sent in pieces], d) for i in range(4)],
                ),
                "psum_scatter of whole rows": (
                    lambda v, k: lax.psum_scatter(v, "i", scatter_dimension=k),
                    [one.squeeze(d) for one in sums],
                ),
            }
        for name, (call, right) in calls.items():
            for k in (d, d - 2):
                found = jax.vmap(lambda v, k=k, f=call: f(v, k), axis_name="i")(host)
                expect(np.asarray(found), np.stack(right), f"{name} over a batch along dimension {k}")


def _memories_of_specs(line, grid):
    """A sharding in another kind of memory, or of another spec, keeps the axes of each dimension in their order."""
    kinds = [m.kind for m in line.devices.flat[0].addressable_memories()]
    specs = (P(("x", "y")), P(("y", "x"), None), P(None, ("x", "y")), P("y", "x"), P(None, "x"), P())
    host = mixed((2 * grid.size, 2 * grid.size), 97, 7).astype(np.float32)
    for spec in specs:
        for kind in kinds:
            own = NamedSharding(grid, spec)
            moved = own.with_memory_kind(kind)
            what = f"a sharding over {spec} in {kind}"
            expect((moved.spec, moved.mesh, moved.memory_kind), (spec, grid, kind), what)
            expect(
                moved.devices_indices_map(host.shape),
                own.devices_indices_map(host.shape),
                f"the parts of {what}",
            )
            expect(moved.with_memory_kind(kinds[0]).spec, spec, f"the spec of {what}, and back")
            expect(own.update(memory_kind=kind).spec, spec, f"the spec of {what}, by update")
            x = jax.device_put(host, moved)
            expect(x.sharding.spec, spec, f"the spec of an array by {what}")
            for part in x.addressable_shards:
                expect(
                    np.asarray(part.data),
                    host[own.devices_indices_map(host.shape)[part.device]],
                    f"a part by {what}",
                )
            back = jax.device_put(x, own)
            expect(np.asarray(back), host, f"an array by {what}, and back")


def _equal_contexts(line, grid):
    """A jitted function is traced once for equal meshes, and anew for others; a constraint by a spec is over the mesh
    of the call, by `with mesh` and by set_mesh."""
    host = mixed((2 * grid.size, 2 * grid.size), 97, 7).astype(np.float32)
    traces = []

    @jax.jit
    def doubled(v):
        traces.append(1)
        return lax.with_sharding_constraint(2 * v, P("x", "y"))

    for _ in range(3):
        with jax.set_mesh(Mesh(grid.devices, ("x", "y"))):
            expect(np.asarray(doubled(host)), 2 * host, "a result in an equal mesh")
    expect(len(traces), 1, "the number of traces in three equal meshes")
    made = jax.jit(
        lambda: lax.with_sharding_constraint(jnp.ones((2 * grid.size, 2 * grid.size)), P("x", "y"))
    )
    turned = Mesh(grid.devices.T, ("x", "y"))
    for mesh in (grid, turned, grid, turned):
        for way, context in (("with mesh", mesh), ("set_mesh", jax.set_mesh(mesh))):
            with context:
                for f in (made, lambda: doubled(host)):
                    found = f().sharding
                    right = NamedSharding(mesh, P("x", "y"))
                    what = f"whether a constraint by {way} is over a mesh of {mesh.devices.shape}"
                    expect(found.is_equivalent_to(right, 2), True, what)


def _typed_references(line, grid):
    """A reference over Explicit axes has the type of its array when it is read and written in a program."""
    typed = explicit(grid)
    host = mixed((2 * grid.size, 2 * grid.size), 97, 7).astype(np.float32)
    with jax.set_mesh(typed):
        for spec in (P("x", "y"), P(None, "x"), P(("y", "x"), None)):
            seen = []

            @jax.jit
            def read(r, seen=seen):
                seen.append(jax.typeof(r[...]).sharding.spec)
                r[...] = r[...] + 1
                return r[...] * 2

            ref = jax.new_ref(placed(typed, host, *spec))
            found = read(ref)
            what = f"a reference over {spec}"
            expect(seen[0], spec, f"the spec of {what}, read in a program")
            expect(found.sharding.spec, spec, f"the spec of twice {what}")
            expect(np.asarray(found), 2 * (host + 1), f"twice {what}")
            expect(np.asarray(ref[...]), host + 1, f"{what} after a program wrote it")


def _references_ahead(line, grid):
    """A reference that a program closes over and writes, compiled ahead of time; a program may not return a new one."""
    host = mixed((2 * line.size, 2), 97, 7).astype(np.float32)
    ref = jax.new_ref(placed(line, np.zeros_like(host), "d"))

    def write(v):
        ref[...] = 7 * v
        return v + 1

    x = placed(line, host, "d")
    ahead = jax.jit(write).lower(x).compile()
    expect(np.asarray(ahead(x)), host + 1, "a program that writes a reference, compiled before")
    expect(np.asarray(ref[...]), 7 * host, "what a program that was compiled before has written")
    refused("a program that returns a new reference", "(?i)ref", lambda: jax.jit(jax.new_ref)(x))


def _keys_called_back(line, grid):
    """Callbacks in a region get the key of their device."""
    keys = jax.random.split(jax.random.key(5), line.size)
    seen: list[tuple[int, ...]] = []

    def note(k):
        seen.append(tuple(np.asarray(jax.random.key_data(k)).ravel().tolist()))

    def draw(k):
        jax.debug.callback(note, k)
        return jax.vmap(lambda one: jax.random.bits(one, (4,)))(k)

    found = mapped(draw, line, P("d"), P("d"))(jax.device_put(keys, NamedSharding(line, P("d"))))
    jax.effects_barrier()
    right = np.stack([np.asarray(jax.random.bits(k, (4,))) for k in keys])
    expect(np.asarray(found), right, "draws by the keys of a region that calls back")
    expect(
        sorted(seen),
        sorted(map(tuple, np.asarray(jax.random.key_data(keys)).tolist())),
        "the keys called back",
    )


def _numpy_beside_types(line, grid):
    """Operators of NumPy arrays and arrays over Explicit axes, on either side, keep the other's type."""
    typed = explicit(grid)
    square = mixed((2, 2), 9, 7).astype(np.float32)
    wide = mixed((2, 2 * grid.size), 97, 7).astype(np.float32)
    with jax.set_mesh(typed):
        w = placed(typed, wide, None, "x")
        calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
            "a product from the left": (lambda v: square @ v, square @ wide),
            "a product from the right": (lambda v: v.T @ square, wide.T @ square),
            "a column times rows": (lambda v: square[:, :1] * v, square[:, :1] * wide),
            "rows plus a row": (lambda v: v + wide[0], wide + wide[0]),
            "a row minus rows": (lambda v: wide[0] - v, wide[0] - wide),
            "a comparison": (lambda v: wide[:1] < v, wide[:1] < wide),
            "a choice": (lambda v: jnp.where(wide[0] > 40, v, -wide), np.where(wide[0] > 40, wide, -wide)),
            "a dot": (lambda v: jnp.dot(square, v), square @ wide),
        }
        for name, (call, right) in calls.items():
            for way, run in (("eager", call), ("compiled", jax.jit(call))):
                found = run(w)
                expect(np.asarray(found), right, f"{name}, {way}")
                spec = ["x" if size == wide.shape[1] else None for size in right.shape]
                expect(list(jax.typeof(found).sharding.spec), spec, f"the spec of {name}, {way}")


def _sums_of_numbers(line, grid):
    """Sums over devices of NumPy and JAX numbers have the dtype of the number, with 64 bits too."""
    n = line.size
    for wide in (False, True):
        with jax.enable_x64(wide):
            for number in (
                np.float32(1.5),
                np.array(2.5, np.float32),
                np.int32(3),
                jnp.float32(1.5),
                jnp.int8(2),
            ):
                dtype = np.asarray(number).dtype
                run = mapped(
                    lambda _, k=number: lax.psum(k, "d")[None], line, P("d"), P("d"), check_vma=False
                )
                found = run(np.zeros(n, np.float32))
                what = f"a sum of {type(number).__name__} of {dtype.name}, 64 bits {wide}"
                expect(np.asarray(found), np.full(n, n * np.asarray(number), dtype), what)


def _parts_that_choose_nothing(line, grid):
    """A part of an array that a mask, a slice or places choose lies on the array's devices, also if it is empty."""
    if not may_leave_out_devices() or line.size < 2:
        return
    half = Mesh(line.devices[line.size // 2 :], ("d",))
    x = placed(half, np.arange(2 * half.size, dtype=np.float32), "d")
    count = x.size
    ways: dict[str, Callable[[int], Any]] = {
        "a mask": lambda k: x[np.arange(count) < k],
        "a slice": lambda k: x[:k],
        "places": lambda k: x[np.arange(k)],
        "a slice from the end": lambda k: x[count - k :],
    }
    for name, part in ways.items():
        for k in (count, 1, 0):
            found = part(k)
            what = f"{k} elements of an array, by {name}"
            expect(found.shape, (k,), f"the shape of {what}")
            wrong(
                not found.devices() <= x.devices(),
                f"{what} lie on {found.devices()}, and the array on {x.devices()}",
            )
            wrong(not found.committed, f"{what} are not committed, and the array is")


def _batches_over_axes(line, grid):
    """A vmap with spmd_axis_name of a constraint: the batch is over the axis wherever in_axes and out_axes have it."""
    rows, columns = grid.devices.shape
    sizes = (2 * rows * columns, 4 * rows * columns, 2)
    for rank in (2, 3):
        host = mixed(sizes[:rank], 97, 7).astype(np.float32)
        for into in range(rank):
            if host.shape[into] == 2:
                continue
            for axis, other in (("x", "y"), ("y", "x")):
                inner = P(*(other, None)[: rank - 1])

                def part(v, inner=inner):
                    return lax.with_sharding_constraint(2 * v, NamedSharding(grid, inner))

                if np.delete(host.shape, into)[0] % grid.shape[other]:
                    continue
                for from_end in (0, rank):
                    run = jax.jit(jax.vmap(part, in_axes=into - from_end, spmd_axis_name=axis))
                    found = run(host)
                    what = f"a batch of dimension {into - from_end} of {rank}, over {axis}"
                    expect(np.asarray(found), 2 * np.moveaxis(host, into, 0), what)
                    right = NamedSharding(grid, P(axis, *inner))
                    expect(
                        found.sharding.is_equivalent_to(right, rank),
                        True,
                        f"whether the place is right of {what}",
                    )


def _rows_past_the_groups(line, grid):
    """Rows past the last group of ragged_dot are zero, for every place of empty groups and of the rest."""
    n = line.size
    rows = mixed((4 * n, 3), 9, 7).astype(np.float32) + 1
    weights = mixed((4, 3, 2 * n), 7, 5).astype(np.float32) + 1
    for sizes in ((1, 2, 0, 1), (0, 0, 0, 0), (2, 0, 1, 0), (0, 3, 0, 0), (n, n, n, n), (0, 0, 0, 2)):
        right = np.zeros((4 * n, 2 * n), np.float32)
        at = 0
        for k, size in enumerate(sizes):
            right[at : at + size] = rows[at : at + size] @ weights[k]
            at += size
        counts = np.array(sizes, np.int32)
        for name, x, w in (
            ("whole arrays", placed(line, rows), placed(line, weights)),
            ("rows over devices", placed(line, rows, "d"), placed(line, weights)),
            ("columns over devices", placed(line, rows), placed(line, weights, None, None, "d")),
        ):
            found = jax.jit(lax.ragged_dot)(x, w, counts)
            expect(np.asarray(found), right, f"ragged_dot by groups of {sizes}, {name}")


RULES_OF_MEETINGS = {
    "batches_of_one_name": _batches_of_one_name,
    "batches_from_the_end": _batches_from_the_end,
    "memories_of_specs": _memories_of_specs,
    "equal_contexts": _equal_contexts,
    "typed_references": _typed_references,
    "references_ahead": _references_ahead,
    "keys_called_back": _keys_called_back,
    "numpy_beside_types": _numpy_beside_types,
    "sums_of_numbers": _sums_of_numbers,
    "parts_that_choose_nothing": _parts_that_choose_nothing,
    "batches_over_axes": _batches_over_axes,
    "rows_past_the_groups": _rows_past_the_groups,
}
