# SPDX-License-Identifier: Apache-2.0
"""Draws elementwise operations, reductions, cumulative operations, sorts and matrix products."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import INTS, Draw, Miss, Value, kind
from meshmark.program_data.program import Node


def ref(v: Value) -> Any:
    """The expression that reads a value."""
    return v.expression


def _broadcastable(d: Draw, a: Value) -> Any:
    """A second operand for an elementwise operation with `a`: a number, or a value that broadcasts to `a`'s shape."""
    fit = [
        v
        for v in d.values
        if v.dtype == a.dtype
        and v.ndim <= a.ndim
        and all(n in (1, m) for n, m in zip(reversed(v.shape), reversed(a.shape), strict=False))
    ]
    if d.chance(0.7) and fit:
        return ref(d.choice(fit))
    if d.chance(0.35) and d.fresh:
        shape = tuple(n if d.chance(0.7) else 1 for n in a.shape[d.integer(0, 1) if a.ndim > 1 else 0 :])
        return ref(d.like(shape, a.dtype))
    return d.choice([1, 2, 3, 5])


@kind("elementwise", weight=2)
def binary(d: Draw) -> Node:
    """add, subtract, multiply, maximum, minimum."""
    a = d.number()
    name = d.choice(["add", "subtract", "multiply", "maximum", "minimum", "add", "subtract"])
    b = _broadcastable(d, a)
    args = (ref(a), b) if d.chance(0.7) else (b, ref(a))
    return Node(f"jnp.{name}", args)


@kind("elementwise")
def unary(d: Draw) -> Node:
    """Exact functions of one argument."""
    a = d.number()
    return Node(f"jnp.{d.choice(['negative', 'abs', 'square', 'negative'])}", (ref(a),))


@kind("elementwise", continuous=False, weight=0.2)
def sign(d: Draw) -> Node:
    """The sign, which is not continuous at zero."""
    return Node("jnp.sign", (ref(d.number()),))


@kind("elementwise", rounds=True, weight=0.5)
def curved(d: Draw) -> Node:
    """Functions of one argument that round."""
    return Node(d.choice(["jnp.tanh", "jnp.sin", "nn.sigmoid", "nn.gelu", "nn.silu"]), (ref(d.floating()),))


@kind("elementwise", continuous=False, weight=0.7)
def where(d: Draw) -> Node:
    """jnp.where with a boolean value as condition."""
    a = d.number()
    b = _broadcastable(d, a)
    condition = d.value(lambda v: v.dtype == "bool" and v.shape == a.shape)
    return Node("jnp.where", (ref(condition), ref(a), b))


@kind("elementwise", continuous=False, weight=0.6)
def compare(d: Draw) -> Node:
    """A comparison with a number or another value."""
    a = d.number()
    return Node(
        f"jnp.{d.choice(['greater', 'less_equal', 'not_equal', 'equal'])}", (ref(a), _broadcastable(d, a))
    )


@kind("elementwise", continuous=False, weight=0.4)
def convert(d: Draw) -> Node:
    """A conversion to another dtype, which keeps integers."""
    a = d.value(lambda v: v.dtype in ("bool", "float32", "int32", "uint8"))
    to = {
        "bool": ["float32", "int32"],
        "float32": ["int32"],
        "int32": ["float32"],
        "uint8": ["int32", "float32"],
    }
    return Node(d.choice(["lax.convert_element_type", "jnp.astype"]), (ref(a), d.choice(to[a.dtype])))


@kind("elementwise", weight=0.4)
def clamp(d: Draw) -> Node:
    """Values between two bounds."""
    a = d.number()
    low = d.integer(-3, 1) if a.dtype not in ("uint8", "uint32") else 0
    return Node("jnp.clip", (ref(a), low, low + d.integer(0, 4)))


@kind("reduce", weight=2)
def reduce(d: Draw) -> Node:
    """Sum, max, min, over some dimensions."""
    a = d.number(1)
    axes = sorted(d.random.sample(range(a.ndim), d.integer(1, a.ndim)))
    kwargs: dict[str, Any] = {"axis": axes[0] if len(axes) == 1 else axes}
    if d.chance(0.4):
        kwargs["keepdims"] = True
    return Node(f"jnp.{d.choice(['sum', 'sum', 'max', 'min'])}", (ref(a),), kwargs)


@kind("reduce", rounds=True, weight=0.7)
def average(d: Draw) -> Node:
    """Mean, variance, softmax, logsumexp."""
    a = d.floating(1)
    name = d.choice(["jnp.mean", "jnp.var", "nn.softmax", "nn.logsumexp", "nn.log_softmax", "nn.standardize"])
    return Node(name, (ref(a),), {"axis": d.integer(0, a.ndim - 1)})


@kind("reduce", weight=0.5)
def product(d: Draw) -> Node:
    """The product along a short dimension."""
    a = d.number(1)
    return Node("jnp.prod", (ref(a),), {"axis": d.choice([i for i in range(a.ndim) if a.shape[i] <= 8])})


@kind("reduce", continuous=False)
def argreduce(d: Draw) -> Node:
    """The index of the largest or smallest element; of equal ones the first."""
    a = d.number(1)
    kwargs: dict[str, Any] = {"axis": d.axis(a)}
    if d.chance(0.3):
        kwargs["keepdims"] = True
    return Node(f"jnp.{d.choice(['argmax', 'argmin'])}", (ref(a),), kwargs)


@kind("reduce", continuous=False, weight=0.4)
def logical(d: Draw) -> Node:
    """all, any, count."""
    a = d.value(lambda v: v.dtype == "bool", 1)
    return Node(f"jnp.{d.choice(['all', 'any', 'count_nonzero'])}", (ref(a),), {"axis": d.axis(a)})


@kind("cumulative", weight=1.5)
def cumulative(d: Draw) -> Node:
    """Cumulative operations of lax, forwards and backwards."""
    a = d.number(1)
    kwargs: dict[str, Any] = {"axis": d.axis(a)}
    if d.chance(0.5):
        kwargs["reverse"] = True
    return Node(f"lax.{d.choice(['cumsum', 'cumsum', 'cummax', 'cummin'])}", (ref(a),), kwargs)


@kind("cumulative", weight=0.6)
def associative_scan(d: Draw) -> Node:
    """An associative scan."""
    a = d.number(1)
    kwargs: dict[str, Any] = {"axis": d.axis(a)}
    if d.chance(0.4):
        kwargs["reverse"] = True
    return Node("lax.associative_scan", ({"name": d.choice(["lax.add", "lax.max"])}, ref(a)), kwargs)


@kind("cumulative", rounds=True, weight=0.3)
def cumlogsumexp(d: Draw) -> Node:
    """The logarithm of cumulative sums of exponentials."""
    a = d.floating(1)
    return Node("lax.cumlogsumexp", (ref(a),), {"axis": d.axis(a), "reverse": d.chance(0.5)})


@kind("sort", continuous=False)
def sort(d: Draw) -> Node:
    """A stable sort or argsort."""
    a = d.number(1)
    name = d.choice(["sort", "argsort"])
    kwargs: dict[str, Any] = {"axis": d.axis(a)}
    if name == "argsort":
        kwargs["stable"] = True
    if d.chance(0.3):
        kwargs["descending"] = True
    return Node(f"jnp.{name}", (ref(a),), kwargs)


@kind("sort", continuous=False, weight=0.7)
def sort_pairs(d: Draw) -> Node:
    """Two operands sorted together, by the first one or by both."""
    a = d.number(1)
    b = d.like(a.shape, a.dtype)
    return Node(
        "lax.sort",
        ([ref(a), ref(b)],),
        {"dimension": d.axis(a), "num_keys": d.integer(1, 2), "is_stable": True},
    )


@kind("sort", continuous=False, weight=0.8)
def top_k(d: Draw) -> Node:
    """The largest k elements with their indices."""
    a = d.number(1)
    return Node("lax.top_k", (ref(a), d.integer(1, min(4, a.shape[-1]))))


@kind("sort", continuous=False, weight=0.4)
def searchsorted(d: Draw) -> Node:
    """The positions at which values would be inserted in a vector. The vector itself may be unsorted."""
    a = d.value(lambda v: v.is_number and v.ndim == 1)
    b = d.value(lambda v: v.dtype == a.dtype)
    return Node("jnp.searchsorted", (ref(a), ref(b)), {"side": d.choice(["left", "right"])})


@kind("dot", weight=2)
def matmul(d: Draw) -> Node:
    """A matrix product, batched or not."""
    a = d.floating(2)
    n = d.choice([1, 2, 3, 4, 8, 5])
    shape = (a.shape[-1], n) if a.ndim == 2 or d.chance(0.5) else (*a.shape[:-2], a.shape[-1], n)
    b = d.like(shape, a.dtype)
    return Node("jnp.matmul", (ref(a), ref(b)))


@kind("dot", weight=2)
def einsum(d: Draw) -> Node:
    """A contraction over some dimensions of two values."""
    a = d.floating(1)
    if a.ndim > 4:
        raise Miss
    letters = "abcd"[: a.ndim]
    summed = [c for c in letters if d.chance(0.4)]
    kept = [c for c in letters if c not in summed and d.chance(0.5)]
    sizes = dict(zip(letters, a.shape, strict=True))
    own = [("e", d.choice([2, 3, 4, 8]))] if d.chance(0.6) else []
    names = [*summed, *kept, *(n for n, _ in own)]
    if not names:
        raise Miss
    names = [names[i] for i in d.permutation(len(names))]
    sizes |= dict(own)
    b = d.like(tuple(sizes[n] for n in names), a.dtype)
    out = [c for c in letters if c not in summed] + [n for n, _ in own]
    out = [out[i] for i in d.permutation(len(out))]
    return Node("jnp.einsum", (f"{letters},{''.join(names)}->{''.join(out)}", ref(a), ref(b)))


@kind("dot", weight=0.4)
def triangle(d: Draw) -> Node:
    """A lower or upper triangle."""
    a = d.number(2)
    return Node(f"jnp.{d.choice(['tril', 'triu'])}", (ref(a), d.integer(-2, 2)))


@kind("dot", weight=0.4)
def diagonal(d: Draw) -> Node:
    """A diagonal, or the trace."""
    a = d.number(2)
    ax = d.permutation(a.ndim)[:2]
    return Node(
        f"jnp.{d.choice(['diagonal', 'trace'])}",
        (ref(a),),
        {"offset": d.integer(-1, 1), "axis1": ax[0], "axis2": ax[1]},
    )


@kind("elementwise", weight=0.3, continuous=False)
def bits(d: Draw) -> Node:
    """Operations on bits of integers."""
    a = d.value(lambda v: v.dtype in INTS)
    name = d.choice(["bitwise_and", "bitwise_xor", "bitwise_or"])
    return Node(f"jnp.{name}", (ref(a), _broadcastable(d, a)))


@kind("sort", continuous=False, weight=0.8)
def sort_with_places(d: Draw) -> Node:
    """Several operands of different dtypes, one of them the index, sorted by the first one."""
    a = d.number(1)
    axis = d.axis(a)
    count = Node("lax.broadcasted_iota", ("int32", list(a.shape), axis))
    others = [v for v in d.values if v.shape == a.shape and v is not a and v.dtype != "tuple"]
    operands = [ref(a), *([ref(d.choice(others))] if others else []), count]
    return Node("lax.sort", (operands,), {"dimension": axis, "num_keys": 1, "is_stable": True})


@kind("sort", continuous=False, weight=0.5)
def ranked(d: Draw) -> Node:
    """Medians, or indices of bins."""
    a = d.value(lambda v: v.dtype in ("float32", "int32"), 1)
    if d.chance(0.5):
        return Node("jnp.digitize", (ref(a), Node("jnp.arange", (-3, 4, d.integer(1, 3)))))
    return Node("jnp.median", (ref(a),), {"axis": d.axis(a)})
