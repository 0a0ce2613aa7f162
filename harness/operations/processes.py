"""What only several processes have: arrays of which a process holds a part, `multihost_utils`, data that each
process brings, large messages between processes, checkpoints, and the start and end of `jax.distributed`.

Every operation is called by all processes together, with the same whole arrays; each uses of them what is its
own and fills its own part of the results, which the judge compares on every rank. Where behaviour is judged, a
result holds one row of small integers a device, filled by the process that the device belongs to, so that one
process that behaves otherwise is seen on its own rank. References are NumPy and know of the processes only
`owners`: the process of each flat position of the mesh.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from harness import values
from harness.dtypes import as_bits
from harness.layout import indices
from harness.meshes import MeshShape, preferred
from harness.operations.base import (
    Argument,
    Operation,
    Plan,
    Request,
    Result,
    Variant,
    owners_of,
    parse_size,
)
from harness.operations.placement import fill_of, from_host, home, matrix, process_part, spec_labels, spec_of
from harness.operations.training import stepped

MOVED = ("float32", "bfloat16", "int32", "bool")
"""Dtypes of data that moves between processes."""


class OverProcesses(Operation):
    """What the operations of several processes share."""

    family = "processes"
    level = "L4"
    modes = ("host",)
    processes = True

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: what they do is judged, and their time would be that of the host's part in it."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Sequence[int]) -> str | None:
        if len({owners.count(process) for process in set(owners)}) > 1:
            return "a process has more devices of this mesh than another"
        return None


def owners(request: Request) -> tuple[int, ...]:
    """The process of each flat position of a request's mesh, of which each has as many devices."""
    return owners_of(request.mesh, request.mesh.size, request.processes)


def ordinary(mesh: MeshShape) -> bool:
    """Whether it is the mesh for what depends on no mesh: the preferred one of its number of devices."""
    return mesh == preferred(mesh.size)


def own(mesh, array):
    """This process's copy of what every process has, on each of its devices; nothing compares the copies."""
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, P()), lambda index: array[index])


def told(mesh, row):
    """int32[devices, ...]: what this process has to tell, once for each of its devices."""
    row = np.asarray(row, np.int32)
    sharding = NamedSharding(mesh, P(mesh.axis_names))
    return jax.make_array_from_callback((mesh.size, *row.shape), sharding, lambda index: row[None])


def telling(mesh: MeshShape, *shape: int) -> Result:
    """The result that `told` makes."""
    return Result((mesh.size, *shape), "int32", (mesh.names, *[None] * len(shape)))


def raises(kind, call):
    """1 where the call raises this kind of exception, 0 where it returns; any other exception goes on."""
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
        return Plan((), (telling(request.mesh, 5),), options, judge="exact")

    @staticmethod
    def host(mesh, *, count):
        mine = [d for d in jax.devices() if d.process_index == jax.process_index()]
        numbers = [
            jax.process_index(),
            jax.process_count(),
            len({d.process_index for d in mesh.devices.flat}),
        ]
        same = set(mine) == set(jax.local_devices()) and len(mine) == jax.local_device_count()
        return told(mesh, [*numbers, same, jax.device_count() == count * jax.local_device_count()])

    @staticmethod
    def reference(*, owners, count):
        return np.array([[owner, count, count, 1, 1] for owner in owners])


class AddressableShards(OverProcesses):
    """What a process can read of a global array, `addressable_shards` and `addressable_data`, is what the layout
    gives its devices; the whole array can be read where these hold all of it, and else raises RuntimeError."""

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
        return Plan((argument,), (read, held, telling(mesh, 8)), options, judge="bits")

    @staticmethod
    def host(mesh, x, *, spec):
        array = from_host(mesh, x, spec)
        # Of a replicated array addressable_data gives the same copy for every index, past the last one too.
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
            told(mesh, row),
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
    """`jax.device_put` of a host array that every process has, with special values too; where the processes
    have different arrays, every one of them is told (AssertionError)."""

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
        results = (Result(argument.shape, request.dtype, spec), telling(request.mesh, 1))
        return Plan((argument,), results, options, judge="bits")

    @staticmethod
    def host(mesh, x, *, out_spec, different):
        sharding = NamedSharding(mesh, P(*out_spec))
        if not different:
            return jax.device_put(x, sharding), told(mesh, [0])
        mine = x.copy()
        if jax.process_index() == jax.process_count() - 1:
            mine[-1, -1] = 0 if mine[-1, -1] else 1
        return from_host(mesh, x, out_spec), told(
            mesh, [raises(AssertionError, lambda: jax.device_put(mine, sharding))]
        )

    @staticmethod
    def reference(x, *, different, devices):
        return x, np.full((devices, 1), different)


class ProcessBatches(OverProcesses):
    """Global arrays from the rows that each process has, as many or unlike many: padded to the longest and put
    together by `make_array_from_process_local_data`, with a mask, and summed over what the mask leaves. Unpadded
    uneven rows are refused (ValueError) by the processes that have another number than their devices take."""

    name = "process_batches"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(0, split="even")
        yield Variant.of(0, split="uneven")
        if ordinary(mesh):
            yield Variant.of(1, split="unpadded")

    def plan(self, request: Request) -> Plan:
        mesh, count = request.mesh, request.processes
        split, each = request.variant["split"], 3 * (mesh.size // count)
        # Uneven: each process has two rows less than the next, and the last as many as its devices take.
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
                telling(mesh, 1),
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
        return data, mask, total(data, mask), told(mesh, [refused])

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
    """`jax.pmap` over all devices, called by each process with the rows of its own devices, whose rows it gets
    back: a psum and the axis index."""

    name = "pmap_of_local_rows"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if mesh.label == str(mesh.size):
            yield Variant()

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        total = Result((mesh.size, 16), request.dtype, (mesh.names, None))
        return Plan(
            (Argument((mesh.size, 16), request.dtype, (None, None), values.summands, {"terms": mesh.size}),),
            (total, telling(mesh)),
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


# multihost_utils ---------------------------------------------------------------------------------------------


class ProcessAllgather(OverProcesses):
    """`multihost_utils.process_allgather` of what each process has, stacked and tiled, of scalars and trees, and
    of a global array, tiled (stacked it is refused with ValueError)."""

    name = "process_allgather"
    dtypes: ClassVar[tuple[str, ...]] = MOVED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, of="local", tiled=True)
            yield Variant.of(0, of="local", tiled=False)
            yield Variant.of(1, of="tree", tiled=False)
            yield Variant.of(1, of="local", tiled=True, fill="special")
            yield Variant.of(1, of="global", tiled=False)
        yield Variant.of(0, of="global", tiled=True)

    def plan(self, request: Request) -> Plan:
        mesh, variant, count = request.mesh, request.variant, request.processes
        of, tiled = variant["of"], variant["tiled"]
        rows, columns = matrix(request)
        rows -= rows % count
        x = Argument((rows, columns), request.dtype, (None, None), fill_of(request))
        stacked = (count, rows // count, columns)
        whole: tuple[Result, ...] = (
            Result(x.shape if tiled or of == "global" else stacked, request.dtype, ()),
        )
        if of == "tree":
            whole += (Result((count,), "int32", ()),)
        return Plan(
            (x,),
            (*whole, telling(mesh, 1)),
            {"of": of, "tiled": tiled, "count": count, "spec": spec_of(home(mesh)), "devices": mesh.size},
            judge="bits",
        )

    @staticmethod
    def host(mesh, x, *, of, tiled, count, spec):
        process = jax.process_index()
        mine = x.reshape(count, -1, x.shape[1])[process]
        if of == "global":
            array = from_host(mesh, x, spec)
            refused = raises(ValueError, lambda: multihost_utils.process_allgather(array, tiled=False))
            copy = multihost_utils.process_allgather(array, tiled=True)
            return own(mesh, copy), told(mesh, [refused])
        if of == "tree":
            tree = {"rows": mine, "number": [np.int32(process * process)]}
            seen = multihost_utils.process_allgather(tree, tiled=tiled)
            return own(mesh, seen["rows"]), own(mesh, seen["number"][0]), told(mesh, [0])
        return own(mesh, multihost_utils.process_allgather(mine, tiled=tiled)), told(mesh, [0])

    @staticmethod
    def reference(x, *, of, tiled, count, devices):
        whole = x if tiled or of == "global" else x.reshape(count, -1, x.shape[1])
        refused = np.full((devices, 1), of == "global")
        return (whole, np.arange(count) ** 2, refused) if of == "tree" else (whole, refused)


class BroadcastOneToAll(OverProcesses):
    """`multihost_utils.broadcast_one_to_all` of an array and a number, from process 0 and from the last."""

    name = "broadcast_one_to_all"
    dtypes: ClassVar[tuple[str, ...]] = MOVED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, source="default")
            yield Variant.of(0, source="last")
            yield Variant.of(1, source="default", fill="special")

    def plan(self, request: Request) -> Plan:
        count = request.processes
        x = Argument((count, *matrix(request)), request.dtype, (None,), fill_of(request))
        options = {"last": request.variant["source"] == "last"}
        return Plan((x,), (Result(x.shape[1:], request.dtype, ()), Result((), "int32", ())), options, "bits")

    @staticmethod
    def host(mesh, x, *, last):
        process, count = jax.process_index(), jax.process_count()
        source = process == count - 1 if last else None
        mine = x[process], np.int32(process + 1)
        seen, number = multihost_utils.broadcast_one_to_all(mine, is_source=source)
        return own(mesh, np.asarray(seen)), own(mesh, np.asarray(number))

    @staticmethod
    def reference(x, *, last):
        return (x[-1], np.array(len(x))) if last else (x[0], np.array(1))


class AssertEqual(OverProcesses):
    """`multihost_utils.assert_equal`: equal values pass; where one element differs on one process, every
    process is told (AssertionError)."""

    name = "assert_equal"
    dtypes: ClassVar[tuple[str, ...]] = MOVED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, values="equal")
            yield Variant.of(0, values="unequal")
            yield Variant.of(1, values="unequal", tree=True)

    def plan(self, request: Request) -> Plan:
        x = Argument(matrix(request), request.dtype, (None, None), fill_of(request))
        unequal = request.variant["values"] == "unequal"
        options = {
            "unequal": unequal,
            "tree": request.variant.get("tree", False),
            "devices": request.mesh.size,
        }
        return Plan((x,), (telling(request.mesh, 1),), options, judge="exact")

    @staticmethod
    def host(mesh, x, *, unequal, tree):
        mine = x.copy()
        if unequal and jax.process_index() == jax.process_count() - 1:
            mine[-1, -1] = 0 if mine[-1, -1] else 1
        what = {"first": x, "others": [np.arange(3), mine]} if tree else mine
        return told(mesh, [raises(AssertionError, lambda: multihost_utils.assert_equal(what, "unlike"))])

    @staticmethod
    def reference(x, *, unequal, devices):
        return np.full((devices, 1), unequal)


LATE = 0.5
"""Seconds by which the last process comes late to a barrier."""


class SyncGlobalDevices(OverProcesses):
    """`multihost_utils.sync_global_devices`: twenty in a row, one for which the last process is late (the others
    leave it no earlier), and processes that name it differently, which are all told (AssertionError)."""

    name = "sync_global_devices"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, names="same")
            yield Variant.of(1, names="same", late=True)
            yield Variant.of(0, names="different")

    def plan(self, request: Request) -> Plan:
        variant = request.variant
        options = {
            "different": variant["names"] == "different",
            "late": variant.get("late", False),
            "devices": request.mesh.size,
        }
        return Plan((), (telling(request.mesh, 2),), options, judge="exact")

    @staticmethod
    def host(mesh, *, different, late):
        process = jax.process_index()
        if different:
            name = f"name {process}"
            told_so = raises(AssertionError, lambda: multihost_utils.sync_global_devices(name))
            return told(mesh, [told_so, 0])
        if late:
            started = time.monotonic()
            # Nobody leaves this one before all came, so what follows is no earlier than the last one's sleep.
            multihost_utils.sync_global_devices("all are here")
            if process == jax.process_count() - 1:
                time.sleep(LATE)
            multihost_utils.sync_global_devices("the late one too")
            return told(mesh, [0, time.monotonic() - started >= LATE])
        for number in range(20):
            multihost_utils.sync_global_devices(f"step {number}")
        return told(mesh, [0, 0])

    @staticmethod
    def reference(*, different, late, devices):
        return np.tile([different, late], (devices, 1))


# Data that each process brings -------------------------------------------------------------------------------


class InputPipeline(OverProcesses):
    """A dataset whose number of examples no number of processes divides, read by each process for its own share
    and put together in batches, the tail padded and masked, in two epochs: every example is seen twice, with
    its own value."""

    name = "input_pipeline"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(0, order="strided")
        yield Variant.of(1, order="blocked")
        yield Variant.of(1, order="shuffled")

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        examples = 6 * mesh.size + 1
        x = Argument((examples,), request.dtype, (None,), values.summands, {"terms": 4})
        seen = (Result((examples,), "int32", (None,)), Result((examples,), request.dtype, (None,)))
        return Plan((x,), seen, {"order": request.variant["order"]}, judge="exact")

    @staticmethod
    def host(mesh, x, *, order):
        process, count, epochs = jax.process_index(), jax.process_count(), 2
        sharding = NamedSharding(mesh, P(mesh.axis_names))
        batch = 2 * len(sharding.addressable_devices)
        steps = math.ceil(math.ceil(len(x) / count) / batch)
        everywhere = NamedSharding(mesh, P())
        counted = own(mesh, np.zeros(len(x), np.int32)), own(mesh, np.zeros_like(x))

        @partial(jax.jit, out_shardings=(everywhere, everywhere))
        def step(counts, totals, which, value, mask):
            return (
                counts.at[which].add(mask.astype(counts.dtype)),
                totals.at[which].add(jnp.where(mask, value, 0)),
            )

        for epoch in range(epochs):
            every = np.arange(len(x))
            if order == "shuffled":
                every = np.random.default_rng(epoch).permutation(every)
            mine = np.array_split(every, count)[process] if order == "blocked" else every[process::count]
            padded = np.concatenate([mine, np.zeros(steps * batch - len(mine), mine.dtype)])
            real = np.arange(steps * batch) < len(mine)
            for number in range(steps):
                part = slice(number * batch, (number + 1) * batch)
                which = padded[part].astype(np.int32)
                local = which, x[which], real[part]
                counted = step(*counted, *jax.make_array_from_process_local_data((sharding,) * 3, local))
        return counted

    @staticmethod
    def reference(x):
        return np.full(len(x), 2), 2 * x


class ProcessMetrics(OverProcesses):
    """Sum, count, largest value, mean and a confusion matrix over what the processes have, each another number
    of rows: through partial figures and `process_allgather`, or in a program over padded global arrays."""

    name = "process_metrics"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, by="allgather")
        yield Variant.of(0, by="program")

    def plan(self, request: Request) -> Plan:
        count = request.processes
        rows = 32 * 2 ** (count - 1).bit_length()  # a power of two, so that the mean is exact
        # Process i has about i + 1 shares; of many processes the first may have none.
        starts = tuple(rows * i * (i + 1) // (count * (count + 1)) for i in range(count + 1))
        small = ((rows,), "int32", (None,), values.tokens)
        return Plan(
            (
                Argument((rows,), request.dtype, (None,), values.summands, {"terms": rows}),
                Argument(*small, {"below": 4}),
                Argument(*small, {"below": 4}),
            ),
            (
                *(Result((), request.dtype, ()) for _ in range(3)),
                Result((), "int32", ()),
                Result((4, 4), "int32", (None, None)),
            ),
            {"starts": starts, "program": request.variant["by"] == "program"},
            judge="exact",
        )

    @staticmethod
    def host(mesh, x, label, guess, *, starts, program):
        process = jax.process_index()
        mine = slice(starts[process], starts[process + 1])
        if not program:
            table = np.zeros((4, 4), np.int32)
            np.add.at(table, (label[mine], guess[mine]), 1)
            largest = x[mine].max(initial=-np.inf)
            partial_ = {"sum": x[mine].sum(), "max": largest, "n": np.int32(len(x[mine])), "table": table}
            parts = multihost_utils.process_allgather(partial_)
            total, number = parts["sum"].sum(), parts["n"].sum(dtype=np.int32)
            figures = total, parts["max"].max(), total / x.dtype.type(number), number
            every = *map(np.asarray, figures), parts["table"].sum(axis=0, dtype=np.int32)
            return tuple(own(mesh, figure) for figure in every)

        sharding = NamedSharding(mesh, P(mesh.axis_names))
        devices = len(sharding.addressable_devices)
        longest = max(b - a for a, b in pairwise(starts))
        each = -(-longest // devices) * devices

        def put(rows):
            padded = np.concatenate([rows[mine], np.zeros(each - len(rows[mine]), rows.dtype)])
            return jax.make_array_from_process_local_data(sharding, padded)

        def figures_of(x, label, guess, mask):
            total, number = jnp.sum(jnp.where(mask, x, 0)), jnp.sum(mask.astype(jnp.int32))
            largest = jnp.max(jnp.where(mask, x, -jnp.inf))
            table = jnp.zeros((4, 4), jnp.int32).at[label, guess].add(mask.astype(jnp.int32))
            return total, largest, total / number.astype(x.dtype), number, table

        together = jax.jit(figures_of, out_shardings=(NamedSharding(mesh, P()),) * 5)
        return together(put(x), put(label), put(guess), put(np.ones(len(x), bool)))

    @staticmethod
    def reference(x, label, guess):
        table = np.zeros((4, 4))
        np.add.at(table, (label, guess), 1)
        return x.sum(), x.max(), x.mean(), np.array(len(x)), table


class ProcessDataParallel(OverProcesses):
    """Eight steps of least squares on batches of which each process brings its rows: the weights of one process
    that has them all, within the bound that the reference derives."""

    name = "process_data_parallel"
    sizes: ClassVar[dict[str, int]] = {"n8": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(0, spelled="auto")
        yield Variant.of(1, spelled="manual")

    def plan(self, request: Request) -> Plan:
        mesh, n, steps = request.mesh, parse_size(request.size), 8
        rows, batch = -(-32 // mesh.size) * mesh.size, (mesh.names,)
        return Plan(
            (
                Argument((steps, rows, n), request.dtype, (None, mesh.names, None), values.uniform),
                Argument((steps, rows), request.dtype, (None, mesh.names), values.uniform),
                Argument((n,), request.dtype, (None,), values.uniform),
            ),
            (Result((n,), request.dtype, (None,)),),
            {
                "manual": request.variant["spelled"] == "manual",
                "batch": batch,
                "parts": mesh.size,
                "rate": 0.0625,
                "precision": "highest",
            },
            judge="bound",
        )

    @staticmethod
    def host(mesh, x, y, w, *, manual, batch, rate, precision):
        everywhere = NamedSharding(mesh, P())

        def loss(w, x, y):
            return jnp.mean((jnp.matmul(x, w, precision=precision) - y) ** 2)

        def step(w, x, y):
            return w - rate * jax.grad(loss)(w, x, y)

        def local_step(w, x, y):
            mine = jax.grad(loss)(lax.pcast(w, mesh.axis_names, to="varying"), x, y)
            return w - rate * lax.pmean(mine, mesh.axis_names)

        if manual:
            step = jax.shard_map(local_step, mesh=mesh, in_specs=(P(), P(*batch), P(*batch)), out_specs=P())
        program = jax.jit(step, out_shardings=everywhere)
        sharding = NamedSharding(mesh, P(*batch))
        weights = own(mesh, w)
        for rows, targets in zip(x, y, strict=True):
            local = process_part(sharding, rows), process_part(sharding, targets)
            weights = program(weights, *jax.make_array_from_process_local_data((sharding,) * 2, local))
        return weights

    @staticmethod
    def reference(x, y, w, *, rate, parts):
        for number in range(x.shape[0]):
            w = stepped(x[number], y[number], w, rate=rate, parts=parts)
        return w


# Random numbers ----------------------------------------------------------------------------------------------


def threefry(key, first, second):
    """Threefry-2x32 with 20 rounds, on arrays of uint32 pairs: J. K. Salmon, M. A. Moraes, R. O. Dror,
    D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11, section 4.4 and its Random123 code."""
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
    """uint32: the 32-bit words that a key gives to an array of this shape, each from its own flat index."""
    index = np.arange(math.prod(shape), dtype=np.uint64)
    a, b = threefry(key, index >> np.uint64(32), index & np.uint64(0xFFFFFFFF))
    return (a ^ b).astype(np.uint32).reshape(shape)


class RandomBits(OverProcesses):
    """`jax.random` of a global array in each sharding gives the bits of Threefry by the element's index, whatever
    the mesh: words, uniform floats, and words of a key that is folded with each device's number."""

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


# Large messages ----------------------------------------------------------------------------------------------

REPEATS = 20
"""How often a large message is sent, each time with other values."""

PERIOD = 4093
"""Elements of the argument that a large message repeats: a prime, so that no shift by a power of two hides."""


def weights_of(count):
    """uint32: odd, unlike weights, so that a weighted sum modulo 2**32 tells any one wrong element."""
    return (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) * np.uint64(2) + np.uint64(1)).astype(
        np.uint32
    )


class LargeMessage(OverProcesses):
    """What the large messages share: integers in float32 over an axis that spans processes, twenty times, each
    time with other values; every device tells a weighted sum of all that it received, each time."""

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
            (telling(mesh, REPEATS),),
            {"shape": mesh.shape, "axis": axis, "count": parse_size(request.size) // 4, "repeats": REPEATS},
            judge="exact",
        )


def sent_repeatedly(mesh, x, collective, axis, sends, receives, repeats):
    """Call collective(float32[sends], axis name) on large messages made of x, so many times; each device tells
    int32[repeats], the weighted sums of the float32[receives] that it got."""
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
    """int64[devices, repeats]: what `sent_repeatedly` should tell, where exchanged(int64[n, sends]) gives what
    the n members of a group receive."""
    groups = np.moveaxis(np.arange(len(x)).reshape(shape), axis, -1).reshape(-1, shape[axis])
    place = np.arange(sends)
    sums = np.zeros((len(x), repeats), np.uint32)
    for group in groups:
        rows = x[group].astype(np.int64)
        message = rows[:, place % x.shape[1]] + (place // x.shape[1]) % 251
        more = exchanged(np.ones((len(group), sends), np.int64))  # by what a number added everywhere counts
        for member, (got, one) in enumerate(zip(exchanged(message), more, strict=True)):
            weights = weights_of(len(got))
            first = (got.astype(np.uint32) * weights).sum(dtype=np.uint32)
            each = (one.astype(np.uint32) * weights).sum(dtype=np.uint32)
            sums[group[member]] = first + each * np.arange(repeats, dtype=np.uint32)
    return sums.view(np.int32).astype(np.int64)


class LargePsum(LargeMessage):
    """`psum` of 4 and 16 MiB a device between processes, twenty times."""

    name = "large_psum"

    @staticmethod
    def host(mesh, x, *, axis, count, repeats):
        return sent_repeatedly(mesh, x, lax.psum, axis, count, count, repeats)

    @staticmethod
    def reference(x, *, shape, axis, count, repeats):
        return received_sums(x, shape, axis, count, repeats, lambda m: np.tile(m.sum(axis=0), (len(m), 1)))


class LargePsumScatter(LargeMessage):
    """`psum_scatter` that leaves 4 and 16 MiB a device, between processes, twenty times (jax#40830)."""

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
    """`all_gather` of 4 and 16 MiB a device between processes, twenty times."""

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
    """`all_to_all` of 4 and 16 MiB a device between processes, twenty times."""

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
    """`ppermute` in a ring of 4 and 16 MiB a device between processes, twenty times."""

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
