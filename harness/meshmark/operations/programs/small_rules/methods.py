# SPDX-License-Identifier: Apache-2.0
"""Small rules: methods of arrays and of arrays of keys, rows in turn, and the shards of an array."""

import copy
import inspect
import itertools
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.arrays import cube, specs_of
from meshmark.operations.programs.small_rules.comparing import expect, refused

KINDS = (np.float32, jnp.bfloat16, np.int8, np.uint16, np.int32, bool, np.complex64)
SPECS = (P("x"), P("y", "x"), P(None, "x"), P(None, ("y", "x")), P())


def lies_at(found: Any, place: Any, what: str) -> None:
    """RuntimeError if an array does not lie as this sharding says, or in another memory."""
    there = found.sharding
    same = there.is_equivalent_to(place, found.ndim) and there.device_set == place.device_set
    wrong(not same, f"{what} lies over {there} instead of {place}")


def takes_option(function: Callable[..., Any], option: str) -> bool:
    """Whether a function has an option of this name."""
    return option in inspect.signature(function).parameters


# What the host reads of an array.


def _copies_of(x: Any, host: np.ndarray, what: str) -> None:
    """Copies that NumPy makes can be written, and what is written does not reach the array."""
    makers: dict[str, Callable[[], Any]] = {
        "np.array": lambda: np.array(x),
        "np.array(copy=True)": lambda: np.array(x, copy=True),
        "np.array with its dtype": lambda: np.array(x, dtype=host.dtype),
        "np.array(order='F')": lambda: np.array(x, order="F"),
        "np.copy": lambda: np.copy(x),
        "np.asarray, copied,": lambda: np.asarray(x).copy(),
        "np.array of the first shard": lambda: np.array(x.addressable_shards[0].data),
    }
    for name, make in makers.items():
        made = make()
        wrong(not made.flags.writeable, f"{name} of {what} cannot be written")
        right = host[x.addressable_shards[0].index] if "shard" in name else host
        expect(made, right, f"{name} of {what}")
        made[...] = 1
    expect(np.asarray(x), host, f"{what} after its copies were written")
    wide = np.array(x, dtype=np.complex128)
    expect(wide, host.astype(np.complex128), f"np.array of another dtype of {what}")


def _texts_of(x: Any, host: np.ndarray, what: str) -> None:
    """The words for an array are those of NumPy for all of it."""
    for name, words, right in (
        ("str", str(x), str(host)),
        ("an f-string", f"{x}", str(host)),
        ("format", format(x), format(host)),
        ("tolist", str(x.tolist()), str(host.tolist())),
    ):
        wrong(words != right, f"{name} of {what} is {words[:200]} instead of {right[:200]}")
    words = re.sub(r"\s|dtype=.*$", "", repr(x), flags=re.DOTALL)
    right = re.sub(r"\s", "", f"Array({np.array2string(host, separator=',')},")
    wrong(words != right, f"repr of {what} is {words[:200]} instead of {right[:200]}")


def _bytes_of(x: Any, host: np.ndarray, what: str) -> None:
    """The bytes of an array in each order, and the array after it was stored."""
    for order in ("C", "F", "A", None):
        found, right = x.tobytes(order), host.tobytes(order)
        wrong(found != right, f"tobytes({order!r}) of {what} is {found[:80]!r} instead of {right[:80]!r}")
    wrong(x.tobytes() != host.tobytes() or x.tobytes(order="F") != host.tobytes("F"), f"tobytes of {what}")
    stored = {f"pickle protocol {k}": (lambda k=k: pickle.loads(pickle.dumps(x, k))) for k in range(2, 6)}
    ways = {**stored, "copy.copy": lambda: copy.copy(x), "copy.deepcopy": lambda: copy.deepcopy(x)}
    for name, way in ways.items():
        again = way()
        expect(np.asarray(again), host, f"{what} after {name}")
        wrong(again.weak_type != x.weak_type, f"{what} has another weak type after {name}")
        if not name.startswith("pickle"):
            lies_at(again, x.sharding, f"{what} after {name}")
    expect((x.nbytes, x.itemsize, x.size), (host.nbytes, host.itemsize, host.size), f"the sizes of {what}")


def _array_words(line, grid):
    """What the host reads of an array: bytes, copies, words, stored arrays, and refusals to lend its memory."""
    if jax.process_count() > 1:
        return  # a process reads no bytes of another
    side = 2 * grid.size
    for number, kind in enumerate(KINDS):
        host = mixed((side, side), 2 if kind is bool else 90, 7).astype(kind)
        for spec in SPECS[number % 2 :: 2] if number > 1 else SPECS:
            x = placed(grid, host, *spec)
            what = f"{np.dtype(kind).name} over {spec}"
            for judge in (_bytes_of, _copies_of, _texts_of):
                judge(x, host, what)
            if grid.size > 1:
                for name, call in (
                    ("np.from_dlpack", lambda x=x: np.from_dlpack(x)),
                    ("__dlpack__", lambda x=x: x.__dlpack__()),
                    ("__dlpack_device__", lambda x=x: x.__dlpack_device__()),
                    ("memoryview", lambda x=x: memoryview(x)),
                ):
                    refused(f"{name} of {what}", "BufferError", call)
    for value in (2, 2.5, 1j, True):
        for strong in (False, True):
            one = np.asarray(value).astype(jax.dtypes.canonicalize_dtype(type(value)))
            x = jax.device_put(one if strong else value, NamedSharding(grid, P()))
            what = f"the {'strong' if strong else 'weak'} number {value}"
            wrong(x.weak_type == (strong or value is True), f"{what} has weak_type {x.weak_type}")
            _bytes_of(x, np.asarray(one), what)
            expect(x.item(), one.item(), f"item() of {what}")
            expect(type(value)(x), value, f"{type(value).__name__} of {what}")
            expect(str(x), str(one), f"str of {what}")
            if value in (2.5,):
                expect(f"{x:.3f}", f"{value:.3f}", f"{what} in a format")


# Rows of arrays, and arrays of keys.


def _key_methods(mesh: Any, spec: P, impl: str) -> None:
    """Methods and functions of an array of typed keys, eagerly and in one program, by the words of the keys."""
    n = mesh.size
    width = 2 if impl == "threefry2x32" else 4
    words = mixed((4 * n, width), 9973, 37).astype(np.uint32)
    keys = jax.device_put(jax.random.wrap_key_data(jnp.asarray(words), impl=impl), NamedSharding(mesh, spec))
    what = f"{impl} keys over {spec}"
    rows = [np.asarray(jax.random.key_data(k)) for k in keys]
    expect(np.stack(rows), words, f"{what}, one by one,")
    back = [np.asarray(jax.random.key_data(k)) for k in reversed(keys)]
    expect(np.stack(back), words[::-1], f"{what}, backward,")
    some = np.array([3, 0, 2 * n])
    members: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "reshape of two sizes": (lambda k: k.reshape(2, -1), words.reshape(2, 2 * n, width)),
        "reshape of a tuple": (lambda k: k.reshape((n, 4)), words.reshape(n, 4, width)),
        "reshape to three": (lambda k: k.reshape(2, n, 2), words.reshape(2, n, 2, width)),
        "jnp.reshape": (lambda k: jnp.reshape(k, (4, n)), words.reshape(4, n, width)),
        "a transpose": (lambda k: k.reshape(4, n).T, words.reshape(4, n, width).swapaxes(0, 1)),
        "ravel": (lambda k: k.reshape(n, 4).ravel(), words),
        "flatten": (
            lambda k: k.reshape(n, 4).T.flatten(),
            words.reshape(n, 4, width).swapaxes(0, 1).reshape(-1, width)),
        "an index": (lambda k: k[-2], words[-2]),
        "a slice": (lambda k: k[1:-1], words[1:-1]),
        "every third": (lambda k: k[::-3], words[::-3]),
        "places": (lambda k: k[some], words[some]),
        "take": (lambda k: jnp.take(k, some, axis=0), words[some]),
        "a new dimension": (lambda k: k[:, None], words[:, None]),
        "squeeze": (lambda k: k[None].squeeze(0), words),
        "concatenate": (lambda k: jnp.concatenate([k[n:], k[:n]]), np.concatenate([words[n:], words[:n]])),
        "stack": (lambda k: jnp.stack([k, k[::-1]]), np.stack([words, words[::-1]])),
        "broadcast_to": (lambda k: jnp.broadcast_to(k, (2, 4 * n)), np.broadcast_to(words, (2, 4 * n, width))),
        "where": (lambda k: jnp.where(np.arange(4 * n) % 3 == 0, k, k[::-1]),
                  np.where((np.arange(4 * n) % 3 == 0)[:, None], words, words[::-1])),
        "an update": (lambda k: k.at[1].set(k[2]), np.concatenate([words[:1], words[2:3], words[2:]])),
        "copy": (lambda k: k.copy(), words),
    }  # fmt: skip
    eager = {name: jax.random.key_data(f(keys)) for name, (f, _) in members.items()}
    jitted = jax.jit(lambda k: {name: jax.random.key_data(f(k)) for name, (f, _) in members.items()})(keys)
    for way, found in (("eager", eager), ("jitted", jitted)):
        for name, (_, right) in members.items():
            expect(np.asarray(found[name]), np.asarray(right), f"{way} {name} of {what}")


def _rows_in_turn(line, grid):
    """Rows of arrays in turn, past the number that JAX reads at once: whole arrays, and parts on each device."""
    if jax.process_count() > 1:
        return  # a process reads no rows of another
    for shape, kind in (((1, 3), np.int8), ((103,), np.float32)):
        host = mixed(shape, 90, 7).astype(kind)
        x, what = placed(grid, host), f"the {len(host)} rows of an array on all devices"
        expect(np.stack([np.asarray(r) for r in x]), host, what)
        expect(np.stack([np.asarray(r) for r in reversed(x)]), host[::-1], f"{what}, backward,")
    for rows, kind in ((2 * grid.size, np.int32), (3 * grid.size, jnp.bfloat16)):
        host = mixed((rows, 2 * grid.size), 90, 7).astype(kind)
        for spec in SPECS[:: 1 if kind is np.int32 else 2]:
            x = placed(grid, host, *spec)
            for name, seen, right in (
                ("rows", list(x), host),
                ("rows, backward,", list(reversed(x)), host[::-1]),
                ("rows by zip", [r for r, _ in zip(x, range(rows), strict=True)], host),
                ("numbers of the first row", list(x[0]), host[0]),
            ):
                expect(np.stack([np.asarray(r) for r in seen]), right, f"the {name} of an array over {spec}")
            first, *rest = x
            expect(np.asarray(first), host[0], f"the unpacked first row of an array over {spec}")
            wrong(len(rest) != rows - 1 or len(x) != rows, f"the rows of an array over {spec} are {len(x)}")
    for f in (len, iter, lambda v: list(reversed(v))):
        number = jax.device_put(2.0, NamedSharding(grid, P()))
        refused("the rows of a number", "TypeError", lambda f=f, number=number: f(number))


def _methods_of_keys(line, grid):
    """Methods of arrays of typed keys: rows in turn, shapes, parts and joins, each by the words of its keys."""
    if jax.process_count() > 1:
        return  # a process reads no rows of another
    for impl, mesh, spec in (
        ("threefry2x32", line, P("d")),
        ("rbg", grid, P(("y", "x"))),
    ):
        _key_methods(mesh, spec, impl)


# Shards.


def _orders(line: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The devices in several orders."""
    devices = line.devices.ravel()
    yield "in order", devices
    yield "backward", devices[::-1]
    yield "rolled", np.roll(devices, 1)
    yield "mixed", devices[np.argsort(mixed((devices.size,), 97, 41), kind="stable")]


def _shard_numbers(line, grid):
    """Devices, slices, replica numbers and data of shards, over meshes with their devices in several orders."""
    side = 2 * line.size
    host = mixed((side, side), 997, 7).astype(np.int32)
    for (order, devices), shape in itertools.product(_orders(line), (grid, cube(line))):
        mesh = Mesh(devices.reshape(shape.devices.shape), shape.axis_names)
        for spec in itertools.islice(specs_of(mesh), 0, None, 1 if shape is grid else 3):
            what = f"over {spec} of {dict(mesh.shape)} {order}"
            place = NamedSharding(mesh, spec)
            x = jax.device_put(host, place)
            expect(list(x.sharding.device_set - set(devices)), [], f"the devices {what}")
            blocks: dict[Any, int] = {}
            right: dict[Any, tuple[int, Any]] = {}
            parts = [(p,) if isinstance(p, str) else p or () for p in (*spec, None, None)[:2]]
            for at in np.ndindex(mesh.devices.shape):
                where = dict(zip(mesh.axis_names, at, strict=True))
                slices = []
                for part in parts:
                    block, count = 0, 1
                    for axis in part:
                        block, count = block * mesh.shape[axis] + where[axis], count * mesh.shape[axis]
                    step = side // count
                    slices.append((block * step, (block + 1) * step))
                blocks[tuple(slices)] = blocks.get(tuple(slices), -1) + 1
                right[mesh.devices[at]] = blocks[tuple(slices)], tuple(slices)
            here = [s for s in x.addressable_shards]
            if jax.process_count() == 1:
                expect([s.device.id for s in here], [d.id for d in devices], f"the order of shards {what}")
            for shard in (*here, *x.global_shards):
                number, slices = right[shard.device]
                seen = tuple(s.indices(side)[:2] for s in shard.index)
                expect(
                    (shard.replica_id, seen), (number, slices), f"replica and slices of {shard.device} {what}"
                )
            for shard in here:
                block = host[tuple(slice(*s) for s in right[shard.device][1])]
                expect(np.asarray(shard.data), block, f"the data of {shard.device} {what}")
                expect(shard.data.devices(), {shard.device}, f"the device of data {what}")


RULES_OF_METHODS: dict[str, Callable[..., None]] = {
    "array_words": _array_words,
    "rows_in_turn": _rows_in_turn,
    "methods_of_keys": _methods_of_keys,
    "shard_numbers": _shard_numbers,
}
