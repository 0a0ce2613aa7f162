# SPDX-License-Identifier: Apache-2.0
"""Small rules: callbacks, copies and donation, loops that send, types of shapes that change, whole trees, settings,
arrays that a process makes, and generators."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback, multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, refused


def _callbacks(x, host):
    """Callbacks whose result nobody reads, or whose result is an array by columns, with gaps, or reversed."""
    n = len(host)
    seen = []

    def log(v):
        seen.append(float(v))
        return np.int32(0)

    for ordered in (False, True) if n == 1 else (False,):
        seen.clear()
        step = jax.jit(
            lambda x, o=ordered: (
                io_callback(log, jax.ShapeDtypeStruct((), jnp.int32), x.sum(), ordered=o),
                x * 2,
            )[1]
        )
        for _ in range(2):
            step(x).block_until_ready()
        jax.effects_barrier()
        expect(sorted(set(seen)), [float(host.sum())], "what a callback saw whose result is not used")
        wrong(len(seen) < 2, f"a callback whose result is not used was called {len(seen)} times in two steps")
    for name, function in (
        ("by columns", lambda v: np.asfortranarray(np.asarray(v) + 1)),
        ("transposed twice", lambda v: (np.asarray(v).T + 1).T),
        ("with gaps", lambda v: np.repeat(np.asarray(v) + 1, 2, 1)[:, ::2]),
        ("reversed", lambda v: (np.asarray(v)[::-1] + 1)[::-1]),
    ):
        called = jax.jit(
            lambda v, f=function: jax.pure_callback(f, jax.ShapeDtypeStruct(v.shape, v.dtype), v)
        )
        expect(np.asarray(called(x)), host + 1, f"the result of a callback {name}")
    turned = jax.jit(
        lambda v: jax.pure_callback(lambda v: np.asarray(v).T, jax.ShapeDtypeStruct((4, n), v.dtype), v)
    )
    expect(np.asarray(turned(x)), host.T, "the transposed result of a callback")


def _copies(x, host):
    """Copies whose original is donated, and numbers of donated arguments, also from the end."""
    for name, copy in (
        ("jnp.copy", jnp.copy),
        ("jnp.array", lambda v: jnp.array(v, copy=True)),
        ("x.copy", lambda v: v.copy()),
        ("device_put", lambda v: jax.device_put(v, v.sharding, may_alias=False)),
    ):
        original = x + 0
        other = copy(original)
        jax.jit(lambda v: v + 1, donate_argnums=0)(original).block_until_ready()
        expect(np.asarray(other), host, f"the result of {name} after its original is donated")
    for number, deleted in ((0, (True, False)), (1, (False, True)), (-1, (False, True)), (-2, (True, False))):
        a, b = x + 0, x + 1
        jax.jit(lambda a, b: a + b, donate_argnums=number)(a, b).block_until_ready()
        found = (a.is_deleted(), b.is_deleted())
        wrong(found == deleted[::-1], f"donate_argnums={number} of two arguments deletes {found}")


def _callbacks_and_copies(line, grid):
    """Callbacks, copies of a donated original, and compiled methods of objects."""
    host = mixed((line.size, 4), 9).astype(np.float32)
    x = placed(line, host, "d")
    _callbacks(x, host)
    _copies(x, host)

    class Layer:
        def __init__(self, factor):
            self.factor = factor

        def apply(self, v):
            return self.factor * v

    for factor in (2.0, 3.0, 2.0):
        expect(
            np.asarray(jax.jit(Layer(factor).apply)(x)),
            np.float32(factor) * host,
            f"a method of a layer of {factor}",
        )


def _loops_that_send(line, grid):
    """Loops of one to six steps, of known and unknown length, with a collective in their body."""
    n = line.size
    host = mixed((n, 3), 11).astype(np.float32)
    ring = [(k, (k + 1) % n) for k in range(n)]
    sends = {
        "ppermute": (lambda v: lax.ppermute(v, "d", ring), lambda h: np.roll(h, 1, 0)),
        "psum": (lambda v: lax.psum(v, "d") % 5 + 0 * v, lambda h: h.sum(0, keepdims=True) % 5 + 0 * h),
        "all_gather": (lambda v: lax.all_gather(v, "d")[-1] + v, lambda h: h[-1:] + h),
    }
    for name, (send, right) in sends.items():

        def turn(c, send=send):
            return send(c[0]), c[1] + c[0]

        def scanned(v, steps, turn=turn, unroll=1):
            return lax.scan(lambda c, _: (turn(c), None), (v, 0 * v), None, length=steps, unroll=unroll)[0][1]

        def repeated(v, steps, turn=turn):
            return lax.fori_loop(0, steps, lambda k, c: turn(c), (v, 0 * v))[1]

        def known(v, turn=turn):
            loops = [scanned(v, k) for k in range(1, 7)] + [repeated(v, k) for k in range(1, 7)]
            return jnp.stack([*loops, scanned(v, 5, unroll=2), scanned(v, 5, unroll=5)])

        def unknown(v, steps, turn=turn):
            return repeated(v, steps)

        answers, block, total = [], host, 0 * host
        for _ in range(6):
            total, block = total + block, right(block)
            answers.append(total)
        found = np.asarray(mapped(known, line, P("d"), P(None, "d"))(host))
        expect(
            found,
            np.stack([*answers, *answers, answers[4], answers[4]]).astype(np.float32),
            f"loops with {name}",
        )
        late = mapped(unknown, line, (P("d"), P()), P("d"))
        for steps in (1, 2, 5):
            expect(
                np.asarray(late(host, steps)),
                answers[steps - 1].astype(np.float32),
                f"{steps} steps with {name}",
            )


def _shapes_that_change(line, grid):
    """Types and numbers under Explicit axes after a dimension is dropped, added, split, joined or moved, and numbers
    made there."""
    n = line.size
    mesh = explicit(line)
    cube = mixed((1, 2 * n, 2 * n), 97, 7).astype(np.float32)
    short, long = np.arange(2 * n * n, dtype=np.float32), np.arange(4 * n * n, dtype=np.float32)
    with jax.set_mesh(mesh):
        x = jax.device_put(cube, P(None, None, "d"))
        y, z = jax.device_put(short, P("d")), jax.device_put(long, P("d"))
        rules = {
            "squeeze": (jnp.squeeze, x, P(None, "d"), cube[0]),
            "x[0]": (lambda v: v[0], x, P(None, "d"), cube[0]),
            "expand_dims": (lambda v: v[:, None], x, P(None, None, None, "d"), cube[:, None]),
            "expand_dims at the end": (lambda v: v[..., None], x, P(None, None, "d", None), cube[..., None]),
            "transpose": (
                lambda v: v.transpose(2, 0, 1),
                x,
                P("d", None, None),
                cube.transpose(2, 0, 1),
            ),
            "swapaxes": (lambda v: jnp.swapaxes(v, 1, 2), x, P(None, "d", None), cube.swapaxes(1, 2)),
            "moveaxis": (lambda v: jnp.moveaxis(v, 2, 0), x, P("d", None, None), np.moveaxis(cube, 2, 0)),
            "sum of the first": (lambda v: v.sum(0), x, P(None, "d"), cube.sum(0)),
            "sum of the second": (lambda v: v.sum(1), x, P(None, "d"), cube.sum(1)),
            "sum kept": (
                lambda v: v.sum(1, keepdims=True),
                x,
                P(None, None, "d"),
                cube.sum(1, keepdims=True),
            ),
            "largest": (lambda v: v.max((0, 1)), x, P("d"), cube.max((0, 1))),
            "split into the first": (lambda v: v.reshape(n, 2 * n), y, P("d", None), short.reshape(n, 2 * n)),
            "split into equal parts": (
                lambda v: v.reshape(2 * n, 2 * n),
                z,
                P("d", None),
                long.reshape(2 * n, 2 * n),
            ),
            "split further": (
                lambda v: v.reshape(n, 2, n),
                y,
                P("d", None, None),
                short.reshape(n, 2, n),
            ),
            "broadcast": (
                lambda v: jnp.broadcast_to(v, (3, *v.shape)),
                x,
                P(None, None, None, "d"),
                np.stack([cube] * 3),
            ),
            "astype": (lambda v: v.astype(jnp.int32), x, P(None, None, "d"), cube.astype(np.int32)),
            "reversed": (lambda v: v[:, ::-1], x, P(None, None, "d"), cube[:, ::-1]),
            "cumsum": (lambda v: jnp.cumsum(v, 1), x, P(None, None, "d"), np.cumsum(cube, 1)),
        }
        if n == 1:  # of an axis of one device, any dimension of size one may have it
            rules = {name: rule for name, rule in rules.items() if not name.startswith("split")}
        for name, (function, given, spec, right) in rules.items():
            found = jax.jit(function)(given)
            seen = jax.typeof(found).sharding.spec
            wrong(
                tuple(seen) + (None,) * (len(spec) - len(seen)) != tuple(spec),
                f"the type of {name} of {given.aval.sharding.spec} has the spec {seen} instead of {spec}",
            )
            expect(np.asarray(found), right, f"{name} of an array over {given.aval.sharding.spec}")
        made = {
            "arange": (lambda: jnp.arange(2 * n, out_sharding=P("d")), np.arange(2 * n, dtype=np.int32)),
            "iota": (
                lambda: lax.broadcasted_iota(jnp.int32, (2 * n, 3), 0, out_sharding=P("d", None)),
                np.arange(2 * n, dtype=np.int32)[:, None] + np.zeros(3, np.int32),
            ),
            "iota of columns": (
                lambda: lax.broadcasted_iota(jnp.int32, (3, 2 * n), 1, out_sharding=P(None, "d")),
                np.arange(2 * n, dtype=np.int32)[None] + np.zeros((3, 1), np.int32),
            ),
        }
        for name, (function, right) in made.items():
            for how, call in (("jitted", jax.jit(function)), ("eager", function)):
                expect(np.asarray(call()), right, f"{how} {name} along an Explicit axis")


def _trees_and_settings(line, grid):
    """Trees of several dtypes in one collective, arguments of custom rules that are not perturbed, checks for NaN."""
    n = line.size
    exact = {
        "float32": ((1 << 20) + np.arange(n)[:, None]).astype(np.float32),
        "bfloat16": np.resize(np.array([1, 2, 3], np.float32), (n, 1)).astype(jnp.bfloat16),
        "float16": np.resize(np.array([1, 0, 5], np.float32), (n, 1)).astype(np.float16),
        "int32": ((1 << 28) // n + np.arange(n)[:, None]).astype(np.int32),
        "int8": np.resize(np.array([3, -2], np.int8), (n, 1)),
    }
    sums = {k: v.astype(np.float64).sum(0, keepdims=True).astype(v.dtype) for k, v in exact.items()}
    largest = {k: v.max(0, keepdims=True) for k, v in exact.items()}
    found = jax.device_get(mapped(lambda t: (lax.psum(t, "d"), lax.pmax(t, "d")), line, P("d"), P())(exact))
    for k in exact:
        expect(found[0][k], sums[k], f"psum of a tree, its {k}")
        expect(found[1][k], largest[k], f"pmax of a tree, its {k}")
    told = []

    @jax.custom_vjp
    def product(x, y):
        return x * y

    def forward(x, y):
        told.append((x.perturbed, y.perturbed))
        return x.value * y.value, (x.value, y.value)

    product.defvjp(forward, lambda kept, ct: (ct * kept[1], ct * kept[0]), symbolic_zeros=True)
    x = placed(line, np.arange(float(n), dtype=np.float32), "d")
    for number, right in ((0, (True, False)), (1, (False, True)), ((0, 1), (True, True))):
        told.clear()
        jax.jit(jax.grad(lambda x, y: product(x, y).sum(), number))(x, x)
        expect(told, [right], f"which arguments a custom rule is told to differentiate, of {number}")
    for k in range(n):
        bad = np.ones(n, np.float32)
        bad[k] = 0
        with jax.debug_nans(True):
            refused(
                f"a NaN of device {k} under jax.debug_nans",
                "invalid value|nan",
                lambda bad=bad: np.asarray(jax.jit(lambda v: v / v)(placed(line, bad, "d"))),
            )
    refused(
        "the gradient of a loop of unknown length",
        "Reverse-mode differentiation",
        lambda: jax.jit(jax.grad(lambda v, k: lax.fori_loop(0, k, lambda i, c: c * 2, v).sum()))(x, 3),
    )
    for kind in (jnp.bfloat16, jnp.float16, jnp.int32):
        refused(
            f"a carry of {np.dtype(kind)} that becomes float32",
            "carry",
            lambda k=kind: jax.jit(lambda c, v: lax.scan(lambda c, v: (c + v, None), c, v)[0])(
                jnp.ones(n, k), x[None]
            ),
        )


def _process_arrays(line, grid):
    """Arrays that a process makes or gathers: orders of devices, of axes, and dtypes."""
    n, devices = line.size, line.devices.ravel()
    if jax.process_count() > 1:
        return  # each process would give its own part
    order = np.argsort(mixed((n,), 97, 41), kind="stable")
    turned = Mesh(devices[order], ("d",))
    host = np.arange(4.0 * n, dtype=np.float32)
    makers = {
        "host_local_array_to_global_array": lambda s: multihost_utils.host_local_array_to_global_array(
            host, s.mesh, s.spec
        ),
        "make_array_from_process_local_data": lambda s: jax.make_array_from_process_local_data(s, host),
        "make_array_from_callback": lambda s: jax.make_array_from_callback(host.shape, s, lambda i: host[i]),
        "device_put": lambda s: jax.device_put(host, s),
    }
    axes = (("x", "y"), ("y", "x"))
    shardings = [NamedSharding(turned, P("d")), *(NamedSharding(grid, P(a)) for a in axes)]
    shardings += [NamedSharding(grid, P("y")), NamedSharding(grid, P("x")), NamedSharding(turned, P())]
    for name, make in makers.items():
        for sharding in shardings:
            made = make(sharding)
            what = f"{name} over {sharding.spec} of {[d.id for d in sharding.mesh.devices.ravel()]}"
            expect(np.asarray(made), host, what)
            owned = sharding.devices_indices_map(host.shape)
            for shard in made.addressable_shards:
                expect(
                    np.asarray(shard.data), host[owned[shard.device]], f"{what} on device {shard.device.id}"
                )
    for kind in (jnp.bfloat16, np.float16, np.float32, np.int8, np.uint16, bool, np.complex64):
        part = (mixed((n,), 2)).astype(kind)
        expect(
            np.asarray(multihost_utils.process_allgather(placed(line, part, "d"), tiled=True)),
            part,
            f"process_allgather of {np.dtype(kind)}",
        )


def _generators(line, grid):
    """States of generators move on after every draw; the words of wide numbers and the parts of a mesh differ."""
    n = line.size
    state = np.array([1, 2, 3, 4], np.uint32)
    for algorithm in (lax.RandomAlgorithm.RNG_PHILOX, lax.RandomAlgorithm.RNG_DEFAULT):
        for size in (1, 2, 3, 4, 5, 7, 8 * n + 1):

            def draws(key, size=size, algorithm=algorithm):
                found = []
                for _ in range(3):
                    key, words = lax.rng_bit_generator(key, (size,), algorithm=algorithm)
                    found.append(words)
                return jnp.stack(found), key

            words, last = jax.device_get(jax.jit(draws)(placed(line, state)))
            what = f"three draws of {size} words by {algorithm}"
            wrong(len({row.tobytes() for row in words}) < 3, f"{what} repeat: {words}")
            wrong(np.array_equal(last, state), f"{what} leave the state as it was")
    for name in ("rbg", "unsafe_rbg", "threefry2x32"):
        key = jax.random.key(5, impl=name)
        for spec in (P("d"), P(None, "d")):
            made = jax.jit(
                lambda key=key: jax.random.bits(key, (8 * n, 8 * n)), out_shardings=NamedSharding(line, spec)
            )
            bits = np.asarray(made())
            for axis in (0, 1):
                parts = np.split(bits, n, axis)
                wrong(
                    len({p.tobytes() for p in parts}) < n, f"bits of {name} over {spec} repeat along {axis}"
                )
    with jax.enable_x64(True):
        for name in ("threefry2x32", "rbg"):
            key = jax.random.key(9, impl=name)
            wide = np.asarray(jax.jit(lambda key=key: jax.random.bits(key, (16 * n,), "uint64"))())
            for low in (0, 16, 32, 48):
                word = (wide >> np.uint64(low)) & np.uint64(0xFFFF)
                wrong(
                    len(set(word.tolist())) < 12 * n,
                    f"bits {low} to {low + 15} of uint64 of {name} repeat: {word}",
                )
            real = np.asarray(jax.jit(lambda key=key: jax.random.uniform(key, (16 * n,), "float64"))())
            fine = (real * 2.0**52).astype(np.uint64) & np.uint64(0xFFFF)
            wrong(len(set(fine.tolist())) < 12 * n, f"the last bits of float64 of {name} repeat: {fine}")


RULES_OF_PROGRAMS: dict[str, Callable[..., None]] = {
    "callbacks_and_copies": _callbacks_and_copies,
    "loops_that_send": _loops_that_send,
    "shapes_that_change": _shapes_that_change,
    "trees_and_settings": _trees_and_settings,
    "process_arrays": _process_arrays,
    "generators": _generators,
}
