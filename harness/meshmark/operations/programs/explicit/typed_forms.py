# SPDX-License-Identifier: Apache-2.0
"""Functions over Explicit axes by their own sharding rules: without `auto_axes` around them, and without `out_sharding`
if the type follows from the arguments.

In mode explicit most functions of whole arrays run inside `auto_axes` (see `wholes`), so a missing rule of JAX does not
show there. The reports of missing and wrong rules are in `docs/reports.toml`. The program is that of
`programs.forms.base`: f(x) = x * s(x). Wrong results raise an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import ProgramForm, at, explicit, over, partitioned_double
from meshmark.operations.programs.forms.block_functions import near
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.options import wrong


def whole_numbers(*shape: int) -> np.ndarray:
    """Small integers in float32 that differ from their neighbours."""
    return (np.arange(np.prod(shape, dtype=int)) * 5 % 7).astype(np.float32).reshape(shape)


def kept(mesh, a, y, what):
    """Raise RuntimeError unless the type of y has its first dimension sharded over the axis a."""
    spec = jax.typeof(y).sharding.spec
    first = spec[0] if len(spec) else None
    wrong(mesh.shape[a] > 1 and first not in (a, (a,)), f"{what} has the type {jax.typeof(y)}")


def _matrices(mesh, a, x):
    """Linear algebra on a sharded batch of matrices: each function keeps the sharding of the batch."""
    n, m = mesh.shape[a], explicit(mesh)
    square = whole_numbers(2 * n, 3, 3) + 8 * np.eye(3, dtype=np.float32)
    even = square + square.swapaxes(1, 2)
    b = whole_numbers(2 * n, 3)
    with jax.set_mesh(m):
        given, pairs, right = (jax.device_put(v, at(m, a)) for v in (square, even, b))
        for name, function, arguments, expected in (
            ("slogdet", lambda s: jnp.linalg.slogdet(s)[1], (given,), np.linalg.slogdet(square)[1]),
            ("solve", jnp.linalg.solve, (given, right), np.linalg.solve(square, b[..., None])[..., 0]),
            ("eigvalsh", jnp.linalg.eigvalsh, (pairs,), np.linalg.eigvalsh(even)),
            ("cholesky", jnp.linalg.cholesky, (pairs,), np.linalg.cholesky(even)),
        ):
            found = jax.jit(jax.vmap(function))(*arguments)
            near(found, expected, name, most=2e-3)
            kept(mesh, a, found, name)
        values, vectors = jax.jit(jnp.linalg.eig)(given)
        kept(mesh, a, values, "eig")
        values, vectors = np.asarray(values), np.asarray(vectors)
        near(square @ vectors, vectors * values[:, None, :], "eig", most=2e-3)
    return jax.jit(over(mesh, a))(x)


def _inverse(mesh, a, x):
    """The inverse of each matrix of a sharded batch."""
    square = whole_numbers(2 * mesh.shape[a], 3, 3) + 8 * np.eye(3, dtype=np.float32)
    m = explicit(mesh)
    with jax.set_mesh(m):
        found = jax.jit(jax.vmap(jnp.linalg.inv))(jax.device_put(square, at(m, a)))
        near(found, np.linalg.inv(square), "an inverse", most=2e-3)
        kept(mesh, a, found, "an inverse")
    return jax.jit(over(mesh, a))(x)


def _indices(mesh, a, x):
    """Reads and writes at indices of unsharded dimensions, alone and in batches."""
    n, m = mesh.shape[a], explicit(mesh)
    host = whole_numbers(2 * n, 4)
    places = np.arange(2 * n) % 4
    expected = host.copy()
    expected[np.arange(2 * n), places] = host[:, 1]
    small = np.ones((2 * n, 1, 4), np.int8)
    small[..., 3] = 2
    with jax.set_mesh(m):
        given = jax.device_put(host, at(m, a))
        where = jax.device_put(places, at(m, a))
        bytes_ = jax.device_put(np.ones((2 * n, 4), np.int8), at(m, a))
        twice = jax.vmap(jax.vmap(lambda r, i: r.at[i].set(2), in_axes=(None, 0)), in_axes=(0, None))
        for way in (lambda f: f, jax.jit):
            for name, function, arguments, right in (
                ("a column", lambda y: y[:, 1], (given,), host[:, 1]),
                ("columns", lambda y: y[:, jnp.array([2, 0])], (given,), host[:, [2, 0]]),
                (
                    "an element of each row",
                    jax.vmap(lambda r, i: r[i]),
                    (given, where),
                    host[np.arange(2 * n), places],
                ),
                ("a write in each row", jax.vmap(lambda r, i: r.at[i].set(r[1])), (given, where), expected),
                ("a write in a batch of batches", twice, (bytes_, jnp.array([[3]])), small),
            ):
                found = way(function)(*arguments)
                same_as(np.asarray(found), right, name)
                kept(mesh, a, found, name)
            made = way(lambda: jnp.zeros((1, 4)).at[..., :2].set(1))()
            same_as(np.asarray(made), np.float32([[1, 1, 0, 0]]), "a write into new zeros")
    return jax.jit(over(mesh, a))(x)


def _batches(mesh, a, x):
    """lax.map over parts of a batch with a remainder, and draws with a key per row."""
    n, m = mesh.shape[a], explicit(mesh)
    host = whole_numbers(5, 2 * n, 4)
    weights = np.float32([1, 2, 3, 4])
    keys = jax.random.split(jax.random.key(0), 2 * n)
    chances = whole_numbers(2 * n, 4) + 1
    categories = jax.vmap(jax.random.categorical)
    right = np.asarray(categories(keys, chances))
    with jax.set_mesh(m):
        given = jax.device_put(host, at(m, None, a))
        for way in (lambda f: f, jax.jit):
            found = way(lambda y: lax.map(lambda p: (weights * p).sum(axis=-1), y, batch_size=2))(given)
            same_as(np.asarray(found), (host * weights).sum(axis=-1), "a loop over parts of a batch")
            placed = jax.device_put(keys, at(m, a)), jax.device_put(chances, at(m, a))
            drawn = way(categories)(*placed)
            same_as(np.asarray(drawn), right, "categories by a key for each row")
            kept(mesh, a, drawn, "categories by a key for each row")
    return jax.jit(over(mesh, a))(x)


def _viewed(mesh, a, x):
    """Views of complex numbers as pairs and back, and of wide numbers as narrow ones."""
    n, m = mesh.shape[a], explicit(mesh)
    host = (whole_numbers(2 * n, 4) + 1j * whole_numbers(2 * n, 4)[:, ::-1]).astype(np.complex64)
    with jax.set_mesh(m):
        given = jax.device_put(host, at(m, a))
        for kind, back in ((np.float32, np.complex64), (np.int32, np.complex64)):
            seen = jax.jit(lambda y, k=kind: y.view(k))(given)
            same_as(np.asarray(seen), host.view(kind), f"complex numbers seen as {kind.__name__}")
            kept(mesh, a, seen, "a view")
            same_as(np.asarray(jax.jit(lambda y, k=back: y.view(k))(seen)), host, "the view seen back")
        narrow = jax.jit(lambda y: y.real.view(jnp.int16))(given)
        same_as(np.asarray(narrow), np.ascontiguousarray(host.real).view(np.int16), "numbers seen as 16 bits")
    return jax.jit(over(mesh, a))(x)


def _pulled(mesh, a, x):
    """Pullbacks of a convolution over a sharded batch, of a complex linear solution, and of a shard_map with an unused
    result."""
    n, m = mesh.shape[a], explicit(mesh)
    host, kernel = whole_numbers(2 * n, 6, 1), whole_numbers(3, 1, 2)
    places = lax.ConvDimensionNumbers((0, 2, 1), (2, 1, 0), (0, 2, 1))

    def model(k, y):
        padded = jnp.pad(y, ((0, 0), (2, 0), (0, 0)))
        return lax.conv_general_dilated(padded, k, (1,), "VALID", dimension_numbers=places)

    moved = np.pad(host, ((0, 0), (2, 0), (0, 0)))
    by_kernel = np.stack([moved[:, i : i + 6].sum() * np.ones((1, 2)) for i in range(3)])
    by_input = np.stack([kernel[max(0, p - 3) :].sum() for p in range(6)])
    matrix = np.array([[4, 1j, 0], [1, 5, 2], [0, -1j, 6]], np.complex64)
    with jax.set_mesh(m):
        given = jax.device_put(host, at(m, a))
        result, pull = jax.vjp(model, jax.device_put(kernel, at(m)), given)
        found = pull(jnp.ones_like(result))
        near(found[0], by_kernel, "a convolution's gradient by its kernel")
        near(found[1], np.tile(by_input[None, :, None], (2 * n, 1, 1)), "the same by its input")
        solved = jax.device_put(matrix, at(m))
        ones = jax.device_put(np.ones(3, np.complex64), at(m))
        pulled = jax.jit(jax.grad(lambda v: jnp.linalg.solve(solved, v).real.sum()))(ones)
        near(pulled, np.linalg.inv(matrix).sum(axis=0), "the gradient of a complex solution")
        each = jax.shard_map(
            lambda p, q: (p * 2, lax.stop_gradient(q) * 1.0),
            in_specs=(P(a), P(a)),
            out_specs=(P(a), P(a)),
        )
        two = jax.device_put(host[..., 0], at(m, a)), jax.device_put(host[..., 0], at(m, a))
        grads = jax.jit(jax.grad(lambda p, q: each(p, q)[0].sum(), argnums=(0, 1)))(*two)
        same_as(
            np.asarray(grads[0]), np.full((2 * n, 6), 2, np.float32), "the gradient of the first argument"
        )
        same_as(np.asarray(grads[1]), np.zeros((2 * n, 6), np.float32), "the gradient of what is stopped")
    return jax.jit(over(mesh, a))(x)


def _size_one(mesh, a, x):
    """An axis of one device stays in the type of a reshaped array and in that of an empty part."""
    flat = Mesh(mesh.devices.reshape(1, -1), ("one", "all"), axis_types=(AxisType.Explicit,) * 2)
    n = flat.shape["all"]
    if n == 1:  # either dimension could keep the axis
        return jax.jit(over(mesh, a))(x)
    host = whole_numbers(1, n * 8)
    with jax.set_mesh(flat):
        given = jax.device_put(host, at(flat, "one", "all"))
        heads = jax.jit(lambda y: y.reshape(-1, n, 8))(given)
        tail = heads[..., :0]
        same_as(np.asarray(heads), host.reshape(1, n, 8), "a reshape beside an axis of one device")
        joined = jnp.concatenate((reshard(heads, at(flat, "one", "all", None)), tail), axis=-1)
        same_as(np.asarray(joined), host.reshape(1, n, 8), "what is joined with an empty part")
    return jax.jit(over(mesh, a))(x)


def _counted(mesh, a, x):
    """Functions whose result length depends on values or on an argument, of unsharded arrays, in a mesh context."""
    m = explicit(mesh)
    host = np.array([3, 0, 1, 3, 0, 2])
    with jax.set_mesh(m):
        given = jnp.asarray(host)
        for name, found, right in (
            ("nonzero", jnp.nonzero(given)[0], np.nonzero(host)[0]),
            ("nonzero of a size", jax.jit(lambda y: jnp.nonzero(y, size=4)[0])(given), np.nonzero(host)[0]),
            ("bincount", jnp.bincount(given, length=4), np.bincount(host, minlength=4)),
            ("argsort", jnp.argsort(given), np.argsort(host, kind="stable")),
            ("unique", jnp.unique(given), np.unique(host)),
            (
                "repeat",
                jnp.repeat(given, jnp.array([1, 2, 0, 1, 1, 1]), total_repeat_length=6),
                np.repeat(host, [1, 2, 0, 1, 1, 1]),
            ),
        ):
            same_as(np.asarray(found).astype(np.int64), right, f"{name} in the context of a mesh")
    return jax.jit(over(mesh, a))(x)


def _unreduced_two(mesh, a, x):
    """Unreduced sums over two axes at once, from a dimension that is sharded over both."""
    m = explicit(mesh)
    axes = mesh.axis_names[0], a
    n = mesh.shape[axes[0]] * mesh.shape[axes[1]]
    host, weights = whole_numbers(2 * n, 4), whole_numbers(2 * n)
    with jax.set_mesh(m):
        given = jax.device_put(host, at(m, axes, None)), jax.device_put(weights, at(m, axes))
        product = jax.jit(
            lambda y, w: jnp.einsum("ji,j->i", y, w, out_sharding=P(None, unreduced=set(axes)))
        )(*given)
        same_as(np.asarray(reshard(product, P(None))), weights @ host, "a sum over two axes, added up later")
    return jax.jit(over(mesh, a))(x)


def _heads(mesh, a, x):
    """Attention scores of grouped heads with sharded batch: the keys are repeated for the heads that share them."""
    n, m = mesh.shape[a], explicit(mesh)
    q, k = whole_numbers(n, 4, 3, 2), whole_numbers(n, 2, 3, 2)
    with jax.set_mesh(m):
        many = jax.jit(
            lambda q, k: jnp.einsum("bhsd,bhtd->bhst", q, jnp.repeat(k, 2, axis=1, out_sharding=P(a)))
        )(jax.device_put(q, at(m, a)), jax.device_put(k, at(m, a)))
        same_as(np.asarray(many), np.einsum("bhsd,bhtd->bhst", q, np.repeat(k, 2, axis=1)), "grouped heads")
        kept(mesh, a, many, "a product of grouped heads")
    return jax.jit(over(mesh, a))(x)


def _part(mesh, a, x):
    """A slice inside a shard_map over one axis keeps the type over the other axis."""
    m = explicit(mesh)
    first = mesh.axis_names[0]
    host = whole_numbers(2 * m.shape[first], 2 * m.shape[a])

    def one_row(y):
        row = y[:1]
        spec = jax.typeof(row).sharding.spec
        wrong(m.shape[a] > 1 and spec[1:] != (a,), f"a slice has the type {jax.typeof(row)}")
        return row * 2

    with jax.set_mesh(m):
        mapped = jax.shard_map(one_row, in_specs=P(first), out_specs=P(first), axis_names={first})
        found = jax.jit(mapped)(jax.device_put(host, at(m, first, a)))
    same_as(np.asarray(found), 2 * host[::2], "the first row of each block")
    return jax.jit(over(mesh, a))(x)


def _put(mesh, a, x):
    """Arrays that are put on a mesh inside its context, and from there off the mesh."""
    m = explicit(mesh)
    host = np.asarray(x)
    with jax.set_mesh(m):
        new = jnp.asarray(host)
        for given in (host, new):
            placed = jax.device_put(given, at(m, a))
            same_as(np.asarray(placed), host, "an array that was put in the context of a mesh")
            wrong(placed.sharding != NamedSharding(m, P(a)), f"it lies {placed.sharding}")
        made = jnp.arange(8.0)
    back = jax.device_put(made, jnp.zeros(8).sharding)
    same_as(
        np.asarray(jax.jit(lambda y: y + 1)(back)), np.arange(1, 9, dtype=np.float32), "what was taken out"
    )
    return jax.jit(over(mesh, a))(x)


def _custom_partitioning(mesh, a, x):
    """A function with a custom partitioning rule, in the context of a mesh with Explicit axes."""
    twice = partitioned_double()
    m = explicit(mesh)
    host = np.asarray(x)
    with jax.set_mesh(m):
        found = jax.jit(twice)(jax.device_put(host, at(m, a)))
        same_as(np.asarray(found), 2 * host, "a function with a rule of its own")
    return jax.jit(over(mesh, a))(x)


TYPED: dict[str, Callable[..., Any]] = {
    "matrices": _matrices,
    "inverse": _inverse,
    "indices": _indices,
    "batches": _batches,
    "viewed": _viewed,
    "pulled": _pulled,
    "size_one": _size_one,
    "counted": _counted,
    "unreduced_two": _unreduced_two,
    "heads": _heads,
    "part": _part,
    "put": _put,
    "custom_partitioning": _custom_partitioning,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class TypedForm(ProgramForm):
    """One sharded program, with checks of functions over Explicit axes by their own rules."""

    name = "typed_form"
    forms = TYPED
    two_axes: ClassVar[tuple[str, ...]] = ("unreduced_two", "part")

    @staticmethod
    def host(mesh, x, *, form, axis):
        return TYPED[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
