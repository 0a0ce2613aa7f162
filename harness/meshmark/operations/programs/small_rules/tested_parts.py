# SPDX-License-Identifier: Apache-2.0
"""Small rules of unreduced and reduced arrays, of conditions that JAX's own tests name: how they come about, from what
they are made, which of them are largest and not sums, and what is refused.

What an unreduced array holds is added here by NumPy, from the parts of the devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.small_rules.arrays import cube
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.sharing import WAYS, numbers
from meshmark.operations.programs.small_rules.typed import lies, whole_spec
from meshmark.operations.programs.unreduced.sums import require_unreduced_types


def _parts(found: Any, axes: Iterable[str]) -> dict[tuple[Any, ...], list[np.ndarray]]:
    """The parts of an array on the devices of its unreduced axes, by the place of the devices on the other axes."""
    mesh = found.sharding.mesh
    held = {s.device: np.asarray(s.data) for s in found.addressable_shards}
    apart = [mesh.axis_names.index(a) for a in axes]
    parts: dict[tuple[Any, ...], list[np.ndarray]] = {}
    for place, device in np.ndenumerate(mesh.devices):
        there = tuple(k for n, k in enumerate(place) if n not in apart)
        parts.setdefault(there, []).append(held[device])
    return parts


def _adds_up(found: Any, right: Any, spec: Any, what: str, fold: Any = np.add) -> None:
    """RuntimeError unless the type has the spec and its unreduced axes, the parts of the devices add up to the written
    answer at each place of the other axes, and so does a reshard."""
    kind, rank = jax.typeof(found).sharding.spec, np.ndim(right)
    expect(whole_spec(kind, rank), whole_spec(spec, rank), f"the spec of {what}")
    expect(set(kind.unreduced), set(spec.unreduced), f"the unreduced axes of {what}")
    cut = P(*whole_spec(spec, rank))
    indices = NamedSharding(found.sharding.mesh, cut).devices_indices_map(np.shape(right))
    apart = [found.sharding.mesh.axis_names.index(a) for a in spec.unreduced]
    for place, parts in _parts(found, spec.unreduced).items():
        full = list(place)
        for n in sorted(apart):
            full.insert(n, 0)
        device = found.sharding.mesh.devices[tuple(full)]
        total = fold.reduce(np.stack(parts), axis=0, dtype=np.asarray(right).dtype)
        expect(total, np.asarray(right)[indices[device]], f"what the devices hold of {what}, at {place},")
    on_each_device(reshard(found, cut), np.asarray(right), f"{what}, put together,")


def _reduced_lies(found: Any, right: np.ndarray, spec: Any, what: str) -> None:
    """RuntimeError unless an array has the reduced type and each device has its part of the written answer."""
    expect(set(jax.typeof(found).sharding.spec.reduced), set(spec.reduced), f"the reduced axes of {what}")
    lies(found, right, whole_spec(spec, np.ndim(right)), what)


TO_UNREDUCED: tuple[tuple[Any, Any], ...] = (
    (P("x", "y"), P(None, None, unreduced={"x", "y"})),
    (P("x", "y"), P("x", None, unreduced={"y"})),
    (P(("x", "y"), None), P("x", None, unreduced={"y"})),
    (P(None, ("y", "x")), P(None, "y", unreduced={"x"})),
    (P("y", None), P(None, None, unreduced={"x", "y"})),
    (P(), P("x", None, unreduced={"y"})),
)
"""Where an array lies, and how it becomes unreduced."""

MOVES: dict[str, Callable[[Any, Any], Any]] = {
    "reshard": reshard,
    "reshard in jit": lambda v, s: jax.jit(lambda v: reshard(v, s))(v),
    "a jit of the identity": lambda v, s: jax.jit(lambda v: v, out_shardings=s)(v),
    "device_put": jax.device_put,
}


def _check_moves(mesh: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
    """RuntimeError for the first move of an array from one place to an unreduced one, or back, that is wrong."""
    require_unreduced_types()
    m = explicit(mesh)
    host = numbers(m.size, m.size)
    with jax.set_mesh(m):
        for start, end in pairs:
            x = jax.device_put(host, start)
            for name, move in MOVES.items():
                left = f"{P(*whole_spec(end, 2))}, unreduced over {' and '.join(sorted(end.unreduced))}"
                what = f"an array by {start} that {name} makes {left}, over {dict(m.shape)}"
                found = move(x, end)
                _adds_up(found, host, end, what)
                if name == "reshard":
                    lies(reshard(found, start), host, whole_spec(start, 2), f"{what}, and back")


def _ways_to_unreduced(line, grid):
    """Whole and cut arrays over two and three axes that become unreduced over some: by reshard, device_put and jit."""
    _check_moves(grid, TO_UNREDUCED)
    a, b, c = cube(line).axis_names
    three = (
        (P((a, c), b), P(a, None, unreduced={b, c})),
        (P(c, b), P(None, None, unreduced={a, b, c})),
        (P(a, None), P(a, None, unreduced={c})),
    )
    _check_moves(cube(line), three)


def _dimensions_over_two_axes_to_unreduced(line, grid):
    """A dimension that is cut over two axes, in each order, and becomes unreduced over both of them."""
    both = P(None, None, unreduced={"x", "y"})
    _check_moves(grid, ((P("x", "y"), both), (P("y", "x"), both), (P(), both)))
    for start in (P(("x", "y"), None), P(None, ("x", "y")), P(("y", "x"), None), P(None, ("y", "x"))):
        _check_moves(grid, ((start, both),))


def _counts_left_unreduced(line, grid):
    """segment_sum and bincount of cut arrays with an unreduced place: each device has the counts of its own part."""
    require_unreduced_types()
    m = explicit(line)
    n = m.size
    host = numbers(3 * n, 2)
    where = (np.arange(3 * n) * 5 % 7 % 4).astype(np.int32)
    hot = (where[:, None] == np.arange(4)).astype(np.float32)
    sums = hot.T @ host
    counts = hot.sum(0).astype(np.int32)
    place = P(unreduced={"d"})
    with jax.set_mesh(m):
        x, i = jax.device_put(host, P("d")), jax.device_put(where, P("d"))
        for way, run in WAYS.items():

            def summed(x: Any, i: Any, s: Any = place) -> Any:
                return jax.ops.segment_sum(x, i, num_segments=4, out_sharding=s)

            def counted(i: Any, s: Any = place) -> Any:
                return jnp.bincount(i, length=4, out_sharding=s)

            found, kept = run(summed)(x, i), run(counted)(i)
            _adds_up(found, sums, P(None, None, unreduced={"d"}), f"segment_sum, {way}")
            _adds_up(kept, counts, P(None, unreduced={"d"}), f"bincount, {way}")
            own_parts = zip(*(_parts(v, "d")[()] for v in (found, kept)), strict=True)
            for k, (part, ones) in enumerate(own_parts if way == "in jit" else ()):
                own = slice(3 * k, 3 * k + 3)
                expect(part, hot[own].T @ host[own], f"the sums of device {k}, {way}")
                expect(ones, hot[own].sum(0).astype(np.int32), f"the counts of device {k}, {way}")
            lies(run(lambda x, i: summed(x, i, P()))(x, i), sums, (), f"segment_sum into P(), {way}")
            lies(run(lambda i: counted(i, P()))(i), counts, (), f"bincount into P(), {way}")
        largest = np.stack([host[where == k].max(0, initial=-np.inf) for k in range(4)])
        found = jax.jit(lambda x, i: jax.ops.segment_max(x, i, num_segments=4, out_sharding=P()))(x, i)
        lies(found, largest, (), "segment_max into P()")
        if n > 1:
            words = "fully replicated or fully unreduced"
            refused("bincount into a cut result", words, lambda: counted(i, P("d")))
            refused(
                "segment_max that is left unreduced",
                "NotImplementedError|unreduced",
                lambda: jax.ops.segment_max(x, i, num_segments=4, out_sharding=place),
            )


def _kinds() -> Any:
    """The kinds of unreduced arrays. Raises Missing if the release has sums alone."""
    require_unreduced_types()
    kinds = getattr(jax.sharding, "UnreducedKind", None)
    if kinds is None:
        raise Missing("this release has unreduced sums, and no other kinds")
    return kinds


def _extremes_left_unreduced(line, grid):
    """The largest and least of what each device holds, left unreduced: put together, in part, cut, and in a region."""
    kinds = _kinds()
    m = explicit(grid)
    r, c = grid.devices.shape
    for dtype in (np.float32, np.int32):
        host = (numbers(2 * r, 2 * c, 2 * m.size) % 19 - 9).astype(dtype)
        for kind, call, fold, collective in (
            (kinds.max, lax.reduce_max, np.maximum, lax.pmax),
            (kinds.min, lax.reduce_min, np.minimum, lax.pmin),
        ):
            both = {"unreduced": {"x", "y"}, "unreduced_kind": kind}
            one = {"unreduced": {"x"}, "unreduced_kind": kind}
            left = P(None, **one)
            with jax.set_mesh(m):
                x = jax.device_put(host, P("x", "y"))
                for axes, spec in (
                    ((0,), P("y", None, **one)),
                    ((0, 1), P(None, **one)),
                    ((0, 1), P(None, **both)),
                ):
                    left_by = " and ".join(sorted(spec.unreduced))
                    what = f"{call.__name__} of {np.dtype(dtype).name} over {axes}, unreduced over {left_by},"
                    right = fold.reduce(host, axes)
                    found = jax.jit(lambda v, a=axes, s=spec, call=call: call(v, axes=a, out_sharding=s))(x)
                    expect(jax.typeof(found).sharding.spec.unreduced_kind, kind, f"the kind of {what}")
                    _adds_up(found, right, spec, what, fold)
                    if set(spec.unreduced) == {"x", "y"}:
                        less = jax.jit(lambda v, s=left: reshard(v, s))(found)
                        _adds_up(less, right, left, f"{what}, in part,", fold)
                        cut = jax.jit(lambda v: reshard(v, P(("x", "y"))))(found)
                        lies(cut, right, (("x", "y"),), f"{what}, cut,")
                        region = jax.shard_map(lambda v, f=collective: f(v, ("x", "y")), out_specs=P())
                        lies(jax.jit(region)(found), right, (), f"{what}, put together in a region,")
                if r > 1:
                    whole = jax.device_put(host, P())
                    refused(
                        f"a whole array that becomes {kind}",
                        "cannot be more unreduced",
                        lambda v=whole, k=one: reshard(v, P(**k)),
                    )
                    partly = jax.jit(
                        lambda v, k=one, call=call: call(v, axes=(0, 1), out_sharding=P(None, **k))
                    )(x)
                    refused(
                        f"an extreme of {kind} that becomes a sum",
                        "unreduced_kind",
                        lambda v=partly: reshard(v, P(unreduced={"x"})),
                    )
                    adding = jax.shard_map(lambda v: lax.psum(v, "x"), out_specs=P())
                    refused(f"a psum of {kind}", "unreduced", lambda v=partly, f=adding: jax.jit(f)(v))


def _quotients_and_choices_of_reduced(line, grid):
    """Quotients, choices, roundings and checkpoints of reduced and unreduced arrays, and their gradients' types."""
    require_unreduced_types()
    m = explicit(line)
    host, low = numbers(8) * 4, np.array([1, -2, 4, -1, 2, 1, -4, 2], np.float32)
    mask = np.arange(8) % 3 > 0
    reduced, unreduced = P(None, reduced={"d"}), P(None, unreduced={"d"})
    with jax.set_mesh(m):
        r, s = (jax.device_put(v, P(reduced={"d"})) for v in (host, low))
        u, w = (reshard(jnp.asarray(v), P(unreduced={"d"})) for v in (host, low))
        k = jax.device_put(mask, P(reduced={"d"}))
        try:
            jax.eval_shape(jnp.divide, u, s)
        except NotImplementedError as error:
            raise Missing("this release has no quotients of unreduced arrays") from error
        zero, ones = np.zeros(8, np.float32), np.ones(8, np.float32)
        sums: tuple[tuple[str, Any, tuple[Any, ...], np.ndarray, tuple[np.ndarray, ...]], ...] = (
            ("a quotient", lambda a, b: a / b, (r, s), host / low, (1 / low,)),
            ("a product with a number", lambda a, b: a * 3 + b, (r, s), 3 * host + low, (3 * ones, ones)),
            (
                "a choice",
                lambda a, b: lax.select(k, a, b),
                (r, s),
                np.where(mask, host, low),
                (mask.astype(np.float32), (~mask).astype(np.float32)),
            ),
            ("reduce_precision", lambda a, b: lax.reduce_precision(a, 8, 7), (r, s), host, (ones, zero)),
            ("a checkpoint", jax.checkpoint(lambda a, b: a * b), (r, s), host * low, (low, host)),
            (
                "a part",
                lambda a, b: a[2:6],
                (r, s),
                host[2:6],
                (np.repeat(np.float32([0, 1, 0]), [2, 4, 2]), zero),
            ),
        )
        for name, call, given, right, slopes in sums:
            for way, run in WAYS.items():
                _reduced_lies(run(call)(*given), right, reduced, f"{name} of reduced arrays, {way}")
            back = jax.jit(jax.grad(lambda *v, f=call: f(*v).sum(), argnums=tuple(range(len(slopes)))))(
                *given
            )
            for n, (found, slope) in enumerate(zip(back, slopes, strict=True)):
                _adds_up(found, slope, unreduced, f"the gradient by argument {n} of {name} of reduced arrays")
        for way, run in WAYS.items():
            _adds_up(
                run(lambda a, b: a / b)(u, s),
                host / low,
                unreduced,
                f"an unreduced array by a reduced one, {way}",
            )
            chosen = run(lambda a, b: lax.select(k, a, b))(u, w)
            _adds_up(chosen, np.where(mask, host, low), unreduced, f"a choice of unreduced arrays, {way}")
        back = jax.jit(jax.grad(lambda a, b: (a / b).sum()))(u, s)
        _reduced_lies(back, 1 / low, reduced, "the gradient of a quotient by what is unreduced")
        backs = jax.jit(jax.grad(lambda a, b: lax.select(k, a, b).sum(), argnums=(0, 1)))(u, w)
        for found, slope in zip(backs, (mask, ~mask), strict=True):
            _reduced_lies(
                found, slope.astype(np.float32), reduced, "the gradient of a choice of unreduced arrays"
            )
        refused("a quotient by an unreduced array", "unreduced", lambda: jax.jit(jnp.divide)(u, u))
        cut = jax.device_put(numbers(8 * m.size), P("d"))
        top = int(numbers(8 * m.size).argmax())
        largest = jax.jit(lambda v: jnp.max(reshard(v, P(reduced={"d"})), axis=0))
        _reduced_lies(
            largest(cut), numbers(8 * m.size).max(), P(reduced={"d"}), "the largest of a reduced array"
        )
        tied = (numbers(8 * m.size) == numbers(8 * m.size)[top]).astype(np.float32)
        lies(jax.jit(jax.grad(largest))(cut), tied / tied.sum(), ("d",), "the gradient of the largest")


def _reads_and_writes_of_reduced(line, grid):
    """Rows that are read of a reduced array and added to an unreduced one: the gradients have the other type."""
    require_unreduced_types()
    m = explicit(line)
    host, more = numbers(6, 2), numbers(3, 2) % 5 - 2
    rows = np.array([4, 1, 4], np.int32)
    by = numbers(3, 2)[::-1].copy()
    into, back = np.zeros((6, 2), np.float32), np.zeros((6, 2), np.float32)
    np.add.at(into, rows, more)
    np.add.at(back, rows, by)
    reduced, unreduced = P(None, None, reduced={"d"}), P(None, None, unreduced={"d"})
    with jax.set_mesh(m):
        table, i = jax.device_put(host, P(reduced={"d"})), jax.device_put(rows, P())
        along = reshard(jnp.asarray(by), P(unreduced={"d"}))
        for way, run in WAYS.items():
            u, v = (reshard(jnp.asarray(a), P(unreduced={"d"})) for a in (host, more))
            added, pull = jax.vjp(run(lambda a, b: a.at[i].add(b)), u, v)
            _adds_up(added, host + into, unreduced, f"rows added to an unreduced array, {way}")
            weights = jax.device_put(host[::-1].copy(), P(reduced={"d"}))
            by_old, by_new = pull(weights)
            _reduced_lies(by_old, host[::-1], reduced, f"the gradient by what rows are added to, {way}")
            _reduced_lies(by_new, host[::-1][rows], reduced, f"the gradient by rows that are added, {way}")
        for way, run in WAYS.items():
            read = run(lambda t: t.at[i].get())
            found, pull = jax.vjp(read, table)
            _reduced_lies(found, host[rows], reduced, f"rows of a reduced array, {way}")
            _adds_up(pull(along)[0], back, unreduced, f"the gradient of rows of a reduced array, {way}")


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class _Pair:
    """Two arrays that a loop carries."""

    first: Any
    second: Any


def _reduced_carries(line, grid):
    """Reduced arrays in a loop's carry, in branches and in rules of the user, whose gradients are added at the end."""
    require_unreduced_types()
    m = explicit(line)
    n = 2 * m.size
    host, other = numbers(n), numbers(n)[::-1] % 5 - 2
    by = (mixed_weights := numbers(n) % 7 - 3)
    reduced, unreduced = P(reduced={"d"}), P(None, unreduced={"d"})
    with jax.set_mesh(m):
        start = _Pair(*(jax.device_put(v, reduced) for v in (host, other)))
        k, w = jax.device_put(other, P("d")), jax.device_put(by, reduced)

        def looped(p: Any, start: Any, k: Any) -> Any:
            def body(_: Any, c: Any) -> Any:
                return lax.cond(p, lambda: _Pair(reshard(k, reduced), c.first), lambda: c)

            return lax.fori_loop(0, 3, body, start)

        zero = np.zeros_like(host)
        for taken in (True, False):
            found = jax.jit(looped)(jnp.array(taken), start, k)
            end = (other, other) if taken else (host, other)
            for name, right in zip(("first", "second"), end, strict=True):
                _reduced_lies(
                    getattr(found, name), right, P(None, reduced={"d"}), f"the {name} of a carry, {taken}"
                )
            slopes = jax.jit(jax.grad(lambda p, s, k: (looped(p, s, k).first * w).sum(), argnums=(1, 2)))(
                jnp.array(taken), start, k
            )
            _adds_up(
                slopes[0].first, zero if taken else by, unreduced, f"the gradient by a reduced carry, {taken}"
            )
            _adds_up(slopes[0].second, zero, unreduced, f"the gradient by another, {taken}")
            lies(
                slopes[1],
                mixed_weights if taken else zero,
                ("d",),
                f"the gradient by what is gathered, {taken}",
            )

        @jax.custom_vjp
        def product(x: Any, w: Any) -> Any:
            return jnp.dot(x, w)

        def backward(kept: Any, g: Any) -> Any:
            x, w = kept
            return jnp.dot(g, w.T), jnp.dot(x.T, g, out_sharding=P(unreduced={"d"}))

        product.defvjp(lambda x, w: (product(x, w), (x, w)), backward)
        batches, weights = numbers(3, n, 2) % 5 - 2, numbers(2, 2) % 3 - 1
        xs = jax.device_put(batches, P(None, "d"))
        right = weights - np.einsum("kbi,bj->ij", batches, np.ones((n, 2), np.float32))
        for name, layer in (("a rule of the user", product), ("dot", jnp.dot)):

            def step(w: Any, xs: Any, layer: Any = layer) -> Any:
                def add(total: Any, x: Any) -> Any:
                    return total + jax.grad(lambda w: layer(x, w).sum())(w), None

                total = reshard(jnp.zeros_like(w), P(unreduced={"d"}))
                total, _ = lax.scan(add, total, xs)
                return reshard(w, P()) - reshard(total, P())

            run = jax.jit(step, donate_argnums=0)
            given = jax.device_put(weights, reduced)
            text = run.lower(given, xs).compile().as_text()
            sent = text.count("all-reduce(") + text.count("all-reduce-start(")
            wrong(m.size > 1 and sent > 1, f"a step by {name} adds {sent} times over the devices")
            lies(run(given, xs), right.astype(np.float32), (), f"a step by {name}")


def _sums_of_unreduced(line, grid):
    """Sums of what is unreduced already, with each place for the result, and products of more dimensions."""
    require_unreduced_types()
    m = explicit(grid)
    r, c = grid.devices.shape
    a, b = numbers(2 * r, 2 * c) % 5 - 2, numbers(2 * c, 3) % 7 - 3
    product = a @ b
    with jax.set_mesh(m):
        x, y = jax.device_put(a, P("x", "y")), jax.device_put(b, P("y"))
        for way, run in WAYS.items():
            own = run(lambda x, y: jnp.dot(x, y, out_sharding=P("x", unreduced={"y"})))(x, y)
            _adds_up(own, product, P("x", None, unreduced={"y"}), f"a product, {way}")
            for axes, place in (
                ((0,), None),
                ((0,), P(None, unreduced={"x", "y"})),
                ((0, 1), None),
                ((0, 1), P(unreduced={"x", "y"})),
                ((1,), None),
            ):
                found = run(lambda v, a=axes, s=place: lax.reduce_sum(v, axes=a, out_sharding=s))(own)
                kept = P("x", unreduced={"y"}) if axes == (1,) else P(unreduced={"y"})
                asked = "no place" if place is None else "x and y" if len(place.unreduced) == 2 else "y"
                what = f"a sum over {axes} of a product, unreduced by {asked}, {way}"
                _adds_up(found, product.sum(axes), kept if place is None else place, what)
        devices = np.array(m.devices)
        other = Mesh(devices, ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
        place = NamedSharding(other, P("x", unreduced={"y"}))
        _adds_up(jax.device_put(own, place), product, place.spec, "a product that is put where it lies")


def _products_of_one_batch_with_places(line, grid):
    """jnp.matmul with a place for the result, of batches of two matrices, and of batches of one on either side."""
    m = explicit(grid)
    r, c = grid.devices.shape
    a, b = numbers(2 * r, 2 * c) % 5 - 2, numbers(2 * c, 3) % 7 - 3
    with jax.set_mesh(m):
        x, y = jax.device_put(a, P("x", "y")), jax.device_put(b, P("y"))
        place = P(None, "x", None)
        pairs: tuple[tuple[str, Callable[[Any, Any], Any], np.ndarray], ...] = (
            ("two and two", lambda x, y: (jnp.array([x, -x]), jnp.array([y, y])), np.stack([a @ b, -a @ b])),
            ("one and a matrix", lambda x, y: (x[None], y), (a @ b)[None]),
            ("one and one", lambda x, y: (x[None], y[None]), (a @ b)[None]),  # JAX breaks the last two
            ("one and two", lambda x, y: (x[None], jnp.array([y, -y])), np.stack([a @ b, -a @ b])),
        )
        for name, given, right in pairs:
            for way, run in WAYS.items():
                found = run(lambda x, y, g=given: jnp.matmul(*g(x, y), out_sharding=place))(x, y)
                lies(found, right, (None, "x", None), f"a product of batches of {name}, {way}")


def _types_of_parts_refused(line, grid):
    """Calls with unreduced and reduced arrays whose result would be another number are refused by name."""
    require_unreduced_types()
    m = explicit(grid)
    r, c = grid.devices.shape
    if c == 1:
        raise Missing("the refusals are of two axes of two devices or more")
    a = numbers(2 * r, 2 * c)
    with jax.set_mesh(m):
        x, y = jax.device_put(a, P("x", "y")), jax.device_put(a.T, P("y", None))
        whole, rows = jax.device_put(a.T, P()), jax.device_put(a, P("x", None))
        u = jnp.dot(x, y, out_sharding=P("x", unreduced={"y"}))
        flat = reshard(jnp.asarray(a), P(unreduced={"y"}))
        other = reshard(jnp.asarray(a), P(unreduced={"x"}))
        reduced = jax.device_put(a, P(reduced={"y"}))
        plain, cut = jax.device_put(a, P()), jax.device_put(a, P("y"))
        calls: dict[str, tuple[str, Callable[[], Any]]] = {
            "a product that is unreduced over what is not contracted": (
                "should be equal to the contracting specs",
                lambda: jnp.dot(rows, whole, out_sharding=P("x", unreduced={"y"})),
            ),
            "a product of rows and whole columns that is unreduced": (
                "should be sharded identically",
                lambda: jnp.dot(x, whole, out_sharding=P("x", unreduced={"y"})),
            ),
            "a product of an unreduced array": ("unreduced", lambda: jnp.dot(u, rows)),
            "a sum of arrays that are unreduced over two axes": (
                "must be unreduced along the same mesh axes",
                lambda: flat + other,
            ),
            "a sum of an unreduced and a whole array": ("unreduced", lambda: flat + plain),
            "a product of a reduced and a cut array": ("reduced on", lambda: reduced * cut),
            "a product of a cut and a reduced array": ("reduced on", lambda: cut * reduced),
            "a product of a reduced and a whole array": ("reduced on", lambda: reduced * plain),
            "a sum over cut rows that is unreduced over another axis": (
                "unreduced axes should be in operand",
                lambda: lax.reduce_sum(rows, axes=(0,), out_sharding=P(None, unreduced={"y"})),
            ),
            "a whole array whose reshape is unreduced": (
                "unreduced",
                lambda: jnp.reshape(plain, (-1,), out_sharding=P(unreduced={"x"})),
            ),
            "an unreduced array whose reshape is not": (
                "unreduced",
                lambda: jnp.reshape(flat, (-1,), out_sharding=P(None)),
            ),
            "a reduced array whose reshape is not": (
                "reduced",
                lambda: jnp.reshape(reduced, (-1,), out_sharding=P(None)),
            ),
        }
        for name, (words, call) in calls.items():
            for way, run in WAYS.items():
                refused(f"{name}, {way}", words, lambda call=call, run=run: run(call)())


RULES_OF_TESTED_PARTS: dict[str, Callable[..., None]] = {
    "ways_to_unreduced": _ways_to_unreduced,
    "dimensions_over_two_axes_to_unreduced": _dimensions_over_two_axes_to_unreduced,
    "products_of_one_batch_with_places": _products_of_one_batch_with_places,
    "counts_left_unreduced": _counts_left_unreduced,
    "extremes_left_unreduced": _extremes_left_unreduced,
    "quotients_and_choices_of_reduced": _quotients_and_choices_of_reduced,
    "reads_and_writes_of_reduced": _reads_and_writes_of_reduced,
    "reduced_carries": _reduced_carries,
    "sums_of_unreduced": _sums_of_unreduced,
    "types_of_parts_refused": _types_of_parts_refused,
}
