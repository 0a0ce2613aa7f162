# SPDX-License-Identifier: Apache-2.0
"""Options of derivatives, batches, collectives and functions that create and place arrays, in forms that no other case
has: argument numbers, auxiliary results, negative axes, shardings.

The program is that of `programs.forms.base`: f(x) = x * s(x). The expected values are NumPy's. Any difference raises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.explicit.forms import EXPLICIT_FORMS, lies
from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.forms.settings import on_host

# Derivatives and batches.


def _pulled_beside(f, b, c):
    y, pull, beside = jax.vjp(f, b, c, has_aux=True)
    return y, pull(jnp.float32(3)), beside


def _pushed_beside(f, b, c):
    return jax.jvp(f, (b, c), (c, b), has_aux=True)


def _linear_beside(f, b, c):
    y, push, beside = jax.linearize(f, b, c, has_aux=True)
    return y, push(c, b), beside


def _arguments_of_derivatives(mesh, a, x):
    """Derivatives by the second argument, by two arguments, and with auxiliary results, by every function that gives
    derivatives, of a plain function and of a shard_map."""
    given = np.asarray(x)
    n = mesh.shape[a]
    u, v = given[:n, :2] + 1, given[n : 2 * n, :2] + 2
    place = at(mesh, a)
    p, q = (jax.device_put(w, place) for w in (u, v))

    def plain(b, c):
        return (b * b * c).sum(), (c + 1, b[::-1])

    mapped = jax.shard_map(
        lambda b, c: (lax.psum((b * b * c).sum(), a), (c + 1, b[::-1])),
        mesh=mesh,
        in_specs=P(a),
        out_specs=(P(), P(a)),
    )
    blocks = np.stack(np.split(u, n))[:, ::-1].reshape(u.shape)
    for f, turned, what in ((plain, u[::-1], "a function"), (mapped, blocks, "a shard_map")):
        beside = (v + 1, turned)
        total, first, second = (u * u * v).sum(), 2 * u * v, u * u
        calls = {
            "value_and_grad": jax.value_and_grad(f, argnums=(1, 0), has_aux=True),
            "grad": jax.grad(f, argnums=-1, has_aux=True),
            "vjp": partial(_pulled_beside, f),
            "jvp": partial(_pushed_beside, f),
            "linearize": partial(_linear_beside, f),
            "jacrev": jax.jacrev(f, argnums=(1,), has_aux=True),
            "jacfwd": jax.jacfwd(f, argnums=1, has_aux=True),
        }
        along = (first * v + second * u).sum()
        expected = {
            "value_and_grad": ((total, beside), (second, first)),
            "grad": (second, beside),
            "vjp": (total, (3 * first, 3 * second), beside),
            "jvp": (total, along, beside),
            "linearize": (total, along, beside),
            "jacrev": ((second,), beside),
            "jacfwd": (second, beside),
        }
        for name, call in calls.items():
            found, right = jax.tree.leaves(jax.jit(call)(p, q)), jax.tree.leaves(expected[name])
            wrong(len(found) != len(right), f"{name} of {what} has {len(found)} results")
            for number, (y, want) in enumerate(zip(found, right, strict=True)):
                same_as(np.asarray(y), np.float32(want), f"result {number} of {name} of {what}")
    row, other = u[0], v[0]

    def cubic(b, c):
        return ((b * c) ** 2).sum(), b

    second, beside = jax.jit(jax.hessian(cubic, argnums=1, has_aux=True))(row, other)
    same_as(np.asarray(second), np.diag(2 * row * row), "a hessian by the second argument")
    same_as(np.asarray(beside), row, "what a hessian gives beside it")
    return jax.jit(over(mesh, a))(x)


def _axes_from_the_end(mesh, a, x):
    """vmap with negative input and output axes, per argument and per result: of a function, with a constraint, inside a
    shard_map and around one."""
    given = np.asarray(x)

    def rows(b, c):
        return b * c, (b + c)[::-1]

    right = given * given, (given + given)[::-1]

    def runs(inner, what):
        run = jax.vmap(inner, in_axes=(-1, -1), out_axes=(-1, -2))
        found = jax.jit(run)(x, x)
        same_as(np.asarray(found[0]), right[0], f"the first of {what}")
        same_as(np.asarray(found[1]), right[1].T, f"the second of {what}")

    runs(rows, "a batch of columns")
    runs(
        lambda b, c: jax.tree.map(lambda y: lax.with_sharding_constraint(y, at(mesh, a)), rows(b, c)),
        "a batch with a constraint",
    )
    mapped = jax.shard_map(
        lambda b: jax.vmap(lambda y: (y.sum() + y, y[::-1]), in_axes=-1, out_axes=-1)(b),
        mesh=mesh,
        in_specs=P(a),
        out_specs=P(a),
    )
    n = mesh.shape[a]
    blocks = given.reshape(n, -1, given.shape[1])
    found = jax.jit(mapped)(x)
    same_as(
        np.asarray(found[0]),
        (blocks + blocks.sum(axis=1, keepdims=True)).reshape(given.shape),
        "a batch of a block's columns",
    )
    same_as(np.asarray(found[1]), blocks[:, ::-1].reshape(given.shape), "a batch of turned columns")
    outer = jax.vmap(over(mesh, a), in_axes=-1, out_axes=-1)
    same_as(
        np.asarray(jax.jit(outer)(jnp.stack([x, 2 * x], axis=-1)))[..., 1],
        4 * np.asarray(over(mesh, a)(x)),
        "",
    )
    return jax.jit(over(mesh, a))(x)


def _alternatives_of_collectives(mesh, a, x):
    """Collectives along negative axes, tiled and stacked; permutations without a source for some devices, in every
    dtype; sums, means and extremes of narrow dtypes over one axis by name, a tuple of one, and tuples of several."""
    names, n, size = mesh.axis_names, mesh.shape[a], mesh.size
    given = np.asarray(x)[: 2 * size, :n]
    blocks = given.reshape(size, 2, n)

    def run(f, out=None):
        mapped = jax.shard_map(
            f, mesh=mesh, in_specs=P(names), out_specs=P(names) if out is None else out, check_vma=False
        )
        return np.asarray(jax.jit(mapped)(jax.device_put(given, at(mesh, names))))

    lines = blocks.reshape(-1, n, 2, n)  # [line over the last axis, block, rows, columns]
    for axis, tiled in ((-1, False), (-2, False), (-1, True), (-2, True)):
        found = run(lambda b, k=axis, t=tiled: lax.all_gather(b, a, axis=k, tiled=t)[None])
        if tiled:
            want = np.stack([np.concatenate(list(line), axis=axis) for line in lines])
        else:
            want = np.stack([np.stack(list(line), axis=axis) for line in lines])
        same_as(found, np.repeat(want, n, axis=0), f"a gather along {axis}, tiled={tiled}")
    total = lines.sum(axis=1)
    place = np.tile(np.arange(n), size // n)
    sums = np.repeat(total, n, axis=0)
    found = run(lambda b: lax.psum_scatter(b, a, scatter_dimension=1, tiled=True)[None])
    same_as(found, np.stack([s[:, k : k + 1] for s, k in zip(sums, place, strict=True)]), "a scattered sum")
    found = run(lambda b: lax.psum_scatter(b, a, scatter_dimension=1)[None])
    same_as(
        found, np.stack([s[:, k] for s, k in zip(sums, place, strict=True)]), "a scattered sum of one each"
    )
    some = [(i, (i + 1) % n) for i in range(n - 1)] if n > 1 else []
    kinds = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32", "bool", "bfloat16")

    def sent(b):
        return jnp.stack([lax.ppermute(b.astype(k), a, some).astype(jnp.float32) for k in kinds])[None]

    moved = (np.roll(lines, 1, axis=1) * (np.arange(n)[:, None, None] > 0)).reshape(size, 2, n)
    for kind, found in zip(kinds, np.moveaxis(run(sent), 1, 0), strict=True):
        want = np.float32(moved != 0) if kind == "bool" else moved
        same_as(found, want, f"a permutation of some {kind}")
    reductions = {"psum": np.sum, "pmax": np.max, "pmin": np.min}
    narrow = ("int8", "int16", "uint16", "int32", "float32")
    for number, over_axes in enumerate((a, (a,), names, names[::-1])):
        group = lines if number < 2 else blocks[None]

        def reduced(b, o=over_axes):
            found = [getattr(lax, f)(b.astype(k), o).astype(jnp.float32) for f in reductions for k in narrow]
            n = lax.axis_size(o)
            means = [lax.pmean(b * n, o), lax.pmean((b % 2 * n).astype(jnp.int8), o)]
            return jnp.stack([*found, *means])[None].astype(jnp.float32)

        calls = [(f, k) for f in reductions for k in narrow] + [("pmean", "float32"), ("pmean", "int8")]
        for (f, kind), found in zip(calls, np.moveaxis(run(reduced), 1, 0), strict=True):
            right = reductions.get(f, np.sum)(group % 2 if (f, kind) == calls[-1] else group, axis=1)
            want = np.repeat(right, group.shape[1], axis=0)
            same_as(found, want, f"{f} of {kind} over {over_axes}")
    return jax.jit(over(mesh, a))(x)


# Arrays that an option places.


def _placed_by_device(mesh, a, x):
    """`device=` of functions that create arrays, outside jit: a sharding, or one device that is not the first. Also a
    put from the mesh to one device, by object and by sharding, and back; and dtypes of arrays made from parts."""
    given, last = np.asarray(x), mesh.devices.flat[-1]
    rows, columns = given.shape
    flat = np.arange(rows * columns, dtype=np.float32)
    for place in (at(mesh, a), at(mesh, None, a), SingleDeviceSharding(last), last):
        lie = SingleDeviceSharding(last) if place is last else place
        line = at(mesh, a) if isinstance(place, NamedSharding) else lie
        made = {
            "asarray": (jnp.asarray(given, device=place), given, lie),
            "array": (jnp.array(given, device=place), given, lie),
            "zeros": (jnp.zeros(given.shape, device=place), 0 * given, lie),
            "ones": (jnp.ones(given.shape, jnp.int8, device=place), np.ones(given.shape, np.int8), lie),
            "full": (jnp.full(given.shape, 3.0, device=place), 0 * given + 3, lie),
            "zeros_like": (jnp.zeros_like(x, device=place), 0 * given, lie),
            "ones_like": (jnp.ones_like(given, device=place), 0 * given + 1, lie),
            "full_like": (jnp.full_like(x, 7, device=place), 0 * given + 7, lie),
            "shaped": (jnp.zeros_like(x, shape=given.T.shape, device=at(mesh)), 0 * given.T, at(mesh)),
            "eye": (jnp.eye(rows, columns, 1, device=place), np.eye(rows, columns, 1, np.float32), lie),
            "arange": (jnp.arange(rows * columns, dtype=jnp.float32, device=line), flat, line),
            "linspace": (jnp.linspace(0, rows, rows, False, device=line), flat[:rows], line),
            "put": (jax.device_put(x, place), given, lie),
            "put of columns": (jax.device_put(jax.device_put(given, at(mesh, None, a)), place), given, lie),
            "to_device": (x.to_device(place), given, lie),
        }
        if isinstance(place, NamedSharding):  # a cast from the mesh to one device is refused
            made["asarray of an array"] = jnp.asarray(x, device=place), given, lie
            made["astype"] = jnp.astype(x, jnp.int16, device=place), given.astype(np.int16), lie
        for name, (found, right, where) in made.items():
            what = f"{name} to {place}"
            same_as(np.asarray(found), right, what)
            lies(found, where, what)
            wrong(not found.committed, f"{what} is not committed")
            wrong(found.devices() != where.device_set, f"{what} is on {found.devices()}")
        same_as(np.asarray(jax.device_put(jax.device_put(x, place), at(mesh, a))), given, f"{place} and back")
    for place in (at(mesh, a), at(mesh, None, a), SingleDeviceSharding(last)):
        there = jax.device_put(given, place)
        for name, function in {
            "zeros": jnp.zeros_like,
            "ones": jnp.ones_like,
            "empty": jnp.empty_like,
        }.items():
            lies(function(there), place, f"{name} like an array in {place}")
        lies(there + 1, place, f"a sum of an array in {place}")
        lies(-there * there, place, f"a product of an array in {place}")
    whole = jax.make_array_from_callback(given.shape, at(mesh, a), lambda i: given[i], dtype=jnp.float32)
    parts = [jax.device_put(given[i], d) for d, i in at(mesh, a).devices_indices_map(given.shape).items()]
    joined = jax.make_array_from_single_device_arrays(
        given.shape, at(mesh, a), parts[::-1], dtype=jnp.float32
    )
    same_as(np.asarray(whole), given, "an array of a callback with a dtype")
    same_as(np.asarray(joined), given, "an array of blocks in the other order")
    wrong(whole.dtype != joined.dtype or joined.weak_type, "a dtype is another")
    return jax.jit(over(mesh, a))(x)


def _host_layouts(mesh, a, x):
    """Host arrays in other layouts, put to the mesh and passed to jit: Fortran order (also square), broadcast with zero
    strides, reversed, every second row, a field of records, read-only, unaligned."""
    given = np.asarray(x)
    rows, columns = given.shape
    square = given[:columns] + np.arange(columns, dtype=np.float32)
    record = np.zeros(rows, [("skip", np.int8), ("row", np.float32, columns)])
    record["row"] = given
    frozen = given.copy()
    frozen.flags.writeable = False
    room = np.zeros(given.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(given.shape)
    room[...] = given
    arrays = {
        "fortran": np.asfortranarray(given),
        "a square in Fortran order": np.asfortranarray(square),
        "transposed": given.T.copy().T,
        "broadcast rows": np.broadcast_to(given[3], given.shape),
        "broadcast columns": np.broadcast_to(given[:, 3:4], given.shape),
        "broadcast": np.broadcast_to(given[5:6, 2:3], given.shape),
        "reversed": given[::-1, ::-1],
        "every second row": np.repeat(given, 2, axis=0)[::2],
        "a field": record["row"],
        "read-only": frozen,
        "unaligned": room,
    }
    turned = Mesh(mesh.devices[..., ::-1], mesh.axis_names)
    twice = jax.jit(lambda y: 2 * y, in_shardings=at(mesh, a), out_shardings=at(mesh, a))
    for name, array in arrays.items():
        for kind in (np.float32, np.int8, bool):
            host = array if kind is np.float32 else array.astype(kind, order="K")
            for place in (at(mesh, a), at(turned, a), at(mesh)):
                if host.shape[0] % place.mesh.shape[a]:
                    continue
                same_as(
                    np.asarray(jax.device_put(host, place)), host, f"{name} of {host.dtype} put to {place}"
                )
        if array.shape[0] % mesh.shape[a] == 0:
            same_as(np.asarray(twice(array)), 2 * array, f"{name} given to jit")
    return jax.jit(over(mesh, a))(x)


def _left_open(mesh, a, x):
    """Unconstrained dimensions of a constraint keep their sharding without communication. Also results whose sharding
    jit chooses, beside results with a given one."""
    first, given = mesh.axis_names[0], np.asarray(x)
    both = at(mesh, a, first) if first != a else at(mesh, a)
    there = jax.device_put(x, both)

    def held(y):
        return lax.with_sharding_constraint(2 * y, at(mesh, P.UNCONSTRAINED, P.UNCONSTRAINED))

    def rows(y):
        return lax.with_sharding_constraint(2 * y, at(mesh, a, P.UNCONSTRAINED))

    for f, what in ((held, "both"), (rows, "columns")):
        compiled = jax.jit(f).lower(there).compile()
        found = compiled(there)
        same_as(np.asarray(found), 2 * given, f"an array with {what} left open")
        lies(found, both, f"an array with {what} left open")
        for name in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
            wrong(name in compiled.as_text(), f"an array with {what} left open is sent by {name}")
    run = jax.jit(
        lambda y: (y + 1, 2 * y, {"p": y, "q": -y}),
        out_shardings=(None, at(mesh), {"p": None, "q": at(mesh, a)}),
    )
    plus, double, tree = run(there)
    for found, right in ((plus, given + 1), (double, 2 * given), (tree["p"], given), (tree["q"], -given)):
        same_as(np.asarray(found), right, "a result beside others")
    lies(plus, both, "a result whose sharding is left open")
    lies(tree["p"], both, "a leaf whose sharding is left open")
    lies(double, at(mesh), "a result that is whole")
    lies(tree["q"], at(mesh, a), "a leaf with a sharding")
    return jax.jit(over(mesh, a))(x)


# Draws.


def _draws_by_option(mesh, a, x):
    """Draws with an axis, a dtype, a range or a shape equal those of one device: columns permuted together, rows
    permuted independently, choices of columns, categories along the first dimension."""
    given, key = np.asarray(x), jax.random.key(11)
    shape = (4 * mesh.shape[a], 2)
    calls = {
        "columns alike": lambda y: jax.random.permutation(key, y, axis=1),
        "each row": lambda y: jax.random.permutation(key, y, axis=1, independent=True),
        "chosen columns": lambda y: jax.random.choice(key, y, (3,), replace=False, axis=1),
        "categories": lambda y: jax.random.categorical(key, y[:, :4], axis=0),
        "bfloat16": lambda y: jax.random.normal(key, shape, jnp.bfloat16) + 0 * y[0, 0],
        "a range for each": lambda y: jax.random.randint(
            key, y.shape, -3, 1 + y.astype(jnp.int32), jnp.int16
        ),
        "a key for each": lambda y: jax.random.key_data(jax.random.split(key, (mesh.shape[a], 2))),
    }
    alone = jax.device_put(given, SingleDeviceSharding(mesh.devices.flat[-1]))
    drawn = jax.jit(lambda y: {name: draw(y) for name, draw in calls.items()})
    right = drawn(alone)
    found = drawn(jax.device_put(given, at(mesh, None, a)))
    for name in calls:
        same_as(np.asarray(found[name]), np.asarray(right[name]), f"{name} of sharded columns")
    rows = np.asarray(right["columns alike"])
    order = [tuple(c) for c in given.T]
    wrong(sorted(order) != sorted(tuple(c) for c in rows.T), "columns that are permuted alike are others")
    mixed = np.asarray(right["each row"])
    wrong(
        not np.array_equal(np.sort(mixed, 1), np.sort(given, 1)), "rows that are permuted have other numbers"
    )
    return jax.jit(over(mesh, a))(x)


# Parts that run on the host.


def _gradient_on_host(mesh, a, x):
    """Gradients through a part that runs on the host (`compute_on`): alone, in a scan, in a rematerialized function,
    and beside a part that runs on the device."""
    given = np.asarray(x)

    def cube(y):
        return on_host(lambda b: b * b * b)(y)

    def looped(y):
        return lax.scan(lambda c, k: (on_host(lambda b: b * 2)(c) * k, None), y, jnp.array([1.0, 3]))[0]

    cases = {
        "a part": (cube, 3 * given**2),
        "a part beside another": (lambda y: cube(y) * y, 4 * given**3),
        "a part of a loop": (looped, 0 * given + 12),
        "a part that is computed again": (jax.checkpoint(lambda y: cube(2 * y)), 24 * given**2),
    }
    for name, (f, right) in cases.items():
        found = jax.jit(jax.grad(lambda y, f=f: f(y).sum()), out_shardings=at(mesh, a))(x)
        same_as(np.asarray(found), right.astype(np.float32), f"the gradient of {name} on the host")
    return jax.jit(over(mesh, a))(x)


OPTION_FORMS: dict[str, Callable[..., Any]] = {
    "arguments_of_derivatives": _arguments_of_derivatives,
    "axes_from_the_end": _axes_from_the_end,
    "alternatives_of_collectives": _alternatives_of_collectives,
    "placed_by_device": _placed_by_device,
    "host_layouts": _host_layouts,
    "left_open": _left_open,
    "draws_by_option": _draws_by_option,
    "gradient_on_host": _gradient_on_host,
    **EXPLICIT_FORMS,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class OptionForm(ProgramForm):
    """One sharded program, with checks of options of derivatives, batches, collectives and functions that place arrays,
    in forms that no other case has."""

    name = "option_form"
    forms = OPTION_FORMS
    two_axes = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        return OPTION_FORMS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
