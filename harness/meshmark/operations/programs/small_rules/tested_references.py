# SPDX-License-Identifier: Apache-2.0
"""Small rules of references that regions, scans, rules of the user and checkpoints write, past a barrier, without
values, of parts, and given twice.

Each has conditions that the tests of JAX name and that no other rule, form or operation has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.sharing import JIT, WAYS, numbers


def is_kept(ref: Any, right: np.ndarray, place: NamedSharding, what: str) -> None:
    """RuntimeError unless a reference lies where its array lay, and each device has its part of the written answer."""
    found = ref[...]
    expect(found.sharding.is_equivalent_to(place, right.ndim), True, f"whether {what} lies over {place.spec}")
    expect(ref.sharding.is_equivalent_to(place, right.ndim), True, f"whether {what} says that it lies there")
    on_each_device(found, right, what)


def _references_given_to_regions(line, grid):
    """References as arguments of a region: each device writes its part, beside arrays and results, in a loop, over one
    and two axes, checked or not, over Auto and Explicit axes."""
    n = line.size
    index = np.repeat(np.arange(n, dtype=np.float32), 2)
    host, other = numbers(2 * n), numbers(2 * n, step=7)

    def write(ref: Any) -> None:
        ref[...] += lax.axis_index("d").astype(np.float32)
        ref[0] = ref[0] * 2

    def beside(ref: Any, v: Any) -> Any:
        before = ref[...]
        ref[1:] = v[1:] * 3
        return before + v

    def turns(ref: Any, v: Any) -> Any:
        def step(k: Any, c: Any) -> Any:
            ref[...] += v * k.astype(v.dtype)
            return c + ref[0]

        return lax.fori_loop(0, 3, step, v[:1])

    first = np.arange(2 * n) % 2 == 0
    for m in (line, explicit(line)):
        place = NamedSharding(m, P("d"))
        for check in (True, False):

            def over(block: Any, specs: Any, out: Any, m: Any = m, check: bool = check) -> Any:
                return jax.jit(jax.shard_map(block, mesh=m, in_specs=specs, out_specs=out, check_vma=check))

            what = f"by a region over {m.axis_types[0].name} axes with check_vma={check}"
            with jax.set_mesh(m):
                ref = jax.new_ref(jax.device_put(host, place))
                x = jax.device_put(other, place)
                over(write, P("d"), None)(ref)
                now = np.where(first, 2, 1) * (host + index)
                is_kept(ref, now.astype(np.float32), place, f"a reference that is written {what}")
                found = over(beside, P("d"), P("d"))(ref, x)
                on_each_device(found, (now + other).astype(np.float32), f"what is read before a write {what}")
                now = np.where(first, now, 3 * other)
                is_kept(
                    ref, now.astype(np.float32), place, f"a reference that is written beside an array {what}"
                )
                found = over(turns, P("d"), P("d"))(ref, x)
                sums = other[::2] + (3 * now + 4 * other)[::2]
                on_each_device(found, sums.astype(np.float32), f"what a loop reads {what}")
                now = now + 3 * other
                is_kept(ref, now.astype(np.float32), place, f"a reference that is written in a loop {what}")
    cells = numbers(2 * grid.shape["x"], 3 * grid.shape["y"])
    spec = P("x", "y")
    place = NamedSharding(grid, spec)
    ref, last = jax.new_ref(jax.device_put(cells, place)), jax.new_ref(placed(grid, 0 * cells[:, 0], "x"))

    def both(a: Any, b: Any) -> None:
        b[...] = lax.psum(a[...].sum(1), "y")
        a[...] = a[...] * 2 + lax.axis_index("x").astype(np.float32)

    jax.jit(jax.shard_map(both, mesh=grid, in_specs=(spec, P("x")), out_specs=None))(ref, last)
    rows = np.repeat(np.arange(grid.shape["x"], dtype=np.float32), 2)[:, None]
    is_kept(ref, cells * 2 + rows, place, "a reference over two axes that a region writes")
    is_kept(last, cells.sum(1), NamedSharding(grid, P("x")), "a reference over one axis beside it")


def _references_through_programs(line, grid):
    """Cut references that scans take as rows, as carry and from outside, that nested jits write, and that
    a program compiled for their type alone writes: they stay where they lie."""
    n = line.size
    host, by = numbers(4, 2 * n), numbers(4, 2 * n, step=7)
    place, row = NamedSharding(line, P(None, "d")), NamedSharding(line, P("d"))
    x = jax.device_put(by, place)
    for way, run in WAYS.items():
        ref, total = jax.new_ref(jax.device_put(host, place)), jax.new_ref(jax.device_put(0 * host[0], row))

        def step(carry: Any, each: Any, total: Any = total) -> Any:
            own, v = each
            total[...] += own[...] * v
            own[...] = own[...] - v
            return carry + 1, total[...] + carry

        count, seen = run(lambda v, r=ref, f=step: lax.scan(f, jnp.float32(0), (r, v)))(x)
        running = np.cumsum(host * by, 0)
        expect(float(count), 4.0, f"the turns of a scan over a reference, {way},")
        on_each_device(
            seen,
            running + np.arange(4, dtype=np.float32)[:, None],
            f"results of a scan over a reference, {way},",
        )
        is_kept(total, running[-1], row, f"a reference outside of a scan, {way},")
        is_kept(ref, host - by, place, f"a reference whose rows a scan takes, {way},")

        @jax.jit
        def inner(r: Any, v: Any, total: Any = total) -> Any:
            r[1:3] = r[1:3] * 2
            total[...] = total[...] + v[3]
            return v * 2

        def outer(r: Any, v: Any, inner: Any = inner) -> Any:
            r[...] += v
            w = inner(r, v)
            r[0] = w[0]
            return w + r[...]

        found = run(outer)(ref, x)
        now = host.copy()  # the rows minus and plus the same
        now[1:3] *= 2
        now[0] = 2 * by[0]
        on_each_device(found, now + 2 * by, f"the result of nested programs that write a reference, {way},")
        is_kept(ref, now, place, f"a reference that nested programs write, {way},")
        is_kept(total, running[-1] + by[3], row, f"a reference that an inner program closes over, {way},")

    def change(r: Any, v: Any) -> Any:
        old = r[...]
        r[...] = v * 3
        r[0] += 1
        return old

    try:
        kind: Any = jax.ShapeDtypeStruct(host.shape, host.dtype, sharding=place, is_ref=True)
    except TypeError:
        raise Missing("this release has no types of references for programs ahead of time") from None
    like = jax.ShapeDtypeStruct(host.shape, host.dtype, sharding=place)
    ahead = jax.jit(change).lower(kind, like).compile()
    for k in (1, 2):
        ref = jax.new_ref(jax.device_put(k * host, place))
        on_each_device(ahead(ref, x), k * host, f"what program {k} of the type of a reference reads")
        now = 3 * by
        now[0] += 1
        is_kept(ref, now, place, f"reference {k} that a program of its type writes")


def _references_past_a_barrier(line, grid):
    """optimization_barrier of arrays and references: the reference is the same one, before, in and after a program."""
    host, by = numbers(2 * line.size), numbers(2 * line.size, step=7)
    place = NamedSharding(line, P("d"))
    x = jax.device_put(by, place)

    def past(r: Any, v: Any) -> Any:
        r[...] += v
        w, again = lax.optimization_barrier((v * 2, r))
        again[...] = again[...] * w
        return r[...] + w

    for way, run in WAYS.items():
        ref = jax.new_ref(jax.device_put(host, place))
        now = (host + by) * 2 * by
        on_each_device(run(past)(ref, x), now + 2 * by, f"what is read past a barrier, {way},")
        is_kept(ref, now, place, f"a reference past a barrier, {way},")


def _statistics_in_references(line, grid):
    """A rule of custom_vjp writes the cotangent that it sees to a reference: in jit, under remat, in scans, with
    auxiliary results, pullbacks that run twice; the gradient stays as it is, and the last write counts."""
    n = line.size

    @jax.custom_vjp
    def noted(ref: Any, v: Any) -> Any:
        return v

    def backward(ref: Any, ct: Any) -> Any:
        ref[0] = ct
        ref[1] += ct
        return None, ct

    noted.defvjp(lambda ref, v: (v, ref), backward)
    host, by = numbers(2 * n), numbers(2 * n, step=7)

    def twice(ref: Any, v: Any) -> Any:
        return (noted(ref, noted(ref, v * v) * 3) * by).sum()

    def scanned(ref: Any, v: Any) -> Any:
        return (lax.scan(lambda c, _: (noted(ref, c * 2), None), v * v, None, length=3)[0] * by).sum()

    def again(ref: Any, v: Any) -> Any:
        step = jax.checkpoint(lambda c, _: (noted(ref, c * 2), None))
        return (lax.scan(step, v * v, None, length=3)[0] * by).sum()

    # The gradient, the last cotangent and the sum of the cotangents.
    three = (6 * host * by, 3 * by, 4 * by)
    eight = (16 * host * by, 4 * by, 7 * by)
    programs: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
        "two rules": (twice, three),
        "two rules under remat": (jax.checkpoint(twice), three),
        "rules in a scan": (scanned, eight),
        "rules under remat in a scan": (again, eight),
    }
    for spec in (P("d"), P()):
        place, rows = NamedSharding(line, spec), NamedSharding(line, P(None, *spec))
        x = jax.device_put(host, place)
        for name, (call, right) in programs.items():
            for way, run in WAYS.items() if name == "two rules" else JIT.items():
                what = f"{name} that write cotangents over {spec}, {way},"
                ref = jax.new_ref(jax.device_put(np.zeros((2, 2 * n), np.float32), rows))
                back = run(jax.grad(call, argnums=1))(ref, x)
                on_each_device(back, right[0], f"the gradient through {what}")
                is_kept(ref, np.stack(right[1:]), rows, f"a reference of {what}")
            ref = jax.new_ref(jax.device_put(np.zeros((2, 2 * n), np.float32), rows))
            run = jax.jit(lambda r, v, f=call: (f(r, v), v + 1))
            _, pull, more = jax.vjp(lambda v, r=ref, run=run: run(r, v), x, has_aux=True)
            on_each_device(more, host + 1, f"an auxiliary result of {name}")
            on_each_device(pull(np.float32(1))[0], right[0], f"the pullback through {name} over {spec}")
            on_each_device(pull(np.float32(-2))[0], -2 * right[0], f"the second pullback through {name}")
            both = np.stack((-2 * right[1], -right[2]))
            is_kept(ref, both, rows, f"a reference of two pullbacks through {name} over {spec}")


def _references_under_checkpoints(line, grid):
    """A checkpoint that writes a reference which derivatives pass over writes it once; one inside is made anew. Writes
    of a loop that a gradient differentiates happen once, too."""
    n = line.size
    host, start = numbers(2 * n), numbers(2 * n, step=7)
    for spec in (P("d"), P()):
        place = NamedSharding(line, spec)
        x = jax.device_put(host, place)

        @jax.checkpoint
        def inside(v: Any) -> Any:
            ref = jax.new_ref(v)
            found = v * ref[...]
            ref[...] += 1
            return found * ref[...]

        @jax.checkpoint
        def given(v: Any, ref: Any) -> Any:
            found = v * v * ref[...]
            ref[...] += 1
            return found

        for way, run in WAYS.items():
            what = f"over {spec}, {way},"
            back = run(jax.grad(lambda v, f=inside: f(v).sum()))(x)
            on_each_device(
                back, 3 * host**2 + 2 * host, f"the gradient through a checkpoint with a reference {what}"
            )
            count = jax.new_ref(jax.device_put(np.float32(5), NamedSharding(line, P())))

            def loop(v: Any, count: Any = count) -> Any:
                def step(c: Any, k: Any) -> Any:
                    count[...] += k
                    return c * v, None

                return lax.scan(step, v, jnp.arange(1, 4, dtype=np.float32))[0].sum()

            back = run(jax.grad(loop))(x)
            on_each_device(back, 4 * host**3, f"the gradient of a loop that counts {what}")
            on_each_device(count[...], np.float32(11), f"what a loop under a gradient has counted {what}")
            try:
                ref = jax.new_ref(jax.device_put(start, place), kind="no_grad_no_remat")
            except TypeError:
                raise Missing("this release has no kinds of references") from None
            back = run(jax.grad(lambda v, r, f=given: f(v, r).sum()))(x, ref)
            on_each_device(
                back, 2 * host * start, f"the gradient of a checkpoint that is given a reference {what}"
            )
            is_kept(ref, start + 1, place, f"a reference that a checkpoint is given {what}")
            closed = jax.checkpoint(lambda v, r=ref, f=given: f(v, r) * 2)
            back = run(jax.grad(lambda v, f=closed: f(v).sum()))(x)
            on_each_device(
                back, 4 * host * (start + 1), f"the gradient of nested checkpoints with a reference {what}"
            )
            is_kept(ref, start + 2, place, f"a reference that nested checkpoints close over {what}")


def _references_without_values(line, grid):
    """empty_ref and free_ref in a program: written before they are read, also in each block of a region, with tangents
    and gradients; a freed reference may not be read or freed again."""
    if not hasattr(jax, "empty_ref") or not hasattr(jax, "free_ref"):
        raise Missing("this release has no jax.empty_ref and jax.free_ref")
    n = line.size
    host, by = numbers(2 * n), numbers(2 * n, step=7)

    def through(v: Any) -> Any:
        ref = jax.empty_ref(jax.typeof(v))
        ref[...] = v * v
        ref[...] += v
        found = ref[...]
        jax.free_ref(ref)
        return found * 2

    x, t = placed(line, host, "d"), placed(line, by, "d")
    region = jax.shard_map(through, mesh=line, in_specs=P("d"), out_specs=P("d"))
    right, slope = 2 * (host**2 + host), 2 * (2 * host + 1) * by
    for name, call in (("a program", through), ("a region", region)):
        run = jax.jit(call)
        on_each_device(run(x), right, f"what {name} writes into an empty reference")
        found = jax.jit(lambda v, t, f=call: jax.jvp(f, (v,), (t,)))(x, t)
        on_each_device(found[0], right, f"the value of {name} with an empty reference and a tangent")
        on_each_device(found[1], slope, f"the tangent of {name} with an empty reference")
        back = jax.jit(jax.grad(lambda v, f=call: (f(v) * by).sum()))(x)
        on_each_device(back, slope, f"the gradient of {name} with an empty reference")

    def read(v: Any) -> Any:
        ref = jax.new_ref(v)
        jax.free_ref(ref)
        return ref[...]

    def freed(v: Any) -> Any:
        ref = jax.new_ref(v)
        jax.free_ref(ref)
        jax.free_ref(ref)
        return v

    for what, words, call in (("read", "must be called on `Ref`", read), ("freed", "KeyError", freed)):
        refused(
            f"a freed reference that is {what}",
            f"(?i)free|{words}",
            lambda f=call: jax.jit(f)(x),
        )


def _references_given_twice(line, grid):
    """One cut reference as two arguments, or closed over and an argument, of jit, scan, cond, vmap and a rule is
    refused; so is one that these return, one written in a batch from outside, and one written under jvp."""
    n = line.size
    host = numbers(2 * n)
    place = NamedSharding(line, P("d"))
    ref = jax.new_ref(jax.device_put(host, place))
    x = placed(line, host, "d")

    def both(a: Any, b: Any) -> Any:
        a[...] += 1
        return a[...] + b[...]

    def outside(b: Any) -> Any:
        ref[...] += 1
        return ref[...] + b[...]

    @jax.custom_vjp
    def rule(a: Any, b: Any) -> Any:
        return both(a, b)

    rule.defvjp(lambda a, b: (both(a, b), None), lambda _, ct: (None, None))

    def wrote(v: Any) -> Any:
        ref[...] += v
        return v

    def wrote_number(v: Any) -> Any:
        ref[0] = v
        return v

    twice = "appeared at both|only one reference|and"
    calls: dict[str, tuple[str, Callable[[], Any]]] = {
        "two arguments of jit": ("appeared at both", lambda: jax.jit(both)(ref, ref)),
        "closed over and an argument of jit": ("closed over and passed", lambda: jax.jit(outside)(ref)),
        "two carries of scan": (
            "appeared at both",
            lambda: lax.scan(lambda c, _: (None, None), (ref, ref), None, length=1),
        ),
        "two arguments of cond": (
            "at both",
            lambda: lax.cond(True, lambda a, b: None, lambda a, b: None, ref, ref),
        ),
        "closed over and an argument of cond": (
            "closed over and passed",
            lambda: lax.cond(True, outside, outside, ref),
        ),
        "two arguments of vmap": ("only one reference", lambda: jax.vmap(lambda a, b: None)(ref, ref)),
        "two arguments of a rule": (twice, lambda: rule(ref, ref)),
        "a result of jit": ("returned a mutable array", lambda: jax.jit(lambda r: r)(ref)),
        "a result of scan": (
            "returned a mutable array",
            lambda: lax.scan(lambda c, k: (jax.new_ref(c), k), 0, jnp.arange(3)),
        ),
        "a result of cond": (
            "returned a mutable array",
            lambda: lax.cond(True, lambda: jax.new_ref(1.0), lambda: jax.new_ref(2.0)),
        ),
        "written in a batch from outside": ("unbatched array reference", lambda: jax.vmap(wrote_number)(x)),
        "written under jvp": ("(?i)move the array reference", lambda: jax.jvp(wrote, (x,), (x,))),
    }
    for name, (words, call) in calls.items():
        refused(f"a reference that is {name}", words, call)
        if name != "written under jvp":  # it was written before: without jit that is no promise
            is_kept(ref, host, place, f"a reference after it was refused as {name}")


def _parts_of_references(line, grid):
    """Reads, writes, sums and exchanges of parts of a cut reference, by functions and by index: numbers, slices, dots,
    arrays of indices, `.at`, and bits of narrow types, over Auto and Explicit axes."""
    n = line.size
    host = numbers(4, 3, 2 * n)
    some, more = np.array([2, 0, 3], np.int32), np.array([1, 2, 0], np.int32)
    parts: dict[str, Any] = {
        "a number": np.s_[1],
        "a number from the end": np.s_[-1],
        "a slice": np.s_[1:4],
        "dots and a slice": np.s_[..., 1:],
        "a slice and a number": np.s_[:, 1],
        "indices": np.s_[some],
        "two rows of indices": np.s_[some, more],
        "indices after a slice": np.s_[:, more],
    }
    for m in (line, explicit(line)):
        place = NamedSharding(m, P(None, None, "d"))
        for name, where in parts.items():
            if m is not line and not isinstance(where, slice):
                continue  # JAX indexes references over Explicit axes by slices alone, along dimensions that are not cut
            by = numbers(*host[where].shape, step=7)

            def change(r: Any, v: Any, where: Any = where) -> Any:
                first = r[where]
                jax.ref.addupdate(r, where, v)
                second = jax.ref.get(r, where)
                r[where] = v * 2
                third = jax.ref.swap(r, where, first)
                return first, second, third

            with jax.set_mesh(m):
                for way, run in WAYS.items() if name == "a slice" else JIT.items():
                    what = f"{name} of a reference over {m.axis_types[0].name} axes, {way},"
                    ref = jax.new_ref(jax.device_put(host, place))
                    v = (
                        by
                        if name == "dots and a slice"
                        else jax.device_put(by, NamedSharding(m, P(*((None,) * (by.ndim - 1)), "d")))
                    )
                    found = run(change)(ref, v)
                    for seen, right, which in zip(
                        found,
                        (host[where], host[where] + by, by * 2),
                        ("read", "added to", "exchanged"),
                        strict=True,
                    ):
                        on_each_device(seen, right, f"{what} {which},")
                    is_kept(ref, host, place, f"the reference after {what} exchanged back,")
    narrow: Any = jnp.bfloat16
    for kind, step in ((narrow, 1.0), (np.int8, 1), (np.uint8, 1), (np.float16, 1.0)):
        row = (np.arange(2 * n) % 11).astype(kind)
        ref = jax.new_ref(placed(line, row, "d"))
        jax.jit(lambda r, step=step: r.__setitem__(..., r[...] + step))(ref)
        is_kept(
            ref,
            (row + np.array(1, kind)).astype(kind),
            NamedSharding(line, P("d")),
            f"a reference of {np.dtype(kind).name}",
        )
    count = jax.new_ref(placed(line, np.arange(2 * n, dtype=np.int32), "d"))

    def halves() -> None:
        count[...] += 0.5

    refused("a float that is added to a reference of integers", "(?i)dtype|type", halves)
    keys = jax.new_ref(
        jax.device_put(jax.random.split(jax.random.key(7), 2 * n), NamedSharding(line, P("d")))
    )
    before = np.asarray(jax.random.key_data(keys[...]))
    keys[...] = keys[...][::-1]
    on_each_device(jax.random.key_data(keys[...]), before[::-1], "keys in a reference, turned,")


RULES_OF_TESTED_REFERENCES: dict[str, Callable[..., None]] = {
    "references_given_to_regions": _references_given_to_regions,
    "references_through_programs": _references_through_programs,
    "references_past_a_barrier": _references_past_a_barrier,
    "statistics_in_references": _statistics_in_references,
    "references_under_checkpoints": _references_under_checkpoints,
    "references_without_values": _references_without_values,
    "references_given_twice": _references_given_twice,
    "parts_of_references": _parts_of_references,
}
