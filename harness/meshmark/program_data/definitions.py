# SPDX-License-Identifier: Apache-2.0
"""Definitions of operations in NumPy: an oracle for the unsharded program.

Each definition takes the arguments that a program gives to the JAX operation. Its result is cast to the dtype that JAX
states for it. A program with an operation that has no definition here does not have this oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meshmark.program_data.lanes import COLLECTIVES, Lanes
from meshmark.program_data.places import PLACES, make_at
from meshmark.program_data.program import Body, Node, Program, walk_nodes
from meshmark.program_data.references import REFERENCES, Undefined
from meshmark.program_data.values import dtype_of, make_inputs
from meshmark.program_data.windows import FUNCTIONS, WINDOWS

KINDS = frozenset(
    (
        *("float32", "float64", "bfloat16", "float16", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)
"""The dtypes of results. NumPy's own result dtypes may differ, and are cast."""

NARROW = frozenset(map(dtype_of, ("bfloat16", "float16")))
"""The floats that are computed as float32."""


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

    with_mode = make_at(function)

    def run(x: np.ndarray, index: Any, update: Any, **options: Any) -> np.ndarray:
        if options:
            return with_mode(x, index, update, **options)
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
    **WINDOWS,
    **PLACES,
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
    "constrain": lambda x, spec, inside=False: x,
    "item": lambda x, k: x[k],
}
"""The definitions, by the operation's name in a program."""


def compute_results(program: Program, dtypes: Sequence[Any]) -> list[np.ndarray]:
    """The results of a program by NumPy. Undefined for a transform, and for what no definition covers.

    dtypes: JAX's dtype of the result of each operation, in the order of `walk_nodes`: a name, or a list of names for a
    tuple (`meshmark.program_data.building.find_dtypes`)."""
    if program.transform.kind:
        raise Undefined(f"a {program.transform.kind}")
    return compute_function(program, make_inputs(program)[: program.given], dtypes)


def compute_function(
    program: Program, given: Sequence[np.ndarray], dtypes: Sequence[Any]
) -> list[np.ndarray]:
    """The results of a program without its transform, of these inputs."""
    nodes = walk_nodes(program.nodes)
    run = Run(dict(program.axes), {id(n): kind for n, kind in zip(nodes, dtypes, strict=True)})
    values = run.nodes(program.nodes, [[x] for x in given], [], Lanes({}))
    return [values[i][0] for i in program.outputs]


class Run:
    """The state of one computation. A value is a list: one array, or one tuple of arrays, for each lane."""

    def __init__(self, sizes: Mapping[str, int], dtypes: Mapping[int, Any]) -> None:
        self.sizes, self.dtypes = sizes, dtypes

    def nodes(self, nodes: Sequence[Node], values: list[Any], outer: list[Any], lanes: Lanes) -> list[Any]:
        """Append the value of each node to `values`, and give `values`."""
        for node in nodes:
            found = self.node(node, values, outer, lanes)
            values.append([check_types(node, f, self.dtypes[id(node)]) for f in found])
        return values

    def node(self, node: Node, values: list[Any], outer: list[Any], lanes: Lanes) -> list[Any]:
        """The value of one operation, before its dtype is checked."""

        def lane_of(lane: int) -> tuple[list[Any], list[Any]]:
            return [v[lane] for v in values], [v[lane] for v in outer]

        every = [
            (
                [widen_narrow(evaluate(a, *lane_of(k))) for a in node.args],
                {name: widen_narrow(evaluate(v, *lane_of(k))) for name, v in node.kwargs.items()},
            )
            for k in range(len(lanes.places))
        ]
        if node.op in FORMS:
            return FORMS[node.op](self, node, every, values, lanes)
        if node.op in COLLECTIVES:
            args, kwargs = every[0]
            return COLLECTIVES[node.op](lanes, [np.asarray(a[0]) for a, _ in every], *args[1:], **kwargs)
        if node.op == "lax.axis_index":
            return [np.asarray(lanes.coordinate(k, a[0])) for k, (a, _) in enumerate(every)]
        if node.op not in DEFINITIONS:
            raise Undefined(node.op)
        found = []
        for args, kwargs in every:
            refuse_wrapped(node, args)
            found.append(DEFINITIONS[node.op](*args, **kwargs))
        return found

    def body(self, body: Body, outer: list[Any], lanes: Lanes) -> Callable[..., list[Any]]:
        """A body as a function of values. It gives the value of its only result, or tuples of several results."""

        def run(*given: Any) -> list[Any]:
            values = self.nodes(body.nodes, [*given], outer, lanes)
            found = [values[i] for i in body.outputs]
            return found[0] if len(found) == 1 else [*zip(*found, strict=True)]

        return run


def widen_narrow(value: Any) -> Any:
    """An array of bfloat16 or float16 as float32: NumPy has few functions of the former, and computes the latter in
    other ways than JAX. The result is rounded to its dtype again. Lists and tuples item by item."""
    if isinstance(value, np.ndarray) and value.dtype in NARROW:
        return value.astype(np.float32)
    if isinstance(value, (list, tuple)):
        return type(value)(widen_narrow(item) for item in value)
    return value


def stack_results(rows: Sequence[Any], axis: int = 0) -> Any:
    """Results of one lane, stacked: arrays, or tuples of arrays item by item."""
    if isinstance(rows[0], (tuple, list)):
        return tuple(np.stack([np.asarray(r) for r in items], axis) for items in zip(*rows, strict=True))
    return np.stack([np.asarray(r) for r in rows], axis)


# Forms: operations with bodies. Each takes the run, the node, (arguments, options) for each lane, the values around it
# and the lanes, and gives one result for each lane.

Every = Sequence[tuple[list[Any], dict[str, Any]]]


def _column(every: Every, k: int) -> list[Any]:
    """Argument k of each lane."""
    return [np.asarray(args[k]) for args, _ in every]


def _vmap(run: Run, node: Node, every: Every, values: list[Any], lanes: Lanes) -> list[Any]:
    options = every[0][1]
    if extra := options.keys() - {"in_axes", "out_axes"}:
        raise Undefined(f"vmap with {', '.join(sorted(extra))}")
    columns = [_column(every, k) for k in range(len(node.args))]
    axes = options.get("in_axes", 0)
    axes = [axes] * len(columns) if isinstance(axes, int) else axes
    size = next(c[0].shape[a] for c, a in zip(columns, axes, strict=True) if a is not None)
    body = run.body(node.bodies[0], values, lanes)

    def member(b: int) -> Iterator[list[Any]]:
        for column, axis in zip(columns, axes, strict=True):
            yield column if axis is None else [np.asarray(np.take(x, b, axis)) for x in column]

    rows = [body(*member(b)) for b in range(size)]
    return [stack_results(lane, options.get("out_axes", 0)) for lane in zip(*rows, strict=True)]


def _call(run: Run, node: Node, every: Every, values: list[Any], lanes: Lanes) -> list[Any]:
    return run.body(node.bodies[0], values, lanes)(*(_column(every, k) for k in range(len(node.args))))


def _map(run: Run, node: Node, every: Every, values: list[Any], lanes: Lanes) -> list[Any]:
    column = _column(every, 0)
    body = run.body(node.bodies[0], values, lanes)
    rows = [body([np.asarray(x[k]) for x in column]) for k in range(len(column[0]))]
    return [stack_results(lane) for lane in zip(*rows, strict=True)]


def _scan(run: Run, node: Node, every: Every, values: list[Any], lanes: Lanes) -> list[Any]:
    carry, xs = _column(every, 0), _column(every, 1)
    turns = range(len(xs[0]))
    backwards = every[0][1].get("reverse", False)
    body = run.body(node.bodies[0], values, lanes)
    rows = []
    for k in reversed(turns) if backwards else turns:
        found = body(carry, [np.asarray(x[k]) for x in xs])
        carry = [f[0] for f in found]
        rows.append([f[1] for f in found])
    if backwards:
        rows.reverse()
    return [(c, stack_results(ys)) for c, ys in zip(carry, zip(*rows, strict=True), strict=True)]


def _select(
    run: Run, node: Node, every: Every, values: list[Any], lanes: Lanes, bodies: Sequence[int]
) -> list[Any]:
    """The result of one body for each lane. bodies: its number, for each lane."""
    columns = [_column(every, k) for k in range(1, len(node.args))]
    found = {k: run.body(node.bodies[k], values, lanes)(*columns) for k in set(bodies)}
    return [found[k][lane] for lane, k in enumerate(bodies)]


def _cond(run: Run, node: Node, every: Every, values: list[Any], lanes: Lanes) -> list[Any]:
    return _select(run, node, every, values, lanes, [0 if flag else 1 for flag in _column(every, 0)])


def _switch(run: Run, node: Node, every: Every, values: list[Any], lanes: Lanes) -> list[Any]:
    last = len(node.bodies) - 1
    return _select(run, node, every, values, lanes, [min(max(int(i), 0), last) for i in _column(every, 0)])


def _fori(run: Run, node: Node, every: Every, values: list[Any], lanes: Lanes) -> list[Any]:
    low, high, state = (_column(every, k) for k in range(3))
    if len({(int(a), int(b)) for a, b in zip(low, high, strict=True)}) > 1:
        raise Undefined("a loop whose length differs between devices")
    body = run.body(node.bodies[0], values, lanes)
    for turn in range(int(low[0]), int(high[0])):
        state = body([np.asarray(turn, np.int32)] * len(state), state)
    return state


def _while(run: Run, node: Node, every: Every, values: list[Any], lanes: Lanes) -> list[Any]:
    if len(lanes.places) > 1:
        raise Undefined("a while loop inside of a shard_map")
    test, turn = (run.body(b, values, lanes) for b in node.bodies)
    most, state = _column(every, 0), _column(every, 1)
    count = 0
    while count < int(most[0]) and test(state)[0]:
        state = turn([np.asarray(count, np.int32)], state)
        count += 1
    return state


def _shard_map(run: Run, node: Node, every: Every, values: list[Any], lanes: Lanes) -> list[Any]:
    if len(lanes.places) > 1:
        raise Undefined("a shard_map inside of another one")
    args, options = every[0]
    axes = options.get("axes") or run.sizes
    inside = Lanes({name: n for name, n in run.sizes.items() if name in axes})
    count = range(len(inside.places))
    given = [
        [inside.block(np.asarray(x), spec, k) for k in count]
        for x, spec in zip(args, options["in_specs"], strict=True)
    ]
    around = [[v[0]] * len(count) for v in values]
    found = run.body(node.bodies[0], around, inside)(*given)
    specs = options["out_specs"]
    if len(specs) == 1:
        return [inside.whole([np.asarray(f) for f in found], specs[0])]
    return [tuple(inside.whole([np.asarray(f[k]) for f in found], spec) for k, spec in enumerate(specs))]


FORMS: dict[str, Callable[..., list[Any]]] = {
    "vmap": _vmap,
    "remat": _call,
    "custom_vjp": _call,
    "map": _map,
    "scan": _scan,
    "cond": _cond,
    "switch": _switch,
    "fori": _fori,
    "while": _while,
    "shard_map": _shard_map,
}
"""The forms, by their name in a program."""


def refuse_wrapped(node: Node, given: Sequence[Any]) -> None:
    """Undefined if a comparison has a negative number and an unsigned array: JAX wraps the number, NumPy does not."""
    kinds = {x.dtype.kind for x in given if isinstance(x, np.ndarray)}
    if node.op in COMPARISONS and "u" in kinds and any(isinstance(x, int) and x < 0 for x in given):
        raise Undefined(f"{node.op} of a negative number and an unsigned type")


def check_types(node: Node, found: Any, kind: Any) -> Any:
    """A result, cast to the dtype that JAX states for it; Undefined for a dtype that is not in KINDS."""
    if isinstance(kind, (tuple, list)):
        return tuple(check_types(node, f, k) for f, k in zip(found, kind, strict=True))
    if kind not in KINDS:
        raise Undefined(f"{node.op} of {kind}")
    return np.asarray(found).astype(dtype_of(kind))


def evaluate(expression: Any, values: Sequence[Any], outer: Sequence[Any] = ()) -> Any:
    """The value of an expression in one lane. Undefined for functions without a definition."""
    if isinstance(expression, Mapping):
        if "v" in expression:
            return values[expression["v"]]
        if "outer" in expression:
            return outer[expression["outer"]]
        if "float" in expression:
            return float(expression["float"])
        if "slice" in expression:
            return slice(*expression["slice"])
        if "name" in expression and expression["name"] in FUNCTIONS:
            return FUNCTIONS[expression["name"]]
        if expression.get("call") == "jnp.array":
            return expression["kwargs"]["object"]
        if str(expression.get("call")).endswith("DimensionNumbers"):
            return expression["kwargs"]
        raise Undefined(str(expression.get("name") or expression.get("call")))
    if isinstance(expression, (list, tuple)):
        return tuple(evaluate(item, values, outer) for item in expression)
    return expression
