# SPDX-License-Identifier: Apache-2.0
"""Small rules of functions over Explicit axes with a place for the result, of conditions that JAX's own tests name:
under batches, in regions over one of two axes, across cut dimensions, as updates and reads, and as Jacobians.

Each bug of a released JAX has a rule of its own, so that its known issue hides nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.small_rules.comparing import refused
from meshmark.operations.programs.small_rules.sharing import WAYS, numbers
from meshmark.operations.programs.small_rules.tested_types import Cases, check
from meshmark.operations.programs.small_rules.typed import lies


def _batches_with_places(line, grid):
    """A vmap over cut rows of functions with a place of their own: the batch's axis and the place's are both kept."""
    m = explicit(grid)
    r, c = grid.devices.shape
    a, b = numbers(2 * r, 2 * c, 3) % 5 - 2, numbers(3, 2 * r, 2 * c) % 7 - 3
    index = (np.arange(2 * r * 2 * c).reshape(2 * r, 2 * c) * 5 % 3).astype(np.int32)
    gaps = np.arange(2 * r, dtype=np.int32) * 3 % 4 - 1
    rolled = np.stack([np.roll(row, gap, 1) for row, gap in zip(a, gaps, strict=True)])
    read = np.stack([row[i[:1]] for row, i in zip(np.swapaxes(a, 1, 2), index, strict=True)])
    with jax.set_mesh(m):
        x, y = jax.device_put(a, P("x")), jax.device_put(b, P(None, "x", "y"))
        i, g = jax.device_put(index, P("x")), jax.device_put(gaps, P("x"))
        whole = jax.device_put(b[:, :2], P())
        turned = jax.vmap(
            lambda p, q: jnp.einsum("ij,jk->ik", p, q, out_sharding=P(None, "y")), in_axes=(0, 1), out_axes=2
        )
        along = np.einsum("bij,jbk->ikb", a, b)
        nested = jax.vmap(jax.vmap(lambda p, q: jnp.concatenate([p[0], q]), (None, 0)), (0, None))
        joined = np.concatenate([np.stack([a[:, 0]] * 3, 1), np.stack([b[:, 0]] * (2 * r))], -1)
        ones = np.ones((4, 2 * r), np.float32)
        cases: Cases = {
            "an einsum into y": (lambda: turned(x, y), along, (None, "y", "x")),
            "a reshape into y": (
                lambda: jax.vmap(lambda v: lax.reshape(v, (3, 2 * c), out_sharding=P(None, "y")))(x),
                a.reshape(2 * r, 3, 2 * c),
                ("x", None, "y"),
            ),
            "a reshard to y": (lambda: jax.vmap(lambda v: reshard(v, P("y", None)))(x), a, ("x", "y", None)),
            "a reshard from y": (
                lambda: jax.vmap(lambda v: reshard(v, P()), in_axes=1, out_axes=1)(y),
                b,
                (None, "x", None),
            ),
            "a read into y": (
                lambda: jax.vmap(lambda v, i: v.T.at[i[:1]].get(out_sharding=P(None, "y")))(x, i),
                read,
                ("x", None, "y"),
            ),
            "a roll by the row's own gap": (
                lambda: jax.vmap(lambda v, g: jnp.roll(v, g, axis=1))(x, g),
                rolled,
                ("x", None, None),
            ),
            "rows joined with others": (lambda: nested(x, whole[:, 0]), joined, ("x", None, None)),
            "ones, with the batch behind": (
                lambda: jax.vmap(lambda v: jnp.ones(4), out_axes=-1)(x),
                ones,
                (None, "x"),
            ),
            "a broadcast into y": (
                lambda: jax.vmap(lambda v: lax.broadcast(v[0], (2 * c,), out_sharding=P("y", None)))(x),
                np.broadcast_to(a[:, :1], (2 * r, 2 * c, 3)),
                ("x", "y", None),
            ),
            "the slope of a maximum with zero": (
                lambda: jax.vmap(jax.grad(lambda v: jnp.maximum(0.0, v[0, 0] - 0.5)))(x),
                np.where((np.arange(2 * c * 3) == 0).reshape(2 * c, 3) & (a[:, :1, :1] > 0), 1, 0).astype(
                    np.float32
                ),
                ("x", None, None),
            ),
        }
        check(cases, ())


def _rows_stacked_with_whole_rows(line, grid):
    """A vmap over cut rows that joins, adds or stacks each of them with one row that is not mapped."""
    m = explicit(line)
    host, one = numbers(2 * m.size, 4), numbers(4)[::-1].copy()
    beside = np.broadcast_to(one, host.shape)
    both = np.stack([host, beside], 1)
    with jax.set_mesh(m):
        x, row = jax.device_put(host, P("d")), jax.device_put(one, P())
        members: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray]] = {
            "concatenate": (lambda p, q: jnp.concatenate([p, q]), np.concatenate([host, beside], 1)),
            "a sum": (lambda p, q: p + 2 * q, host + 2 * beside),
            "vstack": (lambda p, q: jnp.vstack([p, q]), both),
            "where": (lambda p, q: jnp.where(p > 1, p, q), np.where(host > 1, host, beside)),
            "array of two": (lambda p, q: jnp.array([p, q]), both),
            "stack": (lambda p, q: jnp.stack([p, q]), both),  # JAX breaks the last two
            "stack behind": (lambda p, q: jnp.stack([q, p], -1), np.stack([beside, host], -1)),
        }
        for name, (call, right) in members.items():
            spec = ("d", *(None,) * (right.ndim - 1))
            for way, run in WAYS.items():
                lies(
                    run(jax.vmap(call, (0, None)))(x, row),
                    right,
                    spec,
                    f"{name} of cut rows and a whole one, {way}",
                )


def _rows_joined_with_numpy_rows(line, grid):
    """A vmap over cut rows with a NumPy array that is not mapped: sums, choices, writes, and joined rows."""
    m = explicit(line)
    host, one = numbers(2 * m.size, 4), numbers(4)[::-1].copy()
    beside = np.broadcast_to(one, host.shape)
    written = host.copy()
    written[:, 1:3] = one[:2]
    with jax.set_mesh(m):
        x = jax.device_put(host, P("d"))
        members: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray]] = {
            "a sum": (lambda p, q: p + 2 * q, host + 2 * beside),
            "where": (lambda p, q: jnp.where(p > 1, p, q), np.where(host > 1, host, beside)),
            "a product": (jnp.dot, host @ one),
            "a set": (lambda p, q: p.at[1:3].set(q[:2]), written),
            # JAX breaks what follows.
            "concatenate": (lambda p, q: jnp.concatenate([p, q]), np.concatenate([host, beside], 1)),
            "concatenate behind": (lambda p, q: jnp.concatenate([q, p]), np.concatenate([beside, host], 1)),
            "append": (lambda p, q: jnp.append(p, q), np.concatenate([host, beside], 1)),
        }
        for name, (call, right) in members.items():
            spec = ("d", *(None,) * (right.ndim - 1))
            for way, run in WAYS.items():
                lies(
                    run(jax.vmap(call, (0, None)))(x, one),
                    right,
                    spec,
                    f"{name} of cut rows and NumPy's, {way}",
                )


def _batches_with_places_of_one_name(line, grid):
    """A vmap with spmd_axis_name over rows that are cut over that axis, and the refusal of rows cut over another."""
    m = explicit(grid)
    host = numbers(2 * grid.size, 2 * grid.size)
    with jax.set_mesh(m):
        for name in ("x", "y", ("x", "y")):
            x = jax.device_put(host, P(name))
            named = jax.vmap(lambda v: v * v.sum(), spmd_axis_name=name)
            right = host * host.sum(1, keepdims=True)
            for way, run in WAYS.items():
                lies(run(named)(x), right, (name, None), f"a batch over {name} that is named {name}, {way}")
        x = jax.device_put(host, P("x", "y"))
        for way, run in WAYS.items():
            other = run(jax.vmap(lambda v: v * 2, spmd_axis_name="y"))
            refused(
                f"a batch over x that is named y, {way}", "Only one of spmd_axis_name", lambda f=other: f(x)
            )


def _updates_with_places(line, grid):
    """Every update of a cut array at indices with its own place over Explicit axes, and slices at a start."""
    m = explicit(line)
    n = 2 * m.size
    host = np.abs(numbers(n, 4)) + 1
    rows = np.array([n - 1, 0, n // 2])[: min(3, n)]
    rows = np.array(sorted(set(rows.tolist()), reverse=True), np.int32)
    values = np.array([4, -2, 8], np.float32)[: len(rows)]
    changes: dict[str, Callable[[Any, Any], Any]] = {
        "set": lambda old, new: new,
        "add": np.add,
        "subtract": np.subtract,
        "multiply": np.multiply,
        "divide": np.divide,
        "min": np.minimum,
        "max": np.maximum,
    }
    with jax.set_mesh(m):
        x, i, v = jax.device_put(host, P("d")), jnp.asarray(rows), jnp.asarray(values)
        cases: Cases = {}
        for name, change in changes.items():
            right = host.copy()
            right[rows, 1] = change(right[rows, 1], values)
            cases[f"{name} at rows"] = (
                lambda x, i, v, name=name: getattr(x.at[i, 1], name)(v, out_sharding=P("d", None)),
                right,
                ("d", None),
            )
        right = host.copy()
        right[rows, 1] **= 2
        cases["power at rows"] = (
            lambda x, i, v: x.at[i, 1].power(2, out_sharding=P("d", None)),
            right,
            ("d", None),
        )
        start = np.int32(1)
        written = host.copy()
        written[1 : m.size + 1] = 7 - host[: m.size]
        cases |= {
            "a column set to False": (
                lambda x, i, v: x.at[:, -1].set(False, out_sharding=P("d", None)),
                np.where(np.arange(4) == 3, np.float32(0), host),
                ("d", None),
            ),
            "rows from a start": (
                lambda x, i, v: lax.dynamic_slice_in_dim(x, start, m.size),
                host[1 : m.size + 1],
                ("d", None),
            ),
            "rows written from a start": (
                lambda x, i, v: lax.dynamic_update_slice(
                    x, 7 - reshard(reshard(x, P())[: m.size], P("d")), (start, 0)
                ),
                written,
                ("d", None),
            ),
            "all but the last column": (lambda x, i, v: x[:, :-1], host[:, :-1], ("d", None)),
        }
        check(cases, (x, i, v))
        try:
            element = jax.jit(lambda x: x[n - 1, 0])(x)
        except Exception as error:  # later releases take it
            wrong("sharded dims" not in str(error), f"an element of cut rows is refused: {error}"[:300])
        else:
            lies(element, host[n - 1, 0], (), "an element of cut rows")
        y = jax.device_put(host[: m.size], P("d"))
        w = jax.device_put(numbers(n, 4), P("d"))
        slopes = jax.jit(
            jax.grad(lambda x, y: (lax.dynamic_update_slice(x, y, (start, 0)) * w).sum(), argnums=(0, 1))
        )(x, y)
        outside = numbers(n, 4)
        inside = outside[1 : m.size + 1].copy()
        outside[1 : m.size + 1] = 0
        lies(slopes[0], outside, ("d", None), "the gradient by rows that are written over")
        lies(slopes[1], inside, ("d", None), "the gradient by rows that are written")


def _scalar_reads_with_places(line, grid):
    """A read with its own place by an array of indices, by a number and by a slice: the result lies there."""
    m = explicit(grid)
    n = 2 * m.size
    host = numbers(4, n)
    two = np.int32(2)
    with jax.set_mesh(m):
        x = jax.device_put(host, P())
        rows, number = jnp.asarray(np.array([3, 1], np.int32)), jax.device_put(two, P())
        cases: Cases = {}
        for spec in (P(None, "y"), P(None, ("x", "y"))):
            cases[f"rows by an array into {spec}"] = (
                lambda x, i, k, s=spec: x.at[i].get(out_sharding=s),
                host[[3, 1]],
                tuple(spec),
            )
        check(cases, (x, rows, number))
        reads: Cases = {
            "a row by a number": (lambda x, i, k: x.at[2].get(out_sharding=P("y")), host[2], ("y",)),
            "a row by an array": (lambda x, i, k: x.at[k].get(out_sharding=P("y")), host[2], ("y",)),
            "rows by a slice": (
                lambda x, i, k: x.at[1:3].get(out_sharding=P(None, "y")),
                host[1:3],
                (None, "y"),
            ),
        }
        check(reads, (x, rows, number))


def _windows_across_cut_dimensions(line, grid):
    """A convolution and pools along a dimension that is cut over an Explicit axis, and their gradients."""
    m = explicit(grid)
    r, c = grid.devices.shape
    host = numbers(2 * r, 4 * c, 2) % 6 - 3
    kernel = np.array([[[1, -2], [3, 1]], [[2, 0], [-1, 4]], [[0, 5], [1, -3]]], np.float32)
    by = numbers(2 * r, 4 * c, 2) % 5 - 2
    padded, back = np.pad(host, ((0, 0), (1, 1), (0, 0))), np.pad(by, ((0, 0), (1, 1), (0, 0)))
    size = 4 * c
    right = sum(padded[:, k : k + size] @ kernel[k] for k in range(3))
    by_host = sum(back[:, 2 - k : 2 - k + size] @ kernel[k].T for k in range(3))
    by_kernel = np.stack([np.einsum("bsi,bso->io", padded[:, k : k + size], by) for k in range(3)])
    pairs = host.reshape(2 * r, 2 * c, 2, 2)
    three = np.stack([padded[:, k : k + size] for k in range(3)]).sum(0)

    def convolved(v: Any, k: Any) -> Any:
        return lax.conv_general_dilated(v, k, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))

    with jax.set_mesh(m):
        x, k = jax.device_put(host, P("x", "y")), jax.device_put(kernel, P())
        w = jax.device_put(by, P("x", "y"))
        spec = ("x", "y", None)
        cases: Cases = {
            "a convolution": (convolved, right, spec),
            "a pool of maxima": (
                lambda v, k: lax.reduce_window(v, -np.inf, lax.max, (1, 2, 1), (1, 2, 1), "SAME"),
                pairs.max(2),
                spec,
            ),
            "a pool of sums": (
                lambda v, k: lax.reduce_window(v, 0.0, lax.add, (1, 3, 1), (1, 1, 1), "SAME"),
                three,
                spec,
            ),
        }
        check(cases, (x, k))
        slopes = jax.jit(jax.grad(lambda v, k: (convolved(v, k) * w).sum(), argnums=(0, 1)))(x, k)
        lies(slopes[0], by_host, spec, "the gradient of a convolution by what is cut")
        lies(slopes[1], by_kernel, (), "the gradient of a convolution by its kernel")
        sums = cases["a pool of sums"][0]
        turned = np.stack([back[:, k : k + size] for k in range(3)]).sum(0)
        lies(
            jax.jit(jax.grad(lambda v: (sums(v, k) * w).sum()))(x),
            turned,
            spec,
            "the gradient of a pool of sums",
        )
        if c > 1:
            features = jax.device_put(np.tile(host, (1, 1, c)), P("x", None, "y"))
            wide = jax.device_put(np.tile(kernel, (1, c, 1)), P())
            refused("a convolution of cut features", "ShardingTypeError", lambda: convolved(features, wide))


def _jacobians_with_places(line, grid):
    """Jacobians and a Hessian of functions with a place for the result: dimensions of the result, then arguments."""
    m = explicit(grid)
    r, c = grid.devices.shape
    host = numbers(2 * c)
    eye = np.broadcast_to(3 * np.eye(2 * c, dtype=np.float32), (r, 2 * c, 2 * c))
    q, k = numbers(2, 3) % 5 - 2, numbers(4, 3) % 7 - 3
    second = np.einsum("kj,kl,ab->ajbl", k, k, np.eye(2, dtype=np.float32)) * 2

    def spread(v: Any) -> Any:
        return lax.broadcast(3 * v, sizes=[r], out_sharding=P("x", "y"))

    def scores(q: Any, k: Any) -> Any:
        return jnp.sum(jnp.einsum("qd,kd->qk", q, k, out_sharding=P()) ** 2)

    with jax.set_mesh(m):
        x = jax.device_put(host, P("y"))
        for way, run in WAYS.items():
            forward = run(jax.jacfwd(spread))(x)
            lies(forward, eye, ("x", "y", None), f"jacfwd of a broadcast into x, {way}")
            lies(run(jax.jacrev(spread))(x), eye, (None, None, "y"), f"jacrev of a broadcast into x, {way}")
            found = run(jax.hessian(scores))(jnp.asarray(q), jnp.asarray(k))
            lies(found, second, (), f"the Hessian of an einsum with a place, {way}")
            rows = jax.device_put(np.tile(k, (r, 1)), P("x"))
            found = run(jax.hessian(scores))(jnp.asarray(q), rows)
            lies(found, r * second, (), f"the Hessian of an einsum of cut rows with a place, {way}")


def _regions_over_one_explicit_axis(line, grid):
    """Functions with a place over the other Explicit axis, inside of a region over one: repeats, reads, draws, maps."""
    m = explicit(grid)
    r, c = grid.devices.shape
    host = numbers(2 * r, 2 * c)
    index = (np.arange(2 * c) * 3 % (2 * c)).astype(np.int32)
    deep = numbers(r, 5, 2 * c, 3)
    seeds = np.arange(r, dtype=np.uint32) * 3 + 1
    drawn = np.concatenate(
        [np.asarray(jax.random.bits(jax.random.key(s), (2, 2 * c), np.uint32)) for s in seeds]
    )
    weights = np.array([1, -2, 3], np.float32)

    def over(body: Callable[..., Any]) -> Callable[..., Any]:
        return jax.shard_map(body, out_specs=P("x"), axis_names={"x"})

    with jax.set_mesh(m):
        x, i = jax.device_put(host, P("x", "y")), jax.device_put(index, P())
        d, s = jax.device_put(deep, P("x", None, "y")), jax.device_put(seeds, P("x"))
        cases: Cases = {
            "a repeat into y": (
                over(lambda x, i, d, s: jnp.repeat(x, 2, axis=1, out_sharding=P(None, "y"))),
                host.repeat(2, 1),
                ("x", "y"),
            ),
            "a repeat of what is not cut": (
                over(lambda x, i, d, s: jnp.repeat(d, 2, axis=3)),
                deep.repeat(2, 3),
                ("x", None, "y", None),
            ),
            "columns that are read into y": (
                over(lambda x, i, d, s: x.at[:, i].get(out_sharding=P(None, "y"))),
                host[:, index],
                ("x", "y"),
            ),
            "bits that are drawn into y": (
                over(
                    lambda x, i, d, s: jax.random.bits(
                        jax.random.key(s[0]), (2, 2 * c), np.uint32, out_sharding=P(None, "y")
                    )
                ),
                drawn,
                ("x", "y"),
            ),
            "a reshard inside": (over(lambda x, i, d, s: reshard(x * 2, P())), 2 * host, ("x", None)),
        }
        if r > 1:  # of an axis of one device other forms have it
            cases["a sum over the region"] = (
                jax.shard_map(lambda x, i, d, s: lax.psum(x, "x"), out_specs=P(), axis_names={"x"}),
                host.reshape(r, 2, -1).sum(0),
                (None, "y"),
            )
        for batch in (None, 2, 7):
            cases[f"a map in batches of {batch}"] = (
                over(
                    lambda x, i, d, s, batch=batch: lax.map(
                        lambda v: jnp.sum(v * weights, axis=-1), d[0], batch_size=batch
                    )[None]
                ),
                deep @ weights,
                ("x", None, "y"),
            )
        check(cases, (x, i, d, s), {"in jit": jax.jit})


def _columns_written_in_a_region(line, grid):
    """Columns that are read and written by indices, of an array cut over the other Explicit axis of a region."""
    m = explicit(grid)
    r, c = grid.devices.shape
    host = numbers(2 * r, 2 * c)
    index = (np.arange(2 * c) * 3 % (2 * c)).astype(np.int32)
    kept, places = P(None, "y"), np.arange(2 * c)
    bodies: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray]] = {
        "a column set to a number": (
            lambda x, i: x.at[:, i[1:2]].set(5.0, out_sharding=kept),
            np.where(places == index[1], np.float32(5), host),
        ),
        "a column set to another": (
            lambda x, i: x.at[:, i[1:2]].set(x.at[:, i[:1]].get(out_sharding=P()), out_sharding=kept),
            np.where(places == index[1], host[:, :1], host),
        ),
        "columns to which others are added": (
            lambda x, i: x.at[:, i].add(x.at[:, i[::-1]].get(out_sharding=P()), out_sharding=kept),
            host + host[:, index[::-1]][:, np.argsort(index)],
        ),
    }
    with jax.set_mesh(m):
        x, i = jax.device_put(host, P("x", "y")), jax.device_put(index, P())
        for name, (body, right) in bodies.items():
            region = jax.shard_map(body, out_specs=P("x"), axis_names={"x"})
            lies(jax.jit(region)(x, i), right, ("x", "y"), f"{name} in a region over x")


RULES_OF_TESTED_PLACES: dict[str, Callable[..., None]] = {
    "batches_with_places": _batches_with_places,
    "rows_stacked_with_whole_rows": _rows_stacked_with_whole_rows,
    "rows_joined_with_numpy_rows": _rows_joined_with_numpy_rows,
    "batches_with_places_of_one_name": _batches_with_places_of_one_name,
    "updates_with_places": _updates_with_places,
    "scalar_reads_with_places": _scalar_reads_with_places,
    "windows_across_cut_dimensions": _windows_across_cut_dimensions,
    "jacobians_with_places": _jacobians_with_places,
    "regions_over_one_explicit_axis": _regions_over_one_explicit_axis,
    "columns_written_in_a_region": _columns_written_in_a_region,
}
