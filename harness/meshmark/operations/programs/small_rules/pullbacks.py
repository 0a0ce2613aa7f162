# SPDX-License-Identifier: Apache-2.0
"""Small rules of derivatives of regions: within named batches, of results that are not used, by custom rules that ask
for symbolic zeros or send data, with every option of a checkpoint, transposed again and again; and of pooling."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect


def _slopes_in_named_batches(line, grid):
    """Gradients of regions over one axis, in a vmap over the other by spmd_axis_name, with saved values and without."""
    rows, columns = grid.devices.shape
    host = mixed((2 * rows, 2 * columns), 9, 7).astype(np.float32)
    x = placed(grid, host, "x", "y")
    index = np.repeat(np.arange(columns), 2).astype(np.float32)
    for checked in (True, False):

        def region(body, checked=checked):
            return jax.shard_map(body, mesh=grid, in_specs=P("y"), out_specs=P("y"), check_vma=checked)

        bodies: dict[str, tuple[Any, np.ndarray]] = {
            "a cube": (lambda b: b * b * b, 3 * host * host),
            "a square by the index": (lambda b: b * b * lax.axis_index("y"), 2 * host * index),
            "a square by a sum": (
                lambda b: b * lax.psum(b.sum(), "y"),
                np.broadcast_to(2 * host.sum(1, keepdims=True), host.shape),
            ),
        }
        for name, (body, right) in bodies.items():
            for kept in (False, True):
                f = jax.checkpoint(region(body)) if kept else region(body)
                slope = jax.grad(lambda v, f=f: f(v).sum())
                for way, run in (
                    ("with a name", jax.vmap(slope, spmd_axis_name="x")),
                    ("without a name", jax.vmap(slope)),
                ):
                    found = np.asarray(jax.jit(run)(x))
                    saved = "checkpointed" if kept else "not checkpointed"
                    what = f"slopes of {name}, {saved}, in a batch {way}, check_vma={checked}"
                    if checked:
                        expect(found, right.astype(np.float32), what)
                    else:  # JAX divides by the number of devices, and adds up
                        expect(np.allclose(found, right, 1e-6), True, f"whether {what} are right")


def _symbolic_zeros_in_regions(line, grid):
    """Custom tangents that ask for symbolic zeros, in a region: by each argument alone and by both."""

    @jax.custom_jvp
    def product(a, b):
        return a * b

    @functools.partial(product.defjvp, symbolic_zeros=True)
    def _(primals, tangents):
        a, b = primals
        moved = jnp.zeros_like(a)
        for tangent, other in zip(tangents, (b, a), strict=True):
            if not isinstance(tangent, SymbolicZero):
                moved = moved + tangent * other
        return a * b, moved

    first = mixed((2 * line.size, 3), 9, 7).astype(np.float32)
    second = mixed((2 * line.size, 3), 7, 5).astype(np.float32)
    for checked in (True, False):
        region = jax.shard_map(
            product, mesh=line, in_specs=(P("d"), P("d")), out_specs=P("d"), check_vma=checked
        )
        for way, f in (("eager", region), ("compiled", jax.jit(region))):
            what = f"of a product in a region, {way}, check_vma={checked}"
            expect(np.asarray(f(first, second)), first * second, f"the value {what}")
            by_first = jax.grad(lambda a, f=f: f(a, second).sum())(first)
            expect(np.asarray(by_first), second, f"the slope by the first argument {what}")
            by_second = jax.grad(lambda b, f=f: f(first, b).sum())(second)
            expect(np.asarray(by_second), first, f"the slope by the second argument {what}")
            tangent = jax.jvp(f, (first, second), (np.ones_like(first), np.ones_like(first)))[1]
            expect(np.asarray(tangent), first + second, f"the tangent by both {what}")


def _slopes_of_some_results(line, grid):
    """The gradient through some of the results of a region that is saved with every policy."""
    host = mixed((2 * line.size,), 9, 7).astype(np.float32)
    x = placed(line, host, "d")
    total = host.sum()
    choices = {
        "the first": (lambda t: t[0].sum(), 2 * host),
        "the second": (lambda t: t[1].sum(), np.full_like(host, 3)),
        "the sum": (lambda t: t[2] * t[2], np.full_like(host, 2 * total)),
        "the first and the sum": (lambda t: t[0].sum() + t[2], 2 * host + 1),
        "none": (lambda t: jnp.float32(1), np.zeros_like(host)),
    }
    policies = (None, jax.checkpoint_policies.everything_saveable, jax.checkpoint_policies.dots_saveable)
    for checked in (True, False):
        region = jax.shard_map(
            lambda b: (b * b, 3 * b, lax.psum(b.sum(), "d")),
            mesh=line,
            in_specs=P("d"),
            out_specs=(P("d"), P("d"), P()),
            check_vma=checked,
        )
        for name, (choose, right) in choices.items():
            for policy in policies:
                inside = jax.checkpoint(lambda v, c=choose, r=region: c(r(v)), policy=policy)
                around = jax.checkpoint(region, policy=policy)
                for way, f in (("within", inside), ("around", lambda v, c=choose, r=around: c(r(v)))):
                    what = (
                        f"the slope through {name} of three results, a checkpoint {way}, check_vma={checked}"
                    )
                    expect(np.asarray(jax.jit(jax.grad(f))(x)), right, what)


def _rules_that_send(line, grid):
    """Custom derivatives whose functions send data, of values that vary and of ones that do not."""
    n = line.size

    @jax.custom_vjp
    def total(v):
        return lax.psum(v, "d")

    total.defvjp(lambda v: (lax.psum(v, "d"), None), lambda _, d: (3 * d,))
    host = np.arange(n, dtype=np.float32)
    batch = jax.vmap(lambda _: total(2.0), axis_name="d")(jnp.arange(float(n)))
    expect(np.asarray(batch), np.full(n, 2 * n, np.float32), "a rule that sends a constant, in a batch")
    slopes = jax.vmap(lambda v: jax.grad(total)(v), axis_name="d")(host)
    expect(np.asarray(slopes), np.full(n, 3, np.float32), "the slope of a rule that sends, in a batch")
    run = jax.jit(
        jax.shard_map(lambda b: total(2.0) + b, mesh=line, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    )
    expect(np.asarray(run(host)), 2 * n + host, "a rule that sends a constant, in a region")
    slopes = jax.shard_map(
        jax.grad(lambda b: total(b).sum()), mesh=line, in_specs=P("d"), out_specs=P("d"), check_vma=False
    )
    expect(
        np.asarray(jax.jit(slopes)(host)), np.full(n, 3, np.float32), "the slope of such a rule in a region"
    )
    users, movies, weights = mixed((4, 2), 9, 7) + 1.0, mixed((3, 2), 7, 5) + 1.0, mixed((4, 3), 5, 3) + 1.0

    def by_user(u, m, w):
        return lax.psum(jax.grad(lambda v: u.dot(v) * w)(m), "user")

    inner = jax.vmap(by_user, (0, None, 0), 0, axis_name="user")
    found = jax.vmap(inner, (None, 0, 1), 1, axis_name="movie")(users, movies, weights)
    right = np.broadcast_to(np.einsum("ud,um->md", users, weights), (4, 3, 2)).astype(np.float32)
    expect(np.asarray(found), right, "a sum over users of slopes, in two named batches")


def _transposed_again(line, grid):
    """The transpose of a transpose, up to four times, multiplies by the same factor and sends no more."""
    host = mixed((2 * line.size,), 9, 7).astype(np.float32)
    like = jax.ShapeDtypeStruct(host.shape, host.dtype)
    for spec in (P(), P("d")):
        f = jax.shard_map(lambda b: 3 * b, mesh=line, in_specs=spec, out_specs=spec)
        for count in range(1, 5):
            f = (lambda g: lambda v: jax.linear_transpose(g, like)(v)[0])(f)
            what = f"{count} transposes of a region over {spec}"
            expect(np.asarray(jax.jit(f)(host)), 3 * host, what)
            text = str(jax.make_jaxpr(f)(host))
            expect(text.count("psum") <= 1 and " div " not in text, True, f"whether {what} send at most once")


def _slopes_with_options_of_checkpoint(line, grid):
    """A checkpoint changes no number: with every option, inputs that have more bits than bfloat16 keep them."""
    host = (mixed((2 * line.size, 3), 97, 7) * 37 + 1).astype(np.float32)
    x = placed(line, host, "d")
    weights = (mixed((3, 3), 5, 3) * 259 + 257).astype(np.float32)
    options: tuple[dict[str, Any], ...] = (
        {},
        {"prevent_cse": False},
        {"prevent_cse": False, "policy": jax.checkpoint_policies.dots_saveable},
        {"policy": jax.checkpoint_policies.nothing_saveable},
    )
    by_x = np.broadcast_to(weights.sum(1) * 2, host.shape).astype(np.float32)
    by_w = np.broadcast_to(2 * host.sum(0)[:, None], weights.shape).astype(np.float32)
    for given in options:
        said = ", ".join(given) or "no option"

        def layer(v, w):
            return 2 * (v @ w)

        f = jax.checkpoint(layer, **given)
        for way, run in (("compiled", jax.jit), ("eager", lambda g: g)):
            found = run(jax.grad(lambda v, w, f=f: f(v, w).sum(), (0, 1)))(x, weights)
            for name, one, right in zip(("the first", "the second"), found, (by_x, by_w), strict=True):
                expect(
                    np.asarray(one), right, f"the slope by {name} argument of a checkpoint with {said}, {way}"
                )
        scanned = jax.jit(
            jax.grad(lambda v, f=f: lax.scan(lambda c, w: (c + f(v, w).sum(), None), 0.0, weights[None])[0])
        )
        expect(np.asarray(scanned(x)), by_x, f"the slope of a loop of a checkpoint with {said}")
        squares = jax.jit(jax.grad(lambda v, g=given: jax.checkpoint(lambda u: u * u, **g)(v).sum()))
        expect(np.asarray(squares(x)), 2 * host, f"the slope of a square, checkpointed with {said}")


def _slopes_of_pooling(line, grid):
    """The gradient of max pooling goes to the first of equal elements of a window, where windows do not meet."""
    n = line.size
    for shape, window in (
        ((2 * n, 6), (1, 2)),
        ((2 * n, 6), (1, 3)),
        ((2 * n, 4), (2, 2)),
        ((4 * n, 2), (4, 1)),
    ):
        for below in (2, 3):
            host = (mixed(shape, 97, 7) % below).astype(np.float32)
            blocks = host.reshape(shape[0] // window[0], window[0], shape[1] // window[1], window[1])
            flat = blocks.transpose(0, 2, 1, 3).reshape(-1, window[0] * window[1])
            first = np.zeros_like(flat)
            first[np.arange(len(flat)), flat.argmax(1)] = 1
            cut = first.reshape(blocks.shape[0], blocks.shape[2], window[0], window[1])
            right = cut.transpose(0, 2, 1, 3).reshape(shape)
            slope = jax.grad(lambda v, w=window: lax.reduce_window(v, -jnp.inf, lax.max, w, w, "VALID").sum())
            what = f"the slope of the largest of windows of {window}, with ties"
            for spec in (P("d"), P()):
                expect(np.asarray(jax.jit(slope)(placed(line, host, *spec))), right, f"{what}, over {spec}")


RULES_OF_PULLBACKS = {
    "slopes_in_named_batches": _slopes_in_named_batches,
    "symbolic_zeros_in_regions": _symbolic_zeros_in_regions,
    "slopes_of_some_results": _slopes_of_some_results,
    "rules_that_send": _rules_that_send,
    "transposed_again": _transposed_again,
    "slopes_with_options_of_checkpoint": _slopes_with_options_of_checkpoint,
    "slopes_of_pooling": _slopes_of_pooling,
}
