# SPDX-License-Identifier: Apache-2.0
"""Second uses of one function, and reports of arrays, types and programs: other options, other arguments, a call after
one that raised; collectives over a batch and devices; weak types; callbacks of batches and loops.

The program is that of `programs.forms.base`: f(x) = x * s(x). The expected values are NumPy's. Any difference raises.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.options import wrong


def _options_in_turn(mesh, a, x):
    """One function under a transformation with different options in turn: arguments of a derivative, axes of a batch,
    blocks and meshes of a shard_map, lengths and directions of a loop."""
    n, given = mesh.shape[a], np.asarray(x)
    u, v = given[: 2 * n, : 2 * n], given[2 * n : 4 * n, : 2 * n]

    def product(b, c):
        return (b * b * c).sum()

    for argnums, right in ((0, 2 * u * v), (1, u * u), ((1, 0), None)):
        found = jax.jit(jax.grad(product, argnums=argnums))(u, v)
        if right is None:
            same_as(np.asarray(found[0]), u * u, "a derivative by the second argument")
            same_as(np.asarray(found[1]), 2 * u * v, "a derivative by the first argument")
        else:
            same_as(np.asarray(found), right, f"a derivative by argument {argnums}")

    def ahead(b):
        return b + jnp.arange(2.0 * n)

    steps = np.arange(2.0 * n, dtype=np.float32)
    for into, out in ((0, 0), (1, 0), (0, 1), (1, 1)):
        found = jax.jit(jax.vmap(ahead, in_axes=into, out_axes=out))(u)
        rows = (u.T if into else u) + steps
        same_as(
            np.asarray(found), rows.T if out else rows, f"a batch along {into} that comes out along {out}"
        )

    def place(b):
        return b + lax.axis_index(a).astype(jnp.float32)

    turned = Mesh(mesh.devices[..., ::-1], mesh.axis_names)
    own = np.repeat(np.arange(n, dtype=np.float32), 2)
    for m in (mesh, turned):
        for spec, right in ((P(a), u + own[:, None]), (P(None, a), u + own)):
            mapped = jax.jit(jax.shard_map(place, mesh=m, in_specs=spec, out_specs=spec))
            there = jax.device_put(u, NamedSharding(m, spec))
            found = mapped(there)
            same_as(np.asarray(found), right, f"a shard_map over {spec}")
            wrong(found.sharding.mesh != m, f"a shard_map over {spec} is on another mesh")

    def step(c, row):
        return c * 2 + 1, c

    for length in (2, 5, 3):
        end, seen = jax.jit(lambda c, k=length: lax.scan(step, c, length=k))(jnp.float32(1))
        same_as(np.asarray(end), np.float32(2 ** (length + 1) - 1), f"a loop of {length}")
        same_as(
            np.asarray(seen),
            np.float32(2.0 ** np.arange(1, length + 1) - 1),
            f"the steps of a loop of {length}",
        )

    def running(c, row):
        return c + row, c + row

    for reverse in (False, True, False):
        seen = jax.jit(lambda y, r=reverse: lax.scan(running, 0 * y[0], y, reverse=r)[1])(u)
        right = np.cumsum(u[::-1], axis=0)[::-1] if reverse else np.cumsum(u, axis=0)
        same_as(np.asarray(seen), right, f"a running sum, reverse={reverse}")
    return jax.jit(over(mesh, a))(x)


def _calls_in_turn(mesh, a, x):
    """One compiled function, called again: with keywords in another order, after a call that raised, with an
    uncommitted array, with unsigned integers, with a donated array, with None, after its cache was cleared."""
    n, given = mesh.shape[a], np.asarray(x)
    there = at(mesh, a)
    u, v = (jax.device_put(w, there) for w in (given, given[::-1].copy()))
    minus = jax.jit(lambda *, p, q: p - 2 * q)
    right = given - 2 * given[::-1]
    same_as(np.asarray(minus(p=u, q=v)), right, "a call by name")
    same_as(np.asarray(minus(q=v, p=u)), right, "a call by names in another order")
    compiled = minus.lower(p=u, q=v).compile()
    same_as(np.asarray(compiled(q=v, p=u)), right, "a compiled call by names in another order")

    def even(y):
        if len(y) % 2:
            raise ValueError("odd")
        return 2 * y

    double = jax.jit(even)
    for again in range(2):
        try:
            double(np.ones(3 + 2 * again, np.float32))
        except ValueError:
            pass
        else:
            wrong(True, "an exception while tracing is lost")
        same_as(np.asarray(double(u)), 2 * given, "a call after one that raised")
    for array, right in ((u, 2 * given), (jnp.asarray(given + 1), 2 * given + 2), (u, 2 * given)):
        found = double(array)
        same_as(np.asarray(found), right, "a call with an array that is committed or not")
        wrong(
            found.committed != array.committed, f"a result of a committed={array.committed} array is not that"
        )
    less = jax.jit(lambda y: y - 7)
    for kind in ("int8", "uint8", "int32", "uint32", "int8"):
        host = given.astype(kind)
        same_as(
            np.asarray(less(jax.device_put(host, there))), host - host.dtype.type(7), f"a call with {kind}"
        )
    take = jax.jit(lambda y: y + 1, donate_argnums=0)
    for again in range(3):
        gone = jax.device_put(given + again, there)
        same_as(np.asarray(take(gone)), given + again + 1, f"a donating call, number {again}")
        wrong(not gone.is_deleted(), f"what call {again} was given is not deleted")
    count = jax.jit(lambda y, some: y.sum() if some is None else y.sum() + some.sum())
    for some in (None, u, None):
        same_as(
            np.asarray(count(u, some)), given.sum() * (1 + (some is not None)), "a call with None, or without"
        )
    double.clear_cache()
    same_as(np.asarray(double(u)), 2 * given, "a call after its cache was cleared")
    for rows in (2 * n, 4 * n):
        part = jax.device_put(given[:rows], there)
        same_as(
            np.asarray(double.lower(part).compile()(part)), 2 * given[:rows], f"a program for {rows} rows"
        )
    return jax.jit(over(mesh, a))(x)


def _said(mesh, a, x):
    """The attributes of shardings, arrays, shards, meshes and compiled programs."""
    n, given, first = mesh.shape[a], np.asarray(x), mesh.axis_names[0]
    rows, columns = given.shape
    row, column, whole = at(mesh, a), at(mesh, None, first), at(mesh)
    wrong(row.shard_shape(given.shape) != (rows // n, columns), "a shard's shape is another")
    wrong(
        column.shard_shape(given.shape) != (rows, columns // mesh.shape[first]), "a shard's shape is another"
    )
    wrong(whole.shard_shape(given.shape) != given.shape, "a whole shard's shape is another")
    wrong(n > 1 and row.is_equivalent_to(whole, 2), "rows are equivalent to a whole")
    wrong(not row.is_equivalent_to(at(mesh, a, None), 2), "rows are not equivalent to themselves")
    wrong(row != at(mesh, a) or hash(row) != hash(at(mesh, a)), "alike shardings are not equal")
    wrong(n > 1 and row == whole, "unlike shardings are equal")
    for place in (row, column, whole):
        array = jax.device_put(given, place)
        alike = place.shard_shape(given.shape) == given.shape
        wrong(array.is_fully_replicated != alike, f"an array in {place} is_fully_replicated={not alike}")
        wrong(array.sharding.is_fully_replicated != alike, f"{place} is_fully_replicated={not alike}")
        wrong(not array.is_fully_addressable, "an array is not addressable")
        wrong(array.nbytes != given.nbytes or array.size != given.size, "an array has other bytes")
        wrong(array.itemsize != 4 or array.ndim != 2, "an array has other items")
        wrong(array.sharding.num_devices != mesh.size, "a sharding has other devices")
        parts = place.devices_indices_map(given.shape)
        for shard in array.addressable_shards:
            same_as(np.asarray(shard.data), given[parts[shard.device]], f"the shard of {shard.device}")
            wrong(shard.data.devices() != {shard.device}, f"the shard of {shard.device} is elsewhere")
        again = jax.jit(lambda y: 2 * y, in_shardings=place, out_shardings=row).lower(array).compile()
        told = jax.tree.leaves(again.input_shardings)
        wrong(not told[0].is_equivalent_to(place, 2), f"a program says {told} of its argument in {place}")
        wrong(
            not again.output_shardings.is_equivalent_to(row, 2), "a program says another place of its result"
        )
    wrong(
        dict(mesh.shape) != dict(zip(mesh.axis_names, mesh.devices.shape, strict=True)),
        "a mesh has another shape",
    )
    wrong(mesh.size != mesh.devices.size or mesh.empty, "a mesh has another size")
    return jax.jit(over(mesh, a))(x)


def _weak_types(mesh, a, x):
    """Python numbers stay weakly typed in jit, loops and branches. Arrays keep their dtype in products with them."""
    half = jax.device_put(np.asarray(x).astype(jnp.bfloat16), at(mesh, a))
    through = {
        "jit": jax.jit(lambda w: w),
        "scan": lambda w: lax.scan(lambda c, _: (c, None), w, length=2)[0],
        "while": lambda w: lax.while_loop(lambda c: c < 0, lambda c: c, w),
        "cond": lambda w: lax.cond(True, lambda c: c, lambda c: c, w),
        "fori": lambda w: lax.fori_loop(0, 2, lambda i, c: c, w),
        "where": lambda w: jnp.where(w > 0, w, w),
        "remat": jax.checkpoint(lambda w: w),
        "vmap": lambda w: jax.vmap(lambda _: w)(jnp.zeros(2))[0],
    }
    for name, f in through.items():
        found = jax.jit(f)(2.0)
        wrong(not found.weak_type or found.dtype != jnp.float32, f"a number is {found.aval} after {name}")
        product = jax.jit(lambda y, f=f: y * f(2.0))(half)
        wrong(product.dtype != jnp.bfloat16 or product.weak_type, f"a product is {product.aval} after {name}")
        same_as(np.asarray(product).astype(np.float32), 2 * np.asarray(x), f"a product after {name}")
    strong = jax.jit(lambda y: y * jnp.float32(2))(half)
    wrong(strong.dtype != jnp.float32, "a product with a strong number has another dtype")
    return jax.jit(over(mesh, a))(x)


def _within_a_batch(mesh, a, x):
    """Collectives over a batch in a shard_map, and over batch and devices. JAX does not support them with check_vma."""
    n, given = mesh.shape[a], np.asarray(x)
    batch = given.reshape(n, -1)[:, : 2 * n * 2].reshape(n, 2, 2 * n)  # [devices, batch, elements]
    turn = [(0, 1), (1, 0)]

    def of_batch(b):
        return (
            lax.ppermute(b, "batch", turn),
            lax.psum(b, "batch"),
            lax.pmax(b, "batch"),
            lax.all_gather(b, "batch"),
            lax.psum_scatter(b.reshape(2, -1), "batch"),
            lax.all_to_all(b.reshape(2, -1), "batch", 0, 0, tiled=True),
            0 * b + lax.axis_index("batch") + 10 * lax.axis_index(a),
            lax.psum(b, ("batch", a)),
            lax.pmin(b, (a, "batch")),
            lax.ppermute(b, a, [(i, (i + 1) % n) for i in range(n)]),
        )

    def local(b):
        return tuple(y[None] for y in jax.vmap(of_batch, axis_name="batch")(b[0]))

    found = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=P(a), check_vma=False))(
        jax.device_put(batch, at(mesh, a))
    )
    halves = batch.reshape(n, 2, 2, n)  # [devices, batch, part, elements]
    both = np.broadcast_to
    right = (
        batch[:, ::-1],
        both(batch.sum(axis=1, keepdims=True), batch.shape),
        both(batch.max(axis=1, keepdims=True), batch.shape),
        both(batch[:, None], (n, 2, 2, 2 * n)),
        halves.sum(axis=1),
        halves.transpose(0, 2, 1, 3),
        both(np.arange(2)[None, :, None] + 10 * np.arange(n)[:, None, None], batch.shape),
        both(batch.sum(axis=(0, 1)), batch.shape),
        both(batch.min(axis=(0, 1)), batch.shape),
        np.roll(batch, 1, axis=0),
    )
    names = (
        "ppermute",
        "psum",
        "pmax",
        "all_gather",
        "psum_scatter",
        "all_to_all",
        "axis_index",
        "psum of both",
    )
    names += ("pmin of both", "ppermute of devices")
    for name, y, want in zip(names, found, right, strict=True):
        same_as(np.asarray(y), np.asarray(want, np.float32), f"{name} within a batch")
    three = given[: 3 * n].reshape(n, 3, -1)
    cycle = jax.vmap(lambda b: lax.ppermute(b, "batch", [(0, 1), (1, 2), (2, 0)]), axis_name="batch")
    mapped = jax.shard_map(
        lambda b: cycle(b[0])[None], mesh=mesh, in_specs=P(a), out_specs=P(a), check_vma=False
    )
    found = jax.jit(mapped)(jax.device_put(three, at(mesh, a)))
    same_as(np.asarray(found), np.roll(three, 1, axis=1), "a cycle within a batch")
    return jax.jit(over(mesh, a))(x)


def _called_back(mesh, a, x):
    """Callbacks of batches by every vmap_method, and in loops; their exceptions; numbers that are printed."""
    given = np.asarray(x)[:4, :3]
    like = jax.ShapeDtypeStruct((3,), np.float32)
    for method in ("sequential", "expand_dims", "broadcast_all"):

        def asked(row, method=method):
            return jax.pure_callback(lambda y: np.asarray(y) * 2 + 1, like, row, vmap_method=method)

        found = jax.jit(jax.vmap(asked))(given)
        same_as(np.asarray(found), 2 * given + 1, f"a batch of callbacks by {method}")
    seen: list[Any] = []

    def loop(y):
        def step(c, k):
            jax.debug.callback(lambda v: seen.append(int(v)), k, ordered=True)
            return c + 1, None

        return lax.scan(step, y, jnp.arange(4))[0]

    same_as(np.asarray(jax.jit(loop)(given)), given + 4, "a loop with a callback")
    jax.effects_barrier()
    wrong(seen != [0, 1, 2, 3], f"callbacks of a loop saw {seen}")

    def refused(y):
        raise ValueError("no such row")

    try:
        jax.block_until_ready(jax.jit(lambda y: jax.pure_callback(refused, like, y))(given[0]))
    except Exception as error:
        wrong("no such row" not in str(error), f"a callback's exception says {str(error)[:80]}")
    else:
        wrong(True, "a callback's exception is lost")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        jax.jit(lambda y: jax.debug.print("<{:.3f} {n:>4d}>", y, n=7))(jnp.float32(1 / 3))
        jax.effects_barrier()
    wrong("<0.333    7>" not in out.getvalue(), f"printed {out.getvalue()!r}")
    return jax.jit(over(mesh, a))(x)


SECOND_USES: dict[str, Callable[..., Any]] = {
    "options_in_turn": _options_in_turn,
    "calls_in_turn": _calls_in_turn,
    "said": _said,
    "weak_types": _weak_types,
    "within_a_batch": _within_a_batch,
    "called_back": _called_back,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class SecondUse(ProgramForm):
    """One sharded program, with checks of second uses of functions, and of reports of arrays, types and programs."""

    name = "second_use"
    forms = SECOND_USES
    two_axes = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        return SECOND_USES[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
