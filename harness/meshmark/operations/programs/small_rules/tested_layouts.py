# SPDX-License-Identifier: Apache-2.0
"""Small rules of layouts, by conditions that JAX's own tests name: cut arrays in every order of dimensions, as
arguments, in programs, read, told and donated.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.layout import Format, Layout, with_layout_constraint
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.tested_arrays import numbers

Orders = tuple[tuple[int, ...], ...]
ORDERS: Orders = tuple(itertools.permutations(range(3)))
"""Every order of three dimensions in memory. The last one is the reverse of how NumPy has them."""


def _order(found: Any) -> tuple[int, ...]:
    return tuple(found.format.layout.major_to_minor)


def _slope(host: np.ndarray) -> np.ndarray:
    """The slope of sum(v * v * v[::-1, :1]) by v."""
    slope = 2 * host * host[::-1, :1]
    slope[:, :1] += (host**2).sum(1, keepdims=True)[::-1]
    return slope


def _layouts_of_arguments(line, grid):
    """Arguments in a layout that jit asks for: arrays that lie so and NumPy's are taken, other arrays are refused; and
    a function without `in_shardings` takes one layout after the other."""
    n = line.size
    host, weights = numbers(2 * n, 3, 4), numbers(3, 4)
    place = NamedSharding(line, P("d"))
    anyhow = jax.jit(lambda v, w: (v * w, v.sum(2)))
    for spec in (P("d"), P()):
        place = NamedSharding(line, spec)
        for order in ((2, 1, 0), (1, 0, 2)):
            asked = Format(Layout(order), place)
            run = jax.jit(lambda v, w: (v * w, v[::-1] - v), in_shardings=(asked, None))
            there = jax.device_put(host, asked)
            for name, given in (("an array", there), ("NumPy", host), ("an array again", there)):
                what = f"{name} over {spec} in the order {order}"
                for found, right in zip(
                    run(given, weights), (host * weights, host[::-1] - host), strict=True
                ):
                    on_each_device(found, right, f"a result of {what}")
            other = jax.device_put(host, Format(Layout((0, 1, 2)), place))
            words = "Layout passed to jit does not match"
            refused(f"an array in another order than {order}", words, lambda r=run, o=other: r(o, weights))
    for _, order in itertools.product(range(2), ORDERS):
        there = jax.device_put(host, Format(Layout(order), place))
        for found, right in zip(anyhow(there, weights), (host * weights, host.sum(2)), strict=True):
            on_each_device(found, right, f"a result of arguments of every order, now {order},")


def _layouts_that_are_chosen(line, grid):
    """Layouts that the compiler chooses, of arguments of which some are not used: it tells one for each argument."""
    n = line.size
    place = NamedSharding(line, P("d"))
    host = numbers(2 * n, 3)
    rows = [host + k for k in range(5)]
    chosen = Format(Layout.AUTO, place)

    def call(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        return c * 2 - d, d.T

    free = Format(Layout.AUTO)
    right = (2 * rows[2] - rows[3], rows[3].T)
    for name, options in (
        ("arguments and results", {"in_shardings": chosen, "out_shardings": free}),
        ("arguments", {"in_shardings": (place, chosen, chosen, chosen, place)}),
        ("results", {"in_shardings": place, "out_shardings": free}),
    ):
        compiled = jax.jit(call, **options).lower(*rows).compile()
        told = compiled.input_formats[0]
        what = f"a program that chooses the layouts of {name}"
        expect(len(told), 5, f"for how many arguments {what} tells a layout")
        given = [
            jax.device_put(v, f if k in (2, 3) and f.layout is not None else place)
            for k, (v, f) in enumerate(zip(rows, told, strict=True))
        ]
        for k, (found, answer) in enumerate(zip(compiled(*given), right, strict=True)):
            on_each_device(found, answer, f"result {k} of {what}")
            on_each_device(jax.jit(call)(*given)[k], answer, f"result {k} of the arguments of {what}")
        for found, asked in zip(compiled(*given), compiled.output_formats, strict=True):
            expect(_order(found), tuple(asked.layout.major_to_minor), f"the layout of a result of {what}")


def _reads_of_other_layouts(line, grid):
    """Arrays of every order of dimensions, read by the host, by parts and rows, copied and moved: the same numbers."""
    n = grid.size
    host = numbers(2 * n, 2 * n, 3)
    turned = Mesh(grid.devices[::-1, ::-1], ("x", "y"))
    reads: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "device_get": (jax.device_get, host),
        "a row": (lambda x: x[1], host[1]),
        "steps": (lambda x: x[:, ::2], host[:, ::2]),
        "a copy": (lambda x: x.copy(), host),
        "a transpose": (lambda x: x.T, host.T),
        "a cast": (lambda x: x.astype(np.int32), host.astype(np.int32)),
        "a reshape": (lambda x: x.reshape(-1, 3), host.reshape(-1, 3)),
        "a move": (lambda x: jax.device_put(x, NamedSharding(grid, P(None, "x"))), host),
        "a gathering": (lambda x: jax.device_put(x, NamedSharding(grid, P())), host),
        "a move to another order of devices": (
            lambda x: jax.device_put(x, NamedSharding(turned, P("y", "x"))),
            host,
        ),
        "a move to one device": (lambda x: jax.device_put(x, grid.devices.ravel()[-1]), host),
    }
    for order in ORDERS[1::2]:
        for spec in (P("x", "y"), P(None, "x"), P()):
            place = NamedSharding(grid, spec)
            asked = Format(Layout(order), place)
            x = jax.device_put(host, asked)
            what = f"of an array over {spec} in the order {order}"
            expect(_order(x), order, f"the order {what}")
            on_each_device(x, host, f"the parts {what}")
            expect(np.asarray(x), host, f"what NumPy reads {what}")
            parts = [s.data for s in x.addressable_shards]
            joined = jax.make_array_from_single_device_arrays(host.shape, place, parts)
            on_each_device(joined, host, f"an array of the parts {what}")
            on_each_device(
                jax.device_put(x, Format(Layout((0, 1, 2)), place)), host, f"the usual order {what}"
            )
            if spec == P("x", "y"):
                for name, (call, right) in reads.items():
                    found = call(x)
                    if isinstance(found, jax.Array):
                        on_each_device(found, right, f"{name} {what}")
                    expect(np.asarray(found), right, f"{name} {what}")


def _layouts_in_transforms(line, grid):
    """Arguments of every order of dimensions in regions, collectives, batches, loops and gradients of one program."""
    n = line.size
    host = numbers(2 * n, 3, 4)
    middle = np.roll(host.reshape(n, 2, 3, 4), 1, 0).reshape(host.shape)

    def over(f: Callable[[Any], Any], out: Any = "d") -> Callable[[Any], Any]:
        return jax.shard_map(f, mesh=line, in_specs=P("d"), out_specs=P(out))

    ring = [(k, (k + 1) % n) for k in range(n)]
    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "a sum over devices": (
            over(lambda b: lax.psum(b, "d"), None),
            host.reshape(n, 2, 3, 4).sum(0),
        ),
        "a turn": (over(lambda b: lax.ppermute(b, "d", ring)), middle),
        "a region": (over(lambda b: b[:, ::-1] * 2), host[:, ::-1] * 2),
        "a batch along the last dimension": (
            jax.vmap(lambda v: v.sum(0) - v[0], 2, 1),
            host.sum(0) - host[0],
        ),
        "running sums": (lambda v: jnp.cumsum(v, 0), np.cumsum(host, 0)),
        "a loop": (
            lambda v: lax.scan(lambda c, r: (c + r, c), jnp.zeros((3, 4), v.dtype), v)[1],
            np.cumsum(host, 0) - host,
        ),
        "a sort": (lambda v: jnp.sort(v, 1), np.sort(host, 1)),
        "a reshape": (lambda v: v.reshape(2 * n, 12), host.reshape(2 * n, 12)),
        "a gradient": (jax.grad(lambda v: (v * v * v[::-1, :1]).sum()), _slope(host)),
        "a choice": (
            lambda v: lax.cond(v[0, 0, 0] < 0, lambda v: v[:, 1:], lambda v: -v[:, 1:], v),
            host[:, 1:] if host[0, 0, 0] < 0 else -host[:, 1:],
        ),
    }
    run = jax.jit(lambda v: [f(v) for f, _ in calls.values()])
    for order in ORDERS:
        x = jax.device_put(host, Format(Layout(order), NamedSharding(line, P("d"))))
        for found, (name, (_, right)) in zip(run(x), calls.items(), strict=True):
            on_each_device(found, right.astype(np.float32), f"{name} of an array in the order {order}")


def _layouts_asked_in_programs(line, grid):
    """Layouts that a program asks for in the middle and at its end: in a loop, a batch, a gradient and a region."""
    n = line.size
    host = numbers(2 * n, 2 * n)
    place = NamedSharding(line, P("d"))
    x = jax.device_put(host, place)
    for order in ((0, 1), (1, 0)):
        layout = Layout(order)

        def asked(v: Any, layout: Any = layout) -> Any:
            return lax.with_sharding_constraint(v, Format(layout, place))

        def held(v: Any, layout: Any = layout) -> Any:
            return with_layout_constraint(v, layout)

        what = f"in the order {order}"
        for name, hold in (("a constraint to a place", asked), ("a constraint", held)):
            region = jax.shard_map(
                lambda b, layout=layout: with_layout_constraint(b.T, layout).T * 2,
                mesh=line,
                in_specs=P("d"),
                out_specs=P("d"),
            )
            results = jax.jit(
                lambda v, hold=hold, region=region: (
                    hold(v.T) * 2 - v,
                    lax.fori_loop(0, 3, lambda i, c: hold(c.T) + c, v),
                    jax.grad(lambda w: (hold(w.T) * w * v).sum())(v),
                    jax.vmap(lambda r: with_layout_constraint(r[::-1], Layout((0,))) - r)(v),
                    region(v),
                )
            )(x)
            looped = host
            for _ in range(3):
                looped = looped.T + looped
            slope = host * host.T + (host * host).T
            right = (2 * host.T - host, looped, slope, host[:, ::-1] - host, 2 * host)
            kinds = ("a transpose", "a loop", "a gradient", "a batch", "a region")
            for found, answer, kind in zip(results, right, kinds, strict=True):
                on_each_device(found, answer, f"{kind} with {name} {what}")


def _layouts_asked_at_the_end(line, grid):
    """A constraint to a layout is the last function of a program: the result lies so, in place and in memory."""
    n = line.size
    host = numbers(2 * n, 2 * n, 3)
    place = NamedSharding(line, P("d"))
    x = jax.device_put(host, place)

    def ended(v: Any, order: Any) -> Any:
        return lax.with_sharding_constraint(v.swapaxes(0, 1), Format(Layout(order), place))

    run = jax.jit(ended, static_argnums=1)
    found = {order: run(x, order) for order in ORDERS[::2]}
    for order, last in found.items():
        what = f"a result that is constrained to the order {order}"
        on_each_device(last, host.swapaxes(0, 1), what)
        expect(last.sharding.is_equivalent_to(place, 3), True, f"whether {what} lies as asked")
    for order, last in found.items():
        expect(_order(last), order, f"the layout of a result that is constrained to the order {order}")


def _layouts_that_are_told(line, grid):
    """Arrays from callbacks in a layout, and what eval_shape, lower and compile tell of layouts."""
    n = line.size
    host = numbers(2 * n, 3)
    for spec, order in itertools.product((P("d"), P()), ((0, 1), (1, 0))):
        place = NamedSharding(line, spec)
        asked = Format(Layout(order), place)
        what = f"over {spec} in the order {order}"
        made = jax.make_array_from_callback(host.shape, asked, lambda index: host[index])
        on_each_device(made, host, f"an array of a callback {what}")
        expect(_order(made), order, f"the layout of an array of a callback {what}")
        expect(made.sharding, place, f"the place of an array of a callback {what}")
        run = jax.jit(lambda v: v * 3, in_shardings=asked, out_shardings=asked)
        told = jax.eval_shape(run, made)
        expect((told.format, told.sharding), (asked, place), f"what eval_shape tells of a result {what}")
        struct = jax.ShapeDtypeStruct(host.shape, host.dtype, sharding=asked)
        compiled = jax.jit(lambda v: v * 3, out_shardings=asked).lower(struct).compile()
        for side, seen in (("argument", compiled.input_formats[0][0]), ("result", compiled.output_formats)):
            expect(tuple(seen.layout.major_to_minor), order, f"the told layout of the {side} {what}")
        found = compiled(made)
        on_each_device(found, 3 * host, f"the result {what}")
        expect(_order(found), order, f"the layout of the result {what}")
    refused(
        "an array of a callback in a layout that is to be chosen",
        "AUTO",
        lambda: jax.make_array_from_callback(
            host.shape, Format(Layout.AUTO, NamedSharding(line, P("d"))), lambda index: host[index]
        ),
    )


def _layouts_of_donated(line, grid):
    """Donated arguments in a layout: gone where the result has it too, and right where it has another one."""
    n = line.size
    host = numbers(2 * n, 3, 4)
    place = NamedSharding(line, P("d"))
    for given, wanted in itertools.product(((0, 1, 2), (2, 1, 0), (1, 0, 2)), repeat=2):
        first, last = Format(Layout(given), place), Format(Layout(wanted), place)
        run = jax.jit(
            lambda v, w: (v + w, v * 2),
            in_shardings=(first, place),
            out_shardings=(last, place),
            donate_argnums=0,
        )
        what = f"donated in the order {given} for {wanted}"
        for turn in range(2):
            x, other = jax.device_put(host, first), jax.device_put(host + turn, place)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found, double = run(x, other)
            on_each_device(found, 2 * host + turn, f"a sum, {what}")
            on_each_device(double, 2 * host, f"the second result, {what}")
            expect(_order(found), wanted, f"the order of a sum, {what}")
            if given == wanted:
                expect(x.is_deleted(), True, f"whether an array is gone, {what}")
            elif not x.is_deleted():
                on_each_device(x, host, f"an array that is left, {what}")
            on_each_device(other, host + turn, f"what stands beside an array, {what}")


RULES_OF_TESTED_LAYOUTS: dict[str, Callable[..., None]] = {
    "layouts_of_arguments": _layouts_of_arguments,
    "layouts_that_are_chosen": _layouts_that_are_chosen,
    "reads_of_other_layouts": _reads_of_other_layouts,
    "layouts_in_transforms": _layouts_in_transforms,
    "layouts_asked_in_programs": _layouts_asked_in_programs,
    "layouts_asked_at_the_end": _layouts_asked_at_the_end,
    "layouts_that_are_told": _layouts_that_are_told,
    "layouts_of_donated": _layouts_of_donated,
}
