# SPDX-License-Identifier: Apache-2.0
"""Small rules: vmap over each dimension to each dimension, counted from both ends; what a batch does to constraints,
loops and cotangents; collectives of regions that are manual over some axes; subnormal numbers of two bytes; what
checkpoint policies keep."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.axes import spread
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.hosts import on_each_device


def _moved(host: np.ndarray, into: int, out: int) -> np.ndarray:
    """The answer of a vmap that keeps the order of the other dimensions."""
    return np.moveaxis(host, into, out)


def _dims_of_vmap(line, grid):
    """vmap over each dimension of arrays of ranks 1 to 4, with the batch at each place of the results, counted from
    the beginning and from the end; of cut arrays, and in regions."""
    n = line.size
    for rank in (1, 2, 3, 4):
        shape = tuple((n, 2, 3, 2)[k] for k in range(rank))
        host = mixed(shape, 97, 7).astype(np.float32)
        pairs = list(itertools.product(range(-rank, rank), repeat=2))

        def every(v, pairs=pairs):
            found = {}
            for into, out in pairs:
                run = jax.vmap(lambda r: (3 * r, r.sum()), in_axes=into, out_axes=(out, -1))
                found[f"{into} to {out}"] = run(v)
            return found

        def hold(found, host, where, pairs=pairs):
            for into, out in pairs:
                moved, sums = found[f"{into} to {out}"]
                what = f"vmap of dimension {into} to {out} {where}"
                expect(np.asarray(moved), 3 * _moved(host, into, out), what)
                others = tuple(k for k in range(host.ndim) if k != into % host.ndim)
                expect(np.asarray(sums), host.sum(others), f"the sums of {what}")

        hold(jax.device_get(jax.jit(every)(placed(line, host, "d"))), host, f"of an array of rank {rank}")
        blocks = mixed((n * shape[0], *shape[1:]), 97, 7).astype(np.float32)

        def body(b, every=every):
            return jax.tree.map(lambda v: v[None], every(b))

        found = jax.device_get(mapped(body, line, P("d"), P("d"))(blocks))
        for k, block in enumerate(np.split(blocks, n)):
            one = jax.tree.map(lambda v, k=k: v[k], found)
            hold(one, block, f"of a block of rank {rank}, on device {k}")


def _typed_dims_of_vmap(line, grid):
    """vmap over a cut dimension of an Explicit array: the batch keeps its axes wherever out_axes puts it."""
    typed = explicit(grid)
    size = 2 * grid.size
    host = mixed((size, 2, size), 97, 7).astype(np.float32)
    pairs = list(itertools.product((0, 2, -1, -3), (0, 1, 2, -1, -2, -3)))
    with jax.set_mesh(typed):
        for spec in (P("x"), P(None, None, ("y", "x")), P("x", None, "y"), P("y", None, "x")):
            x, parts = placed(typed, host, *spec), spread(spec, 3)

            def every(v):
                return [jax.vmap(lambda r: 2 * r, in_axes=a, out_axes=b)(v) for a, b in pairs]

            for (into, out), found in zip(pairs, jax.jit(every)(x), strict=True):
                what = f"vmap of dimension {into} to {out} of an array over {spec}"
                on_each_device(found, 2 * _moved(host, into, out), what)
                kept = [part for k, part in enumerate(parts) if k != into % 3]
                kept.insert(out % 3, parts[into % 3])
                seen = spread(found.sharding.spec, 3)
                wrong(seen != kept, f"{what} lies over {seen} instead of {kept}")


def _constraints_in_batches(line, grid):
    """A constraint under vmap leaves the batch where it is, and fixes the other dimensions."""
    size = 2 * grid.size
    host = mixed((size, size), 97, 7).astype(np.float32)
    for batch, own in (("x", "y"), ("y", "x")):
        for into in (0, 1):
            x = placed(grid, host, *((batch, None) if into == 0 else (None, batch)))
            for out in (0, 1):
                there = NamedSharding(grid, P(own))

                def run(v, there=there, into=into, out=out):
                    return jax.vmap(
                        lambda r: lax.with_sharding_constraint(2 * r, there), in_axes=into, out_axes=out
                    )(v)

                found = jax.jit(run)(x)
                what = f"a constraint to {own} under vmap of dimension {into} over {batch} to {out}"
                on_each_device(found, 2 * _moved(host, into, out), what)
                right = NamedSharding(grid, P(batch, own) if out == 0 else P(own, batch))
                same = found.sharding.is_equivalent_to(right, 2)
                wrong(not same, f"{what} lies over {found.sharding} instead of {right}")


def _cotangents_of_constraints(line, grid):
    """The cotangent of a constraint lies where the constraint puts the value."""
    size = 2 * grid.size
    host = mixed((size, size), 97, 7).astype(np.float32)
    for spec in (P("x"), P("x", "y"), P(None, ("y", "x")), P("y", None)):
        there = NamedSharding(grid, spec)
        losses: dict[str, Any] = {
            "a constraint": lambda v, there=there: (3 * lax.with_sharding_constraint(v, there)).sum(),
            "a constraint of a tree": lambda v, there=there: sum(
                (3 * w).sum() for w in lax.with_sharding_constraint([v, v], there)
            ),
            "a constraint in a loop": lambda v, there=there: lax.fori_loop(
                0, 3, lambda i, c: c + lax.with_sharding_constraint(v, there).sum(), 0.0
            ),
        }
        for name, loss in losses.items():
            times = 6 if "tree" in name else 3
            found = jax.jit(jax.grad(loss))(host)
            what = f"the gradient of {name} to {spec}"
            on_each_device(found, np.full_like(host, times), what)
            same = found.sharding.is_equivalent_to(there, 2)
            wrong("loop" not in name and not same, f"{what} lies over {found.sharding} instead of {there}")


KINDS = (np.int8, np.int32, np.uint32, np.float16, jnp.bfloat16, np.float32)


def _carries_of_lanes(line, grid):
    """A loop of a batch whose lanes end at different times: no carry of a lane that ended changes, of any dtype, in
    any place."""
    n = 2 * line.size
    limits = (np.arange(n) * 7 % 5).astype(np.int32)
    for kind in KINDS:
        start = mixed((n, 2), 3).astype(kind)

        def run(start, limits, kind=kind):
            def body(state):
                k, left, values, right = state
                return k + 1, left + 1, values + jnp.asarray(1, kind), right * 2

            state = (jnp.int32(0), jnp.asarray(0, kind), start, jnp.asarray(1, kind))
            return lax.while_loop(lambda s: s[0] < limits, body, state)

        turns = limits.astype(np.float64)
        answers = (
            limits,
            turns.astype(kind),
            (start.astype(np.float64) + turns[:, None]).astype(kind),
            (2.0**turns).astype(kind),
        )
        for where, spec in (("cut", P("d")), ("whole", P())):
            given = placed(line, start, *spec), placed(line, limits, *spec)
            found = jax.jit(jax.vmap(run))(*given)
            for k, (seen, right) in enumerate(zip(found, answers, strict=True)):
                on_each_device(seen, right, f"carry {k} of {np.dtype(kind).name} lanes, {where}")


def _cotangents_of_rules(line, grid):
    """A backward rule gets cotangents with the shapes and dtypes of the results, whatever is computed with them."""
    n = 2 * line.size
    for kind, wide in itertools.product((np.float16, jnp.bfloat16, np.float32), (None, np.float32)):
        seen: list[tuple[Any, Any]] = []

        @jax.custom_vjp
        def pair(v):
            return 2 * v, 3 * v.sum()

        def forward(v):
            return pair(v), None

        def backward(_, cotangents, seen=seen, kind=kind):
            seen.append(tuple((c.shape, np.dtype(c.dtype)) for c in cotangents))
            first, second = cotangents
            return ((2 * first + 3 * second).astype(kind),)

        pair.defvjp(forward, backward)

        def loss(v, wide=wide, pair=pair):
            first, second = pair(v)
            if wide is None:
                return first.sum() + second
            return first.astype(wide).sum() + second.astype(wide)

        wanted = (((n,), np.dtype(kind)), ((), np.dtype(kind)))
        for where, spec in (("cut", P("d")), ("whole", P())):
            seen.clear()
            found = jax.jit(jax.grad(loss))(placed(line, np.ones(n, kind), *spec))
            what = f"the cotangents of a rule of {np.dtype(kind).name}, {where}, read as {wide or kind}"
            wrong(not seen or seen[0] != wanted, f"{what} are {seen[:1]} instead of {wanted}")
            on_each_device(found, np.full(n, 5, kind), f"the gradient by {what}")


def _regions_of_some_axes(line, grid):
    """Places and collectives of regions that are manual over some of two and of three axes, with the answers of the
    axes that are manual."""
    devices = grid.devices.ravel()
    shapes = [grid]
    if devices.size % 4 == 0:
        cube = devices.reshape(2, -1, 2)
        shapes.append(jax.sharding.Mesh(cube, ("x", "y", "z")))
    for mesh in shapes:
        names = mesh.axis_names
        for count in range(1, len(names)):
            for axes in itertools.permutations(names, count):
                for check in (True, False):
                    _region_of(mesh, axes, check)


def _region_of(mesh: Any, axes: tuple[str, ...], check: bool) -> None:
    """One region that is manual over these axes."""
    n = int(np.prod([mesh.shape[a] for a in axes]))
    host = mixed((n, 2 * n, 3), 97, 7).astype(np.float32)
    turn = [(k, (k + 1) % n) for k in range(n)]
    ordered = list(axes) == sorted(axes)  # ppermute takes no other order

    def body(block):
        index = sum(
            lax.axis_index(a) * int(np.prod([mesh.shape[b] for b in axes[k + 1 :]]))
            for k, a in enumerate(axes)
        )
        total = lax.psum(block, axes)
        return {
            "index": jnp.full((1, 1), lax.axis_index(axes), jnp.int32),
            "indices": jnp.full((1, 1), index, jnp.int32),
            "psum": total,
            "pmax": lax.pmax(block, axes),
            "psum_scatter": lax.psum_scatter(block, axes, scatter_dimension=1, tiled=True),
            "all_to_all": lax.all_to_all(block, axes, 1, 0, tiled=True).reshape(1, 2 * n, 3),
            **({"ppermute": lax.ppermute(block, axes, turn)} if ordered else {}),
        }

    cut = ("psum_scatter", "all_to_all", "index", "indices", *(("ppermute",) if ordered else ()))
    out_specs = {**dict.fromkeys(cut, P(axes)), "psum": P(), "pmax": P()}
    run = mapped(body, mesh, P(axes), out_specs, axis_names=set(axes), check_vma=check)
    order = np.arange(n, dtype=np.int32)[:, None]
    total = host.sum(0, keepdims=True)
    right = {
        "index": order,
        "indices": order,
        "psum": total,
        "pmax": host.max(0, keepdims=True),
        "psum_scatter": total.reshape(n, 2, 3),
        "all_to_all": host.reshape(n, n, 2, 3).swapaxes(0, 1).reshape(n, 2 * n, 3),
        "ppermute": np.roll(host, 1, 0),
    }
    found = run(host)
    for name in found:
        what = f"{name} in a region that is manual over {axes} of {mesh.axis_names}, check_vma={check}"
        on_each_device(found[name], right[name], what)


def _subnormals_of_two_bytes(line, grid):
    """Collectives keep subnormal numbers of two bytes where one device does."""
    for kind in (np.float16, jnp.bfloat16):
        least = jnp.finfo(kind).smallest_subnormal
        host = (np.arange(1, line.size + 1) * np.float64(least)).astype(kind)
        one = jax.device_put(host[:1], line.devices.ravel()[0])
        if np.asarray(jax.jit(lambda v: v + v)(one))[0] != host[:1][0] + host[:1][0]:
            continue  # this device flushes them
        wide = host.astype(np.float64)

        def body(v):
            return {
                "psum": lax.psum(v, "d"),
                "pmax": lax.pmax(v, "d"),
                "pmin": lax.pmin(v, "d"),
                "all_gather": lax.all_gather(v, "d", tiled=True),
                "ppermute": lax.ppermute(v, "d", [(k, k) for k in range(line.size)]),
            }

        out = {"psum": P(), "pmax": P(), "pmin": P(), "all_gather": P(), "ppermute": P("d")}
        found = mapped(body, line, P("d"), out, check_vma=False)(host)
        right = {
            "psum": wide.sum(keepdims=True).astype(kind),
            "pmax": host.max(keepdims=True),
            "pmin": host.min(keepdims=True),
            "all_gather": host,
            "ppermute": host,
        }
        for name, answer in right.items():
            on_each_device(found[name], answer, f"{name} of subnormal {np.dtype(kind).name}")
        summed = jax.jit(lambda v: v.sum())(placed(line, host, "d"))
        expect(np.asarray(summed), right["psum"][0], f"a sum of subnormal {np.dtype(kind).name}")


POLICIES = jax.checkpoint_policies


def _kept_names(line, grid):
    """What the policies of names keep: how often the forward pass is computed, for none, one, two and three names."""
    names = ("a", "b", "c")
    host = np.linspace(0.5, 1.5, 2 * line.size, dtype=np.float32)

    def chain(v):
        for name in names:
            v = checkpoint_name(jnp.sin(v), name)
        return (v * v).sum()

    plain = np.asarray(jax.jit(jax.grad(chain))(host))
    for count in range(len(names) + 1):
        for chosen in itertools.combinations(names, count):
            others = [name for name in names if name not in chosen]
            ways = {
                "save_only_these_names": POLICIES.save_only_these_names(*chosen),
                "save_any_names_but_these": POLICIES.save_any_names_but_these(*others),
                "save_from_both_policies": POLICIES.save_from_both_policies(
                    POLICIES.save_only_these_names(*chosen[:1]), POLICIES.save_only_these_names(*chosen[1:])
                ),
            }
            for way, policy in ways.items():
                held = jax.checkpoint(chain, policy=policy)
                gradient = jax.grad(held)
                # Three sines forward. A sine is computed again to get a name that was not kept, unless nothing needs
                # it: the last one is in the derivative of the square.
                again = sum(name not in chosen for name in names)
                text = str(jax.make_jaxpr(gradient)(host))
                seen = text.count("= sin ")
                what = f"{way} that keeps {chosen}"
                wrong(seen != 3 + again, f"{what} computes {seen} sines instead of {3 + again}")
                found = np.asarray(jax.jit(gradient)(placed(line, host, "d")))
                # The same sines, in another program: they may be fused otherwise, by some units of float32.
                near = np.allclose(found, plain, rtol=1e-5, atol=1e-6)
                wrong(not near, f"the gradient of {what} is {found.tolist()} instead of {plain.tolist()}")


RULES_OF_BATCHES: dict[str, Callable[..., None]] = {
    "dims_of_vmap": _dims_of_vmap,
    "typed_dims_of_vmap": _typed_dims_of_vmap,
    "constraints_in_batches": _constraints_in_batches,
    "cotangents_of_constraints": _cotangents_of_constraints,
    "carries_of_lanes": _carries_of_lanes,
    "cotangents_of_rules": _cotangents_of_rules,
    "regions_of_some_axes": _regions_of_some_axes,
    "subnormals_of_two_bytes": _subnormals_of_two_bytes,
    "kept_names": _kept_names,
}
