# SPDX-License-Identifier: Apache-2.0
"""Small rules: functions by each of their spellings, and with the values of an option that other rules leave out: names
beside operators and methods, dimensions from the end, norms of Fourier transforms, methods of a search, and what stands
for nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import hold, hold_near, mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, refused

OF_TWO = (
    *(
        "add",
        "subtract",
        "multiply",
        "divide",
        "true_divide",
        "floor_divide",
        "power",
        "float_power",
        "remainder",
    ),
    *(
        "fmod",
        "minimum",
        "maximum",
        "fmin",
        "fmax",
        "arctan2",
        "hypot",
        "logaddexp",
        "logaddexp2",
        "copysign",
    ),
    *("nextafter", "heaviside", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor"),
)
"""NumPy's functions of two arrays of numbers."""

OF_TWO_IN_LAX = (
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "pow",
    "max",
    "min",
    "atan2",
    "nextafter",
    "eq",
    "ne",
    "lt",
    "ge",
)


def _conflicts(line, grid):
    """Functions of two arrays, by their names, over Explicit axes: two shardings that differ are refused, and a result
    of two that agree has theirs."""
    m = explicit(grid)
    side = 2 * m.size
    x = np.ones((side, side), np.float32)
    functions = {f"jnp.{name}": getattr(jnp, name) for name in OF_TWO}
    functions |= {f"lax.{name}": getattr(lax, name) for name in OF_TWO_IN_LAX}
    with jax.set_mesh(m):
        a, b = (jax.device_put(x, P(*spec)) for spec in (("x", None), ("y", None)))
        c = jax.device_put(x, P("x", None))
        for name, f in functions.items():
            refused(
                f"{name} of an array over x and one over y",
                "[Ss]harding",
                lambda f=f: jax.eval_shape(f, a, b),
            )
            found = jax.eval_shape(f, a, c)
            expect(found.sharding.spec, P("x", None), f"the spec of {name} of two arrays over x")


def _moved_dimensions(line, grid):
    """Functions that move, add and remove dimensions, by their names, over Explicit axes: the spec follows the
    dimensions."""
    m = explicit(grid)
    n = 4 * m.size
    shape, spec = (n, n, 2, n), ("x", None, None, "y")
    host = mixed(shape, 17, 5).astype(np.int32)
    cases: list[tuple[str, Callable, Callable]] = []
    for source, to in itertools.product((0, -1, 1, (0, 3), (3, 1)), (3, 0, -2, (1, 0), (-1, -4))):
        if isinstance(source, tuple) == isinstance(to, tuple):
            cases.append(
                (
                    f"moveaxis from {source} to {to}",
                    lambda v, s=source, t=to: jnp.moveaxis(v, s, t),
                    lambda v, s=source, t=to: np.moveaxis(v, s, t),
                )
            )
    for i, j in itertools.combinations((0, 1, -1, 2), 2):
        cases.append(
            (
                f"swapaxes of {i} and {j}",
                lambda v, i=i, j=j: jnp.swapaxes(v, i, j),
                lambda v, i=i, j=j: np.swapaxes(v, i, j),
            )
        )
    for order in ((3, 0, 1, 2), (1, 0, 3, 2), (-1, 2, 1, 0), None):
        cases.append(
            (
                f"transpose by {order}",
                lambda v, o=order: jnp.transpose(v, o),
                lambda v, o=order: np.transpose(v, o),
            )
        )
    for at in (0, 2, -1, (0, -1), (1, 3)):
        cases.append(
            (
                f"expand_dims at {at}",
                lambda v, at=at: jnp.expand_dims(v, at),
                lambda v, at=at: np.expand_dims(v, at),
            )
        )
    for at in (0, 1, -1, 4):
        cases.append(
            (
                f"a stack along {at}",
                lambda v, at=at: jnp.stack([v, v + 1], at),
                lambda v, at=at: np.stack([v, v + 1], at),
            )
        )
    cases += [
        ("a flip along 1", lambda v: jnp.flip(v, 1), lambda v: np.flip(v, 1)),
        ("squeeze of a new dimension", lambda v: jnp.squeeze(v[:, None], 1), lambda v: v),
    ]
    # The dimension of a spec is told by its entry: an array of positions goes through NumPy's function.
    marks = np.indices(shape, dtype=np.int16)
    with jax.set_mesh(m):
        x = jax.device_put(host, P(*spec))
        for name, mine, theirs in cases:
            found, right = jax.jit(mine)(x), theirs(host)
            where = [theirs(marks[k]) for k in (0, 3)]
            entries = [
                next((axis for axis, w in zip(("x", "y"), where, strict=True) if _varies(w, d)), None)
                for d in range(right.ndim)
            ]
            expect(tuple(jax.typeof(found).sharding.spec), tuple(entries), f"the spec of {name}")
            expect(np.asarray(found), right.astype(np.int32), name)


REDUCTIONS = (
    "sum",
    "prod",
    "max",
    "min",
    "mean",
    "var",
    "std",
    "any",
    "all",
    "median",
    "ptp",
    "nansum",
    "nanmax",
)
"""NumPy's functions that take dimensions away."""


def _reduced_dimensions(line, grid):
    """Reductions by their names over Explicit axes: the dimensions that stay keep their entries of the spec, and kept
    ones have none."""
    m = explicit(grid)
    n = 2 * m.size
    host = mixed((n, 3, n), 7, 5).astype(np.float32)
    spec = ("x", None, "y")
    with jax.set_mesh(m):
        x = jax.device_put(host, P(*spec))
        for name, axis, kept in itertools.product(
            REDUCTIONS, (0, 1, -1, (0, 1), (-1, 1), None), (False, True)
        ):
            if name == "median" and axis != 1:
                continue  # it sorts, which is refused along a sharded dimension
            seen = []
            f = getattr(jnp, name)
            jax.eval_shape(
                lambda v, f=f, a=axis, k=kept, seen=seen: seen.append(jax.typeof(f(v, axis=a, keepdims=k))), x
            )
            gone = {
                d % 3 for d in (range(3) if axis is None else axis if isinstance(axis, tuple) else (axis,))
            }
            right = tuple(None if d in gone else spec[d] for d in range(3) if kept or d not in gone)
            found = tuple(seen[0].sharding.spec)
            expect(found, right, f"the spec of {name} along {axis}{', kept' if kept else ''}")


def _varies(positions: np.ndarray, dimension: int) -> bool:
    """Whether positions along one dimension of an argument change along this dimension of the result, by more than a
    stack of two adds."""
    return positions.shape[dimension] > 2 and bool(np.any(np.diff(positions, axis=dimension)))


def _reshapes_refused(line, grid):
    """Reshapes that would merge sharded dimensions or split a shard are refused over Explicit axes, by each
    spelling."""
    m = explicit(grid)
    rows = m.shape["x"]
    if rows == 1:
        return
    side = 2 * m.size
    x = np.ones((side, side), np.float32)
    spellings = {
        "jnp.reshape": jnp.reshape,
        "lax.reshape": lax.reshape,
        "the method reshape": lambda v, shape: v.reshape(shape),
    }
    with jax.set_mesh(m):
        a = jax.device_put(x, P(None, "x"))
        for name, f in spellings.items():
            for what, given, shape in (
                ("that merges a whole dimension with a sharded one", a, (side * side,)),
                ("of columns that x cuts", a, (side * side // 2, 2)),
            ):
                refused(
                    f"{name} {what}",
                    "[Ss]hard",
                    lambda f=f, given=given, shape=shape: jax.eval_shape(lambda v: f(v, shape), given),
                )


def _norms_of_transforms(line, grid):
    """Fourier transforms of several dimensions with each norm, along dimensions from the front and from the end."""
    host = (mixed((2 * line.size, 4, 6), 23, 7) - 11).astype(np.complex64)
    host += 1j * (mixed(host.shape, 19, 5) - 9).astype(np.float32)
    members = {}
    for norm, axes in itertools.product(("backward", "ortho", "forward"), ((-1, -2), (-3, -1), (0, 2), None)):
        for name in ("fftn", "ifftn"):
            members[f"{name} along {axes} with norm {norm}"] = (
                lambda x, f=name, a=axes, o=norm: getattr(jnp.fft, f)(x, axes=a, norm=o),
                getattr(np.fft, name)(host.astype(np.complex128), axes=axes, norm=norm),
            )
        if axes is not None:
            members[f"fft2 along {axes} with norm {norm}"] = (
                lambda x, a=axes, o=norm: jnp.fft.fft2(x, axes=a, norm=o),
                np.fft.fft2(host.astype(np.complex128), axes=axes, norm=norm),
            )
    hold_near(line, grid, members, host)


def _rolls(line, grid):
    """Rolls along several dimensions at once, from the front and from the end, by shifts of both signs, of more than a
    dimension, and along one dimension twice."""
    host = mixed((2 * line.size, 5, 4), 251, 7).astype(np.int32)
    members = {}
    for axes, shifts in itertools.product(
        ((-1, -2), (-3, -1), (0, -1), (2, 0), (0, 0)), ((1, 2), (-1, 3), (7, -9), (0, 1))
    ):
        members[f"a roll by {shifts} along {axes}"] = (
            lambda x, s=shifts, a=axes: jnp.roll(x, s, a),
            np.roll(host, shifts, axes),
        )
    members["a roll by 2 along three dimensions"] = (
        lambda x: jnp.roll(x, 2, (0, 1, 2)),
        np.roll(host, 2, (0, 1, 2)),
    )
    members["a roll by -3 of all elements"] = (lambda x: jnp.roll(x, -3), np.roll(host, -3))
    hold(line, grid, members, host)


SEARCHES = ("scan", "scan_unrolled", "sort", "compare_all")


def _searches(line, grid):
    """searchsorted from both sides by each of its methods, with equal numbers, and with numbers outside of the
    range."""
    count = 4 * line.size
    wanted = (mixed((count, 2), count, 5) - 2).astype(np.int32)
    ordered = np.sort(mixed((count,), count // 2, 3)).astype(np.int32)
    members = {}
    for method, side in itertools.product(SEARCHES, ("left", "right")):
        members[f"searchsorted from the {side} by {method}"] = (
            lambda x, m=method, s=side: jnp.searchsorted(jnp.asarray(ordered), x, side=s, method=m),
            np.searchsorted(ordered, wanted, side).astype(np.int32),
        )
    hold(line, grid, members, wanted)
    again = {}
    for method, side in itertools.product(SEARCHES, ("left", "right")):
        again[f"searchsorted in a sharded array from the {side} by {method}"] = (
            lambda x, m=method, s=side: jnp.searchsorted(x, jnp.asarray(wanted), side=s, method=m),
            np.searchsorted(ordered, wanted, side).astype(np.int32),
        )
    hold(line, grid, again, ordered)


def _empty_segments(line, grid):
    """Sums, products, least and largest of segments of which some have no element: what stands for nothing."""
    count = 2 * line.size
    places = np.resize(np.array([3, 0, 3, 5, 0, -1, 9]), count).astype(np.int32)
    for kind in (np.float32, np.int32):
        host = (mixed((count, 4), 7, 5) - 3).astype(kind)
        ends = (-np.inf, np.inf) if kind is np.float32 else (np.iinfo(kind).min, np.iinfo(kind).max)
        starts = {
            "sum": (np.add, 0),
            "prod": (np.multiply, 1),
            "max": (np.maximum, ends[0]),
            "min": (np.minimum, ends[1]),
        }
        members = {}
        for name, (f, start) in starts.items():
            right = np.full((7, 4), start, kind)
            for row, place in zip(host, places, strict=True):
                if 0 <= place < 7:  # others are dropped
                    right[place] = f(right[place], row)
            members[f"segment_{name}"] = (
                lambda x, f=name: getattr(jax.ops, f"segment_{f}")(x, jnp.asarray(places), 7),
                right,
            )
        hold(line, grid, members, host)


def _large_sums_of_exponentials(line, grid):
    """Running logarithms of sums of exponentials in both directions, of numbers whose exponentials are infinite or
    zero."""
    host = ((mixed((2 * line.size, 4), 9, 5) - 4) * 50).astype(np.float32)
    members = {}
    for axis, reverse in itertools.product((0, 1), (False, True)):
        turned = np.flip(host, axis) if reverse else host
        right = np.logaddexp.accumulate(turned.astype(np.float64), axis)
        members[f"cumlogsumexp along {axis}{', reverse' if reverse else ''}"] = (
            lambda x, a=axis, r=reverse: lax.cumlogsumexp(x, axis=a, reverse=r),
            np.flip(right, axis) if reverse else right,
        )
    hold_near(line, grid, members, host)


def _alone_on_an_axis(line, grid):
    """Collectives over an axis of one device keep or drop dimensions as over several."""
    m = jax.sharding.Mesh(line.devices.reshape(-1, 1), ("d", "one"))
    n = line.size
    host = mixed((n, 1, 3), 11, 5).astype(np.float32)
    for name, f, right in (
        ("psum_scatter", lambda v: lax.psum_scatter(v, "one", scatter_dimension=1), host[:, 0]),
        ("psum_scatter, tiled,", lambda v: lax.psum_scatter(v, "one", scatter_dimension=1, tiled=True), host),
        ("all_gather", lambda v: lax.all_gather(v, "one", axis=1), host[:, None]),
        ("all_gather, tiled,", lambda v: lax.all_gather(v, "one", axis=1, tiled=True), host),
        ("all_to_all", lambda v: lax.all_to_all(v, "one", 1, 0), np.moveaxis(host, 1, 0).reshape(n, 1, 3)),
        ("all_to_all, tiled,", lambda v: lax.all_to_all(v, "one", 1, 2, tiled=True), host),
        ("ppermute", lambda v: lax.ppermute(v, "one", [(0, 0)]), host),
        ("ppermute to nobody", lambda v: lax.ppermute(v, "one", []), 0 * host),
        ("pmean", lambda v: lax.pmean(v, "one"), host),
        ("pmax", lambda v: lax.pmax(v, "one"), host),
    ):
        found = mapped(f, m, P("d"), P("d"), check_vma=False)(placed(m, host, "d"))
        expect(np.asarray(found), right, f"{name} over an axis of one device")


def _starts_and_masks(line, grid):
    """Reductions with a start and with a mask of what counts, alone and together, along each dimension."""
    host = (mixed((2 * line.size, 4), 5, 3) + 1).astype(np.float32)
    where = mixed(host.shape, 3, 2) > 0
    where[:, 0] = True
    members = {}
    for axis, masked, start in itertools.product((0, 1, None), (False, True), (None, 2.0)):
        options = ({"where": where} if masked else {}) | ({} if start is None else {"initial": start})
        for name in ("sum", "prod", "max", "min", "nansum", "nanmax"):
            if masked and start is None and ("max" in name or "min" in name):
                continue  # nothing stands for the largest of no number
            values = np.resize([1, 2, 1, 1], host.shape).astype(np.float32) if name == "prod" else None
            members[f"{name} along {axis} with {', '.join(options) or 'no option'}"] = (
                lambda x, f=name, a=axis, o=options, v=values: getattr(jnp, f)(
                    x if v is None else x * 0 + jnp.asarray(v), axis=a, **o
                ),
                getattr(np, name)(host if values is None else values, axis=axis, **options),
            )
    hold_near(line, grid, members, host)


RULES_OF_SPELLINGS: dict[str, Callable[..., None]] = {
    "conflicts_by_name": _conflicts,
    "moved_dimensions": _moved_dimensions,
    "reduced_dimensions": _reduced_dimensions,
    "reshapes_refused": _reshapes_refused,
    "norms_of_transforms": _norms_of_transforms,
    "rolls": _rolls,
    "searches": _searches,
    "empty_segments": _empty_segments,
    "large_sums_of_exponentials": _large_sums_of_exponentials,
    "alone_on_an_axis": _alone_on_an_axis,
    "starts_and_masks": _starts_and_masks,
}
