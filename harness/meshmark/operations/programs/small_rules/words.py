# SPDX-License-Identifier: Apache-2.0
"""Small rules: every word that an option takes, where other rules take one of them: orders of norms, methods of NumPy's
functions, collectives over names and dimensions together, whole ranges of integers, initializers by their place, and
many functions of one array in one program."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from meshmark.operations.programs.cuts.running import hold, hold_near, mixed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.small_rules.comparing import expect

VECTOR_ORDERS = (None, np.inf, -np.inf, 0, 1, 2, 3, 0.5, -1)
MATRIX_ORDERS = (None, "fro", "nuc", np.inf, -np.inf, 1, -1, 2, -2)


def _norms(line, grid):
    """Norms of every order, of all elements, of vectors along each dimension and of matrices, with and without kept
    dimensions."""
    host = (mixed((2 * line.size, 6), 19, 7) - 8.25).astype(np.float32)
    calls = [
        *itertools.product(VECTOR_ORDERS, (0, 1, -1), (False, True)),
        *itertools.product(MATRIX_ORDERS, (None, (0, 1), (1, 0)), (False, True)),
    ]
    members = {}
    for order, axis, kept in calls:
        options = {"ord": order, "axis": axis, "keepdims": kept}
        members[f"the norm with {options}"] = (
            lambda x, options=options: jnp.linalg.norm(x, **options),
            np.linalg.norm(host.astype(np.float64), **options),
        )
    hold_near(line, grid, members, host)


UFUNCS = ("add", "minimum", "subtract")
"""Functions of two integers, with the methods of NumPy's. A difference has an order."""


def _methods_of_functions(line, grid):
    """The methods reduce, accumulate, reduceat, outer and at of functions, along each dimension, with the options where
    and initial, and with indices that rise, fall and repeat."""
    host = (mixed((2 * line.size, 6), 5, 7) - 2).astype(np.int32)
    where = mixed(host.shape, 3, 2) > 0
    for name in UFUNCS:  # one program each: two cumulative functions have a form of their own
        members = {}
        mine, theirs = getattr(jnp, name), getattr(np, name)
        members[f"{name}.outer"] = (
            lambda x, f=mine: f.outer(x[0], x[:, 1]),
            theirs.outer(host[0], host[:, 1]),
        )
        rows, more = np.array([1, 0, 1, 1]), np.array([[2], [1], [4], [3]], np.int32)
        right = host.copy()
        theirs.at(right, rows, more)
        members[f"{name}.at"] = (
            lambda x, f=mine, rows=rows, more=more: f.at(x, rows, more, inplace=False),
            right,
        )
        for axis in (0, 1):
            members[f"{name}.accumulate along {axis}"] = (
                lambda x, f=mine, axis=axis: f.accumulate(x, axis),
                theirs.accumulate(host, axis, dtype=np.int32),
            )
            for places in ((0, 2, 5), (5, 2, 4), (1, 1, 3)) if host.shape[axis] > 5 else ((0, 1), (1, 0)):
                members[f"{name}.reduceat along {axis} at {places}"] = (
                    lambda x, f=mine, axis=axis, places=places: f.reduceat(x, jnp.array(places), axis),
                    theirs.reduceat(host, places, axis, dtype=np.int32),
                )
            options = {"kept": {"keepdims": True}}
            if name != "subtract":  # it has no neutral number
                options["where"] = {"where": where, "initial": 3}
            for said, given in options.items():
                members[f"{name}.reduce along {axis}, {said}"] = (
                    lambda x, f=mine, axis=axis, given=given: f.reduce(x, axis, **given),
                    theirs.reduce(host, axis, dtype=np.int32, **given),
                )
        hold(line, grid, members, host)


def _names_and_dimensions(line, grid):
    """Reductions over a mesh axis and dimensions of the array together, in every order, by vmap and by pmap."""
    host = mixed((line.size, 3, 4, 2), 89, 7).astype(np.int32)
    pairs = {"psum": (lax.psum, np.sum), "pmax": (lax.pmax, np.max), "pmin": (lax.pmin, np.min)}
    maps = {"vmap": jax.vmap}
    if list(line.devices) == jax.devices()[: line.size]:  # pmap's default
        maps["pmap"] = jax.pmap
    for (word, mapped), (name, (reduce, numpy)) in itertools.product(maps.items(), pairs.items()):
        for dims in ((0,), (1,), (2,), (0, 2), (2, 1), (0, 1, 2)):
            for over in (("d", *dims), (*dims, "d")):
                found = mapped(lambda x, over=over, f=reduce: f(x, over), axis_name="d")(host)
                right = numpy(host, (0, *(d + 1 for d in dims)))
                expect(
                    np.asarray(found),
                    np.broadcast_to(right, (line.size, *right.shape)).astype(np.int32),
                    f"{name} over {over} under {word}",
                )


def _whole_ranges(line, grid):
    """Draws over all numbers of each narrow type have each of them, those between two limits are between, and every
    placement draws the same."""
    key, count = jax.random.key(7), 4096 * line.size
    place = NamedSharding(line, PartitionSpec("d"))
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32):
        low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
        ends = {np.int8: [(low, low + 6)], np.uint16: [(high - 6, high)]}
        for first, last in ((low, high), *ends.get(kind, [])):
            wide = np.iinfo(kind).bits == 32
            if wide:  # no int32 is one more than the greatest
                last = min(last, high - 1)
            limits = (np.array(first, kind), np.array(last + 1, kind)) if wide else (first, last + 1)

            def draw(key, limits=limits, kind=kind):
                return jax.random.randint(key, (count,), *limits, kind)

            alone, cut = np.asarray(jax.jit(draw)(key)), np.asarray(jax.jit(draw, out_shardings=place)(key))
            said = f"a draw of {np.dtype(kind).name} from {first} to {last}"
            expect(cut, alone, f"{said} in parts")
            wrong(int(alone.min()) < first or int(alone.max()) > last, f"{said} leaves its range")
            if last - first < 256:
                every = len(np.unique(alone))
                wrong(every != last - first + 1, f"{said} has {every} different numbers")
            elif last - first >= 2**16 - 1:  # the middle of a uniform draw, within six standard errors
                off = abs(float(alone.astype(np.float64).mean()) - (first + last) / 2)
                wrong(off > 6 * (last - first) / np.sqrt(12 * count), f"the mean of {said} is off by {off}")


INITIALIZERS = (
    "zeros",
    "ones",
    "constant",
    "uniform",
    "normal",
    "truncated_normal",
    "lecun_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
)


def _initializer(name: str) -> Callable:
    """An initializer of `jax.nn.initializers` by its name."""
    found = getattr(jax.nn.initializers, name)
    if name in ("zeros", "ones"):
        return found
    return found(3) if name == "constant" else found()


def _initializers_placed(line, grid):
    """Initializers give the same numbers wherever their results are put, and put them where `out_sharding` says."""
    mesh = jax.sharding.Mesh(grid.devices, ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    key, shape = jax.random.key(3), (2 * line.size, 2 * line.size)
    places = {
        jnp.float32: PartitionSpec("x", "y"),
        jnp.bfloat16: PartitionSpec(None, "x"),
        jnp.float16: PartitionSpec(("x", "y"), None),
    }
    for kind, spec in places.items():
        with jax.set_mesh(mesh):
            made = {name: _initializer(name) for name in INITIALIZERS}
            whole = jax.jit(
                lambda key, made=made, kind=kind: {n: f(key, shape, kind) for n, f in made.items()}
            )
            placed = jax.jit(
                lambda key, made=made, kind=kind, spec=spec: {
                    n: f(key, shape, kind, out_sharding=spec) for n, f in made.items()
                }
            )
            alone, cut = whole(key), placed(key)
        for name, found in cut.items():
            said = f"{name} of {np.dtype(kind).name} at {spec}"
            expect(jax.typeof(found).sharding.spec, spec, f"the type of {said}")
            right = np.asarray(alone[name]).astype(np.float64)
            off = np.abs(np.asarray(found).astype(np.float64) - right).max()
            # Two roundings: a compiler may fuse the scaling of a draw in one program and not in the other.
            most = 2 * float(jnp.finfo(kind).eps) * np.abs(right).max()
            wrong(not off <= most, f"{said} is off by {off} from the same without a place")


def _along(axis: int) -> dict[str, tuple[Callable, Callable]]:
    """Functions along one dimension that must see beyond the part of a device, each with NumPy's."""

    def ends(f: Callable, first: int, last: int) -> Callable:
        return lambda x: f(x, [(first, last) if k == axis else (0, 0) for k in range(x.ndim)])

    def cut(start: int | None, stop: int | None, step: int) -> Callable:
        place = (slice(None),) * axis + (slice(start, stop, step),)
        return lambda x: x[place]

    both = {
        "a shift": cut(1, None, 1),
        "every second": cut(None, None, 2),
        "every third backwards": cut(-2, None, -3),
    }
    pairs: dict[str, tuple[Callable, Callable]] = {name: (f, f) for name, f in both.items()}
    for first, last in ((1, 0), (0, 3), (2, 2)):
        pairs[f"pad by {first} and {last}"] = (ends(jnp.pad, first, last), ends(np.pad, first, last))
    for name, mine, theirs, given in (
        ("cumsum", jnp.cumsum, np.cumsum, {"dtype": np.int32}),
        ("flip", jnp.flip, np.flip, {}),
        ("diff", jnp.diff, np.diff, {}),
        ("sort", jnp.sort, np.sort, {}),
        ("max", jnp.max, np.max, {}),
        ("sum", jnp.sum, np.sum, {"dtype": np.int32}),
        ("argmin", jnp.argmin, lambda x, axis: np.argmin(x, axis).astype(np.int32), {}),
    ):
        pairs[name] = (
            lambda x, f=mine, given=given: f(x, axis=axis, **given),
            lambda x, f=theirs, given=given: f(x, axis=axis, **given),
        )
    for by in (1, -2):
        pairs[f"roll by {by}"] = (
            lambda x, by=by: jnp.roll(x, by, axis),
            lambda x, by=by: np.roll(x, by, axis),
        )
    return pairs


def _cumulative_along(axis: int) -> dict[str, tuple[Callable, Callable]]:
    """The cumulative functions along one dimension, forwards and backwards, each with NumPy's."""
    pairs: dict[str, tuple[Callable, Callable]] = {}
    for name, mine, theirs in (
        ("cumsum", lax.cumsum, np.add),
        ("cumprod", lax.cumprod, np.multiply),
        ("cummax", lax.cummax, np.maximum),
        ("cummin", lax.cummin, np.minimum),
    ):
        pairs[name] = (
            lambda x, f=mine: f(x, axis),
            lambda x, f=theirs: f.accumulate(x, axis, dtype=x.dtype),
        )
        pairs[f"{name} backwards"] = (
            lambda x, f=mine: f(x, axis, reverse=True),
            lambda x, f=theirs: np.flip(f.accumulate(np.flip(x, axis), axis, dtype=x.dtype), axis),
        )
    return pairs


def _hold_together(line, grid, functions: Callable) -> None:
    """Run all functions of one array along one dimension in one program, in two orders."""
    for shape in ((4 * line.size,), (2 * line.size, 7)):
        host = (mixed(shape, 5, 7) - 2).astype(np.int32)
        for axis in range(len(shape)):
            members = {
                f"{name} along {axis}": (mine, theirs(host))
                for name, (mine, theirs) in functions(axis).items()
            }
            hold(line, grid, members, host)
            hold(line, grid, dict(reversed(members.items())), host)


def _functions_together(line, grid):
    """Many functions of one array in one program: what one of them moves between devices never becomes another's."""
    _hold_together(line, grid, _along)


def _cumulative_together(line, grid):
    """All cumulative functions of one array in one program."""
    _hold_together(line, grid, _cumulative_along)


RULES_OF_WORDS = {
    "norms": _norms,
    "methods_of_functions": _methods_of_functions,
    "names_and_dimensions": _names_and_dimensions,
    "whole_ranges": _whole_ranges,
    "initializers_placed": _initializers_placed,
    "functions_together": _functions_together,
    "cumulative_together": _cumulative_together,
}
