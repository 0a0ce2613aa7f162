# SPDX-License-Identifier: Apache-2.0
"""Behaviour of one sharded program under a condition: on one device, in one branch, for one length, for one order of
groups, for one argument of a derivative.

The program is that of `programs.forms.base`: f(x) = x * s(x). A case returns f(x) if JAX works as documented under its
condition, and other values otherwise. If values cannot show it, the case raises.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import ProgramForm, at, explicit, over
from meshmark.operations.programs.forms.collective_options import replicated, same_as
from meshmark.operations.programs.forms.function_forms import off
from meshmark.operations.programs.forms.options import through, wrong

LENGTHS = (1, 2, 3, 7, 31, 33, 63, 65, 127, 129, 257, 1025)
"""Lengths around powers of two."""


# Devices.


def _one_to_one(mesh, a, x):
    """ppermute from each device to each device, one pair at a time: all other devices get zeros."""
    n = mesh.shape[a]
    pairs = [(i, j) for i in range(n) for j in range(n)]
    given = np.arange(1, n + 1, dtype=np.float32)
    found = replicated(mesh, a, lambda b: jnp.stack([lax.ppermute(b[0], a, [pair]) for pair in pairs]), given)
    wanted = [[given[i] if j == device else 0 for i, j in pairs] for device in range(n)]
    same_as(found, np.array(wanted, np.float32), "what one device sends to one")
    return jax.jit(over(mesh, a))(x)


def _branches(mesh, a, x):
    """Each device takes its own branch and its own number of loop iterations."""
    n = mesh.shape[a]

    def local(b):
        i, y = lax.axis_index(a), b[0]
        last = lax.cond(i == n - 1, lambda v: v + 10, lambda v: v - 10, y)
        first = lax.cond(i > 0, lambda v, w: v - w, lambda v, w: w, y, 2 * y)
        chosen = lax.switch(i, [lambda v, k=k: v * (k + 2) for k in range(n)], y)
        turned = lax.while_loop(lambda c: c[0] < i, lambda c: (c[0] + 1, 2 * c[1]), (0 * i, y))[1]
        counted = lax.fori_loop(0, i, lambda k, c: c + k + 1, y)
        slope = jax.grad(lambda v: lax.cond(i % 2 == 0, lambda w: 3 * w, lambda w: w * w, v))(y)
        return jnp.stack([last, first, chosen, turned, counted, slope])

    given = np.arange(3, n + 3, dtype=np.float32)
    rows = []
    for i, y in enumerate(given):
        rows.append(
            [
                y + 10 if i == n - 1 else y - 10,
                2 * y if i == 0 else -y,
                y * (i + 2),
                y * 2**i,
                y + i * (i + 1) // 2,
                3 if i % 2 == 0 else 2 * y,
            ]
        )
    for checked in (True, False):
        found = replicated(mesh, a, local, given, check_vma=checked)
        same_as(found, np.array(rows, np.float32), f"what devices choose (check_vma={checked})")
    return jax.jit(over(mesh, a))(x)


def _orders_of_groups(mesh, a, x):
    """Groups whose members are not in order, and groups that are not in order: pairs of an even number of devices, the
    smallest equal groups of an odd one. The listed order gives each member's position in its group."""
    n = mesh.shape[a]
    members = next((k for k in range(2, n) if n % k == 0), n)
    order = [*range(n)][::-1]
    groups = [order[i :: n // members] for i in range(n // members)]
    peers = {i: group for group in groups for i in group}

    def local(b):
        y, options = b[0], {"axis_index_groups": groups}
        parcels = jnp.stack([(1 + 9 * k) * y for k in range(members)])
        gathered = lax.all_gather(y, a, **options)
        parts = lax.psum_scatter(parcels, a, **options)
        sent = lax.all_to_all(parcels, a, 0, 0, **options)
        rest = [lax.psum(y, a, **options), lax.pmax(y, a, **options), lax.pmin(y, a, **options)]
        return jnp.concatenate([gathered, sent, jnp.stack([parts, *rest])])

    given = np.arange(1, n + 1, dtype=np.float32)
    rows = []
    for i in range(n):
        own = given[peers[i]]
        part = 1 + 9 * peers[i].index(i)
        rows.append([*own, *(part * own), part * own.sum(), own.sum(), own.max(), own.min()])
    same_as(
        replicated(mesh, a, local, given, check_vma=False),
        np.array(rows, np.float32),
        f"what the groups {groups} have",
    )
    return jax.jit(over(mesh, a))(x)


def _lengths(mesh, a, x):
    """Collectives of blocks with lengths around powers of two, in one program."""
    n = mesh.shape[a]
    given = [
        (np.arange(n * k, dtype=np.int32) * 2654435 % 1009).astype(np.float32).reshape(n, k) for k in LENGTHS
    ]
    turn = [(i, (i + 1) % n) for i in range(n)]

    def local(*arrays):
        found = []
        for b in arrays:
            wide = jnp.tile(b, (1, n)) * jnp.arange(1.0, n + 1).repeat(b.shape[1])
            found += [
                lax.psum(b, a),
                lax.pmax(b, a),
                lax.ppermute(b, a, turn),
                lax.all_gather(b, a, axis=1, tiled=True),
                lax.psum_scatter(wide, a, scatter_dimension=1, tiled=True),
                lax.all_to_all(wide, a, 1, 1, tiled=True),
            ]
        return tuple(found)

    mapped = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=P(a))
    results = iter(jax.jit(mapped)(*given))
    parts = np.arange(1, n + 1, dtype=np.float32)[:, None]
    for g in given:
        total, every = g.sum(axis=0), g.reshape(-1)
        for what, wanted in (
            ("sum", np.tile(total, (n, 1))),
            ("maximum", np.tile(g.max(axis=0), (n, 1))),
            ("turn", np.roll(g, 1, axis=0)),
            ("gather", np.tile(every, (n, 1))),
            ("scattered sum", total * parts),
            ("exchange", every * parts),
        ):
            same_as(np.asarray(next(results)), wanted, f"the {what} of blocks of {g.shape[1]}")
    return jax.jit(over(mesh, a))(x)


def _many_arrays(mesh, a, x):
    """Many arguments and results keep their places, and so do many leaves of one collective. The dtypes alternate."""
    kinds = (np.float32, np.int32, np.int8, np.float16)
    given = [jax.device_put(np.full(2 * mesh.size, k % 100, kinds[k % 4]), at(mesh, a)) for k in range(150)]
    found = jax.jit(lambda *arrays: tuple(b + 1 for b in arrays[::-1]))(*given)
    for k, y in enumerate(found):
        wrong(
            y.dtype != given[149 - k].dtype or not np.all(np.asarray(y) == (149 - k) % 100 + 1),
            f"result {k} of 150 is another",
        )
    n = mesh.shape[a]
    leaves = {str(k): np.full(n, k % 15, kinds[k % 4]) for k in range(60)}
    sums = jax.jit(jax.shard_map(lambda t: lax.psum(t, a), mesh=mesh, in_specs=P(a), out_specs=P()))(leaves)
    for k, y in sums.items():
        wrong(
            y.dtype != leaves[k].dtype or not np.all(np.asarray(y) == n * (int(k) % 15)),
            f"leaf {k} of 60 is another",
        )
    return jax.jit(over(mesh, a))(x)


def _ranks(mesh, a, x):
    """Collectives of blocks with zero to six dimensions, along the last one."""
    n = mesh.shape[a]

    places = np.arange(1, n + 1, dtype=np.float32)

    def local(b):
        found = [lax.psum(b[0, 0], a)]
        for rank in range(1, 7):
            shape = (*(1, 2, 1, 3, 2)[: rank - 1], n)
            y = jnp.resize(b, shape) * places
            turned = lax.all_to_all(y, a, rank - 1, rank - 1, tiled=True)
            part = lax.psum_scatter(y, a, scatter_dimension=rank - 1, tiled=True)
            joined = lax.all_gather(part, a, axis=rank - 1, tiled=True)
            found += [(turned * places).sum(), part.sum(), jnp.abs(joined - lax.psum(y, a)).sum()]
        return jnp.stack(found)

    given = np.arange(1, 2 * n + 1, dtype=np.float32).reshape(n, 2)
    rows = []
    for i in range(n):
        row = [given[:, 0].sum()]
        for rank in range(1, 7):
            spread = [np.resize(g, (*(1, 2, 1, 3, 2)[: rank - 1], n)) * places for g in given]
            own = [s[..., i].sum() for s in spread]
            row += [(places * own).sum(), sum(own), 0]
        rows.append(row)
    same_as(replicated(mesh, a, local, given), np.array(rows, np.float32), "what arrays of many ranks give")
    return jax.jit(over(mesh, a))(x)


# Derivatives.


def _second_arguments(mesh, a, x):
    """The derivative by each single argument of functions whose arguments have different roles."""

    def same(y):
        rows, columns = y.shape
        w = jnp.arange(1.0, rows + 1)[:, None] + jnp.arange(columns) % 3
        few = y[:2, :3]

        def by_each(function, *arguments):
            """The derivatives of a weighted sum by each single argument."""

            def weighted(*given):
                found = function(*given)
                return (found * jnp.resize(w, found.shape)).sum()

            return [jax.grad(weighted, argnums=k)(*arguments) for k in range(len(arguments))]

        big = jnp.zeros_like(y).at[1:3, 2:5].set(1)
        kept, put = by_each(lambda p, q: lax.dynamic_update_slice(p, q, (1, 2)), y, few)
        total, more = by_each(lambda p, q: p.at[jnp.array([1, 1])].add(q[:, :1]), y, few)
        left, right = by_each(lambda p, q: jnp.concatenate([q, p[:, :3]]), y, few)
        wide = jnp.resize(w, (rows + 1, columns + 2))
        inner, value = jax.grad(
            lambda p, q: (lax.pad(p, q, ((1, 0, 0), (0, 2, 0))) * wide).sum(), argnums=(0, 1)
        )(y, jnp.float32(3))
        yes, no = by_each(lambda p, q: jnp.where(w % 2 == 0, p, q), y, y + 1)
        first, second = by_each(lambda p, q: p @ q.T, few, 2 * few)
        low, middle, high = by_each(lambda p, q, r: lax.clamp(p, q, r), 0 * y + 1, y, 0 * y + 2)
        small, tall = jnp.resize(w, (2, 2)), jnp.resize(w, (rows + 2, 3))
        columnwise = jnp.resize(w, y.shape)
        lost = off(
            (kept, columnwise * (1 - big)),
            (put, columnwise[1:3, 2:5]),
            (total, columnwise),
            (more[:, :1], columnwise[1].sum() + 0 * few[:, :1]),
            (left[:, :3], tall[2:]),
            (right, tall[:2]),
            (inner, wide[1:, :columns]),
            (value, wide.sum() - wide[1:, :columns].sum()),
            (yes, columnwise * (w % 2 == 0)),
            (no, columnwise * (w % 2 == 1)),
            (first, small @ (2 * few)),
            (second, small.T @ few),
            (low, columnwise * (y < 1)),
            (high, columnwise * (y > 2)),
            (middle * ((y < 1) | (y > 2)), 0 * y),
        )
        return y + lost

    return through(mesh, a, same)(x)


def _padding_value(mesh, a, x):
    """The derivative by the padding value alone."""

    def same(y):
        rows, columns = y.shape
        weights = jnp.arange(1.0, rows + 2)[:, None] + jnp.arange(columns + 2) % 3
        slope = jax.grad(lambda q: (lax.pad(y, q, ((1, 0, 0), (0, 2, 0))) * weights).sum())(3.0)
        return y + off((slope, weights.sum() - weights[1:, :columns].sum()))

    return through(mesh, a, same)(x)


def _names_of_residuals(mesh, a, x):
    """Checkpoint policies around a collective in a loop: by name, all but a name, products, combined, everything."""
    from jax.ad_checkpoint import checkpoint_name

    policies = jax.checkpoint_policies
    ways = {
        "one": policies.save_only_these_names("kept"),
        "all_but_one": policies.save_anything_except_these_names("kept"),
        "products": policies.dots_with_no_batch_dims_saveable,
        "both": policies.save_from_both_policies(
            policies.save_only_these_names("kept"), policies.nothing_saveable
        ),
        "everything": policies.everything_saveable,
    }

    def local(b):
        def step(c, k):
            kept = checkpoint_name(c * k, "kept")
            return kept + lax.psum(b * b, a) * k, kept

        found = []
        for policy in ways.values():
            looped = jax.checkpoint(step, policy=policy, prevent_cse=False)
            found.append(lax.scan(looped, 2 * b, jnp.array([1.0, 2, 3]))[0])
        return tuple(found)

    f = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=(P(a),) * len(ways))
    for k, way in enumerate(ways):
        # c -> 6 * 2b + (6 + 6 + 3) * sum(b * b)
        found = np.asarray(jax.jit(jax.grad(lambda y, k=k: f(y)[k].sum()))(x))
        wanted = 12 + 30 * mesh.shape[a] * np.asarray(x)
        same_as(found, wanted.astype(np.float32), f"a gradient that keeps {way}")
    return jax.jit(over(mesh, a))(x)


def _kinks(mesh, a, x):
    """Derivatives at a kink, by integers, of rounding, of unused arguments and through stop_gradient."""

    def same(y):
        ones = jnp.ones_like(y)

        def slope(f, at=0.0):
            return jax.grad(lambda p: f(p).sum())(at * ones)

        whole_number = jax.grad(lambda p, k: (p * k).sum(), argnums=(0, 1), allow_int=True)(
            y, 3 * ones.astype(jnp.int32)
        )
        wrong(whole_number[1].dtype != jax.dtypes.float0, "the derivative by a whole number has a value")
        safe = jax.grad(lambda p: jnp.where(p > 0, jnp.sqrt(jnp.where(p > 0, p, 1)), 0).sum())(0 * ones)
        stopped = jax.grad(lambda p: (p * lax.stop_gradient(p)).sum())(y)
        unused, used = jax.grad(lambda p, q: (2 * q).sum(), argnums=(0, 1))(y, y)
        rounded = jax.grad(lambda p: (jnp.round(p) + jnp.floor(p) + jnp.sign(p)).sum())(y)
        lost = off(
            (slope(jax.nn.relu), 0 * ones),
            (slope(lambda p: jnp.maximum(p, 0)), ones / 2),
            (slope(lambda p: p**2), 0 * ones),
            (slope(lambda p: jnp.clip(p, -1, 1)), ones),
            (slope(jnp.sinc), 0 * ones),
            (whole_number[0], 3 * ones),
            (safe, 0 * ones),
            (stopped, y),
            (unused, 0 * ones),
            (used, 2 * ones),
            (rounded, 0 * ones),
        )
        return y + lost

    return through(mesh, a, same)(x)


# Loops, batches and branches of trees.


def _leaves_of_loops(mesh, a, x):
    """Loops whose carries, inputs and outputs have equal shapes do not mix them up; nor do their gradients."""

    def same(y):
        ones = jnp.ones_like(y)
        rows = jnp.stack([y, 2 * y, 3 * y])

        def step(carry, given):
            p, q, r = carry
            return (q, r, p + given["b"]), {"a": p - q, "b": given["a"][0], "c": given["a"][1]}

        def looped(p, q, r, first, second, third, **options):
            return lax.scan(step, (p, q, r), {"a": (first, second), "b": third}, **options)

        inputs = (ones, 2 * ones, 3 * ones, rows, 10 * rows, 100 * rows)
        (p, q, r), seen = looped(*inputs)
        back, _ = looped(*inputs, reverse=True)
        slopes = jax.grad(
            lambda *given: sum((k + 1) * c.sum() for k, c in enumerate(looped(*given)[0])),
            argnums=(0, 1, 2, 5),
        )(*inputs)
        weights = jnp.array([1.0, 2, 3])[:, None, None]
        lost = off(
            (p, ones + 100 * y),
            (q, 2 * ones + 200 * y),
            (r, 3 * ones + 300 * y),
            (back[0], ones + 300 * y),
            (seen["a"][0], -ones),
            (seen["a"][2], 2 * ones - 100 * y),
            (seen["b"], rows),
            (seen["c"], 10 * rows),
            *((slopes[k], (k + 1) * ones) for k in range(3)),
            (slopes[3], weights + 0 * rows),
        )
        chosen = lax.cond(
            y.min() > -1, lambda t: {"a": t["b"], "b": t["a"]}, lambda t: t, {"a": y, "b": 2 * y}
        )
        lost += off((chosen["a"], 2 * y), (chosen["b"], y))
        return y + lost

    return through(mesh, a, same)(x)


def _branches_of_a_batch(mesh, a, x):
    """Each row of a batch takes its own branch or index, also if an index is past the end; and a custom_vmap rule."""
    from jax.custom_batching import custom_vmap

    def same(y):
        rows = jnp.arange(y.shape[0])
        branches = [lambda r, k=k: r + k for k in range(5)]
        chosen = jax.vmap(lambda k, r: lax.switch(k, branches, r))(rows, y)
        picked = jax.vmap(lambda k, r: lax.cond(k == 2, lambda v: -v, lambda v: 3 * v, r))(rows, y)
        cut = jax.vmap(lambda k, r: lax.dynamic_slice(r, (k,), (2,)))(rows, y)
        written = jax.vmap(lambda k, r: lax.dynamic_update_slice(r, r[:1], (k,)))(rows, y)

        @custom_vmap
        def own(row, k):
            return row * k

        @own.def_vmap
        def own_rule(size, batched, row, k):
            wrong(batched != [True, False] or size != y.shape[0], f"the rule is told {batched} of {size}")
            return row * k + 7, True

        ruled = jax.vmap(own, in_axes=(0, None))(y, 3.0)
        places = jnp.minimum(rows, y.shape[1] - 2)
        last = jnp.minimum(rows, y.shape[1] - 1)
        lost = off(
            (chosen, y + jnp.minimum(rows, 4)[:, None]),
            (picked, jnp.where(rows[:, None] == 2, -y, 3 * y)),
            (cut[:, 0], y[rows, places]),
            (cut[:, 1], y[rows, places + 1]),
            (written, jnp.where(jnp.arange(y.shape[1]) == last[:, None], y[:, :1], y)),
            (ruled, 3 * y + 7),
        )
        return y + lost

    return through(mesh, a, same)(x)


# Constraints and shardings.


def _free_dimensions(mesh, a, x):
    """Constraints with unconstrained dimensions, of trees, and inside loops, branches and batches."""
    free = P.UNCONSTRAINED

    def same(y):
        def held(v, *spec):
            return lax.with_sharding_constraint(v, at(mesh, *spec))

        y = held(y, a, free)
        y = held(y, free, mesh.axis_names[0])
        tree = lax.with_sharding_constraint({"p": y, "q": (y.T, 2 * y)}, at(mesh, None, a))
        y = (3 * tree["p"] + tree["q"][0].T + tree["q"][1]) / 6
        y = lax.scan(lambda c, _: (held(c + 1, a), None), y, None, length=3)[0] - 3
        y = lax.cond(y.min() > -1, lambda v: held(v, None, a), lambda v: v + 1, y)
        return jax.vmap(lambda v: held(v, a), in_axes=1, out_axes=1, spmd_axis_name=None)(y)

    return through(mesh, a, same)(x)


def _asked_places(mesh, a, x):
    """Each function with `out_sharding` gives the requested sharding in its type, and the same values as without."""
    m = explicit(mesh)
    n = mesh.size
    key = jax.random.key(3)
    calls: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "zeros": (jnp.zeros, lambda f, **k: f((n, 2 * n), **k)),
        "ones": (jnp.ones, lambda f, **k: f((n, 2 * n), jnp.int8, **k)),
        "full": (jnp.full, lambda f, **k: f((n, 2 * n), 3, **k)),
        "iota": (lax.broadcasted_iota, lambda f, **k: f(jnp.int32, (n, 2 * n), 1, **k)),
        "matmul": (jnp.matmul, lambda f, **k: f(jnp.ones((n, 3)), jnp.ones((3, 2 * n)), **k)),
        "dot": (jnp.dot, lambda f, **k: f(jnp.ones((n, 3)), jnp.ones((3, 2 * n)), **k)),
        "einsum": (
            jnp.einsum,
            lambda f, **k: f("ij,jk->ik", jnp.ones((n, 3)), jnp.full((3, 2 * n), 2.0), **k),
        ),
        "reshape": (jnp.reshape, lambda f, **k: f(jnp.arange(2 * n * n), (n, 2 * n), **k)),
        "broadcast_to": (jnp.broadcast_to, lambda f, **k: f(jnp.arange(2 * n), (n, 2 * n), **k)),
        "bits": (jax.random.bits, lambda f, **k: f(key, (n, 2 * n), **k)),
        "normal": (jax.random.normal, lambda f, **k: f(key, (n, 2 * n), **k)),
        "uniform": (jax.random.uniform, lambda f, **k: f(key, (n, 2 * n), **k)),
        "repeat": (jnp.repeat, lambda f, **k: f(jnp.arange(2 * n)[None], n, axis=0, **k)),
        "take": (
            lambda y, i, **k: y.at[i].get(**k),
            lambda f, **k: f(jnp.arange(2 * n * n).reshape(n, 2 * n), jnp.arange(n)[::-1], **k),
        ),
    }
    with jax.set_mesh(m):
        for name, (function, call) in calls.items():
            if name != "take" and "out_sharding" not in inspect.signature(function).parameters:
                continue
            plain = np.asarray(jax.jit(lambda f=function, c=call: c(f))())
            for spec in (P(None, a), P(None, tuple(m.axis_names))):
                said = []

                def asked(f=function, c=call, s=spec, said=said):
                    y = c(f, out_sharding=s)
                    said.append(tuple(jax.typeof(y).sharding.spec))
                    return y

                y = jax.jit(asked)()
                wrong(said[0] != tuple(spec), f"the type of {name} is over {said[0]} and not {spec}")
                places = jax.sharding.NamedSharding(m, spec)
                wrong(
                    not y.sharding.is_equivalent_to(places, 2),
                    f"{name} is placed as {y.sharding}, not {spec}",
                )
                if name == "normal":  # other vector instructions can round the last bit differently
                    y = jnp.where(jnp.abs(y - plain) < 1e-6, plain, y)
                same_as(np.asarray(y), plain, f"{name} over {spec}")
    return jax.jit(over(mesh, a))(x)


def _meshes_alike(mesh, a, x):
    """Meshes with equal shape and names but other device orders: one jitted function, and each block on its device."""
    n = mesh.shape[a]
    number = {d: i for i, d in enumerate(mesh.devices.flat)}
    orders = [mesh.devices, mesh.devices[..., ::-1], np.roll(mesh.devices, 1, axis=-1), mesh.devices]
    run = jax.jit(lambda y: 2 * y)
    for devices in orders:
        m = Mesh(devices, mesh.axis_names)
        wrong((m == mesh) != bool(np.all(devices == mesh.devices)), "meshes of other devices are equal")
        y = run(jax.device_put(np.asarray(x), at(m, a)))
        places = jax.jit(
            jax.shard_map(lambda: lax.axis_index(a)[None], mesh=m, in_specs=(), out_specs=P(a)),
            out_shardings=at(m, a),
        )()
        columns = {d: i for row in m.devices.reshape(-1, n) for i, d in enumerate(row)}
        for array, wanted in ((y, 2 * np.asarray(x)), (places, np.arange(n, dtype=np.int32))):
            wrong(not np.array_equal(array, wanted), "a mesh in another order gives other values")
            rows = len(wanted) // n
            for shard in array.addressable_shards:
                own = wanted[columns[shard.device] * rows :][:rows]
                wrong(
                    not np.array_equal(shard.data, own),
                    f"device {number[shard.device]} has a block that is another's",
                )
        with jax.set_mesh(m) if hasattr(jax, "set_mesh") else m:
            same_as(np.asarray(run(y)), 4 * np.asarray(x), "the function in another mesh")
    return jax.jit(over(mesh, a))(x)


CONDITIONS: dict[str, Callable[..., Any]] = {
    "one_to_one": _one_to_one,
    "branches": _branches,
    "orders_of_groups": _orders_of_groups,
    "lengths": _lengths,
    "many_arrays": _many_arrays,
    "ranks": _ranks,
    "second_arguments": _second_arguments,
    "padding_value": _padding_value,
    "names_of_residuals": _names_of_residuals,
    "kinks": _kinks,
    "leaves_of_loops": _leaves_of_loops,
    "branches_of_a_batch": _branches_of_a_batch,
    "free_dimensions": _free_dimensions,
    "asked_places": _asked_places,
    "meshes_alike": _meshes_alike,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class ProgramCondition(ProgramForm):
    """One sharded program, with checks under a condition: on one device, for one length, in one branch, by one
    argument."""

    name = "program_condition"
    forms = CONDITIONS

    @staticmethod
    def host(mesh, x, *, form, axis):
        return CONDITIONS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
