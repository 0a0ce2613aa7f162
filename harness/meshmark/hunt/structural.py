# SPDX-License-Identifier: Apache-2.0
"""Vocabulary: operations that move data: shapes, slices, pads, concatenations, indices, windows."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import MOST, Draw, Miss, Value, kind
from meshmark.hunt.elementwise import ref
from meshmark.hunt.program import Node


@kind("shape", weight=1.5)
def reshape(d: Draw) -> Node:
    """Dimensions merged or split."""
    a = d.value(ndim=1)
    shape = list(a.shape)
    if len(shape) > 1 and d.chance(0.5):
        at = d.integer(0, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    if d.chance(0.7):
        at = d.integer(0, len(shape) - 1)
        divisors = [k for k in range(2, shape[at]) if shape[at] % k == 0]
        if divisors:
            k = d.choice(divisors)
            shape[at : at + 1] = [k, shape[at] // k]
    if tuple(shape) == a.shape or len(shape) > 4:
        shape = [a.size]
    return Node("jnp.reshape", (ref(a), shape))


@kind("shape")
def transpose(d: Draw) -> Node:
    """Dimensions in another order."""
    a = d.value(ndim=2)
    return Node("jnp.transpose", (ref(a), d.permutation(a.ndim)))


@kind("shape", weight=0.6)
def broadcast(d: Draw) -> Node:
    """A new dimension, or a repeated one."""
    a = d.value(size=MOST // 8)
    if d.chance(0.5):
        return Node("jnp.broadcast_to", (ref(a), [d.choice([2, 3, 4, 8]), *a.shape]))
    if d.chance(0.5):
        return Node("jnp.expand_dims", (ref(a), d.integer(0, a.ndim)))
    return Node("jnp.tile", (ref(a), [d.choice([1, 2, 3]) for _ in range(max(a.ndim, 1))]))


@kind("shape", weight=0.7)
def repeat(d: Draw) -> Node:
    """Each element several times."""
    a = d.value(ndim=1, size=MOST // 4)
    return Node("jnp.repeat", (ref(a), d.integer(2, 3)), {"axis": d.axis(a)})


@kind("edge", weight=3)
def slice_(d: Draw) -> Node:
    """A static slice, strided or not."""
    a = d.value(ndim=1)
    start, stop, stride = [], [], []
    for n in a.shape:
        if d.chance(0.5):
            low = d.integer(0, min(n - 1, 3))
            high = d.integer(max(low + 1, n - 3), n)
        else:
            low, high = 0, n
        start.append(low)
        stop.append(high)
        stride.append(d.choice([1, 1, 1, 2, 3]))
    strides = [] if set(stride) == {1} or d.chance(0.5) else [stride]
    return Node("lax.slice", (ref(a), start, stop, *strides))


@kind("edge", weight=3)
def pad(d: Draw) -> Node:
    """lax.pad with low, high (also negative) and interior padding."""
    a = d.number(1, MOST // 4)
    config = []
    for n in a.shape:
        if d.chance(0.5):
            low = d.integer(-1, 3) if n > 3 else d.integer(0, 2)
            high = d.integer(-1, 3) if n > 3 else d.integer(0, 2)
            config.append([low, high, d.choice([0, 0, 0, 1, 2])])
        else:
            config.append([0, 0, 0])
    value: Any = {"call": "jnp.array", "kwargs": {"object": d.choice([0, 0, 7]), "dtype": a.dtype}}
    return Node("lax.pad", (ref(a), value, config))


@kind("edge")
def pad_mode(d: Draw) -> Node:
    """jnp.pad with reflected, repeated or wrapped edges."""
    a = d.number(1, MOST // 4)
    width = [
        [d.integer(0, min(2, n - 1)), d.integer(0, min(2, n - 1))] if d.chance(0.6) else [0, 0]
        for n in a.shape
    ]
    return Node(
        "jnp.pad", (ref(a), width), {"mode": d.choice(["edge", "reflect", "wrap", "symmetric", "constant"])}
    )


@kind("edge", weight=3)
def concatenate(d: Draw) -> Node:
    """Values joined along a dimension."""
    a = d.value(ndim=1, size=MOST // 3)
    axis = d.axis(a)
    fit = [
        v
        for v in d.values
        if v.dtype == a.dtype
        and v.ndim == a.ndim
        and all(n == m or k == axis for k, (n, m) in enumerate(zip(v.shape, a.shape, strict=True)))
    ]
    parts = [ref(a), *(ref(d.choice(fit)) for _ in range(d.integer(1, 2)))]
    return Node("jnp.concatenate", (parts,), {"axis": axis})


@kind("edge", weight=0.6)
def stack(d: Draw) -> Node:
    """Values side by side along a new dimension."""
    a = d.value(size=MOST // 3)
    fit = [v for v in d.values if v.dtype == a.dtype and v.shape == a.shape]
    return Node("jnp.stack", ([ref(a), ref(d.choice(fit))],), {"axis": d.integer(0, a.ndim)})


@kind("edge", weight=1.5)
def roll(d: Draw) -> Node:
    """A cyclic shift."""
    a = d.value(ndim=1)
    axis = d.axis(a)
    return Node("jnp.roll", (ref(a), d.integer(-a.shape[axis], a.shape[axis])), {"axis": axis})


@kind("edge")
def flip(d: Draw) -> Node:
    """One dimension or several backwards."""
    a = d.value(ndim=1)
    return Node("lax.rev", (ref(a), sorted(d.random.sample(range(a.ndim), d.integer(1, a.ndim)))))


@kind("edge", weight=0.7)
def diff(d: Draw) -> Node:
    """Differences of neighbours."""
    a = d.number(1)
    return Node("jnp.diff", (ref(a),), {"axis": d.axis(a, 3)})


@kind("edge", weight=0.7)
def split(d: Draw) -> Node:
    """Parts of given sizes."""
    a = d.value(ndim=1)
    axis = d.axis(a, 2)
    at = d.integer(1, a.shape[axis] - 1)
    return Node("lax.split", (ref(a), [at, a.shape[axis] - at]), {"axis": axis})


@kind("index", weight=1.5)
def dynamic_slice(d: Draw) -> Node:
    """A slice from a start that may have to be clamped."""
    a = d.value(ndim=1)
    sizes = [d.integer(max(1, n - 3), n) if d.chance(0.5) else d.integer(1, n) for n in a.shape]
    return Node("lax.dynamic_slice", (ref(a), _starts(d, a, sizes), sizes))


def _starts(d: Draw, a: Value, sizes: list[int]) -> list[Any]:
    """Start indices: constants, or read from a value of int32."""
    starts: list[Any] = []
    for n, s in zip(a.shape, sizes, strict=True):
        if n == s and d.chance(0.7):
            starts.append(0)
        elif d.chance(0.7) and d.fresh:
            fill = {"kind": "data", "data": [d.integer(-2, n + 1)]}
            starts.append(ref(d.like((), "int32", fill)))
        else:
            starts.append(d.integer(0, n))
    return starts


@kind("index", weight=1.5)
def dynamic_update_slice(d: Draw) -> Node:
    """An update from a start that may have to be clamped."""
    a = d.value(ndim=1)
    fit = [
        v
        for v in d.values
        if v.dtype == a.dtype
        and v.ndim == a.ndim
        and all(n <= m for n, m in zip(v.shape, a.shape, strict=True))
        and v.shape != a.shape
    ]
    if fit and d.chance(0.5):
        b = d.choice(fit)
    else:
        b = d.like(tuple(d.integer(1, n) if d.chance(0.6) else n for n in a.shape), a.dtype)
    return Node("lax.dynamic_update_slice", (ref(a), ref(b), _starts(d, a, list(b.shape))))


def _indices(
    d: Draw, n: int, shape: tuple[int, ...], *, outside: bool = False, distinct: bool = False
) -> Any:
    """Integers that index a dimension of n: a value that is there, or an input."""
    if distinct:
        if shape[-1] > n:
            raise Miss
        numbers = d.permutation(n)[: shape[-1]]
        return ref(d.like(shape[-1:], "int32", {"kind": "data", "data": numbers}))
    fit = [v for v in d.values if v.dtype == "int32" and v.shape == shape and 0 < v.below <= n]
    if fit and d.chance(0.5):
        return ref(d.choice(fit))
    low, high = (-n - 1, n + 2) if outside else (0, n - 1)
    fill = {"kind": "ints", "low": low, "high": high, "seed": d.integer(0, 999)}
    return ref(d.like(shape, "int32", fill))


@kind("index", weight=1.5)
def take(d: Draw) -> Node:
    """Rows by index, with every mode of what lies outside."""
    a = d.number(1, MOST // 2)
    axis = d.axis(a)
    mode = d.choice(["clip", "fill", "wrap", "fill", "promise_in_bounds"])
    shape = tuple(d.choice([[3], [4], [8], [2, 4], [5], []]))
    outside = mode != "promise_in_bounds" and d.chance(0.5)
    kwargs: dict[str, Any] = {"axis": axis} if mode == "promise_in_bounds" else {"axis": axis, "mode": mode}
    if mode == "fill":
        kwargs["fill_value"] = d.choice([0, 9])
    return Node("jnp.take", (ref(a), _indices(d, a.shape[axis], shape, outside=outside)), kwargs)


@kind("index", weight=1.2)
def take_along_axis(d: Draw) -> Node:
    """One element a row, or several."""
    a = d.number(1)
    axis = d.axis(a)
    shape = tuple(d.choice([1, 2, n]) if k == axis else n for k, n in enumerate(a.shape))
    return Node("jnp.take_along_axis", (ref(a), _indices(d, a.shape[axis], shape)), {"axis": axis})


@kind("index", weight=0.8)
def one_hot(d: Draw) -> Node:
    """A row of zeros and a one for each integer."""
    a = d.value(lambda v: v.dtype == "int32", size=400)
    return Node("nn.one_hot", (ref(a), d.choice([3, 4, 8])))


def _index(d: Draw, a: Value) -> list[Any]:
    """An index of slices, integers and arrays of integers."""
    made: list[Any] = []
    arrays = 0
    for n in a.shape:
        which = d.random.random()
        if which < 0.3:
            made.append({"slice": [None, None, None]})
        elif which < 0.7:
            low = d.choice([None, 1, 2, -3, -1])
            high = d.choice([None, n, -1, n - 1])
            step = d.choice([None, None, 2, 3, -1])
            made.append({"slice": [None, None, -1]} if step == -1 else {"slice": [low, high, step]})
        elif which < 0.85 or arrays:
            made.append(d.integer(-n, n - 1))
        else:
            arrays = 1
            made.append(_indices(d, n, (d.choice([2, 3, 4, 8]),), distinct=True))
    return made


@kind("index", weight=1.5)
def getitem(d: Draw) -> Node:
    """Basic and advanced indexing."""
    a = d.value(ndim=1)
    return Node("getitem", (ref(a), _index(d, a)))


@kind("index", weight=2)
def at_number(d: Draw) -> Node:
    """An update of indexed elements by a number: no element is hit twice where it is a set."""
    a = d.number(1)
    name = d.choice(["set", "add", "multiply", "min", "max", "set"])
    return Node(f"at.{name}", (ref(a), _index(d, a), d.choice([1, 2, 5])))


@kind("index", weight=1.5)
def shift_set(d: Draw) -> Node:
    """Elements set from their neighbours."""
    a = d.number(1)
    axis = d.axis(a, 3)
    k = d.integer(1, 2)
    low, high = {"slice": [None, -k, None]}, {"slice": [k, None, None]}
    to, source = (low, high) if d.chance(0.5) else (high, low)
    full: Any = {"slice": [None, None, None]}
    index = [*([full] * axis), to]
    n = a.shape[axis]
    low_, high_ = (k, n) if source is high else (0, n - k)
    start = [low_ if i == axis else 0 for i in range(a.ndim)]
    stop = [high_ if i == axis else m for i, m in enumerate(a.shape)]
    # the slice is an operation of its own: the generator adds it first
    part = Node("lax.slice", (ref(a), start, stop))
    return Node(f"at.{d.choice(['set', 'set', 'add'])}", (ref(a), index, part))


@kind("index", weight=1.5)
def scatter(d: Draw) -> Node:
    """Rows added, or combined otherwise, at given indices; repeated ones count each time."""
    a = d.number(1)
    name = d.choice(["add", "add", "min", "max", "multiply"])
    n = a.shape[0]
    count = d.choice([2, 3, 4, 8])
    indices = _indices(d, n, (count,), outside=d.chance(0.4))
    update = d.like((count, *a.shape[1:]), a.dtype)
    kwargs = {"mode": d.choice(["drop", "clip", "fill"])} if d.chance(0.6) else {}
    return Node(f"at.{name}", (ref(a), indices, ref(update)), kwargs)


@kind("index", weight=1)
def scatter_set(d: Draw) -> Node:
    """Rows set at different indices."""
    a = d.number(1)
    count = d.choice([k for k in (1, 2, 3, 4, 8) if k <= a.shape[0]])
    indices = _indices(d, a.shape[0], (count,), distinct=True)
    update = d.like((count, *a.shape[1:]), a.dtype)
    kwargs = {"unique_indices": True} if d.chance(0.4) else {}
    return Node("at.set", (ref(a), indices, ref(update)), kwargs)


@kind("index", weight=1)
def segment_sum(d: Draw) -> Node:
    """Sums by segment."""
    a = d.number(1)
    n = d.choice([2, 3, 4, 8])
    ids = _indices(d, n, (a.shape[0],))
    return Node("jax.ops.segment_sum", (ref(a), ids), {"num_segments": n})


@kind("index", weight=1.5)
def gather_general(d: Draw) -> Node:
    """lax.gather of windows at clipped or filled starts."""
    a = d.number(1)
    k = d.axis(a)
    count = d.choice([2, 3, 4, 8])
    sizes = [d.integer(1, n) if i == k else d.choice([n, n, max(1, n - 1)]) for i, n in enumerate(a.shape)]
    collapse = sizes[k] == 1 and d.chance(0.5)
    indices = _indices(d, a.shape[k], (count, 1), outside=d.chance(0.6))
    offset = list(range(1, 1 + a.ndim - collapse))
    numbers = {
        "call": "lax.GatherDimensionNumbers",
        "kwargs": {
            "offset_dims": offset,
            "collapsed_slice_dims": [k] if collapse else [],
            "start_index_map": [k],
        },
    }
    kwargs: dict[str, Any] = {"mode": d.choice(["clip", "clip", "fill"])}
    if kwargs["mode"] == "fill":
        kwargs["fill_value"] = 0
    return Node("lax.gather", (ref(a), indices, numbers, sizes), kwargs)


@kind("index", weight=1.5)
def scatter_general(d: Draw) -> Node:
    """lax.scatter_add of windows at clipped or dropped starts."""
    a = d.number(1)
    k = d.axis(a)
    count = d.choice([1, 2, 3, 4])
    sizes = [d.integer(1, n) if i == k else n for i, n in enumerate(a.shape)]
    indices = _indices(d, a.shape[k], (count, 1), outside=d.chance(0.6))
    update = d.like((count, *sizes), a.dtype)
    numbers = {
        "call": "lax.ScatterDimensionNumbers",
        "kwargs": {
            "update_window_dims": list(range(1, 1 + a.ndim)),
            "inserted_window_dims": [],
            "scatter_dims_to_operand_dims": [k],
        },
    }
    name = d.choice(["scatter_add", "scatter_max", "scatter_min", "scatter_add"])
    return Node(f"lax.{name}", (ref(a), indices, ref(update), numbers), {"mode": d.choice(["clip", "fill"])})


@kind("window", weight=2.5)
def reduce_window(d: Draw) -> Node:
    """Sums or maxima of windows, with strides, padding and dilation."""
    a = d.value(lambda v: v.dtype == "float32", 1)
    dims, strides, padding, base, window = [], [], [], [], []
    for n in a.shape:
        active = d.chance(0.6)
        size = d.integer(1, min(n, 4)) if active else 1
        dims.append(size)
        strides.append(d.choice([1, 1, 2, 3]) if active else 1)
        padding.append([d.integer(0, size - 1), d.integer(0, size - 1)] if active else [0, 0])
        base.append(d.choice([1, 1, 2]) if active else 1)
        window.append(d.choice([1, 1, 1, 2]) if active else 1)
    kwargs: dict[str, Any] = {"window_dimensions": dims, "window_strides": strides, "padding": padding}
    if d.chance(0.3):
        kwargs["base_dilation"] = base
    if d.chance(0.3):
        kwargs["window_dilation"] = window
    adds = d.chance(0.65)
    init: Any = 0.0 if adds else {"float": "-inf"}
    name = "lax.add" if adds else "lax.max"
    return Node("lax.reduce_window", (ref(a), init, {"name": name}), kwargs)


@kind("window", weight=3)
def convolution(d: Draw) -> Node:
    """lax.conv_general_dilated with strides, padding, dilations and groups."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim in (3, 4))
    spatial = a.ndim - 2
    last = d.chance(0.5)
    c_at = a.ndim - 1 if last else 1
    c = a.shape[c_at]
    extents = a.shape[1:-1] if last else a.shape[2:]
    groups = d.choice([k for k in (1, 1, 2, 4, c) if c % k == 0])
    batch_groups = 1
    if groups == 1 and d.chance(0.15):
        batch_groups = d.choice([k for k in (1, 2, 4) if a.shape[0] % k == 0])
    out = d.choice([1, 2, 4, 3]) * groups * batch_groups
    window = [d.integer(1, min(4, n + 1)) for n in extents]
    kernel_shape = (*window, c // groups, out) if last else (out, c // groups, *window)
    kernel = d.like(kernel_shape, "float32")
    letters = "HW"[:spatial]
    numbers = (
        [f"N{letters}C", f"{letters}IO", f"N{letters}C"]
        if last
        else [f"NC{letters}", f"OI{letters}", f"NC{letters}"]
    )
    dilation = [d.choice([1, 1, 2]) for _ in extents]
    reach = [(w - 1) * k for w, k in zip(window, dilation, strict=True)]
    padding: Any = d.choice(["SAME", "VALID", [[d.integer(0, r), d.integer(0, r)] for r in reach]])
    kwargs: dict[str, Any] = {
        "window_strides": [d.choice([1, 1, 2, 3]) for _ in extents],
        "padding": padding,
        "dimension_numbers": numbers,
    }
    if d.chance(0.3):
        kwargs["rhs_dilation"] = dilation
    if d.chance(0.3) and not isinstance(padding, str):
        kwargs["lhs_dilation"] = [d.choice([1, 2, 3]) for _ in extents]
    if groups > 1:
        kwargs["feature_group_count"] = groups
    if batch_groups > 1:
        kwargs["batch_group_count"] = batch_groups
    return Node("lax.conv_general_dilated", (ref(a), ref(kernel)), kwargs)


@kind("window", weight=0.6)
def convolve(d: Draw) -> Node:
    """numpy.convolve of two rows."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim == 1)
    b = d.like((d.integer(1, min(5, a.shape[0])),), "float32")
    return Node("jnp.convolve", (ref(a), ref(b)), {"mode": d.choice(["full", "same", "valid"])})


@kind("window", rounds=True, weight=0.4)
def fft(d: Draw) -> Node:
    """A transform and the absolute value."""
    a = d.value(lambda v: v.dtype == "float32", 1)
    return Node(f"jnp.fft.{d.choice(['fft', 'ifft', 'rfft'])}", (ref(a),), {"axis": d.axis(a)})


@kind("elementwise", weight=0.5)
def real(d: Draw) -> Node:
    """Parts of complex numbers."""
    a = d.value(lambda v: v.dtype == "complex64")
    return Node(f"jnp.{d.choice(['real', 'imag'])}", (ref(a),))


@kind("shape", weight=0.5)
def iota(d: Draw) -> Node:
    """Counted along a dimension."""
    a = d.value(ndim=1)
    return Node("lax.broadcasted_iota", (d.choice(["int32", "float32"]), list(a.shape), d.axis(a)))


@kind("edge", weight=0.8)
def select_and_gather(d: Draw) -> Node:
    """Max pooling as reduce_window, whose gradient selects and scatters."""
    a = d.value(lambda v: v.dtype == "float32", 1)
    dims = [min(2, n) if d.chance(0.6) else 1 for n in a.shape]
    return Node(
        "lax.reduce_window",
        (ref(a), {"float": "-inf"}, {"name": "lax.max"}),
        {"window_dimensions": dims, "window_strides": dims, "padding": d.choice(["SAME", "VALID"])},
    )
