# SPDX-License-Identifier: Apache-2.0
"""Small rules of what a call keeps of what it was given: facts of shardings, dtypes in batches, types of reshapes and
of mixed axes, layouts, and what a rule of the user is told."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.layout import Format, Layout
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect


def _facts_of_unreduced(line, grid):
    """Whether a sharding is whole on each device: over an unreduced axis lie summands, over a reduced one copies."""
    m = explicit(grid)
    rows, columns = grid.devices.shape
    facts = {
        P(): True,
        P(None, None): True,
        P("x"): rows == 1,
        P(None, "y"): columns == 1,
        P(unreduced={"x"}): False,
        P(unreduced={"x", "y"}): False,
        P(None, unreduced={"y"}): False,
        P("x", unreduced={"y"}): False,
        P(reduced={"x"}): True,
        P("y", reduced={"x"}): columns == 1,
    }
    for spec, whole in facts.items():
        found = NamedSharding(m, spec)
        if rows > 1 and columns > 1:  # an axis of one device has one summand
            expect(found.is_fully_replicated, whole, f"whether {spec} is whole on each device")
        expect(found.num_devices, grid.size, f"the number of devices of {spec}")
        expect(len(found.device_set), grid.size, f"the devices of {spec}")


def _stored_in_words(line, grid):
    """Shardings over abstract meshes, specs and arrays, pickled and copied: spec, memory, types and weak types stay."""
    kinds = {m.kind for m in line.devices.flat[0].addressable_memories()}
    again: dict[str, Callable[[Any], Any]] = {
        "pickled": lambda v: pickle.loads(pickle.dumps(v)),
        "copied": copy.copy,
        "copied deeply": copy.deepcopy,
    }
    for way, repeat in again.items():
        for mesh in (grid.abstract_mesh, explicit(grid).abstract_mesh):
            for kind in (None, *sorted(kinds & {"device", "pinned_host"})):
                for spec in (P("x"), P(("y", "x"), None), P(None, "y")):
                    one = NamedSharding(mesh, spec, memory_kind=kind)
                    found = repeat(one)
                    what = f"a sharding by {spec} in {kind}, {way}"
                    expect((found.spec, found.memory_kind), (spec, kind), what)
                    expect(found.mesh.axis_types, mesh.axis_types, f"the axis types of {what}")
                    expect(
                        (found == one, hash(found) == hash(one)), (True, True), f"whether {what} is the same"
                    )
        for spec in (P(unreduced={"x"}), P("y", reduced={"x"}), P(("x", "y"), None)):
            expect(repeat(spec), spec, f"the spec {spec}, {way}")
        if jax.process_count() == 1:
            for weak in (True, False):
                number = jax.jit(lambda w=weak: lax.full((2,), 1.5) if w else jnp.full(2, 1.5, np.float32))()
                expect(repeat(number).weak_type, weak, f"the weak type of an array, {way}")
                expect(np.asarray(repeat(number)), np.full(2, 1.5, np.float32), f"an array, {way}")


def _types_of_batched_products(line, grid):
    """Products with a dtype that is asked for keep it in a batch, along one argument or both, and in gradients."""
    n = line.size
    narrow: Any = jnp.bfloat16
    small = mixed((n, 4, 4), 7, 3)
    a, b = small.astype(narrow), (small + 1).astype(narrow)
    wide = np.matmul(small, small + 1).astype(np.float32)
    image = mixed((n, 1, 2, 6), 7, 3).astype(narrow)
    kernel = np.ones((n, 3, 2, 3)).astype(narrow)

    def convolved(v: Any, k: Any) -> Any:
        return lax.conv_general_dilated(v, k, (1,), "VALID", preferred_element_type=np.float32)

    def product(p: Any, q: Any) -> Any:
        return lax.dot_general(p, q, (((1,), (0,)), ((), ())), preferred_element_type=np.float32)

    calls: dict[str, Callable[..., Any]] = {
        "dot": lambda p, q: lax.dot(p, q, preferred_element_type=np.float32),
        "dot_general": product,
        "matmul": lambda p, q: jnp.matmul(p, q, preferred_element_type=np.float32),
        "einsum": lambda p, q: jnp.einsum("ij,jk->ik", p, q, preferred_element_type=np.float32),
    }
    x, y = placed(line, a, "d"), placed(line, b, "d")
    for name, call in calls.items():
        for way, axes, given, right in (
            ("both", (0, 0), (x, y), wide),
            ("the first", (0, None), (x, b[0]), np.matmul(small, small[0] + 1).astype(np.float32)),
            ("the second", (None, 0), (a[0], y), np.matmul(small[0], small + 1).astype(np.float32)),
            ("both, behind", (2, 2), (jnp.moveaxis(x, 0, 2), jnp.moveaxis(y, 0, 2)), wide),
        ):
            found = jax.jit(jax.vmap(call, in_axes=axes))(*given)
            expect(np.asarray(found), right, f"a batch of {name} along {way}")
        slope = jax.grad(lambda p, call=call: jax.vmap(call)(p, y).sum())(x)
        expect(slope.dtype.name, "bfloat16", f"the dtype of the gradient of a batch of {name}")
    found = jax.jit(jax.vmap(convolved))(placed(line, image, "d"), placed(line, kernel, "d"))
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float32), 3, axis=3)
    right = np.repeat(windows.sum((2, 4))[:, :, None], 3, 2)
    expect(np.asarray(found), right.astype(np.float32), "a batch of convolutions")


def _types_of_reshapes(line, grid):
    """Reshapes over Explicit axes that merge or split dimensions: the type of the result names every axis in order."""
    r, c = grid.devices.shape
    if r == 1 or c == 1:
        return
    shapes = (
        ((r, c, 8), P("x", "y", None), (r * c, 8), P(("x", "y"), None)),
        ((r, 2, 4 * c), P("x", None, "y"), (2 * r, 4 * c), P("x", "y")),
        ((r * c, 4), P(("x", "y"), None), (r, c, 4), P("x", "y", None)),
        ((2 * r, 4 * c), P("x", "y"), (r, 2, 4 * c), P("x", None, "y")),
        ((2 * r, 4 * c), P("x", "y"), (2 * r, c, 4), P("x", "y", None)),
        ((r * r,), P("x"), (r, r), P("x", None)),
        ((2 * r, 8), P("x", None), (16 * r,), P("x")),
        ((8, 4 * c), P(None, "y"), (8, c, 4), P(None, "y", None)),
        ((8, r, c), P(None, "x", "y"), (8, r * c), P(None, ("x", "y"))),
        ((2 * r, 1), P("x", None), (2 * r,), P("x")),
        ((2 * r,), P("x"), (1, 2 * r, 1), P(None, "x", None)),
    )
    with jax.set_mesh(explicit(grid)):
        for shape, spec, into, right in shapes:
            host = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            found = jax.jit(lambda v, into=into: v.reshape(into))(jax.device_put(host, spec))
            what = f"a reshape of {shape} over {spec} to {into}"
            expect(jax.typeof(found).sharding.spec, right, f"the type of {what}")
            expect(np.asarray(found), host.reshape(into), what)
            for shard in found.addressable_shards:
                expect(np.asarray(shard.data), host.reshape(into)[shard.index], f"a part of {what}")


def _types_over_mixed_axes(line, grid):
    """Over an automatic and an explicit axis a type names the explicit one, and draws lie where they are asked to."""
    m = Mesh(grid.devices, ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit))
    n = grid.size
    key, shape = jax.random.key(3), (n, 4)
    with jax.set_mesh(m):
        for spec, typed in (
            (P(("x", "y")), P("y")),
            (P(("y", "x")), P("y")),
            (P("y"), P("y")),
            (P("x"), P(None)),
        ):
            x = jax.device_put(np.arange(n, dtype=np.float32), NamedSharding(m, spec))
            expect(jax.typeof(x).sharding.spec, typed, f"the type of an array over {spec}")
            expect(x.sharding.spec, spec, f"the spec of an array over {spec}")
        draws: dict[str, Callable[..., Any]] = {
            "normal": lambda **o: jax.random.normal(key, shape, **o),
            "uniform": lambda **o: jax.random.uniform(key, shape, **o),
            "bits": lambda **o: jax.random.bits(key, shape, **o),
            "randint": lambda **o: jax.random.randint(key, shape, 0, 9, **o),
            "truncated_normal": lambda **o: jax.random.truncated_normal(key, -1.0, 1.0, shape, **o),
            "bernoulli": lambda **o: jax.random.bernoulli(key, 0.5, shape, **o),
            "exponential": lambda **o: jax.random.exponential(key, shape, **o),
        }
        for name, draw in draws.items():
            for way, run in (("eager", lambda f: f), ("compiled", jax.jit)):
                found = run(lambda draw=draw: draw(out_sharding=P("y", None)))()
                expect(
                    jax.typeof(found).sharding.spec, P("y", None), f"the type of {name} with a place, {way}"
                )
    whole = [np.asarray(jax.jit(draw)()) for draw in draws.values()]
    with jax.set_mesh(m):
        for (name, draw), right in zip(draws.items(), whole, strict=True):
            expect(np.asarray(draw(out_sharding=P("y", None))), right, f"{name} with a place")


def _layouts_of_results(line, grid):
    """A layout that is asked for is that of the result, for one to four dimensions; and its numbers are the same."""
    n = line.size
    place = NamedSharding(line, P("d"))
    for shape, orders in (
        ((2 * n, 3), ((0, 1), (1, 0))),
        ((2 * n, 3, 2), ((2, 1, 0), (1, 0, 2), (0, 2, 1))),
        ((n, 2, 3, 2), ((3, 2, 1, 0), (1, 3, 0, 2))),
    ):
        host = mixed(shape, 97, 7).astype(np.float32)
        x = jax.device_put(host, place)
        for order in orders:
            asked = Format(Layout(order), place)
            found = jax.jit(lambda v: v + 1, out_shardings=asked)(x)
            what = f"a result of {shape} in the order {order}"
            expect(tuple(found.format.layout.major_to_minor), order, f"the layout of {what}")
            expect(np.asarray(found), host + 1, what)
            moved = jax.device_put(x, asked)
            expect(tuple(moved.format.layout.major_to_minor), order, f"the layout of {what}, by device_put")
            expect(np.asarray(moved), host, f"{what}, by device_put")


def _shardings_told_to_rules(line, grid):
    """A rule of custom_partitioning is told the sharding of each argument, and of arguments of one rank apart."""
    if line.size == 1:
        return
    n = line.size
    told: list[tuple[Any, ...]] = []

    @custom_partitioning
    def weighted(a: Any, b: Any, c: Any) -> Any:
        return a * 2 + b.sum() * 0 + c.sum() * 0

    def infer(mesh: Any, arguments: Any, result: Any) -> Any:
        return NamedSharding(mesh, P("d", None))

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        told.append(tuple(tuple(argument.sharding.spec) for argument in arguments))
        places = [NamedSharding(mesh, P("d", None))] + [NamedSharding(mesh, P())] * 2
        return mesh, lambda a, b, c: a * 2 + b.sum() * 0 + c.sum() * 0, places[0], tuple(places)

    weighted.def_partition(
        partition=partition, infer_sharding_from_operands=infer, sharding_rule="i j, k l, m o -> i j"
    )
    host = mixed((n, n), 97, 7).astype(np.float32)
    for specs in ((("d",), (None, "d"), ()), (("d",), (), (None, "d")), (("d",), ("d",), (None, "d"))):
        told.clear()
        given = [placed(line, host, *spec) for spec in specs]
        with jax.set_mesh(line):
            found = jax.jit(lambda a, b, c: weighted(a, b, c))(*given)
        expect(np.asarray(found), 2 * host, f"a result by a rule over {specs}")
        seen = [tuple(part for part in spec if part is not None) for spec in told[-1]]
        where = [[k for k, part in enumerate(spec) if part == "d" or part == ("d",)] for spec in told[-1]]
        expect(
            where,
            [[k for k, part in enumerate(spec) if part == "d"] for spec in specs],
            f"what {seen} was told",
        )


COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "collective_permute")
"""The collectives of StableHLO."""


def _lowered_as_spelled(line, grid):
    """A collective of a region is lowered to the one operation of its kind, over one axis and over two."""
    n = grid.size
    calls: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
        "psum": ("all_reduce", lambda b, a: lax.psum(b, a)),
        "pmax": ("all_reduce", lambda b, a: lax.pmax(b, a)),
        "pmin": ("all_reduce", lambda b, a: lax.pmin(b, a)),
        "pmean": ("all_reduce", lambda b, a: lax.pmean(b, a)),
        "psum_scatter": ("reduce_scatter", lambda b, a: lax.psum_scatter(b, a, tiled=True)),
        "psum_scatter along the rows": (
            "reduce_scatter",
            lambda b, a: lax.psum_scatter(b, a, scatter_dimension=1, tiled=True),
        ),
        "all_gather": ("all_gather", lambda b, a: lax.all_gather(b, a, tiled=True)),
        "all_gather of a new dimension": ("all_gather", lambda b, a: lax.all_gather(b, a)),
        "all_to_all": ("all_to_all", lambda b, a: lax.all_to_all(b, a, 0, 1, tiled=True)),
        "ppermute": ("collective_permute", lambda b, a: lax.ppermute(b, a, [(0, 0)])),
    }
    host = np.ones((n, n, n), np.float32)
    for name, (kind, call) in calls.items():
        for axes in ("x", "y", ("x", "y"), ("y", "x")):
            devices = int(np.prod([grid.shape[axis] for axis in axes]))
            if devices == 1 or (name == "ppermute" and axes == ("y", "x")):
                continue  # one device exchanges nothing; newer releases refuse a turn in another order
            for dtype in (np.float32, np.int32):
                region = jax.shard_map(
                    lambda b, call=call, axes=axes: call(b[0], axes)[None],
                    mesh=grid,
                    in_specs=P(("x", "y")),
                    out_specs=P(("x", "y")),
                    check_vma=False,
                )
                text = jax.jit(region).lower(host.astype(dtype)).as_text()
                found = {one: text.count(f"stablehlo.{one}") for one in COLLECTIVES}
                right = {one: int(one == kind) for one in COLLECTIVES}
                expect(found, right, f"what {name} over {axes} of {np.dtype(dtype).name} is lowered to")


RULES_OF_WHAT_IS_KEPT: dict[str, Callable[..., None]] = {
    "facts_of_unreduced": _facts_of_unreduced,
    "stored_in_words": _stored_in_words,
    "types_of_batched_products": _types_of_batched_products,
    "types_of_reshapes": _types_of_reshapes,
    "types_over_mixed_axes": _types_over_mixed_axes,
    "layouts_of_results": _layouts_of_results,
    "shardings_told_to_rules": _shardings_told_to_rules,
    "lowered_as_spelled": _lowered_as_spelled,
}
