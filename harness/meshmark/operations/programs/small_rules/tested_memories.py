# SPDX-License-Identifier: Apache-2.0
"""Small rules of programs over two memories, by conditions that JAX's own tests name: loops that move rows, constants
and results in the memory of the host, donated arguments, and parts that run on the host.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import explicit, memory_kinds
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.forms.settings import on_host
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.tested_arrays import numbers


def _rows_streamed_in_loops(line, grid):
    """Loops that take rows from the memory of the host, or put them there: forward, backward and unrolled."""
    memory_kinds(line)
    n = grid.size
    host = numbers(4, 2 * n, 2 * n)
    sums = np.cumsum(host, 0)
    for spec in (P(None, "x", "y"), P()):
        here = NamedSharding(grid, spec)
        there = here.with_memory_kind("pinned_host")
        row = NamedSharding(grid, P(*tuple(spec)[1:]))
        row_there = row.with_memory_kind("pinned_host")
        near, far = jax.device_put(host, here), jax.device_put(host, there)
        start = jax.device_put(np.zeros_like(host[0]), row)
        for options in ({}, {"reverse": True}, {"unroll": 2}):
            turned = "reverse" in options
            right = np.cumsum(host[::-1], 0)[::-1] if turned else sums

            def taking(c: Any, v: Any, row: Any = row) -> Any:
                c = c + jax.device_put(v, row)
                return c, c * 2

            def giving(c: Any, v: Any, row: Any = row_there) -> Any:
                c = c + v
                return c, jax.device_put(c * 2, row)

            what = f"over {spec}, {options or 'forward'},"
            last, each = jax.jit(lambda c, v, o=options, f=taking: lax.scan(f, c, v, **o))(start, far)
            on_each_device(last, host.sum(0), f"the sum of rows from the host {what}")
            on_each_device(each, 2 * right, f"the sums of rows from the host {what}")
            expect(each.sharding.memory_kind, "device", f"the memory of the sums {what}")
            both = jax.jit(
                lambda c, v, o=options, f=giving: lax.scan(f, c, v, **o), out_shardings=(row, there)
            )
            last, each = both(start, near)
            on_each_device(last, host.sum(0), f"the sum of rows that go to the host {what}")
            on_each_device(each, 2 * right, f"the rows that go to the host {what}")
            expect(each.sharding.memory_kind, "pinned_host", f"the memory of rows that go to the host {what}")
        weighted = jax.jit(
            jax.grad(lambda v, c, row=row: lax.scan(lambda c, r: (c + jax.device_put(r, row) * c[0, 0] * 0
            + jax.device_put(r, row) * 3, None), c, v)[0].sum())
        )  # fmt: skip
        on_each_device(
            weighted(far, start), np.full_like(host, 3), f"the slope by rows from the host over {spec}"
        )


def _programs_over_two_memories(line, grid):
    """Programs whose arguments, constants and results lie in two memories: the place of each, and no mixture."""
    memory_kinds(line)
    n = grid.size
    host = numbers(2 * n, 2 * n)
    for spec in (P("x", "y"), P(None, "x"), P()):
        here = NamedSharding(grid, spec)
        there = here.with_memory_kind("pinned_host")
        near, far = jax.device_put(host, here), jax.device_put(host + 1, there)

        def moved(a: Any, b: Any, here: Any = here, there: Any = there) -> Any:
            b = jax.device_put(b, here)
            return jax.device_put(a * b, there), a - b, (jax.device_put(b.sum(), there.update(spec=P())), b)

        def closed(a: Any, far: Any = far, here: Any = here) -> Any:
            return a * 2 - jax.device_put(far, here)

        what = f"of arrays over {spec}"
        run = jax.jit(moved)
        right = (host * (host + 1), np.full_like(host, -1), (host + 1).sum(dtype=np.float32), host + 1)
        kinds = ("pinned_host", "device", "pinned_host", "device")
        for name, call in (("", run), (" again", run), (" ahead", run.lower(near, far).compile())):
            for k, (found, answer, kind) in enumerate(
                zip(jax.tree.leaves(call(near, far)), right, kinds, strict=True)
            ):
                on_each_device(found, answer, f"result {k} {what}{name}")
                expect(found.sharding.memory_kind, kind, f"the memory of result {k} {what}{name}")
        nothing = jax.jit(lambda f=closed, v=near: f(v), out_shardings=there)()
        for found, kind in ((jax.jit(closed)(near), "device"), (nothing, "pinned_host")):
            on_each_device(found, host - 1, f"a difference with a constant of the host {what}")
            expect(found.sharding.memory_kind, kind, f"the memory of such a difference {what}")
        one, two = jax.jit(lambda s: (s, 7), out_shardings=(there.update(spec=P()),) * 2)(3)
        for found, number in ((one, 3), (two, 7)):
            on_each_device(found, np.int32(number), "a number that goes to the host")
            expect(found.sharding.memory_kind, "pinned_host", "the memory of a number that goes to the host")
        empty = jax.device_put(host[:, :0], NamedSharding(grid, P(), memory_kind="pinned_host"))
        back = jax.jit(lambda v: jax.device_put(v, NamedSharding(grid, P())))(empty)
        on_each_device(back, host[:, :0], "an array of no elements from the host")
        mixture = jax.jit(lambda a, b: a + b)
        words = "memory.space.*must be the same"
        refused(f"a sum of two memories {what}", words, lambda f=mixture, a=near, b=far: f(a, b))


def _donated_across_memories(line, grid):
    """A donated argument whose result lies in another memory is left as it was; in its own memory it is gone."""
    kinds = sorted(memory_kinds(line) & {"device", "pinned_host"})
    host = numbers(2 * line.size, 3)
    for spec, start, end in itertools.product((P("d"), P()), kinds, kinds):
        first = NamedSharding(line, spec, memory_kind=start)
        last = NamedSharding(line, spec, memory_kind=end)

        def call(v: Any, end: Any = last) -> Any:
            return jax.device_put(v, end)

        run = jax.jit(call, out_shardings=last, donate_argnums=0)
        for turn in range(2):
            x = jax.device_put(host + turn, first)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = jax.block_until_ready(run(x))
            what = f"an array over {spec} that is donated from {start} to {end}"
            on_each_device(found, host + turn, what)
            expect(found.sharding.memory_kind, end, f"the memory of {what}")
            if start != end:
                expect(x.is_deleted(), False, f"whether {what} is gone")
                on_each_device(x, host + turn, f"what is left of {what}")


def _host_parts_in_regions(line, grid):
    """Parts that run on the host in a region, in a batch, in rules of one's own, and over Explicit axes."""
    memory_kinds(line)
    n = line.size
    host = numbers(2 * n, 3)

    def plain(b: Any) -> Any:
        return on_host(lambda v: v * 2)(b * 3) - b

    @jax.custom_vjp
    def ruled(v: Any) -> Any:
        return v * 5

    def forward(v: Any) -> Any:
        return v * 5, on_host(lambda w: w + 1)(v)

    ruled.defvjp(forward, lambda kept, ct: (on_host(lambda a: a * 7)(kept * ct),))
    for options in ({}, {"check_vma": False}):

        def over(f: Any, out: Any = "d", options: Any = options) -> Any:
            return jax.jit(jax.shard_map(f, mesh=line, in_specs=P("d"), out_specs=P(out), **options))

        x = placed(line, host, "d")
        on_each_device(over(plain)(x), 5 * host, f"a part on the host in a region {options or ''}")
        total = over(lambda b: lax.psum(plain(b), "d"), None)(x)
        on_each_device(total, 5 * host.reshape(n, 2, 3).sum(0), f"a sum of parts on the host {options or ''}")
    for name, mesh in (("Auto", line), ("Explicit", explicit(line))):
        with jax.set_mesh(mesh):
            x = jax.device_put(host, P("d"))
            calls: dict[str, tuple[Any, np.ndarray]] = {
                "a part": (plain, 5 * host),
                "a batch": (jax.vmap(plain), 5 * host),
                "a batch along the second dimension": (jax.vmap(plain, 1, 1), 5 * host),
                "a rule": (jax.grad(lambda v: ruled(v).sum()), 7 * (host + 1)),
                "a rule in a batch": (jax.vmap(jax.grad(lambda v: ruled(v).sum())), 7 * (host + 1)),
            }
            for what, (call, right) in calls.items():
                found = jax.jit(call)(x)
                on_each_device(found, right, f"{what} on the host, over {name} axes")
                wrong(
                    name == "Explicit" and jax.typeof(found).sharding.spec[0] != "d",
                    f"{what} on the host has the type {jax.typeof(found)}",
                )


def _exported_derivatives_over_memories(line, grid):
    """Exported programs with arguments or results in the memory of the host, and the derivative that is stored with
    them. JAX breaks that of a result in the memory of the host."""
    from jax import export

    memory_kinds(line)
    host = numbers(2 * line.size, 3)
    here = NamedSharding(line, P("d"))
    there = here.with_memory_kind("pinned_host")
    near, far = jax.device_put(host, here), jax.device_put(host, there)
    up = jax.jit(lambda v: jax.device_put(v, here) * 3, in_shardings=there, out_shardings=here)
    down = jax.jit(lambda v: v * 3, in_shardings=here, out_shardings=there)
    made = {"up": export.export(up)(far), "down": export.export(down)(near)}
    for name, given, kind in (("up", far, "device"), ("down", near, "pinned_host")):
        stored = export.deserialize(made[name].serialize())
        for way, run in (("exported", made[name].call), ("stored", jax.jit(stored.call))):
            found = run(given)
            on_each_device(found, 3 * host, f"a program that moves an array {name}, {way}")
            expect(found.sharding.memory_kind, kind, f"the memory of an array that moves {name}, {way}")

    def slope(f: Any) -> Any:
        return jax.grad(lambda v: (jax.device_put(f(v), here) * host).sum())

    for name, f, given in (("up", up, far), ("down", down, near)):
        on_each_device(jax.jit(slope(f))(given), 3 * host, f"the slope of an array that moves {name}")
    for name, given in (("up", far), ("down", near)):
        stored = export.deserialize(made[name].serialize(vjp_order=1))
        found = jax.jit(slope(stored.call))(given)
        on_each_device(found, 3 * host, f"the slope of an array that moves {name} in an exported program")


def _slopes_through_results_on_the_host(line, grid):
    """The slope through a jitted function whose result goes to the memory of the host by its `out_shardings`, and comes
    back: in a program, and outside of any. JAX breaks the latter."""
    memory_kinds(line)
    host = numbers(2 * line.size, 3)
    here = NamedSharding(line, P("d"))
    x = jax.device_put(host, here)
    away = jax.jit(lambda v: v * v, out_shardings=here.with_memory_kind("pinned_host"))
    expect(away(x).sharding.memory_kind, "pinned_host", "the memory of a result that is asked for there")

    def back(v: Any) -> Any:
        return (jax.device_put(away(v), here) * 3).sum()

    for name, way in (("in jit", jax.jit), ("outside", lambda f: f)):
        on_each_device(way(back)(x), (3 * host * host).sum(dtype=np.float32), f"what comes back, {name}")
    for name, way in (("in jit", jax.jit), ("outside", lambda f: f)):
        on_each_device(way(jax.grad(back))(x), 6 * host, f"the slope of what comes back, {name}")


def _batches_of_results_on_the_host(line, grid):
    """A batch of a jitted function whose `out_shardings` are in host memory has its results there. JAX breaks
    it: the numbers are right, and lie in the memory of the device."""
    memory_kinds(line)
    host = numbers(3, 2 * line.size)
    there = NamedSharding(line, P("d"), memory_kind="pinned_host")
    away = jax.jit(lambda v: v * 2, out_shardings=there)
    one = away(host[0])
    on_each_device(one, 2 * host[0], "a result of the host")
    expect(one.sharding.memory_kind, "pinned_host", "the memory of a result of the host")
    found = jax.vmap(away)(host)
    right = NamedSharding(line, P(None, "d"))
    on_each_device(found, 2 * host, "a batch of results of the host")
    same = found.sharding.with_memory_kind("device").is_equivalent_to(right.with_memory_kind("device"), 2)
    expect(same, True, "whether a batch of results of the host is cut as they are")
    expect(found.sharding.memory_kind, "pinned_host", "the memory of a batch of results of the host")


RULES_OF_TESTED_MEMORIES: dict[str, Callable[..., None]] = {
    "rows_streamed_in_loops": _rows_streamed_in_loops,
    "programs_over_two_memories": _programs_over_two_memories,
    "donated_across_memories": _donated_across_memories,
    "exported_derivatives_over_memories": _exported_derivatives_over_memories,
    "slopes_through_results_on_the_host": _slopes_through_results_on_the_host,
    "batches_of_results_on_the_host": _batches_of_results_on_the_host,
    "host_parts_in_regions": _host_parts_in_regions,
}
