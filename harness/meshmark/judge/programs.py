# SPDX-License-Identifier: Apache-2.0
"""Makes a JAX program of a case: the five program modes, traced, lowered and compiled once.

This module does not assume that a device can execute or is addressable. Arguments are ShapeDtypeStructs with
shardings, and only `place_array` puts inputs on devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core.calls import select_options
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec, split
from meshmark.core.meshes import MeshShape
from meshmark.devices.compat import pjit
from meshmark.operations.base import Argument, Result
from meshmark.operations.cases import Case, Cell


def x64(cell: Cell) -> AbstractContextManager[Any]:
    """The context in which a cell is judged: 64-bit types are on for the cells that need them, and for no other."""
    return jax.enable_x64(True) if "x64" in cell.capabilities else nullcontext()


@lru_cache(maxsize=64)
def mesh_over(devices: tuple[Any, ...], shape: MeshShape, explicit: bool = False) -> Mesh:
    """The mesh of this shape over the first of these devices, with Explicit or Auto axes."""
    array = np.array(devices[: shape.size], dtype=object)[shape.ordinals]
    kind = AxisType.Explicit if explicit else AxisType.Auto
    return Mesh(array, shape.names, axis_types=(kind,) * len(shape.names))


def sharding(mesh: Mesh, spec: Spec) -> NamedSharding:
    """NamedSharding of a plain spec."""
    return NamedSharding(mesh, P(*spec))


def place_array(mesh: Mesh, spec: Spec, array: np.ndarray) -> jax.Array:
    """A host array on the devices of the mesh; over several processes each fills the shards it can address."""
    target = sharding(mesh, spec)
    if target.is_fully_addressable:
        return jax.device_put(array, target)
    return jax.make_array_from_callback(array.shape, target, lambda index: array[index])


@dataclass
class Program:
    """One case's program over given devices.

    `arguments` and `results` are the abstract arrays that the program takes and gives. For pmap these are the blocks
    stacked along a leading axis, and `view` makes such a stack of a host array.
    """

    case: Case
    devices: tuple[Any, ...]
    traced_types: list[Any] = field(default_factory=list)
    """`jax.typeof` of each result, seen while tracing (explicit mode)."""

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh; explicit mode alone has Explicit axes."""
        return mesh_over(self.devices, self.case.mesh, self.case.mode == "explicit")

    @property
    def stacked(self) -> bool:
        """Whether the program takes stacks of blocks."""
        return self.case.mode == "pmap"

    @cached_property
    def arguments(self) -> tuple[Argument | Result, ...]:
        """The abstract inputs of the program."""
        return tuple(self._seen(a) for a in self.case.plan.arguments)

    @cached_property
    def results(self) -> tuple[Argument | Result, ...]:
        """The abstract outputs of the program."""
        return tuple(self._seen(r) for r in self.case.plan.results)

    def _seen(self, item: Argument | Result) -> Argument | Result:
        if not self.stacked:
            return item
        from meshmark.core.layout import local_shape

        local = local_shape(item.shape, item.spec, self.case.mesh.sizes)
        return Result((self.case.mesh.size, *local), item.dtype, ("x",))

    def view(self, item: Argument | Result, array: np.ndarray) -> np.ndarray:
        """A global host array of the plan in the form that the program takes."""
        return np.stack(split(array, item.spec, self.case.mesh.sizes)) if self.stacked else array

    def context(self) -> AbstractContextManager[Any]:
        """The mesh context in which explicit mode traces and runs."""
        return jax.set_mesh(self.mesh) if self.case.mode == "explicit" else nullcontext()

    def compile(self) -> Any:
        """Compile the program; raises what JAX raises."""
        with self.context():
            return self.lower().compile()

    def lower(self) -> Any:
        """Lower the program; raises what JAX raises."""
        structs: list[Any] = self.structs()
        if self.stacked and jax.process_count() > 1:
            # Over several processes pmap can't lower a ShapeDtypeStruct (IndexError in tile_aval_nd): it gets arrays.
            structs = [place_array(self.mesh, s.sharding.spec, np.zeros(s.shape, s.dtype)) for s in structs]
        with self.context():
            wrapped = self.jitted()
            return wrapped.trace(*structs).lower() if hasattr(wrapped, "trace") else wrapped.lower(*structs)

    def structs(self) -> list[jax.ShapeDtypeStruct]:
        """The abstract arguments, with their shardings."""
        return [
            jax.ShapeDtypeStruct(a.shape, dtype_of(a.dtype).numpy, sharding=sharding(self.mesh, a.spec))
            for a in self.arguments
        ]

    def function(self) -> Callable[..., Any]:
        """The global function of this mode without jit (for pmap the local function)."""
        case, plan = self.case, self.case.plan
        mode = {"manual-novma": "manual", "pmap": "manual", "pjit": "auto"}.get(case.mode, case.mode)
        spelling = getattr(type(case.operation), mode)
        options = select_options(spelling, plan.options)

        def spelled(*arrays: Any) -> Any:
            return spelling(*arrays, **options)

        spelled.__name__ = case.operation.name
        function: Callable[..., Any] = spelled
        if case.mode in ("manual", "manual-novma"):
            outputs = plan.forward or plan.results
            inputs = plan.arguments[: len(plan.arguments) - len(plan.forward)]
            function = jax.shard_map(
                spelled,
                mesh=self.mesh,
                in_specs=tuple(P(*a.spec) for a in inputs),
                out_specs=_one_or_all([P(*r.spec) for r in outputs]),
                check_vma=case.mode == "manual",
            )
        return make_gradient(function, plan.wrt, len(plan.forward)) if plan.wrt else function

    def jitted(self) -> Any:
        """The function of this mode under jit (pmap, pjit); trace it in `context`."""
        mode, function = self.case.mode, self.function()
        if mode == "pmap":
            return jax.pmap(function, axis_name="x", devices=list(self.mesh.devices.flat))
        if mode in ("manual", "manual-novma"):
            return jax.jit(function)
        if mode == "explicit":

            def typed(*arrays: Any) -> Any:
                outputs = function(*arrays)
                self.traced_types[:] = map(jax.typeof, jax.tree.leaves(outputs))
                return outputs

            return jax.jit(typed)
        shardings = _one_or_all([sharding(self.mesh, r.spec) for r in self.results])
        if mode == "pjit":
            inputs = tuple(sharding(self.mesh, a.spec) for a in self.arguments)
            return pjit(function, in_shardings=inputs, out_shardings=shardings)
        return jax.jit(function, out_shardings=shardings) if self.case.plan.placed else jax.jit(function)


def make_gradient(function: Callable[..., Any], wrt: Sequence[int], cotangents: int) -> Callable[..., Any]:
    """The vector-Jacobian product of `function`: takes its arguments and the cotangents, gives the gradients."""

    def gradient(*arrays: Any) -> Any:
        primals, seeds = arrays[: len(arrays) - cotangents], arrays[len(arrays) - cotangents :]

        def of(*chosen_primals: Any) -> Any:
            full = list(primals)
            for position, value in zip(wrt, chosen_primals, strict=True):
                full[position] = value
            return function(*full)

        _, vjp = jax.vjp(of, *(primals[i] for i in wrt))
        return _one_or_all(list(vjp(_one_or_all(list(seeds)))))

    return gradient


def _one_or_all(items: list[Any]) -> Any:
    return items[0] if len(items) == 1 else tuple(items)
