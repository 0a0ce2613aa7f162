# SPDX-License-Identifier: Apache-2.0
"""Small rules of functions that the user partitions: joined factors, trees, several results, other places than the
arguments have, and rules that are refused.

Each has conditions that the tests of JAX name and that no other rule, form or operation has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.sharing import numbers


def _factors_that_are_joined(line, grid):
    """Rules of custom_partitioning with dimensions joined of several factors, with letters that must be whole,
    with a rule that is a function of static arguments, and with a sum over devices: each device gets its blocks."""
    n = line.size
    asked: dict[str, list[Any]] = {}

    def told(name: str, shapes: Any) -> list[Any]:
        asked.setdefault(name, []).append([tuple(s.sharding.spec) for s in shapes])
        return [s.sharding for s in shapes]

    @custom_partitioning
    def flat_sum(x: Any, y: Any) -> Any:
        return x.reshape(-1) + 2 * y

    def partition_flat(mesh: Any, arguments: Any, result: Any) -> Any:
        told("flat", arguments)
        rows = NamedSharding(mesh, P("d"))
        return mesh, lambda x, y: x.reshape(-1) + 2 * y, rows, (NamedSharding(mesh, P("d", None)), rows)

    flat_sum.def_partition(
        partition=partition_flat,
        sharding_rule="i j, (i j) -> (i j)",
        need_replication_factors=("j",),
    )
    host, row = numbers(2 * n, 3), numbers(6 * n, step=7)
    for specs in ((("d",), ("d",)), (("d",), ()), ((), ("d",))):
        found = jax.jit(flat_sum)(placed(line, host, *specs[0]), placed(line, row, *specs[1]))
        what = f"a partitioned sum of a matrix and its elements in a row over {specs}"
        on_each_device(found, host.reshape(-1) + 2 * row, what)
        place = NamedSharding(line, P("d"))
        expect(found.sharding.is_equivalent_to(place, 1), True, f"whether {what} is cut")
    wrong(n > 1 and not asked.get("flat"), "a rule with joined factors is not asked")

    def product_of(x: Any, y: Any, times: int, sign: int) -> Any:
        return jnp.einsum("bij,bjk->bik", x, y) * (times * sign)

    product: Any = custom_partitioning(product_of, static_argnums=(2, 3))

    def rule(times: int, sign: int, mesh: Any, arguments: Any, result: Any) -> str:
        expect((times, sign), (3, -1), "the static arguments that a sharding rule is given")
        lead = " ".join(f"b{k}" for k in range(len(arguments[0].shape) - 2))
        return f"{lead} i j, {lead} j k -> {lead} i k"

    def partition(times: int, sign: int, mesh: Any, arguments: Any, result: Any) -> Any:
        expect((times, sign), (3, -1), "the static arguments that a partition is given")
        told("product", arguments)
        x, y, z = (NamedSharding(mesh, P(None, *s)) for s in (("x", "y"), ("y", None), ("x", None)))
        return mesh, lambda a, b: lax.psum(product_of(a, b, times, sign), "y"), z, (x, y)

    product.def_partition(partition=partition, sharding_rule=rule)
    rows, inner = 2 * grid.shape["x"], 2 * grid.shape["y"]
    a, b = numbers(2, rows, inner), numbers(2, inner, 3, step=7)
    for specs in (((None, "x", "y"), (None, "y")), ((None, "x"), (None, "y")), ((), ())):
        given = placed(grid, a, *specs[0]), placed(grid, b, *specs[1])
        run = jax.jit(lambda x, y: product(x, y, 3, -1), out_shardings=NamedSharding(grid, P(None, "x")))
        on_each_device(run(*given), np.float32(-3) * (a @ b), f"a partitioned product over {specs}")
    wrong(n > 1 and not asked.get("product"), "a rule that is a function is not asked")


def _partitioned_otherwise(line, grid):
    """A partition that asks for other places than its arguments have; trees of arguments; several results and one
    without dimensions; functions with jit and scan inside: the program moves what must be moved."""
    n = line.size
    host, other = numbers(2 * n, 2 * n), numbers(2 * n, 2 * n, step=7)
    given: dict[str, P] = {"rows": P("d"), "columns": P(None, "d"), "all": P()}

    def twice(v: Any) -> Any:
        return jax.jit(lambda w: w + w)(v)

    for asked, place in given.items():
        f: Any = custom_partitioning(lambda v: v * 2)
        f.def_partition(
            partition=lambda m, a, r, s=place: (m, twice, NamedSharding(m, s), (NamedSharding(m, s),)),
            propagate_user_sharding=lambda m, user: user.sharding,
            infer_sharding_from_operands=lambda m, a, r, s=place: NamedSharding(m, s),
            sharding_rule="i j -> i j",
        )
        for name, start in given.items():
            for end, last in given.items():
                if len({asked, name, end}) < 3:
                    continue  # all three differ: the program moves the array twice
                run = jax.jit(lambda v, f=f: v + f(v), out_shardings=NamedSharding(line, last))
                what = f"{name} that a partition takes as {asked} and the program gives as {end}"
                on_each_device(run(jax.device_put(host, NamedSharding(line, start))), 3 * host, what)
        found = jax.jit(f)(jax.device_put(host, NamedSharding(line, P())))
        on_each_device(found, 2 * host, f"a whole array that a partition takes as {asked}")

    @custom_partitioning
    def tree(t: Any, w: Any) -> Any:
        return {"sum": t["a"] + t["b"][0] * w, "total": (t["a"] * w).sum()}

    def partition_tree(m: Any, arguments: Any, result: Any) -> Any:
        cut, whole = NamedSharding(m, P("d", None)), NamedSharding(m, P())

        def local(t: Any, w: Any) -> Any:
            def step(total: Any, row: Any) -> Any:
                return total + (row[0] * row[1]).sum(), None

            start = jnp.zeros((), w.dtype)
            total = lax.psum(lax.scan(step, start, (t["a"], w))[0], "d")
            return {"sum": t["a"] + t["b"][0] * w, "total": total}

        places = ({"a": cut, "b": [cut]}, cut)
        return m, local, {"sum": cut, "total": whole}, places

    tree.def_partition(partition=partition_tree, sharding_rule="i j, i j, i j -> i j, ")
    for spec in given.values():
        cut = NamedSharding(line, spec)
        x, y, w = (jax.device_put(v, cut) for v in (host, other, host + 1))
        found = jax.jit(lambda x, y, w: tree({"a": x, "b": [y]}, w))(x, y, w)
        on_each_device(found["sum"], host + other * (host + 1), f"a partitioned tree over {spec}")
        on_each_device(
            found["total"], (host * (host + 1)).sum(), f"the partitioned total of a tree over {spec}"
        )


def _partitions_refused(line, grid):
    """Rules of custom_partitioning that are not right are refused with a reason: no rule, brackets, dots, sizes,
    letters that do not occur, ranks and counts unlike the program's, and a partition with blocks of another shape."""
    n = line.size
    if n == 1:
        raise Missing("a program of one device has no partitions")
    x = placed(line, numbers(2 * n, 2 * n), "d")

    def call(rule: Any, partition: Any = None, **options: Any) -> Any:
        f: Any = custom_partitioning(lambda v: v * 2)

        def same(m: Any, arguments: Any, result: Any) -> Any:
            place = arguments[0].sharding
            return m, lambda v: v * 2, place, (place,)

        if rule is None:
            options["infer_sharding_from_operands"] = lambda m, arguments, result: arguments[0].sharding
        else:
            options["sharding_rule"] = rule
        f.def_partition(partition=partition or same, **options)
        return jax.jit(f)(x)

    on_each_device(call("i j -> i j"), 2 * numbers(2 * n, 2 * n), "a partitioned double")
    on_each_device(call("... j -> ... j"), 2 * numbers(2 * n, 2 * n), "a partitioned double with dots")
    rules: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "no rule": ("provide sharding_rule", None, {}),
        "no arrow": ("There is no ->", "i j", {}),
        "an open bracket": ("Brackets are not balanced", "(i j -> i j", {}),
        "brackets in brackets": ("nested brackets", "((i j) k) l -> i l", {}),
        "brackets of one letter": ("at least two factors", "(i) j -> i j", {}),
        "an unknown sign": ("Unknown character", "i * j -> i j", {}),
        "dots that are not first": ("Ellipsis can only be", "i ... -> i ...", {}),
        "a number for a letter": ("start with a letter", "3 j -> 3 j", {}),
        "a size that nobody uses": ("not used in the rule, but size", "i j -> i j", {"k": 3}),
        "a joined dimension without sizes": ("must specify its size", "(i k) j -> (i k) j", {}),
        "sizes of another dimension": (
            "derived from the compound factors",
            "(i k) j -> (i k) j",
            {"i": 3, "k": 5},
        ),
        "a summed letter that does not occur": (
            "reduction_factors is not used",
            "i j -> i j",
            {"reduction_factors": ("k",)},
        ),
        "a letter that is summed and whole": (
            "can only be in one of",
            "i j -> i j",
            {"reduction_factors": ("i",), "need_replication_factors": ("i",)},
        ),
        "two arguments for one": ("2 operands, but the operation has 1", "i j, i j -> i j", {}),
        "three dimensions for two": ("rank 3, but the operation", "i j k -> i j", {}),
        "two results for one": ("2 results, but the operation has 1", "i j -> i j, i j", {}),
    }
    for name, (words, rule, options) in rules.items():
        refused(f"a partition with {name}", words, lambda r=rule, o=options: call(r, **o))

    def blocks(m: Any, arguments: Any, result: Any) -> Any:
        rows, columns = NamedSharding(m, P("d", None)), NamedSharding(m, P(None, "d"))
        return m, lambda v: v * 2, rows, (columns,)

    words = "(?i)mismatch in result shapes"
    refused("a partition with blocks of another shape", words, lambda: call("i j -> i j", blocks))


RULES_OF_TESTED_PARTITIONS: dict[str, Callable[..., None]] = {
    "factors_that_are_joined": _factors_that_are_joined,
    "partitioned_otherwise": _partitioned_otherwise,
    "partitions_refused": _partitions_refused,
}
