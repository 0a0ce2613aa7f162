# SPDX-License-Identifier: Apache-2.0
"""Small rules: types of results, objects of shardings and meshes, and what compiled programs send and keep."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core.hlo import collectives, wire_bytes
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices


def _sharding_objects(line, grid):
    """What a sharding or mesh keeps if another property of it is changed, and what it says of its devices."""
    kinds = [m.kind for m in line.devices.flat[0].addressable_memories()]
    for kind in kinds:
        one = NamedSharding(grid, P("x"), memory_kind=kind)
        expect(
            one.update(spec=P(None, "y")).memory_kind,
            kind,
            f"the memory kind {kind} of a sharding with another spec",
        )
        expect(
            one.update(mesh=line, spec=P("d")).memory_kind,
            kind,
            f"the memory kind {kind} of a sharding over another mesh",
        )
        again = NamedSharding(grid, P("x")).with_memory_kind(kind)
        expect(
            (again.spec, again.mesh, again.memory_kind),
            (P("x"), grid, kind),
            f"a sharding with memory kind {kind}",
        )
    for types in ((AxisType.Explicit,) * 2, (AxisType.Auto, AxisType.Explicit)):
        m = Mesh(grid.devices, ("x", "y"), axis_types=types)
        turned = m.update(devices=m.devices[::-1])
        expect(turned.axis_types, types, "the axis types of a mesh with other devices")
        expect(
            [d.id for d in turned.devices.flat],
            [d.id for d in m.devices[::-1].flat],
            "the devices of an updated mesh",
        )
        renamed = m.update(axis_names=("p", "q"))
        expect((renamed.axis_names, renamed.axis_types), (("p", "q"), types), "a mesh with other names")
        expect(m.abstract_mesh.axis_types, types, "the axis types of the abstract mesh")
        expect(dict(m.shape), dict(grid.shape), "the shape of a mesh")
        again = m.abstract_mesh.update(axis_types=(AxisType.Auto,) * 2)
        expect(again.axis_sizes, m.axis_sizes, "the sizes of an abstract mesh with other types")
    n, (rows, columns) = line.size, grid.devices.shape
    for spec in (P("x", "y"), P(("x", "y")), P(None, "x"), P()):
        shape = (2 * rows * columns, 3 * rows * columns)
        sharding = NamedSharding(grid, spec)
        cut = [1, 1]
        for k, entry in enumerate(spec):
            for axis in (entry,) if isinstance(entry, str) else entry or ():
                cut[k] *= grid.shape[axis]
        expect(
            sharding.shard_shape(shape),
            (shape[0] // cut[0], shape[1] // cut[1]),
            f"the shape of a part under {spec}",
        )
        kept = jax.device_put(np.arange(shape[0] * shape[1]).reshape(shape), sharding)
        host = np.asarray(kept)
        where = sharding.devices_indices_map(shape)
        for shard in kept.addressable_shards:
            expect(np.asarray(shard.data), host[where[shard.device]], f"the part under {spec}")
            expect(shard.index, where[shard.device], f"the index of a part under {spec}")
    backwards = Mesh(grid.devices[::-1, ::-1], ("x", "y"))
    x = placed(backwards, np.arange(n, dtype=np.float32), ("x", "y"))
    expect(
        [s.device.id for s in x.addressable_shards],
        [d.id for d in backwards.devices.flat],
        "the order of the parts of an array",
    )
    expect(
        np.concatenate([np.asarray(s.data) for s in x.addressable_shards]),
        np.arange(n, dtype=np.float32),
        "the parts in order",
    )
    copies = placed(grid, np.arange(float(rows)), "x")
    for k, device in enumerate(grid.devices.flat):
        expect(
            np.asarray(copies.addressable_data(k)),
            np.array([float(k // columns)], np.asarray(copies).dtype),
            f"part {k}",
        )
        expect(copies.addressable_data(k).devices(), {device}, f"the device of part {k}")
    numbers = [s.replica_id for s in copies.addressable_shards]
    expect(numbers, [k % columns for k in range(n)], "the replica numbers")
    if n > 1 and may_leave_out_devices():
        few = jax.make_mesh((n - 1,), ("d",), devices=list(line.devices.flat)[: n - 1])
        expect(
            {d.id for d in few.devices.flat},
            {d.id for d in line.devices.flat[: n - 1]},
            "the devices of a smaller mesh",
        )
        first = {d.id for d in jax.devices()[: n - 1]}
        expect(
            {d.id for d in jax.make_mesh((n - 1,), ("d",)).devices.flat},
            first,
            "the devices of a mesh of fewer",
        )


def _result_types(line, grid):
    """Specs with axes of size 1, weak and strong types, committed arrays, and the mesh inside a region."""
    n = line.size
    thin = Mesh(line.devices.reshape(n, 1), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(thin):
        x = jax.device_put(np.ones((2 * n, 4), np.float32), P("x", "y"))
        cases = {
            "x.T": (lambda v: v.T, P("y", "x")),
            "2 * x": (lambda v: 2 * v, P("x", "y")),
            "a new dimension": (lambda v: v[:, None], P("x", None, "y")),
            "a sum over columns": (lambda v: v.sum(1), P("x")),
            "a sum over rows": (lambda v: v.sum(0), P("y")),
            "two dimensions that change places": (lambda v: jnp.swapaxes(v, 0, 1), P("y", "x")),
            "a squeezed dimension": (lambda v: v[:, None].squeeze(1), P("x", "y")),
            "a cast": (lambda v: v.astype(jnp.bfloat16), P("x", "y")),
            "a chosen value": (lambda v: jnp.where(v > 0, v, 0), P("x", "y")),
            "a sort of columns": (lambda v: lax.rev(v, (1,)), P("x", "y")),
        }
        for name, (f, spec) in cases.items():
            found = jax.jit(f)(x).sharding.spec
            kept = [axis for entry in found for axis in ((entry,) if isinstance(entry, str) else entry or ())]
            want = [axis for entry in spec for axis in ((entry,) if isinstance(entry, str) else entry or ())]
            # A release may leave out an axis of size 1 whose dimension is summed, and nothing else.
            expect(
                [k for k in kept if thin.shape[k] > 1 or "sum" not in name],
                [k for k in want if thin.shape[k] > 1 or "sum" not in name],
                f"the axes of {name}",
            )

    def rows_then_whole(w):
        w = lax.with_sharding_constraint(w, NamedSharding(line, P("d")))
        return jnp.sum(jnp.sin(lax.with_sharding_constraint(w, NamedSharding(line, P()))))

    gradient = jax.jit(jax.grad(rows_then_whole))(np.ones((n, 4), np.float32))
    like = NamedSharding(line, P("d"))
    expect(
        gradient.sharding.is_equivalent_to(like, 2), True, "that the gradient of a constraint is constrained"
    )
    seen = []
    columns = grid.shape["y"]
    slim = Mesh(line.devices.reshape(-1, 1, columns), ("x", "one", "z"))

    def look(v):
        seen.append(jax.sharding.get_abstract_mesh())
        return 2 * v

    jax.jit(jax.shard_map(look, mesh=slim, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))(
        np.arange(float(n))
    )
    types = dict(zip(seen[0].axis_names, seen[0].axis_types, strict=True))
    expect(types["x"], AxisType.Manual, "the type of a manual axis inside a region")
    expect(types["one"] == AxisType.Manual, False, "that an axis of size 1 is manual too")
    for name, f, weak in (
        ("a number", lambda v: v * 2.0, True),
        ("a sum of an array and a number", lambda v: v + jnp.zeros((), jnp.float32), False),
        ("jnp.asarray of a number", lambda v: jnp.asarray(v), True),
        ("jnp.array with a dtype", lambda v: jnp.array(v, jnp.float32), False),
    ):
        like = jax.eval_shape(f, 1.0)
        expect((like.weak_type, like.dtype.name), (weak, "float32"), f"the type of {name} by eval_shape")
        expect(jax.jit(f)(1.0).aval.weak_type, weak, f"whether the type of {name} is weak under jit")
        expect(f(jnp.asarray(1.0)).aval.weak_type, weak, f"whether the type of {name} is weak")
    run = jax.jit(lambda v: v * 0.5)
    half = placed(line, np.ones(n, jnp.bfloat16), "d")
    for call in range(3):
        expect(
            (half * run(float(call))).dtype,
            jnp.dtype(jnp.bfloat16),
            f"bfloat16 times a weak number of call {call}",
        )
    device = line.devices.flat[-1]
    for name, value in (
        ("a number", 0.5),
        ("an integer", 3),
        ("an array", np.ones(3, np.float32)),
        ("a key", jax.random.key(0)),
    ):
        kept = jax.device_put(value, device)
        expect(kept.committed, True, f"whether {name} on a device is committed")
        expect(kept.devices(), {device}, f"the device of {name}")
    expect((jax.device_put(0.5, device) * 2).devices(), {device}, "the device of a product with a number")
    expect(jnp.ones(3).committed, False, "whether a new array is committed")
    for kind in ("bfloat16", "float16", "float32", "int8", "int32"):
        state = placed(line, np.ones((64, n), kind), None, "d")
        change = placed(line, np.ones((64, n), kind), None, "d")
        step = jax.jit(lambda p, g: p - g, donate_argnums=0)
        memory = step.lower(state, change).compile().memory_analysis()
        if memory is not None:
            least = state.addressable_shards[0].data.nbytes
            wrong(memory.alias_size_in_bytes < least, f"a donated array of {kind} is not reused")
        step(state, change)
        expect(state.is_deleted(), True, f"whether a donated array of {kind} is deleted")


def _wire(line, grid):
    """Which collectives compiled programs have, and at most how many bytes a device gets from them."""
    n = line.size
    if n == 1 or n > 64 or jax.process_count() > 1:
        return
    # Blocks of 8x128 are whole tiles: a TPU makes an all-reduce of the sum of smaller ones.
    w, x = np.ones((8 * n, 128), np.float32), np.ones((n, 8 * n), np.float32)
    share = (n - 1) / n

    def loss(w, x):
        return lax.pmean(jnp.sum((x @ lax.all_gather(w, "d", tiled=True)) ** 2), "d")

    gradient = jax.jit(jax.grad(jax.shard_map(loss, mesh=line, in_specs=(P("d"), P("d")), out_specs=P())))
    _sends(
        "the gradient of a gathered parameter",
        gradient,
        (placed(line, w, "d"), placed(line, x, "d")),
        2 * share * w.nbytes + 64,
    )
    both = mapped(lambda v: lax.psum(v, ("x", "y")), grid, P(("x", "y")), P())
    _sends("a sum over two axes", both, (placed(grid, w, ("x", "y")),), 2 * w.nbytes / n)
    if jax.default_backend() in ("cpu", "gpu"):  # others may widen what is narrow
        for kind in ("int8", "uint8", "int16"):
            narrow = np.ones((n, 64 * n), kind)
            move = mapped(lambda v: lax.all_to_all(v, "d", 1, 0, tiled=True), line, P("d"), P(None, "d"))
            _sends(f"an all_to_all of {kind}", move, (placed(line, narrow, "d"),), narrow.nbytes / n)
            turn = mapped(
                lambda v: lax.ppermute(v, "d", [(k, (k + 1) % n) for k in range(n)]), line, P("d"), P("d")
            )
            _sends(f"a ppermute of {kind}", turn, (placed(line, narrow, "d"),), narrow.nbytes / n)
            gather = mapped(lambda v: lax.all_gather(v, "d", tiled=True), line, P("d"), P(), check_vma=False)
            _sends(f"an all_gather of {kind}", gather, (placed(line, narrow, "d"),), narrow.nbytes)
    long = placed(line, np.ones((4, 64 * n), np.float32), None, "d")
    part = 4 * 64 * 4
    for name, f in {
        "softmax over a sharded dimension": lambda v: jax.nn.softmax(v, axis=-1),
        "a maximum over a sharded dimension": lambda v: jnp.max(v, axis=-1),
        "a minimum over a sharded dimension": lambda v: jnp.min(v, axis=-1),
        "a norm over a sharded dimension": lambda v: jnp.sqrt(jnp.sum(v * v, axis=-1)),
        "a variance over a sharded dimension": lambda v: jnp.var(v, axis=-1),
    }.items():
        _sends(name, jax.jit(f), (long,), part)
    state = placed(line, np.ones((8 * n, 8), np.float32), "d")

    def constrained(v):
        return jnp.sum(jnp.sin(lax.with_sharding_constraint(v * 1.0, NamedSharding(line, P("d")))))

    _sends("the gradient of a constrained array", jax.jit(jax.grad(constrained)), (state,), 64)


def _sends(what, run, arguments, most):
    """RuntimeError if a device sends more than `most` bytes in the collectives of a compiled program."""
    found = collectives(run.lower(*arguments).compile().as_text() or "")
    sent = sum(map(wire_bytes, found))
    names = ", ".join(sorted({one.kind for one in found}))
    wrong(sent > most, f"{what} sends {sent:.0f} bytes by {names}, where {most:.0f} do")


RULES_OF_TYPES: dict[str, Callable[..., None]] = {
    "sharding_objects": _sharding_objects,
    "result_types": _result_types,
    "wire": _wire,
}
