# SPDX-License-Identifier: Apache-2.0
"""Programs over two meshes of the same devices with other axis sizes: arguments, constraints, regions and results.

Each program names the placement of its results by a constraint or a region, with and without `out_shardings`.
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

from meshmark.operations.programs.forms.base import at, run_jitted
from meshmark.operations.programs.forms.options import wrong


def sizes_of(number: int) -> tuple[int, int]:
    """Two factors of a number of devices, the smaller prime first: 2x4 of 8, 2x3 of 6, 3x1 of 3."""
    first = next((p for p in range(2, number + 1) if number % p == 0), 1)
    return first, number // first


def two(mesh: Any) -> tuple[Mesh, Mesh]:
    """Two meshes of the same devices in the same order: p x q over "a" and "b", and q x p over "u" and "v"."""
    devices, (p, q) = mesh.devices.ravel(), sizes_of(mesh.size)
    auto = (AxisType.Auto,) * 2
    return (
        Mesh(devices.reshape(p, q), ("a", "b"), axis_types=auto),
        Mesh(devices.reshape(q, p), ("u", "v"), axis_types=auto),
    )


def line(mesh: Any) -> Mesh:
    """The same devices over one axis "c"."""
    return Mesh(mesh.devices.ravel(), ("c",), axis_types=(AxisType.Auto,))


def matrix(mesh: Any) -> np.ndarray:
    """A square matrix of small whole numbers, which each mesh of the devices divides."""
    side = 2 * mesh.size
    return (np.arange(side * side) % 7).astype(np.float32).reshape(side, side)


def lies(found: Any, right: np.ndarray, place: NamedSharding, what: str) -> None:
    """RuntimeError unless an array has these values, on each device those of its shard, and this placement."""
    wrong(found.shape != right.shape, f"{what} has the shape {found.shape} instead of {right.shape}")
    for shard in found.addressable_shards:
        held = np.asarray(shard.data)
        wrong(
            not np.array_equal(held, right[shard.index]), f"{what} is wrong on {shard.device}: {held}"[:300]
        )
    wrong(
        not found.sharding.is_equivalent_to(place, found.ndim),
        f"{what} lies over {found.sharding.spec} of {dict(found.sharding.mesh.shape)}"
        f" instead of {place.spec} of {dict(place.mesh.shape)}",
    )


def constrained(mesh: Any, places: tuple[NamedSharding, ...], named: bool) -> None:
    """Judge one program with a result for each placement, which is constrained there."""
    x = matrix(mesh)

    def program(v):
        return tuple(lax.with_sharding_constraint(v + k, place) for k, place in enumerate(places))

    run = jax.jit(program, out_shardings=places) if named else jax.jit(program)
    for k, found in enumerate(run(x)):
        lies(found, x + k, places[k], f"result {k + 1} of {len(places)}, constrained to {places[k].spec}")


def _other_names(mesh, a, x):
    """Two meshes of the same sizes: other names, axes on other dimensions, devices in order."""
    p, q = sizes_of(mesh.size)
    one = two(mesh)[0]
    again = Mesh(mesh.devices.reshape(p, q), ("u", "v"), axis_types=(AxisType.Auto,) * 2)
    for specs in ((P("a", "b"), P("v", "u")), (P("a"), P("u")), (P(None, "b"), P(None, ("u", "v")))):
        for named in (False, True):
            constrained(mesh, (at(one, *specs[0]), at(again, *specs[1])), named)
    return run_jitted(mesh, a, x)


def _named_results(mesh, a, x):
    """With out_shardings: constraints, arguments, regions and gradients over two meshes."""
    one, other = two(mesh)
    flat = line(mesh)
    here, there = at(one, "a", "b"), at(other, "u", "v")
    constrained(mesh, (here, there), True)
    constrained(mesh, (there, here), True)
    constrained(mesh, (at(flat, "c"), here), True)
    constrained(mesh, (here, at(flat, "c"), there), True)
    x_ = matrix(mesh)
    given, turned = jax.device_put(x_, here), jax.device_put(x_, there)
    moved = jax.jit(lambda v: lax.with_sharding_constraint(v, there) + 1, out_shardings=there)(given)
    lies(moved, x_ + 1, there, "an argument that is constrained to another mesh")
    places = (here, there, here)
    for name, (left, right) in {"one way": (given, turned), "the other way": (turned, given)}.items():
        found = jax.jit(lambda v, w: (2 * v, 3 * w, v + w), out_shardings=places)(left, right)
        for r, k, place in zip(found, (2, 3, 2), places, strict=True):
            lies(r, k * x_, place, f"a result of two arguments over two meshes, {name}")
    found = jax.jit(_regions(one, other), out_shardings=there)(x_)
    lies(found, _regions_of(x_, other), there, "a region over one mesh after one over another")
    slopes = jax.jit(jax.grad(_loss(there), argnums=(0, 1)), out_shardings=(here, there))(given, turned)
    for r, right, place in zip(slopes, _slopes_of(x_), (here, there), strict=True):
        lies(r, right, place, "a gradient over two meshes")
    return run_jitted(mesh, a, x)


def _eager(mesh, a, x):
    """Arrays over two meshes without jit: sums, joins, products, moves."""
    one, other = two(mesh)
    here, there = at(one, "a", "b"), at(other, "u", "v")
    x_ = matrix(mesh)
    given, turned = jax.device_put(x_, here), jax.device_put(x_, there)
    for name, found, right in (
        ("a sum", given + turned, 2 * x_),
        ("a sum the other way", turned + given, 2 * x_),
        ("a join", jnp.concatenate([given, turned]), np.concatenate([x_, x_])),
        ("a choice", jnp.where(given > 3, turned, 0), np.where(x_ > 3, x_, 0)),
        ("a product", given @ turned, x_ @ x_),
        ("a move", jax.device_put(given, there), x_),
        ("a move back", jax.device_put(jax.device_put(given, there), here), x_),
    ):
        wrong(not np.array_equal(found, right), f"{name} of arrays over two meshes is {found}")
    lies(jax.device_put(given, there), x_, there, "an array that moves to another mesh")
    lies(jax.device_put(turned, here), x_, here, "an array that moves back")
    return run_jitted(mesh, a, x)


def _constraints(mesh, a, x):
    """Two results of one program, constrained to p x q and to q x p."""
    one, other = two(mesh)
    constrained(mesh, (at(one, "a", "b"), at(other, "u", "v")), False)
    return run_jitted(mesh, a, x)


def _line_first(mesh, a, x):
    """Two results, constrained to all devices in one line and to p x q: each comes first once."""
    one = two(mesh)[0]
    constrained(mesh, (at(one, "a", "b"), at(line(mesh), "c")), False)
    constrained(mesh, (at(line(mesh), "c"), at(one, "a", "b")), False)
    return run_jitted(mesh, a, x)


def _argument(mesh, a, x):
    """An argument over p x q that is constrained to q x p, by a placement and by the context."""
    one, other = two(mesh)
    there, x_ = at(other, "u", "v"), matrix(mesh)
    given = jax.device_put(x_, at(one, "a", "b"))
    found = jax.jit(lambda v: lax.with_sharding_constraint(v, there) + 1)(given)
    lies(found, x_ + 1, there, "an argument that is constrained to another mesh")
    with jax.set_mesh(other):
        found = jax.jit(lambda v: lax.with_sharding_constraint(v, P("u", "v")) + 1)(given)
    lies(found, x_ + 1, there, "an argument that is constrained to the context's mesh")
    return run_jitted(mesh, a, x)


def judge_two_arguments(mesh: Any, swapped: bool) -> None:
    """Judge a program of two arguments, over p x q and over q x p: twice the one lies as the one does, and three times
    the other as the other does. swapped: the argument over q x p comes first."""
    one, other = two(mesh)
    x, here, there = matrix(mesh), at(one, "a", "b"), at(other, "u", "v")
    given, turned = jax.device_put(x, here), jax.device_put(x, there)
    if swapped:
        found = jax.jit(lambda w, v: (2 * v, 3 * w))(turned, given)
    else:
        found = jax.jit(lambda v, w: (2 * v, 3 * w))(given, turned)
    ordinals = ("second", "first") if swapped else ("first", "second")
    lies(found[0], 2 * x, here, f"twice the {ordinals[0]} argument of two")
    lies(found[1], 3 * x, there, f"three times the {ordinals[1]} argument of two")


def _two_arguments(mesh, a, x):
    """Two arguments over p x q and q x p: each result that is a multiple of one lies as it does."""
    judge_two_arguments(mesh, False)
    return run_jitted(mesh, a, x)


def _two_arguments_turned(mesh, a, x):
    """Two arguments over q x p and p x q: each result that is a multiple of one lies as it does."""
    judge_two_arguments(mesh, True)
    return run_jitted(mesh, a, x)


def _regions(one: Mesh, other: Mesh) -> Callable[[Any], Any]:
    """A shard_map over one mesh, and then one over another."""

    def program(v):
        first = jax.shard_map(lambda b: 2 * b, mesh=one, in_specs=P("a", "b"), out_specs=P("a", "b"))(v)
        return jax.shard_map(
            lambda b: b + lax.axis_index("u"), mesh=other, in_specs=P("u", "v"), out_specs=P("u", "v")
        )(first)

    return program


def _regions_of(x: np.ndarray, other: Mesh) -> np.ndarray:
    """What `_regions` gives."""
    rows = other.shape["u"]
    return 2 * x + np.repeat(np.arange(rows), len(x) // rows)[:, None].astype(np.float32)


def _two_regions(mesh, a, x):
    """A shard_map over p x q and one over q x p in one program."""
    one, other = two(mesh)
    x_ = matrix(mesh)
    found = jax.jit(_regions(one, other))(x_)
    lies(found, _regions_of(x_, other), at(other, "u", "v"), "the result of the second region")
    return run_jitted(mesh, a, x)


def _partial_region_beside(mesh, a, x):
    """A region that is manual over one of the axes of q x p, beside an argument over p x q that it does not read."""
    one, other = two(mesh)
    x_, here, there = matrix(mesh), at(one, "a"), at(other, "u")
    region = jax.shard_map(
        lambda b: b + lax.axis_index("u"),
        mesh=other,
        in_specs=P("u"),
        out_specs=P("u"),
        axis_names={"u"},
    )
    both = jax.jit(lambda v, w: (2 * v, region(w)), out_shardings=(here, there))
    found = both(jax.device_put(x_, here), jax.device_put(x_, there))
    lies(found[0], 2 * x_, here, "what lies beside a region over another mesh")
    lies(found[1], _regions_of(x_, other) - x_, there, "the result of a region over one axis")
    return run_jitted(mesh, a, x)


def _loss(there: NamedSharding) -> Callable[[Any, Any], Any]:
    """The sum of squares of a product that is constrained."""
    return lambda v, w: (lax.with_sharding_constraint(v @ w, there) ** 2).sum()


def _slopes_of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of `_loss` at (x, x)."""
    twice = 2 * (x @ x)
    return twice @ x.T, x.T @ twice


def _gradient(mesh, a, x):
    """The gradient of a product of arguments over two meshes, which is constrained to one of them."""
    one, other = two(mesh)
    x_ = matrix(mesh)
    here, there = at(one, "a", "b"), at(other, "u", "v")
    given, turned = jax.device_put(x_, here), jax.device_put(x_, there)
    found = jax.jit(jax.grad(_loss(there), argnums=(0, 1)))(given, turned)
    for k, right in enumerate(_slopes_of(x_)):
        wrong(not np.array_equal(found[k], right), f"gradient {k + 1} over two meshes is {found[k]}"[:300])
    return run_jitted(mesh, a, x)


TWO_MESHES: dict[str, Callable[..., Any]] = {
    "other_names": _other_names,
    "named_results": _named_results,
    "eager_meshes": _eager,
    "two_constraints": _constraints,
    "line_first": _line_first,
    "moved_argument": _argument,
    "two_arguments": _two_arguments,
    "two_arguments_turned": _two_arguments_turned,
    "two_regions": _two_regions,
    "partial_region_beside": _partial_region_beside,
    "two_mesh_gradient": _gradient,
}
"""Each function takes a mesh, its last axis, and the input sharded over that axis."""
