# SPDX-License-Identifier: Apache-2.0
"""Host programs of several calls: a jitted function with two shardings in turn, two programs in flight, donated arrays,
and arrays that are indexed, added and moved between meshes outside of a jitted program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.placements.placement import home, matrix, spec_labels, spec_of


class Calls(Operation):
    """The base of the calls: a host program works on two sharded matrices of small integers."""

    family = "calls"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32", "int8", "uint16")
    ways: ClassVar[tuple[str, ...]] = ()

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: they would mostly time the host."""
        yield from ()

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for way in self.ways:
            for label in spec_labels(mesh):
                yield Variant.of(2 if label == home(mesh) else 4, way=way, of=label)

    def plan(self, request: Request) -> Plan:
        spec = spec_of(request.variant["of"])
        argument = Argument(matrix(request), request.dtype, spec, values.tokens, {"below": 30})
        result = Result(argument.shape, request.dtype, spec)
        options = {"way": request.variant["way"], "spec": spec}
        return Plan((argument, argument), (result, result), options, judge="exact")

    def refuses(self, variant: Variant, mesh: MeshShape, owners) -> str | None:
        return "the host program puts whole arrays on devices of one process"


class ShardingsInTurn(Calls):
    """One jitted function, called with two shardings in turn. Each call must use the program of its sharding."""

    name = "shardings_in_turn"
    ways: ClassVar[tuple[str, ...]] = ("sharding", "value", "mesh")

    @staticmethod
    def host(mesh, x, y, *, way, spec):
        target, whole = NamedSharding(mesh, P(*spec)), NamedSharding(mesh, P())
        flipped = Mesh(mesh.devices[::-1], mesh.axis_names)
        other = {"sharding": whole, "value": target, "mesh": NamedSharding(flipped, P(*spec))}[way]
        function = jax.jit(lambda a: a + jnp.flip(a, 0))
        found = [
            function(jax.device_put(array, place))
            for _ in range(2)
            for array, place in ((x, target), (y, other), (y, target), (x, other))
        ]
        return jax.device_put(found[4], target), jax.device_put(found[5], target)

    @staticmethod
    def reference(x, y):
        return x + x[::-1], y + y[::-1]


class ProgramsInFlight(Calls):
    """Programs that start one after the other without a wait between them, on one mesh or two."""

    name = "programs_in_flight"
    ways: ClassVar[tuple[str, ...]] = ("same", "meshes", "chained")

    @staticmethod
    def host(mesh, x, y, *, way, spec):
        target = NamedSharding(mesh, P(*spec))
        flipped = NamedSharding(Mesh(mesh.devices[::-1], mesh.axis_names), P(*spec))
        up = jax.jit(lambda a: jnp.roll(a, 1, 0), out_shardings=target)
        down = jax.jit(lambda a: jnp.roll(a, -1, 0), out_shardings=flipped if way == "meshes" else target)
        one = jax.device_put(x, target)
        two = jax.device_put(y, flipped if way == "meshes" else target)
        for _ in range(4):
            one = up(one)
            two = down(two) if way != "chained" else two
        if way == "chained":
            for _ in range(4):
                two = down(two)
        return one, jax.device_put(two, target)

    @staticmethod
    def reference(x, y):
        return np.roll(x, 4, axis=0), np.roll(y, -4, axis=0)


class Donated(Calls):
    """Donated arrays are deleted, arrays that are not donated are kept, and the results are right."""

    name = "donated"
    ways: ClassVar[tuple[str, ...]] = ("reused", "resharded", "loop")

    @staticmethod
    def host(mesh, x, y, *, way, spec):
        target = NamedSharding(mesh, P(*spec))
        out = NamedSharding(mesh, P()) if way == "resharded" else target
        step = jax.jit(lambda a, b: a + b, donate_argnums=0, out_shardings=out)
        state, kept = jax.device_put(x, target), jax.device_put(y, target)
        for _ in range(3 if way == "loop" else 1):
            before, state = state, step(state, kept)
            if not before.is_deleted() and out == target:
                raise AssertionError("a donated array is not deleted")
            if kept.is_deleted():
                raise AssertionError("an array that was not donated is deleted")
        return jax.device_put(state, target), kept

    @staticmethod
    def reference(x, y, *, way):
        return x + (3 if way == "loop" else 1) * y, y


class Eager(Calls):
    """Arrays that are indexed, added, compared and moved between meshes outside of a jitted program."""

    name = "eager"
    ways: ClassVar[tuple[str, ...]] = ("add", "index", "put", "set", "compare")

    @staticmethod
    def host(mesh, x, y, *, way, spec):
        target = NamedSharding(mesh, P(*spec))
        one, two = jax.device_put(x, target), jax.device_put(y, NamedSharding(mesh, P()))
        if way == "add":
            one, two = one + two, two - one * 2
        elif way == "index":
            one, two = one[np.arange(len(x))[::-1]], two[::-1]
        elif way == "put":
            flipped = NamedSharding(Mesh(mesh.devices[::-1], mesh.axis_names), P(*spec))
            one, two = jax.device_put(jax.device_put(one, flipped), target), jax.device_put(two, flipped)
        elif way == "set":
            one, two = one.at[-1].set(two[0]), two.at[:, 1:].add(one[:, 1:])
        else:
            one, two = jnp.where(one > two, one, two), (one == two).astype(one.dtype)
        return jax.device_put(one, target), jax.device_put(two, target)

    @staticmethod
    def reference(x, y, *, way):
        if way == "add":
            return x + y, y - x * 2
        if way == "index":
            return x[::-1], y[::-1]
        if way == "put":
            return x, y
        if way == "set":
            one, two = x.copy(), y.copy()
            one[-1] = y[0]
            two[:, 1:] += x[:, 1:]
            return one, two
        return np.where(x > y, x, y), x == y
