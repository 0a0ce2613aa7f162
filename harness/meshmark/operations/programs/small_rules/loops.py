# SPDX-License-Identifier: Apache-2.0
"""Small rules: loops, branches and what is computed again, held to the same steps in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import NUMBERS, hold, mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect

LENGTH = 7


def _steps(x: np.ndarray, reverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """The last carry and the carries before each step of c -> 3 c + row, modulo 2^32."""
    carry, before = np.zeros_like(x[0]), np.zeros_like(x)
    for i in reversed(range(len(x))) if reverse else range(len(x)):
        before[i] = carry
        carry = 3 * carry + x[i]
    return carry, before


def _scans(line, grid):
    """Scans in both directions, unrolled by each number of steps up to the length, and their gradients."""
    x = mixed((LENGTH, 4 * line.size), 9).astype(np.int32)
    members = {}
    for reverse in (False, True):
        for unroll in range(1, LENGTH + 1):

            def scan(x, reverse=reverse, unroll=unroll):
                def step(carry, row):
                    return 3 * carry + row, carry

                return lax.scan(step, jnp.zeros_like(x[0]), x, reverse=reverse, unroll=unroll)

            members[f"a scan, reverse={reverse}, unroll={unroll}"] = (scan, _steps(x, reverse))
    hold(line, grid, members, x)
    # Each step halves what came before: exact in float32.
    floats = x.astype(np.float32)
    slopes = {}
    for reverse in (False, True):
        powers = 0.5 ** np.arange(LENGTH, dtype=np.float32)
        right = np.broadcast_to((powers if reverse else powers[::-1])[:, None], x.shape)
        for unroll in (1, 2, 3, 4, LENGTH):

            def last(x, reverse=reverse, unroll=unroll):
                def step(carry, row):
                    return carry / 2 + row, None

                return lax.scan(step, jnp.zeros_like(x[0]), x, reverse=reverse, unroll=unroll)[0].sum()

            slopes[f"the gradient of a scan, reverse={reverse}, unroll={unroll}"] = (
                jax.grad(last),
                right.copy(),
            )
    hold(line, grid, slopes, floats)


def _lanes(line, grid):
    """Loops under vmap whose lanes end at different times, with a carry of each dtype: a lane that is done stays."""
    turns = (mixed((4 * line.size,), 6, 7)).astype(np.int32)
    members = {}
    for kind in NUMBERS:

        def grown(turns, kind=kind):
            def one(n):
                start = (jnp.int32(0), jnp.ones((), kind), jnp.zeros(2, kind), jnp.bool_(True))
                return lax.while_loop(
                    lambda s: s[0] < n,
                    lambda s: (s[0] + 1, s[1] + jnp.ones((), kind), s[2] + jnp.asarray([1, 2], kind), ~s[3]),
                    start,
                )

            return jax.vmap(one)(turns)

        right = (
            turns,
            (turns + 1).astype(kind),
            (turns[:, None] * np.array([1, 2])).astype(kind),
            turns % 2 == 0,
        )
        members[f"a while loop of {np.dtype(kind).name} lanes"] = (grown, right)

    def counted(turns):
        return jax.vmap(lambda n: lax.fori_loop(0, n, lambda i, s: s + i, jnp.int32(0)))(turns)

    members["a loop whose bound differs by lane"] = (counted, (turns * (turns - 1) // 2).astype(np.int32))
    hold(line, grid, members, turns)


def _branches(line, grid):
    """Branches by an index below, in and above the range, under vmap and in a shard_map, and each branch's gradient."""
    n = line.size
    factors = (1.0, 3.0, -1.0, 5.0)
    index = (mixed((4 * n,), 9, 7) - 3).astype(np.int32)
    x = (mixed((4 * n,), 5) + 1).astype(np.float32)
    chosen = np.float32(factors)[np.clip(index, 0, 3)]

    def switched(i, v):
        return lax.switch(i, [lambda v, k=k: k * v for k in factors], v)

    def halved(i, v):
        return lax.cond(i > 0, lambda v: v / 2, lambda v: 4 * v, v)

    taken = np.where(index > 0, np.float32(0.5), np.float32(4))
    members = {
        "a switch": (lambda i, x: jax.vmap(switched)(i, x), chosen * x),
        "the gradient of a switch": (lambda i, x: jax.vmap(jax.grad(switched, 1))(i, x), chosen),
        "a cond": (lambda i, x: jax.vmap(halved)(i, x), taken * x),
        "the gradient of a cond": (lambda i, x: jax.vmap(jax.grad(halved, 1))(i, x), taken),
        "the derivative of a switch": (
            lambda i, x: jax.vmap(lambda i, v: jax.jvp(lambda v: switched(i, v), (v,), (2 * v,))[1])(i, x),
            2 * chosen * x,
        ),
    }
    hold(line, grid, members, index, x)
    # In a shard_map the index is one number on each device, so that only one branch runs there.
    first, rows = index[::4], x[:n]
    for name, f in (("a switch", switched), ("the gradient of a switch", jax.grad(switched, 1))):
        run = mapped(lambda i, v, f=f: f(i[0], v[0])[None], line, (P("d"), P("d")), P("d"))
        right = np.float32(factors)[np.clip(first, 0, 3)] * (rows if name == "a switch" else 1)
        expect(run(first, rows), right.astype(np.float32), f"{name} in a shard_map")


def _computed_again(line, grid):
    """Random numbers inside of what jax.checkpoint computes again, and in loops: the backward pass has the same."""
    n, key = line.size, jax.random.key(5)
    x = (mixed((2 * n, 4), 7) + 1).astype(np.float32)

    def dropped(v, key):
        return jnp.where(jax.random.bernoulli(key, 0.5, v.shape), v * v, 0.0)

    kept = np.asarray(jax.random.bernoulli(key, 0.5, x.shape))
    wrong(kept.all() or not kept.any(), "bernoulli draws one value")
    right = np.where(kept, 2 * x, 0)
    policies = {
        "everything": None,
        "dots": jax.checkpoint_policies.checkpoint_dots,
        "nothing": jax.checkpoint_policies.nothing_saveable,
    }
    for where, mesh, spec in (("rows", line, P("d")), ("both axes", grid, P("x", "y"))):
        given = placed(mesh, x, *spec)
        for name, policy in policies.items():
            again = jax.checkpoint(dropped, policy=policy)
            slope = jax.jit(jax.grad(lambda v, k, f=again: jnp.sin(0 * f(v, k)).sum() + f(v, k).sum()))
            expect(slope(given, key), right.astype(np.float32), f"dropout computed again ({name}), {where},")

        def looped(v, key):
            def step(carry, turn):
                return carry + jax.checkpoint(dropped)(v, jax.random.fold_in(key, turn)), None

            return lax.scan(step, jnp.zeros_like(v), jnp.arange(3))[0].sum()

        times = sum(
            np.asarray(jax.random.bernoulli(jax.random.fold_in(key, i), 0.5, x.shape)) for i in range(3)
        )
        expect(
            jax.jit(jax.grad(looped))(given, key),
            (2 * x * times).astype(np.float32),
            f"dropout in a scan, {where},",
        )


def _typed_rows(
    mesh: Any, x: np.ndarray, functions: dict[str, tuple[Callable[..., Any], np.ndarray]]
) -> None:
    """Map each function over rows that Explicit axes shard. The result has the answer's values, and its rows lie as
    those of the argument."""
    typed = explicit(mesh)
    with jax.set_mesh(typed):
        given = placed(typed, x, "x")
        for name, (f, right) in functions.items():
            found = jax.jit(jax.vmap(f))(given)
            expect(found, right, name)
            spec = jax.typeof(found).sharding.spec
            wrong(not len(spec) or spec[0] != "x", f"{name} has the type {jax.typeof(found)}")


def _typed_loops(line, grid):
    """Loops and branches of rows over Explicit axes, which begin with the row or with an array of JAX."""
    x = (mixed((2 * line.size, 4), 7) + 1).astype(np.float32)
    _typed_rows(
        grid,
        x,
        {
            "a loop from an array": (lambda r: lax.fori_loop(0, 3, lambda i, s: s + r, jnp.zeros(4)), 3 * x),
            "a loop from its row": (lambda r: lax.fori_loop(0, 3, lambda i, s: s + r, r), 4 * x),
            "a scan from an array": (
                lambda r: lax.scan(lambda s, _: (s + r, s), jnp.zeros(4), None, 3)[0],
                3 * x,
            ),
            "a cond of a row": (
                lambda r: lax.cond(r[0] > 3, lambda: r, lambda: jnp.zeros(4)),
                np.where(x[:, :1] > 3, x, 0),
            ),
            "a switch of a row": (
                lambda r: lax.switch(r[0].astype(int) % 2, [lambda: r, lambda: jnp.ones(4)]),
                np.where(x[:, :1] % 2 == 0, x, 1),
            ),
            "a checkpoint of a row": (lambda r: jax.checkpoint(lambda a, b: a * b)(r, jnp.ones(4)), x),
        },
    )


def _typed_numbers(line, grid):
    """Loops of rows over Explicit axes that begin with a number or an array of NumPy, which have no mesh, and functions
    that are made of such loops."""
    x = (mixed((2 * line.size, 4), 7) + 1).astype(np.float32)
    table = np.array([0.0, 2, 4], np.float32)
    _typed_rows(
        grid,
        x,
        {
            "a loop from a number": (lambda r: lax.fori_loop(0, 3, lambda i, s: s + r[0], 0.0), 3 * x[:, 0]),
            "a loop from an array of NumPy": (
                lambda r: lax.fori_loop(0, 3, lambda i, s: s + r, np.zeros(4, np.float32)),
                3 * x,
            ),
            "a while loop that each row bounds": (
                lambda r: lax.while_loop(lambda s: s < r[0], lambda s: s + 1, 0.0),
                x[:, 0],
            ),
            "searchsorted": (
                lambda r: jnp.searchsorted(table, r[0]),
                np.searchsorted(table, x[:, 0]).astype(np.int32),
            ),
            "interp": (
                lambda r: jnp.interp(r[0], table, 2 * table),
                np.float32(np.interp(x[:, 0], table, 2 * table)),
            ),
        },
    )


RULES_OF_LOOPS: dict[str, Callable[..., None]] = {
    "scans": _scans,
    "lanes": _lanes,
    "branches": _branches,
    "computed_again": _computed_again,
    "typed_loops": _typed_loops,
    "typed_numbers": _typed_numbers,
}
