# SPDX-License-Identifier: Apache-2.0
"""Definitions of operations in NumPy: an oracle for the unsharded program.

Each definition takes the arguments that a program gives to the JAX operation. Its result is cast to the dtype that JAX
states for it. A program with an operation that has no definition here does not have this oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from meshmark.hunt.program import Node, Program
from meshmark.hunt.references import REFERENCES, Undefined
from meshmark.hunt.values import make_inputs

KINDS = frozenset(
    ("float32", "float64", "int32", "int64", "uint8", "uint32", "uint64", "bool", "complex64", "complex128")
)
"""The dtypes that NumPy computes as JAX does, except that its result dtypes may differ and are cast."""


def take_slice(x: np.ndarray, start: Sequence[int], stop: Sequence[int], stride: Any = None) -> np.ndarray:
    """lax.slice."""
    steps = stride or [1] * x.ndim
    return x[tuple(slice(a, b, s) for a, b, s in zip(start, stop, steps, strict=True))]


def pad_array(x: np.ndarray, value: Any, config: Sequence[Sequence[int]]) -> np.ndarray:
    """lax.pad. Negative low and high remove elements, after the interior padding is inserted."""
    for d, (low, high, interior) in enumerate(config):
        rows = np.moveaxis(x, d, 0)
        wide = np.full((max((len(rows) - 1) * (interior + 1) + 1, 0), *rows.shape[1:]), value, x.dtype)
        wide[:: interior + 1] = rows
        ends = [np.full((max(n, 0), *rows.shape[1:]), value, x.dtype) for n in (low, high)]
        whole = np.concatenate([ends[0], wide, ends[1]])
        x = np.moveaxis(whole[max(-low, 0) : len(whole) - max(-high, 0)], 0, d)
    return x


def clamp_starts(starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The starts of a dynamic slice: negative ones count from the end, and all are clamped so that the slice fits."""
    found = []
    for start, n, size in zip(starts, shape, sizes, strict=True):
        at = int(start) + (n if int(start) < 0 else 0)
        found.append(min(max(at, 0), n - size))
    return found


def dynamic_slice(x: np.ndarray, starts: Sequence[Any], sizes: Sequence[int]) -> np.ndarray:
    """lax.dynamic_slice."""
    places = clamp_starts(starts, x.shape, sizes)
    return x[tuple(slice(a, a + n) for a, n in zip(places, sizes, strict=True))]


def dynamic_update_slice(x: np.ndarray, update: np.ndarray, starts: Sequence[Any]) -> np.ndarray:
    """lax.dynamic_update_slice."""
    places = clamp_starts(starts, x.shape, update.shape)
    made = x.copy()
    made[tuple(slice(a, a + n) for a, n in zip(places, update.shape, strict=True))] = update
    return made


def make_cumulative(function: np.ufunc) -> Callable[..., np.ndarray]:
    """A cumulative operation of lax, made from a ufunc."""

    def run(x: np.ndarray, axis: int = 0, reverse: bool = False) -> np.ndarray:
        x = np.flip(x, axis) if reverse else x
        found = function.accumulate(x, axis=axis, dtype=x.dtype)
        return np.flip(found, axis) if reverse else found

    return run


def make_movement(name: str) -> Any:
    """An operation on slices along one dimension: lax's in_dim function "slice", "index" or "update_slice"."""

    def along(x: np.ndarray, axis: int, start: Any, size: int) -> tuple[list[Any], list[int]]:
        starts = [start if k == axis else 0 for k in range(x.ndim)]
        return starts, [size if k == axis else n for k, n in enumerate(x.shape)]

    def read(x: np.ndarray, start: Any, size: int, axis: int = 0) -> np.ndarray:
        return dynamic_slice(x, *along(x, axis, start, size))

    def row(x: np.ndarray, start: Any, axis: int = 0, keepdims: bool = True) -> np.ndarray:
        found = read(x, start, 1, axis)
        return found if keepdims else found.squeeze(axis)

    def written(x: np.ndarray, update: np.ndarray, start: Any, axis: int = 0) -> np.ndarray:
        return dynamic_update_slice(x, update, along(x, axis, start, 1)[0])

    return {"slice": read, "index": row, "update_slice": written}[name]


def slice_in_dim(x: np.ndarray, start: int, stop: int, stride: int = 1, axis: int = 0) -> np.ndarray:
    """lax.slice_in_dim. A negative start counts from the end."""
    return x[(*[slice(None)] * axis, slice(start, stop, stride))]


def getitem(x: np.ndarray, index: Any) -> np.ndarray:
    """x[index]. Undefined for an index out of bounds, which JAX clamps."""
    try:
        return np.asarray(x[index])
    except IndexError as error:
        raise Undefined(str(error)) from None


def make_update(function: np.ufunc | None) -> Callable[..., np.ndarray]:
    """x.at[index].set if `function` is None, else x.at[index].add and the like, by ufunc. These apply an update at each
    occurrence of an index."""

    def run(x: np.ndarray, index: Any, update: Any, **options: Any) -> np.ndarray:
        if options:
            raise Undefined(", ".join(options))
        made = x.copy()
        try:
            if function:
                function.at(made, index, np.asarray(update).astype(x.dtype))
            else:
                made[index] = update
        except IndexError as error:
            raise Undefined(str(error)) from None
        return made

    return run


def iota(kind: str, shape: Sequence[int], dimension: int) -> np.ndarray:
    """lax.broadcasted_iota."""
    return np.broadcast_to(np.expand_dims(np.arange(shape[dimension]), _others(shape, dimension)), shape)


def _others(shape: Sequence[int], dimension: int) -> tuple[int, ...]:
    return tuple(k for k in range(len(shape)) if k != dimension)


def split(x: np.ndarray, sizes: Sequence[int], axis: int = 0) -> list[np.ndarray]:
    """lax.split."""
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def find_order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The indices that sort a dimension. Equal elements keep their order, also if descending."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - back, axis)


def argsort(x: np.ndarray, axis: int = -1, stable: bool = True, descending: bool = False) -> np.ndarray:
    """jnp.argsort."""
    return find_order(x, axis, descending)


def sort(x: np.ndarray, axis: int = -1, descending: bool = False) -> np.ndarray:
    """jnp.sort."""
    return np.take_along_axis(x, find_order(x, axis, descending), axis)


def top_k(x: np.ndarray, k: int, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """lax.top_k and jnp.top_k. Of equal elements the one with the lower index comes first."""
    order = np.take(find_order(x, axis, True), range(k), axis)
    return np.take_along_axis(x, order, axis), order


def multiply(subscripts: str, *arrays: np.ndarray) -> np.ndarray:
    """jnp.einsum. NumPy's does not take booleans, so they are summed as integers."""
    if any(a.dtype == bool for a in arrays):
        return np.einsum(subscripts, *(a.astype(int) for a in arrays)) != 0
    return np.einsum(subscripts, *arrays)


COMPARISONS = frozenset(
    f"jnp.{n}" for n in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
)

DEFINITIONS: dict[str, Callable[..., Any]] = {
    **REFERENCES,
    **{
        f"jnp.{name}": getattr(np, name)
        for name in (
            *("add", "subtract", "multiply", "maximum", "minimum", "negative", "abs", "square", "sign"),
            *("where", "greater", "less_equal", "not_equal", "equal", "clip", "sum", "max", "min", "prod"),
            *("argmax", "argmin", "all", "any", "count_nonzero", "matmul", "tril", "triu", "diagonal"),
            *("trace", "bitwise_and", "bitwise_or", "bitwise_xor", "broadcast_to", "expand_dims", "tile"),
            *("repeat", "concatenate", "stack", "roll", "diff", "less", "zeros_like"),
            *("greater_equal", "moveaxis", "swapaxes", "ravel", "squeeze", "arange", "flip", "tensordot"),
            *("take_along_axis",),
        )
    },
    "jnp.reshape": np.reshape,
    "jnp.transpose": np.transpose,
    "jnp.pad": lambda x, width, mode: np.pad(x, width, mode=mode),
    "jnp.einsum": multiply,
    "jnp.sort": sort,
    "jnp.argsort": argsort,
    "lax.convert_element_type": lambda x, kind: x.astype(kind),
    "lax.slice": take_slice,
    "lax.pad": pad_array,
    "lax.rev": np.flip,
    "lax.split": split,
    "lax.top_k": top_k,
    "jnp.top_k": top_k,
    "lax.dynamic_slice": dynamic_slice,
    "lax.dynamic_update_slice": dynamic_update_slice,
    "lax.cumsum": make_cumulative(np.add),
    "lax.cumprod": make_cumulative(np.multiply),
    "lax.cumlogsumexp": make_cumulative(np.logaddexp),
    "lax.cummax": make_cumulative(np.maximum),
    "lax.cummin": make_cumulative(np.minimum),
    **{f"lax.dynamic_{name}_in_dim": make_movement(name) for name in ("slice", "index", "update_slice")},
    "lax.slice_in_dim": slice_in_dim,
    "lax.broadcasted_iota": iota,
    "lax.index_in_dim": make_movement("index"),
    "lax.dynamic_update_index_in_dim": make_movement("update_slice"),
    "lax.optimization_barrier": lambda x: x,
    "lax.stop_gradient": lambda x: x,
    "getitem": getitem,
    "at.set": make_update(None),
    **{
        f"at.{name}": make_update(function)
        for name, function in (
            *(("add", np.add), ("multiply", np.multiply), ("min", np.minimum), ("max", np.maximum)),
        )
    },
    "constrain": lambda x, spec: x,
    "item": lambda x, k: x[k],
}
"""The definitions, by the operation's name in a program."""


def compute_results(program: Program, types: Sequence[Any]) -> list[np.ndarray]:
    """The results of a program by NumPy. Undefined for a transform, and for what this module does not define.

    types: JAX's type of each value, as a ShapeDtypeStruct or a tuple of them."""
    if program.transform.kind:
        raise Undefined(f"a {program.transform.kind}")
    if other := {i.dtype for i in program.inputs} - KINDS:
        raise Undefined(f"inputs of {', '.join(sorted(other))}")
    values: list[Any] = list(make_inputs(program))
    for node in program.nodes:
        if node.op not in DEFINITIONS or node.bodies:
            raise Undefined(node.op)
        given = [evaluate(a, values) for a in node.args]
        refuse_wrapped(node, given)
        found = DEFINITIONS[node.op](*given, **{k: evaluate(v, values) for k, v in node.kwargs.items()})
        values.append(check_types(node, found, types[len(values)]))
    return [values[i] for i in program.outputs]


def refuse_wrapped(node: Node, given: Sequence[Any]) -> None:
    """Undefined if a comparison has a negative number and an unsigned array: JAX wraps the number, NumPy does not."""
    kinds = {x.dtype.kind for x in given if isinstance(x, np.ndarray)}
    if node.op in COMPARISONS and "u" in kinds and any(isinstance(x, int) and x < 0 for x in given):
        raise Undefined(f"{node.op} of a negative number and an unsigned type")


def check_types(node: Node, found: Any, kind: Any) -> Any:
    """A result, cast to the dtype that JAX states for it; Undefined for a dtype that is not in KINDS."""
    if isinstance(kind, (tuple, list)):
        return tuple(check_types(node, f, k) for f, k in zip(found, kind, strict=True))
    if kind.dtype.name not in KINDS:
        raise Undefined(f"{node.op} of {kind.dtype.name}")
    return np.asarray(found).astype(kind.dtype)


def evaluate(expression: Any, values: Sequence[Any]) -> Any:
    """The value of an expression. Undefined for functions."""
    if isinstance(expression, Mapping):
        if "v" in expression:
            return values[expression["v"]]
        if "float" in expression:
            return float(expression["float"])
        if "slice" in expression:
            return slice(*expression["slice"])
        if expression.get("call") == "jnp.array":
            return expression["kwargs"]["object"]
        raise Undefined(str(next(iter(expression))))
    if isinstance(expression, (list, tuple)):
        return tuple(evaluate(item, values) for item in expression)
    return expression
