# SPDX-License-Identifier: Apache-2.0
"""Small rules of derivatives and references, from real reports: in host memory, through references and parts of them,
in batches, of sums and gathers, and what a checkpoint keeps. The docstring of each rule has the number of its report.
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
from jax.ad_checkpoint import print_saved_residuals
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.base import explicit, memory_kinds
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.hosts import on_each_device

WAYS: tuple[tuple[str, Callable[[Any], Any]], ...] = (("compiled", jax.jit), ("eager", lambda f: f))


def typed_as(found: jax.Array, spec: P, right: np.ndarray, what: str) -> None:
    """The type of a result names its axes, and each device holds its part of the written answer."""
    expect(found.shape, right.shape, f"the shape of {what}")
    named = tuple(jax.typeof(found).sharding.spec)
    rest = (None,) * (right.ndim - len(spec))
    expect(named, (*spec, *rest), f"the type of {what}")
    on_each_device(found, right, what)


def _gradients_in_host_memory(line, grid):
    """Gradients by an array in host memory (beside jax#34041): of functions that move it, and that do not."""
    memory_kinds(line)
    host = (mixed((2 * line.size,), 9, 4) - 4).astype(np.float32)
    for spec in (P("d"), P()):
        there = NamedSharding(line, spec, memory_kind="pinned_host")
        here = NamedSharding(line, spec)
        x = jax.device_put(host, there)

        def moved(v: Any, here: Any = here) -> Any:
            return (jax.device_put(v, here) ** 2).sum()

        on_each_device(
            jax.jit(jax.grad(moved))(x), 2 * host, f"the slope of a moved array over {spec}, compiled"
        )
        found, back = jax.vjp(lambda v: v * 2, x)
        on_each_device(found, 2 * host, f"twice an array over {spec} in host memory")
        kind = found.sharding.memory_kind
        ones = jax.device_put(np.ones_like(host), NamedSharding(line, spec, memory_kind=kind))
        on_each_device(
            back(ones)[0], np.full_like(host, 2), f"the pullback of twice an array over {spec} there"
        )
    for spec in (P("d"), P()):
        x = jax.device_put(host, NamedSharding(line, spec, memory_kind="pinned_host"))
        for name, way in WAYS:
            square = way(lambda v: (v * v).sum())
            what = f"an array over {spec} in host memory, {name}"
            on_each_device(square(x), np.square(host).sum(dtype=np.float32), f"the squares of {what}")
    for spec in (P("d"), P()):  # last: JAX breaks it
        x = jax.device_put(host, NamedSharding(line, spec, memory_kind="pinned_host"))
        for name, way in WAYS:
            found = way(jax.grad(lambda v: (v * v).sum()))(x)
            on_each_device(found, 2 * host, f"the slope of the squares of an array over {spec} there, {name}")


def _gradients_of_sliced_references(line, grid):
    """Gradients through parts of a cut reference over Explicit axes, by index and by `.at`: the rest of a report whose
    fix was for a part along a dimension that is not cut."""
    n = 2 * line.size
    host = (mixed((n, 2), 9, 4) - 4).astype(np.float32)

    def indexed(v: Any) -> Any:
        ref = jax.new_ref(jnp.ones_like(v))
        ref[:, 0:1] += v[:, 1:] * 3
        ref[:, 1:] += v[:, :1]
        return (ref[...] * ref[...]).sum()

    def viewed(v: Any) -> Any:
        ref = jax.new_ref(jnp.ones_like(v))
        ref[:, 0:1] += v[:, 1:] * 3
        ref.at[:, 1:][...] += v[:, :1]
        return (ref[...] * ref[...]).sum()

    def read(v: Any) -> Any:
        ref = jax.new_ref(v)
        return (ref.at[:, 1:][...] * ref[:, :1]).sum()

    first, second = 1 + 3 * host[:, 1], 1 + host[:, 0]
    right = np.stack([2 * second, 6 * first], 1)
    turned = host[:, ::-1]
    with jax.set_mesh(explicit(line)):
        x = jax.device_put(host, P("d"))
        ways: dict[str, Callable[[Any], Any]] = {
            "compiled inside": lambda f: jax.grad(jax.jit(f)),
            "compiled inside and outside": lambda f: jax.jit(jax.grad(jax.jit(f))),
        }
        for name, way in ways.items():
            typed_as(way(indexed)(x), P("d"), right, f"the slope of a sum into indexed parts, {name}")
            typed_as(way(viewed)(x), P("d"), right, f"the slope of a sum into views, {name}")
            typed_as(way(read)(x), P("d"), turned, f"the slope of a read of a view, {name}")
        typed_as(jax.jit(jax.grad(indexed))(x), P("d"), right, "the slope of a sum into indexed parts")
        for call, answer in ((read, turned), (viewed, right)):  # last: JAX breaks it
            typed_as(
                jax.jit(jax.grad(call))(x), P("d"), answer, f"the slope of a view that is {call.__name__}"
            )


def _gradients_written_into_references(line, grid):
    """Gradients that a pullback adds to references of the user (jax#32468): of a scan, over Explicit axes."""
    n, turns = line.size, 3
    weights = (mixed((turns, 2 * n, 2 * n), 3, 2) - 1).astype(np.float32)
    start = (np.arange(2 * n) % 3 - 1).astype(np.float32)
    along = [start]
    for w in weights:
        along.append(along[-1] @ w)
    back = [np.ones(2 * n, np.float32)]
    for w in weights[::-1]:
        back.append(w @ back[-1])
    by_weights = np.stack([np.outer(along[k], back[turns - 1 - k]) for k in range(turns)])

    vjp: Any = jax.vjp  # its types do not tell of with_refs

    def run(w: Any, v: Any) -> Any:
        def turn(c: Any, m: Any) -> Any:
            return jnp.einsum("i,ij->j", c, m, out_sharding=P()), None

        return lax.scan(turn, v, w)[0].sum()

    with jax.set_mesh(explicit(line)):
        for spec in (P(None, None, "d"), P(None, "d")):
            w, v = jax.device_put(weights, spec), jax.device_put(start, P())
            found, pull = vjp(run, w, v)
            if not hasattr(pull, "with_refs"):
                raise Missing("the pullbacks of this release take no references")
            on_each_device(found, along[-1].sum(), f"a scan of products over {spec}")
            refs = [jax.new_ref(jnp.zeros_like(a)) for a in (w, v)]
            given = jnp.ones((), np.float32)
            what = f"in a reference, of a scan of weights over {spec}"
            pull.with_refs(*refs)(given)
            typed_as(refs[0][...], P(*spec), by_weights, f"the slope by the weights {what}")
            typed_as(refs[1][...], P(None), back[-1], f"the slope by the start {what}")
            _, pull = vjp(run, w, v)
            pull.with_refs(*refs)(3 * given)  # added to what is there
            on_each_device(refs[0][...], 4 * by_weights, f"the sum of two slopes by the weights {what}")
            on_each_device(refs[1][...], 4 * back[-1], f"the sum of two slopes by the start {what}")
            inside = jax.new_ref(jnp.zeros_like(w))

            @jax.jit
            def step(w: Any, v: Any, ref: Any = inside) -> Any:
                # A pullback that is compiled adds to the reference that it closes over.
                _, pull = vjp(lambda w: run(w, v), w)
                pull.with_refs(ref)(jnp.ones((), np.float32))

            step(w, v)
            step(w, v)
            on_each_device(inside[...], 2 * by_weights, f"the slope of two steps {what}")


def _references_batched_along_others(line, grid):
    """Batches along the second dimension of a reference (jax#39288): reads, writes and sums."""
    n = 2 * line.size
    host = (mixed((n, 5), 97, 7) - 40).astype(np.float32)

    def write(ref: Any, v: Any) -> None:
        ref[...] = v * 2

    def add(ref: Any, v: Any) -> None:
        ref[...] += v

    def replace(ref: Any, v: Any) -> Any:
        return jax.ref.swap(ref, ..., v) + 1

    def part(ref: Any, v: Any) -> None:
        ref[1:3] += v[1:3] * 5

    with jax.set_mesh(explicit(line)):
        for rows in (P("d"), P(None, None)):
            x = jax.device_put(host, rows)
            for name, way in WAYS:
                # first along the dimension that every release batches
                ref = jax.new_ref(jax.device_put(np.zeros_like(host), rows))
                way(lambda v, r=ref: jax.vmap(write)(r, v))(x)
                typed_as(ref[...], rows if "d" in rows else P(), 2 * host, f"a batch along the rows, {name}")
        for rows, columns in ((P("d"), P(None, "d")), (P(None, None), P(None, None))):
            x = jax.device_put(host, rows)
            for name, way in WAYS:

                def run(call: Any, ref: Any, way: Any = way, x: Any = x) -> Any:
                    return way(lambda v: jax.vmap(call, in_axes=(1, 0))(ref, v))(x)

                what = f"along the columns of a reference over {columns}, {name}"
                ref = jax.new_ref(jax.device_put(np.zeros_like(host.T), columns))
                run(write, ref)
                typed_as(ref[...], columns, 2 * host.T, f"a batch of writes {what}")
                run(add, ref)
                typed_as(ref[...], columns, 3 * host.T, f"a batch of sums {what}")
                old = run(replace, ref)
                on_each_device(old, 3 * host + 1, f"a batch of what was there {what}")
                typed_as(ref[...], columns, host.T, f"a batch of exchanges {what}")
                run(part, ref)
                right = host.T.copy()
                right[1:3] *= 6
                typed_as(ref[...], columns, right, f"a batch of sums into parts {what}")


def _gradients_of_references_set_to_constants(line, grid):
    """Gradients through a reference that is set to a constant, over Explicit axes (jax#33987)."""
    n = 2 * line.size
    host = (mixed((n,), 9, 4) - 4).astype(np.float32)

    def kept(v: Any) -> Any:
        ref = jax.new_ref(jnp.ones_like(v))
        ref[...] += v * v
        return ref[...].sum()

    def again(v: Any) -> Any:
        ref = jax.new_ref(v)
        before = ref[...]
        ref[...] = jnp.full_like(v, 3)
        ref[...] = ref[...] * v
        return (before * ref[...]).sum()

    def constant(v: Any) -> Any:
        ref = jax.new_ref(v)
        before = ref[...]
        ref[...] = jnp.full_like(v, 2)
        return (before * ref[...]).sum()

    def frozen(v: Any) -> Any:
        ref = jax.new_ref(v)
        before = ref[...]
        ref[...] = jnp.full_like(v, 2)
        return (before * jax.freeze(ref)).sum()

    def lost(v: Any) -> Any:
        ref = jax.new_ref(v * v)
        ref[...] = jnp.full_like(v, 2)
        return (ref[...] * v).sum()

    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "added to a constant": (kept, 2 * host),
        "whose value is lost": (lost, np.full(n, 2, np.float32)),
        "set to a constant and read": (constant, np.full(n, 2, np.float32)),  # from here 0.10 breaks it
        "set to a constant and frozen": (frozen, np.full(n, 2, np.float32)),
        "set to a constant and then to a product": (again, 6 * host),
    }
    with jax.set_mesh(explicit(line)):
        for spec in (P("d"), P(None)):
            x = jax.device_put(host, spec)
            for name, (call, right) in calls.items():
                what = f"the slope through a reference over {spec} that is {name}"
                typed_as(jax.jit(jax.grad(call))(x), spec, right, what)
                typed_as(jax.grad(jax.jit(call))(x), spec, right, f"{what}, compiled inside")


def _second_derivatives_of_summed_gradients(line, grid):
    """Derivatives of a psum of gradients of which some are zero (jax#3651): in pmap, shard_map and a named batch."""
    n = line.size
    a, b = np.arange(1, n + 1, dtype=np.float32), 2 - np.arange(n, dtype=np.float32)

    def inner(m: Any, p: Any) -> Any:
        summed = lax.psum(jax.grad(lambda q: (m * q[1] * q[0]).sum())(p), "i")
        return ((p[0] + summed[0]) * p[1]).sum()

    def outer(p: Any) -> Any:
        return jax.grad(inner)(jnp.float32(4), p)

    def unused(p: Any) -> Any:
        # The gradient by the first is used and that by the second is zero.
        def some(m: Any) -> Any:
            summed = lax.psum(jax.grad(lambda q: (m * q[0] ** 2).sum())(p), "i")
            return (summed[0] * p[1] + summed[1]).sum()

        return jax.grad(some)(jnp.float32(4))

    # d/dm of b_i (a_i + sum_j m_j b_j), whose pullback adds up the b_i of all devices
    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "a product": (outer, b * b.sum()),
        "a square": (unused, 2 * a * b.sum()),
    }
    for name, (call, right) in calls.items():
        what = f"the second derivative of a sum of gradients of {name}"
        given = (a[:, None], b[:, None])
        found = jax.vmap(call, axis_name="i")(given)
        expect(np.asarray(found), right, f"{what}, in a batch")
        run = jax.shard_map(
            lambda p, call=call: call((p[0][0], p[1][0]))[None],
            mesh=jax.sharding.Mesh(line.devices, ("i",)),
            in_specs=P("i"),
            out_specs=P("i"),
            check_vma=False,
        )
        on_each_device(jax.jit(run)(given), right, f"{what}, in a shard_map")
        if jax.process_count() == 1:
            found = jax.pmap(call, axis_name="i", devices=list(line.devices.flat))(given)
            on_each_device(found, right, f"{what}, in pmap")


def _gradient_of_gathered_in_a_batch(line, grid):
    """Gradients of an all_gather that is read at places outside of the batch (jax#7965), in a batch and in pmap."""
    n = line.size
    places = np.array([0, 0, n - 1, n // 2, 0, n - 1], np.int32)
    host = np.arange(1, n + 1, dtype=np.float32)
    weights = np.array([1, -2, 3, 5, 7, -11], np.float32)
    linear, squares = np.zeros(n, np.float32), np.zeros(n, np.float32)
    for k, w in zip(places, weights, strict=True):
        linear[k] += n * w
        squares[k] += n * w * 2 * host[k]

    def first(v: Any, k: Any) -> Any:
        return (lax.all_gather(v, "i")[k] * weights).sum()

    def second(v: Any, k: Any) -> Any:
        return (lax.all_gather(v, "i")[k] ** 2 * weights).sum()

    for name, call, right in (("itself", first, linear), ("its square", second, squares)):
        slope = jax.grad(call)
        what = f"the slope of {name} of a gathered array"
        for way, run in WAYS:
            found = run(jax.vmap(slope, in_axes=(0, None), axis_name="i"))(placed(line, host, "d"), places)
            expect(np.asarray(found), right, f"{what}, in a batch, {way}")
        if jax.process_count() == 1:
            mapped = jax.pmap(slope, in_axes=(0, None), axis_name="i", devices=list(line.devices.flat))
            on_each_device(mapped(host, places), right, f"{what}, in pmap")


def _gathered_values_are_not_saved(line, grid):
    """A checkpoint of a region that gathers keeps the blocks alone: one residual, that of the argument."""
    n = line.size
    host = (np.arange(2 * n) - 3).astype(np.float32)

    def gathered(v: Any) -> Any:
        return lax.all_gather(v, "d") * lax.all_gather(v, "d")

    def summed(v: Any) -> Any:
        return v * jnp.sin(lax.all_gather(v, "d", tiled=True)).sum()

    for name, body in (("gathers", gathered), ("sums", summed)):
        for checked in (True, False):
            region = jax.shard_map(body, mesh=line, in_specs=P("d"), out_specs=P("d"), check_vma=checked)
            ways: dict[str, Any] = {
                "region": jax.checkpoint(region),
                "jitted region": jax.checkpoint(jax.jit(region)),
            }
            for kind, run in ways.items():
                told = io.StringIO()
                with contextlib.redirect_stdout(told):
                    print_saved_residuals(run, placed(line, host, "d"))
                kept = [row for row in told.getvalue().splitlines() if row.strip()]
                what = f"the residuals of a {kind} that {name}, check_vma={checked},"
                wrong(len(kept) != 1, f"{what} are {'; '.join(kept)}"[:500])
                wrong(f"[{2 * n}]" not in kept[0], f"{what} have another shape: {kept[0][:200]}")
    for checked in (True, False):
        region = jax.shard_map(gathered, mesh=line, in_specs=P("d"), out_specs=P("d"), check_vma=checked)
        found = jax.jit(jax.grad(lambda v, r=region: jax.checkpoint(r)(v).sum()))(placed(line, host, "d"))
        on_each_device(found, 2 * n * host, f"the slope of a checkpoint that gathers, check_vma={checked}")


RULES_OF_REPORTED_SLOPES: dict[str, Callable[..., None]] = {
    "gradients_in_host_memory": _gradients_in_host_memory,
    "gradients_of_sliced_references": _gradients_of_sliced_references,
    "gradients_written_into_references": _gradients_written_into_references,
    "references_batched_along_others": _references_batched_along_others,
    "gradients_of_references_set_to_constants": _gradients_of_references_set_to_constants,
    "second_derivatives_of_summed_gradients": _second_derivatives_of_summed_gradients,
    "gradient_of_gathered_in_a_batch": _gradient_of_gathered_in_a_batch,
    "gathered_values_are_not_saved": _gathered_values_are_not_saved,
}
