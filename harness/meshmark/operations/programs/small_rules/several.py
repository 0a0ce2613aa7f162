# SPDX-License-Identifier: Apache-2.0
"""Small rules of calls with several outputs, closures or leaves: each of them is treated as its own name or place
says, and not as the first one is."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices, refused

POLICIES = (
    *("everything_saveable", "nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable"),
    *("checkpoint_dots", "checkpoint_dots_with_no_batch_dims"),
)
"""The policies of `jax.checkpoint` that need no names."""


def _slopes_of_closures(line, grid):
    """What a checkpointed function closes over has its gradient, with every policy and without one."""
    host = mixed((2 * line.size, 3), 7, 5).astype(np.float32)
    kernel = mixed((3, 3), 5, 3).astype(np.float32)
    x, k = placed(line, host, "d"), placed(line, kernel)
    ones = np.ones_like(host)
    right = 2 * ones @ kernel.T, host.T @ (2 * ones)
    policies = [
        getattr(jax.checkpoint_policies, name) for name in POLICIES if hasattr(jax.checkpoint_policies, name)
    ]
    for policy in (None, *policies):
        options = {} if policy is None else {"policy": policy}

        def total(v, w, options=options):
            return jax.checkpoint(lambda u: (u @ w) * 2, **options)(v).sum()

        for way, slopes in (
            ("compiled", jax.jit(jax.grad(total, (0, 1)))),
            ("eager", jax.grad(total, (0, 1))),
        ):
            name = getattr(policy, "__name__", "no policy")
            for what, found, own in zip(
                ("its argument", "what it closes over"), slopes(x, k), right, strict=True
            ):
                expect(np.asarray(found), own, f"the slope by {what}, with {name}, {way}")


def _every_output_is_checked(line, grid):
    """An output that differs between devices may not be called the same on all of them, wherever it stands."""
    if line.size == 1:
        return
    x = placed(line, np.arange(2 * line.size, dtype=np.float32), "d")
    words = "out_specs"
    for wrong_at in range(3):
        specs = tuple(P() if k == wrong_at else P("d") for k in range(3))
        call = jax.shard_map(lambda v: (v, v + 1, v + 2), mesh=line, in_specs=P("d"), out_specs=specs)
        refused(f"output {wrong_at} of three", words, lambda call=call: jax.jit(call)(x))
        named = jax.shard_map(
            lambda v: {"a": v, "b": (v + 1, v + 2)},
            mesh=line,
            in_specs=P("d"),
            out_specs={"a": specs[0], "b": specs[1:]},
        )
        refused(f"output {wrong_at} of a tree", words, lambda call=named: jax.jit(call)(x))


def _trees_of_shardings(line, grid):
    """Shardings of arguments and results in a tree belong to the leaves of their names, in any order of the names."""
    host = np.arange(4 * grid.size**2, dtype=np.float32).reshape(2 * grid.size, 2 * grid.size)
    at = {name: NamedSharding(grid, P(*spec)) for name, spec in (("w", ("x", "y")), ("b", ("y",)), ("k", ()))}
    nested = {"z": (at["w"], {"q": at["k"], "c": at["b"]}), "a": at["b"]}

    def lies(found, place, what):
        expect(np.asarray(found), host, what)
        expect(
            found.sharding.is_equivalent_to(place, 2), True, f"the place of {what} ({found.sharding.spec})"
        )

    found = jax.jit(lambda v: {"b": v, "k": v, "w": v}, out_shardings=at)(host)
    for name, place in at.items():
        lies(found[name], place, f"result {name}")
    deep = jax.jit(lambda v: {"a": v, "z": (v, {"c": v, "q": v})}, out_shardings=nested)(host)
    for what, one, place in (
        ("a", deep["a"], at["b"]),
        ("z 0", deep["z"][0], at["w"]),
        ("z c", deep["z"][1]["c"], at["b"]),
        ("z q", deep["z"][1]["q"], at["k"]),
    ):
        lies(one, place, f"result {what} of a tree")
    same = jax.jit(lambda tree: tree, in_shardings=(at,), out_shardings=at)({"k": host, "w": host, "b": host})
    for name, place in at.items():
        lies(same[name], place, f"argument {name}")
    put = jax.device_put({"k": host, "w": host, "b": host}, at)
    for name, place in at.items():
        lies(put[name], place, f"{name}, put")


def _choices_of_two_types_refused(line, grid):
    """Over Explicit axes two arrays that are sharded in two ways are not put together in silence, by any function."""
    if min(grid.devices.shape) == 1:
        return
    typed = explicit(grid)
    n = 2 * grid.size
    host = np.arange(n * n, dtype=np.float32).reshape(n, n)
    functions: dict[str, Callable[..., jax.Array]] = {
        "jnp.where": lambda a, b: jnp.where(a > 3, a, b),
        "jnp.where of a truth": lambda a, b: jnp.where(True, a, b),
        "lax.select": lambda a, b: lax.select(a > 3, a, b),
        "jnp.add": jnp.add,
        "jnp.maximum": jnp.maximum,
        "jnp.arctan2": jnp.arctan2,
        "jnp.clip": lambda a, b: jnp.clip(a, b),
        "jnp.equal": jnp.equal,
    }
    with jax.set_mesh(typed):
        a, b = placed(typed, host, "x"), placed(typed, host, "y")
        for name, function in functions.items():
            for way, call in (("", function), ("jitted ", jax.jit(function))):
                refused(f"{way}{name} of P('x') and P('y')", "[Ss]harding|spec", lambda c=call: c(a, b))


def _weights_of_exponentials(line, grid):
    """An element of a sum of exponentials whose weight is zero, or that a mask leaves out, counts as nothing, however
    large it is. The elements that count are alone in their row, so the results are exact."""
    n = 2 * line.size
    host = np.full((n, 4), 300, np.float32)
    column = np.arange(n) % 4
    right = (np.arange(n) % 7 - 3).astype(np.float32)
    host[np.arange(n), column] = right
    host[host == 300] = np.resize([300, -np.inf, 88, 1e30], np.count_nonzero(host == 300))
    only = np.zeros((n, 4), bool)
    only[np.arange(n), column] = True
    x, b, m = placed(line, host, "d"), placed(line, only.astype(np.float32), "d"), placed(line, only, "d")
    calls = {
        "nn.logsumexp with weights": lambda v, w, t: jax.nn.logsumexp(v, axis=1, b=w),
        "nn.logsumexp with weights, and its sign": lambda v, w, t: jax.nn.logsumexp(
            v, axis=1, b=-w, return_sign=True
        )[0],
        "nn.logsumexp where": lambda v, w, t: jax.nn.logsumexp(v, axis=1, where=t),
        "scipy.special.logsumexp with weights": lambda v, w, t: jax.scipy.special.logsumexp(v, axis=1, b=w),
        "a kept dimension": lambda v, w, t: jax.nn.logsumexp(v, axis=1, b=w, keepdims=True)[:, 0],
    }
    found = jax.jit(lambda *given: {name: call(*given) for name, call in calls.items()})(x, b, m)
    for name in calls:
        expect(np.asarray(found[name]), right, name)
    nothing = jax.jit(lambda v, w: jax.nn.logsumexp(v, axis=1, b=0 * w))(x, b)
    expect(np.asarray(nothing), np.full(n, -np.inf, np.float32), "nn.logsumexp of weights that are all zero")


def _swaps_of_equal_axes(line, grid):
    """Two axes of one size that change places move the shards: by reshard, by device_put and by a constraint."""
    if line.size < 4 or not may_leave_out_devices():
        return
    square = jax.sharding.Mesh(line.devices.ravel()[:4].reshape(2, 2), ("x", "y"))
    typed = explicit(square)
    host = np.arange(64, dtype=np.float32).reshape(8, 8)
    deep = np.arange(128, dtype=np.float32).reshape(4, 8, 4)
    for array, old, new in (
        (host, ("x", "y"), ("y", "x")),
        (host, ("y", "x"), ("x", "y")),
        (deep, ("x", None, "y"), ("y", None, "x")),
        (deep, (None, "y", "x"), (None, "x", "y")),
        (host, (("x", "y"), None), (("y", "x"), None)),
    ):
        what = f"{P(*old)} to {P(*new)}"
        there = NamedSharding(square, P(*new))
        moved = {
            "device_put": jax.device_put(placed(square, array, *old), there),
            "a constraint": jax.jit(lambda v, s=there: lax.with_sharding_constraint(v, s))(
                placed(square, array, *old)
            ),
        }
        with jax.set_mesh(typed):
            given = placed(typed, array, *old)
            moved["reshard"] = jax.sharding.reshard(given, P(*new))
            moved["a jitted reshard"] = jax.jit(lambda v, s=new: jax.sharding.reshard(v, P(*s)))(given)
        for name, found in moved.items():
            expect(found.sharding.is_equivalent_to(there, array.ndim), True, f"the place of {what} by {name}")
            for shard in found.addressable_shards:
                expect(np.asarray(shard.data), array[shard.index], f"{what} by {name}, on {shard.device}")


RULES_OF_SEVERAL: dict[str, Callable[..., None]] = {
    "slopes_of_closures": _slopes_of_closures,
    "every_output_is_checked": _every_output_is_checked,
    "trees_of_shardings": _trees_of_shardings,
    "choices_of_two_types_refused": _choices_of_two_types_refused,
    "weights_of_exponentials": _weights_of_exponentials,
    "swaps_of_equal_axes": _swaps_of_equal_axes,
}
