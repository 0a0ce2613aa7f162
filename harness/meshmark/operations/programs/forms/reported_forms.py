# SPDX-License-Identifier: Apache-2.0
"""Programs like those that people reported: nested gradients, communication of random keys, constraints on new arrays,
callbacks, exported programs over reversed meshes, loops that exchange rows.

`docs/reports.toml` gives the reports that each form covers. The program is that of `programs.forms.base`:
f(x) = x * s(x). Wrong results raise an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.explicit.typed_forms import whole_numbers
from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.block_functions import near
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.options import wrong


def _nested(mesh, a, inner, outer):
    """A shard_map over the last axis inside one over the first. It returns the sum of each row."""
    first = mesh.axis_names[0]

    def each(y):
        mapped = jax.shard_map(
            lambda b: lax.psum(inner(b).sum(axis=1), a), in_specs=P(None, a), out_specs=P(), axis_names={a}
        )
        return mapped(outer(y))

    return jax.shard_map(each, mesh=mesh, in_specs=P(first), out_specs=P(first), axis_names={first})


def _nested_gradient(mesh, a, x, inner, outer, saved):
    """Check a nested program and the gradient of its sum of squares. saved(host) gives the elements before the sum and
    their derivatives, in NumPy."""
    rows, columns = 2 * mesh.shape[mesh.axis_names[0]], 2 * mesh.shape[a]
    host = whole_numbers(rows, columns) / 8
    f = _nested(mesh, a, inner, outer)
    value, slope = saved(host)
    near(jax.jit(f)(host), value.sum(axis=1), "a nested program")
    expected = 2 * value.sum(axis=1, keepdims=True) * slope
    near(jax.jit(jax.grad(lambda y: (f(y) ** 2).sum()))(host), expected, "the gradient of a nested program")
    return jax.jit(over(mesh, a))(x)


def _nested_squares(mesh, a, x):
    """The inner program saves its input for the gradient."""
    return _nested_gradient(mesh, a, x, lambda b: b * b, lambda y: y, lambda h: (h * h, 2 * h))


def _nested_saved(mesh, a, x):
    """Both programs save intermediate results for the gradient."""
    return _nested_gradient(
        mesh, a, x, jnp.sin, jnp.cos, lambda h: (np.sin(np.cos(h)), -np.sin(h) * np.cos(np.cos(h)))
    )


def _turned_keys(mesh, a, x):
    """Keys that devices gather, permute and exchange."""
    n = mesh.shape[a]
    for kind in ("threefry2x32", "unsafe_rbg"):
        keys = jax.random.split(jax.random.key(5, impl=kind), n * n)
        words = np.asarray(jax.random.key_data(keys)).reshape(n, n, -1)
        ahead = [(i, (i + 1) % n) for i in range(n)]

        def local(k, ahead=ahead):
            every = lax.all_gather(k, a, tiled=True)
            sent = lax.ppermute(k, a, ahead)
            turned = lax.all_to_all(k.reshape(1, n), a, 1, 0, tiled=True).reshape(n)
            return every, sent, turned

        mapped = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=P(a))
        every, sent, turned = (
            np.asarray(jax.random.key_data(k)) for k in jax.jit(mapped)(jax.device_put(keys, at(mesh, a)))
        )
        same_as(every, np.tile(words.reshape(n * n, -1), (n, 1)), f"{kind} keys that are gathered")
        same_as(sent, np.roll(words, 1, axis=0).reshape(n * n, -1), f"{kind} keys that are sent on")
        same_as(turned, words.swapaxes(0, 1).reshape(n * n, -1), f"{kind} keys that are exchanged")
    return jax.jit(over(mesh, a))(x)


def _placed_keys(mesh, a, x):
    """Keys under a constraint inside a program, over one axis and two; in a shard_map over some axes; and made from
    words in a shard_map."""
    n, first = mesh.shape[a], mesh.axis_names[0]
    keys = jax.random.split(jax.random.key(7), (2 * mesh.shape[first], 2 * n))
    words = np.asarray(jax.random.key_data(keys))
    for spec in ((None, a), (first, None) if first != a else (a, None), (first, a) if first != a else (a,)):
        place = at(mesh, *spec)
        found = jax.jit(lambda k, p=place: lax.with_sharding_constraint(k, p))(keys)
        same_as(np.asarray(jax.random.key_data(found)), words, f"keys under a constraint {place.spec}")
        wrong(not found.sharding.is_equivalent_to(place, 2), f"they lie {found.sharding}")
    row = jax.random.split(jax.random.key(7), 2 * n)
    right = np.asarray(jax.vmap(jax.random.uniform)(row))
    mapped = jax.shard_map(
        jax.vmap(jax.random.uniform), mesh=mesh, in_specs=P(a), out_specs=P(a), axis_names={a}
    )
    same_as(np.asarray(jax.jit(mapped)(row)), right, "draws by keys in a shard_map over one axis")
    wrapped = jax.shard_map(
        lambda w: jax.random.uniform(jax.random.wrap_key_data(w), (2,)),
        mesh=mesh,
        in_specs=P(),
        out_specs=P(),
    )
    alone = jax.random.uniform(jax.random.wrap_key_data(words[0, 0]), (2,))
    same_as(np.asarray(jax.jit(wrapped)(words[0, 0])), np.asarray(alone), "draws by a key of words")
    return jax.jit(over(mesh, a))(x)


def _keys_of_pmap(mesh, a, x):
    """Keys that a pmap gathers."""
    devices = [*mesh.devices.reshape(-1, mesh.shape[a])[0]]
    keys = jax.random.split(jax.random.key(5), len(devices))
    found = jax.pmap(lambda k: lax.all_gather(k, "p"), axis_name="p", devices=devices)(keys)
    words = np.asarray(jax.random.key_data(keys))
    same_as(np.asarray(jax.random.key_data(found)), np.tile(words, (len(devices), 1, 1)), "gathered keys")
    return jax.jit(over(mesh, a))(x)


def _unmapped_result(mesh, a, x):
    """A pmap with out_axes=None whose result differs between devices: it must raise an error, as in shard_map."""
    devices = [*mesh.devices.reshape(-1, mesh.shape[a])[0]]
    varied = jax.pmap(lambda v: v, out_axes=None, devices=devices)
    numbers = np.arange(len(devices))
    with suppress(ValueError, TypeError):
        found = varied(numbers)
        wrong(len(devices) > 1, f"pmap gives {found} for {numbers}, and says it is the same on all devices")
    return jax.jit(over(mesh, a))(x)


def _lone_constraint(mesh, a, x):
    """A constraint on a new array that does not depend on the argument: with a mesh, with the mesh of the context, and
    with an argument from the host."""
    rows = 8 * mesh.shape[a]

    def lies(found, what):
        place = at(mesh, a)
        wrong(not found.sharding.is_equivalent_to(place, found.ndim), f"{what} lies {found.sharding}")
        same_as(np.asarray(found), np.full(rows, 2, np.float32), what)

    given = jax.device_put(np.zeros(rows, np.float32), at(mesh, a))

    def made(place):
        return jax.jit(lambda y: lax.with_sharding_constraint(jnp.ones(y.shape), place) * 2)

    lies(made(at(mesh, a))(given), "a constraint with a mesh")
    with jax.set_mesh(mesh):
        lies(made(P(a))(given), "a constraint with the mesh of the context")
    last = made(at(mesh, a))(np.zeros(rows, np.float32))
    lies(last, "a constraint of an array that was on one device")
    return jax.jit(over(mesh, a))(x)


def _abstract_constraint(mesh, a, x):
    """A constraint on a new array with an abstract mesh. The program takes the devices from its argument."""
    rows = 8 * mesh.shape[a]
    given = jax.device_put(np.zeros(rows, np.float32), at(mesh, a))
    place = NamedSharding(mesh.abstract_mesh, P(a))
    found = jax.jit(lambda y: lax.with_sharding_constraint(jnp.ones(y.shape), place) * 2)(given)
    same_as(np.asarray(found), np.full(rows, 2, np.float32), "a constraint with an abstract mesh")
    here = found.sharding.is_equivalent_to(at(mesh, a), 1)
    wrong(not here, f"a new array under a constraint with an abstract mesh lies {found.sharding}")
    return jax.jit(over(mesh, a))(x)


def _one_constraint(mesh, a, x):
    """A constraint to one device commits its array. A constraint inside a gradient has a spec that is shorter than the
    array's rank."""
    for device in (mesh.devices.flat[0], mesh.devices.flat[-1]):
        found = lax.with_sharding_constraint(jnp.arange(6), SingleDeviceSharding(device))
        wrong(not found.committed, "a constraint to one device leaves its array uncommitted")
        wrong(found.devices() != {device}, f"it lies on {found.devices()}")
    n = mesh.shape[a]
    table, words = whole_numbers(8, 2 * n), np.arange(4 * n).reshape(n, 4) % 8

    def loss(t):
        logits = jnp.einsum("bld,md->blm", jnp.ones((n, 4, 2 * n)), t)
        targets = lax.with_sharding_constraint(jax.nn.one_hot(words, 8), at(mesh, a, None))
        return jnp.einsum("bld,bld->bl", targets, logits).sum()

    value, grad = jax.jit(jax.value_and_grad(loss))(jax.device_put(table, at(mesh, None, a)))
    counts = np.bincount(words.ravel(), minlength=8).astype(np.float32)
    near(value, table.sum(axis=1) @ counts, "a loss with a constraint")
    same_as(
        np.asarray(grad), np.tile(counts[:, None], (1, 2 * n)), "the gradient of a loss with a constraint"
    )
    return jax.jit(over(mesh, a))(x)


def _callbacks(mesh, a, x):
    """Callbacks with two results and of batches on each device, and one with the whole array on one device."""
    from jax.experimental import io_callback

    n = mesh.shape[a]
    host = whole_numbers(2 * n, 2)

    def two(b):
        kind = jax.ShapeDtypeStruct(b.shape, b.dtype)
        return jax.pure_callback(lambda v: (np.asarray(v) + 1, np.asarray(v) * 2), (kind, kind), b)

    for way in (lambda f: f, jax.jit):
        more, twice = way(jax.shard_map(two, mesh=mesh, in_specs=P(a), out_specs=(P(a), P(a))))(host)
        same_as(np.asarray(more), host + 1, "the first result of a callback")
        same_as(np.asarray(twice), host * 2, "its second result")
    seen = []

    def one(b):
        def on_host(v):
            seen.append(1)
            return np.asarray(v) * 3

        return io_callback(on_host, jax.ShapeDtypeStruct(b.shape, b.dtype), b)

    mapped = jax.shard_map(jax.vmap(one), mesh=mesh, in_specs=P(a), out_specs=P(a))
    same_as(np.asarray(jax.jit(mapped)(host)), host * 3, "a callback of a batch")
    jax.effects_barrier()
    lines = mesh.size // n
    wrong(len(seen) not in (2 * n, 2 * n * lines), f"it was called {len(seen)} times for {2 * n} rows")
    place = SingleDeviceSharding(mesh.devices.flat[0])

    @jax.jit
    def whole(y):
        kind = jax.ShapeDtypeStruct(y.shape, y.dtype)
        back = jax.pure_callback(lambda v: np.asarray(v)[::-1], kind, y, sharding=place)
        return lax.with_sharding_constraint(back, at(mesh, a))

    found = whole(jax.device_put(host, at(mesh, a)))
    same_as(np.asarray(found), host[::-1], "a callback of the whole array on one device")
    return jax.jit(over(mesh, a))(x)


def _said_of_donated(mesh, a, x):
    """A compiled program reports its donated arguments correctly, leaf by leaf of a tree."""
    host = whole_numbers(2 * mesh.shape[a])

    def put():
        return jax.device_put(host, at(mesh, a))

    def f(tree, y):
        return jax.tree.map(lambda v: v + 1, tree), y + 1

    for number, right in ((1, [False, False, True]), (0, [True, True, False])):
        arguments = {"a": put(), "b": put()}, put()
        compiled = jax.jit(f, donate_argnums=number).lower(*arguments).compile()
        said = [
            i.donated for i in jax.tree.leaves(compiled.args_info, is_leaf=lambda i: hasattr(i, "donated"))
        ]
        wrong(said != right, f"donated is said of {said} instead of {right}")
        found = jax.tree.leaves(compiled(*arguments))
        gone = [v.is_deleted() for v in jax.tree.leaves(arguments)]
        wrong(gone != right, f"deleted are {gone} instead of {right}")
        for y in found:
            same_as(np.asarray(y), host + 1, "a result beside donated arguments")
    return jax.jit(over(mesh, a))(x)


def _index_in_a_branch(mesh, a, x):
    """A device index that only one branch uses. The condition comes from outside shard_map."""
    n = mesh.shape[a]

    def f(y, first):
        def each(b):
            i = lax.axis_index(a)
            return lax.cond(first, lambda: b < i, lambda: b < 5)

        return jax.shard_map(each, mesh=mesh, in_specs=P(a), out_specs=P(a), check_vma=False)(y)

    numbers = np.zeros(n, np.int32)
    for first, right in ((True, np.arange(n) > 0), (False, np.full(n, True))):
        same_as(np.asarray(jax.jit(f)(numbers, first)), right, "a branch with the number of the device")
    return jax.jit(over(mesh, a))(x)


def _exported(mesh, a, x):
    """Exported programs: a gradient over a mesh in reversed order, a sum over all axes, and a result in host memory."""
    from jax import export

    if find_spec("flatbuffers") is None:
        raise Missing("jax.export needs flatbuffers: pip install flatbuffers")

    def loaded(f, *arguments, **options):
        return export.deserialize(export.export(f)(*arguments).serialize(**options))

    turned = Mesh(mesh.devices.reshape(-1)[::-1], ("all",))
    host = np.arange(2 * turned.size, dtype=np.float32)
    place = at(turned, "all")
    squares = jax.jit(lambda y: (y**2).sum(), in_shardings=place)
    there = jax.device_put(host, place)
    found = jax.grad(loaded(squares, host, vjp_order=1).call)(there)
    same_as(np.asarray(found), 2 * host, "the gradient of an exported program over a turned mesh")
    axes = mesh.axis_names
    total = jax.shard_map(
        lambda b: lax.psum(b, axes), mesh=mesh, in_specs=P(axes), out_specs=P(), check_vma=False
    )
    given = jax.device_put(host, at(mesh, axes))
    right = host.reshape(mesh.size, -1).sum(axis=0)
    same_as(np.asarray(loaded(jax.jit(total), given).call(given)), right, "an exported sum over all axes")
    kinds = {m.kind for m in mesh.devices.flat[0].addressable_memories()}
    if {"pinned_host", "device"} <= kinds:
        onto = NamedSharding(mesh, P(a), memory_kind="pinned_host")
        rows = jax.device_put(whole_numbers(2 * mesh.shape[a]), at(mesh, a))
        program = jax.jit(lambda y: y * 2, out_shardings=onto)
        for what, result in (("a", program(rows)), ("an exported", loaded(program, rows).call(rows))):
            same_as(np.asarray(result), 2 * whole_numbers(2 * mesh.shape[a]), f"{what} result in host memory")
            memory = result.sharding.memory_kind
            wrong(memory != "pinned_host", f"{what} result in host memory lies in {memory}")
    return jax.jit(over(mesh, a))(x)


def _row_gradients(mesh, a, x):
    """Gradients per row of a sharded batch: of a convolution and of a product."""
    n = mesh.shape[a]
    host, kernel = whole_numbers(2 * n, 1, 4, 4), whole_numbers(1, 1, 3, 3)

    def convolved(k, row):
        return lax.conv_general_dilated(row[None], k, (1, 1), "VALID").sum()

    right = np.stack(
        [[[[r[0, i : i + 2, j : j + 2].sum() for j in range(3)] for i in range(3)]] for r in host]
    )[:, None]
    each = jax.vmap(jax.grad(convolved), in_axes=(None, 0))
    product = jax.vmap(jax.grad(lambda w, row: (row @ w) ** 2), in_axes=(None, 0))
    flat, w = host[:, 0, 0], np.ones(4, np.float32)
    whole = jax.device_put(kernel, at(mesh))
    for way in (lambda f: f, jax.jit):
        for place in (at(mesh, a), at(mesh)):
            found = way(each)(whole, jax.device_put(host, place))
            near(found, right, "the gradient of a convolution of each row")
            found = way(product)(jax.device_put(w, at(mesh)), jax.device_put(flat, place))
            near(found, 2 * flat.sum(axis=1, keepdims=True) * flat, "the gradient of a product of each row")
    return jax.jit(over(mesh, a))(x)


def _exchanged_in_a_loop(mesh, a, x):
    """A loop that moves sharded rows by one in each iteration, and a loop that reads rows by index."""
    n = mesh.shape[a]
    host = np.arange(2 * n, dtype=np.float32)
    given = jax.device_put(host, at(mesh, a))

    def turn(c, _):
        c = lax.with_sharding_constraint(jnp.concatenate([c[1:], c[:1]]), at(mesh, a))
        return c, c[0] + 2 * c[-1]

    last, ends = jax.jit(lambda y: lax.scan(turn, y, None, length=3))(given)
    same_as(np.asarray(last), np.roll(host, -3), "rows that moved in a loop")
    steps = [np.roll(host, -k) for k in (1, 2, 3)]
    same_as(np.asarray(ends), np.stack([s[0] + 2 * s[-1] for s in steps]), "ends of rows in a loop")
    table = np.arange(16 * n, dtype=np.float32)

    def taken(flat, y):
        def step(c, i):
            return c + lax.dynamic_slice(flat.reshape(8, 2 * n), (i, 0), (1, 2 * n))[0] * jnp.sum(y), None

        return lax.scan(step, y, jnp.arange(4))[0]

    found = jax.jit(taken)(jax.device_put(table, at(mesh, a)), given)
    right = host + table.reshape(8, 2 * n)[:4].sum(axis=0) * host.sum()
    same_as(np.asarray(found), right, "rows that are taken in a loop")
    return jax.jit(over(mesh, a))(x)


REPORTED: dict[str, Callable[..., Any]] = {
    "nested_squares": _nested_squares,
    "nested_saved": _nested_saved,
    "turned_keys": _turned_keys,
    "placed_keys": _placed_keys,
    "keys_of_pmap": _keys_of_pmap,
    "unmapped_result": _unmapped_result,
    "lone_constraint": _lone_constraint,
    "abstract_constraint": _abstract_constraint,
    "one_constraint": _one_constraint,
    "callbacks": _callbacks,
    "said_of_donated": _said_of_donated,
    "index_in_a_branch": _index_in_a_branch,
    "exported": _exported,
    "row_gradients": _row_gradients,
    "exchanged_in_a_loop": _exchanged_in_a_loop,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class ReportedForm(ProgramForm):
    """One sharded program, with checks of programs like those that people reported."""

    name = "reported_form"
    forms = REPORTED
    two_axes: ClassVar[tuple[str, ...]] = ("nested_squares", "nested_saved")

    @staticmethod
    def host(mesh, x, *, form, axis):
        return REPORTED[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
