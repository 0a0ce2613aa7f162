# SPDX-License-Identifier: Apache-2.0
"""Small rules: collectives over axes of vmap and of the mesh together, callbacks, gradients and checks in regions,
messages of every size, and functions with their own partitioning."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import checkify
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.cuts.running import compare, mixed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.axes import spread
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.storage import SENDS

OF_THE_MESH = (("y", "x"), ("x",))
OF_VMAP = (("v",), ("w", "v"))
TOGETHER = (("v", "x"), ("x", "v"), ("y", "v", "x"), ("v", "w", "x"), ("x", "w"), ("v", "w", "y", "x"))
"""Axes of two vmaps, "v" and "w", and of the mesh, "x" and "y", in several orders. JAX takes both kinds together only
where shard_map does not check what varies."""


def _reductions(host: np.ndarray, dims: tuple[int, ...]) -> dict[str, np.ndarray]:
    """The answers of the reductions over dimensions, which stay with their size."""
    total = host.sum(dims, dtype=host.dtype, keepdims=True)
    count = int(np.prod([host.shape[k] for k in dims]))
    answers = {
        "psum": total,
        "pmax": host.max(dims, keepdims=True),
        "pmin": host.min(dims, keepdims=True),
        "pmean": (total / host.dtype.type(count)).astype(host.dtype),
    }
    return {name: np.broadcast_to(answer, host.shape) for name, answer in answers.items()}


HELD = {"both": ("v", "w"), "v": ("v",), "w": ("w",), "neither": ()}
"""The vmaps that map a value, by its name in a tree."""

SIZES = {"v": 3, "w": 2}


def _reduced_blocks(tree: Any, reduced: Any, calls: Any) -> Any:
    """All reductions of the tree of one device, under both vmaps."""

    def one(tree):
        return {f"{call} {axes}": getattr(lax, call)(tree, axes) for axes in reduced for call in calls}

    blocks = {key: v.reshape(*(SIZES[a] for a in HELD[key]), v.shape[-1]) for key, v in tree.items()}
    over_v, over_w = ({key: 0 if a in HELD[key] else None for key in tree} for a in "vw")
    inner = jax.vmap(one, in_axes=(over_w,), axis_name="w", axis_size=2)
    outer = jax.vmap(inner, in_axes=(over_v,), axis_name="v", axis_size=3)
    return jax.tree.map(lambda v: v[None, None], outer(blocks))


def _vmapped(grid: Any, reduced: Any, check_vma: bool) -> None:
    """Reductions over each of some tuples of axes, of values that either vmap maps or does not."""
    rows, columns = grid.shape["x"], grid.shape["y"]
    dims = {name: k for k, name in enumerate("xyvw")}
    spec = P("x", "y")
    for kind, calls in ((np.float32, ("psum", "pmean", "pmax", "pmin")), (np.int32, ("psum", "pmax"))):
        given, whole = {}, {}
        for k, (key, mapping) in enumerate(HELD.items()):
            shape = [rows, columns, *(SIZES[a] if a in mapping else 1 for a in "vw"), 2]
            given[key] = mixed(tuple(shape), 7, 3 + 2 * k).astype(kind)
            whole[key] = np.broadcast_to(given[key], (rows, columns, 3, 2, 2))
        run = mapped(
            partial(_reduced_blocks, reduced=reduced, calls=calls), grid, spec, spec, check_vma=check_vma
        )
        found = jax.device_get(run(given))
        for axes in reduced:
            for key, host in whole.items():
                answers = _reductions(host, tuple(dims[a] for a in axes))
                for call in calls:
                    seen, right = found[f"{call} {axes}"][key], answers[call]
                    words = f"{call} over {axes} of {np.dtype(kind).name} that vmaps map by {key}"
                    words += f", check_vma={check_vma},"
                    # A mean may multiply by a rounded reciprocal: two roundings, and one of the answer.
                    compare(seen, right, words, 3 if call == "pmean" else None)


def _vmapped_collectives(line, grid):
    """Reductions over axes of vmap and of the mesh together, of values that either vmap maps or does not."""
    _vmapped(grid, OF_THE_MESH + OF_VMAP + TOGETHER, check_vma=False)
    _vmapped(grid, OF_THE_MESH, check_vma=True)


def _vmapped_checked(line, grid):
    """Reductions over axes of vmap alone, in a region that checks what varies."""
    _vmapped(grid, OF_VMAP, check_vma=True)


def _called(mesh: Any, axes: tuple[str, ...], host: np.ndarray) -> dict[str, list[tuple[float, ...]]]:
    """What the callbacks of a region that is manual over some axes see, by name."""
    seen: dict[str, list[tuple[float, ...]]] = {}

    def note(name: str, *given: Any) -> None:
        def taken(*values: Any) -> None:
            seen.setdefault(name, []).append(tuple(float(v) for v in values))

        jax.debug.callback(taken, *given)

    def body(block):
        total = block.sum()
        note("once", total)
        jax.vmap(lambda v: note("for each row", v.sum()))(block)
        jax.vmap(lambda v: note("for each row beside the sum", v.sum(), total))(block)
        jax.vmap(lambda v: note("for each column", v.sum()), in_axes=1)(block)
        jax.vmap(jax.vmap(lambda v: note("for each number", v)))(block)
        lax.scan(lambda c, v: (c, note("in a scan", v.sum())), 0.0, block)
        return 2 * block

    spec = P(axes)
    run = mapped(body, mesh, spec, spec, axis_names=set(axes))
    found = jax.block_until_ready(run(placed(mesh, host)))
    jax.effects_barrier()
    expect(np.asarray(found), 2 * host, f"the result of a region over {axes} with callbacks")
    return seen


def _region_callbacks(line, grid):
    """Callbacks in regions over all axes or some, plain and under vmap: once for each element of each block."""
    if jax.process_count() > 1:
        raise Missing("a process sees only the callbacks of its own devices")
    host = (mixed((2 * line.size, 3), 97, 7) + 1).astype(np.float32)
    for mesh, axes in (
        (line, ("d",)),
        (grid, ("x", "y")),
        (grid, ("y", "x")),
        (grid, ("x",)),
        (grid, ("y",)),
    ):
        parts = int(np.prod([mesh.shape[a] for a in axes]))
        seen = _called(mesh, axes, host)
        wanted: dict[str, list[tuple[float, ...]]] = {}
        for block in np.split(host, parts):
            total = block.sum()
            wanted.setdefault("once", []).append((total,))
            for row in block:
                wanted.setdefault("for each row", []).append((row.sum(),))
                wanted.setdefault("in a scan", []).append((row.sum(),))
                wanted.setdefault("for each row beside the sum", []).append((row.sum(), total))
            wanted.setdefault("for each column", []).extend((v,) for v in block.sum(0))
            wanted.setdefault("for each number", []).extend((v,) for v in block.ravel())
        for name, right in wanted.items():
            one, other = sorted(seen.get(name, [])), sorted(right)
            wrong(one != other, f"a callback {name}, in a region over {axes}, sees {one}, not {other}"[:600])


def _marked_slopes(grid: Any) -> None:
    """The gradient of a value that is marked as varying over axes adds what all of them use."""
    shape = (2 * grid.shape["x"], 2 * grid.shape["y"])
    for kind in (np.float32, jnp.bfloat16):
        x = mixed(shape, 3).astype(kind)
        for axes in (("x",), ("y",), ("x", "y"), ("y", "x")):
            kept = P(*(name if name not in axes else None for name in ("x", "y")))
            side = [s if name not in axes else 1 for s, name in zip(shape, ("x", "y"), strict=True)]
            w = np.ones(side, kind)
            dims = tuple(k for k, name in enumerate(("x", "y")) if name in axes)
            right = x.astype(np.float32).sum(dims, keepdims=True).astype(kind)
            run = jax.shard_map(
                lambda w, v, axes=axes: lax.pcast(w, axes, to="varying") * v,
                mesh=grid,
                in_specs=(kept, P("x", "y")),
                out_specs=P("x", "y"),
            )
            loss = jax.jit(jax.grad(lambda w, v, run=run: run(w, v).astype(np.float32).sum()))
            words = f"the gradient of {np.dtype(kind).name} that is marked as varying over {axes}"
            on_each_device(loss(w, x), right, words)


def _closed_slopes(line: Any, grid: Any) -> None:
    """The gradients of arrays of each rank that a region closes over, and of what it takes beside them."""
    n = line.size
    for kind in (np.float32, jnp.bfloat16, np.float16):
        x = mixed((2 * n, 4), 3).astype(kind)
        wide = x.astype(np.float32)
        weights = {
            "a number": (np.ones((), kind), wide.sum()),
            "a vector": (np.ones(4, kind), wide.sum(0)),
            "a matrix": (np.ones((1, 4), kind), wide.sum(0, keepdims=True)),
        }
        given = {name: w for name, (w, _) in weights.items()}
        for mesh, spec in ((line, P("d")), (grid, P(("y", "x"))), (grid, P("x"))):
            for checked in (True, False) if mesh is line else (True,):

                def loss(ws, mesh=mesh, spec=spec, checked=checked, x=x):
                    def body(v):
                        return {name: (v * w).astype(np.float32) for name, w in ws.items()}

                    run = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=checked)
                    return sum(v.sum() for v in run(x).values())

                slopes = jax.jit(jax.grad(loss))(given)
                for name, (_, right) in weights.items():
                    words = f"the gradient of {name} of {np.dtype(kind).name} that a region closes over"
                    words = f"{words}, {spec}, check_vma={checked}"
                    on_each_device(slopes[name], np.asarray(right).astype(kind), words)


def _refused_slopes(line: Any) -> None:
    """What has no derivative says so, in regions with and without checks, forward and backward."""
    x = np.arange(1, 2 * line.size + 1, dtype=np.float32)
    shape = jax.ShapeDtypeStruct((2,), np.float32)
    functions: dict[str, tuple[Callable[..., Any], str]] = {
        "pmax": (lambda v: lax.pmax(v, "d") + v, "(?i)differentiation|not implemented"),
        "pmin": (lambda v: lax.pmin(v, "d") + v, "(?i)differentiation|not implemented"),
        "pmax of a tree": (lambda v: lax.pmax({"a": v}, "d")["a"] + v, "(?i)differentiation|not implemented"),
        "pure_callback": (
            lambda v: jax.pure_callback(lambda v: np.asarray(v) + 1, shape, v),
            "(?i)jvp",
        ),
    }
    for name, (f, words) in functions.items():
        for checked in (True, False):
            run = jax.shard_map(f, mesh=line, in_specs=P("d"), out_specs=P("d"), check_vma=checked)
            calls: dict[str, Callable[[], Any]] = {
                "grad": partial(jax.grad(lambda v, run=run: run(v).sum()), x),
                "grad in jit": partial(jax.jit(jax.grad(lambda v, run=run: run(v).sum())), x),
                "jvp": partial(jax.jvp, run, (x,), (x,)),
                "vjp": partial(jax.vjp, run, x),
            }
            for way, call in calls.items():
                refused(f"{way} of {name} in a region, check_vma={checked},", words, call)

    def looped(v):
        return lax.while_loop(lambda c: c.sum() < 9, lambda c: 2 * c, v)

    run = jax.shard_map(looped, mesh=line, in_specs=P("d"), out_specs=P("d"))
    refused(
        "the gradient of a while loop in a region",
        "(?i)reverse-mode",
        lambda: jax.grad(lambda v: run(v).sum())(x),
    )


def _slopes_of_marks(line, grid):
    """Gradients of what is marked as varying, of what regions close over, and second calls of their functions."""
    _marked_slopes(grid)
    _closed_slopes(line, grid)
    x = mixed((2 * line.size,), 7).astype(np.float32)
    run = jax.shard_map(lambda v: v * v, mesh=line, in_specs=P("d"), out_specs=P("d"))
    _, back = jax.vjp(run, placed(line, x, "d"))
    _, forward = jax.linearize(run, placed(line, x, "d"))
    for k in (1, 3, 0, 2):
        step = np.full_like(x, k)
        expect(np.asarray(back(placed(line, step, "d"))[0]), 2 * k * x, f"the cotangent {k} of a region")
        expect(np.asarray(forward(placed(line, step, "d"))), 2 * k * x, f"the tangent {k} of a region")


def _slopes_refused(line, grid):
    """Regions of functions that have no derivative."""
    _refused_slopes(line)


def _mixed_trees(line: Any, grid: Any) -> None:
    """Reductions of trees of arrays, NumPy numbers and Python numbers, compiled and eagerly."""
    host = mixed((2 * line.size, 3), 7).astype(np.float32)
    numbers = {"float": 1.5, "more": (3, [np.float32(2), np.int32(4)])}
    calls = ("psum", "pmean", "pmax", "pmin")
    for mesh, spec, axes in (
        (line, P("d"), ("d",)),
        (grid, P(("x", "y")), ("y", "x")),
        (grid, P(("x", "y")), ("x",)),
    ):
        size = int(np.prod([mesh.shape[a] for a in axes]))

        def body(v, axes=axes, calls=calls):
            found = {}
            for call in calls:
                tree = getattr(lax, call)({"array": v, **numbers}, axes)
                alone = getattr(lax, call)(2.5, axes)
                del tree["array"]
                found[call] = jax.tree.map(lambda k: v * 0 + k, (tree, alone))
            return found

        def once(v, body=body):
            return body(v, calls=("psum",))

        for how, f in (("compiled", body), ("eagerly", once)):
            run = jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)
            found = jax.device_get((jax.jit(run) if how == "compiled" else run)(host))
            for call, seen in found.items():
                for one, number in zip(jax.tree.leaves(seen), jax.tree.leaves((numbers, 2.5)), strict=True):
                    right = np.full(host.shape, number * (size if call == "psum" else 1), np.float32)
                    expect(one, right, f"{call} over {axes} of the number {number} in a tree, {how},")
            if mesh is not line:
                break


def _tall(n: int, kind: Any, count: int) -> np.ndarray:
    """About `count` bytes in rows for each device, and for each device of each device."""
    rows = -(-count // (n * n * 512 * np.dtype(kind).itemsize)) * n * n
    flat = np.arange(rows * 512, dtype=np.int32)
    return ((flat * 7 + flat // 512) % 101).reshape(rows, 512).astype(kind)


def _large_messages(line: Any) -> None:
    """Collectives whose messages have 4 MiB and more: every element of every device."""
    n = line.size
    for kind, count in ((np.float32, (4 << 20) + 4096), (np.int8, n << 22)):
        host = _tall(n, kind, count)
        blocks = np.split(host, n)
        small = host[: len(host) // n]
        gathered: dict[str, tuple[Callable[..., Any], Any, np.ndarray, np.ndarray]] = {
            "all_gather": (lambda v: lax.all_gather(v, "d", tiled=True), P(), host, host),
            "all_gather of columns": (
                lambda v: lax.all_gather(v, "d", axis=1, tiled=True),
                P(),
                host,
                np.concatenate(blocks, 1),
            ),
            "ppermute": (
                lambda v: lax.ppermute(v, "d", [(k, (k + 1) % n) for k in range(n)]),
                P("d"),
                host,
                np.concatenate([blocks[k - 1] for k in range(n)]),
            ),
            "all_to_all": (
                lambda v: lax.all_to_all(v, "d", 0, 0, tiled=True),
                P("d"),
                host,
                host.reshape(n, n, -1, 512).swapaxes(0, 1).reshape(host.shape),
            ),
            "psum": (
                lambda v: lax.psum(v * (lax.axis_index("d") == n - 1).astype(v.dtype) + v % 2, "d"),
                P(),
                host,
                blocks[-1] + sum((b % 2 for b in blocks[1:]), blocks[0] % 2),
            ),
            "pmax": (lambda v: lax.pmax(v, "d"), P(), host, np.maximum.reduce(blocks)),
            "psum_scatter": (
                lambda v: lax.psum_scatter(v, "d", tiled=True),
                P("d"),
                np.concatenate([small % 3] * n),
                (small % 3 * n).astype(kind),
            ),
        }
        for name, (f, spec, given, right) in gathered.items():
            if kind == np.int8 and name not in ("ppermute", "psum"):
                continue
            found = mapped(f, line, P("d"), spec, check_vma=False)(given)
            for shard in found.addressable_shards:
                seen = np.asarray(shard.data)
                words = f"{name} of {host.nbytes} bytes of {np.dtype(kind).name}, on {shard.device},"
                wanted = right[shard.index]
                wrong(seen.shape != wanted.shape, f"{words} has the shape {seen.shape}, not {wanted.shape}")
                wrong(bool((seen != wanted).any()), f"{words} is wrong at {(seen != wanted).sum()} places")


def _sent(text: str) -> dict[str, int]:
    """How often a compiled program has each collective."""
    found = {word: len(re.findall(rf"= .*? {word}(?:-start)?\(", text)) for word in SENDS}
    return {word: count for word, count in found.items() if count}


def _open_permutations(line: Any, grid: Any) -> None:
    """Permutations with any pairs send by collective-permute alone, and devices that receive nothing have zeros."""
    for mesh, name in ((line, "d"), (grid, "x"), (grid, "y")):
        n = mesh.shape[name]
        host = (mixed((2 * n, 3), 97, 7) + 1).astype(np.float32)
        pairs = {
            "a shift that ends": [(k, k + 1) for k in range(n - 1)],
            "a shift back that ends": [(k, k - 1) for k in range(1, n)],
            "the first to the last": [(0, n - 1)],
            "a ring": [(k, (k + 1) % n) for k in range(n)],
            "two that swap": [(0, n - 1), (n - 1, 0)],
            "every second": [(k, k + 1) for k in range(0, n - 1, 2)],
        }
        for what, perm in pairs.items():
            if n == 1 or (n == 2 and len(perm) > len(set(perm))):
                continue
            blocks = np.split(host, n)
            right = [np.zeros_like(blocks[0]) for _ in range(n)]
            for source, target in perm:
                right[target] = blocks[source]
            for checked in (True, False):
                run = mapped(
                    lambda v, name=name, perm=perm: lax.ppermute(v, name, perm),
                    mesh,
                    P(name),
                    P(name),
                    check_vma=checked,
                )
                compiled = run.lower(placed(mesh, host, name)).compile()
                sent = set(_sent(compiled.as_text() or ""))
                words = f"{what} over {name}"
                wrong(sent != {"collective-permute"}, f"a ppermute, {words}, sends by {sorted(sent)}")
                on_each_device(
                    compiled(placed(mesh, host, name)), np.concatenate(right), f"a ppermute, {words},"
                )


def _messages(line, grid):
    """Collectives of trees with numbers, of 4 MiB and more, and permutations that leave devices out."""
    _mixed_trees(line, grid)
    _large_messages(line)
    _open_permutations(line, grid)


def _failed_checks(line: Any, grid: Any) -> None:
    """A check that fails on one device of a region is told, whichever device it is, and no other check is."""
    for mesh, axes in ((line, ("d",)), (grid, ("x", "y"))):
        n = mesh.size

        def body(v):
            checkify.check(v[0] < 50, "the first is large")
            checkify.check(v[1] < 50, "the second is large: {v}", v=v[1])
            w = lax.cond(v[0] > v[1], lambda v: v + 0, lambda v: v * 1, v)
            return w * 2 + jnp.log(w[1:2]) * 0

        def user(v, mesh=mesh, axes=axes):
            run = jax.shard_map(body, mesh=mesh, in_specs=P(axes), out_specs=P(axes))
            return run(v)

        programs = {
            "user checks": jax.jit(checkify.checkify(user, errors=checkify.user_checks)),
            "float checks": jax.jit(checkify.checkify(user, errors=checkify.float_checks)),
        }
        for k in range(-1, n):
            for what, place, value in (
                ("the first is large", 0, 60.0),
                ("the second is large: 70", 1, 70.0),
                ("nan", 1, -1.0),
            ):
                host = np.tile(np.array([3, 2], np.float32), n)
                if k >= 0:
                    host[2 * k + place] = value
                for name, run in programs.items():
                    error, found = run(placed(mesh, host, axes))
                    told = error.get()
                    due = k >= 0 and (name == "float checks") == (what == "nan")
                    words = f"{name} in a region over {axes}, where device {k} fails by '{what}',"
                    wrong(due and what not in (told or ""), f"{words} tell {told}"[:400])
                    wrong(not due and told is not None, f"{words} tell {told}"[:400])
                    if what != "nan":
                        expect(np.asarray(found), 2 * host, f"the result of {words}")


def _operands_of(mesh: Any, specs: tuple[Any, ...], host: np.ndarray) -> list[Any]:
    """The specs of the operands that a partitioned function of arrays is shown."""
    from jax.experimental.custom_partitioning import custom_partitioning

    seen: list[Any] = []
    count = len(specs)
    weights = [10**k for k in range(count)]

    def whole(*arrays):
        return sum(w * v for w, v in zip(weights, arrays, strict=True)) + 0 * arrays[0]

    f = custom_partitioning(whole)

    def partition(m, shapes, result):
        seen.append([spread(s.sharding.spec) for s in shapes])
        place = NamedSharding(m, P())
        return m, whole, place, (place,) * count

    letters = [f"i{k} j{k}" for k in range(count)]
    options: dict[str, Any] = {
        "infer_sharding_from_operands": lambda m, shapes, result: NamedSharding(m, P())
    }
    f.def_partition(partition, sharding_rule=f"{', '.join(letters)} -> a b", **options)
    given = [(k + 1) * host for k in range(count)]
    found = jax.jit(f)(*(placed(mesh, v, *s) for v, s in zip(given, specs, strict=True)))
    wrong(not seen, f"a partitioned function of arrays over {specs} is not asked how to divide it")
    right = np.add.reduce([w * v for w, v in zip(weights, given, strict=True)])
    on_each_device(found, right, f"a partitioned function of arrays over {specs}")
    return seen


def _partitioned_operands(grid: Any) -> None:
    """A function with its own partitioning is shown where each of its operands lies, in their order."""
    size = 2 * grid.size
    host = mixed((size, size), 9, 7).astype(np.float32)
    several = [
        (P("x"), P("y")),
        (P("y"), P("x")),
        (P("x", "y"), P("y", "x")),
        (P(None, "x"), P(), P("x")),
        (P("y"), P("x"), P(), P(None, "y")),
    ]
    if min(grid.shape.values()) == 1:
        several = [(P("x"), P()), (P(), P("x")), (P(None, "x"), P(), P("x"))]
    for specs in several:
        for parts in _operands_of(grid, specs, host):
            right = [spread(s) for s in specs]
            wrong(parts != right, f"a partitioned function of arrays over {specs} is shown {parts}")


def _checked_devices(line, grid):
    """Checks that fail on each device in turn, and functions with their own partitioning of several operands."""
    _failed_checks(line, grid)
    if grid.size > 1:
        _partitioned_operands(grid)


RULES_OF_MAPPING: dict[str, Callable[..., None]] = {
    "vmapped_collectives": _vmapped_collectives,
    "vmapped_checked": _vmapped_checked,
    "region_callbacks": _region_callbacks,
    "slopes_of_marks": _slopes_of_marks,
    "slopes_refused": _slopes_refused,
    "messages": _messages,
    "checked_devices": _checked_devices,
}
