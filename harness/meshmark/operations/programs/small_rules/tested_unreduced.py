# SPDX-License-Identifier: Apache-2.0
"""Small rules of reduced and unreduced values that regions of shard_map make and take: gathers, products, sums, rules
of the user without cotangents, regions without check_vma, and one device.

Each has conditions that the tests of JAX name and that no other rule, form or operation has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, reshard
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.sharing import JIT, WAYS, numbers
from meshmark.operations.programs.small_rules.tested_regions import blocks_of
from meshmark.operations.programs.unreduced.sums import require_unreduced_types


def _ways(mesh: Mesh) -> dict[str, Callable[[Any], Any]]:
    """The ways to run a region of unreduced values. One device without jit is a rule of its own: JAX breaks it."""
    return WAYS if mesh.size > 1 else JIT


def typed_as(found: Any, right: np.ndarray, spec: P, what: str) -> None:
    """RuntimeError unless an array over Explicit axes has the type of the spec, and the written value on each device.

    The value of an unreduced array is its total."""
    expect(found.shape, right.shape, f"the shape of {what}")
    seen = jax.typeof(found).sharding.spec
    rest = (None,) * right.ndim
    entries = [(*s.partitions, *rest)[: right.ndim] for s in (seen, spec)]
    expect(entries[0], entries[1], f"the spec of {what}")
    for mark in ("unreduced", "reduced"):
        expect(set(getattr(seen, mark)), set(getattr(spec, mark)), f"the {mark} axes of {what}")
    if spec.unreduced:
        found, what = reshard(found, P()), f"the total of {what}"
    on_each_device(found, right, what)


def _gathered_as_reduced(line, grid):
    """all_gather with `to="reduced"` in a region: tiled or not, along each dimension, over one of two axes, as weights;
    and its gradient, which is scattered."""
    require_unreduced_types()
    m = explicit(line)
    n = m.size
    host = numbers(2 * n, 3)
    calls: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = {
        "tiled": ({"tiled": True}, lambda v: v),
        "tiled along columns": ({"tiled": True, "axis": 1}, lambda v: np.concatenate(np.split(v, n), 1)),
        "stacked": ({}, lambda v: blocks_of(v, n)),
        "stacked at dimension 1": ({"axis": 1}, lambda v: blocks_of(v, n).swapaxes(0, 1)),
    }
    with jax.set_mesh(m):
        x = jax.device_put(host, P("d"))
        for name, (options, written) in calls.items():
            region = jax.shard_map(
                lambda b, o=options: lax.all_gather(b, "d", to="reduced", **o), out_specs=P(reduced={"d"})
            )
            right = written(host)
            by = numbers(*right.shape, step=7)
            slope = np.zeros(host.size, np.float32)
            slope[written(np.arange(host.size).reshape(host.shape)).ravel()] = by.ravel()
            for way, run in _ways(m).items():
                what = f"a gather as reduced, {name}, {way},"
                typed_as(run(region)(x), right, P(reduced={"d"}), what)
                (back,) = jax.vjp(run(region), x)[1](reshard(jnp.asarray(by), P(unreduced={"d"})))
                typed_as(back, slope.reshape(host.shape), P("d"), f"the gradient of {what}")
        gather = jax.shard_map(
            lambda b: lax.all_gather(b, "d", tiled=True, to="reduced"), out_specs=P(reduced={"d"})
        )
        v, c = numbers(3 * n, 2 * n, step=3), numbers(3 * n, 3, step=7)
        rows, by = jax.device_put(v, P("d")), jax.device_put(c, P("d"))
        for way, run in _ways(m).items():
            loss = run(lambda w, v: (jnp.einsum("bi,io->bo", v, gather(w)) * by).sum())
            by_w, by_v = jax.grad(loss, argnums=(0, 1))(x, rows)
            typed_as(by_w, v.T @ c, P("d"), f"the gradient by gathered weights, {way},")
            typed_as(by_v, c @ host.T, P("d"), f"the gradient by what gathered weights multiply, {way},")
    m = explicit(grid)
    host = numbers(2 * m.shape["x"], 3 * m.shape["y"])
    by = numbers(*host.shape, step=7)
    with jax.set_mesh(m):
        x = jax.device_put(host, P("x", "y"))
        region = jax.shard_map(
            lambda b: lax.all_gather(b, "x", tiled=True, to="reduced"), out_specs=P(None, "y", reduced={"x"})
        )
        for way, run in _ways(m).items():
            what = f"a gather as reduced over one of two axes, {way},"
            typed_as(run(region)(x), host, P(None, "y", reduced={"x"}), what)
            along = reshard(jnp.asarray(by), P(None, "y", unreduced={"x"}))
            typed_as(jax.vjp(run(region), x)[1](along)[0], by, P("x", "y"), f"the gradient of {what}")


def _products_marked_unreduced(line, grid):
    """pcast of a product to unreduced in a region keeps each device's part; a sum and a scatter of it in other regions
    are its total; and the gradients of all three."""
    require_unreduced_types()
    if line.size == 1:
        return  # one device is a rule of its own: JAX breaks it
    m = explicit(grid)
    rows, inner = 2 * m.shape["x"], 2 * m.shape["y"]
    columns = 3 * m.shape["y"]
    a, b = numbers(rows, inner), numbers(inner, columns, step=7)
    by = numbers(rows, columns, step=3)
    parts = [p @ q for p, q in zip(np.split(a, m.shape["y"], 1), np.split(b, m.shape["y"]), strict=True)]
    with jax.set_mesh(m):
        x, w = jax.device_put(a, P("x", "y")), jax.device_put(b, P("y"))
        c = jax.device_put(by, P("x"))
        product = jax.shard_map(
            lambda x, w: lax.pcast(jnp.einsum("ab,bc->ac", x, w), "y", to="unreduced"),
            out_specs=P("x", unreduced={"y"}),
        )
        total = jax.shard_map(lambda u: lax.psum(u, "y"), out_specs=P("x"))
        scatter = jax.shard_map(
            lambda u: lax.psum_scatter(u, "y", scatter_dimension=1, tiled=True), out_specs=P("x", "y")
        )
        place = {d: at for at, d in np.ndenumerate(m.devices)}
        for way, run in _ways(m).items():
            what = f"a product that is marked as unreduced in a region, {way},"
            found = run(product)(x, w)
            typed_as(found, a @ b, P("x", unreduced={"y"}), what)
            for shard in found.addressable_shards:
                right = np.split(parts[place[shard.device][1]], m.shape["x"])[place[shard.device][0]]
                expect(np.asarray(shard.data), right, f"the part of {what} on {shard.device}")
            typed_as(run(total)(found), a @ b, P("x"), f"the sum in a region of {what}")
            typed_as(run(scatter)(found), a @ b, P("x", "y"), f"the scatter in a region of {what}")
            ends: dict[str, Callable[[Any], Any]] = {
                "a reshard": lambda u: reshard(u, P("x")),
                "a sum in a region": total,
                "a scatter in a region": lambda u: reshard(scatter(u), P("x")),
            }
            for name, end in ends.items():
                back = run(jax.grad(lambda x, w, end=end: (end(product(x, w)) * c).sum(), argnums=(0, 1)))(
                    x, w
                )
                typed_as(back[0], by @ b.T, P("x", "y"), f"the first gradient through {name} of {what}")
                typed_as(back[1], a.T @ by, P("y"), f"the second gradient through {name} of {what}")


def _unchecked_regions_of_unreduced(line, grid):
    """A region without check_vma keeps the bits of each device between whole, cut and unreduced arrays."""
    require_unreduced_types()
    m = explicit(line)
    n = m.size
    order = list(m.devices.flat)
    blocks = blocks_of(numbers(2 * n, 3), n)
    by = numbers(2, 3, step=7)

    def kept(a: Any, given: P, made: P, run: Callable[[Any], Any]) -> Any:
        return run(jax.shard_map(lambda b: b, in_specs=given, out_specs=made, check_vma=False))(a)

    def holds(found: Any, what: str) -> None:
        for shard in found.addressable_shards:
            expect(np.asarray(shard.data), blocks[order.index(shard.device)], f"{what}, on {shard.device},")

    with jax.set_mesh(m):
        for way, run in _ways(m).items():
            x = jax.device_put(blocks.reshape(2 * n, 3), P("d"))
            parts = kept(x, P("d"), P(unreduced={"d"}), run)
            what = f"an unchecked region that makes blocks unreduced, {way},"
            typed_as(parts, blocks.sum(0), P(unreduced={"d"}), what)
            holds(parts, what)
            again = kept(parts, P(unreduced={"d"}), P("d"), run)
            typed_as(
                again, blocks.reshape(2 * n, 3), P("d"), f"the blocks of an unreduced array again, {way},"
            )
            whole = jax.device_put(by, P())
            copies = kept(whole, P(), P(unreduced={"d"}), run)
            what = f"an unchecked region that makes copies unreduced, {way},"
            typed_as(copies, n * by, P(unreduced={"d"}), what)
            once = kept(copies, P(unreduced={"d"}), P(), run)
            typed_as(once, by, P(), f"a copy out of an unreduced array, {way},")


def _slopes_of_unchecked_unreduced_results(line, grid):
    """The gradient of a region whose result is unreduced is that of its total: where it is checked, and where it is
    not. JAX breaks the second."""
    require_unreduced_types()
    m = explicit(line)
    n = m.size
    host, by = numbers(2 * n, 3), 8 * numbers(2, 3, step=7)
    with jax.set_mesh(m):
        c = jax.device_put(by, P())
        given = {"cut": (jax.device_put(host, P("d")), P("d"), np.tile(by, (n, 1)))}
        given["whole"] = (jax.device_put(host[:2], P()), P(), n * by)
        for check in (True, False):
            for name, (x, spec, right) in given.items():

                def block(b: Any, check: bool = check, name: str = name) -> Any:
                    if not check:
                        return b
                    b = lax.pcast(b, "d", to="varying") if name == "whole" else b
                    return lax.pcast(b, "d", to="unreduced")

                region = jax.shard_map(block, in_specs=spec, out_specs=P(unreduced={"d"}), check_vma=check)
                for way, run in _ways(m).items():
                    back = run(jax.grad(lambda x, f=region: (reshard(f(x), P()) * c).sum()))(x)
                    what = f"a region that makes a {name} array unreduced, with check_vma={check}, {way},"
                    typed_as(back, right, spec, f"the gradient of {what}")


def _slopes_of_unchecked_unreduced_arguments(line, grid):
    """The gradient of a sum and of a scatter of an unreduced argument in a region counts each device once: where the
    region is checked, and where it is not. JAX breaks the second."""
    require_unreduced_types()
    m = explicit(line)
    host, by = numbers(2 * m.size, 2), numbers(2 * m.size, 2, step=7)
    calls: dict[str, tuple[Callable[[Any], Any], P]] = {
        "a sum": (lambda u: lax.psum(u, "d"), P()),
        "a scatter": (lambda u: lax.psum_scatter(u, "d", tiled=True), P("d")),
    }
    with jax.set_mesh(m):
        u = reshard(jnp.asarray(host), P(unreduced={"d"}))
        for check in (True, False):
            for name, (call, spec) in calls.items():
                c = jax.device_put(by, spec)
                region = jax.shard_map(call, in_specs=P(unreduced={"d"}), out_specs=spec, check_vma=check)
                for way, run in _ways(m).items():
                    what = f"{name} of an unreduced argument in a region with check_vma={check}, {way},"
                    typed_as(run(region)(u), host, spec, what)
                    back = run(jax.grad(lambda u, f=region, c=c: (f(u) * c).sum()))(u)
                    typed_as(back, by, P(reduced={"d"}), f"the gradient of {what}")


def _unreduced_in_regions_of_one_device(line, grid):
    """Regions that make, sum and scatter unreduced values over a mesh of one device, in jit and without; and gradients
    there. JAX breaks the last two."""
    require_unreduced_types()
    if line.size > 1 and not may_leave_out_devices():
        raise Missing("a program of one of several devices")
    m = explicit(Mesh(line.devices.ravel()[:1], ("d",)))
    host = numbers(4, 3)
    with jax.set_mesh(m):
        x, u = jax.device_put(host, P("d")), reshard(jnp.asarray(host), P(unreduced={"d"}))
        for way, run in reversed(WAYS.items()):
            made = jax.shard_map(
                lambda b: lax.pcast(b * 2, "d", to="unreduced"), out_specs=P(unreduced={"d"})
            )
            summed = jax.shard_map(lambda b: lax.psum(b * 3, "d"), out_specs=P())
            cut = jax.shard_map(lambda b: lax.psum_scatter(b, "d", tiled=True), out_specs=P("d"))
            typed_as(run(made)(x), 2 * host, P(unreduced={"d"}), f"an unreduced value of one device, {way},")
            typed_as(run(summed)(u), 3 * host, P(), f"the sum of an unreduced value of one device, {way},")
            typed_as(run(cut)(u), host, P("d"), f"the scatter of an unreduced value of one device, {way},")
        w = jax.device_put(host[:, :2], P(reduced={"d"}))
        varied = jax.jit(jax.shard_map(lambda b: lax.pcast(b, "d", to="varying") * 2, out_specs=P("d")))
        back = jax.jit(jax.grad(lambda w: varied(w).sum()))(w)
        typed_as(
            back,
            np.full((4, 2), 2, np.float32),
            P(unreduced={"d"}),
            "a gradient by a reduced value of one device",
        )


def _reduced_meets_varying_in_regions(line, grid):
    """Products and sums of a reduced and a varying value in a region, with a sum over the devices or without: the
    gradient by the reduced one is unreduced and counts each device once."""
    require_unreduced_types()
    if line.size == 1:
        return  # one device is a rule of its own: JAX breaks it
    m = explicit(line)
    n = m.size
    a, q = numbers(2 * n, 3), numbers(2, 3, step=7)
    by, one = numbers(2 * n, 3, step=3), numbers(2, 3, step=3)
    tiled = np.tile(q, (n, 1))
    calls: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray, np.ndarray, np.ndarray]] = {
        "a product": (lax.mul, a * tiled, by * tiled, by * a),
        "a sum": (lax.add, a + tiled, by, by),
        "a difference": (lambda x, y: y - x, tiled - a, -by, by),
    }
    with jax.set_mesh(m):
        x, y = jax.device_put(a, P("d")), jax.device_put(q, P(reduced={"d"}))
        c = jax.device_put(by, P("d"))
        for name, (call, right, by_x, by_y) in calls.items():
            blocks = jax.shard_map(call, out_specs=P("d"))
            summed = jax.shard_map(lambda x, y, f=call: lax.psum(f(x, y), "d"), out_specs=P())
            for way, run in _ways(m).items() if name == "a product" else JIT.items():
                what = f"{name} of a varying and a reduced value in a region, {way},"
                typed_as(run(blocks)(x, y), right, P("d"), what)
                back = run(jax.grad(lambda x, y, f=blocks: (f(x, y) * c).sum(), argnums=(0, 1)))(x, y)
                typed_as(back[0], by_x, P("d"), f"the gradient by the varying part of {what}")
                total = blocks_of(by_y, n).sum(0)
                typed_as(back[1], total, P(unreduced={"d"}), f"the gradient by the reduced part of {what}")
                typed_as(
                    run(summed)(x, y), blocks_of(right, n).sum(0), P(), f"the sum over devices of {what}"
                )
            back = jax.jit(jax.grad(lambda x, y, f=summed: (f(x, y) * one).sum(), argnums=(0, 1)))(x, y)
            if name == "a product":
                what = f"{name} of a varying and a reduced value, summed over devices"
                typed_as(
                    back[0], np.tile(q * one, (n, 1)), P("d"), f"the gradient by the varying part of {what}"
                )
                right = one * blocks_of(a, n).sum(0)
                typed_as(back[1], right, P(unreduced={"d"}), f"the gradient by the reduced part of {what}")
        varied = jax.shard_map(lambda y: lax.pcast(y, "d", to="varying"), out_specs=P("d"))
        marked = jax.shard_map(
            lambda y: lax.pcast(y, "d", to="reduced"), in_specs=P(), out_specs=P(reduced={"d"})
        )
        whole = jax.device_put(q, P())
        for way, run in _ways(m).items():
            what = f"a reduced value that is made varying, {way},"
            typed_as(run(varied)(y), tiled, P("d"), what)
            back = run(jax.grad(lambda y: (varied(y) * c).sum()))(y)
            typed_as(back, blocks_of(by, n).sum(0), P(unreduced={"d"}), f"the gradient of {what}")
            what = f"a whole value that is made reduced, {way},"
            typed_as(run(marked)(whole), q, P(reduced={"d"}), what)
            back = run(jax.grad(lambda y: (varied(marked(y)) * c).sum()))(whole)
            typed_as(back, blocks_of(by, n).sum(0), P(), f"the gradient of {what}")
    m = explicit(grid)
    rows, inner = 2 * m.shape["x"], 2 * m.shape["y"]
    a, b, by = numbers(rows, inner), numbers(inner, 3, step=7), numbers(rows, 3, step=3)
    with jax.set_mesh(m):
        x, w = jax.device_put(a, P("x", "y")), jax.device_put(b, P("y", reduced={"x"}))
        c = jax.device_put(by, P("x"))
        product = jax.shard_map(lambda x, w: lax.psum(jnp.dot(x, w), "y"), out_specs=P("x"))
        for way, run in _ways(m).items():
            what = f"a product by weights that are cut along one axis and reduced over the other, {way},"
            typed_as(run(product)(x, w), a @ b, P("x"), what)
            back = run(jax.grad(lambda x, w: (product(x, w) * c).sum(), argnums=(0, 1)))(x, w)
            typed_as(back[0], by @ b.T, P("x", "y"), f"the gradient by the rows of {what}")
            typed_as(back[1], a.T @ by, P("y", unreduced={"x"}), f"the gradient by the weights of {what}")


def _cotangents_that_are_none(line, grid):
    """A rule of custom_vjp that gives None in a region, checked or not: a zero of the argument's type, and the other
    argument's cotangent as it is."""
    require_unreduced_types()

    @jax.custom_vjp
    def kept(v: Any, w: Any) -> Any:
        return v + w * w

    kept.defvjp(lambda v, w: (v + w * w, w), lambda w, ct: (None, ct * w * 2))
    m = explicit(line)
    n = m.size
    a, b, by = numbers(2 * n, 3), numbers(2 * n, 3, step=7), numbers(2 * n, 3, step=3)
    with jax.set_mesh(m):
        c = jax.device_put(by, P("d"))
        x, y = jax.device_put(a, P("d")), jax.device_put(b, P("d"))
        for check in (True, False):
            region = jax.shard_map(kept, out_specs=P("d"), check_vma=check)
            for way, run in WAYS.items():
                what = f"of a rule with None in a region with check_vma={check}, {way},"
                back = run(jax.grad(lambda x, y, f=region: (f(x, y) * c).sum(), argnums=(0, 1)))(x, y)
                typed_as(back[0], 0 * a, P("d"), f"the zero {what}")
                typed_as(back[1], 2 * b * by, P("d"), f"the other cotangent {what}")
                whole = jax.device_put(b[:2], P())
                some = jax.shard_map(kept, in_specs=(P(), P("d")), out_specs=P("d"), check_vma=check)
                back = run(jax.grad(lambda x, y, f=some: (f(x, y) * c).sum(), argnums=(0, 1)))(whole, y)
                typed_as(back[0], 0 * b[:2], P(), f"the zero by a whole argument {what}")
                typed_as(back[1], 2 * b * by, P("d"), f"the cotangent beside a whole argument {what}")

    @jax.custom_vjp
    def alone(v: Any) -> Any:
        return v

    alone.defvjp(lambda v: (v, None), lambda _, ct: (None,))
    with jax.set_mesh(m):
        region = jax.shard_map(alone, out_specs=P(reduced={"d"}))
        x = jax.device_put(a, P(reduced={"d"}))
        along = reshard(jnp.asarray(by), P(unreduced={"d"}))
        (back,) = jax.jit(lambda x, ct: jax.vjp(region, x)[1](ct))(x, along)
        typed_as(back, 0 * a, P(unreduced={"d"}), "the zero of a rule with None of a reduced argument")


RULES_OF_TESTED_UNREDUCED: dict[str, Callable[..., None]] = {
    "gathered_as_reduced": _gathered_as_reduced,
    "products_marked_unreduced": _products_marked_unreduced,
    "unchecked_regions_of_unreduced": _unchecked_regions_of_unreduced,
    "slopes_of_unchecked_unreduced_results": _slopes_of_unchecked_unreduced_results,
    "slopes_of_unchecked_unreduced_arguments": _slopes_of_unchecked_unreduced_arguments,
    "unreduced_in_regions_of_one_device": _unreduced_in_regions_of_one_device,
    "reduced_meets_varying_in_regions": _reduced_meets_varying_in_regions,
    "cotangents_that_are_none": _cotangents_that_are_none,
}
