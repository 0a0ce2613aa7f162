# SPDX-License-Identifier: Apache-2.0
"""Linear algebra on batches of matrices, and Fourier transforms. The batch and the matrices' columns are sharded.

The functions of `EXACT` have integer inputs and are compared exactly. The error bounds of the other functions follow
Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 9.4 (solutions) and section 24.1 (Fourier
transforms).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.operations.base import Argument, Plan, Request, Result
from meshmark.operations.functions.wholes import Form, WholeFunction
from meshmark.operations.placements.placement import spec_of

EXACT = ("cholesky", "triangular_solve", "matrix_power", "trace", "kron", "outer", "cross")
ROUNDED = ("solve", "inv", "det", "slogdet", "qr", "eigvalsh", "svdvals", "norm")


def lower(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Lower triangular matrices with ones on the diagonal and integers from -2 to 2 below it."""
    column, row = index % np.uint64(shape[-1]), index // np.uint64(shape[-1]) % np.uint64(shape[-2])
    small = (bits >> np.uint64(20)) % np.uint64(5)
    return np.where(row == column, 1, np.where(row > column, small.astype(np.int64) - 2, 0)).astype(dtype)


def dominant(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Symmetric matrices. Each diagonal element is larger than the sum of the magnitudes of the rest of its row."""
    n = np.uint64(shape[-1])
    column, row = index % n, index // n % n
    small, large = np.minimum(row, column), np.maximum(row, column)
    pair = (index // (n * n) * n + small) * n + large
    unit = values.uniform(values.random_bits(13, pair), pair, shape, np.dtype(np.float64))
    return np.where(row == column, n.astype(float) + 1.0 + column, unit).astype(dtype)


class Algebra(WholeFunction):
    """Factorizations, solutions and products of `jax.numpy.linalg` and `jax.lax.linalg`, on batches of matrices."""

    name = "algebra"
    family = "algebra"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for function in (*EXACT, *ROUNDED):
            yield 0, {"function": function}

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        function, mesh = request.variant["function"], request.mesh.size
        batch, other = spec_of(request.variant["of"])
        n = mesh if mesh > 1 else 2
        shape, spec = (2 * mesh, n, n), (batch, None, other)
        if function in ("kron", "outer", "cross"):
            x = Argument((2 * mesh, n * 3), x.dtype, (batch, other), values.tokens, {"below": 9})
            y = Argument((3,), x.dtype, (None,), values.tokens, {"below": 9})
            result = {"kron": (2 * mesh, n * 9), "outer": (2 * mesh * n * 3, 3), "cross": (2 * mesh, n, 3)}
            made = result[function]
            return Form(
                (x, y),
                (
                    Result(
                        made,
                        x.dtype,
                        (batch, *(None,) * (len(made) - 1)) if function != "outer" else (None, None),
                    ),
                ),
                {"function": function},
                mixed=((0, 1) if function == "outer" else (1,), ()),
                kept=((),),
                ruled=False,
            )
        exact = function in EXACT
        fill: Any = lower if exact else dominant
        arguments = [Argument(shape, x.dtype, spec, fill)]
        if function in ("triangular_solve", "solve"):
            y = Argument((2 * mesh, n, 2), x.dtype, (batch, None, None), values.tokens, {"below": 9})
            arguments.append(y)
        shapes = {
            "triangular_solve": ((2 * mesh, n, 2),),
            "solve": ((2 * mesh, n, 2),),
            "trace": ((2 * mesh,),),
            "det": ((2 * mesh,),),
            "slogdet": ((2 * mesh,), (2 * mesh,)),
            "norm": ((2 * mesh,),),
            "eigvalsh": ((2 * mesh, n),),
            "svdvals": ((2 * mesh, n),),
        }.get(function, (shape,))
        results = tuple(
            Result(s, x.dtype, spec if s == shape else (batch, *(None,) * (len(s) - 1))) for s in shapes
        )
        return Form(
            tuple(arguments),
            results,
            {"function": function},
            mixed=((1, 2), ())[: len(arguments)],
            kept=tuple((2,) if r.shape == shape else () for r in results),
            judge="exact" if exact else "bound",
            ruled=False,
        )

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """40 n**2 units of roundoff of the result's largest element. It assumes well-conditioned matrices."""
        u, n = dtype_of(plan.results[0].dtype).unit_roundoff, arguments[0].shape[-1]
        if plan.judge != "bound":
            return None
        return [np.full(e.shape, 40 * n * n * u * max(1e-3, np.abs(e).max())) for e in expected]

    @staticmethod
    def whole(x, *more, function):
        if function == "cholesky":
            return jnp.linalg.cholesky(jnp.matmul(x, jnp.swapaxes(x, -1, -2), precision="highest"))
        if function == "triangular_solve":
            return lax.linalg.triangular_solve(x, more[0], left_side=True, lower=True)
        if function == "matrix_power":
            return jnp.matmul(x, jnp.matmul(x, x, precision="highest"), precision="highest")
        if function == "trace":
            return jnp.trace(x, axis1=-2, axis2=-1)
        if function == "kron":
            return jax.vmap(lambda a: jnp.kron(a, more[0]))(x)
        if function == "outer":
            return jnp.outer(x, more[0])
        if function == "cross":
            return jnp.cross(x.reshape(x.shape[0], -1, 3), more[0])
        if function == "solve":
            return jnp.linalg.solve(x, more[0])
        if function == "slogdet":
            return tuple(jnp.linalg.slogdet(x))
        if function == "qr":
            q, r = jnp.linalg.qr(x)
            return jnp.matmul(q, r, precision="highest")
        if function == "svdvals":
            return jnp.linalg.svd(x, compute_uv=False)
        if function == "norm":
            return jnp.linalg.norm(x, axis=(-2, -1))
        return getattr(jnp.linalg, function)(x)

    @staticmethod
    def reference(x, *more, function):
        if function in ("cholesky", "qr"):
            return x
        if function == "triangular_solve":
            result = more[0].copy()
            for i in range(x.shape[-1]):
                result[:, i] -= np.einsum("bj,bjk->bk", x[:, i, :i], result[:, :i])
            return result
        if function == "matrix_power":
            return x @ x @ x
        if function == "trace":
            return np.trace(x, axis1=-2, axis2=-1)
        if function == "kron":
            return np.stack([np.kron(a, more[0]) for a in x])
        if function == "outer":
            return np.outer(x, more[0])
        if function == "cross":
            return np.cross(x.reshape(x.shape[0], -1, 3), more[0])
        if function == "solve":
            return np.linalg.solve(x, more[0])
        if function == "slogdet":
            return tuple(np.linalg.slogdet(x))
        if function == "svdvals":
            return np.linalg.svd(x, compute_uv=False)
        if function == "norm":
            return np.sqrt((x * x).sum(axis=(-2, -1)))
        return getattr(np.linalg, function)(x)


class Fourier(WholeFunction):
    """`jnp.fft` along a sharded or an unsharded dimension (once wrong under jit, jax#16909). Most results are complex;
    those of `irfft` and of the round trip are real."""

    name = "fft"
    family = "algebra"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for function in ("fft", "ifft", "rfft", "irfft", "fft2", "roundtrip"):
            yield 0, {"function": function}

    def needs(self, options: Mapping[str, Any]) -> str | None:
        return None if options["function"] == "roundtrip" else "complex"

    def form(self, request: Request, x: Argument) -> Form:
        dim, function = request.variant["dim"], request.variant["function"]
        kind = "complex64"
        size = x.shape[dim]
        source, result, target = {
            "rfft": ("float32", kind, size // 2 + 1),
            "irfft": (kind, "float32", 2 * size - 2),
            "roundtrip": ("float32", "float32", size),
        }.get(function, (kind, kind, size))
        dims = (0, 1) if function == "fft2" else (dim,)
        divides = target % request.mesh.size == 0
        if function == "irfft":
            source = "float32"
        x = Argument(x.shape, source, x.spec, values.uniform if source == "float32" else values.distinct)
        shape = tuple(target if d == dim else s for d, s in enumerate(x.shape))
        spec = tuple(e if d != dim or divides else None for d, e in enumerate(x.spec))
        return Form(
            (x,),
            (Result(shape, result, spec),),
            {"function": function, "dim": dim},
            mixed=(dims,),
            kept=(dims if divides else tuple(d for d in dims if d != dim),),
            judge="bound",
            ruled=False,
        )

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """2 log2(n) + 2 steps, each with 8 units of roundoff of the largest result. n is the input's element count."""
        [x] = arguments
        u = 2.0**-24
        steps = 2 * np.log2(x.size) + 2
        reach = np.abs(expected[0]).max()
        return [np.full(expected[0].shape, 8 * u * steps * reach)]

    @staticmethod
    def whole(x, *, function, dim):
        if function == "fft2":
            return jnp.fft.fft2(x)
        if function == "roundtrip":
            return jnp.fft.ifft(jnp.fft.fft(x, axis=dim), axis=dim).real
        return getattr(jnp.fft, function)(x, axis=dim)

    @staticmethod
    def reference(x, *, function, dim):
        if function == "fft2":
            return np.fft.fft2(x)
        if function == "roundtrip":
            return x
        return getattr(np.fft, function)(x, axis=dim)
