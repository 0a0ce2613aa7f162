# SPDX-License-Identifier: Apache-2.0
"""Settings around one sharded program: contexts of precision and width, compiler options, memory kinds, host
computation, ordered callbacks, names, and host arrays in every memory layout.

The program is that of `programs.forms.base`: f(x) = x * s(x). A case returns f(x) if its setting works as documented,
and other values otherwise. If values cannot show it, the case raises.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import ProgramForm, at, over, whole
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.function_forms import off
from meshmark.operations.programs.forms.options import through, wrong

# Widths and precision.


def _wide_context(mesh, a, x):
    """64 bits inside a context and 32 outside, in turn, with jitted functions that are called in both."""
    n, given = mesh.shape[a], np.asarray(x)
    total = jax.jit(lambda y: 3 * y.sum(axis=0) + 1)
    slope = jax.jit(jax.grad(lambda y: (y * y).sum()))
    mapped = jax.jit(jax.shard_map(lambda b: lax.psum(b, a), mesh=mesh, in_specs=P(a), out_specs=P()))
    loop = jax.jit(lambda y: lax.scan(lambda c, r: (c + r, c), 0 * y[0], y)[1])
    made = jax.jit(lambda: (jnp.arange(3), jnp.linspace(0, 1, 3)))
    rows = given.shape[0] // n
    for _ in range(2):
        for kind, more in ((np.float32, 0), (np.int32, 0), (np.float64, 2.0**-40), (np.int64, 2**40)):
            wide = np.dtype(kind).itemsize == 8
            with jax.enable_x64(True) if wide else contextlib.nullcontext():
                host = given.astype(kind) + np.asarray(more, kind)
                y = jax.device_put(host, at(mesh, a))
                what = f"of {np.dtype(kind)}"
                same_as(np.asarray(y), host, f"an array {what}")
                same_as(np.asarray(total(y)), 3 * host.sum(0, dtype=kind) + kind(1), f"a sum {what}")
                blocks = host.reshape(n, rows, -1).sum(0, dtype=kind)
                same_as(np.asarray(mapped(y)), blocks, f"a sum over devices {what}")
                same_as(np.asarray(loop(y)), np.cumsum(host, 0, dtype=kind) - host, f"a loop {what}")
                if np.dtype(kind).kind == "f":
                    same_as(np.asarray(slope(y)), 2 * host, f"a gradient {what}")
                numbers, fractions = made()
                wrong(numbers.dtype != ("int64" if wide else "int32"), f"whole numbers are {numbers.dtype}")
                wrong(
                    fractions.dtype != ("float64" if wide else "float32"), f"fractions are {fractions.dtype}"
                )
            same_as(np.asarray(y), host, f"an array {what} after its context")
    narrow = jax.device_put(given.astype(np.int64) - 7, at(mesh, a))
    same_as(np.asarray(narrow), given.astype(np.int32) - 7, "an array of 64 bits where they are off")
    return jax.jit(over(mesh, a))(x)


def _precision_context(mesh, a, x):
    """The matmul precision of a context, in turn: each has its own program, an explicit argument overrides it, and
    gradients use it too."""
    product = jax.jit(lambda y, z: y @ z)
    asked = jax.jit(lambda y, z: jnp.matmul(y, z, precision="default"))
    slope = jax.jit(jax.grad(lambda y, z: (y @ z).sum()))
    wanted = np.asarray(x).T @ np.asarray(x)
    turned = jax.device_put(np.asarray(x).T, at(mesh, None, a))
    for _ in range(2):
        for name, word in (("highest", "HIGHEST"), ("default", "DEFAULT"), ("float32", "HIGHEST")):
            with jax.default_matmul_precision(name):
                same_as(np.asarray(product(turned, x)), wanted, f"a product of {name} precision")
                for f in (product, slope):
                    text = f.lower(turned, x).as_text()
                    wrong(
                        ("HIGHEST" in text) != (word == "HIGHEST"),
                        f"a product of {name} precision is lowered without it",
                    )
                wrong(
                    "HIGHEST" in asked.lower(turned, x).as_text(),
                    "a context goes before the precision that a product was asked for",
                )
    wrong("HIGHEST" in product.lower(turned, x).as_text(), "a precision stays after its context")
    return jax.jit(over(mesh, a))(x)


def _algorithms(mesh, a, x):
    """Products by each dot algorithm that the backend has, with sharded rows, columns or contracted dimensions. An
    algorithm that the backend lacks is skipped; DEFAULT must be there."""
    given = np.asarray(x)
    wanted = given.T @ given
    lacking = []
    for algorithm in ("DEFAULT", "F32_F32_F32", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6"):
        preset = getattr(lax.DotAlgorithmPreset, algorithm)
        try:
            jax.jit(lambda p, preset=preset: lax.dot(p, p, precision=preset)).lower(
                jnp.ones((2, 2))
            ).compile()
        except Exception as error:  # the backend refuses with a ValueError or a compiler error
            wrong("upport" not in str(error), f"{algorithm}: {error}")
            lacking.append(algorithm)
            continue
        for rows, columns in (
            (at(mesh, None, a), at(mesh, a)),
            (at(mesh, a), at(mesh)),
            (at(mesh), at(mesh, None, a)),
        ):
            p, q = jax.device_put(given.T, rows), jax.device_put(given, columns)
            dot = jax.jit(
                lambda p, q, preset=preset: lax.dot_general(p, q, (((1,), (0,)), ((), ())), precision=preset)
            )
            same_as(np.asarray(dot(p, q)), wanted, f"a product by {algorithm}")
    if "DEFAULT" in lacking:
        raise Missing("the backend has no product by the default algorithm")
    return jax.jit(over(mesh, a))(x)


def _accumulators(mesh, a, x):
    """Products of narrow dtypes whose sums need a wider dtype (`preferred_element_type`): in each function with that
    option, with a sharded contraction, and in a sum over devices."""
    n = mesh.shape[a]
    rows = np.arange(8 * n)[:, None] * np.array([[7, -5, 3]])
    small = (rows % 255 - 127).astype(np.int8)
    half = np.full((130 * n, 3), 1.5, np.float32)  # bfloat16 cannot hold its sums
    for host, kind, sums in (
        (small, "int8", "int32"),
        (half, "bfloat16", "float32"),
        (half, "float16", "float32"),
    ):
        narrow = host.astype(jnp.dtype(kind))
        wanted = (narrow.T.astype(np.float64) @ narrow.astype(np.float64)).astype(sums)
        y = jax.device_put(narrow, at(mesh, a))
        wide = {"preferred_element_type": jnp.dtype(sums)}
        calls = {
            "dot_general": lambda p, w=wide: lax.dot_general(p, p, (((0,), (0,)), ((), ())), **w),
            "matmul": lambda p, w=wide: jnp.matmul(p.T, p, **w),
            "einsum": lambda p, w=wide: jnp.einsum("ki,kj->ij", p, p, **w),
            "tensordot": lambda p, w=wide: jnp.tensordot(p, p, ((0,), (0,)), **w),
            "batched": lambda p, w=wide: lax.dot_general(
                p.reshape(2, -1, 3), p.reshape(2, -1, 3), (((1,), (1,)), ((0,), (0,))), **w
            ).sum(axis=0),
        }
        for name, call in calls.items():
            same_as(np.asarray(jax.jit(call)(y)), wanted, f"{name} of {kind} in {sums}")
        mapped = jax.shard_map(
            lambda b, f=calls["matmul"]: lax.psum(f(b), a), mesh=mesh, in_specs=P(a), out_specs=P()
        )
        same_as(np.asarray(jax.jit(mapped)(y)), wanted, f"a sum over devices of {kind} in {sums}")
    return jax.jit(over(mesh, a))(x)


# The compiler, and names.


def _compiler_options(mesh, a, x):
    """Compiler options with jit and with compile: equal results and a separate program for each, and an error for an
    unknown option."""
    wanted = np.asarray(jax.jit(whole(mesh, a))(x))
    options: tuple[dict[str, Any], ...] = (
        {"xla_embed_ir_in_executable": True},
        {"xla_backend_optimization_level": 0},
        {"xla_embed_ir_in_executable": "False", "xla_backend_optimization_level": 1},
        {},
    )
    for chosen in options:
        run = jax.jit(whole(mesh, a), out_shardings=at(mesh, a), compiler_options=chosen)
        for _ in range(2):
            same_as(np.asarray(run(x)), wanted, f"a program compiled with {chosen}")
        ahead = jax.jit(over(mesh, a)).lower(x).compile(compiler_options=chosen)
        same_as(np.asarray(ahead(x)), wanted, f"a program compiled ahead with {chosen}")
    unknown = {"xla_no_such_option": True}
    lowered = jax.jit(over(mesh, a)).lower(x)
    for call in (
        lambda: jax.jit(whole(mesh, a), compiler_options=unknown)(x),
        lambda: lowered.compile(compiler_options=unknown),
    ):
        try:
            jax.block_until_ready(call())
        except Exception as error:
            wrong("xla_no_such_option" not in str(error), f"an unknown option is refused with: {error}")
        else:
            raise RuntimeError("an option that no compiler has is taken")
    return run(x)


def _names(mesh, a, x):
    """Names, inlined functions, barriers and platforms change neither values nor derivatives."""

    def same(y):
        named = jax.named_call(lambda b: 2 * b, name="twice")
        inlined = jax.jit(lambda b: 3 * b, inline=True)
        with jax.named_scope("outer"):
            p = named(y)
            with jax.named_scope("inner/of it"):
                q = jax.jit(jax.named_scope("three")(lambda b: inlined(b)))(y)
        kept, other = lax.optimization_barrier((p, q))
        here = lax.platform_dependent(y, cpu=lambda b: 5 * b, default=lambda b: 5 * b)
        slope = jax.grad(lambda b: (named(b) * lax.optimization_barrier(inlined(b))).sum())(y)
        rows = jax.vmap(lambda b: lax.optimization_barrier(named(b)))(y)
        return y + off((kept, 2 * y), (other, 3 * y), (here, 5 * y), (slope, 12 * y), (rows, 2 * y))

    with jax.named_scope("around"):
        return through(mesh, a, same)(x)


# Memory kinds, and host computation.


def memories(mesh):
    """Raise Missing if the devices cannot address host memory."""
    kinds = {m.kind for m in mesh.devices.flat[0].addressable_memories()}
    if "pinned_host" not in kinds or "device" not in kinds:
        raise Missing(
            f"the devices have the memories {', '.join(sorted(kinds))}, and not device and pinned_host"
        )


def _offloaded(mesh, a, x):
    """Residuals of a gradient are offloaded to host memory, by name or with products, and come back: alone, in a loop,
    and in a product."""
    from jax.ad_checkpoint import checkpoint_name

    memories(mesh)
    policies = jax.checkpoint_policies
    ways = {
        "one name": policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["kept"],
            names_which_can_be_offloaded=["away"],
            offload_src="device",
            offload_dst="pinned_host",
        ),
        "no name": policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=["kept", "away"],
            offload_src="device",
            offload_dst="pinned_host",
        ),
        "products": policies.offload_dot_with_no_batch_dims("device", "pinned_host"),
    }
    given = np.asarray(x)
    ones = np.ones((x.shape[1], 2), np.float32)

    def cubed(y):
        kept = checkpoint_name(y * y, "kept")
        return checkpoint_name(kept * y, "away")

    for name, policy in ways.items():
        cube = jax.checkpoint(cubed, policy=policy)
        found = jax.jit(jax.grad(lambda y, f=cube: f(y).sum()))(x)
        same_as(np.asarray(found), 3 * given**2, f"a gradient with {name} offloaded")
        wrong(found.sharding.memory_kind != x.sharding.memory_kind, "a gradient is in another memory")

        def looped(y, policy=policy):
            step = jax.checkpoint(lambda c, k: (checkpoint_name(k * c, "away"), c), policy=policy)
            return lax.scan(step, y, jnp.array([1.0, 2, 3]))[0].sum()

        same_as(np.asarray(jax.jit(jax.grad(looped))(x)), 0 * given + 6, f"a loop with {name} offloaded")
        squared = jax.checkpoint(lambda y: ((y @ ones) ** 2).sum(), policy=policy)
        slopes = 2 * np.tile(given.sum(axis=1, keepdims=True), (1, x.shape[1])) * 2
        same_as(np.asarray(jax.jit(jax.grad(squared))(x)), slopes, f"a product with {name} offloaded")
    return jax.jit(over(mesh, a))(x)


def _memory_inside(mesh, a, x):
    """Results, arguments and intermediate arrays in host memory: values, shardings and memory kinds are the requested
    ones."""
    memories(mesh)
    given = np.asarray(x)
    host, here = (NamedSharding(mesh, P(a), memory_kind=kind) for kind in ("pinned_host", "device"))
    columns = NamedSharding(mesh, P(None, a), memory_kind="pinned_host")

    def there_and_back(y):
        return jax.device_put(jax.device_put(2 * y, host), here) + 1

    same_as(np.asarray(jax.jit(there_and_back)(x)), 2 * given + 1, "an array that went to the host's memory")
    y = jax.jit(lambda y: 3 * y, out_shardings=host)(x)
    z = jax.device_put(y, columns)
    for array, place, wanted in ((y, host, 3 * given), (z, columns, 3 * given)):
        wrong(array.sharding.memory_kind != "pinned_host", f"{array.sharding} is another memory")
        wrong(not array.sharding.is_equivalent_to(place, 2), f"an array is placed as {array.sharding}")
        for shard in array.addressable_shards:
            same_as(np.asarray(shard.data), wanted[shard.index], f"the block of {shard.device}")
    back = jax.jit(lambda y: jax.device_put(y, here) - 1, in_shardings=host)(y)
    same_as(np.asarray(back), 3 * given - 1, "an argument in the host's memory")
    home = jax.device_put(y, here)
    same_as(np.asarray(home), 3 * given, "an array that came back")
    return jax.jit(over(mesh, a))(x)


def _memory_gradient(mesh, a, x):
    """The gradient of a compiled function through host memory."""
    memories(mesh)
    host, here = (NamedSharding(mesh, P(a), memory_kind=kind) for kind in ("pinned_host", "device"))

    def there_and_back(y):
        return jax.device_put(jax.device_put(2 * y, host), here)

    slope = jax.jit(jax.grad(lambda y: (there_and_back(y) * y).sum()))(x)
    same_as(np.asarray(slope), 4 * np.asarray(x), "the gradient of a way to the host's memory and back")
    return jax.jit(over(mesh, a))(x)


def on_host(f):
    """A function that runs on the host as a part of a program, with the `compute_on` of this release."""
    from jax.experimental import compute_on

    def as_context(y):
        with compute_on.compute_on("device_host"):
            return f(y)

    try:
        place = {"compute_type": "device_host", "out_memory_spaces": jax.memory.Space.Device}
        return compute_on.compute_on(f, **place)
    except TypeError:  # older releases have a context manager
        return as_context


def _computed_on(mesh, a, x):
    """A part of a program that runs on the host, inside jit and inside a loop."""

    def f(y):
        y = 3 * on_host(lambda b: b * 2)(y) - 5 * y
        y = lax.scan(lambda c, k: (on_host(lambda b: b + 1)(c) + k, None), y, jnp.array([1.0, 2]))[0] - 5
        return whole(mesh, a)(y)

    return jax.jit(f, out_shardings=at(mesh, a))(x)


# Ordered callbacks.


def _ordered(mesh, a, x):
    """Ordered callbacks in one call, from call to call, and in a loop. Each gets the whole sharded array."""
    from jax.experimental import io_callback

    seen: list[tuple[int, bool]] = []
    given = np.asarray(x)

    def note(number, y, times):
        seen.append((int(number), np.array_equal(y, times * given)))
        return np.float32(number)

    kind = jax.ShapeDtypeStruct((), jnp.float32)

    def f(y, start):
        first = io_callback(note, kind, start, y, 1, ordered=True)
        second = io_callback(note, kind, start + 1, 2 * y, 2, ordered=True)

        def step(i, c):
            return c + io_callback(note, kind, start + 2 + i, y, 1, ordered=True)

        third = lax.fori_loop(0, 3, step, jnp.float32(0))
        last = io_callback(note, kind, start + 5, 3 * y, 3, ordered=True)
        return whole(mesh, a)(y) + (first + second + third + last - 6 * start - 15)

    run = jax.jit(f, out_shardings=at(mesh, a))
    found = [run(x, np.int32(6 * i)) for i in range(3)]
    jax.effects_barrier()
    wrong([n for n, _ in seen] != [*range(18)], f"callbacks in order came as {[n for n, _ in seen]}")
    wrong(not all(right for _, right in seen), "a callback in order saw another array")
    return found[-1]


def _printed_in_order(mesh, a, x):
    """Ordered prints and callbacks of a program on one device come in order."""
    alone = jax.device_put(np.asarray(x)[0], mesh.devices.flat[-1])
    seen: list[int] = []

    def f(y):
        for k in range(3):
            jax.debug.print("line {k} of {n}", k=k, n=y.size, ordered=True)
            jax.debug.callback(lambda i: seen.append(int(i)), k, ordered=True)
        return y + 1

    with contextlib.redirect_stdout(io.StringIO()) as said:
        y = jax.jit(f)(alone)
        jax.effects_barrier()
    lines = [f"line {k} of {alone.size}" for k in range(3)]
    wrong(said.getvalue().split("\n")[:-1] != lines, f"lines in order came as {said.getvalue()!r}")
    wrong(seen != [0, 1, 2], f"calls in order came as {seen}")
    same_as(np.asarray(y), np.asarray(x)[0] + 1, "a result beside what is printed")
    return jax.jit(over(mesh, a))(x)


# Host arrays.


def unusual(given):
    """The host array `given` in unusual memory layouts, by name."""
    rows, columns = given.shape
    behind = b"\0" + given.tobytes()
    records = np.zeros((rows, columns), np.dtype([("skip", np.int8), ("value", given.dtype)]))
    records["value"] = given
    large = np.full((2 * rows, 3 * columns), 77, given.dtype)
    large[1::2, 2::3] = given
    fixed = given.copy()
    fixed.flags.writeable = False
    return {
        "read-only": fixed,
        "unaligned": np.frombuffer(behind, given.dtype, offset=1).reshape(given.shape),
        "a field of records": records["value"],
        "a part of another": large[1::2, 2::3],
        "backward": np.ascontiguousarray(given[::-1, ::-1])[::-1, ::-1],
        "columns first": np.asfortranarray(given),
        "transposed": np.ascontiguousarray(given.T).T,
        "windows": np.lib.stride_tricks.as_strided(given, given.shape, given.strides),
        "a subclass": given.view(np.matrix),
    }


def ways_onto(mesh, a):
    """Ways to put a host array on the mesh, by name."""
    place = at(mesh, a)
    return {
        "device_put": lambda h: jax.device_put(h, place),
        "jit": jax.jit(lambda y: 1 * y, out_shardings=place),
        "shard_map": jax.jit(jax.shard_map(lambda b: 1 * b, mesh=mesh, in_specs=P(a), out_specs=P(a))),
        "asarray": lambda h: jax.device_put(jnp.asarray(h), place),
        "array": lambda h: jnp.array(h, device=place),
        "a constant": lambda h: jax.jit(lambda: jnp.asarray(h) * 1, out_shardings=place)(),
        "a callback": lambda h: jax.make_array_from_callback(h.shape, place, lambda index: h[index]),
        "local data": lambda h: jax.make_array_from_process_local_data(place, h),
        "single devices": lambda h: jax.make_array_from_single_device_arrays(
            h.shape,
            place,
            [jax.device_put(h[i], d) for d, i in place.addressable_devices_indices_map(h.shape).items()],
        ),
    }


def _host_arrays(mesh, a, x):
    """Host arrays in every memory layout, by every way onto the mesh: equal values, and an unchanged source."""
    given = np.asarray(x)
    ways = ways_onto(mesh, a)
    for form, host in unusual(given).items():
        for way, put in ways.items():
            same_as(np.asarray(put(host)), given, f"{form}, by {way},")
            wrong(not np.array_equal(host, given), f"{form} is changed by {way}")
    for form, host in unusual(given.astype(np.int16)).items():
        same_as(np.asarray(ways["device_put"](host)), given.astype(np.int16), f"{form} of int16")
    row = np.broadcast_to(given[:1], given.shape)
    same_as(np.asarray(jax.device_put(row, at(mesh, a))), row, "a row that is repeated")
    return jax.jit(over(mesh, a))(jax.device_put(unusual(given)["a field of records"], at(mesh, a)))


def _byte_orders(mesh, a, x):
    """Host arrays in the other byte order: refused (TypeError) or put with equal values, by each way onto the mesh."""
    given = np.asarray(x)
    for kind in (">f4" if np.little_endian else "<f4", ">i2" if np.little_endian else "<i2"):
        host = given.astype(kind)
        for way, put in ways_onto(mesh, a).items():
            try:
                found = np.asarray(put(host))
            except TypeError:
                continue
            wrong(not np.array_equal(found, given), f"{kind} has other values by {way}")
    return jax.jit(over(mesh, a))(x)


SETTINGS: dict[str, Callable[..., Any]] = {
    "wide_context": _wide_context,
    "precision_context": _precision_context,
    "algorithms": _algorithms,
    "accumulators": _accumulators,
    "compiler_options": _compiler_options,
    "names": _names,
    "offloaded": _offloaded,
    "memory_inside": _memory_inside,
    "memory_gradient": _memory_gradient,
    "computed_on": _computed_on,
    "ordered": _ordered,
    "printed_in_order": _printed_in_order,
    "host_arrays": _host_arrays,
    "byte_orders": _byte_orders,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class ProgramSetting(ProgramForm):
    """One sharded program in each setting: widths, precision, compiler options, memory kinds, ordered callbacks, host
    arrays in every layout."""

    name = "program_setting"
    forms = SETTINGS

    @staticmethod
    def host(mesh, x, *, form, axis):
        return SETTINGS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
