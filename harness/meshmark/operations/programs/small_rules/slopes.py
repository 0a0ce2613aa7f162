# SPDX-License-Identifier: Apache-2.0
"""Small rules: gradients of linear functions, element by element, and gradients by arguments in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.stats
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import hold, hold_near, mixed
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect


def _linear(n: int) -> dict[str, tuple[Callable[..., Any], tuple[int, ...]]]:
    """Linear functions, each with the shape of its argument. Their first dimension is a batch."""
    found: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
        "pad": (lambda x: lax.pad(x, np.float32(0), ((0, 0, 0), (2, -1, 1))), (n, 5)),
        "strides": (lambda x: x[:, ::2] + 3 * x[:, 1::2], (n, 6)),
        "reversal": (lambda x: x[:, ::-1] + 2 * jnp.roll(x, 1, 1), (n, 5)),
        "cumsum": (lambda x: lax.cumsum(x, 1) + 2 * lax.cumsum(x, 1, reverse=True), (n, 5)),
        "windows": (
            lambda x: lax.reduce_window(x, np.float32(0), lax.add, (1, 3), (1, 2), ((0, 0), (1, 1))),
            (n, 6),
        ),
        "dilated windows": (
            lambda x: lax.reduce_window(
                x,
                np.float32(0),
                lax.add,
                (1, 2),
                (1, 1),
                "VALID",
                base_dilation=(1, 2),
                window_dilation=(1, 2),
            ),
            (n, 5),
        ),
        "places": (lambda x: x[:, np.array([1, 0, 1, 3])], (n, 4)),
        "writes": (lambda x: jnp.zeros((n, 4)).at[:, np.array([2, 0, 2])].add(x), (n, 3)),
        "a scan": (
            lambda x: lax.scan(lambda c, r: (2 * c + r, c), jnp.zeros(n), x.T, reverse=True, unroll=3)[1],
            (n, 5),
        ),
        "a product": (lambda x: jnp.dot(x, np.arange(12, dtype=np.float32).reshape(4, 3)), (n, 4)),
        "a diagonal": (lambda x: jax.vmap(jnp.diag)(x), (n, 3)),
        "a triangle": (lambda x: jnp.tril(x.reshape(n, 2, 3)), (n, 6)),
    }
    return found


def _convolutions(n: int) -> dict[str, tuple[Callable[..., Any], tuple[int, ...]]]:
    """Convolutions as functions of what they read, each with its shape. Their first dimension is a batch."""
    single = (mixed((4, 1, 2), 5) - 2).astype(np.float32)
    double = (mixed((4, 2, 2), 5, 3) - 2).astype(np.float32)

    def of(kernel, groups, **options):
        def f(x):
            return lax.conv_general_dilated(
                x, kernel, feature_group_count=groups, dimension_numbers=("NCH", "OIH", "NCH"), **options
            )

        return f

    both = {"lhs_dilation": (2,), "rhs_dilation": (2,)}
    return {
        "a convolution of four groups": (of(single, 4, window_strides=(2,), padding="VALID"), (n, 4, 5)),
        "a dilated convolution": (of(double, 2, window_strides=(1,), padding=((2, 1),), **both), (n, 4, 4)),
        "a strided convolution": (of(double, 2, window_strides=(3,), padding=((1, 2),)), (n, 4, 6)),
    }


def _kernels(n: int) -> dict[str, tuple[Callable[..., Any], tuple[int, ...]]]:
    """Convolutions as functions of their kernel, each with the kernel's shape. The batch of what they read is cut."""
    found: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {}
    for name, shape, groups, options in (
        ("a strided kernel of groups", (4, 1, 2), 4, {"window_strides": (2,), "padding": "VALID"}),
        ("a kernel of two groups", (4, 2, 2), 2, {"window_strides": (3,), "padding": ((1, 2),)}),
        (
            "a dilated kernel",
            (4, 4, 2),
            1,
            {"window_strides": (1,), "padding": ((2, 1),), "rhs_dilation": (2,)},
        ),
    ):
        fed = (mixed((n, 4, 6), 7) - 3).astype(np.float32)

        def f(kernel, fed=fed, groups=groups, options=options):
            return lax.conv_general_dilated(
                fed, kernel, feature_group_count=groups, dimension_numbers=("NCH", "OIH", "NCH"), **options
            )

        found[name] = (f, shape)
    return found


def _gradient_of(
    f: Callable[..., Any], shape: tuple[int, ...]
) -> tuple[Callable[..., Any], np.ndarray, np.ndarray]:
    """(the gradient of a linear function's weighted sum, the weights, the answer): the matrix that the function applied
    to unit arrays gives, transposed. The numbers are whole, so that this is exact."""
    units = np.eye(int(np.prod(shape)), dtype=np.float32).reshape(-1, *shape)
    matrix = np.asarray(jax.jit(jax.vmap(f))(units))
    weights = (mixed(matrix.shape[1:], 9, 7) - 4).astype(np.float32)
    right = np.tensordot(matrix, weights, weights.ndim).reshape(shape).astype(np.float32)

    def slope(x, w):
        return jax.grad(lambda x: (f(x) * w).sum())(x)

    return slope, weights, right


def _adjoints(line, grid):
    """The gradients of linear functions under each placement, and of convolutions whose batch is cut."""
    n = line.size
    for name, (f, shape) in _linear(2 * n).items():
        slope, weights, right = _gradient_of(f, shape)
        hold(line, grid, {f"the gradient of {name}": (slope, right)}, np.zeros(shape, np.float32), weights)
    # Cut along features, groups end the compiler (docs/findings.md); `grouped_convolution` has cases of that.
    for name, (f, shape) in _convolutions(2 * n).items():
        slope, weights, right = _gradient_of(f, shape)
        found = jax.jit(slope)(placed(line, np.zeros(shape, np.float32), "d"), placed(line, weights, "d"))
        expect(np.asarray(found), right, f"the gradient of {name} whose batch is cut")
    for name, (f, shape) in _kernels(2 * n).items():
        slope, weights, right = _gradient_of(f, shape)
        found = jax.jit(slope)(placed(line, np.zeros(shape, np.float32)), placed(line, weights, "d"))
        expect(np.asarray(found), right, f"the gradient by {name}, of results whose batch is cut,")
    # The transforms of real numbers, of odd and even lengths: within rounding.
    for size in (4, 5):
        near = {}
        x = (mixed((2 * n, size), 7) - 3).astype(np.float32)
        for norm in (None, "ortho", "forward"):
            matrix = np.fft.rfft(np.eye(size), norm=norm).real  # [size, frequencies]
            weights = (mixed((matrix.shape[1],), 5, 3) - 2).astype(np.float32)
            near[f"the gradient of rfft of {size}, {norm}"] = (
                lambda x, w=weights, norm=norm: jax.grad(
                    lambda x: (jnp.fft.rfft(x, norm=norm).real * w).sum()
                )(x),
                np.broadcast_to(matrix @ weights, x.shape).astype(np.float32),
            )
            back = np.fft.irfft(np.eye(size // 2 + 1), size, norm=norm)  # [frequencies, size]
            ones = (mixed((size,), 5, 3) - 2).astype(np.float32)
            near[f"the gradient of irfft of {size}, {norm}"] = (
                lambda x, ones=ones, size=size, norm=norm: jax.grad(
                    lambda x: (jnp.fft.irfft(x[:, : size // 2 + 1], size, norm=norm) * ones).sum()
                )(x),
                np.concatenate(
                    [
                        np.broadcast_to(back @ ones, (2 * n, size // 2 + 1)),
                        np.zeros((2 * n, size - size // 2 - 1)),
                    ],
                    1,
                ).astype(np.float32),
            )
        hold_near(line, grid, near, x)


def _gradients(line, grid):
    """Numbers of arguments in any order, gradients of products whose results are wider, and of ragged products."""
    n = line.size
    a = (mixed((2 * n,), 5) + 1).astype(np.float32)
    b = (mixed((2 * n,), 7, 3) + 1).astype(np.float32)
    c = (mixed((2 * n,), 3, 7) + 1).astype(np.float32)
    slopes = (2 * a * b + c, a**2, a)
    given = [placed(line, v, "d") for v in (a, b, c)]

    def f(a, b, c):
        return (a**2 * b + a * c).sum()

    for numbers in ((0,), (1, 0), (2, 0), (2, 1, 0), (1, 2), (-1, 0), (-1, -2)):
        found = jax.jit(jax.grad(f, argnums=numbers))(*given)
        total, same = jax.jit(jax.value_and_grad(f, argnums=numbers))(*given)
        expect(np.asarray(total), np.float32((a**2 * b + a * c).sum()), "the value beside its gradients")
        for seen in (found, same):
            for number, one in zip(numbers, seen, strict=True):
                expect(np.asarray(one), slopes[number], f"the gradient by argument {number} of {numbers}")
    for way in (jax.jacfwd, jax.jacrev):
        pair = jax.jit(way(lambda a, b: a * b, argnums=(1, 0)))(*given[:2])
        expect(np.asarray(pair[0]), np.diag(a), f"{way.__name__} by argument 1 of (1, 0)")
        expect(np.asarray(pair[1]), np.diag(b), f"{way.__name__} by argument 0 of (1, 0)")
    # A number that bfloat16 can't hold comes back, so the gradient must not be rounded before the sum.
    fine = np.float32([1 + 2**-8, -1])
    halves = np.ones((2 * n, 4), jnp.bfloat16)
    for left in (True, False):

        def pulled(x, left=left):
            ones = jnp.ones((4, 2), jnp.bfloat16)
            function = (
                (
                    lambda x: lax.dot_general(
                        x, ones, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32
                    )
                )
                if left
                else (
                    lambda x: lax.dot_general(
                        ones, x, (((0,), (1,)), ((), ())), preferred_element_type=jnp.float32
                    )
                )
            )
            pull = jax.vjp(function, x)[1]
            ct = jnp.broadcast_to(fine, (len(x), 2))
            return pull(ct if left else ct.T)[0]

        for mesh, spec in ((line, P("d")), (grid, P("x", "y"))):
            found = jax.jit(pulled)(placed(mesh, halves, *spec))
            expect(
                np.asarray(found).astype(np.float32),
                np.full((2 * n, 4), 2**-8, np.float32),
                f"the gradient of a product of bfloat16 with float32 results, over {spec},",
            )
    zero = np.array([-0.0, 0.0, -1, 2] * n, np.float32)
    kinks = {
        "relu": (jax.nn.relu, np.where(zero > 0, 1, 0)),
        "relu6": (jax.nn.relu6, np.where(zero > 0, 1, 0)),
        "sign": (jnp.sign, 0 * zero),
        "floor": (jnp.floor, 0 * zero),
    }
    for name, (g, right) in kinks.items():
        found = jax.jit(jax.grad(lambda v, g=g: g(v).sum()))(placed(line, zero, "d"))
        expect(
            np.asarray(found), right.astype(np.float32) + 0, f"the gradient of {name} at zeros of both signs"
        )
    # Groups without rows: their weights have the gradient zero.
    rows, groups = 4 * n, 4
    x = (mixed((rows, 3), 5) - 2).astype(np.float32)
    w = (mixed((groups, 3, 2), 7) - 3).astype(np.float32)
    for sizes in ([rows, 0, 0, 0], [0, rows // 2, 0, rows // 2], [1, 0, rows - 1, 0]):
        owner = np.repeat(np.arange(groups), sizes)
        right_w = np.stack([np.repeat(x[owner == g].sum(0)[:, None], 2, 1) for g in range(groups)])
        right_x = w.sum(2)[owner]
        found = jax.jit(
            jax.grad(
                lambda x, w, s: lax.ragged_dot(x, w, s, precision="highest").sum(),
                (0, 1),
            )
        )(placed(line, x, "d"), w, np.array(sizes, np.int32))
        expect(
            np.asarray(found[0]),
            right_x.astype(np.float32),
            f"the gradient of a ragged product by rows, {sizes},",
        )
        expect(
            np.asarray(found[1]),
            right_w.astype(np.float32),
            f"the gradient of a ragged product by groups, {sizes},",
        )


def _slopes_of_examples(line, grid):
    """Gradients for each example of a batch: vmap of a gradient by a kernel or a matrix that all examples share."""
    n = line.size
    fed = (mixed((2 * n, 4, 6), 7) - 3).astype(np.float32)

    def convolution(groups, **options):
        return lambda kernel, v: lax.conv_general_dilated(
            v[None], kernel, feature_group_count=groups, dimension_numbers=("NCH", "OIH", "NCH"), **options
        )

    functions: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
        "a plain convolution": (convolution(1, window_strides=(1,), padding="VALID"), (2, 4, 3)),
        "a strided convolution": (convolution(1, window_strides=(2,), padding=((1, 2),)), (2, 4, 3)),
        "a convolution of groups": (convolution(2, window_strides=(1,), padding="SAME"), (4, 2, 3)),
        "a dilated convolution": (
            convolution(1, window_strides=(1,), padding=((2, 1),), rhs_dilation=(2,)),
            (2, 4, 2),
        ),
        "a product": (lambda w, v: jnp.einsum("ch,hk->ck", v, w, precision="highest"), (6, 2)),
        "a scaled maximum": (lambda w, v: w * lax.cummax(v, 1), (4, 6)),
        "windows of a product": (
            lambda w, v: lax.reduce_window(w * v, np.float32(0), lax.add, (1, 2), (1, 2), "VALID"),
            (4, 6),
        ),
    }
    for name, (f, shape) in functions.items():
        zero = np.zeros(shape, np.float32)
        weights = (mixed(jax.eval_shape(f, zero, fed[0]).shape, 9, 7) - 4).astype(np.float32)
        run = jax.jit(
            jax.vmap(jax.grad(lambda w, v, f=f, weights=weights: (f(w, v) * weights).sum()), (None, 0))
        )
        units = np.eye(int(np.prod(shape)), dtype=np.float32).reshape(-1, *shape)
        matrix = np.asarray(jax.jit(jax.vmap(jax.vmap(f, (0, None)), (None, 0)))(units, fed))
        right = np.tensordot(matrix, weights, weights.ndim).reshape(2 * n, *shape).astype(np.float32)
        for mesh, spec in ((line, P("d")), (grid, P("x")), (grid, P(("y", "x")))):
            found = run(placed(mesh, zero), placed(mesh, fed, *spec))
            expect(np.asarray(found), right, f"the gradient of {name} for each example, over {spec},")


def _pulled_untiled(line, members):
    """Pull whole numbers back through untiled collectives, each of which has a NumPy function that does the same."""
    n = line.size
    for checked in (True, False):
        functions, given = {}, {}
        for name, (call, shape, results, _) in members.items():
            blocks = (mixed((n, *shape), 7) - 3).astype(np.float32)
            given[name] = (blocks, (mixed((n, *results), 11, 7) - 5).astype(np.float32))
            functions[name] = mapped(
                lambda b, call=call: call(b[0])[None], line, P("d"), P("d"), check_vma=checked
            )

        def pulled(given, functions=functions):
            return {
                name: jax.vjp(functions[name], blocks)[1](weights)[0]
                for name, (blocks, weights) in given.items()
            }

        found = jax.device_get(jax.jit(pulled)(given))
        for name, (_, _, _, right) in members.items():
            expect(found[name], right(given[name][1]), f"the gradient of {name}, check_vma={checked},")


def _exchange(n, rank, split, concat):
    """(an untiled all_to_all, the shape of a block, that of a result, what pulls a cotangent back)."""
    shape = tuple(n if k == split else k + 2 for k in range(rank))
    left = [size for k, size in enumerate(shape) if k != split]
    results = (*left[:concat], n, *left[concat:])

    def right(ct):
        return np.stack([np.stack([np.take(ct[d], j, concat) for d in range(n)], split) for j in range(n)])

    return lambda b: lax.all_to_all(b, "d", split, concat, tiled=False), shape, results, right


def _untiled_slopes(line, grid):
    """Gradients of untiled collectives, along each dimension."""
    n = line.size
    members = {}
    for rank in (1, 2, 3):
        shape = tuple(range(2, 2 + rank))
        for dim in range(rank + 1):
            members[f"an untiled all_gather of rank {rank} along {dim}"] = (
                lambda b, dim=dim: lax.all_gather(b, "d", axis=dim, tiled=False),
                shape,
                (*shape[:dim], n, *shape[dim:]),
                lambda ct, dim=dim: np.stack([np.take(ct, j, dim + 1).sum(0) for j in range(n)]),
            )
        for dim in range(rank):
            cut = (*shape[:dim], n, *shape[dim + 1 :])
            members[f"an untiled psum_scatter of rank {rank} along {dim}"] = (
                lambda b, dim=dim: lax.psum_scatter(b, "d", scatter_dimension=dim, tiled=False),
                cut,
                cut[:dim] + cut[dim + 1 :],
                lambda ct, dim=dim: np.stack([np.stack(list(ct), dim)] * n),
            )
            members[f"an untiled all_to_all of rank {rank} along {dim}"] = _exchange(n, rank, dim, dim)
    _pulled_untiled(line, members)


def _untiled_exchanges(line, grid):
    """Gradients of untiled all_to_all that split one dimension and concatenate along another."""
    members = {
        f"an untiled all_to_all of rank {rank} that splits {split} and makes {concat}": _exchange(
            line.size, rank, split, concat
        )
        for rank in (2, 3)
        for split in range(rank)
        for concat in range(rank)
        if split != concat
    }
    _pulled_untiled(line, members)


RULES_OF_SLOPES: dict[str, Callable[..., None]] = {
    "adjoints": _adjoints,
    "gradients": _gradients,
    "slopes_of_examples": _slopes_of_examples,
    "untiled_slopes": _untiled_slopes,
    "untiled_exchanges": _untiled_exchanges,
}
