# SPDX-License-Identifier: Apache-2.0
"""Small rules of calls and options that no case asked for: arguments that are static or partial functions, derivatives
and batches with unusual options, places that options name, and what arrays say of themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.sharing import WAYS, numbers


@jax.tree_util.register_static
@dataclass(frozen=True)
class Factor:
    """A factor that jit takes for a part of the program."""

    by: int


def _static_arguments_of_two_values(line, grid):
    """A registered static argument is a part of jit's key: two values give two programs, also around a region."""
    host = numbers(2 * line.size, 3)
    x = placed(line, host, "d")
    region = jax.shard_map(lambda v: v * 2, mesh=line, in_specs=P("d"), out_specs=P("d"))
    f = jax.jit(lambda factor, v: region(v) * factor.by)
    for by in (2, 5, 2):
        expect(f(Factor(by), x), host * 2 * by, f"the product by a static {by}")


def _partials_as_arguments(line, grid):
    """A `Partial` of sharded arrays keeps its arguments and keywords through jit and a region."""
    host, other = numbers(2 * line.size, 3), numbers(2 * line.size, 3, step=7)
    x, y = placed(line, host, "d"), placed(line, other, "d")

    def scaled(a, b, *, by):
        return a * by + b

    given = jax.tree_util.Partial(scaled, x, by=3.0)
    right = host * 3 + other
    for way, call in WAYS.items():
        expect(call(lambda f, v: f(v))(given, y), right, f"a Partial {way}")
    region = jax.shard_map(
        lambda a, v: jax.tree_util.Partial(scaled, a, by=3.0)(v),
        mesh=line,
        in_specs=P("d"),
        out_specs=P("d"),
    )
    expect(jax.jit(region)(x, y), right, "a Partial in a region")


def _gradients_beside_each_other(line, grid):
    """`jax.fwd_and_bwd` gives gradients in the asked order, and its second function can be called again."""
    a, b = numbers(2 * line.size, 3), numbers(2 * line.size, 3, step=7)
    x, y = placed(line, a, "d"), placed(line, b, "d")
    region = jax.shard_map(lambda p, q: p * q, mesh=line, in_specs=P("d"), out_specs=P("d"))
    for order, right in (((0, 1), (b, a)), ((1, 0), (a, b)), ((1,), (a,))):
        forward, backward = jax.fwd_and_bwd(region, order)
        out, rest = forward(x, y)
        expect(out, a * b, f"the result for arguments {order}")
        for times in (1.0, 2.0):
            found = backward(rest, jnp.full_like(out, times))
            for n, (seen, wanted) in enumerate(zip(found, right, strict=True)):
                expect(seen, wanted * np.float32(times), f"gradient {n} for arguments {order}, times {times}")


def _rules_by_names_of_arguments(line, grid):
    """Custom rules with `nondiff_argnames` get the named arguments in the order of their names."""
    host = numbers(2 * line.size, 3)
    x = placed(line, host, "d")

    @functools.partial(jax.custom_vjp, nondiff_argnames=("k", "s"))
    def f(v, k, s):
        return v * k + s

    f.defvjp(lambda v, k, s: (f(v, k, s), None), lambda k, s, _, ct: (ct * (10 * k + s),))

    @functools.partial(jax.custom_jvp, nondiff_argnames=("k", "s"))
    def g(v, k, s):
        return v * k + s

    g.defjvp(lambda k, s, primals, tangents: (g(primals[0], k, s), tangents[0] * (10 * k + s)))
    for name, rule in (("custom_vjp", f), ("custom_jvp", g)):
        region = jax.shard_map(
            lambda v, rule=rule: rule(v, 3.0, 5.0), mesh=line, in_specs=P("d"), out_specs=P("d")
        )
        expect(jax.jit(region)(x), host * 3 + 5, f"{name} with names of arguments")
        found = jax.jit(jax.grad(lambda v, region=region: region(v).sum()))(x)
        expect(found, np.full_like(host, 35), f"the gradient of {name} with names of arguments")


def _batches_in_turn(line, grid):
    """`sequential_vmap` in a region: rows stay in order, also beside an argument without a batch."""
    host = numbers(2 * line.size, 3)
    x = placed(line, host, "d")

    @jax.custom_batching.sequential_vmap
    def f(v, w):
        return v * 2 + w

    region = jax.shard_map(
        lambda v: jax.vmap(f, (0, None))(v, lax.axis_index("d").astype(np.float32)),
        mesh=line,
        in_specs=P("d"),
        out_specs=P("d"),
    )
    ranks = np.repeat(np.arange(line.size, dtype=np.float32), 2)[:, None]
    expect(jax.jit(region)(x), host * 2 + ranks, "a sequential batch in a region")


def _what_roots_give_beside(line, grid):
    """`custom_root` and `custom_linear_solve` with `has_aux` give what the solver gave beside the solution."""
    host = np.abs(numbers(2 * line.size)) + 1
    x = placed(line, host.astype(np.float32), "d")

    def root(v):
        return lax.custom_root(
            lambda r: r - v,
            v,
            lambda f, guess: (v, v * 7),
            lambda g, y: y / g(jnp.ones_like(y)),
            has_aux=True,
        )

    def solved(v):
        return lax.custom_linear_solve(
            lambda r: r * 2, v, lambda mv, b: (b / 2, b * 7), lambda mv, b: (b / 2, b * 7), has_aux=True
        )

    for name, f, first in (("custom_root", root, host), ("custom_linear_solve", solved, host / 2)):
        region = jax.shard_map(f, mesh=line, in_specs=P("d"), out_specs=(P("d"), P("d")))
        for where, call in (("in a region", region), ("of a sharded array", f)):
            found, beside = jax.jit(call)(x)
            expect(found, first.astype(np.float32), f"{name} {where}")
            expect(beside, (host * 7).astype(np.float32), f"what {name} gives beside, {where}")


def _tracing_that_is_forbidden(line, grid):
    """Under `no_tracing` a program that was traced runs, and another sharding of its argument is refused."""
    typed = explicit(grid)
    host = numbers(grid.size, grid.size)
    f = jax.jit(lambda v: v * 2)
    with jax.set_mesh(typed):
        x, y = placed(typed, host, "x"), placed(typed, host, "y")
        f(x)
        with jax.no_tracing(True):
            expect(f(x), host * 2, "a program that was traced before")
            refused("a program for another sharding", "re-tracing", lambda: f(y))


def _casts_that_are_not_automatic(line, grid):
    """Under `auto_pcast(False)` operands that vary over different axes are refused; an own cast is right."""
    host = numbers(line.size)
    x = placed(line, host, "d")

    def region(f):
        return jax.shard_map(f, mesh=line, in_specs=P("d"), out_specs=P("d"))

    mixed = region(lambda v: v + jnp.ones(1) * lax.psum(v, "d"))
    cast = region(lambda v: v + lax.pcast(lax.psum(v, "d"), "d", to="varying"))
    expect(jax.jit(mixed)(x), host + host.sum(), "a sum with an automatic cast")
    with jax.auto_pcast(False):
        expect(jax.jit(cast)(x), host + host.sum(), "a sum with an own cast")
        refused("a sum without a cast", "varying manual axes", lambda: jax.jit(mixed)(x))


def _what_arrays_say_of_themselves(line, grid):
    """The size on all devices, the list of live arrays, and the axes over which a sharding replicates."""
    host = numbers(2 * line.size, 4)
    for spec, copies in ((("d",), 1), ((), line.size)):
        x = placed(line, host, *spec)
        if jax.default_backend() in ("cpu", "gpu"):  # a TPU fills tiles
            expect(x.on_device_size_in_bytes(), host.nbytes * copies, f"the bytes on all devices over {spec}")
    x = placed(line, host, "d")
    wrong(not any(x is live for live in jax.live_arrays()), "an array over several devices is not alive")
    x.delete()
    wrong(any(x is live for live in jax.live_arrays()), "a deleted array is alive")
    for spec, right in ((("x",), {"y"}), ((("x", "y"),), set()), ((None, "y"), {"x"}), ((), {"x", "y"})):
        found = set(NamedSharding(grid, P(*spec)).replicated_axes)
        wrong(found != right, f"{P(*spec)} is replicated over {sorted(found)}")


def _places_that_options_name(line, grid):
    """Draws, bits, segments and fills lie where `out_sharding` and `sharding` say."""
    typed = explicit(line)
    n = 2 * line.size
    at = P("d")
    with jax.set_mesh(typed):
        key = jax.random.key(3)
        rows = placed(typed, numbers(n))
        calls: dict[str, Callable[[], Any]] = {
            "permutation": lambda: jax.random.permutation(key, n, out_sharding=at),
            "categorical": lambda: jax.random.categorical(key, jnp.zeros((n, 4)), out_sharding=at),
            "rng_bit_generator": lambda: lax.rng_bit_generator(
                jnp.arange(4, dtype=np.uint32), (n, 2), out_sharding=at
            )[1],
            "segment_min": lambda: jax.ops.segment_min(
                jnp.arange(4.0), jnp.arange(4), num_segments=n, out_sharding=at
            ),
            "full": lambda: lax.full((n, 2), 3.0, sharding=NamedSharding(typed, at)),
            "full_like": lambda: lax.full_like(rows, 3.0, sharding=NamedSharding(typed, at)),
        }
        for name, call in calls.items():
            for way, made in WAYS.items():
                if name.startswith("full") and way == "in jit":
                    continue  # the documentation of lax.full says that a program ignores its sharding
                found = made(call)()
                there = NamedSharding(typed, at)
                wrong(
                    not found.sharding.is_equivalent_to(there, found.ndim),
                    f"{name} {way} lies at {found.sharding.spec} instead of {at}",
                )


RULES_THAT_NOBODY_ASKED: dict[str, Callable[..., None]] = {
    "static_arguments_of_two_values": _static_arguments_of_two_values,
    "partials_as_arguments": _partials_as_arguments,
    "gradients_beside_each_other": _gradients_beside_each_other,
    "rules_by_names_of_arguments": _rules_by_names_of_arguments,
    "batches_in_turn": _batches_in_turn,
    "what_roots_give_beside": _what_roots_give_beside,
    "tracing_that_is_forbidden": _tracing_that_is_forbidden,
    "casts_that_are_not_automatic": _casts_that_are_not_automatic,
    "what_arrays_say_of_themselves": _what_arrays_say_of_themselves,
    "places_that_options_name": _places_that_options_name,
}
"""Each function takes a mesh over one axis "d" and one over two axes "x" and "y", both of all devices."""
