# SPDX-License-Identifier: Apache-2.0
"""Small rules: second calls, forms of arguments, meshes and contexts, and rules that only matter in whole programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices


def _second_calls(line, grid):
    """Equal static arguments of other types, partials with other keywords, closures, arrays that are changed in place,
    another sharding of a square array, and settings that change between calls."""
    n = line.size
    x = placed(line, np.arange(n, dtype=np.int32), "d")
    times = jax.jit(lambda v, k: v * k, static_argnums=1)
    for k, right in ((2, np.int32), (2.0, np.float32), (True, np.int32), (1, np.int32), (1.0, np.float32)):
        expect(times(x, k).dtype, jnp.dtype(right), f"the dtype of int32 times the static {k!r}")
    chosen = jax.jit(lambda v, how: v + len(how), static_argnames="how")
    for how in ("a", "ab", ("a",), ("a", "b", "c"), b"abcd"):
        expect(
            chosen(x, how=how),
            np.arange(n, dtype=np.int32) + np.int32(len(how)),
            f"a sum with the static {how!r}",
        )

    def step(v, rate, shift=0):
        return v * rate + shift

    for options in ({"rate": 2}, {"rate": 3}, {"rate": 3, "shift": 1}, {"rate": 3, "shift": 2}):
        right = np.arange(n, dtype=np.int32) * options["rate"] + options.get("shift", 0)
        expect(jax.jit(partial(step, **options))(x), right.astype(np.int32), f"a partial with {options}")
    for k in (1, 2, 3):
        expect(jax.jit(lambda v, k=k: v + k)(x), (np.arange(n) + k).astype(np.int32), f"a closure over {k}")
    held = {"k": 1}
    run = jax.jit(lambda v: v + held["k"])
    run(x)
    held["k"] = 5
    run.clear_cache()
    expect(run(x), (np.arange(n) + 5).astype(np.int32), "a function whose cache is cleared")
    for size in (8, 1024, 65536):
        buffer = np.zeros(n * size, np.float32)
        for k in range(3):
            buffer[:] = k
            kept = jax.device_put(buffer, NamedSharding(line, P("d")), may_alias=False)
            expect(
                float(kept[-1]),
                float(k),
                f"an element of a buffer of {size} numbers per device that is filled with {k}",
            )
    square = np.arange(float(n * n), dtype=np.float32).reshape(n, n)
    double = jax.jit(lambda v: 2 * v)
    for spec in (("d",), (None, "d"), (), ("d",)):
        found = double(placed(line, square, *spec))
        expect(np.asarray(found), 2 * square, f"twice an array under {spec}")
        parts = {s.device: np.asarray(s.data) for s in found.addressable_shards}
        for shard in placed(line, square, *spec).addressable_shards:
            expect(
                parts[shard.device], 2 * np.asarray(shard.data), f"the part of twice an array under {spec}"
            )
    grown = placed(line, square, "d") * 1
    copy = jax.device_get(grown)
    with suppress(ValueError):  # it may be read-only
        copy[0] = 100
    expect(np.asarray(grown + 0), square, "an array whose copy on the host is written")
    expect(np.array(jax.device_get(grown)), square, "a second copy of an array whose first copy is written")
    fresh = placed(line, square, "d") * 1
    np.asarray(fresh)
    expect(np.array(jax.device_get(fresh * 1)), square, "the copy of another array")
    key = jax.random.key(3)
    usual = np.asarray(jax.random.bits(key, (2 * n,)))
    with jax.threefry_partitionable(False):
        old = np.asarray(jax.random.bits(key, (2 * n,)))
    with jax.threefry_partitionable(True):
        new = np.asarray(jax.random.bits(key, (2 * n,)))
    wrong(np.array_equal(old, new), "bits of threefry_partitionable on and off are equal")
    expect(usual, new if jax.config.jax_threefry_partitionable else old, "bits with the default setting")
    with jax.default_matmul_precision("highest"):
        first = str(jax.make_jaxpr(jnp.dot)(square, square))
    second = str(jax.make_jaxpr(jnp.dot)(square, square))
    wrong(first == second, "the precision of a context stays behind it")
    for wide in (True, False, True):
        with jax.enable_x64(wide):
            expect(
                jax.jit(lambda: jnp.arange(3))().dtype.itemsize,
                8 if wide else 4,
                f"bytes of an integer with x64 {wide}",
            )


def _arguments(line, grid):
    """Python numbers, trees and prefixes, static arguments, names in tuples, and NumPy arrays of any layout."""
    n, (rows, columns) = line.size, grid.devices.shape
    half = np.ones(n, jnp.bfloat16)
    scaled = jax.shard_map(lambda v, k: v * k, mesh=line, in_specs=(P("d"), P()), out_specs=P("d"))
    for number, right in (
        (0.5, jnp.bfloat16),
        (2, jnp.bfloat16),
        (True, jnp.bfloat16),
        (np.float32(2), jnp.float32),
    ):
        expect(
            jax.jit(lambda v, k=number: scaled(v, k))(half).dtype,
            jnp.dtype(right),
            f"bfloat16 times {number!r} in shard_map",
        )
    sizes = {
        ("x", "y"): rows * columns,
        ("y", "x"): rows * columns,
        "x": rows,
        "y": columns,
        ("x",): rows,
        ("y",): columns,
    }
    for axes, size in sizes.items():
        for name, f in {
            "axis_size": lambda v, axes=axes: v * lax.axis_size(axes),
            "psum of 1": lambda v, axes=axes: v * lax.psum(1, axes),
            "psum of 1.0": lambda v, axes=axes: v * lax.psum(1.0, axes),
        }.items():
            found = mapped(f, grid, P(("x", "y")), P(("x", "y")))(np.ones(n, np.float32))
            expect(found, np.full(n, size, np.float32), f"{name} over {axes}")
        ids = np.arange(n).reshape(rows, columns)
        order = {
            ("x", "y"): ids,
            ("y", "x"): ids % columns * rows + ids // columns,
            "x": ids // columns,
            "y": ids % columns,
        }
        if axes in order:
            where = mapped(lambda v, axes=axes: v + lax.axis_index(axes), grid, P(("x", "y")), P(("x", "y")))
            expect(
                where(np.zeros(n, np.int32)), order[axes].ravel().astype(np.int32), f"axis_index over {axes}"
            )
    tree = {k: np.arange(float(n), dtype=np.float32) for k in "abcd"} | {"e": [np.ones(n, np.float32), None]}
    total = mapped(
        lambda p, b: lax.psum(sum(v.sum() for v in jax.tree.leaves(p)) + b.sum(), "d"),
        line,
        (P("d"), P()),
        P(),
    )
    expect(
        total(tree, np.zeros(1, np.float32)),
        np.float32(4 * n * (n - 1) / 2 + n),
        "a sum of a tree with one spec",
    )
    cut = mapped(lambda p: jax.tree.map(lambda v: v.sum(keepdims=True), p), line, P("d"), P("d"))
    expect([v.shape for v in jax.tree.leaves(cut(tree))], [(n,)] * 5, "the shapes of a tree with one spec")
    for k, view in enumerate(
        (
            np.arange(2.0 * n, dtype=np.float32)[::-1],
            np.arange(4.0 * n, dtype=np.float32)[::2],
            np.asfortranarray(np.arange(6.0 * n, dtype=np.float32).reshape(2 * n, 3)),
            np.arange(6.0 * n, dtype=np.float32).reshape(3, 2 * n).T,
            np.arange(6.0 * n, dtype=np.float32).reshape(2 * n, 3)[:, ::-1],
            np.broadcast_to(np.float32(3), (2 * n, 2)),
            np.arange(2 * n, dtype=">i4"),
            np.ma.masked_array(np.arange(2.0 * n, dtype=np.float32)).data,
        )
    ):
        right = np.ascontiguousarray(view).astype(view.dtype.newbyteorder("="))
        try:
            expect(np.asarray(placed(line, view, "d")), right, f"a view of kind {k} on the devices")
        except TypeError:
            wrong(view.dtype.isnative, f"a view of kind {k} is refused")
            continue
        expect(
            np.asarray(jax.jit(lambda v: v + 0)(placed(line, view, "d"))),
            right,
            f"a view of kind {k} in a program",
        )
    for shape, spec in (((0, 2 * n), (None, "d")), ((2 * n, 0), ("d",)), ((n, 0, 3), ("d",))):
        empty = placed(line, np.zeros(shape, np.float32), *spec)
        part = tuple(s // n if k < len(spec) and spec[k] else s for k, s in enumerate(shape))
        expect(
            {s.data.shape for s in empty.addressable_shards},
            {part},
            f"the parts of an array of shape {shape}",
        )
        expect(
            empty.sharding.is_equivalent_to(NamedSharding(line, P(*spec)), len(shape)),
            True,
            f"the sharding of shape {shape}",
        )
        expect(jax.jit(lambda v: v * 2)(empty).shape, shape, f"the shape of a product of shape {shape}")
    scalar = placed(line, np.float32(3))
    expect(np.asarray(jax.jit(lambda v: v * 2)(scalar)), np.float32(6), "twice a number")
    fixed = jax.shard_map(
        lambda low, high, v: v * low + high, mesh=line, in_specs=(None, None, P("d")), out_specs=P("d")
    )
    given = np.arange(n, dtype=np.int32)
    expect(jax.jit(lambda v: fixed(2, 3, v))(given), 2 * given + 3, "two static arguments of shard_map")
    both = jax.jit(lambda a, b, c, d: a * 1000 + b * 100 + c * 10 + d, static_argnums=(0, 2))
    expect(int(both(1, 2, 3, 4)), 1234, "static and traced arguments in turns")


def _contexts(line, grid):
    """Meshes in contexts that an error leaves, contexts in contexts, and collectives over axes of any size."""
    n = line.size
    before = jax.sharding.get_mesh()

    class Left(Exception):
        """Raised to leave a context."""

    for mesh in (line, explicit(grid)):
        try:
            with jax.set_mesh(mesh):
                expect(jax.sharding.get_mesh(), mesh, "the mesh of a context")
                with jax.set_mesh(explicit(line)):
                    expect(
                        jax.sharding.get_abstract_mesh().axis_names, ("d",), "the mesh of the inner context"
                    )
                expect(jax.sharding.get_mesh(), mesh, "the mesh behind an inner context")
                raise Left
        except Left:
            pass
        expect(jax.sharding.get_mesh(), before, "the mesh behind a context that an error left")
    for size in range(1, min(n, 9) + 1) if may_leave_out_devices() else (n,):
        mesh = Mesh(line.devices[:size], ("d",))
        x = np.arange(1.0, 2 * size + 1, dtype=np.float32)
        stack = x.reshape(size, 2)
        ring = [(k, (k + 1) % size) for k in range(size)]
        shift = [(k, k + 1) for k in range(size - 1)]
        late = np.concatenate([np.zeros((1, 2), np.float32), stack[:-1]])
        for name, f, right in (
            ("psum", lambda v: v * 0 + lax.psum(v, "d"), np.tile(stack.sum(0), size)),
            ("pmax", lambda v: v * 0 + lax.pmax(v, "d"), np.tile(stack.max(0), size)),
            ("pmin", lambda v: v * 0 + lax.pmin(v, "d"), np.tile(stack.min(0), size)),
            (
                "ppermute around",
                lambda v, ring=ring: lax.ppermute(v, "d", ring),
                np.roll(stack, 1, 0).ravel(),
            ),
            ("ppermute without the last", lambda v, shift=shift: lax.ppermute(v, "d", shift), late.ravel()),
            ("ppermute of nothing", lambda v: lax.ppermute(v, "d", []), np.zeros(2 * size, np.float32)),
        ):
            found = mapped(f, mesh, P("d"), P("d"))(x)
            expect(found, right.astype(np.float32), f"{name} over {size} devices")
        thin = Mesh(line.devices[:size].reshape(size, 1), ("d", "one"))
        for name, f, right in (
            ("ppermute of nothing", lambda v: lax.ppermute(v, "one", []), 0 * x),
            ("ppermute to itself", lambda v: lax.ppermute(v, "one", [(0, 0)]), x),
            ("psum", lambda v: lax.psum(v, "one"), x),
            ("all_gather", lambda v: lax.all_gather(v, "one", tiled=True), x),
            ("axis_index", lambda v: v + lax.axis_index("one"), x),
        ):
            found = mapped(f, thin, P("d"), P("d"), check_vma=False)(x)
            expect(found, right, f"{name} over an axis of size 1 beside {size}")


def _training(line, grid):
    """Checkpoint policies, caches of narrow dtypes, whole powers, routers with equal scores, tokens of no class, and
    gradients through casts."""
    n = line.size
    q = placed(line, np.arange(float(n * 16 * 4), dtype=np.float32).reshape(n, 16, 4) % 5 - 2, "d")
    w = np.ones((4, 4), np.float32)

    def products(policy, f, *args):
        return str(jax.make_jaxpr(jax.grad(jax.checkpoint(f, policy=policy)))(*args)).count("dot_general[")

    def batched(a):
        return jnp.sum(jnp.sin(jnp.einsum("bqc,bkc->bqk", a, a)))

    def plain(a):
        return jnp.sum(jnp.sin(jnp.sin(a @ w)))

    policies = jax.checkpoint_policies
    saved = {
        "everything_saveable": (policies.everything_saveable, False, False),
        "nothing_saveable": (policies.nothing_saveable, True, True),
        "dots_saveable": (policies.dots_saveable, False, False),
        "dots_with_no_batch_dims_saveable": (policies.dots_with_no_batch_dims_saveable, True, False),
    }
    for name, (policy, batched_again, plain_again) in saved.items():
        for what, f, again in (
            ("a batched product", batched, batched_again),
            ("a product", plain, plain_again),
        ):
            least = products(policies.everything_saveable, f, q)
            expect(products(policy, f, q) > least, again, f"whether {name} computes {what} again")

    def named(a):
        first = checkpoint_name(jnp.sin(a), "first")
        second = checkpoint_name(lax.psum(jnp.cos(first), "d"), "second")
        third = checkpoint_name(lax.psum(jnp.sin(second), "d"), "third")
        return jnp.sum(jnp.sin(third))

    def sums(*names):
        policy = policies.save_only_these_names(*names)
        f = jax.shard_map(
            jax.checkpoint(named, policy=policy), mesh=line, in_specs=P("d"), out_specs=P(), check_vma=False
        )
        return str(jax.make_jaxpr(jax.grad(f))(np.ones(n, np.float32))).count("psum")

    every = sums("first", "second", "third")
    for names in (
        ("first", "second"),
        ("first", "third"),
        ("second", "third"),
        ("third", "second", "first"),
        ("third",),
    ):
        # The last sum is needed for the gradient; the one before it is done again unless it is saved.
        again = sums(*names) > every
        expect(again, not {"second", "third"} <= set(names), f"whether saving {names} does a sum again")
    for kind in (jnp.bfloat16, jnp.float16, jnp.int8):
        cache = placed(line, np.zeros((n, 16), kind), "d")
        value = np.full(n, 3, np.float32)
        for name, f in {
            "at[].set": lambda c, v: c.at[:, 3].set(v.astype(c.dtype)),
            "at[].add": lambda c, v: c.at[:, 3].add(v.astype(c.dtype)),
            "dynamic_update_slice": lambda c, v: lax.dynamic_update_slice(
                c, v[:, None].astype(c.dtype), (0, 3)
            ),
        }.items():
            right = np.zeros((n, 16), kind)
            right[:, 3] = 3
            expect(jax.jit(f)(cache, value), right, f"{name} of a cache of {np.dtype(kind)}")
    for kind in (jnp.bfloat16, jnp.float16):
        cache = placed(line, np.zeros((n, 16), kind), "d")
        # JAX warns that a later release will refuse this.
        with warnings.catch_warnings(), suppress(TypeError, ValueError):
            warnings.simplefilter("ignore")
            found = jax.jit(lambda c, v: c.at[:, 3].set(v))(cache, np.full(n, 3, np.float32))
            expect(
                found.dtype, jnp.dtype(kind), f"the dtype of a cache of {np.dtype(kind)} after a wider value"
            )
    for power in (0, 1, 2, 3, 7, 126, 127, 128, 200, 255, 256, 300):
        base = np.array([1.0, -1.0, 0.0], np.float32)
        right = np.array([1, (-1) ** power, 0**power], np.float32)
        expect(jax.jit(lambda v, k: v**k)(base, np.int32(power)), right, f"the power {power} of an array")
        expect(jax.jit(lambda v, k=power: v**k)(base), right, f"the static power {power}")
        expect(jax.jit(lambda v, k=power: lax.integer_pow(v, k))(base), right, f"integer_pow of {power}")
    for kind in (jnp.bfloat16, jnp.float16, jnp.float32, jnp.int32, jnp.int8):
        scores = placed(line, np.zeros((n, 6), kind), "d")
        right = np.tile(np.arange(3, dtype=np.int32), (n, 1))
        expect(jax.jit(lambda v: lax.top_k(v, 3)[1])(scores), right, f"top_k of equal {np.dtype(kind)}")
        for name in ("argmax", "argmin"):
            found = jax.jit(lambda v, name=name: getattr(jnp, name)(v, 1))(scores)
            expect(found, np.zeros(n, np.int32), f"{name} of equal {np.dtype(kind)}")
        across = placed(line, np.zeros((3, 2 * n), kind), None, "d")
        for name in ("argmax", "argmin"):
            found = jax.jit(lambda v, name=name: getattr(jnp, name)(v, 1))(across)
            expect(found, np.zeros(3, np.int32), f"{name} of equal {np.dtype(kind)} over a sharded dimension")
    classes = np.resize(np.array([0, 1, -1, 2, 3, 4, -2], np.int32), 2 * n)
    right = (classes[:, None] == np.arange(4)).astype(np.float32)
    expect(
        jax.jit(lambda i: jax.nn.one_hot(i, 4))(placed(line, classes, "d")),
        right,
        "one_hot of classes that are none",
    )
    for kind in (jnp.float16, jnp.bfloat16):
        small = kind(2.0**-16)
        gradient = jax.jit(jax.grad(lambda v, k=kind, s=small: jnp.sum(v.astype(k) * s).astype(jnp.float32)))
        expect(
            gradient(placed(line, np.ones(n, np.float32), "d")),
            np.full(n, 2.0**-16, np.float32),
            f"a small gradient through {kind.__name__}",
        )
        for value, fine in (
            (1, True),
            (np.inf, False),
            (-np.inf, False),
            (np.nan, False),
            (float(jnp.finfo(kind).max), True),
        ):
            given = np.array([1] * (n - 1) + [value]).astype(kind)
            ok = mapped(
                lambda g: lax.pmin(jnp.all(jnp.isfinite(g)).astype(jnp.int32), "d"), line, P("d"), P()
            )
            expect(int(ok(given)), int(fine), f"whether {value} of {kind.__name__} is finite")
            test = jax.jit(lambda g: (jnp.isnan(g), jnp.isinf(g)))(given)
            expect(
                (bool(test[0][-1]), bool(test[1][-1])),
                (bool(np.isnan(value)), bool(np.isinf(value))),
                f"what {value} is",
            )


RULES_OF_CALLS: dict[str, Callable[..., None]] = {
    "second_calls": _second_calls,
    "arguments": _arguments,
    "contexts": _contexts,
    "training": _training,
}
