# SPDX-License-Identifier: Apache-2.0
"""Small rules of JAX's tools around programs: trees, first weights, draws at a place, sparse matrices, foreign calls,
callbacks of parts, groups for the scheduler, and estimates of what a region sends."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.nn.initializers
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.sharing import WAYS, numbers


@jax.tree_util.register_pytree_with_keys_class
class Pair:
    """A node of a tree with two children that have names, and a number that is no child."""

    def __init__(self, one: Any, other: Any, tag: int) -> None:
        self.one, self.other, self.tag = one, other, tag

    def tree_flatten_with_keys(self) -> tuple[Any, int]:
        """The children by name, and the number."""
        names = jax.tree_util.GetAttrKey("one"), jax.tree_util.GetAttrKey("other")
        return ((names[0], self.one), (names[1], self.other)), self.tag

    @classmethod
    def tree_unflatten(cls, tag: int, children: Any) -> Pair:
        """The node of these children."""
        one, other = children
        return cls(one, other, tag)


def _trees_with_paths(line, grid):
    """Functions of trees keep the order of sharded leaves, their paths, and what is no leaf, also through jit."""
    host = numbers(2 * line.size, 3)
    x, y = placed(line, host, "d"), placed(line, host + 1)
    tree = {"b": Pair(x, [y, None], 7), "a": (x, y)}
    paths = ["['a'][0]", "['a'][1]", "['b'].one", "['b'].other[0]"]
    hosts = [host, host + 1, host, host + 1]
    found = jax.tree.leaves_with_path(tree)
    expect([jax.tree_util.keystr(path) for path, _ in found], paths, "the paths of a tree")
    for (path, leaf), right in zip(found, hosts, strict=True):
        expect(leaf, right, f"the leaf at {jax.tree_util.keystr(path)}")
    for way, call in WAYS.items():
        made = call(lambda t: jax.tree.map_with_path(lambda p, v: v * (2 + len(p)), t))(tree)
        expect(made["b"].tag, 7, f"what is no leaf, {way}")
        seen = jax.tree.leaves(made)
        factors = [4, 4, 4, 5]
        for leaf, right, factor in zip(seen, hosts, factors, strict=True):
            expect(leaf, right * factor, f"a leaf times the length of its path, {way}")
        total = call(lambda t: jax.tree.reduce(jnp.add, t, jnp.zeros_like(x)))(tree)
        expect(total, sum(hosts), f"the sum of leaves, {way}")
    leaves, kind = jax.tree_util.tree_flatten(tree)
    again = jax.tree_util.tree_unflatten(kind, [v * 3 for v in leaves])
    expect(again["b"].other[0], (host + 1) * 3, "a leaf of a tree that is made again")
    expect(again["b"].other[1], None, "what is None in a tree that is made again")
    turned = jax.tree.transpose(jax.tree.structure((0, 0)), jax.tree.structure([0, 0]), ([x, y], [y, x]))
    for number, (left, right) in enumerate(turned):
        expect(left, hosts[number], f"part {number} of a transposed tree")
        expect(right, hosts[1 - number], f"part {number} of a transposed tree, second")
    expect(jax.tree_util.all_leaves([x, y]), True, "whether arrays are leaves")
    flat, back = ravel_pytree({"u": x, "v": y})
    expect(flat, np.concatenate([host.ravel(), host.ravel() + 1]), "a flat tree")
    expect(back(flat)["v"], host + 1, "a tree of a flat one")


def _first_weights(line, grid):
    """First weights of `jax.nn.initializers`: the same numbers at any place, and the spread that a name promises."""
    typed, every = explicit(line), jax.nn.initializers
    shape = (64 * line.size, 128)
    fans = {"in": shape[0], "out": shape[1], "avg": sum(shape) / 2}
    kinds: dict[str, tuple[Any, float]] = {
        "glorot_normal": (every.glorot_normal(), 1 / fans["avg"]),
        "glorot_uniform": (every.glorot_uniform(), 1 / fans["avg"]),
        "he_normal": (every.he_normal(), 2 / fans["in"]),
        "he_uniform": (every.he_uniform(), 2 / fans["in"]),
        "lecun_normal": (every.lecun_normal(), 1 / fans["in"]),
        "lecun_uniform": (every.lecun_uniform(), 1 / fans["in"]),
        "kaiming_normal": (every.kaiming_normal(), 2 / fans["in"]),
        "kaiming_uniform": (every.kaiming_uniform(), 2 / fans["in"]),
        "xavier_normal": (every.xavier_normal(), 1 / fans["avg"]),
        "xavier_uniform": (every.xavier_uniform(), 1 / fans["avg"]),
        "variance_scaling": (every.variance_scaling(3.0, "fan_out", "normal"), 3 / fans["out"]),
    }
    key = jax.random.key(5)
    with jax.set_mesh(typed):
        for name, (draw, variance) in kinds.items():
            right = np.asarray(draw(key, shape))
            # The variance of n drawn numbers differs from theirs by about 2 / sqrt(n) of it. Six times that is far.
            off = abs(right.var() / variance - 1)
            wrong(
                off > 12 / np.sqrt(right.size),
                f"{name} has the variance {right.var():.4g}, not {variance:.4g}",
            )
            if "out_sharding" in inspect.signature(draw).parameters:
                found = jax.jit(lambda k, f=draw: f(k, shape, out_sharding=P("d")))(key)
                _drawn_alike(found, right, f"{name} at a place")
                expect(found.sharding.spec, P("d", None), f"the place of {name}")
        square = (2 * line.size, 2 * line.size)
        turn = np.asarray(every.orthogonal(2.0)(key, square))
        wrong(
            not np.allclose(turn.T @ turn, 4 * np.eye(len(turn)), atol=1e-3),
            "orthogonal weights are not orthogonal",
        )
        image = np.array(every.delta_orthogonal()(key, (3, 3, 4, 4)))
        centre = image[1, 1]
        wrong(not np.allclose(centre.T @ centre, np.eye(4), atol=1e-3), "the centre is not orthogonal")
        image[1, 1] = 0
        wrong(bool(image.any()), "delta_orthogonal weights are not zero beside the centre")


def _drawn_alike(found: Any, right: np.ndarray, what: str) -> None:
    """RuntimeError unless a draw has the numbers of another, but for the rounding of the functions in it."""
    seen = np.asarray(found)
    wrong(seen.shape != right.shape, f"{what} has shape {seen.shape} instead of {right.shape}")
    same = np.allclose(seen.astype(np.float64), right.astype(np.float64), rtol=1e-4, atol=1e-5)
    wrong(not same, f"{what} is {seen.ravel()[:4]} instead of {right.ravel()[:4]}")


def _draws() -> dict[str, Callable[..., Any]]:
    """Draws of 16 numbers and more, by name and options."""
    r = jax.random
    half = jnp.full((), 0.5)
    made: dict[str, Callable[..., Any]] = {
        "ball": lambda k, n, **o: r.ball(k, 3, 2, (n,), **o),
        "bernoulli": lambda k, n, **o: r.bernoulli(k, 0.3, (n,), **o),
        "bernoulli of high precision": lambda k, n, **o: r.bernoulli(k, 0.3, (n,), mode="high", **o),
        "beta": lambda k, n, **o: r.beta(k, 2.0, 3.0, (n,), **o),
        "categorical of high precision": lambda k, n, **o: r.categorical(
            k, jnp.zeros((n, 3)), mode="high", **o
        ),
        "cauchy": lambda k, n, **o: r.cauchy(k, (n,), **o),
        "chisquare": lambda k, n, **o: r.chisquare(k, 3.0, shape=(n,), **o),
        "dirichlet": lambda k, n, **o: r.dirichlet(k, jnp.ones(3), (n,), **o),
        "exponential": lambda k, n, **o: r.exponential(k, (n,), **o),
        "f": lambda k, n, **o: r.f(k, 3.0, 5.0, (n,), **o),
        "gamma": lambda k, n, **o: r.gamma(k, 2.0, (n,), **o),
        "generalized_normal": lambda k, n, **o: r.generalized_normal(k, 2.0, (n,), **o),
        "geometric": lambda k, n, **o: r.geometric(k, 0.3, (n,), **o),
        "gumbel": lambda k, n, **o: r.gumbel(k, (n,), **o),
        "gumbel of high precision": lambda k, n, **o: r.gumbel(k, (n,), mode="high", **o),
        "laplace": lambda k, n, **o: r.laplace(k, (n,), **o),
        "loggamma": lambda k, n, **o: r.loggamma(k, 2.0, (n,), **o),
        "logistic": lambda k, n, **o: r.logistic(k, (n,), **o),
        "lognormal": lambda k, n, **o: r.lognormal(k, half, (n,), **o),
        "maxwell": lambda k, n, **o: r.maxwell(k, (n,), **o),
        "orthogonal": lambda k, n, **o: r.orthogonal(k, 3, (n,), **o),
        "pareto": lambda k, n, **o: r.pareto(k, 2.0, (n,), **o),
        "poisson": lambda k, n, **o: r.poisson(k, 3.0, (n,), **o),
        "rademacher": lambda k, n, **o: r.rademacher(k, (n,), **o),
        "rayleigh": lambda k, n, **o: r.rayleigh(k, half, (n,), **o),
        "t": lambda k, n, **o: r.t(k, 3.0, (n,), **o),
        "triangular": lambda k, n, **o: r.triangular(k, 0.0, 0.5, 1.0, (n,), **o),
        "wald": lambda k, n, **o: r.wald(k, 2.0, (n,), **o),
    }
    for method in ("cholesky", "eigh", "svd"):
        made[f"multivariate_normal by {method}"] = lambda k, n, m=method, **o: r.multivariate_normal(
            k, jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 1.0]]), (n,), method=m, **o
        )
    return made


def _draws_at_a_place(line, grid):
    """Every draw with `out_sharding`, in jit: it lies there, and its numbers are those of the draw without a place."""
    typed, n = explicit(line), 2 * line.size
    key = jax.random.key(5)
    with jax.set_mesh(typed):
        draws, there = _draws(), NamedSharding(typed, P("d"))
        rights = jax.jit(lambda k: {name: draw(k, n) for name, draw in draws.items()})(key)
        made = jax.jit(lambda k: {name: draw(k, n, out_sharding=P("d")) for name, draw in draws.items()})(key)
        for name, found in made.items():
            wrong(
                not found.sharding.is_equivalent_to(there, found.ndim),
                f"{name} lies at {found.sharding.spec}",
            )
            _drawn_alike(found, np.asarray(rights[name]), f"{name} at a place")


def _sparse_matrices(line, grid):
    """Sparse matrices times sharded ones, in jit and in a region; their conversions and gradients."""
    from jax.experimental import sparse

    n = 2 * line.size
    full = numbers(n, n) * (numbers(n, n, step=7) > 2)
    dense = numbers(n, 3)
    x = placed(line, dense, "d")
    matrix = sparse.BCOO.fromdense(full)
    expect(jax.jit(lambda m, v: m @ v)(matrix, x), full @ dense, "a sparse matrix times a sharded one")
    expect(jax.jit(lambda m, v: v.T @ m)(matrix, x), dense.T @ full, "a sharded matrix times a sparse one")
    expect(matrix.T.todense(), full.T, "a transposed sparse matrix")
    expect(jax.jit(lambda m: m.sum(1).todense())(matrix), full.sum(1), "sums of the rows of a sparse matrix")
    made = jax.jit(sparse.sparsify(lambda m, v: (m * 2) @ v))(matrix, x)
    expect(made, 2 * full @ dense, "a function of a sparse matrix")
    rows = sparse.BCOO.fromdense(full, n_batch=1)
    values, places = placed(line, rows.data, "d"), placed(line, rows.indices, "d")

    def product(data, indices, v):
        return sparse.BCOO((data, indices), shape=(len(data), n)) @ v

    region = jax.shard_map(
        product, mesh=line, in_specs=(P("d"), P("d"), P()), out_specs=P("d"), check_vma=False
    )
    expect(jax.jit(region)(values, places, dense), full @ dense, "a sparse matrix in a region")
    slope = jax.jit(jax.grad(lambda v: (matrix @ v).sum()))(x)
    expect(slope, np.repeat(full.sum(0)[:, None], 3, 1), "the gradient by a sharded matrix")


def _foreign_calls_in_batches(line, grid):
    """What `vmap` makes of a foreign call follows from its `vmap_method`, also in a region."""

    def program(method: str) -> Any:
        def call(v: Any, w: Any) -> Any:
            return jax.ffi.ffi_call(
                "meshmark_none", jax.ShapeDtypeStruct(v.shape, v.dtype), vmap_method=method
            )(v, w)

        region = jax.shard_map(
            jax.vmap(call, (0, None)), mesh=line, in_specs=(P("d"), P()), out_specs=P("d"), check_vma=False
        )
        kind = jax.ShapeDtypeStruct((2 * line.size, 3), np.float32)
        return jax.make_jaxpr(region)(kind, jax.ShapeDtypeStruct((3,), np.float32))

    rights = {
        "sequential": ("scan", [(3,), (3,)], (3,)),
        "broadcast_all": ("", [(2, 3), (2, 3)], (2, 3)),
        "expand_dims": ("", [(2, 3), (1, 3)], (2, 3)),
    }
    for method, (loop, operands, result) in rights.items():
        made = program(method)
        text, found = str(made), _equations(made.jaxpr)
        calls = [e for e in found if e.primitive.name == "ffi_call"]
        wrong(len(calls) != 1, f"{method}: {len(calls)} foreign calls in {text[:300]}")
        expect(
            [tuple(v.aval.shape) for v in calls[0].invars], operands, f"the arguments of a call by {method}"
        )
        expect(tuple(calls[0].outvars[0].aval.shape), result, f"the result of a call by {method}")
        expect(any(e.primitive.name == "scan" for e in found), bool(loop), f"whether {method} loops")


def _equations(jaxpr: Any) -> list[Any]:
    """The equations of a program and of those inside it."""
    found = []
    for equation in jaxpr.eqns:
        found.append(equation)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += _equations(inner)
    return found


def _callbacks_of_parts(line, grid):
    """`debug.callback(partitioned=True)` sees the part of each device, and without it the whole array."""
    host = numbers(2 * line.size, 3)
    x, lock = placed(line, host, "d"), threading.Lock()
    for parts in (True, False):
        seen: list[np.ndarray] = []

        def note(v, seen=seen):
            with lock:
                seen.append(np.asarray(v))

        def f(v, parts=parts, note=note):
            jax.debug.callback(note, v, partitioned=parts)
            return v + 1

        expect(jax.jit(f)(x), host + 1, "a program with a callback")
        jax.effects_barrier()
        rights = list(host.reshape(line.size, 2, 3)) if parts else [host]
        found = sorted(v.tolist() for v in seen)
        expect(found, sorted(v.tolist() for v in rights), f"what a callback sees, parts: {parts}")


def _groups_for_the_scheduler(line, grid):
    """A named group keeps its name in the lowered program and changes no number."""
    from jax.experimental import scheduling_groups

    host = numbers(2 * line.size, 3)
    x = placed(line, host, "d")

    def program(grouped: bool) -> Any:
        total = lambda v: lax.psum(v, "d")  # noqa: E731
        call = scheduling_groups.scheduling_group(name="731")(total) if grouped else total
        return jax.jit(jax.shard_map(call, mesh=line, in_specs=P("d"), out_specs=P()))

    right = host.reshape(line.size, 2, 3).sum(0)
    for grouped in (True, False):
        expect(program(grouped)(x), right, f"a sum, in a group: {grouped}")
        expect("731" in program(grouped).lower(x).as_text(), grouped, "whether the program names the group")


def _estimates_of_what_is_sent(line, grid):
    """`jax.experimental.roofline` counts what a region computes, and what it sends over each axis."""
    try:
        from jax.experimental.roofline import roofline
    except ImportError:
        raise Missing("jax.experimental.roofline needs absl: pip install absl-py") from None

    n, size = line.size, 64
    kind = jax.ShapeDtypeStruct((size * n, 8), np.float32)
    sends = {
        "psum": (lambda v: lax.psum(v, "d"), P(), 2 * size * 8 * 4 * (n - 1) / n),
        "all_gather": (lambda v: lax.all_gather(v, "d", tiled=True), P("d"), size * 8 * 4 * (n - 1)),
        "nothing": (lambda v: v * 2, P("d"), 0),
    }
    for name, (call, out, bytes_) in sends.items():
        _, found = roofline(call, mesh=line, in_specs=P("d"), out_specs=out)(kind)
        sent = dict(found.ici_bytes).get("d", 0)
        wrong(not np.isclose(sent, bytes_), f"{name} is said to send {sent} bytes, and {bytes_} must be sent")
    _, found = roofline(lambda v: v @ v.T, mesh=line, in_specs=P("d"), out_specs=P("d"))(kind)
    expect(int(found.flops), 2 * size * size * 8, "the operations of a product")


def _batches_that_are_summed(line, grid):
    """`vmap(sum_match=True)` adds up what a batch gives where the result has no batch, also across a region's psum."""
    if "sum_match" not in inspect.signature(jax.vmap).parameters:
        raise Missing("this release has no vmap(sum_match=True)")
    host = numbers(2 * line.size)
    x = placed(line, host, "d")
    summed = jax.vmap(lambda v: lax.psum(v, "d") * 2, out_axes=None, sum_match=True)
    region = jax.shard_map(summed, mesh=line, in_specs=P("d"), out_specs=P())
    expect(jax.jit(region)(x), np.float32(2 * host.sum()), "a batch that is summed in a region")
    alone = jax.vmap(lambda v: v * 3, out_axes=None, sum_match=True)
    expect(jax.jit(alone)(x), np.float32(3 * host.sum()), "a batch of a sharded array that is summed")


def _meshes_of_one_process(line, grid):
    """`Mesh.local_mesh` has the devices of this process in their order, and the names and types of the axes."""
    typed = explicit(grid)
    for mesh in (grid, typed):
        found = mesh.local_mesh
        wrong(not np.array_equal(found.devices, mesh.devices), "the local mesh has other devices")
        expect(found.axis_names, mesh.axis_names, "the names of a local mesh")
        expect(found.axis_types, mesh.axis_types, "the types of the axes of a local mesh")


RULES_OF_TOOLS: dict[str, Callable[..., None]] = {
    "trees_with_paths": _trees_with_paths,
    "first_weights": _first_weights,
    "draws_at_a_place": _draws_at_a_place,
    "sparse_matrices": _sparse_matrices,
    "foreign_calls_in_batches": _foreign_calls_in_batches,
    "callbacks_of_parts": _callbacks_of_parts,
    "groups_for_the_scheduler": _groups_for_the_scheduler,
    "estimates_of_what_is_sent": _estimates_of_what_is_sent,
    "batches_that_are_summed": _batches_that_are_summed,
    "meshes_of_one_process": _meshes_of_one_process,
}
"""Each function takes a mesh over one axis "d" and one over two axes "x" and "y", both of all devices."""
