# SPDX-License-Identifier: Apache-2.0
"""Small rules: programs that send nothing, programs that are stored, and collectives over groups in any order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.stats
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device

SENDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
SPECS = (P("x"), P(("x", "y")), P(("y", "x")))


def _send_nothing(mesh: Any, functions: dict[str, tuple[Callable[..., Any], np.ndarray]]) -> None:
    """RuntimeError if a function of an array that is cut along its first dimension compiles to a collective."""
    for spec in SPECS:
        place = NamedSharding(mesh, spec)
        for name, (f, given) in functions.items():
            x = jax.ShapeDtypeStruct(given.shape, given.dtype, sharding=place)
            text = jax.jit(f).lower(x).compile().as_text() or ""
            sends = [w for w in SENDS if w in text]
            wrong(bool(sends), f"{name} of an array over {spec} sends data by {', '.join(sends)}")


def _silent(line, grid):
    """Functions along dimensions that are not cut, and constraints to where an array lies: they send nothing. (A top_k
    does on CPU; the operation `top_k` publishes that.)"""
    n = grid.size
    host = np.zeros((n, 4, 8), np.float32)
    functions: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
        "sort": (lambda v: jnp.sort(v, -1), host),
        "argsort": (lambda v: jnp.argsort(v, 1), host),
        "cumsum": (lambda v: jnp.cumsum(v, 1), host),
        "cumlogsumexp": (lambda v: lax.cumlogsumexp(v, 2), host),
        "softmax": (lambda v: jax.nn.softmax(v, -1), host),
        "a reduction": (lambda v: v.max(2), host),
        "a window": (lambda v: lax.reduce_window(v, -np.inf, lax.max, (1, 2, 2), (1, 1, 1), "SAME"), host),
        "a pad": (lambda v: jnp.pad(v, ((0, 0), (1, 1), (0, 2))), host),
        "a slice": (lambda v: v[:, 1:3, ::2], host),
        "a roll": (lambda v: jnp.roll(v, 1, 2), host),
        "rows": (lambda v: v[:, np.array([1, 0, 1])], host),
        "written rows": (lambda v: v.at[:, np.array([1, 0])].set(2), host),
        "an update": (lambda v: lax.dynamic_update_slice(v, v[:, :1], (0, 2, 0)), host),
        "a product": (lambda v: jnp.einsum("bij,bkj->bik", v, v), host),
        "a solve": (lambda v: jnp.linalg.solve(jnp.eye(4) + v[:, :, :4], v), host),
        "a convolution": (
            lambda v: lax.conv_general_dilated(v[:, None], jnp.ones((1, 1, 2, 2)), (1, 1), "SAME"),
            host,
        ),
        "a scan": (lambda v: lax.scan(lambda c, r: (c + r, c), 0 * v[:, 0], v.swapaxes(0, 1))[1], host),
        "reversed": (lambda v: v[:, ::-1, ::-1], host),
    }
    _send_nothing(grid, functions)
    for spec in SPECS:
        place = NamedSharding(grid, spec)
        held = jax.jit(lambda v, s=place: lax.with_sharding_constraint(2 * v, s) + 1, out_shardings=place)
        text = held.lower(jax.ShapeDtypeStruct(host.shape, host.dtype, sharding=place)).compile().as_text()
        wrong(any(w in text for w in SENDS), f"a constraint to {spec} of an array over {spec} sends data")


def _silent_transforms(line, grid):
    """Fourier transforms along dimensions that are not cut: they send nothing."""
    n = grid.size
    host, wave = np.zeros((n, 4, 8), np.float32), np.zeros((n, 4, 8), np.complex64)
    transforms = {"fft": (jnp.fft.fft, wave), "fft2": (jnp.fft.fft2, wave), "rfft": (jnp.fft.rfft, host)}
    _send_nothing(grid, transforms)


def _exported(line):
    """A program that is exported and read back, and its gradient."""
    from jax import export

    n = line.size
    a = (mixed((2 * n,), 5) + 1).astype(np.float32)
    b = (mixed((2 * n,), 7, 3) + 1).astype(np.float32)
    there = NamedSharding(line, P("d"))
    given = [jax.device_put(v, there) for v in (a, b)]
    exported = export.export(
        jax.jit(lambda a, b: a * a * b, in_shardings=(there, there), out_shardings=there)
    )
    again = export.deserialize(exported(*given).serialize(vjp_order=2))
    expect(np.asarray(jax.jit(again.call)(*given)), a * a * b, "an exported product")
    slopes = jax.jit(jax.grad(lambda a, b: again.call(a, b).sum(), (0, 1)))(*given)
    for found, right in zip(slopes, (2 * a * b, a * a), strict=True):
        expect(np.asarray(found), right, "the gradient of an exported product")


def _kinds_of_memory(line):
    """The kinds of memory of an exported program, and of a second result."""
    from jax import export

    n = line.size
    host = (mixed((2 * n,), 5) + 1).astype(np.float32)
    there = NamedSharding(line, P("d"))
    kinds = {m.kind for m in line.devices.flat[0].addressable_memories()}
    for kind in sorted(kinds & {"device", "pinned_host"}):
        for spec in (P(), P("d")):
            place = NamedSharding(line, spec, memory_kind=kind)
            run = jax.jit(lambda v: v, in_shardings=place, out_shardings=place)
            stored = export.export(run)(jax.ShapeDtypeStruct((2 * n,), np.float32))
            for one in (stored, export.deserialize(stored.serialize())):
                for side in (one.in_shardings_jax(line), one.out_shardings_jax(line)):
                    seen = side[0].memory_kind or "device"
                    wrong(seen != kind, f"an exported program over {spec} in {kind} says {seen}")
            pair = jax.jit(lambda v: (v, 2 * v), out_shardings=(there, place))(jax.device_put(host, there))
            wrong(
                pair[1].sharding.memory_kind != kind,
                f"the second result, asked for in {kind}, is in {pair[1].sharding}",
            )
            expect(np.asarray(pair[1]), 2 * host, f"the second result in {kind}")


def _compiled_elsewhere(line):
    """A compiled program refuses arguments that lie otherwise, or over other devices."""
    n = line.size
    if n == 1:
        return
    square = mixed((2 * n, 2 * n), 9).astype(np.float32)
    compiled = jax.jit(lambda v: v + 1).lower(placed(line, square, "d")).compile()
    for spec in (P(None, "d"), P()):
        refused(
            f"a compiled program's argument over {spec} instead of ('d',)",
            "(?i)sharding|compiled",
            lambda spec=spec: compiled(placed(line, square, *spec)),
        )
    turned = jax.sharding.Mesh(line.devices.ravel()[::-1], ("d",))
    refused(
        "a compiled program's argument over other devices",
        "(?i)sharding|compiled|device",
        lambda: compiled(placed(turned, square, "d")),
    )


def _kept_axes(grid):
    """Over Explicit axes the results of functions along other dimensions keep the axis of the first, and are right."""
    typed = explicit(grid)
    host = mixed((2 * grid.size, 8, 4), 97, 7).astype(np.float32)
    written = host.copy()
    written[:, 0] = 1
    with jax.set_mesh(typed):
        x = placed(typed, host, "x")
        members = {
            "a slice with a stride": (lambda v: lax.slice(v, (0, 0, 0), v.shape, (1, 2, 1)), host[:, ::2]),
            "every second": (lambda v: v[:, ::2], host[:, ::2]),
            "a slice": (lambda v: v[:, 1:3], host[:, 1:3]),
            "a reversal": (lambda v: v[:, ::-1], host[:, ::-1]),
            "a pad": (
                lambda v: jnp.pad(v, ((0, 0), (1, 1), (0, 0))),
                np.pad(host, ((0, 0), (1, 1), (0, 0))),
            ),
            "a sum": (lambda v: v.sum(1), host.sum(1)),
            "a maximum": (lambda v: v.max(2), host.max(2)),
            "a sort": (lambda v: jnp.sort(v, 1), np.sort(host, 1)),
            "a cumulative sum": (lambda v: jnp.cumsum(v, 1), np.cumsum(host, 1)),
            "a cast": (lambda v: v.astype(jnp.bfloat16), host.astype(jnp.bfloat16)),
            "a comparison": (lambda v: v > 40, host > 40),
            "a join": (lambda v: jnp.concatenate([v, v], 1), np.concatenate([host, host], 1)),
            "a repetition": (lambda v: jnp.repeat(v, 2, 1), np.repeat(host, 2, 1)),
            "a broadcast": (
                lambda v: jnp.broadcast_to(v[:, None], (v.shape[0], 3, *v.shape[1:])),
                np.repeat(host[:, None], 3, 1),
            ),
            "a transpose": (lambda v: v.swapaxes(1, 2), host.swapaxes(1, 2)),
            "an index": (lambda v: v[:, 0], host[:, 0]),
            "an update": (lambda v: v.at[:, 0].set(1), written),
            "a product": (lambda v: v @ jnp.ones((4, 3)), np.repeat(host.sum(2, keepdims=True), 3, 2)),
            "a vmap": (jax.vmap(lambda r: r * 2), 2 * host),
        }
        for name, (f, right) in members.items():
            found = jax.jit(f)(x)
            spec = found.sharding.spec
            wrong(not len(spec) or spec[0] != "x", f"{name} of an array over ('x',) lies over {spec}")
            expect(np.asarray(found), right, f"{name} of an array over an Explicit axis")
        spec = jax.jit(lambda v: jnp.fft.fft(v, axis=1))(x).sharding.spec
        wrong(not len(spec) or spec[0] != "x", f"a transform of an array over ('x',) lies over {spec}")


def _ambiguous_products(grid):
    """Over Explicit axes a batched product along a dimension that both arrays cut is refused."""
    typed = explicit(grid)
    if typed.shape["x"] == 1:
        return
    size = 2 * grid.size
    with jax.set_mesh(typed):
        one = placed(typed, np.ones((2, 3, size), np.float32), None, None, "x")
        other = placed(typed, np.ones((2, size, 3), np.float32), None, "x", None)
        for name, f in (("matmul", jnp.matmul), ("einsum", partial(jnp.einsum, "bij,bjk->bik"))):
            what = f"a batched {name} along a dimension that both arrays cut"
            refused(what, "(?i)ambiguous", lambda f=f: jax.jit(f)(one, other))


def _stored(line, grid):
    """Exported and compiled programs, and the types and refusals of Explicit axes."""
    _exported(line)
    _kinds_of_memory(line)
    _compiled_elsewhere(line)
    _kept_axes(grid)
    _ambiguous_products(grid)


def _grouped(line: Any, host: np.ndarray) -> None:
    """Collectives over groups of the devices, in ascending and in any other order."""
    n, half = line.size, line.size // 2
    wide = mixed((n, 2 * half), 97, 7).astype(np.int32)
    groupings = {
        "halves": [list(range(half)), list(range(half, n))],
        "reversed halves": [list(range(half))[::-1], list(range(half, n))[::-1]],
        "even and odd": [list(range(0, n, 2)), list(range(1, n, 2))[::-1]],
        "mixed": [[half, *range(half - 1)], [n - 1, *range(half + 1, n - 1), half - 1]],
    }
    for name, groups in groupings.items():
        of = {d: group for group in groups for d in group}
        own = {d: slice(2 * of[d].index(d), 2 * of[d].index(d) + 2) for d in range(n)}
        options = {"axis_index_groups": groups}
        calls: dict[str, tuple[Callable[..., Any], np.ndarray, list[np.ndarray]]] = {
            "all_gather": (
                partial(lax.all_gather, axis_name="d", tiled=True),
                host,
                [host[of[d]] for d in range(n)],
            ),
            "psum": (
                partial(lax.psum, axis_name="d"),
                host,
                [host[of[d]].sum(0, dtype=np.int32)[None] for d in range(n)],
            ),
            "psum_scatter": (
                partial(lax.psum_scatter, axis_name="d", scatter_dimension=1, tiled=True),
                wide,
                [wide[of[d]].sum(0, dtype=np.int32)[None, own[d]] for d in range(n)],
            ),
            "all_to_all": (
                partial(lax.all_to_all, axis_name="d", split_axis=1, concat_axis=1, tiled=True),
                wide,
                [wide[of[d], own[d]].reshape(1, -1) for d in range(n)],
            ),
        }
        for what, (call, given, right) in calls.items():
            run = mapped(lambda b, f=call, o=options: f(b, **o), line, P("d"), P("d"), check_vma=False)
            on_each_device(run(given), np.concatenate(right), f"{what} in {name}")


def _collective_edges(line, grid):
    """Groups in any order, sums of many whole numbers, weakly typed numbers, and marks of a second result."""
    n = line.size
    host = mixed((n, 4), 97, 7).astype(np.int32)
    if n % 2 == 0 and n > 2:
        _grouped(line, host)
    for kind in (np.int32, np.uint32, np.int16, np.float32):
        many = mixed((n, 40_000), 97, 7).astype(kind)
        for name, total, right in (
            ("psum", lax.psum, many.sum(0, keepdims=True, dtype=kind)),
            ("pmax", lax.pmax, many.max(0, keepdims=True)),
            ("pmin", lax.pmin, many.min(0, keepdims=True)),
        ):
            run = mapped(lambda b, f=total: f(b, "d"), line, P("d"), P())
            on_each_device(run(many), right, f"{name} of 40,000 {np.dtype(kind).name}")
    halves = np.ones((n, 2), jnp.bfloat16)
    for name, call in (("psum", lax.psum), ("pmax", lax.pmax), ("pmin", lax.pmin), ("pmean", lax.pmean)):

        def typed(b, f=call):
            one = f(2.0, "d")
            return b * one

        seen = jax.eval_shape(mapped(typed, line, P("d"), P("d")), halves).dtype
        wrong(seen != jnp.bfloat16, f"{name} of a Python number makes {seen} of bfloat16")
    for results in (2, 3):
        for bad in range(results):
            if n == 1:
                break

            def body(b, bad=bad, results=results):
                return tuple(b if k == bad else lax.psum(b, "d") for k in range(results))

            refused(
                f"result {bad + 1} of {results} that varies and has the spec P()",
                "(?i)replicat|vary",
                lambda body=body, results=results: mapped(body, line, P("d"), (P(),) * results)(host),
            )


RULES_OF_STORAGE: dict[str, Callable[..., None]] = {
    "silent": _silent,
    "silent_transforms": _silent_transforms,
    "stored": _stored,
    "collective_edges": _collective_edges,
}
