# SPDX-License-Identifier: Apache-2.0
"""Functions of every dtype, on matrices that are sharded over some mesh axes: products, sums, cumulative sums, windows,
reads and writes by index, changes of shape, arithmetic and conversions.

A fault may need one function, one dtype and one option together. Most operations have other dtypes only with ordinary
options; here one program has a group of functions of one dtype. Values are whole numbers from 0 to 2; signed dtypes
also have -1. Integers wrap, and floats stay in the range where every whole number is representable. So results are
exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import PUT_FROM_ONE_PROCESS, Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.functions.catalogue import outputs, spread

Pair = tuple[Callable[..., Any], Callable[..., Any]]
"""A function of a matrix in JAX, and of the same matrix in wide numbers in NumPy; the kind of the dtype is its second
argument: "float", "int", "uint" or "bool"."""

KINDS = ("float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool", "int16", "uint16", "uint32")


MOST = 32
"""The most devices: a bfloat16 number counts to 256."""


def kind_of(kind: str) -> str:
    """The kind of a dtype: "float", "int", "uint" or "bool"."""
    return dtype_of(kind).kind


def both(function: Callable[..., Any]) -> Pair:
    """(JAX function, NumPy function) from one function whose first argument is the module."""
    return lambda x, k: function(jnp, x, k), lambda x, k: function(np, x, k)


def signed(x: Any, k: str) -> Any:
    """x - 1 for signed dtypes, else x."""
    return x - x.dtype.type(1) if k in ("float", "int") else x


def threes(x: Any) -> Any:
    """Rows in pairs: [rows / 2, 2, columns]."""
    return x.reshape(len(x) // 2, 2, x.shape[1])


def dot(x: Any, y: Any, contracted: Any, batch: Any = ((), ()), **options: Any) -> Any:
    """`lax.dot_general` with these contracted and batch dimensions."""
    return lax.dot_general(x, y, (contracted, batch), **options)


def wide(k: str) -> Any:
    """The 32-bit type of a kind."""
    return {"float": jnp.float32, "int": jnp.int32, "uint": jnp.uint32}[k]


def convolved(x: Any, stride: int, dilation: int, groups: int) -> Any:
    """A convolution of x as [rows / 2, 2 channels, columns] with the taps 1, 2, 1. The channels of the result come
    last: `convolution_into_channels` has the results that are sharded over channels."""
    image = x.reshape(len(x) // 2, 2, -1)
    kernel = np.broadcast_to(np.array([1, 2, 1]), (2, 2 // groups, 3)).astype(x.dtype)
    found = lax.conv_general_dilated(
        image, jnp.asarray(kernel), (stride,), [(1, 1)], rhs_dilation=(dilation,), feature_group_count=groups
    )
    return found.transpose(0, 2, 1)


def convolved_in_numpy(x: Any, stride: int, dilation: int, groups: int) -> Any:
    """`convolved` in NumPy."""
    image = np.pad(x.reshape(len(x) // 2, 2, -1), ((0, 0), (0, 0), (1, 1)))
    reach = image.shape[2] - 2 * dilation
    taps: Any = sum(w * image[:, :, i * dilation :][:, :, :reach] for i, w in enumerate((1, 2, 1)))
    mixed = taps if groups == 2 else np.repeat(taps.sum(axis=1, keepdims=True), 2, axis=1)
    return mixed[:, :, ::stride].transpose(0, 2, 1)


PRODUCTS: dict[str, Pair] = {
    "rows": (
        lambda x, k: dot(signed(x, k), x, ((1,), (1,))),
        lambda x, k: signed(x, k) @ x.T,
    ),
    "columns": (
        lambda x, k: dot(signed(x, k), x, ((0,), (0,))),
        lambda x, k: signed(x, k).T @ x,
    ),
    "batch": (
        lambda x, k: dot(threes(x), threes(signed(x, k)), ((2,), (2,)), ((0,), (0,))),
        lambda x, k: np.einsum("bik,bjk->bij", threes(x), threes(signed(x, k))),
    ),
    "two_dimensions": (
        lambda x, k: dot(threes(x), threes(signed(x, k)), ((1, 2), (1, 2))),
        lambda x, k: np.einsum("ajk,bjk->ab", threes(x), threes(signed(x, k))),
    ),
    "vector": both(lambda m, x, k: m.dot(signed(x, k)[0], x.T)),
    "outer": both(lambda m, x, k: m.outer(x[0], signed(x, k)[:, 1])),
    "convolution": (lambda x, k: convolved(x, 1, 1, 1), lambda x, k: convolved_in_numpy(x, 1, 1, 1)),
    "strided": (
        lambda x, k: convolved(signed(x, k), 2, 1, 2),
        lambda x, k: convolved_in_numpy(signed(x, k), 2, 1, 2),
    ),
    "dilated": (lambda x, k: convolved(x, 1, 2, 2), lambda x, k: convolved_in_numpy(x, 1, 2, 2)),
}

WIDENED: dict[str, Pair] = {
    "product": (
        lambda x, k: dot(x, signed(x, k), ((1,), (1,)), preferred_element_type=wide(k)),
        lambda x, k: x @ signed(x, k).T,
    ),
    "mixed": (
        lambda x, k: dot(x, signed(x, k).astype(wide(k)), ((1,), (1,)), preferred_element_type=wide(k)),
        lambda x, k: x @ signed(x, k).T,
    ),
    "sum": (
        lambda x, k: jnp.sum(x * x, axis=0, dtype=wide(k)),
        lambda x, k: (x * x).sum(axis=0),
    ),
}


def folded(x: Any, k: str) -> Any:
    """Ones; every fifth element is -1 (signed dtypes) or 2 (unsigned dtypes)."""
    ones = x * 0 + 1
    at = np.arange(x.size).reshape(x.shape) % 5 == 0
    return jnp.where(at, -ones if k in ("float", "int") else 2 * ones, ones).astype(x.dtype)


def folded_in_numpy(x: Any, k: str) -> Any:
    """`folded` in NumPy."""
    at = np.arange(x.size).reshape(x.shape) % 5 == 0
    return np.where(at, -1 if k in ("float", "int") else 2, 1).astype(x.dtype)


def sums(x: Any, axis: Any) -> Any:
    """The sum in the dtype of x."""
    return jnp.sum(x, axis=axis, dtype=x.dtype)


def first_at(m: Any, found: Any) -> Any:
    """The indices as int32."""
    return found.astype(m.int32)


REDUCED: dict[str, Pair] = {
    "sum_two": (lambda x, k: sums(threes(x), (1, 2)), lambda x, k: threes(x).sum(axis=(1, 2))),
    "sum_apart": (
        lambda x, k: sums(threes(x[:, :4]), (0, 2)),
        lambda x, k: threes(x[:, :4]).sum(axis=(0, 2)),
    ),
    "prod": (
        lambda x, k: jnp.prod(folded(x, k)[:4, :4], axis=0, dtype=x.dtype),
        lambda x, k: folded_in_numpy(x, k)[:4, :4].prod(axis=0),
    ),
    "max_two": both(lambda m, x, k: m.max(signed(threes(x), k), axis=(1, 2))),
    "min_two": both(lambda m, x, k: m.min(signed(threes(x), k), axis=(0, 1))),
    "argmin": both(lambda m, x, k: first_at(m, m.argmin(signed(x, k), axis=1))),
    "argmin_of_all": both(lambda m, x, k: first_at(m, m.argmin(signed(x, k)))),
    "cumsum_back": (
        lambda x, k: lax.cumsum(x, axis=1, reverse=True),
        lambda x, k: np.cumsum(x[:, ::-1], axis=1)[:, ::-1],
    ),
    "cumprod": (
        lambda x, k: lax.cumprod(folded(x, k)[:, :6], axis=1),
        lambda x, k: np.cumprod(folded_in_numpy(x, k)[:, :6], axis=1),
    ),
    "cummax": (
        lambda x, k: lax.cummax(signed(x, k), axis=1),
        lambda x, k: np.maximum.accumulate(signed(x, k), axis=1),
    ),
    "cummin_back": (
        lambda x, k: lax.cummin(signed(x, k), axis=0, reverse=True),
        lambda x, k: np.minimum.accumulate(signed(x, k)[::-1], axis=0)[::-1],
    ),
    "windows_max": (
        lambda x, k: lax.reduce_window(x, x.dtype.type(0), lax.max, (2, 3), (1, 2), ((1, 0), (0, 2))),
        lambda x, k: windows(x, np.max),
    ),
    "windows_sum": (
        lambda x, k: lax.reduce_window(x, x.dtype.type(0), lax.add, (2, 3), (1, 2), ((1, 0), (0, 2))),
        lambda x, k: windows(x, np.sum),
    ),
    "windows_min": (
        lambda x, k: lax.reduce_window(x, x.dtype.type(9), lax.min, (3, 1), (2, 1), "VALID"),
        lambda x, k: np.lib.stride_tricks.sliding_window_view(x, 3, axis=0)[::2].min(axis=-1),
    ),
}
TRUTHS: dict[str, Pair] = {
    "all": both(lambda m, x, k: m.all(x, axis=0)),
    "any": both(lambda m, x, k: m.any(x, axis=1)),
    "all_two": both(lambda m, x, k: m.all(threes(x), axis=(1, 2))),
    "any_two": both(lambda m, x, k: m.any(threes(x), axis=(0, 2))),
    "max": both(lambda m, x, k: m.max(x, axis=0)),
    "argmax": both(lambda m, x, k: first_at(m, m.argmax(x, axis=0))),
    "argmin": both(lambda m, x, k: first_at(m, m.argmin(x, axis=1))),
    "not": both(lambda m, x, k: m.logical_not(x)),
    "xor": both(lambda m, x, k: m.logical_xor(x, x[::-1])),
    "less": both(lambda m, x, k: m.less(x, x[::-1])),
    "count": both(lambda m, x, k: m.count_nonzero(x, axis=0).astype(m.int32)),
    "cummax": (
        lambda x, k: lax.associative_scan(jnp.logical_or, x, axis=0),
        lambda x, k: np.maximum.accumulate(x, axis=0),
    ),
}


def windows(x: Any, reduce: Any) -> Any:
    """A reduction of windows [2, 3] with stride 2 along the columns, in NumPy. Zeros pad the matrix."""
    padded = np.pad(x, ((1, 0), (0, 2)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (2, 3))[:, ::2]
    return reduce(view, axis=(2, 3))


def fill_of(x: Any, value: int) -> Any:
    """The value in the matrix's dtype."""
    return x.dtype.type(value)


SHAPES: dict[str, Pair] = {
    "joined": both(lambda m, x, k: m.concatenate([x[1:], x[:1], x[:3]], axis=0)),
    "cut_pad": (
        lambda x, k: lax.pad(x, fill_of(x, 1), ((-1, 2, 0), (1, -1, 0))),
        lambda x, k: np.pad(x[1:, :-1], ((0, 2), (1, 0)), constant_values=1),
    ),
    "spread_pad": (
        lambda x, k: lax.pad(x, fill_of(x, 1), ((0, 0, 0), (1, 0, 1))),
        lambda x, k: spread_out(x),
    ),
    "turned": both(lambda m, x, k: m.transpose(threes(x), (2, 0, 1))),
    "turned_pairs": both(lambda m, x, k: m.transpose(threes(x), (1, 0, 2))),
    "stacked": both(lambda m, x, k: m.stack([x, x[::-1], x], axis=1)),
    "broadcast": both(lambda m, x, k: m.broadcast_to(x[:, None, :1], (len(x), 3, 2))),
    "parts": (
        lambda x, k: lax.split(x, (1, x.shape[1] - 3, 2), axis=1),
        lambda x, k: np.split(x, (1, x.shape[1] - 2), axis=1),
    ),
    "sorted_pair": (
        lambda x, k: lax.sort((x[:, 0], jnp.arange(len(x)), x[:, 1]), num_keys=1, is_stable=True)[1:],
        lambda x, k: (lambda o: (o.astype(np.int32), x[o, 1]))(np.argsort(x[:, 0], kind="stable")),
    ),
}


def spread_out(x: Any) -> Any:
    """The columns, with a column of ones before each."""
    found = np.ones((len(x), 2 * x.shape[1]), x.dtype)
    found[:, 1::2] = x
    return found


def rows_of(m: Any, x: Any) -> Any:
    """Row indices, some of them twice."""
    return m.arange(len(x)) * 3 % len(x) // 2


def counted(x: Any, at: Any, then: Any) -> Any:
    """x after its rows, in reverse order, were combined by `then` with the rows at the indices `at`."""
    found = x.copy()
    for place, row in zip(at, x[::-1], strict=True):
        found[place] = then(found[place], row)
    return found


def scattered(name: str, then: Any) -> Pair:
    """(JAX function, NumPy function) of a method of `x.at[rows]`."""
    return (
        lambda x, k: getattr(x.at[rows_of(jnp, x)], name)(x[::-1]),
        lambda x, k: counted(x, rows_of(np, x), then),
    )


PLACES: dict[str, Pair] = {
    "clip": both(lambda m, x, k: m.take(x, rows_of(m, x) * 4 - 3, axis=0, mode="clip")),
    "fill": (
        lambda x, k: x.at[rows_of(jnp, x) * 4].get(mode="fill", fill_value=1),
        lambda x, k: np.where(
            (rows_of(np, x) * 4 < len(x))[:, None], x[np.minimum(rows_of(np, x) * 4, len(x) - 1)], fill_of(x, 1)
        ),
    ),
    "along": both(lambda m, x, k: m.take_along_axis(x, rows_of(m, x)[:, None] % x.shape[1], axis=1)),
    "max": scattered("max", np.maximum),
    "min": scattered("min", np.minimum),
    "cut": (
        lambda x, k: lax.dynamic_slice(x, (x[0, 0].astype(jnp.int32) + 2, 1), (5, 2)),
        lambda x, k: x[int(x[0, 0]) + 2 :][:5, 1:3],
    ),
    "chosen_of_three": (
        lambda x, k: lax.select_n(rows_of(jnp, x)[:, None] % 3 + jnp.zeros(x.shape, jnp.int32), x, x[::-1], x[:, ::-1]),
        lambda x, k: np.choose(rows_of(np, x)[:, None] % 3 + np.zeros(x.shape, int), (x, x[::-1], x[:, ::-1])),
    ),
    "chosen_whole": (
        lambda x, k: lax.select(x[0, 0] > x[1, 1], x, x[::-1]),
        lambda x, k: x if x[0, 0] > x[1, 1] else x[::-1],
    ),
}  # fmt: skip
SUMMED: dict[str, Pair] = {
    "add": scattered("add", np.add),
    "mul": (
        lambda x, k: folded(x, k).at[rows_of(jnp, x)].multiply(folded(x, k)[::-1]),
        lambda x, k: counted(folded_in_numpy(x, k), rows_of(np, x), np.multiply),
    ),
    "segments": (
        lambda x, k: jax.ops.segment_sum(x, rows_of(jnp, x), len(x) // 2),
        lambda x, k: np.stack([x[rows_of(np, x) == i].sum(axis=0) for i in range(len(x) // 2)]),
    ),
    "greatest": (
        lambda x, k: lax.top_k(x, 3),
        lambda x, k: greatest(x, 3),
    ),
    "less": both(lambda m, x, k: m.less(signed(x, k), x[::-1])),
    "equal": both(lambda m, x, k: m.equal(x, x[::-1])),
    "clamp": (
        lambda x, k: lax.clamp(fill_of(x, 1), x, fill_of(x, 2)),
        lambda x, k: np.clip(x, 1, 2),
    ),
    "maximum": both(lambda m, x, k: m.maximum(signed(x, k), x[::-1])),
    "minimum": both(lambda m, x, k: m.minimum(signed(x, k), x[::-1])),
    "cube": (lambda x, k: lax.integer_pow(signed(x, k), 3), lambda x, k: signed(x, k) ** 3),
    "difference": both(lambda m, x, k: x - 2 * x[::-1]),
    "remainder": (
        lambda x, k: lax.rem(signed(7 * x, k), x[::-1] + fill_of(x, 1)),
        lambda x, k: np.fmod(signed(7 * x, k), x[::-1] + 1),
    ),
    "quotient": both(lambda m, x, k: m.floor_divide(signed(7 * x, k), x[::-1] + fill_of(x, 1))),
    "sign": both(lambda m, x, k: m.sign(signed(x, k))),
    "magnitude": both(lambda m, x, k: m.abs(signed(x, k))),
}


def greatest(x: Any, k: int) -> Any:
    """The k largest elements of each row and their int32 indices. Equal elements keep their order."""
    at = np.argsort(-x, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(x, at, axis=1), at.astype(np.int32)


def near(function: Callable[[Any, Any], Any]) -> Pair:
    """A pair whose results are booleans: whether JAX is within four units in the last place of NumPy in 64 bits."""
    right = np.asarray(function(np, np.array([0.5, 1.0, 1.5])), np.float64)

    def close(x: Any, k: str) -> Any:
        found = function(jnp, x / 2 + fill_of(x, 1) / 2)
        table = jnp.asarray(right.astype(np.float32))
        want = table[x.astype(jnp.int32)]
        unit = 4 * float(jnp.finfo(x.dtype).eps)
        return (jnp.abs(found.astype(jnp.float32) - want) <= unit * jnp.abs(want)) & (found.dtype == x.dtype)

    return close, lambda x, k: np.ones(x.shape, bool)


FLOATS: dict[str, Pair] = {
    "exp": near(lambda m, x: m.exp(x)),
    "exp2": near(lambda m, x: m.exp2(x)),
    "expm1": near(lambda m, x: m.expm1(x)),
    "log": near(lambda m, x: m.log(x + 1)),
    "log2": near(lambda m, x: m.log2(x + 1)),
    "tanh": near(lambda m, x: m.tanh(x)),
    "sin": near(lambda m, x: m.sin(x)),
    "cos": near(lambda m, x: m.cos(x)),
    "atan2": near(lambda m, x: m.arctan2(x, x + 1)),
    "sqrt": near(lambda m, x: m.sqrt(x)),
    "cbrt": near(lambda m, x: m.cbrt(x)),
    "power": near(lambda m, x: x**2.5),
    "reciprocal": near(lambda m, x: 1 / x),
    "hypot": near(lambda m, x: m.hypot(x, x + 1)),
    "logaddexp": near(lambda m, x: m.logaddexp(x, -x)),
    "floor": both(lambda m, x, k: m.floor(x / 2 - 1)),
    "ceil": both(lambda m, x, k: m.ceil(x / 2 - 1)),
    "round": both(lambda m, x, k: m.round(x / 2 - 1)),
    "mean": both(lambda m, x, k: m.mean(x[:8], axis=0)),
}

GROUPS: dict[str, dict[str, Pair]] = {
    "products": PRODUCTS,
    "widened": WIDENED,
    "reduced": REDUCED,
    "truths": TRUTHS,
    "shapes": SHAPES,
    "places": PLACES,
    "summed": SUMMED,
    "floats": FLOATS,
    "converted": {kind: (lambda x, k: x, lambda x, k: x) for kind in KINDS},
}
"""Group -> name -> function."""

WHOLE = ("converted", "shapes", "places")
"""The groups of every dtype."""


def groups_of(kind: str) -> tuple[str, ...]:
    """The groups of functions that a dtype has."""
    if kind == "bool":
        return (*WHOLE, "truths")
    narrow = dtype_of(kind).itemsize < 4
    return (
        *WHOLE,
        *("products", "reduced", "summed"),
        *(("widened",) if narrow else ()),
        *(("floats",) if kind_of(kind) == "float" else ()),
    )


def converted(x: Any, source: str, target: str) -> Any:
    """A matrix cast to another dtype. Halves are truncated if the target is an integer, and negative numbers stay
    negative or wrap."""
    if kind_of(source) == "float" and kind_of(target) in ("int", "float"):
        x = x / 2 * 3 - 2
    elif kind_of(source) == "int" and kind_of(target) != "bool":
        x = x - x.dtype.type(1)
    elif kind_of(source) == "uint":
        x = x * x.dtype.type(100)
    return x.astype(target)


def converted_in_numpy(x: np.ndarray, source: str, target: str) -> np.ndarray:
    """`converted` in NumPy. The caller casts the result to the target."""
    if kind_of(source) == "float" and kind_of(target) in ("int", "float"):
        x = x / 2 * 3 - 2
        x = np.trunc(x) if kind_of(target) == "int" else x
    elif kind_of(source) == "int" and kind_of(target) != "bool":
        x = x - 1
    elif kind_of(source) == "uint":
        x = (x * 100).astype(source)
    return (
        x != 0 if kind_of(target) == "bool" else x.astype(np.int64 if kind_of(source) != "float" else x.dtype)
    )


def in_jax(group: str, name: str, x: Any) -> tuple[Any, ...]:
    """The results of one function of a matrix in JAX."""
    if group == "converted":
        return (converted(x, str(x.dtype), name),)
    return outputs(GROUPS[group][name][0](x, kind_of(str(x.dtype))))


def in_numpy(group: str, name: str, x: np.ndarray, kind: str) -> tuple[np.ndarray, ...]:
    """The results of one function in NumPy: computed in 64 bits, and cast to the dtypes of JAX's results."""
    wide_x = x if kind == "bool" else x.astype(np.float64 if kind_of(kind) == "float" else np.int64)
    if group == "converted":
        return (converted_in_numpy(wide_x, kind, name).astype(dtype_of(name).numpy),)
    made = []
    for found in outputs(GROUPS[group][name][1](wide_x, kind_of(kind))):
        found = np.asarray(found)
        own = kind if found.dtype == wide_x.dtype else found.dtype.name
        if group == "widened":
            own = {"float": "float32", "int": "int32", "uint": "uint32"}[kind_of(kind)]
        elif found.dtype.kind == "i" and kind_of(kind) in ("float", "bool"):
            own = "int32"
        made.append(found.astype(dtype_of(own).numpy))
    return tuple(made)


@lru_cache(maxsize=1024)
def shapes_of(group: str, name: str, shape: tuple[int, ...], kind: str) -> tuple[tuple[Any, str], ...]:
    """(shape, dtype) of each result."""
    sample = np.zeros(shape, dtype_of(kind).numpy)
    return tuple((a.shape, a.dtype.name) for a in in_numpy(group, name, sample, kind))


class DtypeGrid(Operation):
    """Every function of a group, of one dtype, in one program. The matrix is sharded over some mesh axes."""

    name = "dtype_grid"
    family = "forms"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    sizes: ClassVar[dict[str, int]] = {"64B": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if (1 in mesh.shape and mesh.size > 1) or mesh.size > MOST:
            return
        first, many = mesh == preferred(mesh.size), len(mesh.shape) == 3
        for number, kind in enumerate(KINDS):
            for group in groups_of(kind):
                turn = (number + [*GROUPS].index(group)) % 3
                own = (
                    first
                    if turn == 0 or mesh.size not in (8,)
                    else many
                    if turn == 1
                    else mesh.shape == (4, 2)
                )
                usual = own and not mesh.order
                yield Variant.of((2 if first else 1) if usual else 3, group=group, kind=kind)

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the time of a group of functions says nothing about one function."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        group, kind, mesh = request.variant["group"], request.variant["kind"], request.mesh
        m = mesh.size if mesh.size > 3 else (4, 4, 4, 6)[mesh.size]  # the functions need the fifth column
        first, last = mesh.names[0], mesh.names[-1]
        turn = (KINDS.index(kind) + 2 * [*GROUPS].index(group)) % 4
        spec = ((last, None), (None, first), (first, last), (mesh.names, None))[turn]
        if first == last and turn == 2:
            spec = (last, None)
        fill: Any = (values.distinct, {}) if kind == "bool" else (values.tokens, {"below": 3})
        x = Argument((4 * m, 2 * m), kind, spec, *fill)
        results = tuple(
            Result(shape, own, spread(shape, x, mesh.sizes))
            for name in GROUPS[group]
            for shape, own in shapes_of(group, name, x.shape, kind)
        )
        options = {"group": group, "kind": kind, "specs": tuple(r.spec for r in results), "place": spec}
        return Plan((x,), results, options, judge="exact")

    @staticmethod
    def host(mesh, x, *, group, specs, place):
        def all_of_them(y):
            return tuple(found for name in GROUPS[group] for found in in_jax(group, name, y))

        places = tuple(NamedSharding(mesh, P(*spec)) for spec in specs)
        there = jax.device_put(x, NamedSharding(mesh, P(*place)))
        return jax.jit(all_of_them, out_shardings=places)(there)

    @staticmethod
    def reference(x, *, group, kind):
        return tuple(found for name in GROUPS[group] for found in in_numpy(group, name, x, kind))
