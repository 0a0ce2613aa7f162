# SPDX-License-Identifier: Apache-2.0
"""Small rules of derivatives of regions of shard_map: integers beside floats, what is saved and what is computed again,
linear maps and their transposes.

Each has conditions that the tests of JAX name and that no other rule, form or operation has.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.sharing import JIT, WAYS, numbers
from meshmark.operations.programs.small_rules.tested_regions import blocks_of


def _cotangents_of_integers_through_regions(line, grid):
    """Gradients with allow_int through regions in a loop, with integers beside floats: the types are float0."""
    n = line.size
    host = numbers(4, 2 * n)
    count = (mixed((4, 2 * n), 7, 3) - 3).astype(np.int32)
    by = numbers(4, 2 * n, step=7)

    @jax.custom_vjp
    def scaled(x: Any, k: Any) -> Any:
        return x * k.astype(x.dtype)

    scaled.defvjp(
        lambda x, k: (x * k.astype(x.dtype), k),
        lambda k, ct: (ct * k.astype(ct.dtype), np.zeros(k.shape, jax.dtypes.float0)),
    )
    for name, call in (("a product", lambda x, k: x * k.astype(x.dtype)), ("a rule of the user", scaled)):
        for check in (True, False):

            def both(x: Any, k: Any, call: Any = call) -> Any:
                return call(x, k), k * 2

            region = jax.shard_map(both, mesh=line, in_specs=P("d"), out_specs=P("d"), check_vma=check)

            def loss(x: Any, k: Any, region: Any = region) -> Any:
                y, k = lax.map(lambda each: region(*each), (x, k))
                return (y * by + k.astype(y.dtype)).sum()

            x, k = placed(line, host, None, "d"), placed(line, count, None, "d")
            for way, run in WAYS.items():
                what = f"{name} in a region with check_vma={check}, in a loop, {way},"
                slopes = run(jax.grad(loss, argnums=(0, 1), allow_int=True))(x, k)
                on_each_device(
                    slopes[0], by * count.astype(np.float32), f"the gradient by the floats of {what}"
                )
                expect(
                    slopes[1].dtype, jax.dtypes.float0, f"the dtype of the gradient by the integers of {what}"
                )
                expect(slopes[1].shape, count.shape, f"the shape of the gradient by the integers of {what}")


def _forwarded_residuals(line, grid):
    """What the derivative of a region saves may be an argument or a result, in any order: regions that return some of
    their arguments, and squares and products of others, whole and cut, with and without remat."""
    n = line.size
    hosts = [numbers(2 * n, step=step) for step in (5, 7, 3)]
    whole = [numbers(2, step=step) for step in (3, 5, 7)]
    weights = [mixed((2 * n,), 5, k + 2).astype(np.float32) - 2 for k in range(3)]
    saved = jax.checkpoint_policies.everything_saveable
    wraps: dict[str, Callable[[Any], Any]] = {
        "": lambda f: f,
        "under remat": jax.checkpoint,
        "under remat that saves all": lambda f: jax.checkpoint(f, policy=saved),
    }
    specs = (P("d"), P(), P("d"))
    given = [placed(line, hosts[0], "d"), placed(line, whole[1]), placed(line, hosts[2], "d")]
    full = [hosts[0], np.tile(whole[1], n), hosts[2]]
    for k, order in enumerate(permutations(range(3))):
        out = list(permutations(range(3)))[(2 * k + 1) % 6]

        def block(*args: Any, order: Any = order, out: Any = out) -> Any:
            u, v, w = (args[i] for i in order)
            results = u * 1, v * v, v * w
            return [results[i] + (u if i == 2 else 0) for i in out] + [args[0]]

        region = jax.shard_map(block, mesh=line, in_specs=specs, out_specs=P("d"), check_vma=k % 2 == 0)
        u, v, w = (full[i] for i in order)
        right = [(u, v * v, v * w + u)[i] for i in out] + [full[0]]
        by: list[np.ndarray] = [np.zeros(2 * n, np.float32)] * 3
        for weight, i in zip(weights, out, strict=True):
            by[i] = weight
        slopes = dict(zip(order, (by[0] + by[2], 2 * v * by[1] + w * by[2], v * by[2]), strict=True))
        slopes[0] = slopes[0] + weights[1]
        slopes[1] = slopes[1].reshape(n, 2).sum(0)
        for name, wrap in wraps.items() if k == 1 else list(wraps.items())[k % 3 :: 3]:
            for way, run in WAYS.items() if k == 4 else JIT.items():
                what = f"a region that takes {order} and gives {out}, {name}, {way},"
                call = wrap(region)
                if k < 2:
                    for found, answer in zip(run(call)(*given), right, strict=True):
                        on_each_device(found, answer, what)

                def loss(*a: Any, call: Any = call) -> Any:
                    found = call(*a)
                    return sum((f * b).sum() for f, b in zip(found, [*weights, weights[1]], strict=True))

                back = run(jax.grad(loss, argnums=(0, 1, 2)))(*given)
                for i, slope in enumerate(back):
                    on_each_device(slope, slopes[i], f"the gradient by argument {i} of {what}")


def _computed_again_around_regions(line, grid):
    """remat around and inside of regions, with residuals without dimensions and sums over devices, in a batch that is
    cut, and with each policy: gradients and second derivatives."""
    n = line.size
    host, by = numbers(2 * n), numbers(2 * n, step=7)
    sums = blocks_of(host, n).sum(1)
    policies = jax.checkpoint_policies
    kinds: dict[str, dict[str, Any]] = {
        "": {},
        "that saves all": {"policy": policies.everything_saveable},
        "that saves nothing": {"policy": policies.nothing_saveable},
        "that saves products": {"policy": policies.dots_saveable},
    }

    def squared_sum(b: Any) -> Any:  # the sum is a residual without dimensions
        return b.sum() * b.sum() * b

    def over_all(b: Any) -> Any:
        total = lax.psum(b * b, "d")
        return total * b

    each = np.repeat(sums, 2)
    right = each**2 * host
    slope = each**2 * by + np.repeat((2 * sums * (blocks_of(host * by, n).sum(1))), 2)
    squares = np.tile(blocks_of(host**2, n).sum(0), n)
    crossed = np.tile(blocks_of(host * by, n).sum(0), n)
    answers: dict[str, tuple[Callable[[Any], Any], np.ndarray, np.ndarray]] = {
        "a squared sum": (squared_sum, right, slope),
        "a sum over devices": (over_all, squares * host, squares * by + 2 * host * crossed),
    }
    for name, (block, value, back) in answers.items():
        for kind, options in kinds.items():
            around = jax.checkpoint(
                jax.shard_map(block, mesh=line, in_specs=P("d"), out_specs=P("d")), **options
            )
            inside = jax.shard_map(
                jax.checkpoint(block, **options), mesh=line, in_specs=P("d"), out_specs=P("d")
            )
            for where, region in (("around", around), ("inside of", inside))[: 1 if options else 2]:
                what = f"{name} with remat {kind} {where} a region"
                x = placed(line, host, "d")
                found, pull = jax.jit(lambda v, f=region: jax.vjp(f, v))(x)
                on_each_device(found, value.astype(np.float32), what)
                on_each_device(jax.jit(pull)(by)[0], back.astype(np.float32), f"the gradient of {what}")
    rows = np.stack([host[: 2 * grid.shape["y"]] + k for k in range(2 * grid.shape["x"])])
    to = numbers(*rows.shape, step=7)
    x = placed(grid, rows, "x", "y")
    for name, wrap in (
        ("", lambda f: f),
        ("remat of ", lambda f: jax.checkpoint(f, policy=lambda *_, **__: True)),
    ):
        region = wrap(jax.shard_map(lambda b: b * b * b.sum(), mesh=grid, in_specs=P("y"), out_specs=P("y")))
        parts = rows.reshape(len(rows), grid.shape["y"], 2)
        right = (2 * parts * parts.sum(-1, keepdims=True) * to.reshape(parts.shape)) + (
            parts**2 * to.reshape(parts.shape)
        ).sum(-1, keepdims=True)
        for options in ({"spmd_axis_name": "x"}, {}):
            batch = jax.vmap(jax.grad(lambda v, c, f=region: (f(v) * c).sum()), **options)
            for way, run in JIT.items() if name else WAYS.items():
                what = f"the gradients of {name}a region in a batch with {options}, {way}"
                on_each_device(run(batch)(x, to), right.reshape(rows.shape), what)


def _linear_maps_in_regions(line, grid):
    """linearize, linear_transpose, jacrev and jacfwd inside of a region, of values that vary and that do not."""
    n = line.size
    host, along = numbers(2 * n), numbers(2 * n, step=7)
    point = np.array([3, -2], np.float32)

    def f(v: Any) -> Any:
        return (v * v).sum() + v[0] * v[1]

    slope = 2 * point + point[::-1]
    tangents = along.reshape(n, 2) @ slope

    def back_and_forth(p: Any, t: Any) -> Any:
        p = lax.pcast(p, "d", to="varying")
        _, forth = jax.linearize(f, p)
        back = jax.linear_transpose(forth, p)
        return back(forth(t))[0]

    def unmarked(p: Any, t: Any) -> Any:
        _, forth = jax.linearize(f, p)
        return jax.linear_transpose(forth, p)(forth(t))[0]

    each = host.reshape(n, 2)
    second = np.array([[2, 1], [1, 2]], np.float32)
    for way, run in WAYS.items():

        def over(block: Any, *specs: Any) -> Any:
            return jax.shard_map(block, mesh=line, in_specs=specs, out_specs=P("d"))

        found = run(over(back_and_forth, P(), P("d")))(point, placed(line, along, "d"))
        right = (tangents[:, None] * slope).reshape(2 * n)
        on_each_device(found, right, f"a linear map and its transpose in a region, {way}")
        x = placed(line, host, "d")
        for name, call in () if way == "without jit" else (("jacrev", jax.jacrev), ("jacfwd", jax.jacfwd)):
            found = run(over(lambda b, d=call: d(f)(b), P("d")))(x)
            on_each_device(found, (2 * each + each[:, ::-1]).reshape(2 * n), f"{name} in a region, {way}")
            found = run(over(lambda b, d=call: d(jax.grad(f))(b), P("d")))(x)
            on_each_device(found, np.tile(second, (n, 1)), f"{name} of a gradient in a region, {way}")
            found = run(over(lambda b, p, d=call: d(lambda q: q * q * b)(p), P("d"), P()))(x, point)
            right = np.zeros((n, 2, 2), np.float32)
            right[:, [0, 1], [0, 1]] = 2 * point * each
            if name == "jacfwd":  # backward a derivative by what all devices share is a sum over them
                on_each_device(
                    found, right.reshape(2 * n, 2), f"{name} by a whole argument in a region, {way}"
                )
    call = jax.shard_map(unmarked, mesh=line, in_specs=(P(), P("d")), out_specs=P("d"))
    what = "a transpose along a varying cotangent of a map at a value that does not vary"
    refused(what, "pcast|varying", lambda: call(point, placed(line, along, "d")))


RULES_OF_TESTED_SLOPES: dict[str, Callable[..., None]] = {
    "cotangents_of_integers_through_regions": _cotangents_of_integers_through_regions,
    "forwarded_residuals": _forwarded_residuals,
    "computed_again_around_regions": _computed_again_around_regions,
    "linear_maps_in_regions": _linear_maps_in_regions,
}
