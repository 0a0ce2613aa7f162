# SPDX-License-Identifier: Apache-2.0
"""Draws reductions and cumulative operations with all their arguments, averages, quantiles and histograms."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import Draw, Value, kind
from meshmark.hunt.elementwise import ref
from meshmark.program_data.program import Node


def _axes(d: Draw, a: Value) -> list[int]:
    """Some dimensions of a value, at least one, in order."""
    return sorted(d.random.sample(range(a.ndim), d.integer(1, a.ndim)))


def _axis(d: Draw, a: Value) -> Any:
    """An axis argument: one dimension (also counted from the end), several, or None for all."""
    if d.chance(0.2):
        return None
    axes = _axes(d, a)
    return d.choice([axes[0], axes[0] - a.ndim]) if len(axes) == 1 else axes


def _mask(d: Draw, a: Value) -> Node:
    """A condition of the shape of `a`."""
    return Node("jnp.greater", (ref(a), d.integer(-2, 2)))


@kind("reduce", weight=1, continuous=False)
def masked_reduction(d: Draw) -> Node:
    """Sums and products of the elements that `where` selects, also from an `initial` value; largest and smallest."""
    a = d.number(1, 300)
    name = d.choice(["sum", "max", "min", "amax", "amin", "nansum", "nanmax", "nanmin", "sum"])
    kwargs: dict[str, Any] = {"axis": _axis(d, a), "where": _mask(d, a)}
    if not name.endswith("sum") or d.chance(0.3):
        kwargs["initial"] = d.choice([0, 3]) if a.dtype in ("uint8", "uint32") else d.choice([0, -3, 5])
    if d.chance(0.4):
        kwargs["keepdims"] = True
    return Node(f"jnp.{name}", (ref(a),), kwargs)


@kind("reduce", weight=1)
def other_reduction(d: Draw) -> Node:
    """The range of values, both extremes at once, and reductions that ignore NaN."""
    a = d.number(1)
    name = d.choice(["ptp", "minmax", "nanmax", "nanmin", "nansum"])
    kwargs: dict[str, Any] = {"axis": _axis(d, a)}
    if d.chance(0.4):
        kwargs["keepdims"] = True
    return Node(f"jnp.{name}", (ref(a),), kwargs)


@kind("reduce", weight=1)
def reduce_of_lax(d: Draw) -> Node:
    """lax's own reductions over any dimensions."""
    a = d.number(1)
    name = d.choice(["reduce_sum", "reduce_max", "reduce_min", "reduce_sum"])
    return Node(f"lax.{name}", (ref(a), _axes(d, a)))


@kind("reduce", weight=0.3)
def reduce_prod_of_lax(d: Draw) -> Node:
    """lax.reduce_prod or jnp.nanprod along a short dimension."""
    a = d.number(1)
    axis = d.choice([k for k in range(a.ndim) if a.shape[k] <= 6])
    if d.chance(0.3):
        return Node("jnp.nanprod", (ref(a),), {"axis": axis})
    return Node("lax.reduce_prod", (ref(a), [axis]))


@kind("reduce", weight=0.7, continuous=False)
def reduce_of_bits(d: Draw) -> Node:
    """lax.reduce_and, reduce_or and reduce_xor of booleans and integers."""
    a = d.value(lambda v: v.dtype in ("bool", "int32", "uint8", "uint32"), 1)
    return Node(f"lax.reduce_{d.choice(['and', 'or', 'xor'])}", (ref(a), _axes(d, a)))


@kind("reduce", weight=0.7, continuous=False)
def indices_of_extremes(d: Draw) -> Node:
    """lax.argmax and argmin, jnp.nanargmax and nanargmin, and jnp.argmax over all dimensions."""
    a = d.number(1)
    name = d.choice(
        ["lax.argmax", "lax.argmin", "jnp.nanargmax", "jnp.nanargmin", "jnp.argmax", "jnp.argmin"]
    )
    if name.startswith("lax."):
        return Node(name, (ref(a), d.axis(a), "int32"))
    kwargs: dict[str, Any] = {"axis": d.choice([None, d.axis(a), d.axis(a)])}
    if d.chance(0.4):
        kwargs["keepdims"] = True
    return Node(name, (ref(a),), kwargs)


@kind("reduce", weight=0.4, continuous=False)
def equality(d: Draw) -> Node:
    """Whether two arrays are equal, or close."""
    a = d.number(1)
    b = d.like(a.shape, a.dtype)
    return Node(f"jnp.{d.choice(['array_equal', 'array_equiv', 'allclose'])}", (ref(a), ref(b)))


@kind("reduce", weight=0.8, continuous=False)
def counted(d: Draw) -> Node:
    """Tests of all or any elements, or their number, also masked and over several dimensions."""
    a = d.number(1)
    name = d.choice(["all", "any", "count_nonzero"])
    kwargs: dict[str, Any] = {"axis": _axis(d, a), "keepdims": d.chance(0.3)}
    if name != "count_nonzero" and d.chance(0.4):
        kwargs["where"] = _mask(d, a)
    return Node(f"jnp.{name}", (ref(a),), kwargs)


@kind("reduce", rounds=True, weight=0.8)
def spread(d: Draw) -> Node:
    """Means, variances and deviations, also without NaN, with options; means of exponentials."""
    a = d.floating(1)
    name = d.choice(["jnp.std", "jnp.nanstd", "jnp.var", "jnp.nanvar", "jnp.nanmean", "nn.logmeanexp"])
    kwargs: dict[str, Any] = {"axis": _axis(d, a)}
    if d.chance(0.4):
        kwargs["keepdims"] = True
    if name.endswith("var") and d.chance(0.4):
        kwargs["correction" if name == "jnp.var" else "ddof"] = 1
    if name.endswith("std"):
        return Node(name, (Node("jnp.add", (ref(a), Node("jnp.arange", (a.shape[-1],)))),), kwargs)
    return Node(name, (ref(a),), kwargs)


@kind("reduce", rounds=True, weight=0.5)
def weighted_mean(d: Draw) -> Node:
    """jnp.average with weights, and perhaps their sum."""
    a = d.floating(1)
    axis = d.axis(a)
    weights = Node("jnp.arange", (1, a.shape[axis] + 1))
    return Node("jnp.average", (ref(a),), {"axis": axis, "weights": weights, "returned": d.chance(0.3)})


@kind("sort", rounds=True, continuous=False, weight=0.8)
def quantiles(d: Draw) -> Node:
    """Quantiles, percentiles and medians, also without NaN, by several methods."""
    a = d.value(lambda v: v.dtype in ("float32", "int32"), 1, 200)
    name = d.choice(["quantile", "percentile", "nanquantile", "nanpercentile", "nanmedian"])
    kwargs: dict[str, Any] = {"axis": d.choice([None, d.axis(a)]), "keepdims": d.chance(0.3)}
    if name == "nanmedian":
        return Node("jnp.nanmedian", (ref(a),), kwargs)
    kwargs["method"] = d.choice(["linear", "lower", "higher", "nearest", "midpoint"])
    share = d.choice([[0.25, 0.75], [0.5], [0.0, 1.0]])
    at: Any = [100 * q for q in share] if name.endswith("percentile") else share
    points = {"call": "jnp.array", "kwargs": {"object": at, "dtype": "float32"}}
    return Node(f"jnp.{name}", (ref(a), points), kwargs)


@kind("sort", continuous=False, weight=0.8)
def histograms(d: Draw) -> Node:
    """Counts, or sums of weights, in bins of one or two dimensions."""
    a = d.value(lambda v: v.dtype in ("float32", "int32"), 1, 300)
    edges = [-4.5, -1.5, -0.5, 0.5, 2.5, 9.5][: d.integer(3, 6)]
    bins = {"call": "jnp.array", "kwargs": {"object": edges, "dtype": "float32"}}
    which = d.choice(["histogram", "histogram", "histogram_bin_edges", "histogram2d", "histogramdd"])
    if which == "histogram_bin_edges":
        return Node("jnp.histogram_bin_edges", (ref(a), 4), {"range": [-8, 8]})
    if which == "histogram2d":
        flat = Node("jnp.ravel", (ref(a),))
        other = Node("jnp.ravel", (ref(d.like(a.shape, a.dtype)),))
        return Node("jnp.histogram2d", (flat, other), {"bins": 4, "range": [[-8, 8], [-4, 12]]})
    if which == "histogramdd":
        points = Node("jnp.reshape", (ref(a), [a.size, 1]))
        return Node("item", (Node("jnp.histogramdd", (points,), {"bins": 4, "range": [[-8, 8]]}), 0))
    kwargs: dict[str, Any] = {}
    if d.chance(0.4):
        kwargs["weights"] = ref(d.like(a.shape, a.dtype))
    if d.chance(0.4):
        return Node("jnp.histogram", (ref(a), 8), kwargs | {"range": [-8, 8]})
    return Node("jnp.histogram", (ref(a), bins), kwargs)


@kind("sort", continuous=False, weight=0.5)
def counts(d: Draw) -> Node:
    """jnp.bincount with weights or a minimal length, jnp.digitize and jnp.searchsorted with their options."""
    a = d.value(lambda v: v.dtype in ("int32", "float32"), 1, 200)
    which = d.choice(["bincount", "digitize", "searchsorted"])
    if which == "bincount":
        index = Node("jnp.ravel", (Node("jnp.abs", (Node("jnp.astype", (ref(a), "int32")),)),))
        weights = Node("jnp.ravel", (ref(a),))
        return Node("jnp.bincount", (index,), {"weights": weights, "length": d.choice([4, 8])})
    edges = Node("jnp.arange", (-3, 5, 2))
    if which == "digitize":
        return Node("jnp.digitize", (ref(a), edges), {"right": d.chance(0.5)})
    kwargs = {
        "side": d.choice(["left", "right"]),
        "method": d.choice(["scan", "scan_unrolled", "sort", "compare_all"]),
    }
    return Node("jnp.searchsorted", (edges, ref(a)), kwargs)


@kind("cumulative", weight=1)
def cumulative_of_jnp(d: Draw) -> Node:
    """jnp's cumulative sums, along a dimension or over all elements, with or without a start."""
    a = d.number(1, 400)
    name = d.choice(["cumsum", "nancumsum", "cumulative_sum"])
    if name == "cumulative_sum":
        kwargs: dict[str, Any] = {"axis": d.axis(a), "include_initial": d.chance(0.5)}
    else:
        kwargs = {"axis": d.choice([None, d.axis(a), d.axis(a)])}
    return Node(f"jnp.{name}", (ref(a),), kwargs)


@kind("cumulative", weight=0.4, continuous=False)
def cumulative_products(d: Draw) -> Node:
    """jnp's cumulative products of signs, which stay exact."""
    a = d.number(1, 400)
    name = d.choice(["cumprod", "nancumprod", "cumulative_prod"])
    return Node(f"jnp.{name}", (Node("jnp.sign", (ref(a),)),), {"axis": d.axis(a)})


@kind("edge", weight=0.5)
def areas(d: Draw) -> Node:
    """Integrals by trapezoids, which are halves of integers, and differences over all elements."""
    a = d.value(lambda v: v.dtype == "float32", 1, 400)
    if d.chance(0.5):
        return Node("jnp.trapezoid", (ref(a),), {"axis": d.axis(a, 2), "dx": d.choice([1.0, 2.0])})
    return Node("jnp.ediff1d", (ref(a),), {"to_begin": 3} if d.chance(0.5) else {})


@kind("edge", rounds=True, weight=0.4, continuous=False)
def interpolated(d: Draw) -> Node:
    """Values between the points of a table, or angles without jumps."""
    a = d.value(lambda v: v.dtype == "float32", 1, 200)
    if d.chance(0.3):
        return Node("jnp.unwrap", (ref(a),), {"axis": d.axis(a)})
    table = d.value(lambda v: v.dtype == "float32" and v.ndim == 1 and v.size > 1)
    points = Node("jnp.arange", (table.shape[0],), {"dtype": "float32"})
    kwargs: dict[str, Any] = {}
    if d.chance(0.4):
        kwargs = {"left": -5.0, "right": 7.0}
    elif d.chance(0.3):
        kwargs = {"period": float(table.shape[0])}
    return Node("jnp.interp", (ref(a), points, ref(table)), kwargs)


@kind("reduce", rounds=True, weight=0.4)
def covariance(d: Draw) -> Node:
    """The covariances of the rows or columns of a matrix."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim == 2 and min(v.shape) > 1 and max(v.shape) <= 24)
    kwargs: dict[str, Any] = {"rowvar": d.chance(0.5)}
    if d.chance(0.3):
        kwargs["bias"] = True
    if d.chance(0.3):
        number = a.shape[1 if kwargs["rowvar"] else 0]
        kwargs["fweights"] = Node("jnp.arange", (1, number + 1))
    return Node("jnp.cov", (ref(a),), kwargs)


@kind("reduce", rounds=True, weight=0.2)
def correlation(d: Draw) -> Node:
    """The correlations of the rows of a matrix whose rows are not constant."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim == 2 and v.shape[1] >= 3 and max(v.shape) <= 24)
    slope = Node("jnp.multiply", (Node("jnp.arange", (a.shape[1],)), 100.0))
    return Node("jnp.corrcoef", (Node("jnp.add", (ref(a), slope)),))


@kind("reduce", rounds=True, weight=0.6)
def norms(d: Draw) -> Node:
    """Norms of vectors and matrices that are not zero."""
    a = d.value(lambda v: v.dtype == "float32", 1)
    moved = Node("jnp.add", (Node("jnp.sin", (ref(a),)), 1.5))
    kwargs: dict[str, Any] = {"keepdims": True} if d.chance(0.3) else {}
    order = d.choice([None, 1, 3, {"float": "inf"}])
    if a.ndim >= 2 and d.chance(0.4):
        kwargs |= {} if order in (None, 3) else {"ord": order}
        return Node("jnp.linalg.matrix_norm", (moved,), kwargs)
    kwargs |= {"axis": d.axis(a)} | ({} if order is None else {"ord": order})
    return Node(d.choice(["jnp.linalg.vector_norm", "jnp.linalg.norm"]), (moved,), kwargs)


@kind("reduce", weight=0.4)
def applied(d: Draw) -> Node:
    """A reduction or a sort that is applied along one dimension or over several ones."""
    a = d.number(1, 300)
    if d.chance(0.5):
        name = d.choice(["jnp.sum", "jnp.max", "jnp.flip"])
        return Node("jnp.apply_along_axis", ({"name": name}, d.axis(a), ref(a)))
    return Node("jnp.apply_over_axes", ({"name": d.choice(["jnp.sum", "jnp.min"])}, ref(a), _axes(d, a)))
