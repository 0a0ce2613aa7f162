# SPDX-License-Identifier: Apache-2.0
"""Small rules of unreduced and reduced arrays: how they are made, and what products, sums, regions, broadcasts and
gradients make of them.

They come from reports of JAX and from fixes in its history. The total of an unreduced array is its sum over the devices
of its unreduced axes, and a gradient by a reduced array is unreduced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.sharing import WAYS, numbers
from meshmark.operations.programs.unreduced.sums import require_unreduced_types

AXES = (("x",), ("y",), ("x", "y"))


def _spelled(axes: Iterable[str]) -> str:
    return " and ".join(axes)


def _is_counted_once(found: Any, right: np.ndarray, axes: Iterable[str], what: str) -> None:
    """RuntimeError unless an array is unreduced over the axes, and its total is the written answer on each device."""
    what = f"{what}, unreduced over {_spelled(axes)},"
    expect(set(jax.typeof(found).sharding.spec.unreduced), set(axes), f"the axes of {what}")
    total = reshard(found, P())
    seen, once = np.asarray(total).astype(np.float64), np.asarray(right).astype(np.float64)
    for times in range(2, 9):
        same = seen.shape == once.shape and np.any(once) and np.allclose(seen, times * once, 1e-5, 0)
        wrong(same, f"{what} is counted {times} times")
    on_each_device(total, right, f"the total of {what}")


def _has_the_total(found: Any, right: np.ndarray, what: str) -> None:
    """RuntimeError unless the array, put whole on each device, is the written answer."""
    on_each_device(reshard(found, P()), right, what)


def _casts_made_unreduced(line, grid):
    """An array made of another with an unreduced out_sharding counts it once: with its dtype, and with another one.

    jax@0422b1a7f7, and the casts beside it."""
    require_unreduced_types()
    m = explicit(grid)
    host = numbers(2 * m.size, 2)
    narrow: Any = jnp.bfloat16
    same: tuple[tuple[Any, Any], ...] = (
        (np.int32, None),
        (np.int32, np.int32),
        (narrow, None),
        (narrow, narrow),
    )
    casts: tuple[tuple[Any, Any], ...] = ((np.int32, np.float32), (np.int32, narrow), (np.float32, np.int32))
    with jax.set_mesh(m):
        for kind, to in (*same, *casts):
            for axes, start in ((("x",), P()), (("y",), P("x")), (("x", "y"), P()), (("x",), P("x"))):
                x = jax.device_put(host.astype(kind), start)
                for name, make in (("array", jnp.array), ("asarray", jnp.asarray)):
                    if to is None and make is jnp.asarray:
                        continue
                    for way, run in WAYS.items():

                        def call(v: Any, make: Any = make, to: Any = to, axes: Any = axes) -> Any:
                            return make(v, dtype=to, out_sharding=P(unreduced=set(axes)))

                        dtype = np.dtype(to or kind)
                        what = f"{name} of {np.dtype(kind).name} over {start} as {dtype}, {way}"
                        _is_counted_once(run(call)(x), host.astype(dtype), axes, what)


def _numbers_made_unreduced(line, grid):
    """Numbers made with an unreduced out_sharding are counted once, or the call is refused by name.

    jax@0422b1a7f7 (beside it)."""
    require_unreduced_types()
    m = explicit(grid)
    x = numbers(3, 2)
    calls: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
        "zeros": (lambda v, s: jnp.zeros((3, 2), out_sharding=s), np.zeros((3, 2), np.float32)),
        "zeros of int32": (lambda v, s: jnp.zeros(3, np.int32, out_sharding=s), np.zeros(3, np.int32)),
        "ones": (lambda v, s: jnp.ones((3, 2), out_sharding=s), np.ones((3, 2), np.float32)),
        "ones of int32": (lambda v, s: jnp.ones(3, np.int32, out_sharding=s), np.ones(3, np.int32)),
        "full": (lambda v, s: jnp.full(3, -5.0, out_sharding=s), np.full(3, -5, np.float32)),
        "arange": (lambda v, s: jnp.arange(4, out_sharding=s), np.arange(4, dtype=np.int32)),
        "iota": (
            lambda v, s: lax.broadcasted_iota(np.int32, (4, 1), 0, out_sharding=s),
            np.arange(4, dtype=np.int32)[:, None],
        ),
        "broadcast_to": (lambda v, s: jnp.broadcast_to(v, (2, 3, 2), out_sharding=s), np.stack([x, x])),
    }
    with jax.set_mesh(m):
        v = jax.device_put(x, P())
        for axes in AXES:
            turned = jnp.einsum("ab->ba", v, out_sharding=P(unreduced=set(axes)))
            _has_the_total(turned, x.T, f"an einsum of one array, unreduced over {_spelled(axes)},")
        for name, (call, right) in calls.items():
            for axes in AXES:
                for way, run in WAYS.items():
                    place = P(unreduced=set(axes))
                    try:
                        found = run(lambda v, call=call, place=place: call(v, place))(v)
                    except Exception as error:
                        by_name = "unreduced" in str(error) and "file a bug" not in str(error)
                        wrong(not by_name, f"{name}, {way}, is refused: {error}"[:300])
                    else:
                        _is_counted_once(found, right, axes, f"{name}, {way}")


def _reads_and_draws_made_unreduced(line, grid):
    """Rows read and numbers drawn with an unreduced out_sharding are the same in jit and without, and counted once.

    jax@1b3c5a72d3 (beside it)."""
    require_unreduced_types()
    m = explicit(grid)
    key = jax.random.key(7)
    host, rows = numbers(6, 2), np.array([4, 0, 5])
    draws: dict[str, Callable[..., Any]] = {
        "uniform": lambda **o: jax.random.uniform(key, (3, 2), minval=-1.0, **o),
        "bits": lambda **o: jax.random.bits(key, (3, 2), np.uint32, **o),
    }
    calls: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
        "at[].get": (lambda v, i, s: v.at[i].get(out_sharding=s), host[rows]),
    }
    for name, draw in draws.items():
        calls[name] = (lambda v, i, s, draw=draw: draw(out_sharding=s), np.asarray(draw()))
    with jax.set_mesh(m):
        v, i = jax.device_put(host, P()), jax.device_put(rows, P())
        for way, run in WAYS.items():
            for name, (call, right) in calls.items():
                for axes in AXES[::2]:
                    place = P(unreduced=set(axes))
                    found = run(lambda v, i, call=call, place=place: call(v, i, place))(v, i)
                    _is_counted_once(found, right, axes, f"{name}, {way}")


def _lists_made_unreduced(line, grid):
    """Lists, numbers and NumPy arrays, put to an unreduced place, are counted once.

    jax@0422b1a7f7 (beside it)."""
    require_unreduced_types()
    m = explicit(grid)
    host = numbers(2, 3)
    calls: dict[str, Callable[[Any, Any], Any]] = {
        "reshard of a jax.Array": lambda a, s: reshard(jnp.asarray(a), s),
        "device_put of a jax.Array": lambda a, s: jax.device_put(jnp.asarray(a), s),
        "array of a list": lambda a, s: jnp.array(a.tolist(), a.dtype, out_sharding=s),
        "array of NumPy": lambda a, s: jnp.array(a, out_sharding=s),
        "asarray of NumPy": lambda a, s: jnp.asarray(a, out_sharding=s),
        "device_put of NumPy": jax.device_put,
    }
    with jax.set_mesh(m):
        for name, call in calls.items():
            for kind in (np.float32, np.int32):
                for axes in AXES:
                    found = call(host.astype(kind), P(unreduced=set(axes)))
                    _is_counted_once(found, host.astype(kind), axes, f"{name} of {np.dtype(kind).name}")


def _micro_batches_of_unreduced_gradients(line, grid):
    """A vmap over small batches of the gradient by reduced weights: of a scan over layers, and of layers in a row."""
    require_unreduced_types()
    m = explicit(line)
    x, w = numbers(4, 2 * m.size, 3) % 4 - 1, numbers(2, 3, 3) % 3 - 1
    ones = np.ones_like(x)
    slopes = [np.einsum("bij,bik->bjk", x, ones @ w[1].T), np.einsum("bij,bik->bjk", x @ w[0], ones)]
    value, slope = (x @ w[0] @ w[1]).sum((1, 2)), np.stack(slopes, 1)

    def layer(c: Any, p: Any) -> Any:
        return jnp.dot(c, p, out_sharding=P("d"))

    programs: dict[str, Callable[[Any, Any], Any]] = {
        "a scan": lambda w, x: jnp.sum(lax.scan(lambda c, p: (layer(c, p), None), x, w)[0]),
        "layers in a row": lambda w, x: jnp.sum(layer(layer(x, w[0]), w[1])),
    }
    with jax.set_mesh(m):
        given = jax.device_put(w, P(reduced={"d"})), jax.device_put(x, P(None, "d"))
        for name, loss in programs.items():
            for way, run in WAYS.items():
                what = f"{name} in small batches, {way}"
                found, back = run(jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0)))(*given)
                _has_the_total(found, value, what)
                _is_counted_once(back, slope, ("d",), f"the gradient of {what}")


def _reshape_of_reduced(line, grid):
    """A shard_map that takes and gives a reduced value keeps it in another shape, and its gradient is unreduced."""
    require_unreduced_types()
    m = explicit(line)
    calls: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
        "reshape": (lambda v: jnp.reshape(v, (4, 2, 3)), lambda v: v.reshape(4, 2, 3)),
        "ravel": (jnp.ravel, np.ravel),
        "a transposition": (lambda v: v.T, np.transpose),
        "expand_dims": (lambda v: jnp.expand_dims(v, 1), lambda v: np.expand_dims(v, 1)),
    }
    host, by = numbers(8, 3), mixed((24,), 19, 7).astype(np.float32) - 8
    with jax.set_mesh(m):
        x = jax.device_put(host, P(reduced={"d"}))
        for name, (call, written) in calls.items():
            region = jax.shard_map(call, out_specs=P(reduced={"d"}))
            right = written(host)
            slope = np.zeros(24, np.float32)
            slope[written(np.arange(24).reshape(8, 3)).ravel()] = by
            for way, run in WAYS.items():
                what = f"{name} of a reduced value in a region, {way},"
                found = run(region)(x)
                expect(set(jax.typeof(found).sharding.spec.reduced), {"d"}, f"the reduced axes of {what}")
                on_each_device(found, right, what)
                along = reshard(jnp.asarray(by.reshape(right.shape)), P(unreduced={"d"}))
                (back,) = jax.vjp(run(region), x)[1](along)
                _is_counted_once(back, slope.reshape(8, 3), ("d",), f"the gradient of {what}")


def _product_of_unreduced_in_region(line, grid):
    """A product of an unreduced and a reduced value in a shard_map, and its gradient by each of them.

    jax@7bc2afa6e5."""
    require_unreduced_types()
    m = explicit(line)
    for kind in (np.float32, np.float16):
        p, q = numbers(8).astype(kind), (mixed((8,), 7, 3) - 3).astype(kind)
        with jax.set_mesh(m):
            a = reshard(jnp.asarray(p), P(unreduced={"d"}))
            b = jax.device_put(q, P(reduced={"d"}))
            region = jax.shard_map(lambda x, y: (x * y).sum(), out_specs=P(unreduced={"d"}))
            squares = jax.shard_map(lambda x: (x * x).sum(), out_specs=P(reduced={"d"}))
            ways = WAYS if kind is np.float32 else {"in jit": jax.jit}
            for way, run in ways.items():
                what = f"a product of {np.dtype(kind).name} in a region, {way}"
                _is_counted_once(run(region)(a, b), (p * q).sum(), ("d",), what)
                by_a, by_b = run(jax.grad(lambda x, y, f=region: reshard(f(x, y), P()), argnums=(0, 1)))(a, b)
                _has_the_total(by_a, q, f"the gradient by the unreduced argument of {what}")
                _is_counted_once(by_b, p, ("d",), f"the gradient by the reduced argument of {what}")
                back = run(jax.grad(squares))(b)
                _is_counted_once(back, 2 * q, ("d",), f"the gradient of squares of {what}")


def _broadcast_of_reduced(line, grid):
    """A reduced array, repeated along a dimension that is cut over the same axis, and its gradient.

    jax@aa9e476a3f."""
    require_unreduced_types()
    m = explicit(line)
    n = 2 * m.size
    x = numbers(5)
    first, last = mixed((n, 5), 13, 3).astype(np.float32) - 5, mixed((5, n), 13, 3).astype(np.float32) - 5
    calls: tuple[tuple[str, Callable[[Any], Any], np.ndarray, np.ndarray, Any], ...] = (
        (
            "broadcast_in_dim into rows",
            lambda v: lax.broadcast_in_dim(v, (n, 5), broadcast_dimensions=[1], out_sharding=P("d", None)),
            np.tile(x, (n, 1)),
            first,
            P("d", None),
        ),
        (
            "broadcast_in_dim into columns",
            lambda v: lax.broadcast_in_dim(v, (5, n), broadcast_dimensions=[0], out_sharding=P(None, "d")),
            np.tile(x[:, None], (1, n)),
            last,
            P(None, "d"),
        ),
        (
            "broadcast_to",
            lambda v: jnp.broadcast_to(v, (n, 5), out_sharding=P("d", None)),
            np.tile(x, (n, 1)),
            first,
            P("d", None),
        ),
    )
    with jax.set_mesh(m):
        for name, call, right, by, place in calls:
            for kind in (np.float32, np.float16):
                a = jax.device_put(x.astype(kind), P(reduced={"d"}))
                weights = jax.device_put(by.astype(kind), place)
                for way, run in WAYS.items() if kind is np.float32 else (("in jit", jax.jit),):
                    what = f"{name} of a reduced array of {np.dtype(kind).name}, {way}"
                    found = run(call)(a)
                    expect(jax.typeof(found).sharding.spec, place, f"the type of {what}")
                    on_each_device(found, right.astype(kind), what)
                    back = run(jax.grad(lambda v, f=call, w=weights: (f(v) * w).sum()))(a)
                    slope = by.sum(by.shape.index(n)).astype(kind)
                    _is_counted_once(back, slope, ("d",), f"the gradient of {what}")


def _zeros_of_unused_reduced(line, grid):
    """The pullback of an argument that is not used gives zeros, which are unreduced where the argument is reduced.

    jax@12462e0520."""
    require_unreduced_types()
    m = explicit(line)
    for kind in (np.float32, np.float16):
        host, by = numbers(8).astype(kind), (mixed((8,), 7, 3) - 3).astype(kind)
        with jax.set_mesh(m):
            a = jax.device_put(host, P(reduced={"d"}))
            along = reshard(jnp.asarray(by), P(unreduced={"d"}))
            for which in (0, 1):

                def call(*given: Any, which: int = which) -> Any:
                    return given[which]

                for way, run in WAYS.items():
                    found, back = jax.vjp(run(call), a, a)
                    on_each_device(found, host, f"argument {which}, {way}")
                    for k, slope in enumerate(back(along)):
                        right = by if k == which else np.zeros_like(by)
                        what = f"the pullback by argument {k} of argument {which}, {way}"
                        _is_counted_once(slope, right, ("d",), what)


def _einsum_of_three_unreduced(line, grid):
    """An einsum of three arrays over cut dimensions, whose result is left unreduced over one axis and over two.

    jax#31929."""
    require_unreduced_types()
    m = explicit(grid)
    rows, columns = (2 * size for size in m.devices.shape)
    a, b, c = numbers(rows) % 5 - 2, numbers(rows, columns) % 4 - 1, numbers(rows) % 3 - 2
    with jax.set_mesh(m):
        for names, chosen, place, right in (
            ("d,dh,d->h", (0, 1, 2), P("y", unreduced={"x"}), (a * c) @ b),
            ("d,d,dh->h", (0, 2, 1), P("y", unreduced={"x"}), (a * c) @ b),
            ("d,d,d->", (0, 2, 0), P(unreduced={"x"}), (a * a * c).sum()),
            ("dh,dh,dh->", (1, 1, 1), P(unreduced={"x", "y"}), (b * b * b).sum()),
            ("d,dh,dh->", (0, 1, 1), P(unreduced={"x", "y"}), (a @ (b * b)).sum()),
        ):
            for kind in (np.float32, np.int32):
                arrays = [
                    jax.device_put(array.astype(kind), spec)
                    for array, spec in ((a, P("x")), (b, P("x", "y")), (c, P("x")))
                ]
                for way, run in WAYS.items() if kind is np.float32 else (("in jit", jax.jit),):
                    call = run(lambda *v, e=names, s=place: jnp.einsum(e, *v, out_sharding=s))
                    found = call(*(arrays[k] for k in chosen))
                    what = f"einsum {names} of {np.dtype(kind).name}, {way}"
                    _is_counted_once(found, right.astype(kind), sorted(place.unreduced), what)


def _sums_unreduced(line, grid):
    """Sums over cut dimensions that are left unreduced over each set of axes, and nothing is sent for them.

    jax#31889."""
    require_unreduced_types()
    m = explicit(grid)
    rows, columns = (2 * size for size in m.devices.shape)
    for kind in (np.float32, np.int32):
        host = (numbers(rows, columns, 3) % 7 - 3).astype(kind)
        with jax.set_mesh(m):
            x = jax.device_put(host, P("x", "y", None))
            calls: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[tuple[str, ...], ...]]] = {
                "einsum over x": (lambda v, s: jnp.einsum("abc->bc", v, out_sharding=s), (0,), (("x",),)),
                "einsum over both": (lambda v, s: jnp.einsum("abc->c", v, out_sharding=s), (0, 1), AXES),
                "reduce_sum over y": (
                    lambda v, s: lax.reduce_sum(v, axes=(1,), out_sharding=s),
                    (1,),
                    (("y",),),
                ),
                "reduce_sum over both": (
                    lambda v, s: lax.reduce_sum(v, axes=(0, 1), out_sharding=s),
                    (0, 1),
                    AXES,
                ),
            }
            for name, (call, summed, several) in calls.items():
                for axes in several:
                    left = {(0,): ("y", None), (1,): ("x", None), (0, 1): (None,)}[summed]
                    place = P(*left, unreduced=set(axes))
                    ways = WAYS if kind is np.float32 else {"in jit": jax.jit}
                    for way, run in ways.items():
                        found = run(lambda v, call=call, place=place: call(v, place))(x)
                        _is_counted_once(
                            found, host.sum(summed, dtype=kind), axes, f"{name} of {kind.__name__}, {way}"
                        )
                    if len(axes) == len(summed):
                        text = (
                            jax.jit(lambda v, call=call, place=place: call(v, place))
                            .lower(x)
                            .compile()
                            .as_text()
                        )
                        wrong(
                            "all-reduce" in text, f"{name}, unreduced over {_spelled(axes)}, sends something"
                        )


RULES_OF_UNREDUCED: dict[str, Callable[..., None]] = {
    "casts_made_unreduced": _casts_made_unreduced,
    "numbers_made_unreduced": _numbers_made_unreduced,
    "reads_and_draws_made_unreduced": _reads_and_draws_made_unreduced,
    "lists_made_unreduced": _lists_made_unreduced,
    "micro_batches_of_unreduced_gradients": _micro_batches_of_unreduced_gradients,
    "reshape_of_reduced": _reshape_of_reduced,
    "product_of_unreduced_in_region": _product_of_unreduced_in_region,
    "broadcast_of_reduced": _broadcast_of_reduced,
    "zeros_of_unused_reduced": _zeros_of_unused_reduced,
    "einsum_of_three_unreduced": _einsum_of_three_unreduced,
    "sums_unreduced": _sums_unreduced,
}
