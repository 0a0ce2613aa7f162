# SPDX-License-Identifier: Apache-2.0
"""Small rules of settings that forbid or change something while a program is traced: collectives, uses of a key, ranks,
types with axes of one device, and what else is a part of the key of a program."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, reshard
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.sharing import numbers


def _collectives_that_are_forbidden(line, grid):
    """Under `no_collectives` each collective over the named axes is refused, in a region and in a move to another
    place; one over another axis is not."""
    if not hasattr(jax.sharding, "no_collectives"):
        raise Missing("this release has no jax.sharding.no_collectives")
    typed = explicit(grid)
    host = numbers(2 * grid.size, grid.size)
    n = grid.shape["x"]
    calls: dict[str, Callable[[Any], Any]] = {
        "psum": lambda v: lax.psum(v, "x"),
        "pmax": lambda v: lax.pmax(v, "x"),
        "all_gather": lambda v: lax.all_gather(v, "x", tiled=True),
        "psum_scatter": lambda v: lax.psum_scatter(v, "x", scatter_dimension=1, tiled=True),
        "all_to_all": lambda v: lax.all_to_all(v, "x", 1, 1, tiled=True),
        "ppermute": lambda v: lax.ppermute(v, "x", [(i, (i + 1) % n) for i in range(n)]),
    }
    with jax.set_mesh(typed):
        x = placed(typed, host, "x", None)
        y = placed(typed, host, ("x", "y"), None)
        for name, call in calls.items():
            region = jax.shard_map(call, in_specs=P("x", None), out_specs=P(None), check_vma=False)
            with jax.sharding.no_collectives({"x"}):
                refused(f"{name} over the axis", "collective", lambda f=region: jax.jit(f)(x))
        with jax.sharding.no_collectives({"x"}):
            refused("a move to every device", "collective", lambda: jax.jit(lambda v: reshard(v, P()))(x))
            other = jax.shard_map(lambda v: lax.psum(v, "y"), in_specs=P(("x", "y")), out_specs=P("x"))
            right = host.reshape(n, grid.shape["y"], -1, host.shape[1]).sum(1).reshape(-1, host.shape[1])
            expect(jax.jit(other)(y), right, "a sum over another axis")


@contextlib.contextmanager
def _storing(folder: str) -> Iterator[None]:
    """Compiled programs are stored in a folder while this context is active."""
    from jax.experimental.compilation_cache import compilation_cache

    options = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def _stored_programs_of_one_name(line, grid):
    """Programs of the same name, arguments and devices have each an entry among the stored programs: one that differs
    in a number, in its collective, or in its order of devices never gets the code of another."""
    host = numbers(2 * line.size, 3)
    turned = Mesh(line.devices[::-1], ("d",))

    def scaled(k: int) -> Callable[[Any], Any]:
        return lambda v: v * k

    def counted(mesh: Any, start: int) -> Callable[[Any], Any]:
        return jax.shard_map(
            lambda v: v + lax.axis_index("d") + start, mesh=mesh, in_specs=P("d"), out_specs=P("d")
        )

    ranks = np.repeat(np.arange(line.size, dtype=np.float32), 2)[:, None]

    def programs() -> list[tuple[Callable[[Any], Any], Any, np.ndarray]]:
        """Functions that are made anew, so that jit has not seen them, and what they give."""
        return [
            (scaled(3), line, host * 3),
            (scaled(5), line, host * 5),
            (counted(line, 0), line, host + ranks),
            (counted(line, 4), line, host + ranks + 4),
            (counted(turned, 0), turned, host + ranks),
        ]

    with tempfile.TemporaryDirectory() as folder, _storing(folder):
        for turn in ("first", "second"):
            for number, (function, mesh, right) in enumerate(programs()):
                found = jax.jit(function)(placed(mesh, host, "d"))
                expect(found, right, f"program {number} of the {turn} turn with stored programs")
        stored = {path.name.rpartition("-")[0] for path in Path(folder).iterdir()}
    if not stored:
        raise Missing("this backend stores no compiled programs")
    distinct = len(programs()) - (line.size == 1)  # one device has no other order
    wrong(len(stored) < distinct, f"{distinct} programs have {len(stored)} entries: {sorted(stored)}")


def _contexts_of_users(line, grid):
    """The value of `make_user_context` is a part of the key of a program, also of a region."""
    if not hasattr(jax, "make_user_context"):
        raise Missing("this release has no jax.make_user_context")
    host = numbers(2 * line.size, 3)
    x = placed(line, host, "d")
    context = jax.make_user_context(default_value=1.0)
    region = jax.shard_map(lambda v: v * context.value, mesh=line, in_specs=P("d"), out_specs=P("d"))
    f = jax.jit(region)
    expect(f(x), host, "a region with the first value of a context")
    for value in (3.0, 5.0, 3.0):
        with context(value):
            expect(f(x), host * value, f"a region with the value {value} of a context")
    expect(f(x), host, "a region after the context")


def _keys_used_twice(line, grid):
    """Under `debug_key_reuse` a key that is used twice is refused, in a program of sharded arrays and in a region; two
    keys of a split are not."""
    key = jax.random.key(3)
    other = placed(line, numbers(line.size), "d")

    def twice(k):
        return jax.random.normal(k, (1,)) + jax.random.uniform(k, (1,))

    def once(k):
        one, two = jax.random.split(k)
        return jax.random.normal(one, (1,)) + jax.random.uniform(two, (1,))

    def region(f):
        return jax.jit(jax.shard_map(f, mesh=line, in_specs=P(), out_specs=P(), check_vma=False))

    def beside(f):
        return jax.jit(lambda k, v: v + f(k))

    right = np.asarray(once(key))
    with jax.debug_key_reuse(True):
        refused("a key used twice in a region", "[Kk]ey.*reuse|consumed", lambda: region(twice)(key))
        refused("a key used twice", "[Kk]ey.*reuse|consumed", lambda: beside(twice)(key, other))
        found = np.asarray(region(once)(key))
        wrong(
            not np.allclose(found, right, atol=1e-5),
            f"a sum of two draws in a region is {found} and not {right}",
        )


def _ranks_that_may_not_differ(line, grid):
    """Under `numpy_rank_promotion("raise")` operands of different rank are refused, eagerly, in jit and in a region."""
    host, row = numbers(2 * line.size, 3), numbers(3)
    x, w = placed(line, host, "d"), placed(line, row)
    region = jax.shard_map(lambda v, u: v + u, mesh=line, in_specs=(P("d"), P()), out_specs=P("d"))
    calls = {"in a region": jax.jit(region), "in jit": jax.jit(lambda v, u: v * u), "without jit": jnp.add}
    expect(calls["in a region"](x, w), host + row, "a sum of two ranks")
    with jax.numpy_rank_promotion("raise"):
        for where, call in calls.items():
            refused(f"operands of two ranks {where}", "rank_promotion|rank promotion", lambda f=call: f(x, w))
            found = call(x, placed(line, row[None]))
            expect(found, host * row if where == "in jit" else host + row, f"operands of one rank {where}")


def _axes_of_one_device_in_types(line, grid):
    """Under `remove_size_one_mesh_axis_from_type` a type names no axis of one device, and the numbers stay."""
    m = Mesh(line.devices.reshape(1, -1), ("one", "d"), axis_types=(AxisType.Explicit,) * 2)
    host = numbers(2, line.size)
    with jax.set_mesh(m):
        x = placed(m, host, "one", "d")
        for removed, spec in ((False, P("one", "d")), (True, P(None, "d" if line.size > 1 else None))):
            with jax.remove_size_one_mesh_axis_from_type(removed):
                seen = []

                def noted(v, seen=seen):
                    w = reshard(v * 2, P("one", "d"))
                    seen.append(jax.typeof(w).sharding.spec)
                    return w

                expect(jax.jit(noted)(x), host * 2, f"a product, axes of one device removed: {removed}")
                wrong(
                    seen != [spec],
                    f"the type has {seen} instead of {spec}, axes of one device removed: {removed}",
                )


def _executions_that_are_forbidden(line, grid):
    """Under `no_execution` programs are traced and compiled, and not run."""
    host = numbers(2 * line.size, 3)
    x = placed(line, host, "d")
    f = jax.jit(jax.shard_map(lambda v: lax.psum(v, "d"), mesh=line, in_specs=P("d"), out_specs=P()))
    right = host.reshape(line.size, 2, 3).sum(0)
    expect(f(x), right, "a sum")
    with jax.no_execution(True):
        compiled = f.lower(x).compile()
        refused("a call", "no_execution", lambda: f(x))
        refused("a call of what is compiled", "no_execution", lambda: compiled(x))
    expect(f(x), right, "a sum afterwards")


RULES_OF_SWITCHES: dict[str, Callable[..., None]] = {
    "collectives_that_are_forbidden": _collectives_that_are_forbidden,
    "stored_programs_of_one_name": _stored_programs_of_one_name,
    "contexts_of_users": _contexts_of_users,
    "keys_used_twice": _keys_used_twice,
    "ranks_that_may_not_differ": _ranks_that_may_not_differ,
    "axes_of_one_device_in_types": _axes_of_one_device_in_types,
    "executions_that_are_forbidden": _executions_that_are_forbidden,
}
"""Each function takes a mesh over one axis "d" and one over two axes "x" and "y", both of all devices."""
