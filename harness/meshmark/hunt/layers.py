# SPDX-License-Identifier: Apache-2.0
"""Draws linear algebra, random numbers, and parts of layers that are close to real code."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import Draw, kind
from meshmark.hunt.elementwise import ref
from meshmark.program_data.program import Node

SIDE = 12
"""The largest side of a matrix that is solved or decomposed."""


def _square(d: Draw) -> tuple[Any, int]:
    """(square matrices with elements from -1 to 1, sliced from the last two dimensions of a value; their side)."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim >= 2 and 2 <= min(v.shape[-2:]) <= SIDE)
    n = min(a.shape[-2:])
    small = Node("jnp.clip", (ref(a), -1, 1))
    if a.shape[-2] == a.shape[-1]:
        return small, n
    limits = [*a.shape[:-2], n, n]
    return Node("lax.slice", (small, [0] * a.ndim, limits)), n


def dominant_matrices(d: Draw) -> tuple[Any, int]:
    """(diagonally dominant matrices, which are well conditioned; their side)."""
    small, n = _square(d)
    eye = Node("jnp.eye", (n,))
    return Node("jnp.add", (small, Node("jnp.multiply", (eye, 2 * n)))), n


@kind("algebra", rounds=True, weight=0.8)
def decomposition(d: Draw) -> Node:
    """Inverses, determinants, solutions and singular values, which have no free signs."""
    a, n = dominant_matrices(d)
    which = d.choice(["inv", "det", "slogdet", "solve", "svdvals"])
    if which == "solve":
        b = d.like((n, d.choice([1, 2, 4, 8])), "float32")
        return Node("jnp.linalg.solve", (a, ref(b)))
    return Node(f"jnp.linalg.{which}", (a,))


@kind("algebra", rounds=True, weight=0.6)
def symmetric(d: Draw) -> Node:
    """The Cholesky factor or the eigenvalues of symmetrized matrices."""
    a, _ = dominant_matrices(d)
    if d.chance(0.5):
        return Node("jnp.linalg.cholesky", (a,), {"symmetrize_input": True})
    return Node("jnp.linalg.eigvalsh", (a,), {"symmetrize_input": True})


@kind("algebra", weight=0.8)
def triangular_solve(d: Draw) -> Node:
    """The solution of a triangular system with a unit diagonal, which is exact for integers."""
    a, n = _square(d)
    left = d.chance(0.5)
    k = d.choice([1, 2, 4, 8])
    b = d.like((n, k) if left else (k, n), "float32")
    kwargs = {
        "left_side": left,
        "lower": d.chance(0.5),
        "transpose_a": d.chance(0.5),
        "unit_diagonal": True,
    }
    return Node("lax.linalg.triangular_solve", (a, ref(b)), kwargs)


@kind("algebra", weight=0.8)
def products(d: Draw) -> Node:
    """Powers of a matrix; outer, Kronecker and cross products; products over two dimensions."""
    which = d.choice(["power", "kron", "outer", "tensordot", "cross"])
    if which == "power":
        a, _ = _square(d)
        return Node("jnp.linalg.matrix_power", (a, d.integer(2, 3)))
    v = d.number(1, 60)
    if which in ("kron", "outer"):
        w = d.value(lambda w: w.dtype == v.dtype and w.ndim == v.ndim, 1, 40)
        return Node(f"jnp.{which}", (ref(v), ref(w)))
    if which == "cross":
        u = d.number(1)
        axis = d.choice([k for k, n in enumerate(u.shape) if n == 3])
        return Node("jnp.cross", (ref(u), ref(d.like(u.shape, u.dtype))), {"axis": axis})
    u = d.floating(2)
    w = d.like((*u.shape[-2:], d.choice([1, 2, 4, 8])), u.dtype)
    return Node("jnp.tensordot", (ref(u), ref(w), 2))


@kind("algebra", weight=1)
def dot_general(d: Draw) -> Node:
    """lax.dot_general with any batch and contracting dimensions, of floats or integers."""
    a = d.number(1)
    dims = d.permutation(a.ndim)
    batch = dims[: d.integer(0, min(2, a.ndim - 1))]
    left = dims[len(batch) :]
    summed = left[: d.integer(0, len(left))]
    shape = [a.shape[k] for k in (*batch, *summed)] + [d.choice([2, 3, 4, 8])]
    order = d.permutation(len(shape))
    b = d.like(tuple(shape[k] for k in order), a.dtype)
    at = {k: order.index(k) for k in order}
    numbers = [
        [summed, [at[len(batch) + k] for k in range(len(summed))]],
        [batch, [at[k] for k in range(len(batch))]],
    ]
    kwargs = {} if a.is_float else {"preferred_element_type": "int32"}
    return Node("lax.dot_general", (ref(a), ref(b), numbers), kwargs)


@kind("dot", continuous=False, weight=0.8)
def narrow_product(d: Draw) -> Node:
    """A product of two matrices of 8-bit integers into int32, or of one that is cast to the float of the other factor,
    as quantized layers have them. The contracted dimension is often short: compilers tile it unlike a long one."""
    form = d.choice(["integers", "integers", "cast to integers", "cast to floats"])
    dtype = d.choice(["int8", "int8", "uint8"]) if form == "integers" else "int8"
    low, high = (0, 200) if dtype == "uint8" else d.choice([(-6, 6), (-100, 100)])
    fill = {"kind": "ints", "low": low, "high": high}
    if form == "integers":
        size, side = d.choice([1, 3, 8, 11, 12, 16, 20, 32, 48]), d.choice([4, 6, 16, 32])
        shape = (size, side) if d.chance(0.5) else (side, size)
        a = d.like(shape, dtype, fill | {"seed": d.integer(0, 999)})
        left: Any = ref(a)
    else:
        a = d.value(lambda v: v.dtype in ("float32", "bfloat16") and v.ndim == 2)
        left = Node("jnp.clip", (ref(a), low, high))
    summed, over, n = d.integer(0, 1), d.integer(0, 1), d.choice([2, 6, 16, 32])
    size = a.shape[summed]
    right: Any = ref(d.like((n, size) if over else (size, n), dtype, fill | {"seed": d.integer(0, 999)}))
    kwargs = {"preferred_element_type": "int32"}
    if form == "cast to integers":
        left = Node("jnp.astype", (left, "int8"))
    elif form == "cast to floats":
        right, kwargs = Node("jnp.astype", (right, a.dtype)), {"preferred_element_type": "float32"}
    return Node("lax.dot_general", (left, right, [[[summed], [over]], [[], []]]), kwargs)


@kind("algebra", weight=0.7)
def ragged_dot(d: Draw) -> Node:
    """Rows of a matrix times the matrix of their group, as in a mixture-of-experts layer."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim == 2)
    m, k = a.shape
    groups = d.choice([g for g in (1, 2, 3, 4, 8) if g <= m])
    cuts = sorted(d.integer(0, m) for _ in range(groups - 1))
    sizes = [high - low for low, high in zip([0, *cuts], [*cuts, m], strict=True)]
    b = d.like((groups, k, d.choice([1, 2, 4, 8])), "float32")
    counts = d.like((groups,), "int32", {"kind": "data", "data": sizes})
    return Node("lax.ragged_dot", (ref(a), ref(b), ref(counts)))


@kind("random", weight=1, continuous=False)
def random_integers(d: Draw) -> Node:
    """Random integers, or a random permutation of a value. Sharding never changes random bits."""
    key = d.like((2,), "uint32", {"kind": "data", "data": [d.integer(0, 9), d.integer(0, 9)]})
    if d.chance(0.5):
        a = d.value(ndim=1)
        kwargs = {"axis": d.axis(a), "independent": d.chance(0.3)}
        return Node("jax.random.permutation", (ref(key), ref(a)), kwargs)
    shape = [d.choice([1, 2, 3, 4, 8]) for _ in range(d.integer(1, 3))]
    return Node("jax.random.randint", (ref(key), shape, 0, d.choice([3, 8, 100])))


@kind("layer", rounds=True, weight=1.2)
def attention(d: Draw) -> Node:
    """jax.nn.dot_product_attention, causal or not, with at most as many key heads as query heads."""
    q = d.value(lambda v: v.dtype == "float32" and v.ndim == 4)
    batch, _, heads, size = q.shape
    length = d.choice([1, 2, 4, 8, q.shape[1]])
    shape = (batch, length, d.choice([h for h in (1, 2, 4, heads) if heads % h == 0]), size)
    k, v = d.like(shape, "float32"), d.like(shape, "float32")
    small = Node("jnp.multiply", (ref(q), 0.0625))
    kwargs = {"is_causal": True} if d.chance(0.5) else {}
    return Node("nn.dot_product_attention", (small, ref(k), ref(v)), kwargs)


@kind("layer", weight=0.8)
def gated(d: Draw) -> Node:
    """One half of the last dimension times the relu of the other: jax.nn.glu with relu instead of sigmoid."""
    a = d.value(lambda v: v.is_float and v.ndim >= 1 and v.shape[-1] % 2 == 0)
    half = a.shape[-1] // 2
    starts, limits = [0] * a.ndim, list(a.shape)
    low = Node("lax.slice", (ref(a), starts, [*limits[:-1], half]))
    high = Node("lax.slice", (ref(a), [*starts[:-1], half], limits))
    return Node("jnp.multiply", (low, Node("nn.relu", (high,))))


@kind("layer", weight=0.8)
def rotated_halves(d: Draw) -> Node:
    """The halves of the last dimension swapped, one of them negated: a part of a rotary embedding."""
    a = d.value(lambda v: v.is_float and v.ndim >= 1 and v.shape[-1] % 2 == 0)
    half = a.shape[-1] // 2
    starts, limits = [0] * a.ndim, list(a.shape)
    low = Node("lax.slice", (ref(a), starts, [*limits[:-1], half]))
    high = Node("jnp.negative", (Node("lax.slice", (ref(a), [*starts[:-1], half], limits)),))
    return Node("jnp.concatenate", ([high, low],), {"axis": a.ndim - 1})
