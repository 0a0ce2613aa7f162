# SPDX-License-Identifier: Apache-2.0
"""Derivatives of functions with rare options, on arrays that are sharded over the mesh axes. One program has many
functions.

The program is that of `programs.forms.base`: f(x) = x * s(x). The expected derivatives are central differences of the
NumPy definition in 64 bits: (g(y + h) - g(y - h)) / 2h for each element. A derivative that is off by more than one part
in a hundred raises. The errors of float32 and of the differences are far below; a doubled or missing derivative is far
above.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.forms.definitions import Pairs, matrices
from meshmark.operations.programs.forms.options import wrong

STEP, FAR = 1e-5, 1e-2


def ramp(np_: Any, shape: tuple[int, ...]) -> Any:
    """Weights of a result's elements. Neighbours have different weights."""
    count = int(np.prod(shape, dtype=int))
    return np_.asarray((np.arange(count) * 5 % 7 + 1).reshape(shape) / 4.0)


def weighed(np_: Any, found: Any) -> Any:
    """The sum of a result's elements, each times its weight of `ramp`."""
    return (np_.asarray(found) * ramp(np_, np.shape(found)).astype(np_.asarray(found).dtype)).sum()


def differences(define: Callable[[Any], Any], host: np.ndarray) -> np.ndarray:
    """The derivative of the weighted sum of a definition by each element, by central differences."""
    out = np.zeros(host.size)
    for i in range(host.size):
        moved: Any = np.zeros(host.size)
        moved[i] = STEP
        moved = moved.reshape(host.shape)
        out[i] = (weighed(np, define(host + moved)) - weighed(np, define(host - moved))) / (2 * STEP)
    return out.reshape(host.shape)


def slopes(mesh: Any, pairs: Pairs, host: np.ndarray, *spec: Any) -> None:
    """Compare gradients of functions of one sharded array with differences. JAX transposes its forward rules, so this
    also finds wrong forward rules."""
    host = host.astype(np.float32).astype(np.float64)
    placed = jax.device_put(host.astype(np.float32), at(mesh, *spec))

    def gradients(y):
        return {n: jax.grad(lambda z, f=f: weighed(jnp, f(z)))(y) for n, (f, _) in pairs.items()}

    for name, found in jax.jit(gradients)(placed).items():
        right = differences(pairs[name][1], host)
        near = np.isclose(np.asarray(found), right, rtol=FAR, atol=FAR * np.abs(right).max())
        wrong(
            not near.all(),
            f"the gradient of {name} is {np.asarray(found)[~near][:4]}, not {right[~near][:4]}",
        )


def apart(mesh: Any) -> np.ndarray:
    """[2n, 4]: numbers from 0.1 to 3 that differ by more than STEP. n is the number of devices on the first and the
    last axis together, or 2 if larger."""
    n = mesh.shape[mesh.axis_names[-1]] * (mesh.shape[mesh.axis_names[0]] if len(mesh.axis_names) > 1 else 1)
    n = max(n, 2)
    count = 8 * n
    step = next(k for k in (7, 11, 13) if (count + 1) % k)  # without a common factor the numbers are distinct
    return (0.1 + 2.9 * ((np.arange(count) * step) % (count + 1) + 0.5) / (count + 1)).reshape(2 * n, 4)


def spots(count: int) -> np.ndarray:
    """Indices inside and past an array of `count` rows; one occurs twice."""
    return np.array([1, count + 2, 0, 1])


def _orders(mesh, a, x):
    """Order statistics, indexed reads, padding and repetition, and elementwise functions."""
    from scipy import special

    y = apart(mesh)
    rows = len(y)
    at_rows = spots(rows)
    filled = np.where(at_rows < rows, at_rows, 0)
    pairs: Pairs = {
        "logsumexp with factors": (
            lambda z: jax.nn.logsumexp(z, 0, b=jnp.asarray(ramp(np, y.shape), z.dtype)),
            lambda z: special.logsumexp(z, 0, b=ramp(np, z.shape)),
        ),
        "take, filled": (
            lambda z: jnp.take(z * z, at_rows, axis=0, mode="fill", fill_value=2.0),
            lambda z: np.where((at_rows < rows)[:, None], (z * z)[filled], 2.0),
        ),
        "take, clipped": (
            lambda z: jnp.take(z * z, at_rows, axis=0, mode="clip"),
            lambda z: (z * z)[np.minimum(at_rows, rows - 1)],
        ),
        "take, wrapped": (
            lambda z: jnp.take(z * z, at_rows, axis=0, mode="wrap"),
            lambda z: (z * z)[at_rows % rows],
        ),
        "median": (lambda z: jnp.median(z * z, axis=0), lambda z: np.median(z * z, axis=0)),
        "percentile": (
            lambda z: jnp.percentile(z * z, 30.0, axis=0),
            lambda z: np.percentile(z * z, 30.0, axis=0),
        ),
        "padded": (
            lambda z: lax.pad(z * z, jnp.float32(0), ((0, 2, 1), (-1, 0, 2))),
            lambda z: between(z * z),
        ),
        "repeated": (
            lambda z: jnp.repeat(z * z, np.arange(rows) % 3, axis=0, total_repeat_length=rows // 2),
            lambda z: np.repeat(z * z, np.arange(rows) % 3, axis=0)[: rows // 2],
        ),
        "interpolated": (
            lambda z: jnp.interp(z, jnp.arange(4.0), jnp.array([0.0, 2, 1, 5])),
            lambda z: np.interp(z, np.arange(4.0), np.array([0.0, 2, 1, 5])),
        ),
        "error": (lambda z: lax.erf(z / 2), lambda z: special.erf(z / 2)),
        "arc": (lambda z: jnp.arctan2(z, z[::-1] + 1), lambda z: np.arctan2(z, z[::-1] + 1)),
        "gamma": (lambda z: lax.lgamma(z), lambda z: special.gammaln(z)),
        "power": (lambda z: jnp.power(z, z[::-1]), lambda z: np.power(z, z[::-1])),
    }  # fmt: skip
    slopes(mesh, pairs, y, a)
    return jax.jit(over(mesh, a))(x)


def between(z: np.ndarray) -> np.ndarray:
    """One column cut off, a zero between rows and two between columns, two zeros after the rows."""
    wide = np.zeros((2 * len(z) - 1, 3 * z.shape[1] - 2))
    wide[::2, ::3] = z
    return np.concatenate([wide, np.zeros((2, wide.shape[1]))])[:, 1:]


def attended(np_: Any, z: Any, softmax: Any) -> Any:
    """Attention with a causal mask: each position sees itself and earlier ones."""
    scores = z @ z.T / 2
    allowed = np.tril(np.ones(scores.shape, bool))
    return softmax(np_.where(allowed, scores, -1e9), axis=1) @ z


def _products(mesh, a, x):
    """Linear algebra, products, Fourier transforms and attention."""
    from scipy import special

    n = mesh.shape[a]
    y = matrices(n, 0.2, 2)
    eye = 4 * np.eye(4)

    def square(z):
        return z + eye.astype(z.dtype)

    def tall(z):
        return z.reshape(-1, 4)[:8]

    grouped = {"feature_group_count": 2}
    pairs: Pairs = {
        "inverse": (lambda z: jnp.linalg.inv(square(z)), lambda z: np.linalg.inv(square(z))),
        "determinant": (lambda z: jnp.linalg.det(square(z) / 3), lambda z: np.linalg.det(square(z) / 3)),
        "three by letters": (
            lambda z: jnp.einsum("nij,njk,nik->ni", z, z, z),
            lambda z: np.einsum("nij,njk,nik->ni", z, z, z),
        ),
        "trace by letters": (
            lambda z: jnp.einsum("nii->n", z * z),
            lambda z: np.einsum("nii->n", z * z),
        ),
        "spread": (lambda z: jnp.std(z, axis=1, ddof=1), lambda z: np.std(z, axis=1, ddof=1)),
        "groups": (
            lambda z: lax.conv_general_dilated(z, jnp.ones((2, 2, 2), z.dtype), (1,), "VALID", **grouped),
            lambda z: np.stack([z[:, i : i + 2, :-1].sum(1) + z[:, i : i + 2, 1:].sum(1) for i in (0, 2)], 1),
        ),
        "transform": (
            lambda z: jnp.abs(jnp.fft.rfft(z + 2, axis=2)[..., :2]),
            lambda z: np.abs(np.fft.rfft(z + 2, axis=2)[..., :2]),
        ),
        "ragged": (
            lambda z: lax.ragged_dot(tall(z), z[:1] * jnp.ones((3, 1, 1)), jnp.array([1, 0, len(tall(z)) - 1])),
            lambda z: tall(z) @ z[0],
        ),
        "attention": (
            lambda z: jax.nn.dot_product_attention(
                tall(z)[None, :, None], tall(z)[None, :, None], tall(z)[None, :, None],
                mask=jnp.tril(jnp.ones((len(tall(y)),) * 2, bool)),
            )[0, :, 0],
            lambda z: attended(np, tall(z), special.softmax),
        ),
    }  # fmt: skip
    slopes(mesh, pairs, y, a)
    return jax.jit(over(mesh, a))(x)


def _scattered(mesh, a, x):
    """Pullbacks of psum_scatter and all_gather that remove or add a dimension, and of all_to_all."""
    n = mesh.shape[a]
    host = ((np.arange(n * n * 2) * 5) % 7).astype(np.float32).reshape(n, n, 2)
    weights = ((np.arange(n * n * 2) * 3) % 5).astype(np.float32).reshape(n, n, 2)
    kinds = {
        "psum_scatter": (
            lambda b: lax.psum_scatter(b[0], a)[None, None],
            lambda w: np.tile(w[:, :1].reshape(1, n, 2), (n, 1, 1)),
        ),
        "psum_scatter of columns": (
            lambda b: lax.psum_scatter(b[0].T, a, scatter_dimension=1)[None, None],
            lambda w: np.tile(w[:, :1].reshape(1, n, 2), (n, 1, 1)),
        ),
        "all_gather": (
            lambda b: lax.all_gather(b[0, 0], a)[None],
            lambda w: np.concatenate([w.sum(0)[:, None], np.zeros((n, n - 1, 2))], 1),
        ),
        "all_to_all": (
            lambda b: lax.all_to_all(b, a, 1, 0).reshape(1, n, 2),
            lambda w: w.transpose(1, 0, 2),
        ),
    }
    for name, (local, define) in kinds.items():
        for checked in (True, False):
            mapped = jax.shard_map(local, mesh=mesh, in_specs=P(a), out_specs=P(a), check_vma=checked)
            shape = jax.eval_shape(mapped, host).shape
            some = weights[:, : shape[1]]
            found = jax.jit(jax.grad(lambda z, m=mapped, w=some: (m(z) * w).sum()))(host)
            right = define(weights)
            wrong(
                not np.array_equal(found, right),
                f"the pullback of {name} (check_vma={checked}) is {np.asarray(found)} instead of {right}",
            )
    return jax.jit(over(mesh, a))(x)


SLOPES: dict[str, Callable[..., Any]] = {
    "orders": _orders,
    "products": _products,
    "scattered": _scattered,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class SlopeForm(ProgramForm):
    """One sharded program, with checks of derivatives of functions with rare options."""

    name = "slope_form"
    forms = SLOPES
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        return SLOPES[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
