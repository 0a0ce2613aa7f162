# SPDX-License-Identifier: Apache-2.0
"""Small rules of values that all devices share: rows of one special value, branches that place their results apart,
sums over a mesh's axis and a batch's, loops whose bounds are a batch, arrays that typed programs make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect

SPECIAL = ("inf", "-inf", "largest", "lowest", "smallest", "zero", "-zero")


def _special(dtype: Any) -> np.ndarray:
    """The special values of a float, in the order of SPECIAL."""
    info = jnp.finfo(dtype)
    values = [np.inf, -np.inf, float(info.max), float(info.min), float(info.tiny), 0.0, -0.0]
    return np.array(values, np.float32).astype(dtype)


def _special_everywhere(line, grid):
    """Reductions over rows in which every element of every device is the same special value. (NaN among other values is
    that of the operation `every_value`.)"""
    n = line.size
    for dtype in (np.float32, jnp.bfloat16, np.float16):
        kinds = _special(dtype)
        host = np.tile(kinds, (2 * n, 1))
        x = placed(line, host, "d")
        calls: dict[str, Callable[[Any], Any]] = {
            "max": lambda v: v.max(0),
            "min": lambda v: v.min(0),
            "the last of cummax": lambda v: lax.cummax(v, 0)[-1],
            "the first of a sort": lambda v: jnp.sort(v, 0)[0],
            "top_k": lambda v: lax.top_k(v.T, 1)[0][:, 0],
            "a pooled maximum": lambda v: lax.reduce_window(
                v, jnp.array(-jnp.inf, v.dtype), lax.max, (2 * n, 1), (1, 1), "VALID"
            )[0],
        }
        for name, call in calls.items():
            found = np.asarray(jax.jit(call)(x))
            expect(found, kinds, f"{name} of {2 * n} rows of {jnp.dtype(dtype).name} {', '.join(SPECIAL)}")
        collectives: dict[str, Callable[[Any], Any]] = {
            "pmax": lambda b: lax.pmax(b, "d"),
            "pmin": lambda b: lax.pmin(b, "d"),
            "a gather": lambda b: lax.all_gather(b, "d")[n - 1],
            "a turn": lambda b: lax.ppermute(b, "d", [(k, (k + 1) % n) for k in range(n)]),
        }
        for name, call in collectives.items():
            found = np.asarray(mapped(call, line, P("d"), P("d"), check_vma=False)(x))
            expect(found, host, f"{name} of blocks of {jnp.dtype(dtype).name} {', '.join(SPECIAL)}")
        sums = mapped(lambda b: lax.psum(b[:1], "d"), line, P("d"), P())(
            placed(line, host[:, [0, 1, 5, 6]], "d")
        )
        expect(
            np.asarray(sums)[0], kinds[[0, 1, 5, 6]], f"psum of {jnp.dtype(dtype).name} infinities and zeros"
        )
    totals = jax.jit(lambda v: jax.nn.logsumexp(v, 0))(
        placed(line, np.full((2 * n, 2), -np.inf, np.float32), "d")
    )
    expect(
        np.asarray(totals), np.full(2, -np.inf, np.float32), "logsumexp of rows that are masked everywhere"
    )


def _branches_placed_apart(line, grid):
    """The branches of a cond constrain their results to different places; so do those of a switch."""
    n = grid.size
    host = mixed((2 * n, 2 * n), 97, 7).astype(np.float32)
    x = placed(line, host, "d")

    def to(v, *spec):
        return lax.with_sharding_constraint(v, NamedSharding(line, P(*spec)))

    run = jax.jit(lambda v, p: lax.cond(p, lambda b: to(2 * b, None, "d"), lambda b: to(b.T, "d"), v))
    for choice, right in ((True, 2 * host), (False, host.T)):
        expect(np.asarray(run(x, choice)), right, f"a branch whose result has a place of its own, {choice}")


def _sums_over_mesh_and_batch(line, grid):
    """Collectives over a mesh's axis and that of a batch in the region, together."""
    n = line.size
    host = mixed((n, 3), 97, 7).astype(np.float32)
    total = np.float32(host.sum())
    calls: dict[str, tuple[Callable[[Any, Any], Any], np.float32]] = {
        "psum": (lax.psum, total),
        "pmax": (lax.pmax, np.float32(host.max())),
        "pmin": (lax.pmin, np.float32(host.min())),
    }
    for name, (call, right) in calls.items():
        for axes in (("d", "i"), ("i", "d")):
            run = mapped(
                lambda b, c=call, a=axes: jax.vmap(lambda v: c(v, a), axis_name="i", out_axes=None)(b[0])[
                    None
                ],
                line,
                P("d"),
                P("d"),
                check_vma=False,
            )
            found = np.asarray(run(host))
            expect(found, np.full(n, right), f"{name} over {axes}, an axis of the mesh and one of a batch")


def _checked_sums_over_mesh_and_batch(line, grid):
    """The same sum, where JAX keeps count of what varies."""
    n = line.size
    host = mixed((n, 3), 97, 7).astype(np.float32)
    for axes in (("d", "i"), ("i", "d")):
        run = mapped(
            lambda b, a=axes: jax.vmap(lambda v: lax.psum(v, a), axis_name="i", out_axes=None)(b[0]),
            line,
            P("d"),
            P(),
        )
        expect(np.asarray(run(host)), np.float32(host.sum()), f"a checked psum over {axes}")


def _bounds_of_batched_loops(line, grid):
    """Loops of a batch over an Explicit axis, each as long as its row says."""
    typed = explicit(line)
    n = line.size
    bounds, host = np.arange(2 * n) % 5, np.arange(2 * n, dtype=np.float32)
    right = host + bounds * (bounds - 1) // 2
    with jax.set_mesh(typed):
        i, v = placed(typed, bounds, "d"), placed(typed, host, "d")

        def by_while(a, k):
            return lax.while_loop(lambda c: c[1] < k, lambda c: (c[0] + c[1], c[1] + 1), (a, 0))[0]

        def by_fori(a, k):
            return lax.fori_loop(0, k, lambda j, c: c + j, a)

        for name, f in (("while_loop", by_while), ("fori_loop", by_fori)):
            for way, run in (("compiled", jax.jit(jax.vmap(f))), ("eager", jax.vmap(f))):
                expect(np.asarray(run(v, i)), right.astype(np.float32), f"{name} of a batch of bounds, {way}")


def _hold_made(
    made: dict[str, tuple[Callable[[], Any], np.ndarray]], ways: dict[str, Callable[[Any], Any]]
) -> None:
    for name, (call, right) in made.items():
        for way, run in ways.items():
            found = run(call)()
            expect(np.asarray(found), right, f"{name}, {way}")
            expect(found.sharding.spec, P("x", "y"), f"the spec of {name} with a device, {way}")


def _filled(n: int, place: Any) -> dict[str, tuple[Callable[[], Any], np.ndarray]]:
    like = np.ones((n, n), np.float32)
    return {
        "zeros": (lambda: jnp.zeros((n, n), device=place), 0 * like),
        "ones": (lambda: jnp.ones((n, n), device=place), like),
        "full": (lambda: jnp.full((n, n), 3.0, device=place), 3 * like),
        "zeros_like": (lambda: jnp.zeros_like(like, device=place), 0 * like),
        "ones_like": (lambda: jnp.ones_like(like, device=place), like),
    }


def _made_over_explicit_axes(line, grid):
    """Arrays that are made over Explicit axes with a place given as `device` lie there; `eye` in a program too."""
    typed = explicit(grid)
    n = 2 * grid.size
    place = NamedSharding(typed, P("x", "y"))
    eye = {"eye": (lambda: jnp.eye(n, device=place), np.eye(n, dtype=np.float32))}
    with jax.set_mesh(typed):
        _hold_made(_filled(n, place) | eye, {"eager": lambda call: call})
        _hold_made(eye, {"compiled": jax.jit})


def _filled_in_typed_programs(line, grid):
    """Arrays of one value that a program over Explicit axes makes lie where `device` says."""
    typed = explicit(grid)
    with jax.set_mesh(typed):
        _hold_made(_filled(2 * grid.size, NamedSharding(typed, P("x", "y"))), {"compiled": jax.jit})


RULES_OF_SHARED_VALUES = {
    "special_everywhere": _special_everywhere,
    "branches_placed_apart": _branches_placed_apart,
    "sums_over_mesh_and_batch": _sums_over_mesh_and_batch,
    "checked_sums_over_mesh_and_batch": _checked_sums_over_mesh_and_batch,
    "bounds_of_batched_loops": _bounds_of_batched_loops,
    "made_over_explicit_axes": _made_over_explicit_axes,
    "filled_in_typed_programs": _filled_in_typed_programs,
}
