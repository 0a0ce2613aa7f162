# SPDX-License-Identifier: Apache-2.0
"""Small rules of what is known before a program runs: types of several results, programs compiled ahead of time for
arguments that they don't use, exported programs, and calls after a call with other types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, refused


def _told_of_several(line, grid):
    """eval_shape, lower and make_jaxpr of functions with several results tell the type of each."""
    typed = explicit(grid)
    host = mixed((2 * grid.size, 2 * grid.size), 97, 7).astype(np.float32)
    calls: dict[str, Callable[[Any], Any]] = {
        "a pair": lambda v: (2 * v, v.T),
        "a state": lambda v: {"w": v, "moments": (jnp.zeros_like(v), v.sum(0)), "step": jnp.int32(0)},
        "three types": lambda v: [v.astype(jnp.bfloat16), v > 0, jnp.argmax(v, 0)],
        "a result and nothing": lambda v: (v.max(1), None),
        "a tree of one": lambda v: {"a": {"b": v.sum()}},
    }
    with jax.set_mesh(typed):
        for spec in (P("x", "y"), P("y", None), P(None, ("y", "x"))):
            x = placed(typed, host, *spec)
            for name, call in calls.items():
                ran = jax.jit(call)(x)
                said = {
                    "eval_shape": jax.eval_shape(call, x),
                    "eval_shape of a struct": jax.eval_shape(
                        call, jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
                    ),
                    "eval_shape of jit": jax.eval_shape(jax.jit(call), x),
                    "lower": jax.jit(call).lower(x).out_info,
                    "make_jaxpr": jax.make_jaxpr(call, return_shape=True)(x)[1],
                }
                for way, told in said.items():
                    what = f"{name} of an array over {spec}, by {way}"
                    expect(jax.tree.structure(told), jax.tree.structure(ran), f"the tree of {what}")
                    for one, own in zip(jax.tree.leaves(told), jax.tree.leaves(ran), strict=True):
                        expect((one.shape, one.dtype), (own.shape, own.dtype), f"a type of {what}")
                        there = getattr(one, "sharding", None)
                        same = there is not None and there.spec == own.sharding.spec
                        wrong(
                            own.ndim > 0 and not same,
                            f"a result of {what} is over {there}, not {own.sharding.spec}",
                        )


def _left_out_ahead(line, grid):
    """A program that was compiled ahead of time refuses an argument of another type, also one whose numbers it does
    not use: the type decides what it computes."""
    typed = explicit(grid)
    host = np.arange(2 * grid.size, dtype=np.float32)
    with jax.set_mesh(typed):
        x, same, other = (placed(typed, host, spec) for spec in ("x", "x", "y"))

        def by_type(v, like):
            return v + (1 if jax.typeof(like).sharding.spec == P("x") else 2)

        expect(np.asarray(jax.jit(by_type)(x, same)), host + 1, "a program that depends on a type")
        expect(np.asarray(jax.jit(by_type)(x, other)), host + 2, "a program that depends on another type")
        ahead = jax.jit(by_type).lower(x, same).compile()
        expect(np.asarray(ahead(x, same)), host + 1, "a program that depends on a type, compiled before")
        words = "(?i)shard|spec|type|differ|compiled"
        refused("an argument of another spec that is not used", words, lambda: ahead(x, other))


def _shapes_ahead(line, grid):
    """A program that was compiled ahead of time refuses unused arguments of another shape, dtype or tree."""
    x = placed(line, np.arange(2 * line.size, dtype=np.float32), "d")
    ahead = jax.jit(lambda v, like: v + like["a"].size).lower(x, {"a": x}).compile()
    expect(np.asarray(ahead(x, {"a": x})), np.asarray(x) + 2 * line.size, "a program with an unused argument")
    words = "(?i)type|shape|structure|differ|compiled|tree"
    refused("an unused argument of another shape", words, lambda: ahead(x, {"a": x[:1]}))
    refused("an unused argument of another dtype", words, lambda: ahead(x, {"a": x.astype(np.int32)}))
    refused("an unused argument of another tree", words, lambda: ahead(x, {"b": x}))


def _after_other_types(line, grid):
    """A jitted function that was called with a Python number, a NumPy number or an array treats the next call by its
    own types."""
    x = placed(line, np.ones(2 * line.size, jnp.bfloat16), "d")
    numbers: list[tuple[Any, str]] = [
        (2, "bfloat16"),
        (2.0, "bfloat16"),
        (True, "bfloat16"),
        (np.float32(2), "float32"),
        (np.int32(2), "bfloat16"),
        (jnp.float32(2), "float32"),
        (jnp.asarray(2.0, jnp.bfloat16), "bfloat16"),
    ]
    for first, _ in numbers:
        run = jax.jit(lambda v, k: v * k)
        named = jax.jit(lambda v, *, rate: v * rate)
        run(x, first)
        named(x, rate=first)
        for second, dtype in numbers:
            value = float(second)
            what = f"{type(second).__name__} {second} after {type(first).__name__} {first}"
            for found in (run(x, second), named(x, rate=second)):
                expect(found.dtype.name, dtype, f"the dtype of a product by {what}")
                expect(
                    np.asarray(found).astype(np.float32),
                    np.full(x.shape, value, np.float32),
                    f"a product by {what}",
                )


def _specs_by_name(line, grid):
    """Specs in dictionaries belong to the arguments and results of their names, in any order of the names."""
    n = line.size
    tree = {
        "w": mixed((n, 2), 97, 7).astype(np.float32),
        "b": np.arange(n, dtype=np.float32) + 1,
        "k": np.float32(3),
    }
    for order in (("w", "b", "k"), ("k", "b", "w"), ("b", "w", "k")):
        specs = {name: {"w": P("d"), "b": P(), "k": P()}[name] for name in order}
        what = f"with specs for {', '.join(order)}"

        def sums(t):
            return {"rows": lax.psum(t["w"].sum(0), "d"), "all": t["b"] * t["k"], "own": t["w"] * 2}

        outs = {name: {"rows": P(), "all": P(), "own": P("d")}[name] for name in ("own", "rows", "all")}
        found = jax.device_get(mapped(sums, line, (specs,), outs)(tree))
        expect(found["rows"], tree["w"].sum(0), f"sums {what}")
        expect(found["all"], tree["b"] * tree["k"], f"products {what}")
        expect(found["own"], 2 * tree["w"], f"rows {what}")
        nested = mapped(lambda p: p[0]["w"] + p[1]["b"].sum(), line, (({**specs}, {**specs}),), P("d"))
        expect(np.asarray(nested((tree, tree))), tree["w"] + tree["b"].sum(), f"a pair of trees {what}")
        shardings = {name: NamedSharding(line, spec) for name, spec in specs.items()}
        put = jax.device_put(tree, shardings)
        for name in tree:
            expect(put[name].sharding.spec, specs[name], f"the spec of {name} put {what}")


def _bounds_of_exported_sizes(line, grid):
    """An exported program of free sizes refuses sizes that its constraints leave out, each kind of constraint alone
    and together."""
    n = line.size
    spread = NamedSharding(line, P("d"))
    divides = f"mod(b, {n}) == 0"  # without it the sharding of the argument is refused
    kinds = {
        (f"b <= {2 * n}",): (n, 3 * n),
        (f"b >= {2 * n}",): (2 * n, n),
        (f"mod(b, {2 * n}) == 0",): (2 * n, 3 * n),
        (f"b >= {2 * n}", f"b <= {3 * n}"): (2 * n, 4 * n),
        (f"b <= {3 * n}", f"b >= {2 * n}"): (2 * n, n),
    }
    for kind, (inside, outside) in kinds.items():
        constraints = (divides, *kind)
        (size,) = export.symbolic_shape("b", constraints=constraints)
        made = export.export(jax.jit(lambda v: 2 * v, in_shardings=spread, out_shardings=spread))(
            jax.ShapeDtypeStruct((size,), np.float32)
        )
        for way, call in (("exported", made.call), ("read again", export.deserialize(made.serialize()).call)):
            what = f"a program for {' and '.join(constraints)}, {way},"
            host = np.arange(inside, dtype=np.float32)
            expect(np.asarray(jax.jit(call)(placed(line, host, "d"))), 2 * host, what)
            refused(
                f"{what} with {outside} numbers",
                "(?i)constraint|does not match|expected|shape",
                lambda call=call, outside=outside: jax.jit(call)(
                    placed(line, np.ones(outside, np.float32), "d")
                ),
            )


def _exported_rules(line, grid):
    """An exported program keeps the derivative that a custom rule gives it."""
    spread = NamedSharding(grid, P("x", "y"))
    host = mixed((2 * grid.size, 2 * grid.size), 9, 7).astype(np.float32)
    x = jax.device_put(host, spread)

    @jax.custom_vjp
    def by_rule(v):
        return v * v

    by_rule.defvjp(lambda v: (v * v, v), lambda v, d: (7 * d * v,))

    @jax.custom_jvp
    def by_tangent(v):
        return v * v

    by_tangent.defjvp(lambda v, t: (v[0] * v[0], 5 * v[0] * t[0]))
    for name, f, factor in (("vjp", by_rule, 7), ("jvp", by_tangent, 5)):
        made = export.export(jax.jit(f, in_shardings=spread, out_shardings=spread))(x)
        again = export.deserialize(made.serialize(vjp_order=1))
        expect(np.asarray(again.call(x)), host * host, f"an exported program with a custom {name}")
        slope = jax.grad(lambda v, again=again: again.call(v).sum())(x)
        expect(np.asarray(slope), factor * host, f"the slope of an exported program with a custom {name}")


RULES_AHEAD = {
    "told_of_several": _told_of_several,
    "left_out_ahead": _left_out_ahead,
    "shapes_ahead": _shapes_ahead,
    "after_other_types": _after_other_types,
    "specs_by_name": _specs_by_name,
    "bounds_of_exported_sizes": _bounds_of_exported_sizes,
    "exported_rules": _exported_rules,
}
