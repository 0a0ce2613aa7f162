# SPDX-License-Identifier: Apache-2.0
"""Libraries that place arrays: Flax NNX by the metadata of its variables, Datarax by its sharder. Both are optional.
`meshmark test --with flax,datarax` demands their cases."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import extras, values
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Missing, Operation, Plan, Request, Result, Variant


class NnxLayers(Operation):
    """Two layers of Flax NNX. The metadata of their kernels shards the first by columns and the second by rows. A
    program under a mesh makes them, or `nnx.get_named_sharding` gives their places. Kernels and gradients must have the
    shardings of the metadata."""

    name = "nnx_layers"
    family = "programs"
    level = "L3"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    sizes: ClassVar[dict[str, int]] = {"64B": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for far, made in enumerate(("in_program", "by_state")):
            for axis in mesh.names:
                first = axis == mesh.names[-1] and mesh == preferred(mesh.size)
                yield Variant.of((1 if first else 3) + far, "flax", made=made, axis=axis)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Sequence[int]) -> str | None:
        return "the parameters are put from one process"

    def plan(self, request: Request) -> Plan:
        n, axis = request.mesh.size, request.variant["axis"]
        small = {"below": 4}
        rest = request.mesh.rest((axis,)) or None
        x = Argument((2 * n, 4), "float32", (rest, None), values.tokens, small)
        first = Argument((4, 2 * n), "float32", (None, axis), values.tokens, small)
        second = Argument((2 * n, 4), "float32", (axis, None), values.tokens, small)
        results = tuple(Result(a.shape, a.dtype, a.spec) for a in (x, first, second, first, second))
        options = {"made": request.variant["made"], "axis": axis, "rows": rest}
        return Plan((x, first, second), results, options, judge="exact")

    @staticmethod
    def host(mesh, x, first, second, *, made, axis, rows):
        if importlib.util.find_spec("flax") is None:
            raise Missing("flax is not installed: " + extras.command("flax"))
        from flax import nnx

        def kernel(value, spec):
            def initial(key, shape, dtype, *_, **__):
                return jnp.asarray(value, dtype).reshape(shape)

            return nnx.with_partitioning(initial, spec)

        class Layers(nnx.Module):
            def __init__(self):
                def layer(value, spec):
                    made_of = kernel(np.asarray(value), spec)
                    return nnx.Linear(
                        *value.shape,
                        use_bias=False,
                        kernel_init=made_of,
                        precision="highest",
                        rngs=nnx.Rngs(0),
                    )

                self.first = layer(first, (None, axis))
                self.second = layer(second, (axis, None))

            def __call__(self, y):
                return self.second(self.first(y) - 9)

        with jax.set_mesh(mesh):
            if made == "in_program":
                layers = nnx.jit(Layers)()
            else:
                with nnx.use_eager_sharding(False):
                    definition, state = nnx.split(Layers())
                state = jax.device_put(state, nnx.get_named_sharding(state, mesh))
                layers = nnx.merge(definition, state)
            place = NamedSharding(mesh, P(rows))
            y = nnx.jit(lambda model, a: model(a))(layers, jax.device_put(x, place))
            found = nnx.jit(nnx.grad(lambda model, a: model(a).sum()))(layers, jax.device_put(x, place))
            kernels = (
                layers.first.kernel,
                layers.second.kernel,
                *(found[n]["kernel"] for n in ("first", "second")),
            )
            return jax.device_put(y, place), *(kernel[...] for kernel in kernels)

    @staticmethod
    def reference(x, first, second):
        hidden = x @ first - 9
        ones = np.ones((len(x), second.shape[1]))
        return hidden @ second, first, second, x.T @ (ones @ second.T), hidden.T @ ones


class DataraxSharder(Operation):
    """`JaxProcessSharderModule.shard_data` of Datarax, called as every process of a group calls it. The parts are the
    rows in order. Rows that are left over are dropped or go to the first processes. The parts of an even split are put
    on the devices."""

    name = "datarax_sharder"
    family = "programs"
    level = "L3"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    sizes: ClassVar[dict[str, int]] = {"64B": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for far, rest in enumerate(("dropped", "spread")):
            weight = 1 if mesh == preferred(mesh.size) else 3
            yield Variant.of(weight + far, "datarax", rest=rest)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Sequence[int]) -> str | None:
        return "it stands for every process of a group"

    def plan(self, request: Request) -> Plan:
        n = request.mesh.size
        x = Argument((4 * n - 1, 3), request.dtype, (None, None))
        dropped = request.variant["rest"] == "dropped"
        shape = (3 * n if dropped else 4 * n - 1, 3)
        spec: Any = (request.mesh.names, None) if dropped else (None, None)
        options = {"rest": request.variant["rest"], "spec": spec}
        return Plan((x,), (Result(shape, request.dtype, spec),), options, judge="bits")

    @staticmethod
    def host(mesh, x, *, rest, spec):
        if importlib.util.find_spec("datarax") is None:
            raise Missing("datarax is not installed: " + extras.command("datarax"))
        from datarax.sharding.jax_process_sharder import JaxProcessSharderConfig, JaxProcessSharderModule

        parts = []
        for number in range(mesh.size):
            sharder = JaxProcessSharderModule(JaxProcessSharderConfig(drop_remainder=rest == "dropped"))
            sharder.process_count.set_value(mesh.size)
            sharder.process_index.set_value(number)
            parts.append(np.asarray(sharder.shard_data(x)))
        place = NamedSharding(mesh, P(*spec))
        if rest == "spread":
            return jax.device_put(np.concatenate(parts), place)
        put = [jax.device_put(p, d) for p, d in zip(parts, mesh.devices.ravel(), strict=True)]
        shape = (sum(map(len, parts)), *x.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, place, put)

    @staticmethod
    def reference(x, *, rest):
        return x if rest == "spread" else x[: 3 * ((len(x) + 1) // 4)]
