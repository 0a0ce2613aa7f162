# SPDX-License-Identifier: Apache-2.0
"""Gradients by arguments of reduced type: each device gives its own part, and a reshard adds them.

The gradient is that of the plain program, which NumPy writes down, for each placement of the other argument: over the
reduced axis, over another one, over both and over none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.operations.programs.explicit.typed_forms import whole_numbers
from meshmark.operations.programs.forms.base import at, explicit, run_jitted
from meshmark.operations.programs.forms.block_functions import near
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import reason_of
from meshmark.operations.programs.unreduced.sums import (
    IN_THE_CODE,
    REASONS,
    check_same,
    require_unreduced_types,
)

UNRESOLVED = "out sharding could not be resolved"
"""What the refusal of a read over Explicit axes says that needs an out_sharding."""


def slope(mesh: Any, a: str, loss: Callable[..., Any], w: np.ndarray, other: np.ndarray, spec: Any) -> Any:
    """The gradient of loss(w, other) by w, which is reduced over an axis, after a reshard to P()."""
    m = explicit(mesh)
    here = P(*(None,) * w.ndim, reduced={a})

    def program(w, other):
        return reshard(jax.grad(loss)(reshard(w, here), other), P())

    with jax.set_mesh(m):
        return np.asarray(jax.jit(program)(jax.device_put(w, at(m)), jax.device_put(other, at(m, *spec))))


def placements(mesh: Any, a: str) -> Iterator[tuple[Any, ...]]:
    """Entries for the first dimension of the other argument: with the reduced axis, then without."""
    others = [b for b in mesh.axis_names if b != a]
    yield (a,)
    for b in others:
        yield ((a, b),)
        yield ((b, a),)
    for b in others:
        yield (b,)
    yield ()


def check_gradient(
    mesh: Any, a: str, name: str, loss: Any, w: Any, other: Any, right: Any, must: bool = True
) -> None:
    """RuntimeError if a gradient is wrong for a placement. must: whether it has to be taken where the other argument
    lies over the reduced axis alone; otherwise, and for other placements, it may be refused for its type."""
    for spec in placements(mesh, a):
        try:
            found = slope(mesh, a, loss, w, other, spec)
        except Exception as error:
            reason = f"{type(error).__name__}: {reason_of(error)}"
            wrong(
                (must and spec == (a,)) or not re.search(f"{REASONS}|{UNRESOLVED}", reason),
                f"the gradient through {name} with the other argument over {spec} raises {reason[:300]}",
            )
            continue
        near(found, right, f"the gradient through {name} with the other argument over {spec}")


def _data(mesh: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weights [6, 4], and rows [.., 6] that the mesh divides."""
    return whole_numbers(6, 4) - 2, whole_numbers(2 * mesh.size, 6) - 3


def _products(mesh, a, x):
    """Through a product with weights after a linear function."""
    require_unreduced_types()
    w, rows = _data(mesh)

    def squares(product):
        return (product * product).sum()

    whole = 2 * rows.T @ (rows @ w)
    first = np.zeros_like(w)
    first[:4] = 2 * rows[:, :4].T @ (rows[:, :4] @ w[:4])
    again = lax.reshape
    for name, loss, right in (
        ("a product", lambda w, r: squares(r @ w), whole),
        ("a transpose", lambda w, r: squares(r @ w.T.T), whole),
        ("a reshape", lambda w, r: squares(r @ again(again(w, (4, 6)), (6, 4))), whole),
        ("a sum of two", lambda w, r: squares(r @ (w + w)), 4 * whole),
        ("a factor", lambda w, r: squares(r @ (2 * w)), 4 * whole),
        ("a slice", lambda w, r: squares(r[:, :4] @ w[:4]), first),
        ("a cast", lambda w, r: squares(r @ w.astype(jnp.float32)), whole),
        (
            "a join",
            lambda w, r: squares(jnp.concatenate([r, r], 1) @ jnp.concatenate([w, w])),
            4 * whole,
        ),
        ("a pad", lambda w, r: squares(r @ jnp.pad(w, ((0, 0), (0, 1)))), whole),
        ("jit", lambda w, r: squares(jax.jit(jnp.matmul)(r, w)), whole),
        ("checkpoint", lambda w, r: squares(jax.checkpoint(jnp.matmul)(r, w)), whole),
        (
            "a condition",
            lambda w, r: squares(lax.cond(True, lambda v: r @ v, lambda v: r @ (2 * v), w)),
            whole,
        ),
        (
            "scan",
            lambda w, r: squares(lax.scan(lambda c, _: (c + r @ w, None), 0 * (r @ w), None, length=2)[0]),
            4 * whole,
        ),
        ("einsum", lambda w, r: squares(jnp.einsum("ij,jk->ik", r, w)), whole),
        ("relu", lambda w, r: squares(r @ jax.nn.relu(w)), 2 * rows.T @ (rows @ np.maximum(w, 0)) * (w > 0)),
    ):
        check_gradient(mesh, a, name, loss, w, rows, right)
    return run_jitted(mesh, a, x)


def _others(mesh, a, x):
    """Through functions that may be refused: sums with sharded rows, flips, largest elements, squares."""
    require_unreduced_types()
    w, rows = _data(mesh)
    bias = whole_numbers(6)
    single = np.zeros_like(w)
    single[1] = 2 * w[1]
    for name, loss, given, right in (
        (
            "a bias",
            lambda b, r: ((r + b) * (r + b)).sum(),
            bias,
            2 * (rows + bias).sum(axis=0),
        ),
        ("a flip", lambda w, r: ((r @ w[::-1]) ** 2).sum(), w, (2 * rows.T @ (rows @ w[::-1]))[::-1]),
        ("a square", lambda w, r: (w * w).sum() + 0 * r.sum(), w, 2 * w),
        ("a power", lambda w, r: (w**2).sum() + 0 * r.sum(), w, 2 * w),
        ("a row", lambda w, r: (w[1] ** 2).sum() + 0 * r.sum(), w, single),
        ("a reshard to P()", lambda w, r: (reshard(w, P()) ** 2).sum() + 0 * r.sum(), w, 2 * w),
        (
            "a product of three",
            lambda w, r: (jnp.einsum("bi,ij,jk->bk", r, w, jnp.ones((4, 2))) ** 2).sum(),
            w,
            2 * rows.T @ (rows @ w @ np.ones((4, 2))) @ np.ones((2, 4)),
        ),
    ):
        check_gradient(mesh, a, name, loss, given, rows, right, must=False)
    return run_jitted(mesh, a, x)


def _lookup(mesh: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A table, indices of its rows with repeats, and the gradient of the sum of squares of those rows."""
    table, ids = whole_numbers(8, 4) - 2, np.arange(2 * mesh.size) * 3 % 7
    chosen = np.eye(8, dtype=np.float32)[ids]
    return table, ids, chosen.T @ (2 * table[ids])


def _lookups(mesh: Any, a: str, over_it: bool) -> None:
    """Judge the gradient of a table by the rows of it that indices name."""
    require_unreduced_types()
    table, ids, right = _lookup(mesh)
    for spec in placements(mesh, a):
        if over_it != (bool(spec) and a in (spec[0] if isinstance(spec[0], tuple) else spec)):
            continue

        def loss(w, i, spec=spec):
            found = w.at[i].get(out_sharding=P(*(spec or (None,)), None))
            return (found * found).sum()

        found = slope(mesh, a, loss, table, ids, spec)
        check_same(
            found,
            right,
            f"the gradient of a reduced table by its rows, with indices over {spec}",
            mesh.shape[a],
        )


def _sharded_lookup(mesh, a, x):
    """Indices that lie over the reduced axis, and contractions with rows of ones."""
    _lookups(mesh, a, True)
    table, ids, right = _lookup(mesh)

    def one_hot(w, i):
        return (jnp.einsum("bv,vd->bd", jax.nn.one_hot(i, 8), w) ** 2).sum()

    check_gradient(mesh, a, "a contraction with one_hot", one_hot, table, ids, right)
    for name, look in (
        ("w[i]", lambda w, i: w[i]),
        ("take", lambda w, i: jnp.take(w, i, axis=0)),
    ):
        check_gradient(
            mesh, a, name, lambda w, i, f=look: (f(w, i) ** 2).sum(), table, ids, right, must=False
        )
    return run_jitted(mesh, a, x)


def _unsharded_lookup(mesh, a, x):
    """Indices that do not lie over the reduced axis: each device has all of them, or those of another axis."""
    _lookups(mesh, a, False)
    return run_jitted(mesh, a, x)


def _where(mesh, a, x):
    """jnp.where of a reduced array has a rule, or is refused by one."""
    require_unreduced_types()
    w, rows = _data(mesh)
    right = 2 * rows.T @ (rows @ np.maximum(w, 0)) * (w > 0)
    try:
        found = slope(mesh, a, lambda w, r: ((r @ jnp.where(w > 0, w, 0)) ** 2).sum(), w, rows, (a,))
    except Exception as error:
        reason = f"{type(error).__name__}: {reason_of(error)}"
        wrong(
            re.search(IN_THE_CODE, reason) or not re.search(REASONS, reason),
            f"where of a reduced array is refused by an error of JAX's code: {reason[:200]}",
        )
    else:
        near(found, right, "the gradient through where")
    return run_jitted(mesh, a, x)


def _micro_batches(mesh, a, x):
    """A loop that adds up unreduced gradients of batches, with one reshard after it."""
    require_unreduced_types()
    m = explicit(mesh)
    w, rows = _data(mesh)
    batches = np.stack([rows, rows[::-1] + 1, 2 * rows])

    def program(w, batches):
        w = reshard(w, P(None, None, reduced={a}))
        slopes = [jax.grad(lambda w, b=b: ((batches[b] @ w) ** 2).sum())(w) for b in range(3)]
        kind = jax.typeof(slopes[0]).sharding.spec
        wrong(set(kind.unreduced) != {a}, f"the gradient of a reduced argument has the type {kind}")
        return reshard(slopes[0] + slopes[1] + slopes[2], P())

    with jax.set_mesh(m):
        found = jax.jit(program)(jax.device_put(w, at(m)), jax.device_put(batches, at(m, None, a)))
    near(found, sum(2 * b.T @ (b @ w) for b in batches), "a sum of unreduced gradients")
    return run_jitted(mesh, a, x)


SLOPES: dict[str, Callable[..., Any]] = {
    "slope_products": _products,
    "slope_others": _others,
    "slope_batches": _micro_batches,
    "slope_sharded_lookup": _sharded_lookup,
    "slope_unsharded_lookup": _unsharded_lookup,
    "slope_where": _where,
}
"""Each function takes a mesh, its last axis, and the input sharded over that axis."""
