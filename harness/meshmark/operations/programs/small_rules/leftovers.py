# SPDX-License-Identifier: Apache-2.0
"""Small rules of what lists of JAX's options showed to be left over: derivatives, segments, places of results, dtypes
of draws, arrays of the host, guards of one direction, checks, and exported sizes."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.definitions import takes
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.sharing import WAYS, numbers


def _derivatives_with_options(line, grid):
    """Derivatives of complex and whole numbers, with something beside them, and of arguments that are static, through a
    region."""
    n = line.size
    host = numbers(n)
    x = placed(line, host, "d")
    z = placed(line, (host + 2j * host[::-1]).astype(np.complex64), "d")

    def region(f):
        return jax.shard_map(f, mesh=line, in_specs=P("d"), out_specs=P("d"))

    square = region(lambda v: v * v)
    right = np.diag(2 * (host + 2j * host[::-1])).astype(np.complex64)
    for name, derive in (("jacfwd", jax.jacfwd), ("jacrev", jax.jacrev), ("jacobian", jax.jacobian)):
        expect(jax.jit(derive(square, holomorphic=True))(z), right, f"{name} of complex numbers")
        found, beside = jax.jit(derive(lambda v: (square(v), v + 1), has_aux=True))(x)
        expect(found, np.diag(2 * host), f"{name} with something beside")
        expect(beside, host + 1, f"what is beside {name}")
    whole = jax.hessian(lambda v: (square(v) * v).sum(), holomorphic=True)
    expect(jax.jit(whole)(z), 3 * right, "hessian of complex numbers")
    slope = jax.grad(lambda i, v: (v * i).sum(), argnums=(0, 1), allow_int=True)
    by_whole, by_float = slope(placed(line, np.arange(n, dtype=np.int32), "d"), x)
    expect(by_whole.dtype == jax.dtypes.float0, True, "whether the gradient by whole numbers is float0")
    expect(by_float, np.arange(n, dtype=np.float32), "the gradient beside whole numbers")
    forward, backward = jax.fwd_and_bwd(lambda v: (square(v), v - 1), 0, has_aux=True, jitted=False)
    out, rest, beside = forward(x)
    expect(out, host * host, "a result with something beside")
    expect(beside, host - 1, "what is beside a result")
    expect(backward(rest, jnp.ones_like(out)), 2 * host, "the gradient with something beside")
    kept = jax.checkpoint(
        lambda k, v: region(lambda b: jnp.sin(b) * k)(v),
        static_argnums=0, prevent_cse=False, policy=jax.checkpoint_policies.everything_saveable,
    )  # fmt: skip
    found = jax.jit(jax.grad(lambda v: kept(3, v).sum()))(x)
    wrong(not np.allclose(found, 3 * np.cos(host), atol=1e-3), f"the gradient with a policy is {found}")
    shape = jax.make_jaxpr(lambda k, v: square(v) * k, static_argnums=0, return_shape=True)(3, x)[1]
    expect((shape.shape, shape.dtype), ((n,), np.float32), "the shape that make_jaxpr gives")


def _segments_with_options(line, grid):
    """Sums and other reductions of segments: sorted, in buckets, far indices dropped, and placed."""
    typed, n = explicit(line), 2 * line.size
    host = np.abs(numbers(n)) % 3 + 1
    places = np.arange(n) // 2
    far = np.where(places == 1, n + 5, places)
    functions: dict[str, tuple[Callable[..., Any], float]] = {
        "segment_sum": (np.sum, 0),
        "segment_prod": (np.prod, 1),
        "segment_min": (np.min, np.inf),
        "segment_max": (np.max, -np.inf),
    }
    for mesh, options in ((line, {}), (typed, {"out_sharding": P("d")})):
        x = placed(mesh, host, "d" if mesh is line else None)
        with jax.set_mesh(mesh):
            for name, (reduce, empty) in functions.items():
                function = getattr(jax.ops, name)
                choices: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
                    "sorted": (places, {"indices_are_sorted": True}),
                    "in bounds": (places, {"mode": "promise_in_bounds"}),
                    "that drop": (far, {"mode": "drop"}),
                    **({"in buckets": (places, {"bucket_size": 2})} if mesh is line else {}),
                }
                for kind, (at, choice) in choices.items():
                    call = jax.jit(lambda v, f=function, a=at, c=choice, o=options: f(v, a, n, **c, **o))
                    right = np.append(reduce(host.reshape(-1, 2), axis=1), [empty] * (n - n // 2))
                    if kind == "that drop":
                        right[1] = empty
                    what = f"{name} of segments {kind} with {options}"
                    expect(np.asarray(call(x)), right.astype(np.float32), what)
            if options:
                made = jax.jit(lambda v: jax.ops.segment_prod(v, places, n, out_sharding=P("d")))(x)
                expect(made.sharding.spec, P("d"), "the place of segment_prod")


def _places_of_more_functions(line, grid):
    """Percentiles, empty arrays, and reductions by a function lie where `out_sharding` says."""
    typed, n = explicit(line), 2 * line.size
    host = numbers(4, n)
    at: dict[str, Any] = {"out_sharding": P("d")}
    every = NamedSharding(typed, P("d"))
    with jax.set_mesh(typed):
        y = placed(typed, host)
        calls: dict[str, tuple[Callable[[], Any], np.ndarray | None]] = {
            "percentile": (lambda: jnp.percentile(y, 50.0, axis=0, **at), np.percentile(host, 50, 0)),
            "lax.reduce": (
                lambda: lax.reduce(y, np.float32(0), lax.add, (0,), **at), host.sum(0)
            ),
            "lax.reduce_max": (lambda: lax.reduce_max(y, (0,), **at), host.max(0)),
            "lax.reduce_min": (lambda: lax.reduce_min(y, (0,), **at), host.min(0)),
            "jnp.empty": (lambda: jnp.empty((n,), **at), None),
            "lax.empty": (lambda: lax.empty((n,), np.float32, **at), None),
        }  # fmt: skip
        for name, (call, right) in calls.items():
            function = (
                getattr(lax, name[4:]) if name.startswith("lax.") else getattr(jnp, name.removeprefix("jnp."))
            )
            if not takes(function, "out_sharding"):
                continue
            found = jax.jit(call)()
            wrong(not found.sharding.is_equivalent_to(every, 1), f"{name} lies at {found.sharding.spec}")
            if right is not None:
                same = np.allclose(np.asarray(found), right, atol=1e-4)
                wrong(not same, f"{name} at a place is {found} instead of {right}")


def _dtypes_of_draws(line, grid):
    """Draws of an asked dtype, size or kind of key have it, and are the same for a sharded parameter."""
    key, n = jax.random.key(5), 2 * line.size
    r = jax.random
    rates = np.full(n, 0.25, np.float32)
    means = np.full(n, 30.0, np.float32)
    draws: dict[str, tuple[Callable[[Any], Any], np.ndarray, Any]] = {
        "geometric": (lambda p: r.geometric(key, p, dtype=np.int16), rates, np.int16),
        "rademacher": (
            lambda p: r.rademacher(key, p.shape, dtype=np.int8) * jnp.sign(p).astype(np.int8),
            rates, np.int8,
        ),
        "poisson": (lambda p: r.poisson(key, p, dtype=np.int16), means, np.int16),
        "binomial": (lambda p: r.binomial(key, 20.0, p, dtype=np.float32), rates, np.float32),
        "multinomial": (
            lambda p: r.multinomial(key, 12.0, jnp.stack([p, 1 - p], 1), dtype=np.float32),
            rates, np.float32,
        ),
        "orthogonal": (
            lambda p: r.orthogonal(key, 3, p.shape, m=2, dtype=np.float32) * jnp.sign(p)[:, None, None],
            rates, np.float32,
        ),
        "multivariate_normal": (
            lambda p: r.multivariate_normal(key, jnp.stack([p, -p], 1), jnp.eye(2), dtype=np.float32),
            rates, np.float32,
        ),
    }  # fmt: skip
    for name, (draw, host, dtype) in draws.items():
        right = np.asarray(jax.jit(draw)(host))
        found = np.asarray(jax.jit(draw)(placed(line, host, "d")))
        expect(found.dtype, np.dtype(dtype), f"the dtype of {name}")
        wrong(
            not np.allclose(found, right, atol=1e-5), f"{name} of a sharded parameter is {found.ravel()[:4]}"
        )
        if name == "multinomial":
            wrong(not np.allclose(found.sum(1), 12), f"the draws of a multinomial add up to {found.sum(1)}")
        if name == "orthogonal":
            wrong(
                not np.allclose(np.swapaxes(found, 1, 2) @ found, np.eye(2), atol=1e-4), "orthogonal columns"
            )
    for kind in ("threefry2x32", "rbg"):
        expect(str(r.key_impl(r.key(3, impl=kind))), kind, "the kind of a key")
        wrong(
            not np.array_equal(r.PRNGKey(3, impl=kind), r.key_data(r.key(3, impl=kind))),
            f"raw keys of {kind}",
        )


def _arrays_of_the_host(line, grid):
    """Arrays from memory that the host holds: an asked device, a copy that later writes don't change, a part of a
    buffer, text, and files."""
    device = line.devices.flat[-1]
    host = np.arange(12, dtype=np.float32)
    made = jnp.from_dlpack(host.copy(), device=device, copy=True)
    expect(made.devices(), {device}, "the device of an array of dlpack")
    expect(made, host, "an array of dlpack on a device")
    mine = host.copy()
    copies = {
        "asarray": jnp.asarray(mine, copy=True),
        "copy": jnp.copy(mine, order="K"),
    }
    jax.block_until_ready(copies)
    mine[:] = -1
    for name, array in copies.items():
        expect(array, host, f"{name} after the host's array was written")
    part = jnp.frombuffer(host.tobytes(), np.float32, count=3, offset=8)
    expect(part, host[2:5], "a part of a buffer")
    expect(jnp.fromstring("1 2 3 4", np.float32, 3, sep=" "), host[1:4], "numbers of a text")
    x, file = placed(line, numbers(2 * line.size, 3), "d"), io.BytesIO()
    jnp.save(file, x, allow_pickle=False)
    file.seek(0)
    expect(np.load(file), np.asarray(x), "a sharded array in a file")


def _guards_of_one_direction(line, grid):
    """A guard of one direction of transfers forbids that one alone."""
    host = numbers(2 * line.size, 3)
    x = placed(line, host, "d")
    f = jax.jit(lambda v: v + 1)
    jax.block_until_ready(f(x))
    there = NamedSharding(line, P())

    def move():
        return jax.device_put(x, there)

    with jax.transfer_guard_host_to_device("disallow"):
        refused("an implicit put", "host-to-device", lambda: f(host))
        expect(f(x), host + 1, "a program of device arrays")
        expect(move(), host, "a move between devices that is asked for")
    with jax.transfer_guard_device_to_device("disallow"):
        expect(move(), host, "a move between devices that is asked for, under its guard")
        expect(f(host), host + 1, "an implicit put under the guard of the other direction")
    with jax.transfer_guard_host_to_device("disallow_explicit"):
        refused("a put that is asked for", "host-to-device", lambda: jax.device_put(host, there))


def _checks_inside_of_programs(line, grid):
    """`checkify.debug_check` and `check_error` tell of a wrong number beside a region, and of nothing else."""
    from jax.experimental import checkify

    host = numbers(2 * line.size)
    region = jax.shard_map(lambda v: v * 2, mesh=line, in_specs=P("d"), out_specs=P("d"))

    def f(v):
        checkify.debug_check(jnp.all(v > -100), "a number is {low}", low=v.min())
        return region(v)

    expect(jax.jit(f)(placed(line, host, "d")), host * 2, "a program without its checks")
    checked = jax.jit(checkify.checkify(f))
    for lowest in (-5.0, -500.0):
        values = np.append(host[:-1], np.float32(lowest))
        error, found = checked(placed(line, values, "d"))
        expect(found, values * 2, "a program with its checks")
        expect(
            error.get() is not None, lowest < -100, f"whether the error of a lowest number {lowest} is told"
        )
        if lowest < -100:
            refused("the error", "a number is -500", lambda e=error: checkify.check_error(e))
        else:
            checkify.check_error(error)


def _sizes_with_bounds(line, grid):
    """Sizes of an exported program keep their bounds and their scope, and a size outside of them is refused."""
    from jax import export

    if find_spec("flatbuffers") is None:
        raise Missing("jax.export needs flatbuffers: pip install flatbuffers")
    rows, columns = export.symbolic_shape("b, 2*c", constraints=("b >= 4",))
    expect(export.is_symbolic_dim(rows), True, "whether a size is symbolic")
    if hasattr(export, "symbolic_dim_bounds"):
        expect(export.symbolic_dim_bounds(rows)[0], 4, "the lowest size")
        expect(export.symbolic_dim_bounds(columns)[0], 2, "the lowest even size")
    kind = jax.ShapeDtypeStruct((rows, columns), np.float32)
    made = export.export(jax.jit(lambda v: v.sum(0) * v.shape[0]))(kind)
    again = export.deserialize(made.serialize())
    for size in (4, 6):
        host = numbers(size, 6)
        expect(jax.jit(again.call)(host), host.sum(0) * size, f"an exported program of {size} rows")
    refused("too few rows", "b >= 4|Error refining shapes", lambda: again.call(numbers(2, 6)))
    refused("odd columns", "Division had remainder", lambda: again.call(numbers(4, 5)))


def _seldom_functions(line, grid):
    """Products by stored reflectors, stable largest numbers, rotations of images, layers of cells, stateful draws, and
    places on one device."""
    n = line.size
    host = numbers(n, 4, 3) + 7 * np.eye(4, 3, dtype=np.float32)
    x = placed(line, host, "d")

    def reflected(m):
        made, taus = jnp.linalg.qr(m, mode="raw")
        if not hasattr(lax.linalg, "ormqr"):
            return jnp.abs(jnp.linalg.qr(m)[1])
        return jnp.abs(lax.linalg.ormqr(made.T, taus, m, left=True, transpose=True)[:3])

    with jax.default_matmul_precision("highest"):
        found = np.asarray(jax.jit(jax.vmap(reflected))(x))
    right = np.stack([abs(np.linalg.qr(m.astype(np.float64))[1]) for m in host])
    wrong(
        not np.allclose(found, right, atol=1e-3),
        f"reflectors give {found[0]} instead of {right[0]}",
    )
    ties = np.tile(np.float32([1, 3, 3, 2]), (2 * n, 1))
    rows = placed(line, ties, "d")
    for way, call in WAYS.items():
        values, places = call(lambda v: lax.top_k(v, 3))(rows)
        expect(values, np.tile(np.float32([3, 3, 2]), (2 * n, 1)), f"the largest numbers {way}")
        expect(places, np.tile(np.int32([1, 2, 3]), (2 * n, 1)), f"the first of equal numbers {way}")
    place = jax.sharding.SingleDeviceSharding(line.devices.flat[-1])
    if hasattr(jax.sharding, "make_single_device_sharding"):
        expect(
            jax.sharding.make_single_device_sharding(line.devices.flat[-1]), place, "a place on one device"
        )
    wrong(jax.process_index() not in jax.process_indices(), "this process is not one of all")
    if hasattr(jax.dtypes, "itemsize_bits"):
        expect(jax.dtypes.itemsize_bits(jnp.int4), 4, "the bits of int4")
    image = placed(line, np.arange(2.0 * n * 4, dtype=np.float32).reshape(2 * n, 4), "d")
    smaller = jax.jit(lambda v: jax.image.resize(v, (2 * n, 2), "linear", antialias=False))(image)
    pairs = np.asarray(image).reshape(2 * n, 2, 2).mean(2)
    wrong(
        not np.allclose(smaller, pairs, atol=1e-3), f"an image without antialias is {np.asarray(smaller)[0]}"
    )


RULES_OF_LEFTOVERS: dict[str, Callable[..., None]] = {
    "derivatives_with_options": _derivatives_with_options,
    "segments_with_options": _segments_with_options,
    "places_of_more_functions": _places_of_more_functions,
    "dtypes_of_draws": _dtypes_of_draws,
    "arrays_of_the_host": _arrays_of_the_host,
    "guards_of_one_direction": _guards_of_one_direction,
    "checks_inside_of_programs": _checks_inside_of_programs,
    "sizes_with_bounds": _sizes_with_bounds,
    "seldom_functions": _seldom_functions,
}
"""Each function takes a mesh over one axis "d" and one over two axes "x" and "y", both of all devices."""
