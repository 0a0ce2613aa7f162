# SPDX-License-Identifier: Apache-2.0
"""Ways to write and run one sharded program: eager and compiled, nested and partial shard_map, closed-over arrays, vmap
outside, donation, memory kinds, callbacks, custom partitioning, stored executables.

The program is f(x) = x * s(x), where s adds the blocks of x over the last mesh axis (see `transforms`). Inputs are
small integers, and results are exact. A form that a release or backend lacks is unsupported, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding, reshard
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import (
    PUT_FROM_ONE_PROCESS,
    Argument,
    Missing,
    Operation,
    Plan,
    Request,
    Result,
    Variant,
)


def local(a):
    """f for one block."""
    return lambda x: x * lax.psum(x, a)


def whole(mesh, a):
    """f for a whole array."""

    def f(x):
        stack = x.reshape(mesh.shape[a], -1, *x.shape[1:])
        return (stack * stack.sum(axis=0)).reshape(x.shape)

    return f


def at(mesh, *spec):
    """The NamedSharding of a spec over the mesh."""
    return NamedSharding(mesh, P(*spec))


def over(mesh, a, **options):
    """f for the whole array, by shard_map over the mesh axis a."""
    return jax.shard_map(local(a), mesh=mesh, in_specs=P(a), out_specs=P(a), **options)


def typed(mesh, *kinds):
    """The same mesh with these axis types."""
    return Mesh(mesh.devices, mesh.axis_names, axis_types=kinds)


def explicit(mesh):
    """The same mesh with Explicit axes."""
    return typed(mesh, *(AxisType.Explicit,) * len(mesh.axis_names))


def memory_kinds(mesh):
    """The kinds of memory of the mesh's devices. Raises Missing if pinned_host is not one of them."""
    kinds = {m.kind for m in mesh.devices.flat[0].addressable_memories()}
    if "pinned_host" not in kinds:
        raise Missing(f"the devices have the memories {', '.join(sorted(kinds))}, and not pinned_host")
    return kinds


def run_jitted(mesh, a, x):
    """f by a jitted shard_map. A case whose checks are beside the program returns this."""
    return jax.jit(over(mesh, a))(x)


def _jitted(mesh, a, x):
    return run_jitted(mesh, a, x)


def _eager(mesh, a, x):
    return over(mesh, a)(x)


def _unchecked_eager(mesh, a, x):
    return over(mesh, a, check_vma=False)(x)


def _host_input(mesh, a, x):
    return jax.jit(over(mesh, a))(np.asarray(x))


def _partial(mesh, a, x):
    return jax.jit(over(mesh, a, axis_names={a}))(x)


def _partial_sharded(mesh, a, x):
    """The columns stay sharded over the first axis, which is not manual."""
    x = jax.device_put(x, at(mesh, a, mesh.axis_names[0]))
    return jax.jit(over(mesh, a, axis_names={a}), out_shardings=at(mesh, a))(x)


def _nested(mesh, a, x):
    inner = jax.shard_map(local(a), in_specs=P(a), out_specs=P(a), axis_names={a})
    first = mesh.axis_names[0]
    outer = jax.shard_map(
        inner, mesh=mesh, in_specs=P(None, first), out_specs=P(None, first), axis_names={first}
    )
    return jax.jit(outer, out_shardings=at(mesh, a))(x)


def _closed_over(mesh, a, x):
    """The function closes over a replicated array."""
    ones = jax.device_put(np.ones((1, x.shape[1]), np.float32), at(mesh))

    def f(y):
        return local(a)(y) * ones

    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P(a), out_specs=P(a)))(x)


def _inferred(mesh, a, x):
    """The input specs follow from the input types."""
    m = explicit(mesh)
    with jax.set_mesh(m):
        y = jax.jit(jax.shard_map(local(a), out_specs=P(a)))(jax.device_put(x, at(m, a)))
    return jax.device_put(y, at(mesh, a))


def _vmap_outside(mesh, a, x):
    return jax.jit(jax.vmap(over(mesh, a), in_axes=1, out_axes=1), out_shardings=at(mesh, a))(x)


def _vmap_spmd(mesh, a, x):
    """The batch is sharded over the first axis."""
    mapped = jax.vmap(over(mesh, a), in_axes=1, out_axes=1, spmd_axis_name=mesh.axis_names[0])
    return jax.jit(mapped, out_shardings=at(mesh, a))(x)


def _mixed_axes(mesh, a, x):
    """The last axis is Explicit, and the others are Auto."""
    kinds = [AxisType.Explicit if n == a else AxisType.Auto for n in mesh.axis_names]
    m = typed(mesh, *kinds)
    with jax.set_mesh(m):
        y = jax.jit(jax.sharding.auto_axes(whole(mesh, a), axes=a, out_sharding=P(a)))(
            jax.device_put(x, at(m, a))
        )
    return jax.device_put(y, at(mesh, a))


def _explicit_axes(mesh, a, x):
    """Explicit axes inside a program over Auto axes."""

    def f(y):
        inner = jax.sharding.explicit_axes(
            lambda b: reshard(b * 2, P(a)), axes=mesh.axis_names, in_sharding=P(a)
        )
        return whole(mesh, a)(inner(y) - y)

    m = typed(mesh, *(AxisType.Auto,) * len(mesh.axis_names))
    with jax.set_mesh(m):
        y = jax.jit(f, out_shardings=at(m, a))(jax.device_put(x, at(m, a)))
    return jax.device_put(y, at(mesh, a))


def _donated(mesh, a, x):
    given = jax.device_put(np.asarray(x), at(mesh, a))
    return jax.jit(over(mesh, a), donate_argnums=0)(given)


def _donated_constraint(mesh, a, x):
    """A donated buffer that a constraint reuses (jax#20088)."""

    def f(y):
        y = lax.with_sharding_constraint(y, at(mesh, None, a))
        return lax.with_sharding_constraint(whole(mesh, a)(y), at(mesh, a))

    given = jax.device_put(np.asarray(x), at(mesh, a))
    return jax.jit(f, donate_argnums=0)(given)


def _constraints(mesh, a, x):
    """A chain of constraints to other shardings."""

    def f(y):
        for spec in (P(None, a), P(), P(mesh.axis_names[0]), P(a)):
            y = lax.with_sharding_constraint(y, NamedSharding(mesh, spec))
        return whole(mesh, a)(y)

    return jax.jit(f, out_shardings=at(mesh, a))(x)


def _single_device(mesh, a, x):
    """The input is on one device and is moved to the mesh."""
    one = jax.device_put(np.asarray(x), SingleDeviceSharding(mesh.devices.flat[-1]))
    return jax.jit(over(mesh, a))(jax.device_put(one, at(mesh, a)))


def _host_memory(mesh, a, x):
    """Through host memory and back."""
    memory_kinds(mesh)
    there = jax.device_put(x, NamedSharding(mesh, P(a), memory_kind="pinned_host"))
    if there.sharding.memory_kind != "pinned_host":
        raise RuntimeError("device_put left the array where it was")
    return jax.jit(over(mesh, a))(jax.device_put(there, at(mesh, a)))


def _aliased(mesh, a, x):
    """A write to the host array after the put must not change the result. The array starts at a multiple of 64 bytes,
    where a CPU backend can use it in place."""
    room = np.zeros(x.nbytes + 64, np.uint8)
    host = room[-room.ctypes.data % 64 :][: x.nbytes].view(np.float32).reshape(x.shape)
    host[...] = np.asarray(x)
    there = jax.device_put(host, at(mesh, a), may_alias=False)
    jax.block_until_ready(there)
    host[...] = 77
    return jax.jit(over(mesh, a))(there)


def _io_callback(mesh, a, x):
    """Every device passes its block to the host and gets it back."""
    from jax.experimental import io_callback

    def f(y):
        kind = jax.ShapeDtypeStruct(y.shape, y.dtype)
        return local(a)(io_callback(lambda b: np.asarray(b) + 1, kind, y) - 1)

    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P(a), out_specs=P(a), check_vma=False))(x)


def _printed(mesh, a, x):
    """A callback that gets the whole array, in a global program."""
    seen = []

    def f(y):
        jax.debug.callback(lambda b: seen.append(np.asarray(b)), y)
        return whole(mesh, a)(y)

    y = jax.jit(f, out_shardings=at(mesh, a))(x)
    jax.effects_barrier()
    if not seen or not all(np.array_equal(s, np.asarray(x)) for s in seen):
        raise RuntimeError(f"the callback saw {len(seen)} arrays, and not the whole one")
    return y


def _serialized(mesh, a, x):
    """An executable that is stored and loaded again."""
    from jax.experimental import serialize_executable

    x = jax.device_put(x, at(mesh, a))
    compiled = jax.jit(over(mesh, a)).lower(x).compile()
    return serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))(x)


def _exported(mesh, a, x):
    """A program that is exported, loaded and called."""
    from jax import export

    if find_spec("flatbuffers") is None:
        raise Missing("jax.export needs flatbuffers: pip install flatbuffers")
    x = jax.device_put(x, at(mesh, a))
    exported = export.deserialize(export.export(jax.jit(over(mesh, a)))(x).serialize())
    return jax.jit(exported.call, out_shardings=at(mesh, a))(x)


def _shard_alike(mesh, a, x):
    """An intermediate array takes the sharding of the input."""
    try:
        from jax.experimental.shard_alike import shard_alike
    except ImportError:
        raise Missing("this release has no jax.experimental.shard_alike") from None

    def f(y):
        y, z = shard_alike(y, whole(mesh, a)(y))
        return z + 0 * y

    return jax.jit(f, out_shardings=at(mesh, a))(jax.device_put(x, at(mesh, a)))


def partitioned_double():
    """y * 2 of a matrix, with a custom partitioning rule."""
    from jax.experimental.custom_partitioning import custom_partitioning

    @custom_partitioning
    def twice(y):
        return y * 2

    def partition(m, arguments, result):
        place = arguments[0].sharding
        return m, lambda y: y + y, place, (place,)

    twice.def_partition(
        partition=partition,
        infer_sharding_from_operands=lambda m, arguments, result: arguments[0].sharding,
        sharding_rule="i j -> i j",
    )
    return twice


def _custom_partitioning(mesh, a, x):
    """A function with a custom partitioning rule."""
    twice = partitioned_double()
    return jax.jit(lambda y: whole(mesh, a)(twice(y) - y), out_shardings=at(mesh, a))(
        jax.device_put(x, at(mesh, a))
    )


def _cast_constraint(mesh, a, x):
    """A cast to bfloat16, a constraint, and x @ x.T. The result also has the difference from the float32 product."""

    def f(y):
        small = lax.with_sharding_constraint(y.astype(jnp.bfloat16), at(mesh, a))
        product = jnp.matmul(small, small.T, preferred_element_type=jnp.float32)
        wanted = jnp.matmul(y, y.T, precision="highest")
        return whole(mesh, a)(y) + (product - wanted).sum(axis=1, keepdims=True)

    return jax.jit(f, out_shardings=at(mesh, a))(jax.device_put(x, at(mesh, a)))


def _made_mesh(mesh, a, x):
    """`jax.make_mesh` of the same shape, in any device order."""
    m = jax.make_mesh(mesh.devices.shape, mesh.axis_names, devices=list(mesh.devices.flat))
    kinds = (AxisType.Auto,) * len(mesh.axis_names)
    m = Mesh(m.devices, mesh.axis_names, axis_types=kinds)
    return jax.device_put(jax.jit(over(m, a))(np.asarray(x)), at(mesh, a))


def _device_mesh(mesh, a, x):
    """`mesh_utils.create_device_mesh` of the same shape."""
    from jax.experimental import mesh_utils

    devices = mesh_utils.create_device_mesh(mesh.devices.shape, devices=list(mesh.devices.flat))
    m = Mesh(devices, mesh.axis_names)
    return jax.device_put(jax.jit(over(m, a))(np.asarray(x)), at(mesh, a))


def _hybrid_mesh(mesh, a, x):
    """`mesh_utils.create_hybrid_device_mesh` with one process as the only granule."""
    from jax.experimental import mesh_utils

    ones = (1,) * len(mesh.axis_names)
    devices = mesh_utils.create_hybrid_device_mesh(
        mesh.devices.shape, ones, devices=list(mesh.devices.flat), process_is_granule=True
    )
    m = Mesh(devices, mesh.axis_names)
    return jax.device_put(jax.jit(over(m, a))(np.asarray(x)), at(mesh, a))


def _switching(mesh, a, x):
    """The same function over two meshes in turn, five times."""
    turned = Mesh(mesh.devices[::-1], mesh.axis_names)
    for _ in range(5):
        there = jax.jit(over(turned, a))(np.asarray(x))
        here = jax.jit(over(mesh, a))(np.asarray(x))
        if not np.array_equal(np.asarray(there), np.asarray(here)):
            raise RuntimeError("the two meshes differ")
    return here


def _smap(mesh, a, x):
    """`jax.smap` over one axis, if the release has it."""
    if not hasattr(jax, "smap"):
        raise Missing("this release has no jax.smap")
    m = explicit(mesh)
    with jax.set_mesh(m):
        y = jax.jit(jax.smap(local(a), in_axes=0, out_axes=0, axis_name=a))(jax.device_put(x, at(m, a)))
    return jax.device_put(y, at(mesh, a))


FORMS: dict[str, Callable[..., Any]] = {
    "eager": _eager,
    "jitted": _jitted,
    "unchecked_eager": _unchecked_eager,
    "host_input": _host_input,
    "partial": _partial,
    "partial_sharded": _partial_sharded,
    "nested": _nested,
    "closed_over": _closed_over,
    "inferred": _inferred,
    "vmap_outside": _vmap_outside,
    "vmap_spmd": _vmap_spmd,
    "mixed_axes": _mixed_axes,
    "explicit_axes": _explicit_axes,
    "donated": _donated,
    "donated_constraint": _donated_constraint,
    "constraints": _constraints,
    "single_device": _single_device,
    "host_memory": _host_memory,
    "aliased": _aliased,
    "io_callback": _io_callback,
    "printed": _printed,
    "serialized": _serialized,
    "exported": _exported,
    "shard_alike": _shard_alike,
    "custom_partitioning": _custom_partitioning,
    "cast_constraint": _cast_constraint,
    "made_mesh": _made_mesh,
    "device_mesh": _device_mesh,
    "hybrid_mesh": _hybrid_mesh,
    "switching": _switching,
    "smap": _smap,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


OPTIONAL = ("smap", "shard_alike", "host_memory")
"""The forms that a release or backend may lack. No level requires them."""


class ProgramForm(Operation):
    """One sharded program in every form of writing and running it."""

    name = "program_form"
    family = "transforms"
    level = "L3"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    forms: ClassVar[dict[str, Callable[..., Any]]] = FORMS
    two_axes: ClassVar[tuple[str, ...]] = ("nested", "vmap_spmd", "partial_sharded")
    """The forms that need a second axis."""
    ending: ClassVar[tuple[str, ...]] = ()
    """The forms that end the process on some release. Only the full profile runs them."""

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for form in self.forms:
            if len(mesh.names) == 1 and form in self.two_axes:
                continue
            ordinary = mesh == preferred(mesh.size) and form not in (*OPTIONAL, *self.ending)
            yield Variant.of(2 if ordinary else 3, form=form)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        a = mesh.names[-1]
        parts = mesh.size if mesh.size > 2 else 4  # forms read the fifth row and the sixth column
        shape = (4 * parts, 2 * parts)
        x = Argument(shape, "float32", (a, None), values.tokens, {"below": 4})
        options = {"form": request.variant["form"], "axis": a, "blocks": mesh.sizes[a]}
        return Plan((x,), (Result(shape, "float32", (a, None)),), options, judge="exact")

    @staticmethod
    def host(mesh, x, *, form, axis):
        return FORMS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))

    @staticmethod
    def reference(x, *, blocks):
        stack = x.reshape(blocks, -1, *x.shape[1:])
        return (stack * stack.sum(axis=0)).reshape(x.shape)
