# SPDX-License-Identifier: Apache-2.0
"""Small rules: what JAX refuses, in collectives, in specs of shard_map, in placements, and over Explicit axes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import refused

VARIES = "replication which can't be statically inferred"
"""The reason for which a result that varies over an axis is refused."""


def _collectives(line, grid):
    """Unknown and repeated names of axes, alone and among others; permutations that are none; parts that don't fit."""
    n = line.size
    x = np.arange(12.0 * n, dtype=np.float32)
    named = {
        "psum": lax.psum,
        "pmean": lax.pmean,
        "pmax": lax.pmax,
        "pmin": lax.pmin,
        "all_gather": lax.all_gather,
        "axis_index": lambda v, name: v + lax.axis_index(name),
        "axis_size": lambda v, name: v * lax.axis_size(name),
        "psum_scatter": lambda v, name: lax.psum_scatter(v, name, tiled=True),
        "all_to_all": lambda v, name: lax.all_to_all(v, name, 0, 0, tiled=True),
        "ppermute": lambda v, name: lax.ppermute(v, name, [(0, 0)]),
        "psum of a number": lambda v, name: v * lax.psum(1, name),
    }
    for name, f in named.items():
        for axis in ("typo", ("d", "typo"), ("typo", "d")):
            refused(
                f"{name} over {axis}",
                "typo",
                lambda f=f, axis=axis: mapped(lambda v: f(v, axis), line, P("d"), P("d"), check_vma=False)(x),
            )
    pairs = {
        "one source twice": ([(0, 0), (0, n - 1)], "unique"),
        "one destination twice": ([(0, 0), (n - 1, 0)], "unique"),
        "a source out of range": ([(n, 0)], "out of range"),
        "a destination out of range": ([(0, n)], "out of range"),
    }
    for name, (perm, words) in pairs.items():
        refused(
            f"ppermute with {name}",
            words,
            lambda perm=perm: mapped(lambda v: lax.ppermute(v, "d", perm), line, P("d"), P("d"))(x),
        )
    if n > 1:
        odd = np.ones((n, n + 1), np.float32)
        for name, f in {
            "psum_scatter": lambda v: lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True),
            "all_to_all": lambda v: lax.all_to_all(v, "d", 1, 0, tiled=True),
            "untiled all_to_all": lambda v: lax.all_to_all(v, "d", 1, 0),
        }.items():
            refused(
                f"{name} of a dimension that {n} does not divide",
                "divisible|mapped axis",
                lambda f=f: mapped(f, line, P(), P("d"), check_vma=False)(odd),
            )
    for name, f in {
        "psum_scatter along a dimension that is not there": lambda v: lax.psum_scatter(
            v, "d", scatter_dimension=5, tiled=True
        ),
        "all_gather along a dimension that is not there": lambda v: lax.all_gather(
            v, "d", axis=5, tiled=True
        ),
    }.items():
        refused(
            name,
            "out of bounds|out of range",
            lambda f=f: mapped(f, line, P("d"), P("d"), check_vma=False)(x),
        )


def _specs(line, grid):
    """Specs of shard_map: of too high rank, of unknown axes, of an axis twice, of dimensions that don't divide, and
    results that vary over an axis that their spec leaves out, for each axis alone and for both."""
    n = line.size
    x = np.ones((2 * n, 2 * n), np.float32)
    both = P("x", "y")
    for name, words, given, made in (
        ("an in_spec of too high rank", "in_specs entry which is too long", P("x", None, "y"), both),
        ("an out_spec of too high rank", "out_specs entry which is too long", both, P("x", None, "y")),
        ("an in_spec of an unknown axis", "in_specs refers to 'typo'", P("typo"), both),
        ("an out_spec of an unknown axis", "out_specs refers to 'typo'", both, P("typo")),
        ("an in_spec with an axis twice", "duplicate|twice|at most one", P("x", "x"), both),
        ("an out_spec with an axis twice", "duplicate|twice|at most one", P("x"), P("x", "x")),
        ("two in_specs for one argument", "in_specs", (both, both), both),
        ("two out_specs for one result", "out_specs", both, (both, both)),
    ):
        refused(name, words, lambda given=given, made=made: mapped(lambda v: v + 1, grid, given, made)(x))
    if n > 1:
        refused(
            "an argument that the mesh does not divide",
            "divisible",
            lambda: mapped(lambda v: v, line, P("d"), P("d"))(np.ones(n + 1)),
        )
    for axes, left in ((("x",), P(None, "y")), (("y",), P("x")), (("x", "y"), P())):
        refused(
            f"a result that varies over {axes} under the spec {left}",
            VARIES,
            lambda left=left: mapped(lambda v: v[:1, :1], grid, both, left)(x),
        )
        for axis in axes:
            rest = tuple(a for a in axes if a != axis)
            if rest:
                refused(
                    f"a sum over {axis} that still varies over {rest}",
                    VARIES,
                    lambda axis=axis, left=left: mapped(
                        lambda v: lax.psum(v[:1, :1], axis), grid, both, left
                    )(x),
                )
    refused(
        "a loop whose carry begins to vary",
        "carry",
        lambda: mapped(
            lambda v: lax.scan(lambda c, r: (c + r, None), jnp.zeros(v.shape[1:]), v)[0],
            grid,
            both,
            P(("x", "y")),
        )(x),
    )
    refused(
        "a mesh that is not the one around it",
        "context mesh",
        lambda: _under(
            explicit(grid),
            lambda: mapped(lambda v: v, line, P("d"), P("d"))(
                jax.device_put(x, NamedSharding(explicit(grid), both))
            ),
        ),
    )


def _under(mesh, call):
    with jax.set_mesh(mesh):
        return call()


def _placements(line, grid):
    """Parts and places that don't fit an array, and objects of shardings that can't be."""
    n = line.size
    if n > 1:
        for size in (1, n - 1, n + 1, 2 * n + 1):
            refused(
                f"device_put of {size} rows over {n} devices",
                "divisible",
                lambda size=size: placed(line, np.ones((size, n), np.float32), "d"),
            )
            refused(
                f"device_put of {size} columns over {n} devices",
                "divisible",
                lambda size=size: placed(line, np.ones((n, size), np.float32), None, "d"),
            )
            refused(
                f"zeros of {size} rows over {n} devices",
                "divisible",
                lambda size=size: jnp.zeros((size, 2), device=NamedSharding(line, P("d"))),
            )
    whole = np.arange(2.0 * n, dtype=np.float32)
    spread = NamedSharding(line, P("d"))
    for name, part in {
        "one row instead of two": lambda i: whole[i][:1],
        "three rows instead of two": lambda i: np.resize(whole[i], 3),
        "a part with one more dimension": lambda i: whole[i][None],
        "a number": lambda i: np.float32(1),
    }.items():
        refused(
            f"make_array_from_callback with {name}",
            "shape",
            lambda part=part: jax.make_array_from_callback((2 * n,), spread, part),
        )
    devices = list(line.devices.flat)
    parts = [jax.device_put(whole[2 * k : 2 * k + 2], d) for k, d in enumerate(devices)]
    for name, given in {
        "one part less": parts[:-1],
        "one part twice": [*parts[:-1], parts[-1], parts[-1]],
        "a part of another size": [*parts[:-1], jax.device_put(whole[:1], devices[-1])],
    }.items():
        refused(
            f"make_array_from_single_device_arrays with {name}",
            "per-device arrays|shape|addressable shards",
            lambda given=given: jax.make_array_from_single_device_arrays((2 * n,), spread, given),
        )
    for name, words, make in (
        ("a spec of an unknown axis", "typo", lambda: NamedSharding(line, P("typo"))),
        ("a spec with an axis twice", "duplicate", lambda: NamedSharding(line, P("d", "d"))),
        ("an axis twice in one dimension", "duplicate", lambda: NamedSharding(line, P(("d", "d")))),
        ("a mesh with a name too few", "ndim", lambda: Mesh(grid.devices, ("x",))),
        (
            "a mesh of more devices than there are",
            "[Nn]umber of devices",
            lambda: jax.make_mesh((len(jax.devices()) + 1,), ("d",)),
        ),
        ("a spec of too high rank", "rank", lambda: placed(line, whole, "d", None)),
        (
            "a constraint of too high rank",
            "rank",
            lambda: jax.jit(lambda v: lax.with_sharding_constraint(v, NamedSharding(line, P(None, "d"))))(
                whole
            ),
        ),
        (
            "out_shardings of too high rank",
            "rank",
            lambda: jax.jit(lambda v: v, out_shardings=NamedSharding(line, P(None, "d")))(whole),
        ),
        ("a read of an array that is deleted", "deleted", lambda: _deleted(placed(line, whole, "d"))),
    ):
        refused(name, words, make)
    if n > 1:
        other = Mesh(line.devices[::-1], ("d",))
        one, two = placed(line, whole, "d"), placed(other, whole, "d")
        refused(
            "two arrays over devices in two orders",
            "incompatible devices",
            lambda: jax.jit(lambda v, w: 10 * v + w)(one, two),
        )
        refused(
            "two arrays on two devices",
            "incompatible devices",
            lambda: jax.device_put(whole, devices[0]) + jax.device_put(whole, devices[1]),
        )
        square = np.arange(1.0 * n * n, dtype=np.float32).reshape(n, n)
        compiled = jax.jit(lambda v: 2 * v).lower(placed(line, square, "d")).compile()
        refused(
            "a compiled function of another sharding",
            "input shardings",
            lambda: compiled(placed(line, square, None, "d")),
        )
        refused(
            "a compiled function of another shape",
            "types",
            lambda: compiled(placed(line, square[:, :1], "d")),
        )
        refused(
            "a compiled function of another dtype",
            "types",
            lambda: compiled(placed(line, square.astype(np.int32), "d")),
        )


def _deleted(array):
    array.delete()
    return np.asarray(array)


def _explicit_axes(line, grid):
    """Operands whose types name other axes for a dimension, along each dimension of two and three."""
    m = explicit(grid)
    rows, columns = m.devices.shape
    side = 2 * rows * columns
    with jax.set_mesh(m):
        for rank in (2, 3):
            for k in range(rank):
                spec = [P(*(name if d == k else None for d in range(rank))) for name in ("x", "y")]
                a, b = (jax.device_put(np.ones((side,) * rank, np.float32), s) for s in spec)
                for name, f in {
                    "a sum": lambda p, q: p + q,
                    "a comparison": lambda p, q: p < q,
                    "a choice": lambda p, q: jnp.where(p > 0, p, q),
                    "the larger": jnp.maximum,
                    "a quotient": lambda p, q: p / q,
                }.items():
                    for way, run in (("eager", f), ("compiled", jax.jit(f))):
                        refused(
                            f"{name}, {way}, of dimension {k} of {rank} over x and over y",
                            "shardings",
                            lambda run=run, a=a, b=b: run(a, b),
                        )
        a = jax.device_put(np.ones((side, side), np.float32), P("x", "y"))
        rows_alone = jax.device_put(np.ones((side, side), np.float32), P("x", None))
        for name, words, f, given in (
            (
                "a product over a sharded dimension",
                "[Cc]ontracting dimensions",
                lambda p: jnp.dot(p, p),
                a,
            ),
            (
                "a product with one axis on both dimensions of the result",
                "illegally sharded",
                lambda p: jnp.einsum("ij,kj->ik", p, p),
                rows_alone,
            ),
            ("a concatenation over x and over y", "same sharding", lambda p: jnp.concatenate([p, p.T]), a),
        ):
            refused(name, words, lambda f=f, given=given: jax.jit(f)(given))
        if rows > 2:
            refused(
                "a reshape whose first part is shorter than its axis",
                "[Ss]harding|sharded",
                lambda: jax.jit(lambda p: p.reshape(2, -1, side))(rows_alone),
            )


def _out_sharding(line, grid):
    """An out_sharding with more entries than the result has dimensions."""
    m = explicit(grid)
    with jax.set_mesh(m):
        a = jax.device_put(np.ones((2 * m.size, 2 * m.size), np.float32), P())
        for name, f in {
            "einsum": lambda p: jnp.einsum("ij,jk->ik", p, p, out_sharding=P("x", None, None)),
            "dot_general": lambda p: lax.dot_general(
                p, p, (((1,), (0,)), ((), ())), out_sharding=P("x", None, None)
            ),
        }.items():
            refused(f"an out_sharding of {name} of too high rank", "spec", lambda f=f: jax.jit(f)(a))


RULES_OF_REFUSAL: dict[str, Callable[..., None]] = {
    "collectives_refused": _collectives,
    "specs_refused": _specs,
    "placements_refused": _placements,
    "types_refused": _explicit_axes,
    "out_sharding_refused": _out_sharding,
}
