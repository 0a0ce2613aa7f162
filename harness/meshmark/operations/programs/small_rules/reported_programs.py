# SPDX-License-Identifier: Apache-2.0
"""Small rules of programs and their arguments, from real reports: donated arrays, nested regions, programs for given
devices, stored keys, parts of arrays, rules of the user in loops, trees of results, types with tangents of another
type, keys. The docstring of each rule has the number of its report.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import checkify
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.arrays import cube
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device


def _right_or_refused(call: Callable[[], jax.Array], right: np.ndarray, what: str) -> bool:
    """Whether a call with a donated array that it needs twice is done. It is right, or is refused as a donation."""
    try:
        found = jax.block_until_ready(call())
    except Exception as error:
        wrong("donat" not in str(error).lower(), f"{what} is refused for another reason: {error}"[:300])
        return False
    on_each_device(found, right, what)
    return True


def _donated_beside_itself(line, grid):
    """An array that is donated and is another argument too (jax#12627): the result is right, or the call is refused."""
    n = line.size

    def both(a: Any, b: Any) -> Any:
        return a * 2 + b

    for dtype, spec in ((np.float32, P("d")), (np.int32, P(None, None))):
        host = (mixed((2 * n, 2), 97, 7) - 40).astype(dtype)
        there = NamedSharding(line, spec)
        kinds: dict[str, dict[str, Any] | None] = {
            "a copy": {"may_alias": False},
            "an alias": {"may_alias": True},
            "the same place": {},
            "itself": None,
        }
        for kind, options in kinds.items():
            for donated in (0, 1):
                run = jax.jit(both, donate_argnums=donated)
                x = jax.device_put(host, there)
                y = x if options is None else jax.device_put(x, there, **options)
                given = (x, y) if donated == 0 else (y, x)
                what = f"{np.dtype(dtype).name} over {spec}, donated as {donated}, beside {kind}"
                done = _right_or_refused(lambda r=run, g=given: r(*g), 3 * host, what)
                wrong(kind == "a copy" and not done, f"{what} is refused")
                if kind == "a copy":
                    expect(np.asarray(y), host, f"the copy beside {what}")


def _checked_donation(line, grid):
    """checkify of a jit that donates and returns its argument, again and again, with and without an error."""
    n = line.size

    def check(v: Any) -> Any:
        checkify.check(jnp.all(v >= -3), "an element is too small")
        return v

    def step(v: Any) -> Any:
        checkify.check(jnp.all(v < 100), "an element is too large")
        return v * 2 + 1

    host = (np.arange(2 * n) - 3).astype(np.int32)
    for dtype in (np.int32, np.float32):
        for spec in (P("d"), P()):
            what = f"{np.dtype(dtype).name} over {spec}"
            run = checkify.checkify(jax.jit(check, donate_argnums=(0,)))
            x = placed(line, host.astype(dtype), *spec)
            for turn in range(3):
                error, x = run(x)
                expect(error.get(), None, f"the error of call {turn} with {what}")
            on_each_device(x, host.astype(dtype), f"three checked identities of {what}")
            error, _ = run(placed(line, host.astype(dtype) - 1, *spec))
            wrong("too small" not in str(error.get()), f"the error of {what} is {error.get()}")
            run = checkify.checkify(jax.jit(step, donate_argnums=(0,)))
            for _ in range(2):
                error, x = run(x)
                expect(error.get(), None, f"the error of a checked step with {what}")
            on_each_device(x, (4 * host + 3).astype(dtype), f"two checked steps of {what}")
            inside = jax.jit(checkify.checkify(step), donate_argnums=0)
            error, found = inside(placed(line, host.astype(dtype) + 103, *spec))
            wrong("too large" not in str(error.get()), f"the error of a step of {what} is {error.get()}")
            on_each_device(found, (2 * host + 207).astype(dtype), f"a step of {what} with an error")


def _innermost_without_names(line, grid):
    """Three nested regions, each over one axis. The innermost names none, and has the axis that is left."""
    m = Mesh(line.devices.reshape(sorted(cube(line).devices.shape)), ("a", "b", "c"))
    sizes = dict(m.shape)
    count = 2 * m.size
    host = (mixed((count,), 97, 7) - 40).astype(np.float32)
    blocks = host.reshape(sizes["a"], sizes["b"], sizes["c"], 2)
    indices = np.arange(sizes["c"], dtype=np.float32)[:, None]
    weights = (np.arange(count) % 5 - 2).astype(np.float32)

    def left(v: Any) -> Any:
        return v * 2 + lax.axis_index("c")

    def summed(v: Any) -> Any:
        return v + lax.psum(v, "c") * 3

    def squared(v: Any) -> Any:
        return v * v  # a gradient that saves its argument alone: JAX breaks others (jax#26588)

    answers = {
        "an index": (left, (2 * blocks + indices).ravel()),
        "a sum": (summed, (blocks + 3 * blocks.sum(2, keepdims=True)).ravel()),
        "a square": (squared, host * host),
    }

    def nested(body: Any, given: Any) -> Any:
        def inner(v: Any) -> Any:
            return jax.shard_map(body, in_specs=P("c"), out_specs=P("c"), **given)(v)

        def middle(v: Any) -> Any:
            return jax.shard_map(inner, in_specs=P("b"), out_specs=P("b"), axis_names={"b"})(v)

        return jax.shard_map(middle, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})

    with jax.set_mesh(m):
        for name, (body, right) in answers.items():
            for words, given in (("with", {"axis_names": {"c"}}), ("without", {})):
                run = nested(body, given)
                found = jax.jit(run)(host)
                on_each_device(found, right, f"{name} in a third region {words} names")
        for words, given in (("with", {"axis_names": {"c"}}), ("without", {})):
            run = nested(squared, given)
            slope = jax.jit(jax.grad(lambda v, run=run: (run(v) * weights).sum()))(jnp.asarray(host))
            on_each_device(
                slope, 2 * host * weights, f"the slope of a square in a third region {words} names"
            )


def _regions_against_the_order(line, grid):
    """A region inside of one over a later axis of the mesh (beside jax@6feb29fa59): of two axes and of three."""
    count = 2 * line.size
    host = (mixed((count,), 97, 7) - 40).astype(np.float32)

    def over(body: Callable[[Any], Any], axis: str) -> Callable[[Any], Any]:
        return lambda v: jax.shard_map(body, in_specs=P(axis), out_specs=P(axis), axis_names={axis})(v)

    def square(v: Any) -> Any:
        return v * v

    three = cube(line)
    for m, axes in (
        (grid, "xy"),
        (three, "abc"),
        (three, "ab"),
        (three, "ac"),
        (grid, "yx"),
        (three, "cba"),
        (three, "ca"),  # JAX breaks the last two
    ):
        run: Callable[[Any], Any] = square
        for axis in reversed(axes):
            run = over(run, axis)
        with jax.set_mesh(m):
            what = f"a square in regions over {' and '.join(axes)} of {dict(m.shape)}"
            on_each_device(jax.jit(run)(host), host * host, what)
            slope = jax.jit(jax.grad(lambda v, run=run: run(v).sum()))(host)
            on_each_device(slope, 2 * host, f"the slope of {what}")


def _compiled_for_given_devices(line, grid):
    """A program that was lowered over an abstract mesh compiles for the devices that are given, each time."""
    if not may_leave_out_devices() or jax.default_backend() != "cpu":
        raise Missing("a program is lowered here for CPUs, and compiled for some of them")
    n = line.size
    half = n // 2 if n % 2 == 0 else n
    devices = list(line.devices.flat)
    turned = devices[:half][::-1]
    orders = [devices[:half], devices[-half:], turned, devices[:half], devices[-half:]]
    for dtype in (np.float32, np.int32):
        host = (np.arange(2 * half) - 3).astype(dtype)
        abstract = Mesh(np.array(devices[:half]), ("d",)).abstract_mesh
        for spec in (P("d"), P()):
            place = NamedSharding(abstract, spec)
            like = jax.ShapeDtypeStruct(host.shape, host.dtype, sharding=place)
            run = jax.jit(lambda v: v * 2 + v.sum(), in_shardings=place, out_shardings=place)
            lowered = run.trace(like).lower(lowering_platforms=("cpu",))
            what = f"{np.dtype(dtype).name} over {spec} of an abstract mesh"
            refused(f"a program of {what} for no devices", "device_assignment", lowered.compile)
            for order in orders:
                compiled = lowered.compile(device_assignment=tuple(order))
                there = NamedSharding(Mesh(np.array(order), ("d",)), spec)
                found = compiled(jax.device_put(host, there))
                on_each_device(found, (host * 2 + host.sum()).astype(dtype), f"a program of {what}")
                shards = [s.device.id for s in found.addressable_shards]
                expect(sorted(shards), sorted(d.id for d in order), f"the devices of a program of {what}")
                parts = {s.device.id: s.index for s in found.addressable_shards}
                right = {d.id: i for d, i in there.addressable_devices_indices_map(host.shape).items()}
                expect(parts, right, f"which part each device has of a program of {what}")


def _exported_keys_in_jit(line, grid):
    """An exported program that makes or takes typed keys, called in a jit with shardings, and from its bytes."""
    if find_spec("flatbuffers") is None:
        raise Missing("jax.export needs flatbuffers: pip install flatbuffers")
    from jax import export

    n = line.size
    whole, cut = NamedSharding(line, P()), NamedSharding(line, P("d"))
    seed = jax.ShapeDtypeStruct((), np.int32)
    seeds = jax.ShapeDtypeStruct((2 * n,), np.int32)
    numbers = np.arange(5, 5 + 2 * n, dtype=np.int32)
    for kind, parts in (("threefry2x32", 1), ("rbg", 2)):
        make = jax.jit(lambda s, k=kind: jax.random.key(s, impl=k), in_shardings=whole, out_shardings=whole)
        many = jax.jit(
            jax.vmap(lambda s, k=kind: jax.random.key(s, impl=k)), in_shardings=cut, out_shardings=cut
        )
        for way, again in (
            ("in memory", lambda e: e),
            ("in bytes", lambda e: export.deserialize(e.serialize())),
        ):
            one = again(export.export(make)(seed))
            found = jax.jit(one.call, in_shardings=whole, out_shardings=whole)(np.int32(5))
            what = f"{kind}, stored {way}"
            on_each_device(
                jax.random.key_data(found), np.array([0, 5] * parts, np.uint32), f"a key of {what}"
            )
            each = again(export.export(many)(seeds))
            found = jax.jit(each.call, in_shardings=cut, out_shardings=cut)(numbers)
            right = np.stack([0 * numbers, numbers] * parts, 1).astype(np.uint32)
            on_each_device(jax.random.key_data(found), right, f"keys of {what}")
            expect(found.sharding.is_equivalent_to(cut, 1), True, f"whether keys of {what} are cut")
            back = jax.jit(lambda k: jax.random.key_data(k)[..., -1], in_shardings=cut, out_shardings=cut)
            like = jax.ShapeDtypeStruct(found.shape, found.dtype)
            read = again(export.export(back)(like))
            seen = jax.jit(read.call, in_shardings=cut, out_shardings=cut)(found)
            on_each_device(seen, numbers.astype(np.uint32), f"the data of keys of {what}")


def _parts_in_a_tuple(line, grid):
    """An array of the parts of its devices, given as a tuple (jax#27303) and as a list, in each order of devices."""
    side = 2 * grid.size
    for dtype in (np.float32, np.int8, jnp.bfloat16):
        host = (mixed((side, side), 97, 7) - 40).astype(dtype)
        for mesh, spec in (
            (line, P("d")),
            (line, P(None, "d")),
            (line, P()),
            (grid, P("x", "y")),
            (grid, P(("y", "x"))),
            (grid, P("y")),
        ):
            place = NamedSharding(mesh, spec)
            parts = [
                jax.device_put(host[index], device)
                for device, index in place.addressable_devices_indices_map(host.shape).items()
            ]
            for kind in (tuple, list):
                what = f"an array of a {kind.__name__} of parts over {spec}, {np.dtype(dtype).name},"
                found = jax.make_array_from_single_device_arrays(host.shape, place, kind(parts))
                on_each_device(found, host, what)
                expect(found.sharding, place, f"the place of {what}")
                on_each_device(jax.jit(lambda v: v + v)(found), host + host, f"twice {what}")


def _custom_partitioning_in_a_loop(line, grid):
    """A rule of custom_partitioning inside of loops and choices of a program (jax#17382)."""
    n = line.size
    asked: list[tuple[int, ...]] = []

    @custom_partitioning
    def step(v: Any) -> Any:
        return v * 2 + 1

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        asked.append(arguments[0].shape)
        place = arguments[0].sharding
        return mesh, lambda v: v * 2 + 1, place, (place,)

    step.def_partition(
        partition=partition,
        infer_sharding_from_operands=lambda mesh, arguments, result: arguments[0].sharding,
        sharding_rule="i j -> i j",
    )

    def scanned(v: Any) -> Any:
        return lax.scan(lambda c, k: (step(c) + k, step(c).sum()), v, jnp.arange(3).astype(v.dtype))

    for dtype in (np.float32, np.int32):
        host = (mixed((2 * n, 4), 9, 4) - 4).astype(dtype)
        last, sums = host, []
        for k in range(3):
            last = last * 2 + 1
            sums.append(last.sum())
            last = last + k
        programs: dict[str, tuple[Callable[[Any], Any], Any]] = {
            "a scan": (lambda v: scanned(v)[0], last),
            "the results of a scan": (lambda v: scanned(v)[1], np.array(sums, dtype)),
            "a chosen branch": (lambda v: lax.cond(v[0, 0] < 99, step, lambda v: v, v), host * 2 + 1),
            "a branch that is not chosen": (lambda v: lax.cond(v[0, 0] > 99, step, lambda v: v, v), host),
            "fori_loop": (lambda v: lax.fori_loop(0, 3, lambda k, c: step(c), v), 8 * host + 7),
            "while_loop": (
                lambda v: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, step(c[1])), (0, v))[1],
                4 * host + 3,
            ),
        }
        for spec in (P("d"), P(None, None)):
            there = NamedSharding(line, spec)
            for name, (call, right) in programs.items():
                asked.clear()
                found = jax.jit(call, in_shardings=there)(jax.device_put(host, there))
                what = f"{name} with a rule of the user over {spec}, {np.dtype(dtype).name},"
                on_each_device(found, np.asarray(right, dtype), what)
                wrong(n > 1 and spec == P("d") and not asked, f"{what} did not ask the rule")


def _tangent_types_over_types(line, grid):
    """Arrays of a type whose tangents are of another, over Explicit axes: there and back, batched, sent and derived."""
    try:
        from jax.experimental import primal_tangent_dtype
    except ImportError:
        raise Missing("this release has no types with tangents of another type") from None
    n = 2 * line.size
    host = (mixed((n, 2), 97, 7) - 40).astype(np.int8)
    for tangent in (jnp.bfloat16, np.float32):
        kind = primal_tangent_dtype(jnp.dtype("int8"), jnp.dtype(tangent))

        def there(v: Any, kind: Any = kind) -> Any:
            return lax.convert_element_type(v, kind)

        def back(v: Any) -> Any:
            return lax.convert_element_type(v, "int8")

        def doubled(v: Any, kind: Any = kind, tangent: Any = tangent) -> Any:
            return lax.convert_element_type(back(v), tangent) * 2

        programs: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
            "there and back": (lambda v: back(there(v)), host),
            "transposed": (lambda v: back(there(v).T), host.T),
            "reshaped": (lambda v: back(there(v).reshape(n, 2, 1)), host.reshape(n, 2, 1)),
            "placed": (lambda v: back(jax.sharding.reshard(there(v), P(None, None))), host),
            "in a batch": (lambda v: jax.vmap(lambda r: back(there(r)))(v), host),
            "of numbers": (lambda v: doubled(there(v)), (2 * host.astype(np.float32)).astype(tangent)),
        }
        with jax.set_mesh(explicit(line)):
            for spec in (P("d", None), P(None, None)):
                x = jax.device_put(host, spec)
                for name, (call, right) in programs.items():
                    what = f"int8 with tangents of {np.dtype(tangent).name} over {spec}, {name},"
                    found = jax.jit(call)(x)
                    on_each_device(found, right, what)
                    if name == "there and back":
                        expect(jax.typeof(found).sharding.spec, spec, f"the type of {what}")


def _trees_of_pmap_ahead(line, grid):
    """A pmap that is compiled ahead of its call returns the tree of the function (jax#31910)."""
    if jax.process_count() > 1:
        raise Missing("a pmap ahead of time is judged in one process")
    n = line.size
    devices = list(line.devices.flat)
    host = (mixed((n, 2), 97, 7) - 40).astype(np.float32)
    functions: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "an array": (lambda v: v * 2, host * 2),
        "a pair": (lambda v: (v, v + 1), (host, host + 1)),
        "a dict": (lambda v: {"b": [v * 3], "a": v}, {"a": host, "b": [host * 3]}),
        "a tuple of one": (lambda v: (v,), (host,)),
        "a list with None": (lambda v: [None, v - 1], [None, host - 1]),
        "nothing": (lambda v: None, None),
        "an empty dict": (lambda v: {}, {}),
    }
    for name, (call, right) in functions.items():
        for donated in ((), (0,)):
            run = jax.pmap(call, axis_name="i", devices=devices, donate_argnums=donated)
            ahead = run.lower(host).compile()
            for way, found in (("called", run(host)), ("ahead", ahead(host)), ("ahead again", ahead(host))):
                what = f"{name} of pmap, {way}, donated {donated},"
                expect(jax.tree.structure(found), jax.tree.structure(right), f"the tree of {what}")
                for seen, answer in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
                    on_each_device(seen, answer, what)
                    order = [s.device.id for s in seen.addressable_shards]
                    expect(order, [d.id for d in devices], f"the devices of {what}")
    both = jax.pmap(lambda t, k: {"s": t["a"] + k, "t": t}, devices=devices, in_axes=(0, None))
    tree = {"a": host, "b": (host + 5,)}
    found = both.lower(tree, np.float32(7)).compile()(tree, np.float32(7))
    expect(np.asarray(found["s"]), host + 7, "a sum of pmap ahead of a tree and a number")
    expect(jax.tree.structure(found["t"]), jax.tree.structure(tree), "the tree that pmap ahead returns")
    expect(np.asarray(found["t"]["b"][0]), host + 5, "the leaf that pmap ahead returns")


def _deep_stacks_of_devices(line, grid):
    """expm of large matrices on all devices at once (jax#20428): the thread of a device has the stack that it needs."""
    n, side = line.size, 200
    shift = np.arange(side)[None, :] - np.arange(side)[:, None]
    factorials = np.cumprod(np.maximum(np.arange(side), 1), dtype=np.float64)
    powers = np.where(shift >= 0, 0.5 ** np.maximum(shift, 0) / factorials[np.maximum(shift, 0)], 0)
    scales = (np.arange(n) % 3 - 1) / 2
    exact = np.exp(scales)[:, None, None] * powers
    host = np.float32(scales[:, None, None] * np.eye(side) + 0.5 * np.eye(side, k=1))

    def close(found: Any, right: np.ndarray, what: str) -> None:
        far = float(np.abs(np.asarray(found, np.float64) - right).max())
        wrong(not far < 1e-4 * np.abs(right).max(), f"{what} is off by {far:.3g}")

    run = jax.jit(
        jax.shard_map(
            lambda b: jax.scipy.linalg.expm(b[0])[None], mesh=line, in_specs=P("d"), out_specs=P("d")
        )
    )
    close(run(host), exact, "expm of a matrix on each device, in a shard_map")
    if jax.process_count() == 1:
        found = jax.pmap(jax.scipy.linalg.expm, devices=list(line.devices.flat))(host)
        close(found, exact, "expm of a matrix on each device, in pmap")


RULES_OF_REPORTED_PROGRAMS: dict[str, Callable[..., None]] = {
    "donated_beside_itself": _donated_beside_itself,
    "checked_donation": _checked_donation,
    "innermost_without_names": _innermost_without_names,
    "regions_against_the_order": _regions_against_the_order,
    "compiled_for_given_devices": _compiled_for_given_devices,
    "exported_keys_in_jit": _exported_keys_in_jit,
    "parts_in_a_tuple": _parts_in_a_tuple,
    "custom_partitioning_in_a_loop": _custom_partitioning_in_a_loop,
    "tangent_types_over_types": _tangent_types_over_types,
    "trees_of_pmap_ahead": _trees_of_pmap_ahead,
    "deep_stacks_of_devices": _deep_stacks_of_devices,
}
