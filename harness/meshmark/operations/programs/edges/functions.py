# SPDX-License-Identifier: Apache-2.0
"""Functions at their edges, on sharded arrays: equal numbers and NaN in orders, sums of nothing, places just past the
end, gradients at ties and zeros, signs of zero, the ends of narrow dtypes, and loops that do not run.

The program is that of `programs.forms.base`: f(x) = x * s(x). Each function has a few whole numbers and an expected
value that NumPy gives, or that is written down. Values and dtypes must be exactly those, in one compiled program of all
functions and in eager calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.edges.comparing import agree, column, rows_of
from meshmark.operations.programs.edges.loops import calls, control
from meshmark.operations.programs.forms.base import ProgramForm, at, explicit, over
from meshmark.operations.programs.forms.collective_options import same_as
from meshmark.operations.programs.forms.definitions import close


def _orders(mesh, a, x):
    """Places of the first NaN and of the first of equal numbers, orders by several keys, and the largest numbers of
    each dtype."""
    rows = rows_of(mesh, a)
    edges: dict[str, Any] = {}
    for kind in (np.float16, jnp.bfloat16, np.float32):
        host = column([3, 1, np.nan, 1, np.nan, -2, 5, 5], rows, kind)
        wide = host.astype(np.float32)
        for name in ("argmin", "argmax"):
            first = getattr(np, name)(wide, axis=0).astype(np.int32)
            edges[f"{name} of NaN in {np.dtype(kind)}"] = (
                lambda y, name=name: getattr(jnp, name)(y, axis=0),
                (host,),
                first,
            )
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32):
        ends = np.iinfo(kind)
        host = column([ends.min, ends.max, 1, ends.max // 2 + 1, ends.max, ends.min, 0, 2], rows, kind)
        for name in ("argmin", "argmax", "max", "min"):
            right = getattr(np, name)(host, axis=0)
            edges[f"{name} of {np.dtype(kind)}"] = (
                lambda y, name=name: getattr(jnp, name)(y, axis=0),
                (host,),
                right.astype(np.int32) if name.startswith("arg") else right,
            )
        order = np.argsort(-host.T.astype(np.int64), axis=1, kind="stable")[:, :3]
        edges[f"the largest of {np.dtype(kind)}"] = (
            lambda y: lax.top_k(y.T, 3),
            (host,),
            (np.take_along_axis(host.T, order, 1), order.astype(np.int32)),
        )
    keys = [
        np.resize(np.array(v, np.int32), rows) for v in ([1, 0], [2, 2, 1], [0, 3, 1, 2, 5], np.arange(rows))
    ]
    order = np.lexsort(keys[2::-1])
    edges["an order by three keys"] = (
        lambda *k: lax.sort(k, num_keys=3),
        tuple(keys),
        tuple(k[order] for k in keys),
    )
    steps = np.arange(rows, dtype=np.float32) // 2
    for method in ("scan", "scan_unrolled", "sort", "compare_all"):
        for side in ("left", "right"):
            edges[f"searchsorted by {method}, {side}"] = (
                lambda y, method=method, side=side: jnp.searchsorted(y, y[1::2], side=side, method=method),
                (steps,),
                np.searchsorted(steps, steps[1::2], side=side).astype(np.int32),
            )
    agree(mesh, edges, a)
    return jax.jit(over(mesh, a))(x)


def _sums(mesh, a, x):
    """Sums and products of nothing, variances of chosen elements, running sums along the sharded dimension."""
    rows = rows_of(mesh, a)
    host = (np.arange(rows * 6).reshape(rows, 6) * 5 % 13 - 4).astype(np.float32)
    chosen = np.add.outer(np.arange(rows), np.arange(6)) % 3 > 0
    edges: dict[str, Any] = {}
    for kind in (np.float32, np.int32, np.uint8):
        whole = np.abs(host).astype(kind)
        for name in ("prod", "sum"):
            edges[f"{name} of nothing in {np.dtype(kind)}"] = (
                lambda y, name=name: getattr(jnp, name)(y[:, :0], axis=1, dtype=y.dtype),
                (whole,),
                np.full(rows, name == "prod", kind),
            )
    edges["all and any of nothing"] = (
        lambda y: (jnp.all(y[:, :0] > 0, axis=1), jnp.any(y[:, :0] > 0, axis=1)),
        (host,),
        (np.ones(rows, bool), np.zeros(rows, bool)),
    )
    edges["a product with zeros"] = (lambda y: y.prod(1), (host % 3,), (host % 3).prod(1))
    agree(mesh, edges, a)
    spread = {
        f"{name} of chosen elements, ddof {ddof}": (
            lambda y, w, name=name, ddof=ddof: getattr(jnp, name)(y, axis=1, where=w, ddof=ddof),
            (host, chosen),
            getattr(np, name)(host.astype(np.float64), axis=1, where=chosen, ddof=ddof),
        )
        for name in ("var", "std")
        for ddof in (0, 1)
    }
    agree(mesh, spread, a, compare=close)
    running: dict[str, Any] = {}
    wide = (np.arange(4 * rows).reshape(4, rows) * 5 % 11 - 5).astype(np.int32)
    for kind in (np.int32, np.int8, np.float32):
        given = wide.astype(kind)
        running[f"running sums of {np.dtype(kind)}"] = (
            lambda y: jnp.cumsum(y, axis=1, dtype=y.dtype),
            (given,),
            np.cumsum(given, axis=1, dtype=kind),
        )
        running[f"running sums from the end of {np.dtype(kind)}"] = (
            lambda y: lax.cumsum(y, axis=1, reverse=True),
            (given,),
            np.cumsum(given[:, ::-1], axis=1, dtype=kind)[:, ::-1],
        )
    agree(mesh, running, None, a)
    with jax.enable_x64(True):
        large = np.full(rows, 2**53 + 1, np.int64)
        agree(
            mesh,
            {"sums of int64": (lambda y: (y.sum(), jnp.cumsum(y)), (large,), (large.sum(), large.cumsum()))},
            a,
        )
    return jax.jit(over(mesh, a))(x)


def slope(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of the sum of a function's result, each element times its place in rows, from 1 on."""

    def weighed(y):
        found = function(y)
        return (found * (1 + jnp.arange(found.size, dtype=found.dtype)).reshape(found.shape)).sum()

    return jax.grad(weighed)


def _slopes(mesh, a, x):
    """Gradients at ties and at zeros, of reversed running sums, of padding, and of what an order carries along."""
    rows = rows_of(mesh, a)
    host = column([2, 3, 4], rows, np.float32)
    host[[1, rows - 2]] = 9  # two equal extremes: half of a slope is not rounded
    host[[3, rows - 4]] = -9
    weights = np.array([1, 2], np.float32)
    edges: dict[str, Any] = {}
    for name in ("max", "min"):
        tied = host == getattr(host, name)(axis=0)
        edges[f"the gradient of {name} at ties"] = (
            slope(lambda y, name=name: getattr(jnp, name)(y, axis=0)),
            (host,),
            (tied / tied.sum(axis=0) * weights).astype(np.float32),
        )
    few = column([3, 6, 1, 2], 4, np.float32)
    for zeros, given in (("one zero", few * (few != 1)), ("no zero", few), ("two zeros", few * (few < 3))):
        others = np.stack([np.prod(np.delete(given, i, 0), axis=0) for i in range(len(given))])
        padded = np.concatenate([given, np.ones((rows - 4, 2), np.float32)])
        right = np.concatenate([others, np.repeat(given.prod(0)[None], rows - 4, 0)]) * weights
        edges[f"the gradient of a product with {zeros}"] = (
            slope(lambda y: jnp.prod(y, axis=0)),
            (padded,),
            right.astype(np.float32),
        )
    place = np.arange(1, 2 * rows + 1, dtype=np.float32).reshape(rows, 2)
    for reverse in (False, True):
        turned = place if reverse else place[::-1]
        sums = np.cumsum(turned, axis=0)
        edges[f"the gradient of a running sum, reverse={reverse}"] = (
            slope(lambda y, reverse=reverse: lax.cumsum(y, axis=0, reverse=reverse)),
            (host,),
            sums if reverse else sums[::-1],
        )
    edges["the gradient of a padded array and of the padding value"] = (
        lambda y: jax.grad(lambda z, v: (lax.pad(z, v, ((1, 0, 1), (0, 2, 0))) ** 2).sum(), argnums=(0, 1))(
            y, jnp.float32(3)
        ),
        (host,),
        (2 * host, np.float32(6 * (2 * rows * 4 - 2 * rows))),
    )
    keys, carried = (np.arange(rows) * 5 % rows).astype(np.float32), np.arange(rows, dtype=np.float32)
    order = np.argsort(keys, kind="stable")
    edges["the tangents that an order carries along"] = (
        lambda k, v: jax.jvp(lambda k, v: lax.sort((k, v), num_keys=1), (k, v), (2 * v, v + 1))[1],
        (keys, carried),
        ((2 * carried)[order], (carried + 1)[order]),
    )
    agree(mesh, edges, a)
    z = np.resize(np.array([3 + 4j, -6 + 8j, 5 - 12j, -4 - 3j], np.complex64), rows)
    odd = np.concatenate([np.arange(rows) % 5, [7.0]]).astype(np.float32)
    transposed = np.array(
        [np.real(np.sum(np.fft.rfft(e) * np.arange(1, len(odd) // 2 + 2))) for e in np.eye(len(odd))]
    )
    loose = {
        "the gradient of the size of a complex number": (
            lambda y: jax.grad(lambda v: jnp.abs(v).sum())(y),
            (z,),
            (z.conj() / np.abs(z)).astype(np.complex64),
        ),
        "the gradient of a Fourier transform of odd length": (
            lambda y: jax.grad(
                lambda v: jnp.real(
                    (jnp.fft.rfft(jnp.append(v, 7.0)) * jnp.arange(1, len(odd) // 2 + 2)).sum()
                )
            )(y),
            (odd[:-1],),
            transposed[:-1],
        ),
    }
    agree(mesh, loose, a, compare=close)
    return jax.jit(over(mesh, a))(x)


def _padding_value(mesh, a, x):
    """The gradient of the value with which a constant array is padded."""
    rows = rows_of(mesh, a)
    host = column([2, 5, 5, 0], rows, np.float32)
    edges: dict[str, Any] = {
        "the gradient of a padding value": (
            lambda y: jax.grad(lambda v: (lax.pad(y, v, ((1, 0, 1), (0, 2, 0))) ** 2).sum())(jnp.float32(3)),
            (host,),
            np.float32(6 * (2 * rows * 4 - 2 * rows)),
        )
    }
    agree(mesh, edges, a)
    return jax.jit(over(mesh, a))(x)


def _places(mesh, a, x):
    """Reads and writes exactly at the end and just past it, repeated places, and updates that hang over."""
    rows = rows_of(mesh, a)
    host = np.arange(1, rows + 1, dtype=np.int32)
    past = np.array([rows, 0, rows + 3, -rows - 1])
    clipped = np.clip(past, 0, rows - 1)
    dropped, added, many = host.copy(), host.copy(), host.copy()
    dropped[0] = 20
    np.add.at(added, clipped, [10, 20, 30, 40])
    np.multiply.at(many, [1, 1, 2, 1], [2, 3, 5, 7])
    hanging = host.copy()
    hanging[-3:] = 7
    sorted_places = np.array([0, 2, 2, 2, rows - 1])
    sums = host.copy()
    np.add.at(sums, sorted_places, [1, 2, 3, 4, 5])
    values = jnp.array([10, 20, 30, 40])
    edges: dict[str, Any] = {
        "a write past the end": (
            lambda y: y.at[past].set(values, mode="drop", wrap_negative_indices=False),
            (host,),
            dropped,
        ),
        "an addition past the end, clipped": (
            lambda y: y.at[past].add(values, mode="clip", wrap_negative_indices=False),
            (host,),
            added,
        ),
        "a read past the end": (
            lambda y: y.at[past].get(mode="fill", fill_value=-7, wrap_negative_indices=False),
            (host,),
            np.array([-7, 1, -7, -7], np.int32),
        ),
        "factors of one place": (
            lambda y: y.at[jnp.array([1, 1, 2, 1])].multiply(jnp.array([2, 3, 5, 7])),
            (host,),
            many,
        ),
        "an update that hangs over the end": (
            lambda y: lax.dynamic_update_slice(y, jnp.full(3, 7, y.dtype), (rows - 1,)),
            (host,),
            hanging,
        ),
        "additions in sorted places": (
            lambda y: y.at[sorted_places].add(jnp.arange(1, 6), indices_are_sorted=True),
            (host,),
            sums,
        ),
        "pieces side by side": (
            lambda y, z: jnp.concatenate([y, y[: rows // 2], z, y[1:]]),
            (host, np.repeat(host, 2)),
            np.concatenate([host, host[: rows // 2], np.repeat(host, 2), host[1:]]),
        ),
        "arrays of two lengths side by side": (
            lambda y, z: (jnp.concatenate([y, z]), jnp.append(z, y)),
            (host, np.repeat(host, 2)),
            (np.concatenate([host, np.repeat(host, 2)]), np.concatenate([np.repeat(host, 2), host])),
        ),
        "the rows from the last": (lambda y: jnp.stack(list(reversed(y))), (host,), host[::-1]),
        "the largest of segments": (
            lambda y: jax.ops.segment_max(-1.0 * y, np.arange(rows) % 3 * 2, num_segments=6),
            (host,),
            np.array([-1, -np.inf, -2, -np.inf, -3, -np.inf], np.float32),
        ),
    }
    agree(mesh, edges, a)
    return jax.jit(over(mesh, a))(x)


def _kinds(mesh, a, x):
    """Signs of zero, casts at the ends of narrow dtypes, promotions of two narrow dtypes, and shifts by the width."""
    rows = rows_of(mesh, a)
    zeros = np.resize(np.array([0.0, -0.0, 2.0], np.float32), rows)
    halves = np.resize(np.array([1, 2, 3], np.float16), rows)
    short = halves.astype(jnp.bfloat16)
    whole = np.resize(np.array([-128, -1, 1, 127], np.int8), rows)
    large = np.resize(np.array([448, 1000, -1000, 480, 16, -np.inf], np.float32), rows)
    edges: dict[str, Any] = {
        "numbers beyond the largest of float8": (
            # The result stays narrow: XLA may drop a cast that a cast back follows (`xla_allow_excess_precision`),
            # and on a GPU it does.
            lambda y: y.astype(jnp.float8_e4m3fn),
            (large,),
            np.where(np.abs(large) > 464, np.nan, large).astype(jnp.float8_e4m3fn),
        ),
        "1 over a negated zero": (
            lambda y: jnp.sign(1 / -y),
            (zeros,),
            np.where((zeros == 0) & np.signbit(zeros), 1, -1).astype(np.float32),
        ),
        "bfloat16 and float16 together": (lambda p, q: p + q, (short, halves), 2 * halves.astype(np.float32)),
        "a choice with a Python number": (
            lambda p, q: (jnp.where(p > 1, p, 0.0), jnp.where(q > 1, q, 0.0)),
            (short, halves),
            (
                np.where(short > 1, short, 0).astype(jnp.bfloat16),
                np.where(halves > 1, halves, 0).astype(np.float16),
            ),
        ),
        "shifts by the width and more": (
            lambda y: (
                lax.shift_right_arithmetic(y, jnp.full_like(y, 8)),
                lax.shift_right_logical(y, jnp.full_like(y, 9)),
                lax.shift_left(y, jnp.full_like(y, 8)),
            ),
            (whole,),
            (np.where(whole < 0, -1, 0).astype(np.int8), np.zeros(rows, np.int8), np.zeros(rows, np.int8)),
        ),
        "a product of bfloat16 as float32": (
            lambda p, q: lax.dot(p, q, preferred_element_type=jnp.float32),
            (np.full((rows, rows), 1.5, jnp.bfloat16), np.full((rows, rows), 1.0078125, jnp.bfloat16)),
            np.full((rows, rows), rows * 1.5 * 1.0078125, np.float32),
        ),
    }
    agree(mesh, edges, a)
    return jax.jit(over(mesh, a))(x)


def _networks(mesh, a, x):
    """Grouped products with rows of no group, dilated windows with uneven padding, negative windows, and attention,
    softmax and logarithms of sums with rare options."""
    rows = rows_of(mesh, a)
    tall = (np.arange(rows * 4).reshape(rows, 4) % 5 - 2).astype(np.float32)
    groups = np.array([2, 0, rows - 5], np.int32)
    weights = np.arange(3 * 4 * 2).reshape(3, 4, 2).astype(np.float32) % 7 - 3
    member = np.repeat([0, 1, 2], groups)
    grouped = np.zeros((rows, 2), np.float32)
    grouped[: len(member)] = np.einsum("ri,rio->ro", tall[: len(member)], weights[member])
    line = (np.arange(rows) * 3 % 7 - 9).astype(np.float32)
    padded = np.concatenate([[0], line, [0, 0, 0]])
    kernel = np.array([1, 2, -1], np.float32)
    dilated = np.array([sum(kernel[k] * padded[i + 2 * k] for k in range(3)) for i in range(len(padded) - 4)])
    lowest = np.concatenate([[-np.inf], line, [-np.inf]])
    mask = np.add.outer(np.arange(rows), np.arange(4)) % 3 > 0
    edges: dict[str, Any] = {
        "a grouped product with rows of no group": (
            lambda y: lax.ragged_dot(y, weights, groups, precision="highest"),
            (tall,),
            grouped,
        ),
        "a dilated window with uneven padding": (
            lambda y: lax.conv_general_dilated(
                y[None, None], kernel[None, None], (1,), [(1, 3)], rhs_dilation=(2,), precision="highest"
            )[0, 0],
            (line,),
            dilated.astype(np.float32),
        ),
        "the largest of negative windows": (
            lambda y: lax.reduce_window(y, -jnp.inf, lax.max, (3,), (1,), ((1, 1),)),
            (line,),
            np.array([lowest[i : i + 3].max() for i in range(rows)], np.float32),
        ),
        "an implicit order of letters": (lambda y: jnp.einsum("ba", y), (tall,), tall.T),
    }
    agree(mesh, edges, a)
    scores = tall.astype(np.float64)
    powers = np.exp(scores)
    signed = np.where(mask, powers, -3 * powers).sum(0)
    few = np.linspace(-1, 1, 2 * 1 * 4).reshape(1, 2, 1, 4)
    keys = np.linspace(-1, 1, 5 * 4).reshape(1, 5, 1, 4)[:, ::-1]
    product = np.einsum("bqhd,bkhd->bhqk", few, keys) / 2
    product = np.where(np.tril(np.ones((2, 5), bool)), product, -np.inf)
    seen = np.exp(product - product.max(-1, keepdims=True))
    attended = np.einsum("bhqk,bkhd->bqhd", seen / seen.sum(-1, keepdims=True), keys)
    lower = np.tril(np.arange(16).reshape(4, 4) % 5 - 2.0)
    unit = np.where(np.eye(4, dtype=bool), 1, lower)
    loose: dict[str, Any] = {
        "a softmax of chosen elements": (
            lambda y, m: jax.nn.softmax(y, axis=0, where=m),
            (tall, mask),
            np.where(mask, powers, 0) / np.where(mask, powers, 0).sum(0),
        ),
        "the sign of a sum of powers": (
            lambda y, m: jax.scipy.special.logsumexp(
                y, axis=0, b=jnp.where(m, 1.0, -3.0), keepdims=True, return_sign=True
            ),
            (tall, mask),
            (np.log(np.abs(signed))[None], np.sign(signed)[None]),
        ),
        "attention of fewer queries than keys": (
            lambda y: jax.nn.dot_product_attention(
                *(jnp.asarray(v, jnp.float32) for v in (few, keys, keys)), is_causal=True
            )
            + 0 * y[0, 0],
            (tall,),
            attended,
        ),
        "a triangular solution with a unit diagonal": (
            lambda y: lax.linalg.triangular_solve(
                jnp.asarray(lower, jnp.float32), y, left_side=False, lower=True, transpose_a=True, unit_diagonal=True
            ),
            (tall,),
            np.linalg.solve(unit, scores.T).T,
        ),
    }  # fmt: skip
    agree(mesh, loose, a, compare=close)
    return jax.jit(over(mesh, a))(x)


def _explicit(mesh, a, x):
    """Over Explicit axes: extremes of negative numbers, products, orders and reversals along the sharded dimension."""
    rows = rows_of(mesh, a)
    typed = explicit(mesh)
    host = -1 - (np.arange(rows * 4) * 7 % (rows * 4 + 1)).reshape(rows, 4).astype(np.float32)
    signs = np.where(host % 3 == 0, -1, 1).astype(np.float32)
    for kind in (np.float32, np.int32, jnp.bfloat16):
        given, wide = host.astype(kind), host.astype(kind).astype(np.float32)
        edges: dict[str, Any] = {
            f"{name} of negative {np.dtype(kind)}": (
                lambda y, name=name: getattr(jnp, name)(y, axis=0),
                getattr(np, name)(wide, axis=0).astype(np.int32 if name.startswith("arg") else kind),
            )
            for name in ("max", "min", "argmax", "argmin")
        }
        edges[f"reversed rows of {np.dtype(kind)}"] = (lambda y: y[::-1], given[::-1])
        edges[f"a reversed matrix of {np.dtype(kind)}"] = (lambda y: lax.rev(y, (0, 1)), given[::-1, ::-1])
        with jax.set_mesh(typed):
            placed = jax.device_put(given, NamedSharding(typed, P(a)))
            for name, (function, expected) in edges.items():
                for way, found in (("compiled", jax.jit(function)(placed)), ("eager", function(placed))):
                    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
                        same_as(np.asarray(one), other, f"{name}, {way},")
    with jax.set_mesh(typed):
        placed = jax.device_put(signs, NamedSharding(typed, P(a)))
        same_as(np.asarray(jax.jit(lambda y: y.prod(0))(placed)), signs.prod(0), "a product of signs")
    return jax.jit(over(mesh, a))(x)


FUNCTION_EDGES: dict[str, Callable[..., Any]] = {
    "orders": _orders,
    "sums": _sums,
    "slopes": _slopes,
    "padding_value": _padding_value,
    "places": _places,
    "kinds": _kinds,
    "networks": _networks,
    "control": control,
    "explicit": _explicit,
    "calls": calls,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class FunctionEdge(ProgramForm):
    """One sharded program, with checks of functions at their edges: ties, NaN, nothing, zero, the end, the last."""

    name = "function_edge"
    forms = FUNCTION_EDGES
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        return FUNCTION_EDGES[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
