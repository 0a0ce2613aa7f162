# SPDX-License-Identifier: Apache-2.0
"""Draws the other functions that join, split, move and reshape arrays, and those that make arrays."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import MOST, Draw, Miss, Value, kind
from meshmark.hunt.elementwise import ref
from meshmark.program_data.program import Node


def _companion(d: Draw, a: Value, axis: int) -> Any:
    """A value that can be joined to `a` along a dimension."""
    fit = [
        v
        for v in d.values
        if v.dtype == a.dtype
        and v.ndim == a.ndim
        and all(n == m or k == axis for k, (n, m) in enumerate(zip(v.shape, a.shape, strict=True)))
    ]
    if d.fresh and d.chance(0.4):
        return ref(d.like(tuple(d.integer(1, 3) if k == axis else n for k, n in enumerate(a.shape)), a.dtype))
    return ref(d.choice(fit))


@kind("edge", weight=1)
def joined_by_name(d: Draw) -> Node:
    """Two or three values joined by one of the other functions that do so."""
    a = d.value(ndim=1, size=MOST // 3)
    name = d.choice(
        ["append", "concat", "hstack", "vstack", "dstack", "column_stack", "lax.concatenate", "lax.stack"]
    )
    if name == "append":
        axis = d.axis(a)
        return Node("jnp.append", (ref(a), _companion(d, a, axis)), {"axis": axis})
    if name in ("concat", "lax.concatenate"):
        axis = d.axis(a)
        parts = [ref(a), *(_companion(d, a, axis) for _ in range(d.integer(1, 2)))]
        if name == "concat":
            return Node("jnp.concat", (parts,), {"axis": axis})
        return Node(name, (parts, axis))
    same = [ref(a), *(ref(d.like(a.shape, a.dtype)) for _ in range(d.integer(1, 2)))]
    if name == "lax.stack":
        return Node(name, (same, d.integer(0, a.ndim)))
    return Node(f"jnp.{name}", (same,))


@kind("edge", weight=1)
def split_by_name(d: Draw) -> Node:
    """A value split into equal or unequal parts, or into the slices along a dimension."""
    a = d.value(ndim=1)
    name = d.choice(["array_split", "split", "unstack", "lax.unstack", "hsplit", "vsplit", "dsplit"])
    if name == "array_split":
        axis = d.axis(a, 2)
        cut: Any = d.integer(2, min(3, a.shape[axis]))
        return Node("jnp.array_split", (ref(a), cut), {"axis": axis})
    if name == "split":
        axis = d.axis(a, 2)
        n = a.shape[axis]
        cut = [d.integer(1, n - 1)] if d.chance(0.5) else d.choice([k for k in (2, 3, 4) if n % k == 0])
        return Node("jnp.split", (ref(a), cut), {"axis": axis})
    if name in ("unstack", "lax.unstack"):
        axis = d.choice([k for k in range(a.ndim) if a.shape[k] <= 8])
        return Node(name if "." in name else "jnp.unstack", (ref(a),), {"axis": axis})
    axis = {"vsplit": 0, "hsplit": min(1, a.ndim - 1), "dsplit": 2}[name]
    if a.ndim < {"vsplit": 2, "hsplit": 1, "dsplit": 3}[name]:
        raise Miss
    return Node(f"jnp.{name}", (ref(a), d.choice([k for k in (2, 3, 4) if a.shape[axis] % k == 0])))


@kind("shape", weight=1)
def moved_by_name(d: Draw) -> Node:
    """Dimensions moved or added by one of the other functions that do so."""
    a = d.value(ndim=1)
    at, to = d.integer(0, a.ndim - 1), d.integer(0, a.ndim)
    order = d.permutation(a.ndim)
    made: dict[str, tuple[Any, ...]] = {
        "jnp.rollaxis": (ref(a), at, to),
        "jnp.permute_dims": (ref(a), order),
        "jnp.matrix_transpose": (ref(a),),
        "jnp.linalg.matrix_transpose": (ref(a),),
        "lax.transpose": (ref(a), order),
        "lax.expand_dims": (ref(a), [to]),
        "jnp.atleast_1d": (ref(a),),
        "jnp.atleast_2d": (ref(a),),
        "jnp.atleast_3d": (ref(a),),
        "lax.broadcast": (ref(a), [d.choice([2, 3])]),
        "lax.broadcast_to_rank": (ref(a), min(a.ndim + 1, 4)),
        "lax.tile": (ref(a), [d.choice([1, 2]) for _ in a.shape]),
        "lax.reshape": (ref(a), [a.size], order),
        "jnp.asarray": (ref(a),),
        "jnp.resize": (ref(a), [d.choice([2, 3, 4]), d.choice([2, 5, 8])]),
    }
    name = d.choice(list(made))
    return Node(name, made[name])


@kind("shape", weight=0.4)
def squeezed(d: Draw) -> Node:
    """lax.squeeze of dimensions of one element, or a dimension added and moved to the end."""
    a = d.value(ndim=1)
    ones = [k for k, n in enumerate(a.shape) if n == 1]
    if ones:
        return Node("lax.squeeze", (ref(a), ones))
    return Node("lax.squeeze", (Node("lax.expand_dims", (ref(a), [0])), [0]))


@kind("edge", weight=0.8)
def flipped_by_name(d: Draw) -> Node:
    """jnp.flip of one, several or all dimensions, fliplr and flipud."""
    a = d.value(ndim=2)
    name = d.choice(["flip", "flip", "fliplr", "flipud"])
    if name != "flip":
        return Node(f"jnp.{name}", (ref(a),))
    axes = d.choice([None, d.axis(a), sorted(d.permutation(a.ndim)[:2])])
    return Node("jnp.flip", (ref(a),), {"axis": axes})


@kind("edge", weight=0.8)
def shifted_spectrum(d: Draw) -> Node:
    """The halves of dimensions swapped, as for a spectrum."""
    a = d.value(ndim=1)
    axes = d.choice([None, d.axis(a)])
    return Node(f"jnp.fft.{d.choice(['fftshift', 'ifftshift'])}", (ref(a),), {"axes": axes})


@kind("shape", weight=0.5)
def broadcast_together(d: Draw) -> Node:
    """Two values broadcast to each other, grids of vectors, or a value in the shape of another one."""
    a = d.number(1, 60)
    b = d.value(lambda v: v.is_number, 1, 60)
    which = d.choice(["jnp.broadcast_arrays", "jnp.meshgrid", "jnp.ix_", "lax.broadcast_like"])
    if which == "jnp.broadcast_arrays":
        return Node(which, (Node("jnp.expand_dims", (ref(a), a.ndim)), Node("jnp.ravel", (ref(b),))))
    if which == "lax.broadcast_like":
        return Node(which, (Node("lax.slice_in_dim", (ref(a), 0, 1), {"axis": 0}), ref(a)))
    if a.ndim != 1 or b.ndim != 1:
        raise Miss
    if which == "jnp.ix_":
        return Node(which, (Node("jnp.astype", (ref(a), "int32")), Node("jnp.arange", (3,))))
    return Node(which, (ref(a), ref(b)), {"indexing": d.choice(["xy", "ij"]), "sparse": d.chance(0.2)})


@kind("edge", weight=0.5)
def matrices_of_vectors(d: Draw) -> Node:
    """A diagonal matrix of a value, or powers of small numbers as columns."""
    a = d.value(lambda v: v.dtype in ("float32", "int32"), 1, 24)
    if d.chance(0.5):
        return Node("jnp.diagflat", (ref(a), d.integer(-1, 1)))
    small = Node("jnp.clip", (Node("jnp.ravel", (ref(a),)), -3, 3))
    return Node("jnp.vander", (small, d.integer(2, 4)), {"increasing": d.chance(0.5)})


@kind("elementwise", weight=0.6)
def beside_made(d: Draw) -> Node:
    """A value combined with an array that a function makes of constants."""
    a = d.value(lambda v: v.dtype in ("float32", "int32"), 1)
    n = a.shape[-1]
    made = d.choice(
        [
            Node("jnp.zeros", ([n],)),
            Node("jnp.ones", ([n],), {"dtype": "int32"}),
            Node("jnp.full", ([n], 3)),
            Node("jnp.full_like", (ref(a), 2)),
            Node("jnp.zeros_like", (ref(a),)),
            Node("jnp.ones_like", (ref(a),)),
            Node("jnp.linspace", (0, n - 1, n)),
            Node("lax.iota", ("int32", n)),
            Node("lax.full", ([n], 2.0)),
            Node("lax.full_like", (ref(a), 2)),
            Node("getitem", (Node("jnp.indices", ([2, n],)), [1, 0])),
        ]
    )
    name = d.choice(["add", "multiply", "subtract", "maximum"])
    return Node(f"jnp.{name}", (ref(a), made))


@kind("dot", weight=0.5)
def beside_matrix(d: Draw) -> Node:
    """The last dimension combined with an identity, a triangle or grid of indices."""
    a = d.value(lambda v: v.dtype in ("float32", "int32"), 1, 200)
    n = a.shape[-1]
    if n > 24:
        raise Miss
    made = d.choice(
        [
            Node("jnp.identity", (n,)),
            Node("jnp.eye", (n, n, d.integer(-1, 1))),
            Node("jnp.tri", (n, n, d.integer(-1, 1))),
        ]
    )
    return Node("jnp.multiply", (Node("jnp.expand_dims", (ref(a), a.ndim)), made))


@kind("window", rounds=True, weight=0.3)
def tapered(d: Draw) -> Node:
    """A value times a window of signal processing, or spaced by logarithms."""
    a = d.value(lambda v: v.dtype == "float32", 1)
    n = a.shape[-1]
    made = d.choice(
        [
            *(Node(f"jnp.{name}", (n,)) for name in ("bartlett", "blackman", "hamming", "hanning")),
            Node("jnp.kaiser", (n, 2.0)),
            *(Node(f"jnp.fft.{name}", (n,)) for name in ("fftfreq", "rfftfreq")),
            Node("jnp.geomspace", (1.0, 8.0, n)),
            Node("jnp.logspace", (0.0, 1.0, n)),
        ]
    )
    return Node("jnp.multiply", (ref(a), made))


@kind("index", weight=0.5, continuous=False)
def triangle_indices(d: Draw) -> Node:
    """The elements of the triangle or diagonal of a matrix, by indices."""
    a = d.value(lambda v: v.ndim == 2 and v.dtype != "tuple" and 2 <= min(v.shape) <= 12)
    which = d.choice(
        [
            *("tril_indices", "triu_indices", "diag_indices"),
            *("tril_indices_from", "triu_indices_from", "diag_indices_from"),
        ]
    )
    n = min(a.shape)
    if which == "diag_indices_from":
        places = Node("jnp.diag_indices_from", (Node("lax.slice", (ref(a), [0, 0], [n, n])),))
    elif which.endswith("from"):
        places = Node(f"jnp.{which}", (ref(a), d.integer(-1, 0)))
    elif which == "diag_indices":
        places = Node("jnp.diag_indices", (n,))
    else:
        places = Node(f"jnp.{which}", (n, d.integer(-1, 0)))
    return Node("getitem", (ref(a), [Node("item", (places, 0)), Node("item", (places, 1))]))
