# SPDX-License-Identifier: Apache-2.0
"""Seldom used options of functions of `jax.lax` and `jax.nn`, on arrays that are sharded over the mesh axes.
`forms.definitions` has the comparison. Each table leaves out the options that a release does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.forms.base import run_jitted
from meshmark.operations.programs.forms.definitions import (
    Pairs,
    each_alone,
    each_way,
    halves,
    points,
    quarters,
    takes,
)


def _slices(mesh, a, x):
    """Options of slices, gathers and scatters."""
    windows = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    rows = lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    places = np.array([[0], [2], [3]])
    far = np.array([[0], [2], [999]])
    promised = {"indices_are_sorted": True, "unique_indices": True}

    def new(np_, z, count=3):
        """Rows of updates. They are no part of the sharded rows: uneven parts are the finding
        `scatter-of-unevenly-sharded-updates`."""
        return (
            z[0, 0]
            * np_.ones((count, z.shape[1]), z.dtype)
            * np_.arange(1, count + 1, dtype=z.dtype)[:, None]
        )

    def written(write: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[..., Any]:
        def define(y, z):
            y = y.copy()
            write(y, z)
            return y

        return define

    def at(change: Callable[[Any, Any], Any], count: int = 3) -> Callable[..., Any]:
        def write(y, z):
            y[[0, 2, 3][:count]] = change(y[[0, 2, 3][:count]], new(np, z, count))

        return written(write)

    pairs: Pairs = {
        "gather of unique sorted rows": (
            lambda y, z: lax.gather(y, jnp.asarray(places), windows, (1, y.shape[1]), **promised),
            lambda y, z: y[[0, 2, 3]],
        ),
        "gather with a filling": (
            lambda y, z: lax.gather(y, jnp.asarray(far), windows, (1, y.shape[1]), mode="fill", fill_value=-7.0),
            lambda y, z: np.concatenate([y[[0, 2]], np.full((1, y.shape[1]), -7.0)]),
        ),
    }  # fmt: skip
    changes: dict[str, Callable[[Any, Any], Any]] = {
        "scatter": lambda old, new: new,
        "scatter_add": lambda old, new: old + new,
        "scatter_sub": lambda old, new: old - new,
        "scatter_mul": lambda old, new: old * new,
        "scatter_min": np.minimum,
        "scatter_max": np.maximum,
    }
    for name, change in changes.items():
        function = getattr(lax, name, None)
        if function is None:
            continue
        pairs[f"{name} of unique sorted rows"] = (
            lambda y, z, f=function: f(y, jnp.asarray(places), new(jnp, z), rows, **promised),
            at(change),
        )
        pairs[f"{name} that drops"] = (
            lambda y, z, f=function: f(y, jnp.asarray(far), new(jnp, z), rows, mode="drop"),
            at(change, 2),
        )
        pairs[f"{name} that clips"] = (
            lambda y, z, f=function: f(y, jnp.asarray(far[2:]), new(jnp, z, 1), rows, mode="clip"),
            written(lambda y, z, c=change: y.__setitem__(-1, c(y[-1], new(np, z, 1)[0]))),
        )
    pairs["scatter_apply"] = (
        lambda y, z: lax.scatter_apply(
            y, jnp.asarray(places), lambda v: v * 3, rows, update_shape=(3, y.shape[1]), **promised),
        at(lambda old, new: old * 3),
    )  # fmt: skip
    no = {"allow_negative_indices": False}

    def below(y):
        """-1 that the compiler does not know: with a start that it knows, the update is lost (`update_below`)."""
        return jnp.int32(-1) - (y[0, 0] < 0)

    if takes(lax.dynamic_slice_in_dim, *no):
        pairs |= {
            "dynamic_slice_in_dim from below": (
                lambda y, z: lax.dynamic_slice_in_dim(y, jnp.int32(-1), 2, 1, **no),
                lambda y, z: y[:, :2],
            ),
            "dynamic_index_in_dim from below": (
                lambda y, z: lax.dynamic_index_in_dim(y, jnp.int32(-2), 0, keepdims=False, **no),
                lambda y, z: y[0],
            ),
            "dynamic_update_slice from below": (
                lambda y, z: lax.dynamic_update_slice(y, z[:2, :2], (below(y), below(y)), **no),
                written(lambda y, z: y.__setitem__((slice(2), slice(2)), z[:2, :2])),
            ),
            "dynamic_update_slice_in_dim from below": (
                lambda y, z: lax.dynamic_update_slice_in_dim(y, z[:2], below(y), 0, **no),
                written(lambda y, z: y.__setitem__(slice(2), z[:2])),
            ),
        }
    each_way(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


def _values(mesh, a, x):
    """Options of elementwise functions, products, orders and loops."""

    sizes = np.array([2, 1, 0, 1])

    def groups(y, z):
        parts = np.split(quarters(y), np.cumsum(sizes)[:-1])
        return np.concatenate([part @ quarters(z)[:, i : i + 1] for i, part in enumerate(parts)])

    def stacked(z):
        return jnp.stack([halves(z)[:, i : i + 1] for i in range(4)])

    pairs: Pairs = {
        "mul into a wider dtype": (
            lambda y, z: _wide_product(y, z),
            lambda y, z: (np.floor(y * 30) * np.floor(z * 30)).astype(np.int32),
        ),
        "ragged_dot of a dtype": (
            lambda y, z: lax.ragged_dot(
                halves(y[:4]), stacked(z), jnp.asarray(sizes, np.int32),
                precision="highest", preferred_element_type=np.float32),
            lambda y, z: groups(y[:4], z),
        ),
        "dot of other dimensions": (
            lambda y, z: lax.dot(y, z, dimension_numbers=(((0,), (1,)), ((), ())), precision="highest"),
            lambda y, z: y.T @ z.T,
        ),
        "approx_max_k along rows": (
            lambda y, z: lax.approx_max_k(y, 3, reduction_dimension=0, recall_target=1.0)[0],
            lambda y, z: -np.sort(-y, 0)[:3],
        ),
        "approx_min_k along rows": (
            lambda y, z: lax.approx_min_k(y, 3, reduction_dimension=0, recall_target=1.0, aggregate_to_topk=True)[0],
            lambda y, z: np.sort(y, 0)[:3],
        ),
        "polynomial": (
            lambda y, z: jnp.polyval(jnp.array([1.0, -2.0, 3.0]), y, unroll=1),
            lambda y, z: y * y - 2 * y + 3,
        ),
        "composite of a version": (
            lambda y, z: lax.composite(lambda v, *, k: v * k, "meshmark.scaled", version=3)(y, k=2.0),
            lambda y, z: y * 2,
        ),
        "cond with an operand": (
            lambda y, z: lax.cond(y[0, 0] > 0, lambda v: v * 2, lambda v: v * 3, y),
            lambda y, z: y * 2,
        ),
        "reduce of two": (
            lambda y, z: lax.reduce(
                (y, z), (jnp.float32(0), jnp.float32(1)), lambda p, q: (p[0] + q[0], jnp.minimum(p[1], q[1])), (0,)),
            lambda y, z: (y.sum(0), np.minimum(z.min(0), 1)),
        ),
        "sorted of several": (
            lambda y, z: lax.sort((jnp.floor(y * 4), z), dimension=0, is_stable=False, num_keys=2),
            lambda y, z: _sorted_rows(y, z),
        ),
        "logistic beside": (
            lambda y, z: lax.logistic(y) + lax.erfc(z) + lax.cbrt(y) + lax.exp2(z) + lax.tan(y / 3),
            lambda y, z: 1 / (1 + np.exp(-y)) + _erfc(z) + np.cbrt(y) + np.exp2(z) + np.tan(y / 3),
        ),
    }  # fmt: skip
    if not takes(lax.dot, "dimension_numbers"):
        del pairs["dot of other dimensions"]
    if not takes(lax.mul, "out_dtype"):
        del pairs["mul into a wider dtype"]
    accurate = getattr(lax, "AccuracyMode", None)
    if accurate is not None:
        pairs |= {
            f"{name} with an accuracy": (
                lambda y, z, n=name: getattr(lax, n)(y / 3, accuracy=accurate.DEFAULT),
                lambda y, z, f=define: f(y / 3),
            )
            for name, define in {
                "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "sqrt": np.sqrt,
                "expm1": np.expm1, "log1p": np.log1p, "tan": np.tan, "cbrt": np.cbrt,
            }.items()
        }  # fmt: skip
    each_way(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


def _wide_product(y: Any, z: Any) -> Any:
    """A product of int8 as int32."""
    return lax.mul(jnp.floor(y * 30).astype(np.int8), jnp.floor(z * 30).astype(np.int8), out_dtype=np.int32)


def _sorted_rows(y: np.ndarray, z: np.ndarray) -> list[np.ndarray]:
    """The pairs of each column in order, as two arrays."""
    first = np.floor(y * 4)
    order = np.lexsort((z, first), axis=0)
    return [np.take_along_axis(v, order, 0) for v in (first, z)]


def _erfc(z: np.ndarray) -> np.ndarray:
    from scipy import special

    return special.erfc(z)


def _images(mesh, a, x):
    """Options of convolutions of images, and attention with lengths."""
    count = 2 * max(mesh.devices.size, 2)

    def image(np_, y):
        return np_.floor(y * 4)[None, None]

    def patches(y, **options):
        return lax.conv_general_dilated_patches(
            image(jnp, y),
            (2, 3),
            (1, 1),
            "VALID",
            rhs_dilation=(2, 1),
            precision=lax.Precision.HIGHEST,
            **options,
        )

    def dilated(y):
        v = image(np, y)[0, 0]
        rows, columns = count - 2, count - 2
        return np.stack([v[2 * i : 2 * i + rows, j : j + columns] for i in range(2) for j in range(3)])[None]

    def attended(np_, y, lengths):
        q = np_.reshape(y, (2, count // 2, 1, count))[:, :4]
        if np_ is jnp:
            return jax.nn.dot_product_attention(
                q, q, q, query_seq_lengths=jnp.asarray(lengths), key_value_seq_lengths=jnp.asarray(lengths[::-1]),
                implementation="xla",
            )  # fmt: skip
        scores = np.einsum("bqhd,bkhd->bhqk", q, q) / np.sqrt(count)
        for batch, length in enumerate(lengths[::-1]):
            scores[batch, :, :, length:] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        found = np.einsum("bhqk,bkhd->bqhd", weights, q)
        for batch, length in enumerate(lengths):
            found[batch, length:] = 0
        return found

    def local(y):
        # One kernel per position: a sum over each window of two, weighted by the place of its result.
        kernel = jnp.arange(1.0, count)[None, :] * jnp.ones((2, 1))
        return lax.conv_general_dilated_local(
            y[:, None, :],
            jnp.broadcast_to(kernel[None], (1, 2, count - 1)),
            (1,),
            "VALID",
            (2,),
            precision="highest",
        )

    lengths = np.array([2, 4])
    pairs: Pairs = {
        "patches with holes": (patches, dilated),
        "patches of a dtype": (
            lambda y: patches(y.astype(jnp.bfloat16), preferred_element_type=np.float32),
            lambda y: dilated(y.astype(jnp.bfloat16).astype(np.float64)),
        ),
        "local convolution": (
            local,
            lambda y: ((y[:, :-1] + y[:, 1:]) * np.arange(1, count))[:, None],
        ),
        "attention with lengths": (
            lambda y: attended(jnp, y, lengths),
            lambda y: attended(np, y, lengths),
        ),
        "conv_transpose with holes": (
            lambda y: lax.conv_transpose(
                y[:, None, :], jnp.arange(1.0, 4.0).reshape(1, 1, 3), (2,), "VALID", rhs_dilation=(2,),
                dimension_numbers=("NCH", "OIH", "NCH"), precision="highest"),
            lambda y: np.stack([
                np.convolve(np.insert(row, np.arange(1, count), 0.0), [3.0, 0, 2, 0, 1]) for row in y])[:, None],
        ),
    }  # fmt: skip
    each_way(
        mesh,
        {n: (lambda y, z, f=f: f(y), lambda y, z, g=g: g(y)) for n, (f, g) in pairs.items()},
        points(mesh),
    )
    return run_jitted(mesh, a, x)


def _more_values(mesh, a, x):
    """Options of convolutions, of lists of results, and of branches, that no other form sets."""
    count = 2 * max(mesh.devices.size, 2)
    best = lax.Precision.HIGHEST

    def rows(v: Any) -> Any:
        return v[:, None, :]

    kernel = np.array([1.0, 2.0, 3.0], np.float32).reshape(1, 1, 3)
    numbers = ("NCH", "OIH", "NCH")

    def sums(y: np.ndarray, weights: tuple[float, ...]) -> np.ndarray:
        return np.stack([np.correlate(row, weights, "valid") for row in y])[:, None]

    def spaced(y: np.ndarray) -> np.ndarray:
        return np.stack([np.insert(row, np.arange(1, len(row)), 0.0) for row in y])

    pairs: Pairs = {
        "conv of a dtype": (
            lambda y, z: lax.conv(
                rows(halves(y)), jnp.asarray(kernel, jnp.bfloat16), (1,), "VALID", best,
                preferred_element_type=np.float32),
            lambda y, z: sums(quarters(y), (1, 2, 3)),
        ),
        "patches of a spaced image": (
            lambda y, z: lax.conv_general_dilated_patches(
                rows(y), (3,), (2,), [(0, 0)], lhs_dilation=(2,), dimension_numbers=numbers, precision=best),
            lambda y, z: np.lib.stride_tricks.sliding_window_view(spaced(y), 3, 1)[:, ::2].transpose(0, 2, 1),
        ),
        "local convolution with holes": (
            lambda y, z: lax.conv_general_dilated_local(
                rows(y), jnp.ones((1, 2, count - 2)), (1,), "VALID", (2,), rhs_dilation=(2,),
                dimension_numbers=numbers, precision=best),
            lambda y, z: sums(y, (1, 0, 1)),
        ),
        "unique without order": (
            lambda y, z: jnp.sort(jnp.unique(jnp.floor(y * 2), size=9, fill_value=99, sorted=False)),
            lambda y, z: np.append(np.unique(np.floor(y * 2)), [99] * 9)[:9],
        ),
        "cond of an operand": (
            lambda y, z: (
                lax.cond(y[0, 0] < 0, lambda v: v * 2, lambda v: v * 3, operand=y),
                lax.switch(jnp.int32(1), (lambda v: v, lambda v: v + 1), operand=z),
            ),
            lambda y, z: (y * 3, z + 1),
        ),
        "image of any size": (
            lambda y, z: jax.image.scale_and_translate(
                y, y.shape, (0, 1), jnp.ones(2), jnp.array([0.0, 1.0]), "linear", antialias=False, precision=best),
            lambda y, z: np.pad(y[:, :-1], ((0, 0), (1, 0))),
        ),
        "stacks of int8": (
            lambda y, z: [
                jnp.hstack([jnp.floor(y), jnp.floor(z)], dtype=np.int8),
                jnp.dstack([jnp.floor(y), jnp.floor(z)], dtype=np.int8),
            ],
            lambda y, z: [
                f([np.floor(y), np.floor(z)]).astype(np.int8) for f in (np.hstack, np.dstack)
            ],
        ),
    }  # fmt: skip
    if not takes(jnp.unique, "sorted"):
        del pairs["unique without order"]
    if takes(lax.exp2, "accuracy") and hasattr(lax, "log2"):
        usual: dict[str, Any] = {"accuracy": lax.AccuracyMode.DEFAULT}
        pairs["more functions with an accuracy"] = (
            lambda y, z: (
                lax.exp2(y, **usual), lax.log2(y, **usual), lax.rsqrt(y, **usual), lax.logistic(y, **usual)),
            lambda y, z: (np.exp2(y), np.log2(y), 1 / np.sqrt(y), 1 / (1 + np.exp(-y))),
        )  # fmt: skip
    each_way(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


def _transposed_convolutions(mesh, a, x):
    """Transposed and padded convolutions of rows of bfloat16 with results of float32."""
    kernel = np.array([1.0, 2.0, 3.0], np.float32).reshape(1, 1, 3)
    numbers = ("NCH", "OIH", "NCH")

    def define(y: np.ndarray, z: np.ndarray) -> np.ndarray:
        found = []
        for row in quarters(y):
            spaced = np.insert(row, np.arange(1, len(row)), 0.0)
            found.append(np.convolve(spaced, [3.0, 2.0, 1.0]))
        return np.stack(found)[:, None]

    pairs: Pairs = {
        "conv_transpose of a dtype": (
            lambda y, z: lax.conv_transpose(
                halves(y)[:, None, :], jnp.asarray(kernel, jnp.bfloat16), (2,), "VALID",
                dimension_numbers=numbers, precision=lax.Precision.HIGHEST, preferred_element_type=np.float32),
            define,
        ),
        "conv with padding of a dtype": (
            lambda y, z: lax.conv_with_general_padding(
                halves(y)[:, None, :], jnp.asarray(kernel, jnp.bfloat16), (1,), [(1, 1)], (1,), (2,),
                lax.Precision.HIGHEST, preferred_element_type=np.float32),
            lambda y, z: np.stack([
                np.correlate(np.pad(row, 1), (1, 0, 2, 0, 3), "valid") for row in quarters(y)])[:, None],
        ),
    }  # fmt: skip
    each_alone(mesh, pairs, points(mesh))
    return run_jitted(mesh, a, x)


LAX_OPTIONS: dict[str, Callable[..., Any]] = {
    "options_of_slices": _slices,
    "options_of_values": _values,
    "options_of_images": _images,
    "more_options_of_values": _more_values,
    "options_of_transposed_convolutions": _transposed_convolutions,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""
