# SPDX-License-Identifier: Apache-2.0
"""Small rules of regions of shard_map and smap: nested ones, whole values, arguments without specs, shapes and choices
of Python inside.

Each has conditions that the tests of JAX name and that no other rule, form or operation has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.sharing import JIT, WAYS, numbers


def blocks_of(host: np.ndarray, parts: int, axis: int = 0) -> np.ndarray:
    """The blocks of an array along a dimension, stacked."""
    return np.stack(np.split(host, parts, axis))


def _smaps_in_smaps(line, grid):
    """smap inside of smap: along dimensions that in_axes name or that Explicit axes tell, with sums, with whole values,
    over Auto and Explicit axes and both."""
    if not hasattr(jax, "smap"):
        raise Missing("this release has no jax.smap")
    shape = grid.devices.shape
    rows, columns = 2 * shape[0], 3 * shape[1]
    host, row = numbers(rows, columns), numbers(columns, step=7)
    index = np.repeat(np.arange(shape[0]), 2)[:, None] * 10 + np.repeat(np.arange(shape[1]), 3)
    total = host.reshape(rows, shape[1], 3).sum(1)
    auto, typed = AxisType.Auto, AxisType.Explicit
    for kinds in ((auto, auto), (typed, typed), (typed, auto), (auto, typed)):
        m = Mesh(grid.devices, ("x", "y"), axis_types=kinds)
        inferred = kinds[0] == typed

        def cell(v: Any) -> Any:
            return v * 2 + lax.axis_index("x") * 10 + lax.axis_index("y")

        def summed(v: Any) -> Any:
            return lax.psum(v, "y")

        def beside(v: Any, r: Any) -> Any:
            return v * r

        def nested(body: Any, out: Any, *more: Any, m: Mesh = m, inferred: bool = inferred) -> Any:
            def outer(v: Any, *rest: Any) -> Any:
                inner = jax.smap(body, in_axes=(1, *more), out_axes=out, axis_name="y")
                return inner(v, *rest)

            # Along an Explicit axis in_axes may be left out: the type of the argument tells it.
            given = {} if inferred else {"in_axes": (0, *(None for _ in more))}
            return jax.smap(outer, out_axes=0, axis_name="x", **given)

        with jax.set_mesh(m):
            x = jax.device_put(host, NamedSharding(m, P("x", "y")))
            r = jax.device_put(row, NamedSharding(m, P("y") if kinds[1] == typed else P()))
            calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...], np.ndarray]] = {
                "indices": (nested(cell, 1), (x,), (host * 2 + index).astype(np.float32)),
                "a sum": (nested(summed, None), (x,), total),
                "a product with a part of a whole row": (nested(beside, 1, 0), (x, r), host * row),
            }
            for name, (call, given, right) in calls.items():
                # Without jit a whole value in a nested region and an axis of size 1 are rules of their own.
                for way, run in WAYS.items() if len(given) == 1 and 1 not in shape else JIT.items():
                    what = f"{name} in smap over y in smap over x, of {[k.name for k in kinds]} axes, {way},"
                    found = run(call)(*given)
                    expect(found.shape, right.shape, f"the shape of {what}")
                    on_each_device(found, right, what)
            call = calls["a product with a part of a whole row"][0]
            back = jax.jit(jax.grad(lambda v, r, f=call: (f(v, r) * host).sum(), argnums=1))(x, r)
            on_each_device(back, (host * host).sum(0), f"the gradient by the whole row, of {kinds} axes")
    m = line
    host = numbers(2 * m.size)
    with jax.set_mesh(m):
        for way, run in WAYS.items():
            both = jax.smap(
                lambda a, b: (a * 2, b * 3 + a[:2]), in_axes=(None, 0), out_axes=(None, 0), axis_name="d"
            )
            found = run(both)(host, host)
            on_each_device(found[0], host * 2, f"a whole result beside a cut one of smap, {way},")
            on_each_device(found[1], host * 3 + np.tile(host[:2], m.size), f"a cut result of smap, {way},")
            for result, spec in zip(found, (P(), P("d")), strict=True):
                same = result.sharding.is_equivalent_to(NamedSharding(m, spec), 1)
                expect(same, True, f"whether a result of smap lies over {spec}, {way},")
        left_out = jax.smap(lambda v: v * 2, out_axes=0, axis_name="d")
        refused("smap over an Auto axis without in_axes", "in_axes", lambda: left_out(host))


def _smaps_over_axes_of_one_device(line, grid):
    """smap inside of smap over an axis of one device, Auto and Explicit in each order: in jit, then without, where JAX
    breaks a mesh with both kinds."""
    if not hasattr(jax, "smap"):
        raise Missing("this release has no jax.smap")
    n = line.size
    host = numbers(2 * n, 3 * n)
    auto, typed = AxisType.Auto, AxisType.Explicit
    every = ((auto, auto), (typed, typed), (auto, typed), (typed, auto))
    for way, run in reversed(WAYS.items()):
        for shape in ((n, 1), (1, n)):
            for kinds in every:
                m = Mesh(line.devices.reshape(shape), ("x", "y"), axis_types=kinds)

                def outer(v: Any) -> Any:
                    return jax.smap(
                        lambda b: b * 2 + lax.axis_index("x"), in_axes=1, out_axes=1, axis_name="y"
                    )(v)

                with jax.set_mesh(m):
                    x = jax.device_put(host, NamedSharding(m, P("x", "y")))
                    found = run(jax.smap(outer, in_axes=0, out_axes=0, axis_name="x"))(x)
                index = np.repeat(np.arange(shape[0], dtype=np.float32), 2 * n // shape[0])[:, None]
                what = f"smap in smap over {dict(m.shape)} of {[k.name for k in kinds]} axes, {way},"
                on_each_device(found, 2 * host + index, what)


def _whole_values_in_nested_eager_regions(line, grid):
    """A region over one axis inside of one over another, without jit, with a value that is whole in the outer one: cut
    or whole in the inner one. In jit first; without it JAX breaks it."""
    shape = grid.devices.shape
    host, row = numbers(2 * shape[0], 3 * shape[1]), numbers(3 * shape[1], step=7)
    specs = {"cut": (P("y"), row), "whole": (P(), np.tile(row[:3], shape[1]))}
    for way, run in reversed(WAYS.items()):
        for name, (spec, added) in specs.items():
            for check in (True, False):
                inner = jax.shard_map(
                    lambda v, r: v * 2 + r[:3],
                    in_specs=(P(None, "y"), spec),
                    out_specs=P(None, "y"),
                    axis_names={"y"},
                    check_vma=check,
                )
                outer = jax.shard_map(
                    lambda v, r, inner=inner: inner(v, r),
                    in_specs=(P("x"), P()),
                    out_specs=P("x"),
                    axis_names={"x"},
                    check_vma=check,
                )
                with jax.set_mesh(grid):
                    found = run(outer)(host, row)
                what = f"a value that is whole outside and {name} inside, with check_vma={check}, {way},"
                on_each_device(found, host * 2 + added, what)


def _arguments_without_specs(line, grid):
    """Arguments of a region whose in_spec is None are given to its function as they are: strings, numbers, functions,
    None and trees of them, between arrays, also in jit and under derivatives."""
    n = line.size
    host, by = numbers(2 * n), numbers(2 * n, step=7)
    x = placed(line, host, "d")
    own = object()
    seen: list[Any] = []

    def first(o: Any, v: Any) -> Any:
        seen.append(o)
        return v * 3

    def last(v: Any, o: Any) -> Any:
        return first(o, v)

    region = jax.shard_map(first, mesh=line, in_specs=(None, P("d")), out_specs=P("d"))
    other = jax.shard_map(last, mesh=line, in_specs=(P("d"), None), out_specs=P("d"))
    for given in (own, None, "words", (own, "words", None), {"a": own, "b": [None, 7]}):
        for way, run in WAYS.items():
            for name, call in (
                ("before", lambda v, o=given: region(o, v)),
                ("after", lambda v, o=given: other(v, o)),
            ):
                seen.clear()
                on_each_device(
                    run(call)(x), host * 3, f"a region with {type(given).__name__} {name} an array, {way},"
                )
                same = bool(seen) and all(type(s) is type(given) for s in seen)
                expect(
                    same, True, f"whether a region is given {type(given).__name__} {name} an array, {way},"
                )
                leaves = jax.tree.leaves(given)
                for s in seen:
                    same = all(a is b for a, b in zip(jax.tree.leaves(s), leaves, strict=True))
                    expect(same, True, f"whether a region is given the same objects {name} an array, {way},")
    mixed_up = jax.shard_map(
        lambda f, v, t, w: f(v) * t["power"][0] + (w if t["name"] == "plus" else -w),
        mesh=line,
        in_specs=(None, P("d"), {"power": (None,), "name": None}, P()),
        out_specs=P("d"),
    )
    small = host[:2]
    for sign in ("plus", "minus"):

        def call(v: Any, w: Any, sign: str = sign) -> Any:
            return mixed_up(lambda a: a * a, v, {"power": (3,), "name": sign}, w)

        signed = np.tile(small if sign == "plus" else -small, n)
        for way, run in WAYS.items():
            what = f"a region with a function and a tree without specs that says {sign}, {way},"
            on_each_device(run(call)(x, small), 3 * host**2 + signed, what)
            back = run(jax.grad(lambda v, w, f=call: (f(v, w) * by).sum(), argnums=(0, 1)))(x, small)
            on_each_device(back[0], 6 * host * by, f"the gradient of {what}")
            right = by.reshape(n, 2).sum(0) * (1 if sign == "plus" else -1)
            on_each_device(back[1], right, f"the gradient by a whole argument of {what}")
    static = jax.jit(
        lambda v, shape: jax.shard_map(
            lambda b, s: b + jnp.ones(s, b.dtype), mesh=line, in_specs=(P("d"), None), out_specs=P("d")
        )(v, shape),
        static_argnums=1,
    )
    on_each_device(static(x, (2,)), host + 1, "a region with a static shape without a spec")


def _choices_of_python_in_eager_regions(line, grid):
    """`if`, `while` and `int` of a value that all devices share, in an eager region, choose for all of them; of a value
    that varies, or in jit, they are refused."""
    n = line.size
    host = numbers(2 * n)
    host[0] += 1 - host.sum() % 2  # an odd sum
    total = int(host.sum())

    def chosen(b: Any) -> Any:
        s = lax.psum(b.sum(), "d")
        return b * 2 if s < 0 else -b

    def turns(b: Any) -> Any:
        s = lax.pmax(jnp.abs(b).max(), "d")
        while s > 1:
            s, b = s / 2, b + 1
        return b

    def count(b: Any) -> Any:
        return b * int(lax.psum(b.sum(), "d"))

    steps, most = 0, float(np.abs(host).max())
    while most > 1:
        most, steps = most / 2, steps + 1
    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "if": (chosen, host * 2 if total < 0 else -host),
        "while": (turns, host + steps),
        "int": (count, host * total),
    }
    for m, spec in ((line, P("d")), (explicit(line), P("d"))):
        for check in (True, False):
            for name, (call, right) in calls.items():
                region = jax.shard_map(call, mesh=m, in_specs=spec, out_specs=spec, check_vma=check)
                what = f"{name} of a sum in an eager region with check_vma={check}"
                if check:
                    on_each_device(region(placed(m, host, "d")), right, what)
                words = "Concretization|Tracer.*Error|traced"
                refused(f"{what}, in jit,", words, lambda f=region, m=m: jax.jit(f)(placed(m, host, "d")))


def _shapes_in_regions(line, grid):
    """Parts without elements, unused halves, dynamic starts, histograms and places of the largest element in checked
    regions, and their gradients."""
    n = line.size
    host, by = numbers(2, 4 * n), numbers(2, 4 * n, step=7)

    def over(block: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return jax.shard_map(block, in_specs=P(None, "d"), out_specs=P(None, "d"))

    def halves(v: Any) -> Any:
        _, second = jnp.split(v, 2, axis=1)
        return second * second

    def part(v: Any) -> Any:
        return lax.dynamic_slice_in_dim(v, jnp.int32(1), 2, axis=1) * 3

    cut = host.reshape(2, n, 4)
    weights = by.reshape(2, n, 4)[:, :, :2]
    zeros = np.zeros_like(cut)
    back_of_halves, back_of_part = zeros.copy(), zeros.copy()
    back_of_halves[:, :, 2:] = 2 * cut[:, :, 2:] * weights
    back_of_part[:, :, 1:3] = 3 * weights
    flat = weights.reshape(2, 2 * n)
    slopes: dict[str, tuple[Callable[[Any], Any], np.ndarray, np.ndarray]] = {
        "the second half": (halves, cut[:, :, 2:] ** 2, back_of_halves),
        "a dynamic part": (part, 3 * cut[:, :, 1:3], back_of_part),
    }
    bins = np.array([-9.5, -3, 0, 4, 20], np.float32)
    counts = np.stack([[np.histogram(c, bins)[0] for c in row] for row in cut]).astype(np.float32)
    places = cut.argmax(-1).astype(np.int32)
    for m in (line, explicit(line)):
        with jax.set_mesh(m):
            x = jax.device_put(host, NamedSharding(m, P(None, "d")))
            for way, run in WAYS.items() if m is line else JIT.items():
                for name, (call, right, back) in slopes.items():
                    what = f"{name} of each block in a region, {way},"
                    found, pull = jax.vjp(run(over(call)), x)
                    on_each_device(found, right.reshape(2, 2 * n), what)
                    given = jax.device_put(flat, NamedSharding(m, P(None, "d")))
                    on_each_device(pull(given)[0], back.reshape(2, 4 * n), f"the gradient of {what}")
                empty = run(over(lambda v: v[:, 100:116]))(x)
                expect(
                    (empty.shape, empty.dtype), ((2, 0), np.dtype(np.float32)), f"a part past the end, {way},"
                )
                counted = run(over(lambda v: jax.vmap(lambda q: jnp.histogram(q, bins=bins)[0])(v)))(x)
                on_each_device(counted, counts.reshape(2, 4 * n), f"histograms of the rows of blocks, {way},")
                largest = run(over(lambda v: v.argmax(-1, keepdims=True).astype(np.int32)))(x)
                on_each_device(largest, places, f"places of the largest in rows of blocks, {way},")

    def filled() -> Any:
        row = lax.pcast(jnp.array([10, 11], np.int32), "d", to="varying")
        number = lax.pcast(jnp.int32(-1), "d", to="varying") * lax.axis_index("d")
        return jnp.full_like(row, number)

    region = jax.shard_map(filled, mesh=line, in_specs=(), out_specs=P("d"))
    for way, run in WAYS.items():
        right = np.repeat(-np.arange(n, dtype=np.int32), 2)
        on_each_device(run(region)(), right, f"full_like of a varying row by a varying number, {way},")


RULES_OF_TESTED_REGIONS: dict[str, Callable[..., None]] = {
    "smaps_in_smaps": _smaps_in_smaps,
    "smaps_over_axes_of_one_device": _smaps_over_axes_of_one_device,
    "whole_values_in_nested_eager_regions": _whole_values_in_nested_eager_regions,
    "arguments_without_specs": _arguments_without_specs,
    "choices_of_python_in_eager_regions": _choices_of_python_in_eager_regions,
    "shapes_in_regions": _shapes_in_regions,
}
