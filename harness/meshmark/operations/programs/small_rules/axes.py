# SPDX-License-Identifier: Apache-2.0
"""Small rules: loops with each of their options in regions and over Explicit axes, regions whose specs are inferred,
auto_axes and explicit_axes of some axes, and calls over Explicit axes that are refused or say where results lie."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device

LENGTH = 5


def _sums(v: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """Sums along an axis from its beginning, or from its end."""
    turned = np.flip(v, axis) if reverse else v
    sums = np.cumsum(turned, axis, dtype=np.float32 if v.dtype == jnp.bfloat16 else v.dtype).astype(v.dtype)
    return np.flip(sums, axis) if reverse else sums


Looped = dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], Any]]]


def _scans() -> Looped:
    """Scans in both directions, unrolled, of arrays, trees and numbers of turns, with their answers."""
    members: Looped = {}
    for reverse in (False, True):
        for unroll in (1, 2, 3, True):

            def scan(x, reverse=reverse, unroll=unroll):
                def step(carry, row):
                    carry = carry + row["a"]
                    return carry, (carry, row["b"])

                rows = {"a": x, "b": jnp.arange(LENGTH, dtype=jnp.int16)}
                return lax.scan(step, 0 * x[0], rows, reverse=reverse, unroll=unroll)

            def answer(x, reverse=reverse):
                sums = _sums(x, 0, reverse)
                return sums[0 if reverse else -1], (sums, np.arange(LENGTH, dtype=np.int16))

            def turns(x, reverse=reverse, unroll=unroll):
                def step(c, _):
                    return (c[0] + 1, c[1] + c[0] * x[0]), c[1]

                start = (jnp.zeros((), x.dtype), 0 * x[0])
                return lax.scan(step, start, None, 5, reverse=reverse, unroll=unroll)[1]

            def counted(x, reverse=reverse):
                rows = np.stack([k * x[0].astype(np.float32) for k in (0, 0, 1, 3, 6)])
                return (rows[::-1] if reverse else rows).astype(x.dtype)

            words = f"reverse={reverse}, unroll={unroll}"
            members[f"a scan of a tree, {words}"] = (scan, answer)
            members[f"a scan of five turns, {words}"] = (turns, counted)
    return members


def _other_loops() -> Looped:
    """Maps in batches, loops that are unrolled, and cumulative functions in both directions, with their answers."""
    members: Looped = {}
    for size in (None, 1, 2, 3, LENGTH, 9):
        members[f"a map in batches of {size}"] = (
            lambda x, size=size: lax.map(lambda r: (r + r, r[0]), x, batch_size=size),
            lambda x: (x + x, x[:, 0]),
        )
    for unroll in (1, 2, True):
        members[f"a fori_loop, unroll={unroll}"] = (
            lambda x, u=unroll: lax.fori_loop(1, 4, lambda i, c: c + x[i] - x[4 - i], x[0], unroll=u),
            lambda x: x[0],
        )
        members[f"a fori_loop that writes, unroll={unroll}"] = (
            lambda x, u=unroll: lax.fori_loop(
                2, LENGTH, lambda i, c: c.at[i].set(c[i - 2] + x[i]), x, unroll=u
            ),
            lambda x: np.concatenate(
                [x[:2]]
                + [
                    x[k % 2 : k + 1 : 2].astype(np.float32).sum(0, keepdims=True).astype(x.dtype)
                    for k in range(2, LENGTH)
                ]
            ),
        )
    members["a while loop"] = (
        lambda x: lax.while_loop(lambda s: s[0] > 2, lambda s: (s[0] - 1, s[1] + x[s[0]]), (4, 0 * x[0]))[1],
        lambda x: _sums(x[3:], 0, False)[-1],
    )
    for reverse in (False, True):
        for axis in (0, 1):

            def pairs(x, reverse=reverse, axis=axis):
                def join(a, b):
                    return a[0] + b[0], b[1]

                return lax.associative_scan(join, (x, -x), reverse=reverse, axis=axis)

            def paired(x, reverse=reverse, axis=axis):
                return _sums(x, axis, reverse), -x

            words = f"reverse={reverse}, axis={axis}"
            members[f"an associative_scan, {words}"] = (pairs, paired)
            members[f"cumsum, {words}"] = (
                partial(lax.cumsum, axis=axis, reverse=reverse),
                partial(_sums, axis=axis, reverse=reverse),
            )
            for name, f, g in (("cummax", lax.cummax, np.maximum), ("cummin", lax.cummin, np.minimum)):

                def run(x, g=g, axis=axis, reverse=reverse):
                    turned = np.flip(x, axis) if reverse else x
                    done = g.accumulate(turned, axis)
                    return np.flip(done, axis) if reverse else done

                members[f"{name}, {words}"] = (partial(f, axis=axis, reverse=reverse), run)
    return members


def _loop_slopes() -> Looped:
    """Gradients of loops in both directions: each row has another weight."""
    members: Looped = {}
    for reverse in (False, True):
        for axis in (0, 1):

            def cumulative(x, reverse=reverse, axis=axis):
                return jax.grad(lambda v: (lax.cumsum(v, axis, reverse=reverse) * x).sum())(x)

            def paired(x, reverse=reverse, axis=axis):
                def loss(v):
                    return (lax.associative_scan(jnp.add, v, reverse=reverse, axis=axis) * x).sum()

                return jax.grad(loss)(x)

            answer = partial(_sums, axis=axis, reverse=not reverse)
            members[f"the gradient of cumsum, reverse={reverse}, axis={axis}"] = (cumulative, answer)
            members[f"the gradient of associative_scan, reverse={reverse}, axis={axis}"] = (paired, answer)
        for unroll in (1, 2):

            def scanned(x, reverse=reverse, unroll=unroll):
                def loss(v):
                    def step(c, r):
                        return c + r, c + r

                    return (lax.scan(step, 0 * v[0], v, reverse=reverse, unroll=unroll)[1] * x).sum()

                return jax.grad(loss)(x)

            members[f"the gradient of a scan, reverse={reverse}, unroll={unroll}"] = (
                scanned,
                partial(_sums, axis=0, reverse=not reverse),
            )
    return members


def _hold_loops(found: dict[str, Any], members: Looped, host: np.ndarray, where: str) -> None:
    """RuntimeError if a result of a block is not its answer."""
    for name, (_, answer) in members.items():
        leaves = zip(jax.tree.leaves(found[name]), jax.tree.leaves(answer(host)), strict=True)
        for seen, right in leaves:
            expect(np.asarray(seen), np.asarray(right), f"{name}, {where},")


def _in_regions(mesh: Any, axes: tuple[str, ...], members: Looped, kind: Any, check_vma: bool) -> None:
    """Run all members in a region, and compare each device's block."""
    host = mixed((LENGTH * mesh.size, 3, 2), 9, 7).astype(kind)

    def body(block):
        return jax.tree.map(lambda v: v[None], {name: f(block) for name, (f, _) in members.items()})

    found = jax.device_get(mapped(body, mesh, P(axes), P(axes), check_vma=check_vma)(host))
    for k, block in enumerate(np.split(host, mesh.size)):
        one = jax.tree.map(lambda v, k=k: v[k], found)
        _hold_loops(one, members, block, f"of {np.dtype(kind).name}, in block {k} of a region over {axes}")


def _region_loops(line, grid):
    """Loops, maps and cumulative functions with each option, in regions."""
    _in_regions(line, ("d",), {**_scans(), **_other_loops()}, np.int32, check_vma=True)
    _in_regions(grid, ("y", "x"), {**_scans(), **_loop_slopes()}, np.float32, check_vma=False)


def _typed_options(line, grid):
    """Loops, maps and cumulative functions with each option, over Explicit axes."""
    typed = explicit(grid)
    for kind, spec, members in (
        (np.float32, P(None, None, ("y", "x")), {**_scans(), **_loop_slopes()}),
        (jnp.bfloat16, P(None, None, "x"), _other_loops()),
    ):
        host = mixed((LENGTH, 3, 2 * grid.size), 9, 7).astype(kind)
        with jax.set_mesh(typed):
            found = jax.jit(lambda v, m=members: {name: f(v) for name, (f, _) in m.items()})(
                placed(typed, host, *spec)
            )
        _hold_loops(found, members, host, f"of {np.dtype(kind).name} over {spec}")


SPECS = (
    P("x"),
    P("y"),
    P(("x", "y")),
    P(("y", "x")),
    P("x", "y"),
    P("y", "x"),
    P(None, ("y", "x")),
    P(None, "x"),
)


def _named(spec: Any) -> list[str]:
    """The axes of a spec, in its order."""
    return [a for part in spec for a in (part if isinstance(part, tuple) else (part,)) if a]


def _without(spec: Any, gone: set[str]) -> list[Any]:
    """The axes of each dimension of a spec, but for some."""
    parts = [part if isinstance(part, tuple) else (part,) for part in spec]
    return [tuple(a for a in part if a and a not in gone) for part in parts]


def spread(spec: Any, rank: int = 2) -> list[Any]:
    """The axes of each dimension of an array of this rank over a spec."""
    return [*_without(spec, set()), *[()] * rank][:rank]


def _inferred_regions(line, grid):
    """Regions whose in_specs follow from the types of their arguments: each device has the block that it holds."""
    typed = explicit(grid)
    size = 2 * grid.size
    host = mixed((size, size), 97, 7).astype(np.float32)
    other = mixed((size, 3), 97, 5).astype(np.float32)
    devices = list(typed.devices.ravel())
    with jax.set_mesh(typed):
        for spec in SPECS:
            x = placed(typed, host, *spec)
            names = _named(spec)
            columns = P(*spec[:1])
            y = placed(typed, other, *columns)

            def body(v, tree, names=names):
                index = lax.axis_index(tuple(names)).astype(np.float32)
                return 2 * v + 1000 * index, tree["y"] + 1

            run = jax.jit(jax.shard_map(body, out_specs=(spec, columns)))
            found, second = run(x, {"y": y})
            for shard in found.addressable_shards:
                place = np.unravel_index(devices.index(shard.device), typed.devices.shape)
                sizes = [typed.shape[a] for a in names]
                index = np.ravel_multi_index([place[typed.axis_names.index(a)] for a in names], sizes)
                right = 2 * host[shard.index] + 1000 * np.float32(index)
                expect(np.asarray(shard.data), right, f"a region of an array over {spec}, on {shard.device},")
            on_each_device(second, other + 1, f"a region of an array over {columns} in a tree")
        for spec, name in ((P("x", "y"), "x"), (P("y", "x"), "x"), (P(("y", "x")), "y"), (P("x", "y"), "y")):
            manual = P(*(a if isinstance(a, str) and a == name else None for a in spec))
            if isinstance(spec[0], tuple):
                manual = P(name)
            part = jax.jit(jax.shard_map(lambda v: 2 * v, out_specs=manual, axis_names={name}))
            what = f"a region over {name} of an array over {spec}"
            on_each_device(part(placed(typed, host, *spec)), 2 * host, what)


def _axes_of_types(line, grid):
    """auto_axes and explicit_axes of some axes or all: the types inside, the values, and where the results lie."""
    size = 2 * grid.size
    host = mixed((size, size), 97, 7).astype(np.float32)
    names = set(grid.axis_names)
    for axes in ("x", "y", ("x", "y"), ("y",), None):
        chosen = names if axes is None else {axes} if isinstance(axes, str) else set(axes)
        for spec in SPECS:
            seen: list[Any] = []

            def noted(v, seen=seen):
                seen.append((spread(jax.typeof(v).sharding.spec), jax.sharding.get_abstract_mesh()))
                return 2 * v

            typed = explicit(grid)
            with jax.set_mesh(typed):
                run = jax.sharding.auto_axes(noted, axes=axes, out_sharding=spec)
                found = jax.jit(run)(placed(typed, host, *spec))
            _check_axes(f"auto_axes({axes}) over {spec}", seen, _without(spec, chosen), names - chosen)
            on_each_device(found, 2 * host, f"auto_axes({axes}) over {spec}")
            there = NamedSharding(typed, spec)
            wrong(
                not found.sharding.is_equivalent_to(there, 2),
                f"auto_axes({axes}) over {spec} lies over {found.sharding}",
            )
            seen.clear()
            with jax.set_mesh(grid):
                kept = P(*(part or None for part in _without(spec, names - chosen)))
                run = jax.sharding.explicit_axes(noted, axes=axes, in_sharding=kept)
                found = jax.jit(run)(placed(grid, host, *spec))
            _check_axes(f"explicit_axes({axes}) over {spec}", seen, _without(kept, set()), chosen)
            on_each_device(found, 2 * host, f"explicit_axes({axes}) over {spec}")


def _check_axes(what: str, seen: list[Any], right: list[Any], names: set[str]) -> None:
    """RuntimeError if a function inside saw another type, or other Explicit axes."""
    wrong(not seen, f"the function of {what} did not run")
    for parts, mesh in seen:
        wanted = [*right, (), ()][:2]
        wrong(parts != wanted, f"the type inside of {what} is {parts} instead of {wanted}")
        kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
        found = {name for name, kind in kinds if kind == AxisType.Explicit}
        wrong(found != names, f"inside of {what} the Explicit axes are {sorted(found)}, not {sorted(names)}")


def _mismatched_types(line, grid):
    """Functions over Explicit axes of two arrays that lie otherwise are refused, and those of arrays that lie alike
    keep their type."""
    typed = explicit(grid)
    if grid.size == 1:
        return
    size = 2 * grid.size
    host = mixed((size, size), 97, 7).astype(np.float32)
    one_by_one: dict[str, Callable[..., Any]] = {
        "a sum": lambda a, b: a + b,
        "a maximum": jnp.maximum,
        "a comparison": lambda a, b: a < b,
        "atan2": jnp.arctan2,
        "complex": lax.complex,
    }
    members: dict[str, Callable[..., Any]] = {
        "select": lambda a, b: lax.select(a > 3, a, b),
        "where": lambda a, b: jnp.where(a > 3, a, b),
        "dynamic_update_slice": lambda a, b: lax.dynamic_update_slice(a, b, (0, 0)),
        "dynamic_update_slice at a traced place": lambda a, b: lax.dynamic_update_slice(
            a, b, (jnp.int32(0), jnp.int32(0))
        ),
        "dynamic_update_slice_in_dim": lambda a, b: lax.dynamic_update_slice_in_dim(a, b, 0, 1),
        "dynamic_update_slice of a part": lambda a, b: lax.dynamic_update_slice(a, b[: len(b) // 2], (1, 0)),
        "concatenate": lambda a, b: lax.concatenate([a, b], 0),
        "a loop's carry": lambda a, b: lax.fori_loop(0, 2, lambda i, c: b, a),
        "a scan's carry": lambda a, b: lax.scan(lambda c, _: (b, None), a, None, 2)[0],
        "the branches of cond": lambda a, b: lax.cond(a.sum() > 0, lambda: a, lambda: b),
        "the branches of switch": lambda a, b: lax.switch(a.sum().astype(int), [lambda: a, lambda: b]),
    }
    apart = [(P("x", "y"), P("y", "x")), (P(None, "x"), P("x")), (P("x"), P("y"))]
    near = [(P("x"), P(None, "y")), (P("x"), P()), (P(), P(None, "x")), (P(("x", "y")), P(("y", "x")))]
    words = "ShardingTypeError|differ|equal types"
    with jax.set_mesh(typed):
        for here, there in (*apart, *near):
            a, b = placed(typed, host, *here), placed(typed, host, *there)
            chosen = {**one_by_one, **members} if (here, there) in apart else members
            for name, f in chosen.items():
                what = f"{name} of arrays over {here} and {there}"
                refused(what, words, lambda f=f, a=a, b=b: jax.eval_shape(f, a, b))
                if name.endswith("a part"):
                    continue
                spec = jax.eval_shape(f, a, a).sharding.spec
                alike = spread(spec) == spread(here)
                wrong(not alike, f"{name} of two arrays over {here} has the type {spec}")


def _filled_reads(typed: Any) -> None:
    """Reads by places in and out of range, in each mode, whose results lie where `out_sharding` says."""
    size = 2 * typed.size
    places = np.array([1, 99 * size, 0, -1, -size - 1, size, 1, size - 1] * typed.size, np.int32)
    for kind in (np.float32, jnp.bfloat16, np.int8, bool):
        host = (mixed((size, 4), 2 if kind is bool else 90, 7) + (kind is not bool)).astype(kind)
        least = True if kind is bool else np.iinfo(np.int8).min if kind is np.int8 else np.nan
        ends = np.array(least, kind)
        options: dict[str, tuple[dict[str, Any], Any]] = {
            "fill": ({"mode": "fill"}, ends),
            "fill with 7": ({"mode": "fill", "fill_value": 7}, np.asarray(7, kind)),
            "fill with 0": ({"mode": "fill", "fill_value": 0}, np.asarray(0, kind)),
            "clip": ({"mode": "clip"}, None),
            "drop to 1": ({"mode": "drop", "fill_value": 1}, np.asarray(1, kind)),
        }
        within = np.where(places < 0, places + size, places)
        inside = (within >= 0) & (within < size)
        near = host[np.clip(within, 0, size - 1)]
        for here, there in (
            (P("x"), P()),
            (P("x"), P("y")),
            (P(), P("x", "y")),
            (P(None, "y"), P(None, "y")),
        ):
            x = (
                placed(typed, host, *here)
                if here != P(None, "y")
                else placed(typed, host[:, :2].repeat(2, 1))
            )
            given = np.asarray(x)
            near = given[np.clip(within, 0, size - 1)]

            def all_of(v, options=options, there=there):
                return {name: v.at[places].get(**o, out_sharding=there) for name, (o, _) in options.items()}

            found = jax.jit(all_of)(x)
            eager = x.at[places].get(**options["fill with 7"][0], out_sharding=there)
            for name, seen in (*found.items(), ("fill with 7", eager)):
                fill = options[name][1]
                right = near if fill is None else np.where(inside[:, None], near, fill).astype(kind)
                words = f"a read of {np.dtype(kind).name} over {here} by {name} to {there}"
                on_each_device(seen, right, words)
                place = NamedSharding(typed, there)
                wrong(not seen.sharding.is_equivalent_to(place, 2), f"{words} lies over {seen.sharding}")


def _preferred_products(typed: Any) -> None:
    """Products of short floats and integers whose results have a wider dtype, over each place of their result."""
    size = 2 * typed.size
    for kind, wide in ((jnp.bfloat16, np.float32), (np.float16, np.float32), (np.int8, np.int32)):
        host = (mixed((size, size), 100, 7) + 20).astype(kind)
        right = host.astype(np.int64) @ host.astype(np.int64)
        given = {
            "that cut what is added": (P(None, "x"), P("x")),
            "that cut rows": (P("x"), P()),
            "that cut rows and columns": (P("x"), P(None, "y")),
        }
        for place, (one, other) in given.items():
            a, b = placed(typed, host, *one), placed(typed, host, *other)
            for spec in (P(), P("x"), P(None, "y")):
                if place != "that cut what is added" and spec != P("x"):
                    continue
                o: dict[str, Any] = {"preferred_element_type": wide, "out_sharding": spec}
                if place == "that cut rows and columns":
                    o["out_sharding"] = P("x", "y")
                members: dict[str, Callable[..., Any]] = {
                    "dot": lambda a, b, o=o: jnp.dot(a, b, **o),
                    "matmul": lambda a, b, o=o: jnp.matmul(a, b, **o),
                    "tensordot": lambda a, b, o=o: jnp.tensordot(a, b, 1, **o),
                    "einsum": lambda a, b, o=o: jnp.einsum("ij,jk->ik", a, b, **o),
                    "lax.dot": lambda a, b, o=o: lax.dot(a, b, **o),
                    "dot_general": lambda a, b, o=o: lax.dot_general(a, b, (((1,), (0,)), ((), ())), **o),
                }
                found = jax.jit(lambda a, b, m=members: {name: f(a, b) for name, f in m.items()})(a, b)
                there = NamedSharding(typed, o["out_sharding"])
                for name, seen in found.items():
                    words = f"{name} of {np.dtype(kind).name} arrays {place}, to {o['out_sharding']}"
                    expect(seen.dtype, np.dtype(wide), f"the dtype of {words}")
                    expect(np.asarray(seen), right.astype(wide), words)  # below 2^24: exact
                    wrong(not seen.sharding.is_equivalent_to(there, 2), f"{words} lies over {seen.sharding}")


def _typed_reads(line, grid):
    """Reads and products whose options say what fills them, how wide they are, and where they lie."""
    typed = explicit(grid)
    with jax.set_mesh(typed):
        _filled_reads(typed)
        _preferred_products(typed)


RULES_OF_AXES: dict[str, Callable[..., None]] = {
    "region_loops": _region_loops,
    "typed_options": _typed_options,
    "inferred_regions": _inferred_regions,
    "axes_of_types": _axes_of_types,
    "mismatched_types": _mismatched_types,
    "typed_reads": _typed_reads,
}
