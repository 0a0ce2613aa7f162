# SPDX-License-Identifier: Apache-2.0
"""Placement: host arrays put on devices and fetched back, arrays moved between shardings, and the functions that build
a global array from parts.

The label of a sharding has one entry per dimension, with the major axis first and `-` for none: `xy.-` is
P(("x", "y"), None). References are the identity and NumPy indexing: only the place may change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import jax
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Cost, Operation, Plan, Request, Result, Variant, nbytes
from meshmark.operations.collective_base import ANY
from meshmark.operations.placements.moving import state_moves


def spec_of(label: str) -> Spec:
    """The spec of a label: xy.- -> (("x", "y"), None)."""
    return tuple(None if e == "-" else e if len(e) == 1 else tuple(e) for e in label.split("."))


def home(mesh: MeshShape) -> str:
    """The ordinary sharding of a matrix: rows over the first axis, columns over the other axes."""
    return f"{mesh.names[0]}.{''.join(mesh.names[1:]) or '-'}"


def spec_labels(mesh: MeshShape) -> tuple[str, ...]:
    """The shardings of a matrix over a mesh: none, each axis on each dimension, all axes on one dimension in both
    orders, and the axes divided between the dimensions."""
    names = mesh.names
    lines = [*names, "".join(names), "".join(reversed(names))]
    divided = [f"{a}.{b}" for a in names for b in names if a != b]
    if len(names) == 3:
        divided += [home(mesh), ".".join(reversed(home(mesh).split(".")))]
    labels = ["-.-", *(f"{line}.-" for line in lines), *(f"-.{line}" for line in lines), *divided]
    return tuple(dict.fromkeys(labels))


def spec_pairs(mesh: MeshShape) -> Iterator[tuple[int, str, str]]:
    """(weight, from, to) for each ordered pair of shardings. Pairs that do not start at an ordinary sharding weigh
    most."""
    first, forward = home(mesh), "".join(mesh.names)
    swapped = ".".join(reversed(first.split(".")))
    near = {
        (first, "-.-"),
        ("-.-", first),
        (f"{forward}.-", f"-.{forward}"),
        (f"{forward}.-", f"{forward[::-1]}.-"),
    }
    ordinary = {first, "-.-", f"{forward}.-"}  # pairs that start here are lighter
    labels = spec_labels(mesh)
    for source in labels:
        for target in labels:
            pair = (source, target)
            far = 2 if source in ordinary else 3
            yield 0 if pair == (first, swapped) else 1 if pair in near else far, source, target


def matrix(request: Request) -> tuple[int, int]:
    """The shape of a matrix of about the requested size. Both dimensions are multiples of the number of devices,
    so that every sharding divides it."""
    n, elements = request.mesh.size, request.elements
    rows = max(1, round(math.sqrt(elements / n / 2)))
    return n * rows, n * (max(1, round(elements / n / rows)) if elements else 0)


def fill_of(request: Request) -> Callable[..., np.ndarray]:
    """The fill for data that moves: special values if the variant asks for them and the dtype has them."""
    floating = dtype_of(request.dtype).kind in ("float", "complex")
    return values.special if request.variant.get("fill") and floating else values.distinct


class Move(Operation):
    """The base of the moves: one matrix with a sharding before (`from`) and after (`to`), equal to the bit."""

    family = "placement"
    fills: ClassVar[tuple[str, ...]] = ("nan", "zeros", "subnormal", "extreme")
    level = "L2"
    dtypes: ClassVar[tuple[str, ...]] = ANY
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0, "64B": 3, "0B": 2}
    timed: ClassVar[Mapping[str, int]] = {"4KiB": 1, "1MiB": 1, "16MiB": 3}
    distance: ClassVar[int] = 0
    """Added to the weight of every pair."""

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for weight, source, target in spec_pairs(mesh):
            yield Variant.of(weight + self.distance, None, **{"from": source, "to": target})
            if weight == 0:
                yield Variant.of(2, None, **{"from": source, "to": target, "fill": "special"})

    def plan(self, request: Request) -> Plan:
        source, target = spec_of(request.variant["from"]), spec_of(request.variant["to"])
        argument = Argument(matrix(request), request.dtype, source, fill_of(request))
        results = self.results(request, Result(argument.shape, request.dtype, source), target)
        plan = Plan(
            (argument,),
            results,
            {"in_spec": source, "out_spec": target},
            judge="bits",
            cost=Cost(nbytes=nbytes(argument, request.mesh)),
        )
        return state_moves(plan, type(self).reference, request.mesh.sizes)

    def results(self, request: Request, source: Result, target: Spec) -> tuple[Result, ...]:
        """The results, given the source and the target's spec. By default: the moved array."""
        return (Result(source.shape, source.dtype, target),)


def from_host(mesh, x, spec):
    """A host array on the devices of the mesh. Over several processes, each process fills its addressable shards."""
    sharding = NamedSharding(mesh, P(*spec))
    if sharding.is_fully_addressable:
        return jax.device_put(x, sharding)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def alone_and_sharded(mesh, function, spec):
    """The result of a function without arguments, on one device of this process and sharded over the mesh. Both are
    whole host arrays."""
    mine = next(d for d in mesh.devices.flat if d.process_index == jax.process_index())
    with jax.default_device(mine):
        alone = np.asarray(jax.jit(function)())
    placed = jax.jit(function, out_shardings=NamedSharding(mesh, P(*spec)))()
    if placed.is_fully_addressable:
        return alone, np.asarray(placed)
    return alone, multihost_utils.process_allgather(placed, tiled=True)


class DevicePut(Move):
    """`jax.device_put` from each sharding to each other one. The source keeps its values (jax#36308)."""

    name = "device_put"
    level = "L0"
    modes = ("host",)

    def results(self, request: Request, source: Result, target: Spec) -> tuple[Result, ...]:
        return Result(source.shape, source.dtype, target), source

    @staticmethod
    def host(mesh, x, *, in_spec, out_spec):
        source = from_host(mesh, x, in_spec)
        moved = jax.device_put(source, NamedSharding(mesh, P(*out_spec)))
        return moved, source

    @staticmethod
    def reference(x):
        return x, x


class Reshard(Move):
    """From each sharding to each other one: `out_shardings` of a jitted identity, `jax.sharding.reshard`."""

    name = "reshard"
    modes = ("auto", "explicit", "pjit")

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode in ("manual", "manual-novma", "pmap"):
            return "a change of sharding has no local program except the collectives themselves"
        return super().absent(mode, variant, mesh)

    @staticmethod
    def auto(x):
        return x

    @staticmethod
    def explicit(x, *, out_spec):
        return reshard(x, P(*out_spec))

    @staticmethod
    def reference(x):
        return x


class ReshardEach(Move):
    """From one sharding to every other one in one program, on every mesh. Each pair of shardings and each pair of axis
    sizes may take its own path through the partitioner."""

    name = "reshard_each"
    everywhere = True
    modes = ("auto", "explicit")
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        first = home(mesh)
        usual, near = {first}, 0
        if mesh == preferred(mesh.size):
            near = int(math.log2(mesh.size).is_integer())  # 1 keeps it out of the smoke profile
            usual |= {"-.-", ".".join(reversed(first.split("."))), "".join(mesh.names) + ".-"}
        for source in spec_labels(mesh):
            yield Variant.of(near if source in usual else 3, **{"from": source})

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the benchmarks time each pair by `reshard`."""
        yield from ()

    def plan(self, request: Request) -> Plan:
        source, targets = spec_of(request.variant["from"]), tuple(map(spec_of, spec_labels(request.mesh)))
        argument = Argument(matrix(request), request.dtype, source)
        results = tuple(Result(argument.shape, request.dtype, target) for target in targets)
        plan = Plan((argument,), results, {"out_specs": targets}, judge="bits")
        return state_moves(plan, partial(self.reference, out_specs=targets), request.mesh.sizes)

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode in ("manual", "manual-novma", "pmap"):
            return "a change of sharding has no local program except the collectives themselves"
        return super().absent(mode, variant, mesh)

    @staticmethod
    def auto(x, *, out_specs):
        return (x,) * len(out_specs)

    @staticmethod
    def explicit(x, *, out_specs):
        return tuple(reshard(x, P(*spec)) for spec in out_specs)

    @staticmethod
    def reference(x, *, out_specs):
        return (x,) * len(out_specs)


class WithShardingConstraint(Move):
    """A constraint alone determines the sharding of the result: the rows of a matrix in reverse order."""

    name = "with_sharding_constraint"
    modes = ("auto",)
    distance = 1

    def plan(self, request: Request) -> Plan:
        return replace(super().plan(request), placed=False)

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode == "explicit":
            return "over Explicit axes with_sharding_constraint changes nothing: it asserts the type"
        return super().absent(mode, variant, mesh)

    @staticmethod
    def auto(x, *, out_spec):
        mesh = jax.typeof(x).sharding.mesh
        return lax.with_sharding_constraint(x[::-1], NamedSharding(mesh, P(*out_spec)))

    @staticmethod
    def reference(x):
        return x[::-1]


class InShardingsOutShardings(Move):
    """jit with in_shardings and out_shardings, called with a host array, which is not committed to a device."""

    name = "in_shardings_out_shardings"
    modes = ("host",)
    distance = 1

    def results(self, request: Request, source: Result, target: Spec) -> tuple[Result, ...]:
        return (Result(source.shape, source.dtype, target),) * 2

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Sequence[int]) -> str | None:
        if variant["from"] != "-.-":
            return "over several processes jit takes a host array only where in_shardings replicates it"
        return super().refuses(variant, mesh, owners)

    @staticmethod
    def host(mesh, x, *, in_spec, out_spec):
        target = NamedSharding(mesh, P(*out_spec))
        function = jax.jit(
            lambda a: (a, a[::-1]),
            in_shardings=NamedSharding(mesh, P(*in_spec)),
            out_shardings=(target, target),
        )
        return function(x)

    @staticmethod
    def reference(x):
        return x, x[::-1]


class Build(Move):
    """The base of the functions that build a global array of each sharding from the host."""

    modes = ("host",)
    distance = 1

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for label in spec_labels(mesh):
            yield Variant.of(self.distance + (label != home(mesh)), to=label)
        yield Variant.of(2, to=home(mesh), fill="special")

    def plan(self, request: Request) -> Plan:
        spec = spec_of(request.variant["to"])
        argument = Argument(matrix(request), request.dtype, spec, fill_of(request))
        results = self.results(request, Result(argument.shape, request.dtype, spec), spec)
        return Plan((argument,), results, {"out_spec": spec}, judge="bits")

    @staticmethod
    def reference(x):
        return x


class PutGet(Build):
    """`device_put` of a host array in each sharding, and its host copy by `device_get`. An array that spans processes
    is copied by `multihost_utils.process_allgather`, because device_get raises there by design."""

    name = "put_get"
    everywhere = True
    level = "L0"
    distance = 0

    def results(self, request: Request, source: Result, target: Spec) -> tuple[Result, ...]:
        return source, Result(source.shape, source.dtype, (None, None))

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Sequence[int]) -> str | None:
        if variant.get("fill"):  # another operation has NaNs over processes
            return "operation device_put_of_host_array has the special values over several processes"
        return super().refuses(variant, mesh, owners)

    @staticmethod
    def host(mesh, x, *, out_spec):
        array = jax.device_put(x, NamedSharding(mesh, P(*out_spec)))
        if array.is_fully_addressable:
            copy = jax.device_get(array)
        else:
            copy = multihost_utils.process_allgather(array, tiled=True)
        return array, jax.device_put(copy, NamedSharding(mesh, P()))

    @staticmethod
    def reference(x):
        return x, x


class MakeArrayFromCallback(Build):
    """`jax.make_array_from_callback`: JAX asks for each device's part by its index."""

    name = "make_array_from_callback"

    @staticmethod
    def host(mesh, x, *, out_spec):
        sharding = NamedSharding(mesh, P(*out_spec))
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


class MakeArrayFromSingleDeviceArrays(Build):
    """`jax.make_array_from_single_device_arrays`, which replaces make_sharded_device_array and device_put_sharded: the
    parts are put on their devices one by one."""

    name = "make_array_from_single_device_arrays"

    @staticmethod
    def host(mesh, x, *, out_spec):
        sharding = NamedSharding(mesh, P(*out_spec))
        parts = sharding.addressable_devices_indices_map(x.shape)
        arrays = [jax.device_put(x[index], device) for device, index in parts.items()]
        return jax.make_array_from_single_device_arrays(x.shape, sharding, arrays)


def process_part(sharding, x):
    """The part of a host array that this process gives. Along each dimension it consists of the slices that its devices
    hold, in order and without the slices of other processes between them. If another process has some but not all of
    the same slices, each process gives the whole dimension, as JAX asks."""
    held = {}
    for device, part in sharding.devices_indices_map(x.shape).items():
        sets = held.setdefault(device.process_index, [set() for _ in x.shape])
        for slices, index, size in zip(sets, part, x.shape, strict=True):
            slices.add(index.indices(size)[:2])
    mine = held[jax.process_index()]
    for d, size in enumerate(x.shape):
        others = [slices[d] for slices in held.values()]
        uniform = all(other == mine[d] or not other & mine[d] for other in others)
        slices = sorted(mine[d]) if uniform else [(0, size)]
        x = np.concatenate([x.take(range(*part), axis=d) for part in slices], axis=d)
    return x


class MakeArrayFromProcessLocalData(Build):
    """`jax.make_array_from_process_local_data` with the part that covers this process's shards."""

    name = "make_array_from_process_local_data"

    @staticmethod
    def host(mesh, x, *, out_spec):
        sharding = NamedSharding(mesh, P(*out_spec))
        return jax.make_array_from_process_local_data(sharding, process_part(sharding, x), x.shape)


class HostLocalArrayToGlobalArray(Build):
    """`multihost_utils.host_local_array_to_global_array`, and again from the host-local array that
    `global_array_to_host_local_array` returns."""

    name = "host_local_array_to_global_array"

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Sequence[int]) -> str | None:
        positions = np.array(owners).reshape(mesh.shape)
        for process in set(owners):
            where = np.argwhere(positions == process)
            box = np.ptp(where, axis=0) + 1
            if box.prod() != len(where) or len(where) * len(set(owners)) != mesh.size:
                return "it takes a mesh in which the devices of each process form a subcube, as documented"
        return super().refuses(variant, mesh, owners)

    def results(self, request: Request, source: Result, target: Spec) -> tuple[Result, ...]:
        return source, source

    @staticmethod
    def host(mesh, x, *, out_spec):
        spec = P(*out_spec)
        local = process_part(NamedSharding(mesh, spec), x)
        array = multihost_utils.host_local_array_to_global_array(local, mesh, spec)
        back = multihost_utils.global_array_to_host_local_array(array, mesh, spec)
        return array, multihost_utils.host_local_array_to_global_array(np.asarray(back), mesh, spec)

    @staticmethod
    def reference(x):
        return x, x
