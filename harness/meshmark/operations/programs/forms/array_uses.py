# SPDX-License-Identifier: Apache-2.0
"""Uses of sharded arrays and compiled programs besides calls: copies, puts between meshes, programs that are compiled
ahead or exported with their derivatives, contexts, attributes of arrays.

The program is that of `programs.forms.base`: f(x) = x * s(x). Errors that the result cannot show raise an exception.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import ProgramForm, at, over, whole
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.options import through, wrong


def finished(mesh, a, x):
    """f(x), sharded over the mesh axis a."""
    return jax.device_put(jax.jit(over(mesh, a))(x), at(mesh, a))


# Copies and elements of arrays.


def _copies(mesh, a, x):
    """Copies of every kind keep the values. Copies that stay on devices keep the sharding."""
    given = np.asarray(x)
    same = {
        "copy": x.copy(),
        "copy.copy": copy.copy(x),
        "copy.deepcopy": copy.deepcopy(x),
        "jnp.array": jnp.array(x),
        "jnp.asarray": jnp.asarray(x),
        "jnp.copy": jnp.copy(x),
        "astype": x.astype(jnp.float32, copy=True),
    }
    for name, y in same.items():
        same_as(np.asarray(y), given, name)
        wrong(not y.sharding.is_equivalent_to(x.sharding, x.ndim), f"{name} is placed as {y.sharding}")
    same_as(np.asarray(pickle.loads(pickle.dumps(x))), given, "a pickled array")
    x.copy_to_host_async()
    same_as(np.array(x, copy=True), given, "np.array")
    same_as(np.asarray(x, np.int16), given.astype(np.int16), "np.asarray of int16")
    tree = jax.device_get({"p": x, "q": [x.T, 3]})
    same_as(tree["p"], given, "device_get")
    same_as(tree["q"][0], given.T, "device_get of a transposed array")
    wrong(tree["q"][1] != 3 or x.tolist() != given.tolist(), "a number or a list is another")
    kept = x.copy()
    jax.jit(lambda y: y + 1, donate_argnums=0)(kept)
    same_as(np.asarray(x), given, "the source of a copy that was donated")
    return finished(mesh, a, x)


def _elements(mesh, a, x):
    """Elements, rows and parts taken eagerly at the edges of the blocks; elements as Python numbers."""
    given, rows = np.asarray(x), x.shape[0] // max(mesh.shape[a], 2)
    for edge in {0, rows - 1, rows, x.shape[0] - 1, -1, -rows}:
        same_as(np.asarray(x[edge]), given[edge], f"row {edge}")
        same_as(np.asarray(x[edge, -1]), given[edge, -1], f"the last element of row {edge}")
        wrong(
            float(x[edge, 1]) != given[edge, 1] or x[edge, 0].item() != given[edge, 0],
            f"row {edge} as a number",
        )
    for part in (
        np.s_[rows - 1 : rows + 1],
        np.s_[::-rows],
        np.s_[:, None, 1::3],
        np.s_[..., -2:],
        np.s_[1:-1, ::-1],
        np.s_[5:2],
        np.s_[[0, -1, rows], 1],
        np.s_[[[rows], [0]], [0, -1]],
    ):
        same_as(np.asarray(x[part]), given[part], f"the part {part}")
    same_as(np.asarray(x[x > 1]), given[given > 1], "what a mask takes")
    same_as(np.stack([np.asarray(row) for row in x]), given, "the rows of a loop")
    changed = given.copy()
    changed[rows - 1 : rows + 1, 1], changed[-1] = 7, 9
    same_as(np.asarray(x.at[rows - 1 : rows + 1, 1].set(7).at[-1].set(9)), changed, "what is set eagerly")
    wrong(
        len(x) != len(given) or (x.size, x.nbytes) != (given.size, given.nbytes),
        "the size of an array is another",
    )
    for shard in x.addressable_shards:
        same_as(np.asarray(shard.data), given[shard.index], f"the block of {shard.device}")
        wrong(shard.data.devices() != {shard.device}, f"the block of {shard.device} is elsewhere")
    whole_ones = jax.device_put(given, at(mesh))
    for number in range(mesh.size):
        same_as(np.asarray(whole_ones.addressable_data(number)), given, f"replica {number}")
    for index, of_device in ((s.device, s.index) for s in x.global_shards):
        wrong(
            x.sharding.devices_indices_map(x.shape)[index] != of_device,
            "a shard has another index than its map",
        )
    return finished(mesh, a, x)


# Puts.


def _puts(mesh, a, x):
    """Trees with a sharding for each leaf; meshes with other devices, orders and sizes; donated sources; numbers."""
    given, devices = np.asarray(x), mesh.devices
    reverse = Mesh(devices[..., ::-1], mesh.axis_names)
    flat = Mesh(devices.reshape(-1)[::-1], ("all",))
    half = Mesh(devices.reshape(-1)[min(-(-mesh.size // 2), mesh.size - 1) :], ("half",))
    places = [
        at(reverse, a),
        at(flat, None, "all"),
        at(half, "half"),
        at(mesh, None, mesh.axis_names),
        SingleDeviceSharding(devices.flat[-1]),
        at(half),
        at(reverse, None, a),
    ]
    y = x
    for place in places:
        y = jax.device_put(y, place)
        same_as(np.asarray(y), given, f"an array put to {place}")
        wrong(not y.sharding.is_equivalent_to(place, 2), f"an array put to {place} lies as {y.sharding}")
        for shard in y.addressable_shards:
            wrong(not np.array_equal(shard.data, given[shard.index]), f"{shard.device} has another block")
    tree = jax.device_put({"p": given, "q": (x, x + 1)}, {"p": places[0], "q": (places[1], places[3])})
    for leaf, wanted, place in (
        (tree["p"], given, places[0]),
        (tree["q"][0], given, places[1]),
        (tree["q"][1], given + 1, places[3]),
    ):
        same_as(np.asarray(leaf), wanted, "a leaf of a tree")
        wrong(not leaf.sharding.is_equivalent_to(place, 2), f"a leaf is placed as {leaf.sharding}")
    alike = jax.device_put([given, x.T], places[3])
    wrong(
        any(not leaf.sharding.is_equivalent_to(places[3], 2) for leaf in alike),
        "one place is not that of all",
    )
    for place in (at(mesh, a), places[0], places[3]):
        same_as(
            np.asarray(jax.device_put(x.copy(), place, donate=True)), given, f"a source donated to {place}"
        )
    for number in (3, 2.5, True, np.int8(-7), np.float16(0.5)):
        there = jax.device_put(number, at(mesh))
        wrong(
            there.shape != () or there != number or len(there.addressable_shards) != mesh.size,
            f"{number} is {there}",
        )
    for empty in (np.zeros((0, 3), np.float32), np.zeros((mesh.size, 0), np.int8)):
        same_as(np.asarray(jax.device_put(empty, at(mesh, a))), empty, "an empty array")
    return finished(mesh, a, jax.device_put(y, at(mesh, a)))


def _mixed(mesh, a, x):
    """Operations of a sharded array with uncommitted arrays, numbers, host arrays, and arrays of other shardings."""
    given = np.asarray(x)
    column = jax.device_put(given, at(mesh, None, a))
    everywhere = jax.device_put(given, at(mesh))
    loose = jnp.arange(x.shape[1], dtype=jnp.float32)
    row = np.arange(x.shape[1], dtype=np.float32)
    for run in (lambda f: f, jax.jit):
        for what, f, arrays, wanted in (
            ("an array of no device", lambda p, q: p + q, (x, loose), given + row),
            ("a host array", lambda p, q: p * q, (row, x), given * row),
            ("an array sharded by columns", lambda p, q: p - 2 * q, (x, column), -given),
            (
                "a replicated array",
                lambda p, q: jnp.maximum(p, 3 - q),
                (everywhere, x),
                np.maximum(given, 3 - given),
            ),
            ("its transposed self", lambda p, q: p @ q, (x, column.T), given @ given.T),
            ("a number", lambda p, q: p - q, (2, x), 2 - given),
        ):
            found = run(f)(*arrays)
            same_as(np.asarray(found), wanted.astype(np.float32), f"a sharded array and {what}")
            wrong(found.devices() != x.devices(), f"a sharded array and {what} are on {found.devices()}")
    return finished(mesh, a, x)


# Programs that are compiled ahead, exported, or called in a context.


def _ahead(mesh, a, x):
    """A program compiled ahead takes trees and keywords, reports its shardings, and keeps them in every call."""

    def f(tree, *, plus, times=1):
        return {"f": whole(mesh, a)(tree["y"]) * times + plus, "p": tree["z"][0] - tree["y"].T}

    places = {"f": at(mesh, a), "p": at(mesh, None, a)}
    tree = {"y": x, "z": (3 * x.T,)}
    traced = jax.jit(f, out_shardings=places, static_argnames="times").trace(
        tree, plus=jnp.float32(5), times=2
    )
    compiled = traced.lower().compile()
    wanted = np.asarray(jax.jit(whole(mesh, a))(x))
    for k, factor in ((5, 1), (7, 2), (5, 1)):
        given = {"y": x * factor, "z": (3 * x.T,)}
        given = {"y": jax.device_put(given["y"], at(mesh, a)), "z": given["z"]}
        found = compiled(given, plus=jnp.float32(k))
        same_as(np.asarray(found["f"]), 2 * factor**2 * wanted + k, "a call of a compiled program")
        same_as(
            np.asarray(found["p"]), (3 - factor) * np.asarray(x).T, "the second result of a compiled program"
        )
        for name, place in places.items():
            wrong(
                not found[name].sharding.is_equivalent_to(place, 2),
                f"{name} is placed as {found[name].sharding}",
            )
            said = compiled.output_shardings[name]
            wrong(not said.is_equivalent_to(place, 2), f"{name} is said to be placed as {said}")
    said = compiled.input_shardings[0][0]["y"]
    wrong(not said.is_equivalent_to(x.sharding, 2), f"an input is said to be placed as {said}")
    return finished(mesh, a, x)


def _exported_whole(mesh, a, x):
    """An exported program with trees and its derivative, called on devices in another order; and an exported program
    for any number of rows."""
    from jax import export

    if find_spec("flatbuffers") is None:
        raise Missing("jax.export needs flatbuffers: pip install flatbuffers")
    given, place = np.asarray(x), at(mesh, a)

    def f(tree, plus):
        held = lax.with_sharding_constraint(tree["y"], place)
        return {"p": held * tree["k"] + plus, "q": held.T}

    kind = {
        "y": jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
        "k": jax.ShapeDtypeStruct((), x.dtype),
    }
    exported = export.export(jax.jit(f))(kind, jax.ShapeDtypeStruct((x.shape[1],), x.dtype))
    again = export.deserialize(exported.serialize(vjp_order=1))
    turned = Mesh(mesh.devices[..., ::-1], mesh.axis_names)
    row = np.arange(x.shape[1], dtype=np.float32)
    for m in (mesh, turned):
        there = jax.device_put(x, at(m, a))
        run = jax.jit(lambda y: again.call({"y": y, "k": jnp.float32(3)}, jnp.asarray(row)))
        for _ in range(2):
            found = run(there)
            same_as(np.asarray(found["p"]), 3 * given + row, "the result of an exported program")
            same_as(np.asarray(found["q"]), given.T, "the second result of an exported program")
        slope = jax.jit(
            jax.grad(lambda y: (again.call({"y": y, "k": jnp.float32(3)}, jnp.asarray(row))["p"] * y).sum())
        )(there)
        same_as(np.asarray(slope), 6 * given + row, "the gradient of an exported program")
    [rows] = export.symbolic_shape("2*b")
    free = export.export(jax.jit(lambda y: (y.sum(0), y[::-1] * 2)))(
        jax.ShapeDtypeStruct((rows, 3), jnp.float32)
    )
    free = export.deserialize(free.serialize())
    for count in (2, 6):
        y = np.arange(3 * count, dtype=np.float32).reshape(count, 3)
        total, back = free.call(y)
        same_as(np.asarray(total), y.sum(0), f"a sum of {count} rows")
        same_as(np.asarray(back), 2 * y[::-1], f"{count} rows")
    return finished(mesh, a, x)


def _contexts(mesh, a, x):
    """One jitted function in several contexts in turn. Each context has its own program, and none stays in effect."""
    run = jax.jit(lambda y, z: y + z)
    small = jax.device_put(np.asarray(x, np.int8), at(mesh, a))
    wanted = 2 * np.asarray(x)
    same_as(np.asarray(run(x, small)), wanted, "a sum of two dtypes")
    for _ in range(2):
        try:
            with jax.numpy_dtype_promotion("strict"):
                run(x, small)
        except ValueError:
            pass
        else:
            raise RuntimeError("strict promotion lets a program pass that another context compiled")
        same_as(np.asarray(run(x, small)), wanted, "a sum of two dtypes after a strict context")
    last = mesh.devices.flat[-1]
    with jax.default_device(last):
        wrong(jnp.ones(3).devices() != {last}, "the default device of a context is another")
        same_as(np.asarray(run(x, x)), wanted, "a sum in a context of another device")
        wrong(run(x, x).devices() != x.devices(), "a default device moves a sharded array")
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(jax.jit(over(mesh, a))(x))
    with jax.debug_infs(True), jax.checking_leaks(), jax.named_scope("one"):
        same_as(np.asarray(run(x, x)), wanted, "a sum in three contexts")
    before = np.asarray(jax.jit(over(mesh, a))(x))
    jax.clear_caches()
    same_as(np.asarray(jax.jit(over(mesh, a))(x)), before, "a program after its cache was cleared")
    same_as(np.asarray(run(x, small)), wanted, "a function after its cache was cleared")
    return finished(mesh, a, x)


def _guarded_put(mesh, a, x):
    """Puts between the shardings of a mesh make no implicit transfer through the host."""
    y = jax.jit(over(mesh, a))(x)
    jax.block_until_ready(y)
    with jax.transfer_guard("disallow"):
        for spec in (P(None, a), P(), P(mesh.axis_names), P(a)):
            y = jax.block_until_ready(jax.device_put(y, NamedSharding(mesh, spec)))
    return y


# Functions of whole arrays outside jax.numpy.


def _pictures(mesh, a, x):
    """Images that are enlarged and sampled, sparse matrices, and bits of `lax.rng_bit_generator`."""
    from jax.experimental import sparse

    def same(y):
        rows, columns = y.shape
        larger = jax.image.resize(y, (2 * rows, 3 * columns), "nearest")
        flat = jnp.repeat(jnp.repeat(y, 2, 0), 3, 1)
        places = jnp.mgrid[:rows, :columns].astype(y.dtype)
        moved = jax.scipy.ndimage.map_coordinates(y, [places[0] - 1, places[1]], order=1, mode="nearest")
        matrix = sparse.BCOO.fromdense(y * (y > 1), nse=rows * columns)
        product = sparse.bcoo_dot_general(matrix, y.T, dimension_numbers=(((1,), (0,)), ((), ())))
        dense = jnp.matmul(y * (y > 1), y.T, precision="highest")
        lost = (
            jnp.abs(larger - flat).sum()
            + jnp.abs(moved - jnp.concatenate([y[:1], y[:-1]])).sum()
            + jnp.abs(product - dense).sum()
        )
        return y + lost

    key = jnp.arange(4, dtype=jnp.uint32)

    def drawn(k):
        return lax.rng_bit_generator(k, (8 * mesh.size, 3), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)[1]

    alone = np.asarray(jax.jit(drawn)(key))
    for place in (at(mesh, a), at(mesh, mesh.axis_names)):
        found = jax.jit(drawn, out_shardings=place)(jax.device_put(key, at(mesh)))
        same_as(np.asarray(found), alone, f"bits over {place.spec}")
    return through(mesh, a, same)(x)


ARRAY_USES: dict[str, Callable[..., Any]] = {
    "copies": _copies,
    "elements": _elements,
    "puts": _puts,
    "mixed": _mixed,
    "ahead": _ahead,
    "exported_whole": _exported_whole,
    "contexts": _contexts,
    "guarded_put": _guarded_put,
    "pictures": _pictures,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class ArrayUse(ProgramForm):
    """One sharded program, and other uses of its arrays: copies, puts, indexing, export, contexts."""

    name = "array_use"
    forms = ARRAY_USES

    @staticmethod
    def host(mesh, x, *, form, axis):
        return ARRAY_USES[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
