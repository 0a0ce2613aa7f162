# SPDX-License-Identifier: Apache-2.0
"""Small rules: what a result is beside its numbers (weak type, commitment, place, spec), wherever it went; rows of
arrays over permuted devices; arguments that a compiled program refuses."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.axes import spread
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device

COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda v: pickle.loads(pickle.dumps(v)),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "its method copy": lambda v: v.copy(),
    "its real part": lambda v: v.real,
    "device_put": jax.device_put,
    "a jitted identity": jax.jit(lambda v: v),
    "a product with 1": lambda v: v * 1,
}
"""Ways to get the same array again."""


def _kept_by_copies(line, grid):
    """An array that was copied has the dtype and weak type of the first one, and lies where it did."""
    everywhere = NamedSharding(line, P())
    weak = jax.jit(lambda v: 2 * v, out_shardings=everywhere)
    host = mixed((2 * line.size,), 9).astype(np.float32)
    arrays = {
        "a weakly typed number of one device": jnp.asarray(2.0) * 1,
        "a weakly typed number of all devices": weak(3.0),
        "a weakly typed whole number of all devices": weak(3),
        "an array of one device": jax.device_put(host, line.devices.ravel()[-1]),
        "a cut array": placed(line, host, "d"),
        "an array over two axes": placed(grid, mixed((grid.size, grid.size), 9).astype(np.float32), "y", "x"),
    }
    for name, array in arrays.items():
        wrong(name.startswith("a weakly") != array.weak_type, f"{name} has weak_type={array.weak_type}")
        for way, call in COPIES.items():
            again = call(array)
            what = f"{name}, by {way},"
            expect(again.weak_type, array.weak_type, f"the weak type of {what}")
            on_each_device(again, np.asarray(array), what)
            if way not in ("pickle", "copy.copy", "copy.deepcopy"):
                same = again.sharding.is_equivalent_to(array.sharding, array.ndim)
                wrong(not same, f"{what} lies over {again.sharding} instead of {array.sharding}")


def _weak_results(line, grid):
    """Results over several devices are weakly typed where those of one device are."""
    programs: dict[str, Callable[[Any], Any]] = {
        "twice a number": lambda v: v * 2,
        "a sum with an array": lambda v: v + jnp.float32(1),
        "a choice": lambda v: jnp.where(v > 0, v, 0.0),
        "a constant": lambda v: jnp.full((), 3.0) + v * 0,
        "a full array": lambda v: lax.full_like(v, 7),
        "a loop": lambda v: lax.fori_loop(0, 3, lambda i, c: c + 1, v),
    }
    for value in (3.0, 3):
        for name, program in programs.items():
            alone = jax.jit(program)(value)
            found = jax.jit(program, out_shardings=NamedSharding(line, P()))(value)
            what = f"{name} of {value!r} over all devices"
            expect((found.dtype, found.weak_type), (alone.dtype, alone.weak_type), f"the type of {what}")
            on_each_device(found, np.asarray(alone), what)
            if found.weak_type:
                product = found * jnp.float16(1)
                expect(product.dtype, np.dtype(np.float16), f"the dtype of {what} times a float16")


def _commitment(line, grid):
    """Results of committed arrays are committed to their devices, and others move freely."""
    first, last = line.devices.ravel()[0], line.devices.ravel()[-1]
    host = mixed((4,), 9).astype(np.float32)
    ways: dict[str, Callable[[Any], Any]] = {
        "jit": jax.jit(lambda v: v + 1),
        "a call": lambda v: v + 1,
        "a jitted identity": jax.jit(lambda v: v),
        "a slice": lambda v: v[1:],
        "an update": lambda v: v.at[0].set(1),
        "a gradient": jax.grad(lambda v: (v * v).sum()),
        "a compiled program": lambda v: jax.jit(lambda w: w + 1).lower(v).compile()(v),
    }
    for name, run in ways.items():
        for device in (first, last):
            found = run(jax.device_put(host, device))
            what = f"the result of {name} on {device}"
            expect(found.committed, True, f"{what} committed")
            expect(found.devices(), {device}, f"the place of {what}")
        if first != last:
            one, other = run(jax.device_put(host, first)), run(jax.device_put(host, last))
            refused(
                f"a sum of results of {name} on two devices",
                "incompatible devices",
                lambda a=one, b=other: a + b,
            )
        free = run(jnp.asarray(host))
        expect(free.committed, False, f"the result of {name} of an array that is not committed, committed")
        moved = free + jax.device_put(host[: len(free)], last)
        expect(moved.devices(), {last}, f"the place of a sum with a result of {name} that is not committed")
        expect(run(placed(line, np.tile(host, line.size), "d")).committed, True, f"a cut result of {name}")


def _results_given_twice(line, grid):
    """One value in several places of the results, each with its own place on the devices."""
    size = 2 * grid.size
    host = mixed((size, size), 97, 7).astype(np.float32)
    specs = (P("x"), P(), P(None, "y"), P("y", "x"), None)
    programs: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "a product": (lambda v: 2 * v, 2 * host),
        "an argument": (lambda v: v, host),
        "a constant": (lambda v: jnp.asarray(host), host),
    }
    for name, (program, right) in programs.items():
        for pair in itertools.permutations(specs, 2):

            def twice(v, program=program):
                value = program(v)
                return value, {"second": value}

            there = [spec if spec is None else NamedSharding(grid, spec) for spec in pair]
            found = jax.jit(twice, out_shardings=(there[0], {"second": there[1]}))(
                placed(grid, host, "x", "y")
            )
            for k, one in enumerate((found[0], found[1]["second"])):
                what = f"place {k} of {name} that is given twice, over {pair}"
                on_each_device(one, right, what)
                if there[k] is not None:
                    same = one.sharding.is_equivalent_to(there[k], 2)
                    wrong(not same, f"{what} lies over {one.sharding} instead of {there[k]}")


def _specs_before_a_run(line, grid):
    """eval_shape, make_jaxpr and lower of functions of Explicit arrays say the spec that the result has."""
    typed = explicit(grid)
    size = 2 * grid.size
    host = mixed((size, size), 97, 7).astype(np.float32)
    calls: dict[str, tuple[Callable[[Any], Any], str]] = {
        "twice": (lambda v: 2 * v, "bi"),
        "a sum of rows": (lambda v: v.sum(1), "b"),
        "a transpose": (lambda v: v.T, "ib"),
        "a largest number": (lambda v: v.max(0), "i"),
        "places of the largest": (lambda v: jnp.argmax(v, 1), "b"),
        "places of the least": (lambda v: jnp.argmin(v, 0), "i"),
        "an outer product": (lambda v: jnp.einsum("bi,k->bki", v, jnp.ones(3, v.dtype)), "bki"),
        "a comparison": (lambda v: v > 0, "bi"),
        "a cumulative sum": (lambda v: jnp.cumsum(v, 1) if whole_rows else v, "bi"),
        "a product of batches": (
            lambda v: jnp.einsum("bi,bi->b", v, v) if whole_rows else v.max(1),
            "b",
        ),
    }
    with jax.set_mesh(typed):
        for spec in (P("x"), P("x", "y"), P(None, ("y", "x")), P("y", None)):
            x = placed(typed, host, *spec)
            whole_rows = len(spec) < 2 or spec[1] is None
            parts = dict(zip("bik", [*spread(spec), ()], strict=True))
            for name, (call, dims) in calls.items():
                one = jax.jit(call)(x)
                seen, right = spread(one.sharding.spec, len(dims)), [parts[d] for d in dims]
                wrong(seen != right, f"{name} of an array over {spec} lies over {seen} instead of {right}")
                said = {
                    "eval_shape": jax.eval_shape(call, x),
                    "eval_shape of jit": jax.eval_shape(jax.jit(call), x),
                    "lower": jax.jit(call).lower(x).out_info,
                    "make_jaxpr": jax.make_jaxpr(call, return_shape=True)(x)[1],
                    "its method eval_shape": jax.jit(call).eval_shape(x),
                }
                for way, told in said.items():
                    what = f"{name} of an array over {spec}, by {way},"
                    expect((told.shape, told.dtype), (one.shape, one.dtype), what)
                    there = getattr(told, "sharding", None)
                    same = there is not None and there.spec == one.sharding.spec
                    wrong(not same, f"{what} is said to lie over {there} instead of {one.sharding.spec}")


def _fills(mesh: Any, arrays: bool) -> None:
    """Full arrays of one number, or of arrays of every rank that broadcasts, over a mesh."""
    shape = (2 * mesh.size, 4)
    fills: list[Any] = [np.float32(3), np.float32(-0.0)]
    if arrays:
        fills = [mixed(one, 9).astype(np.float32) for one in ((4,), (1, 4), (shape[0], 1), shape)]
    like = jnp.zeros(shape, jnp.float32)
    for fill in fills:
        right = np.broadcast_to(fill, shape)
        for spec in (P("d"), P()):
            there = NamedSharding(mesh, spec)
            calls = {
                "full": partial(jnp.full, shape, fill, device=there),
                "full of a type": partial(jnp.full, shape, fill, jnp.float32, device=there),
                "full_like": partial(jnp.full_like, like, fill, device=there),
                "full_like of a shape": partial(jnp.full_like, like[0], fill, shape=shape, device=there),
                "full of an array": partial(jnp.full, shape, jnp.asarray(fill), device=there),
            }
            for name, call in calls.items():
                found = call()
                what = f"{name} with a fill of shape {np.shape(fill)} over {spec}"
                on_each_device(found, right, what)
                same = found.sharding.is_equivalent_to(there, 2)
                wrong(not same, f"{what} lies over {found.sharding}")


def _filled_with_arrays(line, grid):
    """Arrays that are filled with numbers, and over Explicit axes with arrays, where the call says."""
    _fills(line, arrays=False)
    typed = explicit(line)
    with jax.set_mesh(typed):
        _fills(typed, arrays=True)


def _rows_of_permuted_devices(line, grid):
    """Rows, elements and parts of arrays over devices in another order than their numbers."""
    devices = np.roll(line.devices.ravel()[::-1], 1)
    mesh = jax.sharding.Mesh(devices, ("d",))
    size = 2 * line.size
    for shape, spec in (((size,), P("d")), ((size, 3), P("d")), ((3, size), P(None, "d")), ((size, 2), P())):
        host = mixed(shape, 97, 7).astype(np.float32)
        x = placed(mesh, host, *spec)
        what = f"of an array over {spec} of permuted devices"
        reads: dict[str, Any] = {
            "iteration": lambda x=x: list(x),
            "reversed": lambda x=x: list(reversed(x))[::-1],
            "unpacking": lambda x=x: [*x],
            "indices": lambda x=x: [x[k] for k in range(len(x))],
            "indices from the end": lambda x=x: [x[k - len(x)] for k in range(len(x))],
            "zip": lambda x=x: [row for row, _ in zip(x, range(len(x)), strict=True)],
            "unstack": lambda x=x: jnp.unstack(x),
            "split": lambda x=x: [v[0] for v in jnp.split(x, len(x))],
            "tolist": lambda x=x: np.asarray(x.tolist(), np.float32),
            "tobytes": lambda x=x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),
            "device_get": lambda x=x: jax.device_get(x),
            "copies to the host": lambda x=x: (x.copy_to_host_async(), np.asarray(x))[1],
            "flat": lambda x=x: np.reshape([float(v) for v in x.ravel()], x.shape),
        }
        for name, read in reads.items():
            found = np.stack([np.asarray(v, np.float32) for v in read()])
            expect(found, host, f"{name} {what}")


def _shapes_of_gathers(line, grid):
    """process_allgather in one process: numbers and arrays get the dimension of the processes, unless they are
    tiled."""
    if jax.process_count() > 1:
        return
    host = mixed((3, 2), 9).astype(np.float32)
    values = {
        "a NumPy number": np.float32(3),
        "a Python number": 3.0,
        "a truth": True,
        "a NumPy array": host,
        "a NumPy array of rank 1": host[:, 0],
        "an array": jnp.asarray(host),
        "a number of JAX": jnp.float32(3),
    }
    for name, value in values.items():
        array = np.asarray(value)
        found = multihost_utils.process_allgather(value)
        expect(found.shape, (1, *array.shape), f"the shape of a gather of {name}")
        expect(np.asarray(found[0]).tolist(), array.tolist(), f"the gather of {name}")
        if array.ndim:
            tiled = multihost_utils.process_allgather(value, tiled=True)
            expect(np.asarray(tiled), array, f"the tiled gather of {name}")
        back = multihost_utils.broadcast_one_to_all(value)
        expect((back.shape, back.dtype.kind), (array.shape, array.dtype.kind), f"a broadcast of {name}")
        expect(np.asarray(back).tolist(), array.tolist(), f"the numbers of a broadcast of {name}")


def _pmapped(line: Any, into: int, out: int) -> None:
    """pmap of an array and a keyword argument, with these in_axes and out_axes."""
    n = line.size
    x = mixed((n, n), 97, 7).astype(np.float32)
    other = mixed((n, n), 89, 5).astype(np.float32)
    rows = 1000 * np.moveaxis(x, into, 0) + other
    for axes in (into, (into,)):

        def both(v, *, other):
            return 1000 * v + other

        run = jax.pmap(both, in_axes=axes, out_axes=out, devices=list(line.devices.ravel()))
        found = run(x, other=other)
        expect(np.asarray(found), np.moveaxis(rows, 0, out), f"pmap with in_axes={axes!r}, out_axes={out}")


def _keywords_of_pmap(line, grid):
    """Keyword arguments of pmap are cut along their first dimension, whatever in_axes and out_axes say."""
    for into, out in itertools.product((0, 1), (0, 1)):
        _pmapped(line, into, out)


def _pmap_from_the_end(line, grid):
    """pmap with dimensions that are counted from the end: an answer, or the refusal of a number below zero."""
    for into, out in ((-1, 0), (0, -1), (-2, -1)):
        try:
            _pmapped(line, into, out)
        except ValueError as error:
            wrong(
                not re.search("ax[ei]s", str(error)),
                f"pmap with in_axes={into}, out_axes={out}: {error}"[:300],
            )


def _arguments_that_lie_elsewhere(line, grid):
    """A compiled program, and jit with in_shardings, refuse committed arguments that lie otherwise, and take those
    that lie as promised."""
    if line.size == 1:
        return
    size = 2 * grid.size
    host = mixed((size, size), 97, 7).astype(np.float32)
    turned = jax.sharding.Mesh(grid.devices[::-1, ::-1], grid.axis_names)
    specs = (P("x"), P("y", "x"), P(None, "x"), P())
    for spec in specs:
        there = NamedSharding(grid, spec)
        right = jax.device_put(host, there)
        compiled = jax.jit(lambda v: 2 * v).lower(right).compile()
        promised = jax.jit(lambda v: 2 * v, in_shardings=there)
        on_each_device(compiled(right), 2 * host, f"a compiled program of an array over {spec}")
        on_each_device(promised(right), 2 * host, f"jit with in_shardings={spec}")
        on_each_device(promised(host), 2 * host, f"jit with in_shardings={spec}, of a NumPy array,")
        others = {f"{other}": NamedSharding(grid, other) for other in specs if other != spec}
        others |= {"the same axes of turned devices": NamedSharding(turned, spec)} if spec != P() else {}
        for name, place in others.items():
            if place.is_equivalent_to(there, 2):
                continue
            array = jax.device_put(host, place)
            refused(
                f"a program compiled for {spec}, of {name}", "[Ss]harding|device", partial(compiled, array)
            )
            if place.mesh == grid:
                refused(f"jit with in_shardings={spec}, of {name}", "[Ss]harding", partial(promised, array))
            else:  # the same devices: JAX may move the array
                on_each_device(promised(array), 2 * host, f"jit with in_shardings={spec}, of {name}")


def _shardings_of_size_one(line, grid):
    """Shardings over an axis of one device say that they are whole, and are equal to those that name no axis."""
    devices = line.devices.reshape(-1, 1)
    mesh = jax.sharding.Mesh(devices, ("x", "y"))
    shape = (2 * line.size, 4)
    for spec, whole in (
        (P("y"), True),
        (P(None, "y"), True),
        (P(("y",)), True),
        (P(), True),
        (P("x"), line.size == 1),
        (P(("x", "y")), line.size == 1),
        (P("x", "y"), line.size == 1),
    ):
        there = NamedSharding(mesh, spec)
        what = f"a sharding over {spec} of a mesh of {mesh.devices.shape}"
        expect(there.is_fully_replicated, whole, f"whether {what} is whole")
        rows = shape[0] if whole else shape[0] // line.size
        expect(there.shard_shape(shape), (rows, 4), f"the blocks of {what}")
        bare = NamedSharding(mesh, P() if whole else P("x"))
        expect(there.is_equivalent_to(bare, 2), True, f"{what} equivalent to {bare.spec}")
        x = jax.device_put(mixed(shape, 9).astype(np.float32), there)
        expect(x.is_fully_replicated, whole, f"whether an array over {spec} is whole")
        expect(
            len({s.replica_id for s in x.addressable_shards}),
            line.size if whole else 1,
            f"replicas of {what}",
        )


def _stored_places(line, grid):
    """A program that was exported, stored and read again promises the same places, and gives results there."""
    from jax import export

    size = 2 * grid.size
    host = mixed((size, size), 97, 7).astype(np.float32)
    struct = jax.ShapeDtypeStruct(host.shape, host.dtype)
    for into, out in ((P("x"), P("x")), (P("x", "y"), P("y")), (P(), P(None, "x")), (P("y"), P())):
        given, wanted = NamedSharding(grid, into), NamedSharding(grid, out)
        made = jax.jit(lambda v: (2 * v, v.sum(0)), in_shardings=given, out_shardings=(wanted, None))
        first = export.export(made)(struct)
        again = export.deserialize(first.serialize())
        what = f"a stored program from {into} to {out}"
        for program, which in ((first, "before"), (again, "after")):
            told = program.out_shardings_jax(grid)[0]
            same = told is not None and told.is_equivalent_to(wanted, 2)
            wrong(not same, f"{what} promises {told} {which} it was stored")
            taken = program.in_shardings_jax(grid)[0]
            same = taken is not None and taken.is_equivalent_to(given, 2)
            wrong(not same, f"{what} takes {taken} {which} it was stored")
        found, sums = jax.jit(again.call)(jax.device_put(host, given))
        on_each_device(found, 2 * host, what)
        expect(np.asarray(sums), host.sum(0), f"the sums of {what}")
        same = found.sharding.is_equivalent_to(wanted, 2)
        wrong(not same, f"the result of {what} lies over {found.sharding} instead of {wanted}")


RULES_OF_RESULTS: dict[str, Callable[..., None]] = {
    "kept_by_copies": _kept_by_copies,
    "weak_results": _weak_results,
    "commitment": _commitment,
    "results_given_twice": _results_given_twice,
    "specs_before_a_run": _specs_before_a_run,
    "filled_with_arrays": _filled_with_arrays,
    "rows_of_permuted_devices": _rows_of_permuted_devices,
    "shapes_of_gathers": _shapes_of_gathers,
    "keywords_of_pmap": _keywords_of_pmap,
    "pmap_from_the_end": _pmap_from_the_end,
    "arguments_that_lie_elsewhere": _arguments_that_lie_elsewhere,
    "shardings_of_size_one": _shardings_of_size_one,
    "stored_places": _stored_places,
}
