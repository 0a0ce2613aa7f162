# SPDX-License-Identifier: Apache-2.0
"""Small rules of arrays over Explicit axes: pads and reshapes beside cut dimensions, gradients over axes of one device,
through casts, argsort and loops, batches that are cut, and regions over some of the axes.

They come from reports of JAX and from fixes in its history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, reshard
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.sharing import WAYS, numbers


def whole_spec(spec: Any, rank: int) -> tuple[Any, ...]:
    """The entries of a spec, one for each dimension."""
    entries = tuple(
        spec.partitions if isinstance(spec, P) else spec
    )  # JAX refuses to unpack an unreduced spec
    return (*entries, *(None,) * (rank - len(entries)))


def lies(found: Any, right: np.ndarray, spec: tuple[Any, ...], what: str) -> None:
    """RuntimeError unless the type is cut by the spec, and each device holds its part of the written answer."""
    rank = np.ndim(right)
    expect(whole_spec(jax.typeof(found).sharding.spec, rank), whole_spec(spec, rank), f"the spec of {what}")
    on_each_device(found, right, what)
    for shard in found.addressable_shards:
        part = found.sharding.shard_shape(found.shape)
        expect(shard.data.shape, part, f"the shape of a part of {what}")


def _pads_beside_cut_dimensions(line, grid):
    """jnp.pad of dimensions that are not cut, in each mode, keeps the cut one.

    jax@1f556c1262."""
    m = explicit(line)
    host = numbers(m.size, 4, 5)
    widths = ((0, 0), (3, 2), (1, 3))
    modes: tuple[Any, ...] = (
        "constant",
        "reflect",
        "symmetric",
        "wrap",
        "empty",
        "edge",
        "linear_ramp",
        "maximum",
    )
    with jax.set_mesh(m):
        for mode in (*modes, "minimum", "mean", "median"):
            for kind in (np.float32, np.int32):
                if mode in ("linear_ramp", "mean", "median") and kind is np.int32:
                    continue  # NumPy rounds in its own way
                x = jax.device_put(host.astype(kind), P("d"))
                right = np.pad(host.astype(kind), widths, mode="constant" if mode == "empty" else mode)
                for way, run in WAYS.items():
                    found = run(lambda v, mode=mode: jnp.pad(v, widths, mode=mode))(x)
                    what = f"a pad by {mode} of {np.dtype(kind).name}, {way}"
                    if mode in ("linear_ramp", "mean", "median"):
                        found, right = jnp.round(found, 4), np.round(right, 4)
                    lies(found, right, ("d",), what)


def _gradients_at_one_device_axes(line, grid):
    """Gradients over an Explicit axis of one device, of a dimension of one: expand_dims, squeeze and an RMS norm.

    jax#35181."""
    n = line.size
    kinds = (AxisType.Explicit,) * 2
    meshes = (
        Mesh(line.devices.reshape(1, n), ("x", "y"), axis_types=kinds),
        Mesh(line.devices.reshape(n, 1), ("y", "x"), axis_types=kinds),
    )
    row = np.array([[1.0, -2, 3, -4]], np.float32)
    mean = (row.astype(np.float64) ** 2).mean()
    only = np.array([1.0, 0, 0, 0])
    normed = (only / np.sqrt(mean) - row[0, 0] * row / 4 / mean**1.5).astype(np.float32)
    weights = only.astype(np.float32)
    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray, np.ndarray]] = {
        "expand_dims": (lambda v: (jnp.expand_dims(v, -1) * 3).sum(), row[0, :1], np.array([3], np.float32)),
        "expand_dims in front": (lambda v: (v[None] * 3).sum(), row[0, :1], np.array([3], np.float32)),
        "a reshape": (lambda v: (jnp.reshape(v, (1, 4, 1)) ** 2).sum(), row, 2 * row),
        "a sum that keeps its dimension": (
            lambda v: (v.sum(-1, keepdims=True) * v).sum(),
            row,
            2 * row.sum() + 0 * row,
        ),
        "an RMS norm": (
            lambda v: (v * lax.rsqrt(jnp.mean(v**2, -1, keepdims=True)) * weights).sum(),
            row,
            normed,
        ),
    }
    for m in meshes:
        with jax.set_mesh(m):
            for name, (call, host, right) in calls.items():
                x = jax.device_put(host, P("x"))
                for way, run in WAYS.items() if m is meshes[0] else (("in jit", jax.jit),):
                    found = run(jax.grad(call))(x)
                    what = f"the gradient of {name} over {dict(m.shape)}, {way}"
                    if name == "an RMS norm":
                        expect(
                            bool(np.allclose(np.asarray(found), right, 1e-5, 1e-6)),
                            True,
                            f"whether {what} is right",
                        )
                        right = np.asarray(found)
                    lies(found, right, ("x",), what)


def _batched_gradient_through_cast(line, grid):
    """A vmap over weights of the gradient through a cast and a product of cut rows.

    jax@b26a9b42f8."""
    m = explicit(line)
    n = 2 * m.size
    x, w = numbers(n, 2, 3) % 5 - 2, numbers(2, 3, 1)
    narrow: Any = jnp.bfloat16
    for kind in (narrow, np.float16):
        with jax.set_mesh(m):
            given = jax.device_put(x.astype(kind), P("d")), jax.device_put(w, P())
            f = jax.jit(lambda x, w: jnp.sum(x.astype(np.float32) @ w))
            g = jax.jit(lambda x, w: jnp.einsum("bij,jk->", x.astype(np.float32), w))
            for name, loss in (("a product", f), ("an einsum", g)):
                batched = jax.vmap(jax.grad(loss, argnums=(0, 1)), in_axes=(None, 0))
                for way, run in WAYS.items():
                    what = f"of {name} of {np.dtype(kind).name}, {way}"
                    by_x, by_w = run(batched)(*given)
                    right = np.broadcast_to(w[:, None, None, :, 0], (2, n, 2, 3)).astype(kind)
                    lies(by_x, right, (None, "d"), f"the batched gradient by the rows {what}")
                    right = np.broadcast_to(x.sum((0, 1))[None, :, None], (2, 3, 1))
                    lies(by_w, right, (), f"the batched gradient by the weights {what}")


def _switches_by_cut_indices(line, grid):
    """A vmap of switch, cond and select by an index that is cut: with an unmapped argument, and draws in the branches.

    jax#29694, jax#29637."""
    drawn = np.asarray(jax.random.uniform(jax.random.key(42), ()))
    m = explicit(line)
    index = np.arange(2 * m.size, dtype=np.int32) * 3 % 5
    ten = np.float32(10)
    with jax.set_mesh(m):
        key = jax.random.key(42)
        i = jax.device_put(index, P("d"))
        v = jax.device_put(ten, P())

        def switched(v: Any, i: Any) -> Any:
            branches = [lambda a, k=k: a[0] * k - a[1] for k in range(5)]
            return lax.switch(i, branches, (v, i.astype(np.float32)))

        def chosen(v: Any, i: Any) -> Any:
            return lax.cond(i > 1, lambda a, b: a - b, lambda a, b: a * 2 + b, v, i.astype(np.float32))

        def draws(key: Any, i: Any) -> Any:
            return lax.switch(i, [lambda q, k=k: jax.random.uniform(q, ()) * 2**k for k in range(5)], key)

        one = index.astype(np.float32)
        for name, call, first, right in (
            ("a switch", switched, v, ten * one - one),
            ("a cond", chosen, v, np.where(one > 1, ten - one, 2 * ten + one)),
            ("a switch of draws", draws, key, (drawn * 2**index).astype(np.float32)),
        ):
            for way, run in WAYS.items():
                found = run(jax.vmap(call, in_axes=(None, 0)))(first, i)
                lies(found, right, ("d",), f"{name} by a cut index, {way}")
        slope = np.where(one > 1, 1, 2).sum(dtype=np.float32)
        for name, call, right in (("a switch", switched, one.sum()), ("a cond", chosen, slope)):
            back = jax.jit(jax.grad(lambda v, f=call: jax.vmap(f, in_axes=(None, 0))(v, i).sum()))(v)
            lies(back, right, (), f"the gradient of {name} by a cut index")


def _batches_cut_in_two_ways(line, grid):
    """A vmap of two arrays is refused where their mapped dimensions are cut in two ways.

    jax@28cf745791."""
    m = explicit(grid)
    n = 2 * m.size
    host = numbers(n, n)
    calls: dict[str, Callable[[Any, Any], Any]] = {
        "a pair": lambda x, y: (x, y),
        "a sum": lambda x, y: x + y,
        "a product": lambda x, y: x.sum() * y,
    }
    with jax.set_mesh(m):
        for name, call in calls.items():
            for way, run in WAYS.items():
                for a, b in ((P("x"), P("y")), (P("x"), P()), (P(), P("y")), (P(("x", "y")), P("x"))):
                    given = jax.device_put(host, a), jax.device_put(host + 1, b)
                    what = f"a batch of {name} of arrays by {a} and {b}, {way}"
                    refused(what, "sharded the same", lambda g=given, f=call, run=run: run(jax.vmap(f))(*g))
            given = jax.device_put(host, P("x")), jax.device_put(host.T, P(None, "x"))
            found = jax.vmap(lambda x, y: x + 2 * y, in_axes=(0, 1))(*given)
            lies(found, 3 * host, ("x",), "a batch along two dimensions that are cut in one way")


def _gradients_of_loops_of_determinants(line, grid):
    """The gradient of a fori_loop with slogdet in a checked shard_map, by weights that are whole.

    jax#33947."""
    m = explicit(line)
    n = m.size
    host = (mixed((n, 3, 3), 5, 2) + 5 * np.eye(3)).astype(np.float32)
    w = np.diag([2.0, -4, 8]).astype(np.float32)
    with jax.set_mesh(m):
        given = jax.device_put(w, P()), jax.device_put(host, P("d"))
        for name, log in (
            ("slogdet", lambda a: jnp.linalg.slogdet(a)[1]),
            ("the logarithm of det", lambda a: jnp.log(jnp.abs(jnp.linalg.det(a)))),
        ):

            def block(w: Any, x: Any, log: Any = log) -> Any:
                start = lax.pcast(jnp.float32(0), "d", to="varying")
                return lax.fori_loop(0, 2, lambda k, c: c + log(x[0] @ w), start)[None]

            region = jax.shard_map(block, in_specs=(P(), P("d")), out_specs=P("d"))
            for way, run in WAYS.items() if name == "slogdet" else (("in jit", jax.jit),):
                found = run(region)(*given)
                right = 2 * np.linalg.slogdet(host.astype(np.float64) @ w)[1]
                close = bool(np.allclose(np.asarray(found), right, 1e-4, 1e-4))
                expect(close, True, f"whether {name} in a loop in a region, {way}, is right")
            back = jax.jit(jax.grad(lambda w, x, region=region: region(w, x).sum()))(*given)
            for shard in back.addressable_shards:
                close = bool(np.allclose(np.asarray(shard.data), 2 * n * np.linalg.inv(w).T, 1e-3, 1e-3))
                expect(close, True, f"whether the gradient of {name} in a loop in a region is right")


def _gradient_through_argsort(line, grid):
    """The gradient through argsort, sort and their places, of rows that are cut.

    jax@e50b7439e7."""
    m = explicit(line)
    base = np.array([[3.0, -1, 2, 0], [0, 5, -4, 9], [7, -6, 1, 2], [-1, 0, 3, 2]], np.float32)
    for kind in (np.float32, np.float16):
        host = np.tile(base, (m.size, 1)).astype(kind)
        host += (np.arange(len(host)) % 7)[:, None].astype(kind)
        order = np.argsort(host, 1, kind="stable")
        ranks = np.argsort(order, 1, kind="stable").astype(kind)
        by = np.array([1, -2, 3, 5], kind)

        def weighted(v: Any, by: Any = by) -> Any:
            return (jnp.sort(v, axis=1) * by).sum()

        calls: tuple[tuple[str, Callable[[Any], Any], np.ndarray], ...] = (
            ("sort", weighted, by[ranks.astype(int)]),
            ("argsort", lambda v: jnp.sum(jnp.argsort(v, axis=1).astype(v.dtype) * v), order.astype(kind)),
            (
                "argsort twice",
                lambda v: jnp.sum(jnp.argsort(jnp.argsort(v, axis=1), axis=1).astype(v.dtype) * v),
                ranks,
            ),
        )
        with jax.set_mesh(m):
            x = jax.device_put(host, P("d"))
            for name, call, right in calls:
                for way, run in WAYS.items():
                    what = f"the gradient through {name} of {np.dtype(kind).name}, {way}"
                    lies(run(jax.grad(call))(x), right, ("d",), what)


def _eager_indices_of_some_axes(line, grid):
    """axis_index in a shard_map over one of three axes that is not checked, in jit and then without it.

    jax@d05aad7552."""
    n = line.size
    shape = (n // 4, 2, 2) if n % 4 == 0 else (n // 2, 2, 1) if n % 2 == 0 else (n, 1, 1)
    names = ("i", "j", "k")
    for kinds in ((AxisType.Auto,) * 3, (AxisType.Explicit,) * 3):
        m = Mesh(line.devices.reshape(shape), names, axis_types=kinds)
        for axis, size in zip(names, shape, strict=True):
            host = numbers(2 * size, 2)
            right = host * 2 + np.repeat(np.arange(size, dtype=np.float32), 2)[:, None]
            x = placed(m, host, axis)

            def index(axis: str = axis, m: Mesh = m) -> Any:
                region = jax.shard_map(
                    lambda: lax.axis_index(axis).reshape(1),
                    mesh=m,
                    in_specs=(),
                    out_specs=P(axis),
                    axis_names={axis},
                    check_vma=False,
                )
                return region()

            def moved(v: Any, axis: str = axis, m: Mesh = m) -> Any:
                region = jax.shard_map(
                    lambda b: b * 2 + lax.axis_index(axis),
                    mesh=m,
                    in_specs=P(axis),
                    out_specs=P(axis),
                    axis_names={axis},
                    check_vma=False,
                )
                return region(v)

            with jax.set_mesh(m):
                for way, run in reversed(WAYS.items()):
                    what = f"in a region over {axis} of three {kinds[0].name} axes, {way},"
                    on_each_device(run(index)(), np.arange(size, dtype=np.int32), f"the index {what}")
                    on_each_device(run(moved)(x), right, f"a block and its index {what}")


def _reshapes_in_fortran_order(line, grid):
    """A reshape in Fortran's order with out_sharding over Explicit axes, and its gradient.

    jax@543cbac4e3."""
    m = explicit(line)
    n = m.size
    for kind in (np.float32, np.int32):
        host = numbers(4 * n).astype(kind)
        square = numbers(2 * n, 2).astype(kind)
        with jax.set_mesh(m):
            for array, spec, shape, place in (
                (host, P("d"), (-1, n), P(None, "d")),
                (host, P("d"), (2 * n, 2), P("d", None)),
                (square, P("d"), (2, 2 * n), P(None, "d")),
                (square, P("d"), (4 * n,), P("d")),
            ):
                x = jax.device_put(array, spec)

                def call(v: Any, shape: Any = shape, place: Any = place) -> Any:
                    return jnp.reshape(v, shape, order="F", out_sharding=place)

                right = array.reshape(shape, order="F")
                for way, run in WAYS.items():
                    what = f"a reshape of {array.shape} to {shape} in Fortran's order, {way}"
                    lies(run(call)(x), right, tuple(place), what)
                if kind is np.float32:
                    by = mixed(right.shape, 29, 3).astype(kind) - 11
                    there = jax.device_put(by, place)
                    back = jax.jit(jax.grad(lambda v, f=call, there=there: (f(v) * there).sum()))(x)
                    what = f"the gradient of a reshape of {array.shape} to {shape} in Fortran's order"
                    lies(back, by.reshape(array.shape, order="F"), tuple(spec), what)


def _reshard_of_closed_keys(line, grid):
    """A reshard of keys that a program closes over, and of keys that it is given, for each generator.

    jax@5371d6b765."""
    m = explicit(line)
    for generator in ("threefry2x32", "rbg"):
        keys = jax.random.split(jax.random.key(12, impl=generator), 2 * m.size)
        words = np.asarray(jax.random.key_data(keys))
        with jax.set_mesh(m):
            for name, call in (
                ("closed over", lambda keys=keys: reshard(keys, P("d"))),
                ("given", lambda keys=keys: jax.jit(lambda k: reshard(k, P("d")))(keys)),
            ):
                for way, run in WAYS.items():
                    found = run(call)()
                    what = f"a reshard of keys of {generator} that are {name}, {way}"
                    expect(tuple(jax.typeof(found).sharding.spec), ("d",), f"the spec of {what}")
                    expect(found.dtype, keys.dtype, f"the dtype of {what}")
                    on_each_device(jax.random.key_data(found), words, what)


def _repeat_in_named_batches(line, grid):
    """A vmap with spmd_axis_name of repeat and of other scatters in a shard_map over the other axis.

    jax@206599051f."""
    rows, columns = grid.devices.shape
    times = (np.arange(rows * columns) % 4).reshape(rows, columns).astype(np.int32)
    for kind in (np.float32, np.int32):
        host = numbers(rows, columns).astype(kind)
        calls: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray]] = {
            "repeat": (lambda x, y: jnp.repeat(x, y, total_repeat_length=4), np.repeat(host, 4, axis=1)),
            "a set": (
                lambda x, y: jnp.zeros(4, x.dtype).at[y].set(x),
                np.where(np.arange(4) == times[..., None], host[..., None], 0).reshape(rows, -1),
            ),
            "a sum": (
                lambda x, y: jnp.ones(4, x.dtype).at[y].add(x),
                (1 + np.where(np.arange(4) == times[..., None], host[..., None], 0)).reshape(rows, -1),
            ),
        }
        for name, (call, right) in calls.items():
            region = jax.shard_map(call, mesh=grid, in_specs=(P("y"), P("y")), out_specs=P("y"))
            found = jax.jit(jax.vmap(region, spmd_axis_name="x"))(host, times)
            on_each_device(found, right.astype(kind), f"{name} of {np.dtype(kind).name} in a batch named x")


RULES_OF_TYPED_ARRAYS: dict[str, Callable[..., None]] = {
    "pads_beside_cut_dimensions": _pads_beside_cut_dimensions,
    "gradients_at_one_device_axes": _gradients_at_one_device_axes,
    "batched_gradient_through_cast": _batched_gradient_through_cast,
    "switches_by_cut_indices": _switches_by_cut_indices,
    "batches_cut_in_two_ways": _batches_cut_in_two_ways,
    "gradients_of_loops_of_determinants": _gradients_of_loops_of_determinants,
    "gradient_through_argsort": _gradient_through_argsort,
    "eager_indices_of_some_axes": _eager_indices_of_some_axes,
    "reshapes_in_fortran_order": _reshapes_in_fortran_order,
    "reshard_of_closed_keys": _reshard_of_closed_keys,
    "repeat_in_named_batches": _repeat_in_named_batches,
}
