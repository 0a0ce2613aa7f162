# SPDX-License-Identifier: Apache-2.0
"""Draws the other products of arrays, polynomials, factorizations with unique results, and Fourier transforms."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import Draw, Miss, Value, kind
from meshmark.hunt.elementwise import ref
from meshmark.hunt.layers import dominant_matrices
from meshmark.program_data.program import Node


def _vector(d: Draw, a: Value) -> Any:
    """A vector as long as the last dimension of `a`."""
    return ref(d.like((a.shape[-1],), a.dtype))


@kind("dot", weight=1)
def products_by_name(d: Draw) -> Node:
    """Products of vectors and matrices by one of the other functions that do so."""
    a = d.floating(1)
    which = d.choice(
        [
            *("jnp.dot", "jnp.inner", "jnp.vdot", "jnp.vecdot", "jnp.matvec", "jnp.vecmat", "lax.dot"),
            *("lax.batch_matmul", "jnp.linalg.matmul", "jnp.linalg.vecdot", "jnp.linalg.multi_dot"),
            *("jnp.linalg.tensordot", "jnp.linalg.outer"),
        ]
    )
    n = d.choice([1, 2, 4, 8])
    if which in ("jnp.vdot",):
        return Node(which, (ref(a), ref(d.like(a.shape, a.dtype))))
    if which in ("jnp.vecdot", "jnp.linalg.vecdot"):
        axis = d.axis(a) if which == "jnp.vecdot" else -1
        return Node(which, (ref(a), ref(d.like(a.shape, a.dtype))), {"axis": axis})
    if which == "jnp.inner":
        return Node(which, (ref(a), ref(d.like((n, a.shape[-1]), a.dtype))))
    if which == "jnp.linalg.outer":
        if a.ndim != 1:
            raise Miss
        return Node(which, (ref(a), ref(d.like((n,), a.dtype))))
    if which == "jnp.vecmat":
        return Node(which, (ref(a), ref(d.like((a.shape[-1], n), a.dtype))))
    if a.ndim < 2:
        return Node("jnp.dot", (ref(a), ref(d.like((a.shape[-1], n), a.dtype))))
    if which == "jnp.matvec":
        return Node(which, (ref(a), _vector(d, a)))
    if which == "jnp.linalg.multi_dot":
        if a.ndim != 2:
            raise Miss
        b = d.like((a.shape[1], n), a.dtype)
        return Node(which, ([ref(a), ref(b), ref(d.like((n, 2), a.dtype))],))
    if which == "lax.batch_matmul":
        return Node(which, (ref(a), ref(d.like((*a.shape[:-2], a.shape[-1], n), a.dtype))))
    if which == "jnp.linalg.tensordot":
        axis = d.axis(a)
        b = d.like((n, a.shape[axis]), a.dtype)
        return Node(which, (ref(a), ref(b)), {"axes": [[axis], [1]]})
    if which == "lax.dot" and a.ndim != 2:
        raise Miss
    return Node(which, (ref(a), ref(d.like((a.shape[-1], n), a.dtype))))


@kind("dot", weight=0.5)
def symmetric_product(d: Draw) -> Node:
    """lax.linalg.symmetric_product: a matrix times its transpose, plus another one."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim >= 2 and v.shape[-2] <= 16)
    n = a.shape[-2]
    c = d.like((*a.shape[:-2], n, n), "float32")
    sides = Node("jnp.add", (ref(c), Node("jnp.matrix_transpose", (ref(c),))))
    kwargs = {"alpha": d.choice([1.0, 2.0]), "beta": d.choice([0.0, 1.0]), "symmetrize_output": True}
    return Node("lax.linalg.symmetric_product", (ref(a), sides), kwargs)


@kind("dot", weight=0.3)
def ragged_products(d: Draw) -> Node:
    """A diagonal, trace or cross product by the functions of jnp.linalg."""
    a = d.number(2)
    which = d.choice(["diagonal", "trace", "cross"])
    if which == "cross":
        axis = d.choice([k for k, n in enumerate(a.shape) if n == 3])
        return Node("jnp.linalg.cross", (ref(a), ref(d.like(a.shape, a.dtype))), {"axis": axis})
    return Node(f"jnp.linalg.{which}", (ref(a),), {"offset": d.integer(-1, 1)})


@kind("algebra", weight=0.6)
def polynomials(d: Draw) -> Node:
    """Sums, products, derivatives and values of polynomials, whose coefficients are along one dimension."""
    a = d.value(lambda v: v.dtype in ("float32", "int32") and v.ndim == 1 and v.size <= 24)
    b = d.value(lambda v: v.dtype == a.dtype and v.ndim == 1 and v.size <= 24)
    which = d.choice(["polyadd", "polysub", "polymul", "polyder", "polyval"])
    if which == "polyder":
        return Node("jnp.polyder", (ref(a), 1))
    if which == "polyval":
        few = Node("lax.slice_in_dim", (ref(a), 0, min(3, a.size)), {"axis": 0})
        return Node("jnp.polyval", (few, Node("jnp.clip", (ref(b), -3, 3))))
    return Node(f"jnp.{which}", (ref(a), ref(b)))


@kind("algebra", rounds=True, weight=0.3)
def rounded_polynomials(d: Draw) -> Node:
    """The integral of a polynomial, or the polynomial with these zeros."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim == 1 and v.size <= 8)
    if d.chance(0.5):
        return Node("jnp.polyint", (ref(a),))
    return Node("jnp.poly", (Node("jnp.clip", (ref(a), -2, 2)),))


@kind("algebra", rounds=True, weight=0.8)
def factors(d: Draw) -> Node:
    """Factorizations of diagonally dominant matrices whose results are unique, and functions that use them."""
    a, n = dominant_matrices(d)
    which = d.choice(
        [
            *("lax.linalg.lu", "lax.linalg.cholesky", "lax.linalg.svd", "lax.linalg.eigh", "jnp.linalg.cond"),
            *("jnp.linalg.pinv", "jnp.linalg.tensorinv", "jnp.linalg.matrix_rank", "lax.linalg.qr"),
            *("jnp.linalg.tensorsolve", "jnp.linalg.lstsq", "lax.linalg.tridiagonal_solve", "jnp.linalg.qr"),
            *("jnp.linalg.svd", "jnp.linalg.eigh", "lax.linalg.qdwh", "lax.linalg.cholesky_update"),
        ]
    )
    b = ref(d.like((n,), "float32"))
    symmetric = Node("jnp.add", (a, Node("jnp.matrix_transpose", (a,))))
    if which in ("lax.linalg.cholesky", "lax.linalg.eigh", "jnp.linalg.eigh"):
        made = Node(which, (symmetric,))
        if which == "lax.linalg.eigh":
            return Node("jnp.abs", (Node("item", (Node(which, (symmetric,)), 1)),))
        return made if which.endswith("cholesky") else Node("item", (made, 0))
    if which == "lax.linalg.svd":
        return Node(which, (a,), {"compute_uv": False})
    if which == "jnp.linalg.svd":
        return Node("item", (Node(which, (a,), {"full_matrices": d.chance(0.5)}), 1))
    if which in ("lax.linalg.qr", "jnp.linalg.qr"):
        return Node("jnp.abs", (Node("item", (Node(which, (a,)), 1)),))
    if which == "lax.linalg.qdwh":
        return Node("item", (Node(which, (a,)), 0))
    if which == "jnp.linalg.tensorinv":
        return Node(which, (Node("jnp.reshape", (a, [n, n])),), {"ind": 1})
    if which in ("jnp.linalg.tensorsolve",):
        return Node(which, (a, b))
    if which == "jnp.linalg.lstsq":
        return Node("item", (Node(which, (a, b)), 0))
    if which == "lax.linalg.cholesky_update":
        upper = Node("jnp.matrix_transpose", (Node("lax.linalg.cholesky", (symmetric,)),))
        return Node(which, (upper, b))
    if which == "lax.linalg.tridiagonal_solve":
        ones = [Node("jnp.clip", (ref(d.like((n,), "float32")), -1, 1)) for _ in range(2)]
        middle = Node("jnp.full", ([n], 4.0))
        return Node(which, (ones[0], middle, ones[1], Node("jnp.expand_dims", (b, 1))))
    return Node(which, (a,))


@kind("window", rounds=True, weight=0.8)
def other_transforms(d: Draw) -> Node:
    """Fourier transforms with a length and a norm, of real and complex values, along one or two dimensions."""
    a = d.value(lambda v: v.dtype == "float32", 1, 400)
    axis = d.axis(a, 2)
    one = d.choice(["fft", "ifft", "rfft", "ihfft", "hfft", "irfft"])
    kwargs: dict[str, Any] = {"norm": d.choice([None, "ortho", "forward"])}
    if a.ndim >= 2 and d.chance(0.4):
        two = d.choice(["fft2", "ifft2", "rfft2", "irfft2", "irfftn"])
        return Node(f"jnp.fft.{two}", (ref(a),), kwargs | {"axes": d.permutation(a.ndim)[:2]})
    if d.chance(0.3):
        kind_of = d.choice(["fft", "ifft"])
        value = Node("lax.complex", (ref(a), ref(a)))
        return Node("lax.fft", (value, kind_of, [a.shape[-1]]))
    if d.chance(0.4):
        kwargs["n"] = d.choice([a.shape[axis], a.shape[axis] + 1, max(2, a.shape[axis] - 1), 4])
    return Node(f"jnp.fft.{one}", (ref(a),), kwargs | {"axis": axis})


@kind("window", weight=0.8)
def convolutions_by_name(d: Draw) -> Node:
    """The other convolutions of lax: with few options, and with a kernel of its own for each position."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim in (3, 4))
    spatial = a.ndim - 2
    window = [d.integer(1, min(3, n)) for n in a.shape[2:]]
    strides = [d.choice([1, 2]) for _ in window]
    which = d.choice(["lax.conv", "lax.conv_with_general_padding", "lax.conv_general_dilated_local"])
    out = d.choice([1, 2, 4])
    if which == "lax.conv_general_dilated_local":
        if a.size > 300:
            raise Miss
        sizes = [(n - w) // s + 1 for n, w, s in zip(a.shape[2:], window, strides, strict=True)]
        inner = a.shape[1]
        for w in window:
            inner *= w
        kernel = ref(d.like((out, inner, *sizes), "float32"))
        return Node(which, (ref(a), kernel, strides, "VALID", window))
    kernel = ref(d.like((out, a.shape[1], *window), "float32"))
    if which == "lax.conv":
        return Node(which, (ref(a), kernel, strides, d.choice(["SAME", "VALID"])))
    padding = [[d.integer(0, 2), d.integer(0, 2)] for _ in range(spatial)]
    dilations = [[d.choice([1, 2]) for _ in range(spatial)] for _ in range(2)]
    return Node(which, (ref(a), kernel, strides, padding, *dilations))


@kind("window", weight=0.6)
def smallest_in_windows(d: Draw) -> Node:
    """lax.reduce_window with a minimum, or with a product of signs."""
    a = d.value(lambda v: v.dtype == "float32", 1)
    dims = [d.integer(1, min(n, 3)) if d.chance(0.6) else 1 for n in a.shape]
    kwargs = {
        "window_dimensions": dims,
        "window_strides": [d.choice([1, 1, 2]) for _ in dims],
        "padding": d.choice(["SAME", "VALID"]),
    }
    if d.chance(0.5):
        return Node("lax.reduce_window", (ref(a), {"float": "inf"}, {"name": "lax.min"}), kwargs)
    return Node("lax.reduce_window", (Node("jnp.clip", (ref(a), -1, 1)), 1.0, {"name": "lax.mul"}), kwargs)


@kind("layer", rounds=True, weight=0.5)
def gates(d: Draw) -> Node:
    """jax.nn.glu, or a softmax or standardization of the elements that `where` selects."""
    a = d.value(lambda v: v.dtype == "float32", 1)
    axis = d.axis(a)
    which = d.choice(["nn.glu", "nn.softmax", "nn.logsumexp", "nn.standardize"])
    if which == "nn.glu":
        return Node(which, (ref(a),), {"axis": d.choice([k for k in range(a.ndim) if a.shape[k] % 2 == 0])})
    first = Node("jnp.less", (Node("lax.broadcasted_iota", ("int32", list(a.shape), axis)), 2))
    kwargs: dict[str, Any] = {"axis": axis, "where": first}
    return Node(which, (ref(a),), kwargs)
