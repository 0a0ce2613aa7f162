# SPDX-License-Identifier: Apache-2.0
"""The functions of jax.numpy, jax.lax and jax.nn in NumPy and SciPy, by name.

They take the arguments that the generator draws, and no others. `meshmark.program_data.definitions` uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy

Reference = Callable[..., Any]


class Undefined(Exception):
    """The program has an operation or a dtype that no definition covers; the message names it."""


def special(name: str) -> Reference:
    """A function of scipy.special, which is imported when it is first called: that takes a third of a second."""
    return lambda *arguments: getattr(scipy.special, name)(*arguments)


SAME = (
    # elementwise
    "positive absolute fabs nan_to_num copy fmax fmin isfinite isinf isnan isneginf isposinf isreal iscomplex"
    " logical_not floor ceil trunc rint round around modf signbit copysign heaviside invert bitwise_not bitwise_invert"
    " bitwise_count logical_and logical_or logical_xor isclose gcd lcm remainder mod fmod floor_divide divmod"
    " left_shift bitwise_left_shift right_shift bitwise_right_shift ldexp real imag conj conjugate"
    " sin cos tan tanh sinh cosh arcsin arccos arctan arcsinh arccosh arctanh asin acos atan asinh acosh atanh sinc"
    " deg2rad rad2deg degrees radians exp exp2 expm1 i0 log log2 log10 log1p sqrt cbrt reciprocal logaddexp"
    " logaddexp2 nextafter divide true_divide arctan2 atan2 hypot power pow float_power frexp spacing angle"
    # reductions and statistics
    " amax amin nansum nanmax nanmin ptp nanprod nanargmax nanargmin mean var std nanmean nanvar nanstd average median"
    " nanmedian array_equal array_equiv allclose cumsum nancumsum cumprod nancumprod cumulative_sum cumulative_prod"
    " trapezoid ediff1d interp unwrap cov corrcoef histogram histogram_bin_edges histogram2d digitize gradient"
    # arranging
    " append concat hstack vstack dstack column_stack array_split split unstack hsplit vsplit dsplit rollaxis"
    " permute_dims matrix_transpose atleast_1d atleast_2d atleast_3d asarray resize fliplr flipud broadcast_arrays"
    " meshgrid ix_ diagflat vander zeros ones full full_like ones_like linspace indices identity eye tri bartlett"
    " blackman hamming hanning kaiser geomspace logspace tril_indices triu_indices diag_indices tril_indices_from"
    " triu_indices_from diag_indices_from rot90 diag insert delete select"
    # products
    " dot inner outer kron cross vdot vecdot matvec vecmat convolve correlate polyadd polysub polyder polyval polyint"
    " poly"
)
"""The functions of jax.numpy that NumPy has under the same name, with the same meaning of what is drawn."""

LINEAR_ALGEBRA = (
    "matmul vecdot multi_dot tensordot outer cross diagonal trace matrix_transpose vector_norm matrix_norm norm inv det"
    " slogdet solve svdvals pinv cond tensorinv tensorsolve lstsq matrix_rank eigh qr svd matrix_power"
)
"""The same for jax.numpy.linalg."""

FOURIER = (
    "fft ifft rfft irfft hfft ihfft fftn ifftn rfftn irfftn fft2 ifft2 rfft2 irfft2 fftfreq rfftfreq fftshift"
    " ifftshift"
)
"""The same for jax.numpy.fft."""


def count_bits(x: np.ndarray) -> np.ndarray:
    """lax.population_count: the bits of the word. NumPy's own counts those of the absolute value."""
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}"))


RENAMED: dict[str, Reference] = {
    "neg": np.negative,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "is_finite": np.isfinite,
    "bitwise_not": np.invert,
    "population_count": count_bits,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "rem": np.fmod,
    "pow": np.power,
    "erf": special("erf"),
    "erfc": special("erfc"),
    "erf_inv": special("erfinv"),
    "lgamma": special("gammaln"),
    "digamma": special("digamma"),
    "bessel_i0e": special("i0e"),
    "bessel_i1e": special("i1e"),
    "igamma": special("gammainc"),
    "igammac": special("gammaincc"),
    "betainc": special("betainc"),
    "zeta": special("zeta"),
    "logistic": special("expit"),
    "integer_pow": np.power,
    "expand_dims": np.expand_dims,
    "squeeze": np.squeeze,
    "transpose": np.transpose,
    "concatenate": np.concatenate,
    "stack": np.stack,
    "unstack": lambda x, axis=0: [*np.moveaxis(x, axis, 0)],
    "tile": np.tile,
    "full": np.full,
    "full_like": np.full_like,
    "dot": np.dot,
    "batch_matmul": np.matmul,
    "select": np.where,
    "reduce_sum": np.sum,
    "reduce_prod": np.prod,
    "reduce_max": np.max,
    "reduce_min": np.min,
}
"""Functions of jax.lax whose NumPy function has another name, or which jax.numpy has not."""

LAX = (
    "abs add square sign floor ceil bitwise_and bitwise_or bitwise_xor exp exp2 expm1 log log1p sqrt cbrt sin cos tan"
    " tanh sinh cosh asin acos atan asinh acosh atanh atan2 nextafter real imag conj"
)
"""Functions of jax.lax that NumPy has under the same name."""


def relu(x: np.ndarray) -> np.ndarray:
    """jax.nn.relu."""
    return np.maximum(x, 0)


def gelu(x: np.ndarray, approximate: bool = True) -> np.ndarray:
    """jax.nn.gelu."""
    if approximate:
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x / 2 * scipy.special.erfc(-x / np.sqrt(2))


def elu(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    """jax.nn.elu."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def celu(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    """jax.nn.celu."""
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(np.minimum(x, 0) / alpha), 0)


def selu(x: np.ndarray) -> np.ndarray:
    """jax.nn.selu."""
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def sparse_plus(x: np.ndarray) -> np.ndarray:
    """jax.nn.sparse_plus."""
    return np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4))


ACTIVATIONS: dict[str, Reference] = {
    "identity": lambda x: x,
    "relu": relu,
    "relu6": lambda x: np.clip(x, 0, 6),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "sigmoid": special("expit"),
    "silu": lambda x: x * scipy.special.expit(x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "squareplus": lambda x, b=4: (x + np.sqrt(x * x + b)) / 2,
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "log_sigmoid": lambda x: -np.logaddexp(-x, 0),
    "soft_sign": lambda x: x / (1 + np.abs(x)),
    "leaky_relu": lambda x, negative_slope=0.01: np.where(x >= 0, x, negative_slope * x),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "sparse_sigmoid": lambda x: np.clip(x + 1, 0, 2) / 2,
    "sparse_plus": sparse_plus,
    "gelu": gelu,
    "elu": elu,
    "celu": celu,
    "selu": selu,
}
"""The activations of jax.nn."""


def softmax(x: np.ndarray, axis: int = -1, where: Any = True) -> np.ndarray:
    """jax.nn.softmax."""
    kept = np.where(where, x, -np.inf)
    powers = np.exp(kept - kept.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def logsumexp(x: np.ndarray, axis: Any = None, where: Any = True, keepdims: bool = False) -> np.ndarray:
    """jax.nn.logsumexp."""
    top = x.max()
    top = x.max()
    powers: Any = np.exp(x - top)
    return np.asarray(np.log(powers.sum(axis=axis, where=where, keepdims=keepdims)) + top)


def logmeanexp(x: np.ndarray, axis: Any = None, keepdims: bool = False) -> np.ndarray:
    """jax.nn.logmeanexp."""
    top = x.max()
    top = x.max()
    powers: Any = np.exp(x - top)
    return np.asarray(np.log(powers.mean(axis=axis, keepdims=keepdims)) + top)


def standardize(x: np.ndarray, axis: int = -1, where: Any = True) -> np.ndarray:
    """jax.nn.standardize."""
    mean = np.mean(x, axis=axis, keepdims=True, where=where)
    variance = np.mean(np.square(x), axis=axis, keepdims=True, where=where) - np.square(mean)
    return (x - mean) / np.sqrt(variance + 1e-5)


def glu(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """jax.nn.glu."""
    first, second = np.split(x, 2, axis)
    return first * scipy.special.expit(second)


def divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """lax.div: truncated for integers."""
    return np.trunc(np.true_divide(x, y)) if x.dtype.kind in "iu" else np.divide(x, y)


def count_leading_zeros(x: np.ndarray) -> np.ndarray:
    """lax.clz."""
    bits = 8 * x.dtype.itemsize
    whole = x.astype(np.int64) & (2**bits - 1)
    return np.array([bits - int(n).bit_length() for n in whole.ravel()]).reshape(x.shape)


def shift_logical(x: np.ndarray, places: Any) -> np.ndarray:
    """lax.shift_right_logical."""
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.right_shift(x.view(unsigned), np.asarray(places).astype(unsigned)).view(x.dtype)


def shift_arithmetic(x: np.ndarray, places: Any) -> np.ndarray:
    """lax.shift_right_arithmetic: the highest bit is the sign, also of unsigned types."""
    signed = np.dtype(f"i{x.dtype.itemsize}")
    return np.right_shift(x.view(signed), np.asarray(places).astype(signed)).view(x.dtype)


def multiply_high(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """lax.mulhi: the high half of a product."""
    bits = 8 * x.dtype.itemsize
    made = [(int(a) * int(b)) >> bits for a, b in zip(x.ravel(), y.ravel(), strict=True)]
    return np.array(made).reshape(x.shape)


def make_bitwise_reduction(function: np.ufunc) -> Reference:
    """lax.reduce_and and the like."""

    def run(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
        return np.asarray(function.reduce(x, axis=tuple(axes)))

    return run


def index_of_extreme(function: Reference) -> Reference:
    """lax.argmax and lax.argmin."""
    return lambda x, axis, kind: function(x, axis=axis)


def bincount(x: np.ndarray, weights: Any = None, length: int = 0) -> np.ndarray:
    """jnp.bincount: numbers from `length` on are not counted."""
    return np.bincount(x, weights, length)[:length]


def searchsorted(edges: np.ndarray, x: np.ndarray, side: Any = "left", method: str = "scan") -> np.ndarray:
    """jnp.searchsorted."""
    return np.searchsorted(edges, x, side)


def isin(x: np.ndarray, y: np.ndarray, invert: bool = False, method: str = "auto") -> np.ndarray:
    """jnp.isin."""
    return np.isin(x, y, invert=invert)


def fill_up(found: np.ndarray, size: int, value: Any) -> np.ndarray:
    """The first `size` elements or rows; `value` in those that are missing."""
    made = np.full((size, *found.shape[1:]), value, found.dtype)
    made[: len(found)] = found[:size]
    return made


def make_set_operation(function: Reference) -> Reference:
    """jnp.union1d and the like, in results of a fixed size."""
    return lambda x, y, size, fill_value: fill_up(function(x, y), size, fill_value)


def argwhere(x: np.ndarray, size: int, fill_value: int = 0) -> np.ndarray:
    """jnp.argwhere."""
    return fill_up(np.argwhere(x), size, fill_value)


def nonzero(x: np.ndarray, size: int, fill_value: int = 0) -> list[np.ndarray]:
    """jnp.nonzero."""
    return [fill_up(k, size, fill_value) for k in np.nonzero(x)]


def extract(test: np.ndarray, x: np.ndarray, size: int, fill_value: Any) -> np.ndarray:
    """jnp.extract."""
    return fill_up(np.extract(test, x), size, fill_value)


def compress(test: np.ndarray, x: np.ndarray, axis: int, size: int, fill_value: Any) -> np.ndarray:
    """jnp.compress."""
    kept = np.moveaxis(np.compress(test, x, axis), axis, 0)
    return np.moveaxis(fill_up(kept, size, fill_value), 0, axis)


def unique_values(x: np.ndarray, size: int, fill_value: Any) -> np.ndarray:
    """jnp.unique_values."""
    return fill_up(np.unique(x), size, fill_value)


def put(x: np.ndarray, places: np.ndarray, values: np.ndarray, mode: Any, inplace: bool) -> np.ndarray:
    """jnp.put."""
    made = x.copy()
    np.put(made, places, values, mode)
    return made


def take(
    x: np.ndarray, places: Any, axis: Any = None, mode: Any = "clip", fill_value: Any = None
) -> np.ndarray:
    """jnp.take. An index from -n to -1 counts from the end. `fill` is for other indices out of bounds: its own value is
    NaN, the smallest signed integer, the largest unsigned one, or True."""
    n = x.size if axis is None else x.shape[axis]
    at = np.asarray(places)
    if mode == "wrap":
        return np.take(x, at, axis, mode="wrap")
    from_end = np.where(at < 0, at + n, at)
    found = np.take(x, from_end, axis, mode="clip") if mode != "clip" else np.take(x, at, axis, mode="clip")
    if mode == "fill":
        if fill_value is None:
            whole = {"i": "min", "u": "max"}.get(x.dtype.kind)
            fill_value = getattr(np.iinfo(x.dtype), whole) if whole else x.dtype.kind == "b" or np.nan
        outside = (from_end < 0) | (from_end >= n)
        rank = 0 if axis is None else x.ndim - 1 - axis
        found = np.where(outside.reshape((*outside.shape, *[1] * rank)), fill_value, found)
    return found


def broadcast_to_rank(x: np.ndarray, rank: int) -> np.ndarray:
    """lax.broadcast_to_rank."""
    return x.reshape((1,) * (rank - x.ndim) + x.shape)


def reshape(x: np.ndarray, shape: Sequence[int], order: Sequence[int]) -> np.ndarray:
    """lax.reshape with an order of dimensions."""
    return x.transpose(order).reshape(shape)


def broadcast_in_dim(x: np.ndarray, shape: Sequence[int], places: Sequence[int]) -> np.ndarray:
    """lax.broadcast_in_dim."""
    sizes = [x.shape[places.index(k)] if k in places else 1 for k in range(len(shape))]
    return np.broadcast_to(x.reshape(sizes), shape)


def place(x: np.ndarray, test: np.ndarray, values: np.ndarray, inplace: bool) -> np.ndarray:
    """jnp.place."""
    made = x.copy()
    np.place(made, test, values)
    return made


def select_n(which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    """lax.select_n."""
    return np.choose(which.astype(int), cases)


def refuse_nearest(method: str) -> None:
    """Undefined for the nearest of two elements: NumPy and JAX take another one if both are as near."""
    if method == "nearest":
        raise Undefined("a quantile by the nearest element")


def quantile(x: np.ndarray, q: Any, axis: Any = None, method: Any = "linear", keepdims: bool = False) -> Any:
    """jnp.quantile."""
    refuse_nearest(method)
    return np.quantile(x, np.asarray(q), axis=axis, method=method, keepdims=keepdims)


def percentile(
    x: np.ndarray, q: Any, axis: Any = None, method: Any = "linear", keepdims: bool = False
) -> Any:
    """jnp.percentile."""
    refuse_nearest(method)
    return np.percentile(x, np.asarray(q), axis=axis, method=method, keepdims=keepdims)


def symmetrize(x: np.ndarray) -> np.ndarray:
    """Half the sum of matrices and their transposes."""
    return (x + np.swapaxes(x, -1, -2)) / 2


def symmetric_product(
    x: np.ndarray, c: np.ndarray, alpha: float, beta: float, symmetrize_output: bool
) -> Any:
    """lax.linalg.symmetric_product."""
    return alpha * (x @ np.swapaxes(x, -1, -2)) + beta * c


def histogramdd(points: np.ndarray, bins: int, range: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    """jnp.histogramdd."""
    counts, edges = np.histogramdd(points, bins, range)
    return counts, [*edges]


def make_segment(function: np.ufunc, start: Any) -> Reference:
    """jax.ops.segment_sum and the like. They drop what has the number of no segment."""

    def run(x: np.ndarray, ids: np.ndarray, num_segments: int, **options: Any) -> np.ndarray:
        made = np.full((num_segments, *x.shape[1:]), start, x.dtype)
        kept = (ids >= 0) & (ids < num_segments)
        function.at(made, ids[kept], x[kept])
        return made

    return run


def lexsort(keys: Sequence[np.ndarray], axis: int = -1) -> np.ndarray:
    """jnp.lexsort."""
    return np.lexsort(keys, axis)


def put_along_axis(x: np.ndarray, places: Any, values: np.ndarray, axis: int, inplace: bool) -> np.ndarray:
    """jnp.put_along_axis."""
    made = x.copy()
    np.put_along_axis(made, np.asarray(places), values, axis)
    return made


def fill_diagonal(x: np.ndarray, value: Any, inplace: bool) -> np.ndarray:
    """jnp.fill_diagonal."""
    made = x.copy()
    np.fill_diagonal(made, value)
    return made


def make_complex(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """lax.complex. A sum with 1j * y would make NaN of infinity."""
    made = np.empty(
        np.broadcast_shapes(x.shape, y.shape), np.complex64 if x.dtype == np.float32 else np.complex128
    )
    made.real, made.imag = x, y
    return made


OWN: dict[str, Reference] = {
    "nn.softmax": softmax,
    "nn.log_softmax": lambda x, axis=-1: x - logsumexp(x, axis=axis, keepdims=True),
    "nn.logsumexp": logsumexp,
    "nn.logmeanexp": logmeanexp,
    "nn.standardize": standardize,
    "nn.glu": glu,
    "lax.one_minus_square": lambda x: 1 - x * x,
    "lax.log2": np.log2,
    "lax.reciprocal": np.reciprocal,
    "lax.round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "lax.rsqrt": lambda x: 1 / np.sqrt(x),
    "lax.div": divide,
    "lax.clz": count_leading_zeros,
    "lax.mulhi": multiply_high,
    "lax.shift_left": np.left_shift,
    "lax.shift_right_logical": shift_logical,
    "lax.shift_right_arithmetic": shift_arithmetic,
    "nn.log1mexp": lambda x: np.log(-np.expm1(-x)),
    "nn.tanh": np.tanh,
    "lax.broadcast_in_dim": broadcast_in_dim,
    "lax.collapse": lambda x, start, stop: x.reshape(*x.shape[:start], -1, *x.shape[stop:]),
    "lax.log1mexp": lambda x: np.log(-np.expm1(-x)),
    "lax.polynomial": lambda x, factors: np.polyval(factors[::-1], x),
    "lax.polygamma": special("polygamma"),
    "lax.complex": make_complex,
    "lax.select_n": select_n,
    "lax.clamp": lambda low, x, high: np.clip(x, low, high),
    "lax.argmax": index_of_extreme(np.argmax),
    "lax.argmin": index_of_extreme(np.argmin),
    "lax.reduce_and": make_bitwise_reduction(np.bitwise_and),
    "lax.reduce_or": make_bitwise_reduction(np.bitwise_or),
    "lax.reduce_xor": make_bitwise_reduction(np.bitwise_xor),
    "lax.broadcast": lambda x, sizes: np.broadcast_to(x, (*sizes, *x.shape)),
    "lax.broadcast_to_rank": broadcast_to_rank,
    "lax.broadcast_like": lambda x, y: np.broadcast_to(x, y.shape),
    "lax.reshape": reshape,
    "lax.iota": lambda kind, n: np.arange(n),
    "lax.fft": lambda x, kind, sizes: getattr(np.fft, kind)(x),
    "lax.linalg.symmetric_product": symmetric_product,
    "lax.linalg.cholesky": lambda x: np.linalg.cholesky(symmetrize(x)),
    "lax.linalg.svd": lambda x, compute_uv: np.linalg.svdvals(x),
    "jnp.linalg.cholesky": lambda x, symmetrize_input: np.linalg.cholesky(symmetrize(x)),
    "jnp.linalg.eigvalsh": lambda x, symmetrize_input: np.linalg.eigvalsh(symmetrize(x)),
    "jnp.astype": lambda x, kind: x.astype(kind),
    "jnp.choose": lambda which, cases, mode: np.choose(which, cases, mode=mode),
    "jnp.minmax": lambda x, axis=None, keepdims=False: (
        x.min(axis, keepdims=keepdims),
        x.max(axis, keepdims=keepdims),
    ),
    "jnp.bincount": bincount,
    "jnp.searchsorted": searchsorted,
    "jnp.isin": isin,
    "jnp.union1d": make_set_operation(np.union1d),
    "jnp.intersect1d": make_set_operation(np.intersect1d),
    "jnp.setdiff1d": make_set_operation(np.setdiff1d),
    "jnp.setxor1d": make_set_operation(np.setxor1d),
    "jnp.unique": unique_values,
    "jnp.unique_values": unique_values,
    "jnp.argwhere": argwhere,
    "jnp.nonzero": nonzero,
    "jnp.flatnonzero": lambda x, size, fill_value=0: fill_up(np.flatnonzero(x), size, fill_value),
    "jnp.place": place,
    "jnp.extract": extract,
    "jnp.compress": compress,
    "jnp.put": put,
    "jnp.put_along_axis": put_along_axis,
    "jnp.fill_diagonal": fill_diagonal,
    "jnp.take": take,
    "jnp.lexsort": lexsort,
    "jnp.quantile": quantile,
    "jnp.percentile": percentile,
    "jnp.nanquantile": quantile,
    "jnp.nanpercentile": percentile,
    "jnp.histogramdd": histogramdd,
    "jnp.unravel_index": lambda x, sizes: np.unravel_index(np.clip(x, 0, np.prod(sizes) - 1), sizes),
    "jnp.ravel_multi_index": lambda places, sizes, mode: np.ravel_multi_index(places, sizes, mode=mode),
    "jax.ops.segment_sum": make_segment(np.add, 0),
    "jax.ops.segment_prod": make_segment(np.multiply, 1),
}
"""Functions that need more than another name."""


def _list_all() -> Iterator[tuple[str, Reference]]:
    """(full name, reference), of those that this NumPy has."""
    for place, module, names in (
        ("jnp", np, SAME),
        ("jnp.linalg", np.linalg, LINEAR_ALGEBRA),
        ("jnp.fft", np.fft, FOURIER),
        ("lax", np, LAX),
    ):
        for name in names.split():
            if hasattr(module, name):
                yield f"{place}.{name}", getattr(module, name)
    yield from ((f"lax.{name}", function) for name, function in RENAMED.items())
    yield from ((f"nn.{name}", function) for name, function in ACTIVATIONS.items())
    yield from OWN.items()


REFERENCES: dict[str, Reference] = dict(_list_all())
"""The references, by the operation's name in a program."""
