# SPDX-License-Identifier: Apache-2.0
"""Operations over several processes: arrays of which each process holds a part, and random numbers on global meshes.

The modules `multihost`, `pipelines`, `messages` and `lifecycle` hold the other operations. This text applies to all.

All processes call every operation together, with the same whole arrays. Each process uses its own part of them and
fills its own part of the results. The judge compares the results on every rank. If behaviour is judged, a result has
one row of small integers per device, filled by the process of that device, so a process that behaves differently fails
on its own rank. References are NumPy. They know of the processes only `owners`: the process of each flat position of
the mesh.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.dtypes import as_bits
from meshmark.core.layout import indices
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant, owners_of
from meshmark.operations.placements.placement import fill_of, from_host, home, matrix, spec_labels, spec_of

MOVED = ("float32", "bfloat16", "int32", "bool")
"""The dtypes of the operations that move data between processes."""


class OverProcesses(Operation):
    """The base of the operations over several processes."""

    family = "processes"
    level = "L4"
    modes = ("host",)
    processes = True

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: these operations are judged but not timed, because most of their time would be host time."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Sequence[int]) -> str | None:
        if len({owners.count(process) for process in set(owners)}) > 1:
            return "a process has more devices of this mesh than another"
        return None


def owners(request: Request) -> tuple[int, ...]:
    """The process of each flat position of a request's mesh. Each process has the same number of devices."""
    return owners_of(request.mesh, request.mesh.size, request.processes)


def ordinary(mesh: MeshShape) -> bool:
    """Whether the mesh is the preferred one of its size. Variants that do not depend on the mesh run only there."""
    return mesh == preferred(mesh.size)


def own(mesh, array):
    """A replicated global array of a host array that every process has. Nothing compares the processes' copies."""
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, P()), lambda index: array[index])


def process_report(mesh, row):
    """int32[devices, ...]: the row of this process, once for each of its devices."""
    row = np.asarray(row, np.int32)
    sharding = NamedSharding(mesh, P(mesh.axis_names))
    return jax.make_array_from_callback((mesh.size, *row.shape), sharding, lambda index: row[None])


def process_report_result(mesh: MeshShape, *shape: int) -> Result:
    """The Result of `process_report` for rows of this shape."""
    return Result((mesh.size, *shape), "int32", (mesh.names, *[None] * len(shape)))


def raises(kind, call):
    """1 if the call raises this kind of exception, 0 if it returns. Other exceptions propagate."""
    try:
        call()
    except kind:
        return 1
    return 0


def positions_of(owners, process):
    """The flat positions of a mesh that belong to a process."""
    return [position for position, owner in enumerate(owners) if owner == process]


# Arrays of which a process holds a part ----------------------------------------------------------------------


class ProcessIdentity(OverProcesses):
    """`jax.process_index`, `process_count`, `local_device_count`, `device_count` and `Device.process_index`
    agree with each other on every process."""

    name = "process_identity"

    def plan(self, request: Request) -> Plan:
        options = {"owners": owners(request), "count": request.processes}
        return Plan((), (process_report_result(request.mesh, 5),), options, judge="exact")

    @staticmethod
    def host(mesh, *, count):
        mine = [d for d in jax.devices() if d.process_index == jax.process_index()]
        numbers = [
            jax.process_index(),
            jax.process_count(),
            len({d.process_index for d in mesh.devices.flat}),
        ]
        same = set(mine) == set(jax.local_devices()) and len(mine) == jax.local_device_count()
        return process_report(mesh, [*numbers, same, jax.device_count() == count * jax.local_device_count()])

    @staticmethod
    def reference(*, owners, count):
        return np.array([[owner, count, count, 1, 1] for owner in owners])


class AddressableShards(OverProcesses):
    """`addressable_shards` and `addressable_data` give a process the parts that the layout puts on its devices. The
    whole array can be read if these devices hold all of it; otherwise reading it raises RuntimeError."""

    name = "addressable_shards"
    dtypes: ClassVar[tuple[str, ...]] = MOVED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for label in spec_labels(mesh):
            yield Variant.of(0 if label == home(mesh) else 1 if label == "-.-" else 2, of=label)

    def plan(self, request: Request) -> Plan:
        mesh, spec = request.mesh, spec_of(request.variant["of"])
        argument = Argument(matrix(request), request.dtype, spec, fill_of(request))
        held = Result((mesh.size, *argument.shape), "bool", (mesh.names, None, None))
        options = {"spec": spec, "sizes": dict(mesh.sizes), "owners": owners(request)}
        read = Result(argument.shape, request.dtype, spec)
        return Plan((argument,), (read, held, process_report_result(mesh, 8)), options, judge="bits")

    @staticmethod
    def host(mesh, x, *, spec):
        array = from_host(mesh, x, spec)
        # For a replicated array addressable_data returns the same copy for every index, also past the last one.
        parts = [
            jax.device_put(array.addressable_data(number), shard.device)
            for number, shard in enumerate(array.addressable_shards)
        ]
        read = jax.make_array_from_single_device_arrays(array.shape, array.sharding, parts)
        place = {device: position for position, device in enumerate(mesh.devices.flat)}
        held = np.zeros((mesh.size, *x.shape), bool)
        for shard in array.addressable_shards:
            held[(place[shard.device], *shard.index)] = True
        sharding = NamedSharding(mesh, P(mesh.axis_names))
        known = [shard.data is not None for shard in array.global_shards]
        whole = []
        row = [
            array.is_fully_addressable,
            array.is_fully_replicated,
            len(parts),
            len(known),
            sum(known),
            raises(RuntimeError, lambda: whole.append(np.asarray(array))),
            all(np.array_equal(as_bits(seen), as_bits(x)) for seen in whole),
            raises(IndexError, lambda: array.addressable_data(len(parts))),
        ]
        return (
            read,
            jax.make_array_from_callback(held.shape, sharding, lambda index: held[index]),
            process_report(mesh, row),
        )

    @staticmethod
    def reference(x, *, spec, sizes, owners):
        held = np.zeros((len(owners), *x.shape), bool)
        for position, index in enumerate(indices(x.shape, spec, sizes)):
            held[(position, *index)] = True
        replicated = held.all()
        rows = []
        for owner in owners:
            mine = positions_of(owners, owner)
            unread = not held[mine].any(axis=0).all()
            rows.append([0, replicated, len(mine), len(owners), len(mine), unread, 1, not replicated])
        return x, held, np.array(rows)


class DevicePutOfHostArray(OverProcesses):
    """`jax.device_put` of a host array that every process has, also with special values. If the processes have
    different arrays, every process raises AssertionError."""

    name = "device_put_of_host_array"
    dtypes: ClassVar[tuple[str, ...]] = MOVED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(0, to=home(mesh))
        yield Variant.of(1, to="-.-")
        if ordinary(mesh):
            yield Variant.of(0, to=home(mesh), different=True)
            yield Variant.of(1, to=home(mesh), fill="special")

    def plan(self, request: Request) -> Plan:
        spec = spec_of(request.variant["to"])
        argument = Argument(matrix(request), request.dtype, spec, fill_of(request))
        options = {
            "out_spec": spec,
            "different": request.variant.get("different", False),
            "devices": request.mesh.size,
        }
        results = (Result(argument.shape, request.dtype, spec), process_report_result(request.mesh, 1))
        return Plan((argument,), results, options, judge="bits")

    @staticmethod
    def host(mesh, x, *, out_spec, different):
        sharding = NamedSharding(mesh, P(*out_spec))
        if not different:
            return jax.device_put(x, sharding), process_report(mesh, [0])
        mine = x.copy()
        if jax.process_index() == jax.process_count() - 1:
            mine[-1, -1] = 0 if mine[-1, -1] else 1
        return from_host(mesh, x, out_spec), process_report(
            mesh, [raises(AssertionError, lambda: jax.device_put(mine, sharding))]
        )

    @staticmethod
    def reference(x, *, different, devices):
        return x, np.full((devices, 1), different)


class ProcessBatches(OverProcesses):
    """Global arrays from the rows of each process, with equal or unequal numbers of rows. The rows are padded, combined
    with a mask by `make_array_from_process_local_data`, and summed under the mask. Unpadded uneven rows raise
    ValueError on each process whose number of rows does not fit its devices."""

    name = "process_batches"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(0, split="even")
        yield Variant.of(0, split="uneven")
        if ordinary(mesh):
            yield Variant.of(1, split="unpadded")

    def plan(self, request: Request) -> Plan:
        mesh, count = request.mesh, request.processes
        split, each = request.variant["split"], 3 * (mesh.size // count)
        # Uneven: each process has two rows fewer than the next one; the last has as many as its devices hold.
        starts = [0]
        for process in range(count):
            short = 0 if split == "even" else 2 * (count - 1 - process)
            starts.append(starts[-1] + max(1, each - short))
        rows = mesh.size * 3
        batch = Result((rows, 5), request.dtype, (mesh.names, None))
        return Plan(
            (Argument((starts[-1], 5), request.dtype, (None, None), values.summands, {"terms": rows}),),
            (
                batch,
                Result((rows,), "bool", (mesh.names,)),
                Result((5,), request.dtype, (None,)),
                process_report_result(mesh, 1),
            ),
            {"owners": owners(request), "starts": tuple(starts), "padded": split != "unpadded"},
            judge="exact",
        )

    @staticmethod
    def host(mesh, x, *, starts, padded):
        process = jax.process_index()
        mine = x[starts[process] : starts[process + 1]]
        batch = NamedSharding(mesh, P(mesh.axis_names, None))
        line = NamedSharding(mesh, P(mesh.axis_names))
        each = 3 * len(batch.addressable_devices)
        shape = (3 * mesh.size, x.shape[1])
        refused = 0
        if not padded:
            refused = raises(ValueError, lambda: jax.make_array_from_process_local_data(batch, mine, shape))
        rows = np.concatenate([mine, np.zeros((each - len(mine), x.shape[1]), x.dtype)])
        data = jax.make_array_from_process_local_data(batch, rows, shape)
        mask = jax.make_array_from_process_local_data(line, np.arange(each) < len(mine), shape[:1])
        total = jax.jit(
            lambda a, m: jnp.sum(jnp.where(m[:, None], a, 0), axis=0), out_shardings=NamedSharding(mesh, P())
        )
        return data, mask, total(data, mask), process_report(mesh, [refused])

    @staticmethod
    def reference(x, *, owners, starts, padded):
        data, mask = np.zeros((len(owners), 3, x.shape[1])), np.zeros((len(owners), 3), bool)
        refused = np.zeros((len(owners), 1))
        for process in range(len(starts) - 1):
            mine = x[starts[process] : starts[process + 1]]
            places = positions_of(owners, process)
            for number, row in enumerate(mine):
                data[places[number // 3], number % 3] = row
                mask[places[number // 3], number % 3] = True
            refused[places] = not padded and len(mine) != 3 * len(places)
        return data.reshape(-1, x.shape[1]), mask.ravel(), x.sum(axis=0), refused


class PmapOfLocalRows(OverProcesses):
    """`jax.pmap` over all devices. Each process passes the rows of its own devices and gets their results back: a psum
    and the axis index."""

    name = "pmap_of_local_rows"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if mesh.label == str(mesh.size):
            yield Variant()

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        total = Result((mesh.size, 16), request.dtype, (mesh.names, None))
        return Plan(
            (Argument((mesh.size, 16), request.dtype, (None, None), values.summands, {"terms": mesh.size}),),
            (total, process_report_result(mesh)),
            {"devices": mesh.size},
            judge="exact",
        )

    @staticmethod
    def host(mesh, x):
        count = jax.local_device_count()
        first = jax.process_index() * count
        mapped = jax.pmap(lambda a: (lax.psum(a, "x"), lax.axis_index("x")), axis_name="x")
        totals, numbers = map(np.asarray, mapped(x[first : first + count]))

        def at(rows, index):
            return rows[index[0].start - first : index[0].stop - first]

        sharding = NamedSharding(mesh, P("x"))
        return (
            jax.make_array_from_callback(x.shape, sharding, lambda index: at(totals, index)),
            jax.make_array_from_callback((mesh.size,), sharding, lambda index: at(numbers, index)),
        )

    @staticmethod
    def reference(x, *, devices):
        return np.broadcast_to(x.sum(axis=0), x.shape), np.arange(devices)


# Random numbers ----------------------------------------------------------------------------------------------


def threefry(key, first, second):
    """Threefry-2x32 with 20 rounds: the two output words, as arrays of uint64. `first` and `second` are arrays of the
    32-bit input words. Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as
    1, 2, 3", SC11, section 4.4 and its Random123 code."""
    mask = np.uint64(0xFFFFFFFF)
    keys = [np.uint64(k) for k in (*key, key[0] ^ key[1] ^ 0x1BD11BDA)]
    a = (first.astype(np.uint64) + keys[0]) & mask
    b = (second.astype(np.uint64) + keys[1]) & mask
    for number in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[number % 2]:
            a = (a + b) & mask
            b = ((b << np.uint64(turn)) | (b >> np.uint64(32 - turn))) & mask ^ a
        a = (a + keys[(number + 1) % 3]) & mask
        b = (b + keys[(number + 2) % 3] + np.uint64(number + 1)) & mask
    return a, b


def threefry_bits(key, shape):
    """uint32[shape]: the words that a key gives to an array of this shape. Each comes from the element's flat index."""
    index = np.arange(math.prod(shape), dtype=np.uint64)
    a, b = threefry(key, index >> np.uint64(32), index & np.uint64(0xFFFFFFFF))
    return (a ^ b).astype(np.uint32).reshape(shape)


class RandomBits(OverProcesses):
    """`jax.random` of a global array in each sharding gives the Threefry bits of each element's index, on every mesh:
    words, uniform floats, and words of a key that is folded with each device's number."""

    name = "random_bits"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for label in spec_labels(mesh):
            yield Variant.of(0 if label == home(mesh) else 2, to=label, draw="bits")
        yield Variant.of(1, to=home(mesh), draw="uniform")
        yield Variant.of(1, draw="folded")

    def plan(self, request: Request) -> Plan:
        mesh, draw = request.mesh, request.variant["draw"]
        spec = spec_of(request.variant.get("to") or f"{''.join(mesh.names)}.-")
        kind = "float32" if draw == "uniform" else "int32"
        options = {"seed": 1701, "draw": draw, "shape": matrix(request), "spec": spec, "devices": mesh.size}
        return Plan((), (Result(matrix(request), kind, spec),), options, judge="bits")

    @staticmethod
    def host(mesh, *, seed, draw, shape, spec, devices):
        key = jax.random.key(seed, impl="threefry2x32")

        def words(key, shape):
            return lax.bitcast_convert_type(jax.random.bits(key, shape, jnp.uint32), jnp.int32)

        def folded():
            mine = jax.random.fold_in(key, lax.axis_index(mesh.axis_names))
            return words(mine, (shape[0] // devices, shape[1]))

        functions = {
            "bits": lambda: words(key, shape),
            "uniform": lambda: jax.random.uniform(key, shape, jnp.float32),
            "folded": jax.shard_map(folded, mesh=mesh, in_specs=(), out_specs=P(*spec)),
        }
        return jax.jit(functions[draw], out_shardings=NamedSharding(mesh, P(*spec)))()

    @staticmethod
    def reference(*, seed, draw, shape, devices):
        if draw == "folded":
            blocks = []
            for device in range(devices):
                a, b = threefry((0, seed), np.uint64([0]), np.uint64([device]))
                blocks.append(threefry_bits((int(a[0]), int(b[0])), (shape[0] // devices, shape[1])))
            return np.concatenate(blocks).view(np.int32)
        bits = threefry_bits((0, seed), shape)
        if draw == "uniform":
            return (bits >> np.uint32(9)).astype(np.float32) * np.float32(2.0**-23)
        return bits.view(np.int32)
