# SPDX-License-Identifier: Apache-2.0
"""Large messages between processes, sent repeatedly. Every value of each repeat is checked (see `global_arrays`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Plan, Request, Variant, parse_size
from meshmark.operations.placements.placement import from_host
from meshmark.operations.processes.global_arrays import OverProcesses, ordinary, owners, process_report_result

REPEATS = 20
"""How often a large message is sent, each time with different values."""

PERIOD = 4093
"""The length of a device's argument, which a large message repeats. It is a prime, so that a shift by a power of two is
detected."""


def weights_of(count):
    """uint32[count]: distinct odd weights. A weighted sum modulo 2**32 detects any single wrong element."""
    return (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) * np.uint64(2) + np.uint64(1)).astype(
        np.uint32
    )


class LargeMessage(OverProcesses):
    """The base of the large messages: integers in float32 over an axis that spans processes, twenty times, each time
    with different values. Every device reports a weighted sum of all values that it received, for each repeat."""

    sizes: ClassVar[dict[str, int]] = {"4MiB": 1, "64KiB": 3, "16MiB": 3}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant()

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        held = np.array(owners(request)).reshape(mesh.shape)
        axis = next(a for a in range(held.ndim) if (np.diff(held, axis=a) != 0).any())
        below = min(2**16, 2**22 // mesh.shape[axis])
        return Plan(
            (Argument((mesh.size, PERIOD), "float32", (mesh.names, None), values.tokens, {"below": below}),),
            (process_report_result(mesh, REPEATS),),
            {"shape": mesh.shape, "axis": axis, "count": parse_size(request.size) // 4, "repeats": REPEATS},
            judge="exact",
        )


def sent_repeatedly(mesh, x, collective, axis, sends, receives, repeats):
    """Call collective(float32[sends], axis name) `repeats` times on large messages made from x. Returns int32[devices,
    repeats]: the weighted sums of the float32[receives] that each device received."""
    names = mesh.axis_names
    weights = weights_of(receives)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(names, None), P()), out_specs=P(names))
    def send(rows, number):
        place = jnp.arange(sends)
        message = jnp.tile(rows[0], -(-sends // rows.shape[1]))[:sends]
        message = message + ((place // rows.shape[1]) % 251).astype(message.dtype) + number
        got = collective(message, names[axis]).astype(jnp.int32)
        total = jnp.sum(lax.bitcast_convert_type(got, jnp.uint32) * weights, dtype=jnp.uint32)
        return lax.bitcast_convert_type(total, jnp.int32)[None]

    rows = from_host(mesh, x, (names, None))
    sums = [send(rows, np.float32(number)) for number in range(repeats)]
    return jax.jit(lambda *every: jnp.stack(every, axis=1))(*sums)


def received_sums(x, shape, axis, sends, repeats, exchanged):
    """int64[devices, repeats]: the expected result of `sent_repeatedly`. exchanged(int64[n, sends]) returns what the n
    members of a group receive."""
    groups = np.moveaxis(np.arange(len(x)).reshape(shape), axis, -1).reshape(-1, shape[axis])
    place = np.arange(sends)
    sums = np.zeros((len(x), repeats), np.uint32)
    for group in groups:
        rows = x[group].astype(np.int64)
        message = rows[:, place % x.shape[1]] + (place // x.shape[1]) % 251
        more = exchanged(np.ones((len(group), sends), np.int64))  # the effect of adding 1 to every element
        for member, (got, one) in enumerate(zip(exchanged(message), more, strict=True)):
            weights = weights_of(len(got))
            first = (got.astype(np.uint32) * weights).sum(dtype=np.uint32)
            each = (one.astype(np.uint32) * weights).sum(dtype=np.uint32)
            sums[group[member]] = first + each * np.arange(repeats, dtype=np.uint32)
    return sums.view(np.int32).astype(np.int64)


class LargePsum(LargeMessage):
    """`psum` between processes, 64 KiB, 4 MiB or 16 MiB per device, twenty times."""

    name = "large_psum"

    @staticmethod
    def host(mesh, x, *, axis, count, repeats):
        return sent_repeatedly(mesh, x, lax.psum, axis, count, count, repeats)

    @staticmethod
    def reference(x, *, shape, axis, count, repeats):
        return received_sums(x, shape, axis, count, repeats, lambda m: np.tile(m.sum(axis=0), (len(m), 1)))


class LargePsumScatter(LargeMessage):
    """`psum_scatter` between processes that leaves 64 KiB, 4 MiB or 16 MiB per device, twenty times (jax#40830)."""

    name = "large_psum_scatter"

    @staticmethod
    def host(mesh, x, *, shape, axis, count, repeats):
        def scattered(message, name):
            return lax.psum_scatter(message, name, tiled=True)

        return sent_repeatedly(mesh, x, scattered, axis, count * shape[axis], count, repeats)

    @staticmethod
    def reference(x, *, shape, axis, count, repeats):
        sends = count * shape[axis]
        return received_sums(x, shape, axis, sends, repeats, lambda m: m.sum(axis=0).reshape(len(m), -1))


class LargeAllGather(LargeMessage):
    """`all_gather` between processes, 64 KiB, 4 MiB or 16 MiB per device, twenty times."""

    name = "large_all_gather"

    @staticmethod
    def host(mesh, x, *, shape, axis, count, repeats):
        def gathered(message, name):
            return lax.all_gather(message, name, tiled=True)

        return sent_repeatedly(mesh, x, gathered, axis, count, count * shape[axis], repeats)

    @staticmethod
    def reference(x, *, shape, axis, count, repeats):
        return received_sums(x, shape, axis, count, repeats, lambda m: np.tile(m.ravel(), (len(m), 1)))


class LargeAllToAll(LargeMessage):
    """`all_to_all` between processes, 64 KiB, 4 MiB or 16 MiB per device, twenty times."""

    name = "large_all_to_all"

    @staticmethod
    def host(mesh, x, *, axis, count, repeats):
        def exchanged(message, name):
            return lax.all_to_all(message, name, 0, 0, tiled=True)

        return sent_repeatedly(mesh, x, exchanged, axis, count, count, repeats)

    @staticmethod
    def reference(x, *, shape, axis, count, repeats):
        def exchanged(m):
            return m.reshape(len(m), len(m), -1).swapaxes(0, 1).reshape(len(m), -1)

        return received_sums(x, shape, axis, count, repeats, exchanged)


class LargePpermute(LargeMessage):
    """`ppermute` in a ring between processes, 64 KiB, 4 MiB or 16 MiB per device, twenty times."""

    name = "large_ppermute"

    @staticmethod
    def host(mesh, x, *, shape, axis, count, repeats):
        ring = [(i, (i + 1) % shape[axis]) for i in range(shape[axis])]

        def passed(message, name):
            return lax.ppermute(message, name, ring)

        return sent_repeatedly(mesh, x, passed, axis, count, count, repeats)

    @staticmethod
    def reference(x, *, shape, axis, count, repeats):
        return received_sums(x, shape, axis, count, repeats, lambda m: np.roll(m, 1, axis=0))
