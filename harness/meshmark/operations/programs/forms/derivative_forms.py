# SPDX-License-Identifier: Apache-2.0
"""Derivatives other than those of real functions by their first argument, in one sharded program: of complex functions,
of rules with symbolic zeros, of roots and solutions, of reads and writes at indices outside an array, and inside
shard_map.

The program is that of `programs.forms.base`: f(x) = x * s(x). The expected values are closed forms, in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.function_forms import off
from meshmark.operations.programs.forms.options import through, wrong

# Complex numbers.


def complex_of(mesh, a, x):
    """A complex64 array of small integers on the mesh, and its host copy."""
    given = np.asarray(x) + 1j * np.asarray(x)[::-1]
    return jax.device_put(given.astype(np.complex64), at(mesh, a)), given


def _holomorphic(mesh, a, x):
    """Holomorphic derivatives of a complex array: of a loss, as columns and as rows of a Jacobian, and of collectives.
    Also a real loss of a complex argument, whose gradient is the conjugate."""
    z, given = complex_of(mesh, a, x)
    n = mesh.shape[a]

    def found(v):
        cubes = jax.grad(lambda p: (p * p * p).sum(), holomorphic=True)(v)
        few = v[:2, 0]
        jacobians = [
            f(lambda p: jnp.stack([p[0] * p[1], 2j * p[1]]), holomorphic=True)(few)
            for f in (jax.jacfwd, jax.jacrev)
        ]
        size = jax.grad(lambda p: (p.real**2 + 3 * p.imag).sum())(v)
        return cubes, *jacobians, size

    def local(b):
        turn = [(i, (i + 1) % n) for i in range(n)]

        def sent(p):
            return lax.ppermute(p, a, turn) * (1 + 2j) + lax.psum(p * p, a) * 1j

        return jax.vjp(sent, b)[1](jnp.full_like(b, 2 - 1j) * (1 + lax.axis_index(a)))[0]

    cubes, forward, backward, size = (np.asarray(v) for v in jax.jit(found)(z))
    same_as(cubes, (3 * given**2).astype(np.complex64), "the derivative of a cube")
    first, second = given[:2, 0]
    wanted = np.array([[second, first], [0, 2j]], np.complex64)
    same_as(forward, wanted, "a complex Jacobian by columns")
    same_as(backward, wanted, "a complex Jacobian by rows")
    same_as(size, (2 * given.real - 3j).astype(np.complex64), "the gradient of a real loss")
    blocks = given.reshape(n, -1, x.shape[1])
    numbers = np.arange(1, n + 1)[:, None, None]
    wanted = (2 - 1j) * (1 + 2j) * np.roll(numbers, -1, 0) + 2 * blocks * 1j * (2 - 1j) * numbers.sum()
    for checked in (True, False):
        mapped = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=P(a), check_vma=checked)
        same_as(
            np.asarray(jax.jit(mapped)(z)),
            wanted.reshape(given.shape).astype(np.complex64),
            f"a complex cotangent through collectives (check_vma={checked})",
        )
    return jax.jit(over(mesh, a))(x)


def _complex_cotangents(mesh, a, x):
    """Complex cotangents and tangents of functions between real and complex arrays. JAX does not conjugate them."""
    z, given = complex_of(mesh, a, x)
    seed = np.roll(given, 1, axis=1) * 1j

    def pulled(v, g):
        def back(f, c):
            return jax.vjp(f, v)[1](c)[0]

        return (
            back(jnp.conj, g),
            back(lambda p: p * (3 - 2j), g),
            back(lambda p: p.real, g.real),
            back(lambda p: p.imag, g.real),
            back(lambda p: p.T @ p, g.T @ g),
            back(lambda p: jnp.cumsum(p, axis=0), g),
            jax.vjp(lambda p: lax.complex(p, 2 * p), v.real)[1](g)[0],
            jax.jvp(lambda p: p * jnp.conj(p), (v,), (g,))[1],
            jax.linear_transpose(lambda p: 1j * p[::-1], v)(g)[0],
        )

    product = seed.T @ seed
    wanted = (
        seed.conj(),
        seed * (3 - 2j),
        seed.real + 0j,
        -1j * seed.real,
        given @ (product + product.T),
        np.cumsum(seed[::-1], axis=0)[::-1],
        seed.real - 2 * seed.imag,
        seed * given.conj() + given * seed.conj(),
        1j * seed[::-1],
    )
    there = jax.device_put(seed.astype(np.complex64), at(mesh, a))
    for number, (found, own) in enumerate(zip(jax.jit(pulled)(z, there), wanted, strict=True)):
        kind = np.complex64 if np.iscomplexobj(own) else np.float32
        same_as(np.asarray(found), own.astype(kind), f"complex derivative {number}")
    return jax.jit(over(mesh, a))(x)


# Rules.


def _told_what_varies(mesh, a, x):
    """Rules with symbolic zeros: they learn which arguments are perturbed and which cotangents or tangents are zero."""
    told: list[Any] = []

    def same(y):
        del told[:]
        rule = jax.custom_vjp(lambda p, q: (p * q, p + q))

        def forward(p, q):
            told.append((p.perturbed, q.perturbed))
            return (p.value * q.value, p.value + q.value), (p.value, q.value)

        def backward(kept, seeds):
            zeros = [isinstance(s, jax.custom_derivatives.SymbolicZero) for s in seeds]
            told.append(tuple(zeros))
            one, two = (0.0 if z else s for z, s in zip(zeros, seeds, strict=True))
            return one * kept[1] + two + 0 * kept[0], one * kept[0] + two + 0 * kept[1]

        rule.defvjp(forward, backward, symbolic_zeros=True)
        by_first = jax.grad(lambda p: rule(p, 3 * y)[0].sum())(y)
        by_second = jax.grad(lambda q: rule(2 * y, q)[1].sum())(y)
        push = jax.custom_jvp(lambda p, q: p * q)

        def pushed(primals, tangents):
            zeros = tuple(isinstance(t, jax.custom_derivatives.SymbolicZero) for t in tangents)
            told.append(zeros)
            p, q = primals
            dp, dq = (jnp.zeros_like(p) if z else t for z, t in zip(zeros, tangents, strict=True))
            return p * q, dp * q + p * dq

        push.defjvp(pushed, symbolic_zeros=True)
        tangent = jax.jvp(lambda q: push(3 * y, q), (y,), (5 * y,))[1]
        return y + off((by_first, 3 * y), (by_second, jnp.ones_like(y)), (tangent, 15 * y * y))

    y = through(mesh, a, same)(x)
    wanted = [(True, False), (False, True), (False, True), (True, False), (True, False)]
    wrong(told != wanted, f"rules with symbolic zeros were told {told}")
    return y


def _other_rules(mesh, a, x):
    """Rules per argument, rules that a function returns with its value, rules with non-differentiable arguments, and
    rules of trees; also in a batch, in a loop and compiled."""

    def same(y):
        each = jax.custom_jvp(lambda p, q: p * q)
        each.defjvps(lambda t, ans, p, q: 3 * t * q, lambda t, ans, p, q: 5 * t * p)
        one_none = jax.custom_jvp(lambda p, q: p * q)
        one_none.defjvps(None, lambda t, ans, p, q: 7 * t * p)

        @jax.custom_gradient
        def given(p):
            return p * p, lambda g: 11 * g * p

        def power(p, k, q):
            return p * k * q

        middle = jax.custom_vjp(power, nondiff_argnums=(1,))
        middle.defvjp(
            lambda p, k, q: (p * k * q, (p, q)), lambda k, kept, g: (k * g * kept[1], 2 * g * kept[0])
        )
        tree = jax.custom_vjp(lambda t: {"r": t["p"] * t["q"][0]})
        tree.defvjp(
            lambda t: ({"r": t["p"] * t["q"][0]}, t),
            lambda t, g: ({"p": g["r"] * 13, "q": [g["r"] * 17]},),
        )
        by_p, by_q = jax.grad(lambda p, q: each(p, q).sum(), argnums=(0, 1))(y, 2 * y)
        none_p, none_q = jax.grad(lambda p, q: one_none(p, q).sum(), argnums=(0, 1))(y, 2 * y)
        rows = jax.vmap(jax.grad(lambda p: given(p).sum()))(y)
        first, last = jax.grad(lambda p, q: middle(p, 3, q).sum(), argnums=(0, 1))(y, 2 * y)
        leaves = jax.jit(jax.grad(lambda t: tree(t)["r"].sum()))({"p": y, "q": [2 * y]})

        def loop(p):
            return lax.scan(lambda c, k: (k * given(p) + c, None), 0 * p, jnp.array([1.0, 2]))[0].sum()

        looped = jax.grad(loop)(y)
        return y + off(
            (by_p, 6 * y),
            (by_q, 5 * y),
            (none_p, 0 * y),
            (none_q, 7 * y),
            (rows, 11 * y),
            (first, 6 * y),
            (last, 2 * y),
            (leaves["p"], 13 + 0 * y),
            (leaves["q"][0], 17 + 0 * y),
            (looped, 33 * y),
        )

    return through(mesh, a, same)(x)


def _solutions(mesh, a, x):
    """Derivatives of custom_root, and of custom_linear_solve with a separate transposed solver. Also closure_convert of
    a function that closes over the variable of its derivative."""

    def same(y):
        upper = jnp.array([[1.0, 2], [0, 1]])
        right = jnp.stack([y[:, 0], y[:, 1]])

        def solved(m, b):
            return lax.custom_linear_solve(
                lambda v: m @ v,
                b,
                solve=lambda f, c: jnp.stack([c[0] - 2 * c[1], c[1]]),
                transpose_solve=lambda f, c: jnp.stack([c[0], c[1] - 2 * c[0]]),
            )

        value, pull = jax.vjp(solved, upper, right)
        seeds = jnp.stack([y[:, 2], y[:, 3]])
        by_matrix, by_right = pull(seeds)
        back = jnp.stack([seeds[0], seeds[1] - 2 * seeds[0]])

        def root(k):
            return lax.custom_root(lambda v: 2 * v - k * k, 0 * k, lambda f, v: k * k / 2, lambda g, w: w / 2)

        slope = jax.grad(lambda k: root(k).sum())(y)
        closed, kept = jax.closure_convert(lambda p: p * y, y)
        converted = jax.grad(lambda p, *more: closed(p, *more).sum())(y, *kept)
        return y + off(
            (value, jnp.stack([right[0] - 2 * right[1], right[1]])),
            (by_right, back),
            (by_matrix, -(back @ value.T)),
            (slope, y),
            (converted, y),
        )

    return through(mesh, a, same)(x)


# Reads and writes.

READS = ("fill", "clip", "promise_in_bounds")
WRITES = ("drop", "clip")


def _reads(mesh, a, x):
    """Derivatives of reads at indices inside and past an array in each mode, forward and backward, of rows and of
    single elements. Some indices occur more than once."""
    given = np.asarray(x)
    rows, columns = given.shape
    inside = np.array([0, 3, rows - 1, 3, rows // 2])
    outside = np.array([1, rows + 2, 1, rows - 1, 2 * rows])
    other = np.array([0, columns - 1, 1, 1, columns - 1])
    seeds = (np.arange(5 * columns) % 7 + 1).astype(np.float32).reshape(5, columns)

    def read(mode, places):
        options = {"mode": mode, **({"fill_value": 0} if mode == "fill" else {})}
        return (
            lambda p: p.at[places].get(**options),
            lambda p: p.at[places, other].get(**options),
        )

    cases = [(mode, inside if mode == "promise_in_bounds" else outside) for mode in READS]

    def derived(y, g):
        found = []
        for mode, places in cases:
            for f, seed in zip(read(mode, places), (g, g[:, 0]), strict=True):
                found += [jax.vjp(f, y)[1](seed)[0], jax.jvp(f, (y,), (2 * y,))[1]]
        return found

    found = iter(jax.jit(derived)(x, seeds))
    for mode, places in cases:
        kept = (places < rows) | (mode != "fill")
        at_ = np.minimum(places, rows - 1)
        for what, index, seed in (("rows", at_, seeds), ("elements", (at_, other), seeds[:, 0])):
            there = kept[:, None] if what == "rows" else kept
            back = np.zeros_like(given)
            np.add.at(back, index, seed * there)
            same_as(np.asarray(next(found)), back, f"the gradient of {what} read with {mode}")
            same_as(
                np.asarray(next(found)), 2 * given[index] * there, f"the tangent of {what} read with {mode}"
            )
    return jax.jit(over(mesh, a))(x)


def _writes(mesh, a, x):
    """Derivatives of writes at indices inside and past an array in each mode: of sums, products and replacements, by
    the array and by the written values, forward and backward."""
    given = np.asarray(x)
    rows, columns = given.shape
    places = np.array([1, rows + 2, rows - 2, 3 * rows])  # no row is written twice, in any mode
    new = (np.arange(4 * columns) % 5 + 2).astype(np.float32).reshape(4, columns)
    seeds = (np.arange(rows * columns) % 7 + 1).astype(np.float32).reshape(rows, columns)
    cases = [(mode, name) for mode in WRITES for name in ("add", "set", "mul")]

    def written(mode, name):
        options = {"mode": mode, "unique_indices": True}
        at_ = places if mode != "clip" else places[:3]
        return lambda p, q: getattr(p.at[at_], name)(q[: len(at_)], **options)

    def derived(y, q, g):
        found = []
        for mode, name in cases:
            f = written(mode, name)
            found += [*jax.vjp(f, y, q)[1](g), jax.jvp(f, (y, q), (3 * y, 2 * q))[1]]
        return found

    found = iter(jax.jit(derived)(x, new, seeds))
    for mode, name in cases:
        at_ = places if mode == "drop" else np.minimum(places[:3], rows - 1)
        kept = np.flatnonzero(at_ < rows)
        there = at_[kept]
        by_array, by_new, tangent = seeds.copy(), np.zeros_like(new), 3 * given
        if name == "add":
            by_new[kept], tangent[there] = seeds[there], tangent[there] + 2 * new[kept]
        elif name == "set":
            by_array[there], by_new[kept], tangent[there] = 0, seeds[there], 2 * new[kept]
        else:
            by_array[there], by_new[kept] = seeds[there] * new[kept], seeds[there] * given[there]
            tangent[there] = 3 * given[there] * new[kept] + 2 * given[there] * new[kept]
        for what, own in (("array", by_array), ("new rows", by_new)):
            same_as(np.asarray(next(found)), own, f"the gradient of {name} with {mode} by the {what}")
        same_as(np.asarray(next(found)), tangent, f"the tangent of {name} with {mode}")
    return jax.jit(over(mesh, a))(x)


# Inside shard_map.


def _derived_inside(mesh, a, x):
    """Jacobians, second derivatives and linearizations of a local block inside shard_map, with collectives. Each device
    has its own."""
    n = mesh.shape[a]
    m = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 10]], np.float32)
    given = (np.arange(3 * n) % 5 + 1).astype(np.float32).reshape(n, 3)
    turn = [(i, (i + 1) % n) for i in range(n)]

    def local(b):
        v = b[0]

        def sent(u):
            return lax.ppermute((jnp.asarray(m) * u).sum(axis=1), a, turn)

        def form(u):
            return (u * (jnp.asarray(m) * u).sum(axis=1)).sum() * (1.0 + lax.axis_index(a))

        _, push = jax.linearize(lambda u: lax.all_gather(u * u, a).sum(axis=0), v)
        slope, (value, double) = jax.grad(lambda u: ((u * u).sum(), (u, 2 * u)), has_aux=True)(v)
        return jnp.concatenate(
            [
                jax.jacfwd(sent)(v),
                jax.hessian(form)(v),
                jnp.stack([push(v), push(3 * v), slope, value, double]),
                jax.vmap(jax.grad(form))(jnp.stack([v, 2 * v])),
            ]
        )

    pairs = given**2
    rows = []
    for i in range(n):
        u, weight = given[i], i + 1
        slope = weight * (m + m.T) @ u
        sums = 2 * pairs.sum(axis=0)
        rows.append([*m, *(weight * (m + m.T)), sums, 3 * sums, 2 * u, u, 2 * u, slope, 2 * slope])
    for checked in (True, False):
        mapped = jax.shard_map(
            lambda b: local(b)[None], mesh=mesh, in_specs=P(a), out_specs=P(a), check_vma=checked
        )
        same_as(
            np.asarray(jax.jit(mapped)(given)),
            np.array(rows, np.float32),
            f"derivatives inside of shard_map (check_vma={checked})",
        )
    return jax.jit(over(mesh, a))(x)


DERIVATIVE_FORMS: dict[str, Callable[..., Any]] = {
    "holomorphic": _holomorphic,
    "complex_cotangents": _complex_cotangents,
    "told_what_varies": _told_what_varies,
    "other_rules": _other_rules,
    "solutions": _solutions,
    "reads": _reads,
    "writes": _writes,
    "derived_inside": _derived_inside,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class DerivativeForm(ProgramForm):
    """One sharded program, with checks of derivatives of complex functions, of custom rules, of solutions, of reads and
    writes outside an array, and inside shard_map."""

    name = "derivative_form"
    forms = DERIVATIVE_FORMS

    @staticmethod
    def host(mesh, x, *, form, axis):
        return DERIVATIVE_FORMS[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
