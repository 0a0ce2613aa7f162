# SPDX-License-Identifier: Apache-2.0
"""Small rules: stored programs with many shardings and results, abstract arrays, and functions that make arrays
somewhere."""

import itertools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.arrays import cube, specs_of
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.methods import lies_at, takes_option
from meshmark.operations.programs.small_rules.puts import same_leaves

# Stored programs.


def _alike(seen: Any, right: list[Any], ranks: list[int], what: str) -> None:
    wrong(len(seen) != len(right), f"{what} has {len(seen)} shardings instead of {len(right)}")
    for k, (one, place, rank) in enumerate(zip(seen, right, ranks, strict=True)):
        same = one is not None and one.is_equivalent_to(place, rank)
        wrong(not same, f"sharding {k} of {what} is {one} instead of {place}")


def _stored_specs(line, grid):
    """Programs with an argument and a result for each spec, in each order of axes: exported, stored and read."""
    if find_spec("flatbuffers") is None:
        raise Missing("jax.export needs flatbuffers: pip install flatbuffers")
    from jax import export

    side = 2 * grid.size
    for mesh in (grid, cube(line), explicit(grid)):
        specs = list(specs_of(mesh))[:: 1 if mesh is grid else 4]
        places = [NamedSharding(mesh, s) for s in specs]
        turned = places[1:] + places[:1]
        hosts = [mixed((side, side), 97, 7).astype(np.float32) + k for k in range(len(places))]
        program = jax.jit(
            lambda *v: tuple(2 * a for a in (*v[1:], v[0])),
            in_shardings=tuple(places),
            out_shardings=tuple(turned),
        )
        types = [
            jax.ShapeDtypeStruct(h.shape, h.dtype, sharding=p) for h, p in zip(hosts, places, strict=True)
        ]
        stored = export.export(program)(*types)
        ranks = [2] * len(places)
        for what, one in (("exported", stored), ("read", export.deserialize(stored.serialize()))):
            words = f"a program over {mesh.axis_names}, {what}"
            _alike(one.in_shardings_jax(mesh), places, ranks, f"the arguments of {words}")
            _alike(one.out_shardings_jax(mesh), turned, ranks, f"the results of {words}")
            given = [jax.device_put(h, p) for h, p in zip(hosts, places, strict=True)]
            found = jax.jit(one.call)(*given)
            for k, (y, place) in enumerate(zip(found, turned, strict=True)):
                on_each_device(y, 2 * hosts[(k + 1) % len(hosts)], f"result {k} of {words}")
                lies_at(y, place, f"result {k} of {words}")
            expect(one.nr_devices, mesh.size, f"the number of devices of {words}")
            expect([a.shape for a in one.in_avals], [(side, side)] * len(places), f"the arguments of {words}")


class _Three(NamedTuple):
    first: Any
    second: Any
    third: Any


def _stored_results(line, grid):
    """Results of equal shape in trees of each kind, of programs that are stored as exported and as compiled."""
    from jax.experimental import serialize_executable

    host = mixed((2 * grid.size, 4), 97, 7).astype(np.float32)
    one, two = placed(grid, host, "x"), placed(grid, 100 + host, ("y", "x"))
    shapes: dict[str, Callable[[Any, Any], Any]] = {
        "a pair": lambda a, b: (a + b, a - b),
        "a list": lambda a, b: [b, a, a + b],
        "a dict": lambda a, b: {"z": a, "a": b, "m": (b - a, a)},
        "a dict of a pair": lambda a, b: {"pair": (b, a)},
        "one array": lambda a, b: a - 2 * b,
        "a tuple of one": lambda a, b: (b - a,),
        "a named tuple": lambda a, b: (
            _Three(b, [a], {"k": a + b}) if find_spec("flatbuffers") is None else (b, [a], a)
        ),
        "the arguments, turned": lambda a, b: (b, a),
        "three with None": lambda a, b: (b, None, a + 1),
    }
    place = NamedSharding(grid, P("y"))
    for name, f in shapes.items():
        right = f(host, 100 + host)
        for options in ({}, {"out_shardings": place}):
            program = jax.jit(lambda a, *, b, f=f: f(a, b), **options)
            loaded: dict[str, Any] = {}
            compiled = program.lower(one, b=two).compile()
            loaded["compiled"] = serialize_executable.deserialize_and_load(
                *serialize_executable.serialize(compiled)
            )
            if find_spec("flatbuffers"):
                from jax import export

                loaded["exported"] = jax.jit(
                    export.deserialize(export.export(program)(one, b=two).serialize()).call
                )
            for way, call in loaded.items():
                for _ in range(2):
                    found = call(one, b=two)
                    what = f"{name}, {way} and stored, with {list(options)}"
                    expect(jax.tree.structure(found), jax.tree.structure(right), f"the structure of {what}")
                    same_leaves(found, right, what)
                    for y in jax.tree.leaves(found):
                        if options:
                            lies_at(y, place, what)


# Abstract arrays.


PROPERTIES = ("shape", "dtype", "sharding", "weak_type")


def _updated(struct: Any, change: dict[str, Any]) -> None:
    """RuntimeError unless an update changes these properties of a copy, and nothing else."""
    before = {name: getattr(struct, name) for name in PROPERTIES}
    new = struct.update(**change)
    what = f"{struct} with {change}"
    for name, right in (before | change).items():
        expect(getattr(new, name), right, f"the {name} of {what}")
        expect(getattr(struct, name), before[name], f"the {name} before the update of {what}")
    expect((new.ndim, new.size), (2, int(np.prod(new.shape))), f"the sizes of {what}")
    expect(new == struct, before | change == before, f"whether nothing changed in {what}")
    if new.sharding is not None and "sharding" in change:
        seen = jax.jit(lambda v: v).lower(new).compile().input_shardings[0][0]
        wrong(not seen.is_equivalent_to(new.sharding, 2), f"the argument {what} lies over {seen}")


def _structs(line, grid):
    """Properties of abstract arrays, with some of them updated, as arguments of programs and of functions."""
    shape = (2 * grid.size, 2 * grid.size)
    rounds = [NamedSharding(grid, s) for s in (P("x"), P("y"), P(None, ("y", "x")), P())]
    for old in (None, *rounds):
        struct = jax.ShapeDtypeStruct(shape, np.float32, sharding=old)
        changes: list[dict[str, Any]] = [{"sharding": p} for p in (None, *rounds)]
        changes += [
            {"dtype": np.dtype(np.int8)},
            {"shape": (shape[0], 3 * shape[1])},
            {"weak_type": True},
            {},
        ]
        changes += [
            {"dtype": np.dtype(bool), "sharding": rounds[1]},
            {"shape": shape[::-1], "sharding": rounds[2]},
        ]
        for change in changes if hasattr(struct, "update") else ():
            _updated(struct, change)
    tree = {
        k: jax.ShapeDtypeStruct(shape, np.float32, sharding=p) for k, p in zip("abcd", rounds, strict=True)
    }
    compiled = jax.jit(lambda t: t).lower(tree).compile()
    for name, seen in compiled.input_shardings[0][0].items():
        wrong(
            not seen.is_equivalent_to(tree[name].sharding, 2), f"argument {name} of a tree lies over {seen}"
        )
    for place in rounds:
        struct = jax.ShapeDtypeStruct(shape, np.int8, sharding=place)
        for name, f, number in (
            ("zeros_like", jnp.zeros_like, 0),
            ("ones_like", jnp.ones_like, 1),
            ("full_like", lambda v: jnp.full_like(v, 7), 7),
            ("empty_like", jnp.empty_like, None),
        ):
            found = f(struct)
            lies_at(found, place, f"{name} of an abstract array")
            if number is not None:
                on_each_device(found, np.full(shape, number, np.int8), f"{name} of an abstract array")


# Functions that make arrays.


Makers = dict[str, tuple[Callable[..., Any], np.ndarray]]


def _ranges(n: int, far: int) -> Makers:
    """Ranges of n numbers, and their numbers by NumPy. far: a number of more than 32 bits."""
    ranges: dict[str, tuple[tuple[Any, ...], Any]] = {
        "a far range": ((far, far + n), np.int64),
        "a far range of unsigned numbers": ((2**63 + 1, 2**63 + 1 + n), np.uint64),
        "a range downward": ((2**40, 2**40 - 3 * n, -3), np.int64),
        "a range below zero": ((-(2**34), -(2**34) + 2 * n, 2), np.int64),
        "a range of large steps": ((0, n * 2**33, 2**33), np.int64),
        "a range of floats": ((0.0, n / 8, 0.125), np.float64),
        "a far range of floats": ((2**40, 2**40 + n), np.float64),
        "a short range": ((n,), np.int32),
        "a range of two bytes": ((-3, n - 3), np.int16),
        "a range of halves": ((0, 2 * n, 2), np.float16),
    }

    def maker(numbers: tuple[Any, ...], kind: Any) -> Callable[..., Any]:
        return lambda **options: jnp.arange(*numbers, **{"dtype": kind, **options})

    return {
        name: (maker(a, k), np.array(range(*a) if all(isinstance(v, int) for v in a) else np.arange(*a), k))
        for name, (a, k) in ranges.items()
    }


def _makers(n: int) -> Makers:
    """Functions that make a vector or matrix with options, and the answers. n: a multiple of the devices."""
    far, wide = 2**33 + 5, np.arange(2 * n, dtype=np.int64).reshape(n, 2) + 2**40
    like = np.ones((n, 2), np.int16)
    row = np.array([2**40, 3], np.int64)
    makers = _ranges(n, far)
    makers["a far range of no dtype"] = (lambda **o: jnp.arange(far, far + n, **o), np.arange(far, far + n))
    for kind, number in (
        (np.int64, 2**40 + 1),
        (np.float64, 1 / 3),
        (np.uint64, 2**63 + 1),
        (bool, True),
        (np.int8, -7),
    ):
        right = np.full((n, 2), number, kind)
        makers |= {
            f"full of {kind.__name__}": (lambda v=number, k=kind, **o: jnp.full((n, 2), v, k, **o), right),
            f"full_like of {kind.__name__}": (
                lambda v=number, k=kind, **o: jnp.full_like(like, v, dtype=k, **o), right),
            f"full_like of {kind.__name__} by its array": (
                lambda v=number, r=right, **o: jnp.full_like(r, v, **o), right),
            f"full_like of {kind.__name__} of another shape": (
                lambda v=number, k=kind, **o: jnp.full_like(like[0], v, dtype=k, shape=(n, 2), **o), right),
            f"zeros of {kind.__name__}": (lambda k=kind, **o: jnp.zeros((n, 2), k, **o), np.zeros((n, 2), kind)),
            f"ones_like of {kind.__name__}": (
                lambda k=kind, **o: jnp.ones_like(like, dtype=k, **o), np.ones((n, 2), kind)),
            f"zeros_like of {kind.__name__}": (
                lambda k=kind, **o: jnp.zeros_like(like, dtype=k, **o), np.zeros((n, 2), kind)),
        }  # fmt: skip
    makers |= {
        "ones": (lambda **o: jnp.ones((n,), np.int16, **o), np.ones((n,), np.int16)),
        "full of a row": (
            lambda **o: jnp.full((n, 2), row, **o), np.tile(row, (n, 1))),
        "asarray": (lambda **o: jnp.asarray(wide, **o), wide),
        "asarray of a list": (lambda **o: jnp.asarray(wide.tolist(), **o), wide),
        "asarray of another dtype": (lambda **o: jnp.asarray(wide, dtype=np.float64, **o), wide.astype(np.float64)),
        "asarray of an array": (lambda **o: jnp.asarray(jax.device_put(wide), **o), wide),
        "array": (lambda **o: jnp.array(wide, **o), wide),
        "array of more dimensions": (lambda **o: jnp.array(wide[:, 0], ndmin=1, **o), wide[:, 0]),
        "linspace": (lambda **o: jnp.linspace(0, n - 1, n, dtype=np.float64, **o), np.arange(n, dtype=np.float64)),
        "linspace of integers": (
            lambda **o: jnp.linspace(0, 2 * n - 2, n, dtype=np.int32, **o), 2 * np.arange(n, dtype=np.int32)),
        "eye": (lambda **o: jnp.eye(n, 4, k=-1, dtype=np.int8, **o), np.eye(n, 4, k=-1, dtype=np.int8)),
        "a square eye": (lambda **o: jnp.eye(n, dtype=bool, **o), np.eye(n, dtype=bool)),
        "iota": (lambda **o: lax.broadcasted_iota(np.int64, (n, 2), 0, **o), np.stack([np.arange(n)] * 2, 1)),
    }  # fmt: skip
    return makers


OPTIONS = {"asarray": jnp.asarray, "array": jnp.array, "linspace": jnp.linspace, "iota": lax.broadcasted_iota}
OPTIONS |= {
    "full_like": jnp.full_like,
    "ones_like": jnp.ones_like,
    "zeros_like": jnp.zeros_like,
    "full": jnp.full,
}
OPTIONS |= {"eye": jnp.eye, "a square eye": jnp.eye, "zeros": jnp.zeros, "ones": jnp.ones}


def _function_of(name: str) -> Any:
    """The function of jax.numpy behind one of `_makers`."""
    return next((f for start, f in OPTIONS.items() if name.startswith(start)), jnp.arange)


def _ignored(name: str) -> bool:
    """Whether `out_sharding` of this maker has a form of its own, below."""
    return name == "asarray"


def _made_there(line, grid):
    """Arrays that are made on a device or over devices, by `device` outside of programs."""
    device = [d for d in line.devices.flat if d.process_index == jax.process_index()][-1]
    places = [
        NamedSharding(explicit(grid), P("x")),
        NamedSharding(grid, P(("y", "x"))),
    ]
    with jax.enable_x64(True):
        for name, (make, right) in _makers(2 * grid.size).items():
            if name == "full of a row" or not takes_option(_function_of(name), "device"):
                continue  # that one has a form of its own
            for place in places[
                name.startswith(("array", "asarray", "linspace")) :
            ]:  # they have a form below
                found = make(device=place)
                what = f"{name} with device={place.spec}"
                on_each_device(found, np.asarray(right), what)
                lies_at(found, place, what)
            found = make(device=device)
            expect(np.asarray(found), np.asarray(right), f"{name} on a device")
            expect(found.devices(), {device}, f"the devices of {name} on one")
        for kind, place in itertools.product((np.int64, np.int8, np.float32), places):
            shape = (2 * grid.size, 2)
            for name, made in (
                ("empty", jnp.empty(shape, kind, device=place)),
                ("empty_like", jnp.empty_like(np.zeros(shape, kind), device=place)),
            ):
                expect((made.shape, made.dtype), (shape, np.dtype(kind)), f"the shape and dtype of {name}")
                lies_at(made, place, f"{name} with device={place.spec}")


def _made_by_type(line, grid):
    """Arrays that are made with `out_sharding` while a mesh of Explicit axes is set, eagerly and in a program."""
    typed = explicit(grid)
    with jax.enable_x64(True), jax.set_mesh(typed):
        makers = {
            name: maker
            for name, maker in _makers(2 * grid.size).items()
            if takes_option(_function_of(name), "out_sharding") and not _ignored(name)
        }
        for spec in (P("x"), P(("y", "x")), P()):
            place = NamedSharding(typed, spec)
            program = jax.jit(
                lambda s=spec: {name: make(out_sharding=s) for name, (make, _) in makers.items()}
            )
            compiled = program()
            for name, (make, right) in makers.items():
                there = P(*spec, None) if "iota" in name and len(spec) else spec
                found = {"jitted": compiled[name]}
                if spec == P("x"):
                    found["eager"] = make(out_sharding=there)
                elif len(spec):
                    found["eager, by a sharding,"] = make(out_sharding=NamedSharding(typed, there))
                for way, y in found.items():
                    what = f"{way} {name} with out_sharding={spec}"
                    on_each_device(y, np.asarray(right), what)
                    lies_at(y, place, what)
                    seen = (*jax.typeof(y).sharding.spec, None)[0]
                    expect(seen, (*spec, None)[0], f"the type along the first dimension of {what}")


def _typed_asarray(line, grid):
    """`jnp.asarray` of an array of NumPy with `out_sharding`, while a mesh of Explicit axes is set."""
    typed = explicit(grid)
    with jax.set_mesh(typed):
        for kind in (np.int8, np.float32, bool):
            host = mixed((2 * grid.size, 2), 2, 7).astype(kind)
            for spec in (P("x"), P(("y", "x"))):
                for way, call in (("eager", lambda f: f), ("jitted", jax.jit)):
                    found = call(lambda h=host, s=spec: jnp.asarray(h, out_sharding=s))()
                    what = f"{way} asarray of {np.dtype(kind).name} with out_sharding={spec}"
                    on_each_device(found, host, what)
                    lies_at(found, NamedSharding(typed, spec), what)


def _rows_made_there(line, grid):
    """`jnp.full` of a row with `device`: the fill value is an array, and the result lies over the devices."""
    shape, row = (2 * grid.size, 2), np.float32([2, 3])
    for place in (NamedSharding(grid, P("x")), NamedSharding(line, P("d"))):
        for name, made in (
            ("full", jnp.full(shape, row, device=place)),
            ("full_like", jnp.full_like(np.zeros(shape, np.float32), row, device=place)),
        ):
            on_each_device(made, np.broadcast_to(row, shape), f"{name} of a row with device={place.spec}")
            lies_at(made, place, f"{name} of a row with device={place.spec}")


def _made_over_types(line, grid):
    """Arrays that are made of others by `device`, over Explicit axes, while no mesh is set."""
    typed = explicit(grid)
    host = mixed((2 * grid.size, 2), 90, 7).astype(np.float32)
    line_of = np.arange(2 * grid.size, dtype=np.float32)
    for spec in (P("x"), P(("y", "x"))):
        place = NamedSharding(typed, spec)
        members: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
            "asarray": (lambda p=place: jnp.asarray(host, device=p), host),
            "array": (lambda p=place: jnp.array(host, device=p), host),
            "asarray of an array": (lambda p=place: jnp.asarray(jnp.asarray(host), device=p), host),
            "linspace": (lambda p=place: jnp.linspace(0, line_of[-1], len(line_of), device=p), line_of),
        }
        for name, (make, right) in members.items():
            found = make()
            on_each_device(found, right, f"{name} with device={spec} over Explicit axes")
            lies_at(found, place, f"{name} with device={spec} over Explicit axes")


def _made_without_mesh(line, grid):
    """Arrays that are made with a NamedSharding as `out_sharding` while no mesh is set: there, or refused."""
    typed = explicit(grid)
    place = NamedSharding(typed, P("x"))
    n = 2 * grid.size
    members: dict[str, Callable[..., Any]] = {
        "full": lambda: jnp.full((n,), 3, out_sharding=place),
        "ones": lambda: jnp.ones((n,), out_sharding=place),
        "arange": lambda: jnp.arange(n, out_sharding=place),
        "zeros_like": lambda: jnp.zeros_like(np.ones(n), out_sharding=place),
        "array": lambda: jnp.array(np.ones(n), out_sharding=place),
    }
    for name, make in members.items():
        try:
            found = make()
        except ValueError as error:
            wrong("set_mesh" not in str(error), f"{name} outside of a mesh is refused: {error}"[:400])
        else:
            lies_at(found, place, f"{name} with out_sharding outside of a mesh")


def _empty_in_programs(line, grid):
    """`jnp.empty_like` with `device` in a program: its shape and dtype."""
    for place in (NamedSharding(grid, P("x")), NamedSharding(line, P("d"))):
        for kind in (np.int8, np.float32):
            host = np.zeros((2 * grid.size, 2), kind)
            found = jax.jit(lambda h=host, p=place: jnp.empty_like(h, device=p))()
            expect(
                (found.shape, found.dtype), (host.shape, host.dtype), "empty_like with a device in a program"
            )


RULES_OF_MAKING: dict[str, Callable[..., None]] = {
    "stored_specs": _stored_specs,
    "stored_results": _stored_results,
    "structs": _structs,
    "made_there": _made_there,
    "made_by_type": _made_by_type,
    "typed_asarray": _typed_asarray,
    "rows_made_there": _rows_made_there,
    "made_over_types": _made_over_types,
    "made_without_mesh": _made_without_mesh,
    "empty_in_programs": _empty_in_programs,
}
