# SPDX-License-Identifier: Apache-2.0
"""Examples under every transform: shard_map with its specs, collectives, loops, branches, custom rules, checkpoints,
places in arrays, orders, products and shapes.

The program is that of `programs.forms.base`: f(x) = x * s(x). Beside it, each example is compared with its definition
in NumPy in every way of `grid`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import ad_checkpoint, lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.every_transform.grid import Example, compare, few, whole
from meshmark.operations.programs.forms.base import ProgramForm, at, over


def _specs(mesh: Any, a: str, **options: Any) -> Example:
    n = mesh.shape[a]

    def block(x, y, z):
        return x * z, lax.psum((x * y.T)[0], a), y * z[:, None]

    mapped = jax.shard_map(
        block,
        mesh=mesh,
        in_specs=(P(a), P(None, a), P()),
        out_specs=(P(a), P(), P(None, a)),
        **options,
    )

    def define(x, y, z, still):
        return x * z, (x * y.T).sum(0), y * z[:, None]

    given = (whole(n, 2), whole(2, n, start=1), whole(2, start=1))
    return Example(mapped, define, given, ((a,), (None, a), ()), spread=True)


def shard_map_specs(mesh, a):
    """Arguments and results with other specs each."""
    return _specs(mesh, a)


def unchecked_specs(mesh, a):
    """The same without the check of what varies."""
    return _specs(mesh, a, check_vma=False)


def collectives(mesh, a):
    """Collectives of one block: to and from other dimensions, and two permutations of the same numbers."""
    n = mesh.shape[a]

    def block(x, y):
        x = x * y
        along = [(i, (i + 1) % n) for i in range(n)]
        against = [(j, i) for i, j in along]
        return (
            lax.psum(x, a),
            lax.all_gather(x, a, axis=1),
            lax.all_to_all(x, a, 0, 1, tiled=True),
            lax.all_to_all(x.T, a, 1, 0, tiled=True),
            lax.psum_scatter(x, a, scatter_dimension=0, tiled=True),
            lax.ppermute(x, a, along),
            lax.ppermute(x, a, against),
            lax.pmean(n * x, a),
        )

    mapped = jax.shard_map(
        block, mesh=mesh, in_specs=(P(a), P()), out_specs=(P(), P(a), P(a), P(None, a), P(a), P(a), P(a), P())
    )

    def define(x, y, still):
        b = (x * y).reshape(n, n, 2)
        parts = b.transpose(1, 0, 2)  # [part, device, column]
        return (
            b.sum(0),
            np.tile(parts, (n, 1, 1)),
            parts.reshape(n, 2 * n),
            parts.reshape(n, 2 * n).T,
            b.sum(0),
            np.roll(b, 1, 0).reshape(n * n, 2),
            np.roll(b, -1, 0).reshape(n * n, 2),
            b.sum(0),
        )

    given = (whole(n * n, 2, high=1), whole(2, start=1))
    return Example(mapped, define, given, ((a,), ()), kinds=(np.float32,), spread=True)


def several_axes(mesh, a):
    """Sums over each axis and over all, of numbers of one type, in one program."""
    names = mesh.axis_names
    other = names[0]
    first = other if len(names) > 1 else None
    m, n = mesh.shape[other] if first else 1, mesh.shape[a]

    def block(x):
        return (
            lax.psum(x, a),
            lax.psum(x, other),
            lax.psum(x, names),
            lax.pmean(n * x, a),
            lax.psum(x[0, 0], a)[None],
            lax.psum(x[0, 0], other)[None],
            lax.all_gather(x, a, axis=1, tiled=True),
            lax.ppermute(x, names, [(i, (i + 1) % mesh.size) for i in range(mesh.size)]),
        )

    by_columns = P(None, a) if first else P()
    mapped = jax.shard_map(
        block,
        mesh=mesh,
        in_specs=P(first, a),
        out_specs=(
            P(first),
            by_columns,
            P(),
            P(first),
            P(first),
            P(a) if first else P(),
            P(first, a),
            P(first, a),
        ),
    )

    def define(x, still):
        rows = x.reshape(m, 2, n)
        along, across = x.sum(1, keepdims=True), rows.sum(0)
        everything = across.sum(1, keepdims=True)
        along_other = across if first else everything
        # The last axis is the fastest.
        turned = np.roll(rows.transpose(0, 2, 1).reshape(-1, 2), 1, 0)
        turned = turned.reshape(m, n, 2).transpose(0, 2, 1).reshape(2 * m, n)
        top = rows[:, 0].sum(0) if first else x[:1].sum(1)
        return (
            along,
            along_other,
            everything,
            along,
            along.reshape(m, 2)[:, 0],
            top,
            np.tile(x, (1, n)),
            turned,
        )

    return Example(mapped, define, (whole(2 * m, n),), ((first, a),))


def loops(mesh, a):
    """Loops that move numbers along their carries, from other starts, unrolled, and from the end."""
    n = mesh.shape[a]

    def function(x, y, matrix):
        def moved(i, carry):
            u, v, w = carry
            return v, u + i * x, w + v

        def step(carry, xs):
            carry = carry + matrix @ xs[:2]
            return carry, (carry, xs, matrix[0] * xs[:2])

        one = lax.fori_loop(1, 4, moved, (x, y, x))
        two = lax.fori_loop(2, 5, moved, (x, y, x), unroll=2)
        rows = jnp.stack([x, y, x], 1)
        down = lax.scan(step, matrix[1], rows)
        up = lax.scan(step, matrix[0], rows, reverse=True, unroll=2)
        return *one, *two, down[0], *down[1], up[0], *up[1], lax.map(lambda r: r * r, rows)

    def define(x, y, matrix, still):
        def moved(low, high):
            u, v, w = x, y, x
            for i in range(low, high):
                u, v, w = v, u + i * x, w + v
            return u, v, w

        rows = np.stack([x, y, x], 1)

        def scanned(carry, order):
            kept = np.zeros((len(rows), 2))
            for k in order:
                carry = carry + matrix @ rows[k, :2]
                kept[k] = carry
            return carry, kept, rows, matrix[0] * rows[:, :2]

        down, up = scanned(matrix[1], range(len(rows))), scanned(matrix[0], range(len(rows))[::-1])
        return *moved(1, 4), *moved(2, 5), *down, *up, rows * rows

    return Example(function, define, (whole(n), whole(n, start=2), whole(2, 2, start=1)), ((a,), (a,), ()))


def loop_of_unknown_length(mesh, a):
    """A loop that ends by a traced number, with an accumulator that begins at 0 and places that change."""
    n = mesh.shape[a]

    def function(x, y, k):
        def step(state):
            i, u, v, w = state
            return i + 1, v, u, w + u * y

        return lax.while_loop(lambda s: s[0] < k, step, (0, x, y, jnp.zeros_like(x)))[1:]

    def define(x, y, k, still):
        u, v, w = x, y, 0 * x
        for _ in range(int(k)):
            u, v, w = v, u, w + u * y
        return u, v, w

    given = (whole(n), whole(n, start=2), np.array(3))
    return Example(function, define, given, ((a,), (a,), ()), reverse=False)


def branches(mesh, a):
    """Each branch of a switch by a traced number, also beyond the ends, and both sides of a condition."""
    n = mesh.shape[a]
    sides: Any = [
        lambda x, y, z: x + y,
        lambda x, y, z: x * y,
        lambda x, y, z: y * y - z,
        lambda x, y, z: z * z * x,
    ]

    def function(x, y, z, k):
        chosen = [lax.switch(k + i, sides, x, y, z) for i in range(-4, 3)]
        kept = [lax.cond(k > i, lambda u, v: u * v, lambda u, v: v - u, x, z) for i in (1, 3)]
        whole_number = lax.cond(k - 3, lambda u: 2 * u, lambda u: -u, y)
        return *chosen, *kept, whole_number

    def define(x, y, z, k, still):
        k = int(k)
        chosen = [sides[min(max(k + i, 0), 3)](x, y, z) for i in range(-4, 3)]
        kept = [x * z if k > i else z - x for i in (1, 3)]
        return *chosen, *kept, 2 * y if k - 3 else -y

    given = (whole(n), whole(n, start=2), whole(n, start=3), np.array(2))
    return Example(function, define, given, ((a,), (a,), (a,), ()))


def associative_scans(mesh, a):
    """Running compositions from both ends, along both dimensions, of a function that does not commute."""
    n = mesh.shape[a]
    signs = np.resize([1.0, -1, -1], (n, 2))

    def together(p, q):
        return p[0] * q[0], p[1] * q[0] + q[1]

    def function(x):
        factor = jnp.asarray(signs, x.dtype)
        return tuple(
            lax.associative_scan(together, (factor, x), reverse=reverse, axis=axis)[1]
            for axis, reverse in ((0, False), (1, True))
        )

    def define(x, still):
        down = [x[0]]
        for sign, row in zip(signs[1:], x[1:], strict=True):
            down.append(down[-1] * sign + row)
        return np.stack(down), np.stack([x[:, 1] * signs[:, 0] + x[:, 0], x[:, 1]], 1)

    return Example(function, define, (whole(n, 2),), ((a,),))


def custom_rules(mesh, a):
    """Rules that take some tangents alone, rules with static arguments, and barriers with an unused result."""
    n = mesh.shape[a]

    @jax.custom_jvp
    def second(v, w):
        return w * w + 0 * v

    second.defjvps(None, lambda t, out, v, w: 2 * w * t)

    def scaled(i, j, v):
        return i * v - j * v * v

    forward = jax.custom_jvp(scaled, nondiff_argnums=(0, 1))
    forward.defjvp(lambda i, j, primals, moves: (scaled(i, j, *primals), (i - 2 * j * primals[0]) * moves[0]))

    def function(x, y):
        u, _, w = lax.optimization_barrier((x * y, x + y, x - y))
        return second(x, y), forward(3, 2, x), u, w, jnp.zeros_like(x), x * lax.stop_gradient(y)

    def define(x, y, still):
        return y * y, 3 * x - 2 * x * x, x * y, x - y, 0 * x, x * still[1]

    return Example(function, define, (whole(n), whole(n, start=2)), ((a,), (a,)))


def checkpoints(mesh, a):
    """Numbers that a policy keeps by name, beside others that it does not; they need all digits of float32."""
    n = mesh.shape[a]
    policies = jax.checkpoint_policies
    kept = policies.save_from_both_policies(
        policies.save_only_these_names("product"), policies.save_only_these_names("square")
    )

    def inner(x, y):
        product = ad_checkpoint.checkpoint_name(x * y, "product")
        square = ad_checkpoint.checkpoint_name(product + x * x, "square")
        return square * y

    def function(x, y):
        return jax.checkpoint(inner, policy=kept)(x, y), jax.checkpoint(inner)(y, x)

    def define(x, y, still):
        return (x * y + x * x) * y, (y * x + y * y) * x

    given = (18 * whole(n) + 3, 20 * whole(n, start=2) + 7)
    return Example(function, define, given, ((a,), (a,)), kinds=(np.float32,))


def places(mesh, a):
    """Slices and updates at traced places, also past the end, and rows that are taken and added."""
    n = mesh.shape[a] * -(-4 // mesh.shape[a])  # rows

    def function(x, u, column, k):
        return (
            lax.dynamic_slice(x, (k + n - 3, 0), (2, 2)),
            lax.dynamic_slice(x, (k, k), (n - 1, 1)),
            lax.dynamic_update_slice(x, u, (k + n - 2, 1)),
            lax.dynamic_update_slice(x, column, (0, k)),
            lax.dynamic_update_slice(x, u * u, (k, 0)),
            jnp.take(x, jnp.stack([k, k + n, 0 * k]), axis=0, mode="clip"),
            x.at[k, :1].add(u[0]),
            x.at[k].multiply(2),
            lax.dynamic_index_in_dim(x, k, 1, keepdims=False),
        )

    def define(x, u, column, k, still):
        k = int(k)
        row, low, high = min(k, n - 1), min(k, 1), min(k, 2)
        found = [x[min(k + n - 3, n - 2) :][:2, :2], x[low : low + n - 1, high : high + 1]]
        one, two, three, four, five = (x.copy() for _ in range(5))
        one[min(k + n - 2, n - 1), 1:2] = u[0]
        two[:, high : high + 1] = column
        three[row, 0:1] = (u * u)[0]
        if k < n:
            four[k, :1] += u[0]
            five[k] *= 2
        taken = np.stack([x[row], x[n - 1], x[0]])
        return *found, one, two, three, taken, four, five, x[:, high]

    given = (whole(n, 3), whole(1, 1, start=1), whole(n, 1, start=2), np.array(1))
    return Example(function, define, given, ((a,), (), (a,), ()))


def orders(mesh, a):
    """Largest numbers, sorted numbers and extremes. No step changes the order."""
    n = mesh.shape[a]

    def function(x):
        values, index = lax.top_k(x, 3)
        one, two = lax.sort((x, 2 * x), dimension=1, num_keys=1)
        return (
            values,
            jnp.take_along_axis(3 * x, index, 1),
            one,
            two,
            -jnp.sort(-x, axis=0),
            x.max(0),
            x.min(1),
            jnp.maximum(x, x[::-1]),
            lax.cummax(x, axis=1),
            jnp.where(x > x[:, :1], x, 2 * x),
        )

    def define(x, still):
        base = still[0]  # the order is that of the numbers without a step
        order = np.argsort(-base, 1)
        ranked = np.take_along_axis(x, order, 1)
        down = np.argsort(-base, 0)
        running = np.stack([base[:, : k + 1].argmax(1) for k in range(x.shape[1])], 1)
        return (
            ranked[:, :3],
            3 * ranked[:, :3],
            ranked[:, ::-1],
            2 * ranked[:, ::-1],
            np.take_along_axis(x, down, 0),
            np.take_along_axis(x, down, 0)[0],
            ranked[:, -1],
            np.where(base >= base[::-1], x, x[::-1]),
            np.take_along_axis(x, running, 1),
            np.where(base > base[:, :1], x, 2 * x),
        )

    ranks = np.arange(4 * n) * 7 % (4 * n if n % 7 else 4 * n + 1)  # no two are the same
    given = 10.0 * (ranks.reshape(n, 4) - 3)
    return Example(function, define, (given,), ((a,),), kinds=(np.float32,))


def products(mesh, a):
    """Products with batches and with several contracted dimensions."""
    n = mesh.shape[a]

    def function(x, y):
        return (
            x @ y,
            jnp.einsum("nij,nji->n", x, y),
            jnp.einsum("nij,mjk->nmik", x, y),
            jnp.tensordot(x, y, ((0, 2), (0, 1))),
            lax.dot_general(x, y, (((1,), (2,)), ((0,), (0,)))),
        )

    def define(x, y, still):
        return (
            x @ y,
            np.einsum("nij,nji->n", x, y),
            np.einsum("nij,mjk->nmik", x, y),
            np.tensordot(x, y, ((0, 2), (0, 1))),
            np.einsum("nij,nki->njk", x, y),
        )

    return Example(function, define, (whole(n, 2, 3), whole(n, 3, 2, start=1)), ((a,), (a,)))


def shapes(mesh, a):
    """Padding, pieces, turns, merged and split dimensions, and choices."""
    n = mesh.shape[a]
    mask = np.arange(2 * n).reshape(n, 2) % 3 > 0

    def function(x, y):
        return (
            lax.pad(x, jnp.zeros((), x.dtype), ((-1, 2, 0), (1, -1, 1))),
            jnp.concatenate([x, y.T, x[:1]]),
            jnp.roll(x, 3, 0),
            x[::-1],
            lax.rev(y, (0, 1)),
            y.reshape(-1),
            x.reshape(2, n),
            (x * y.T).T.ravel(),
            jnp.broadcast_to(y[0, :, None], (n, 3)),
            jnp.where(mask, x, y.T),
            lax.select(mask, y.T, x),
            jnp.stack([x, y.T], 1)[::2, 0],
            jnp.cumsum(x, 0),
            lax.cumsum(y, 1, reverse=True),
            x.sum(0),
            jnp.repeat(x, 2, axis=0)[1:],
        )

    def define(x, y, still):
        padded = np.zeros((n + 1, 3))
        wide = np.zeros((n + 1, 4))
        wide[: n - 1, 1], wide[: n - 1, 3] = x[1:, 0], x[1:, 1]
        padded = wide[:, :3]
        return (
            padded,
            np.concatenate([x, y.T, x[:1]]),
            np.roll(x, 3, 0),
            x[::-1],
            y[::-1, ::-1],
            y.reshape(-1),
            x.reshape(2, n),
            (x * y.T).T.ravel(),
            np.broadcast_to(y[0, :, None], (n, 3)),
            np.where(mask, x, y.T),
            np.where(mask, y.T, x),
            np.stack([x, y.T], 1)[::2, 0],
            np.cumsum(x, 0),
            np.cumsum(y[:, ::-1], 1)[:, ::-1],
            x.sum(0),
            np.repeat(x, 2, axis=0)[1:],
        )

    return Example(function, define, (whole(n, 2), whole(2, n, start=2)), ((a,), (None, a)))


EXAMPLES: dict[str, Callable[[Any, str], Example]] = {
    "shard_map_specs": shard_map_specs,
    "unchecked_specs": unchecked_specs,
    "collectives": collectives,
    "several_axes": several_axes,
    "loops": loops,
    "loop_of_unknown_length": loop_of_unknown_length,
    "branches": branches,
    "associative_scans": associative_scans,
    "custom_rules": custom_rules,
    "checkpoints": checkpoints,
    "places": places,
    "orders": orders,
    "products": products,
    "shapes": shapes,
}
"""Each function takes the mesh and its last axis."""


class EveryTransform(ProgramForm):
    """One example under every transform: tangents, cotangents, batches, checkpoints, compiled ahead of time."""

    name = "every_transform"
    forms: ClassVar[dict[str, Callable[..., Any]]] = EXAMPLES
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        small = Mesh(few(mesh.devices), mesh.axis_names)
        compare(small, EXAMPLES[form](small, axis), form)
        return jax.jit(over(mesh, axis))(jax.device_put(x, at(mesh, axis)))
