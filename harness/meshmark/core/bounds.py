# SPDX-License-Identifier: Apache-2.0
"""Derives every tolerance by running the reference's operations once more, on error bounds.

A reference is a plain NumPy function. Called with float64 arrays it gives the reference values. Called with
`Bounded` arrays the same function gives the same values and, element by element, how far a correct
implementation in a narrower `Arithmetic` can be from them, in any order of summation:

    y = layer(bounded(x, FLOAT32), bounded(w, FLOAT32))
    assert (abs(got - y.value) <= y.error).all()

This is running error analysis: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM
2002, section 3.3. Each result obeys the standard model fl(a op b) = (a op b)(1 + d), |d| <= u (section 2.2),
with an absolute term for underflow (section 2.8). A sum of n terms, in any order, obeys gamma_n =
n u / (1 - n u) against the sum of magnitudes (sections 3.1 and 4.2). Fused multiply-add, and intermediates
kept wider than the dtype, only remove roundings. A wider intermediate that is rounded again is also within u,
because rounding to nearest is within u / (1 + u) (Theorem 2.3).

The bound holds for an implementation that does the reference's operations, on exactly the given inputs, with
each operation rounded as above. It does not cover an equal formula made of other operations. The bound is
infinite if the error has no limit (a divisor that may be zero, a result that may overflow). Such a case is faulty and
does not pass.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Pair = tuple[Any, Any]
Rule = Callable[..., Any]

# The reference and the bound are rounded too, to float64: they count as eight roundings per operation.
HOST = 2.0**-50

# A division in units of u. IEEE's division is 1. XLA multiplies by the rounded reciprocal of a constant divisor:
# 2. PTX's div.full.f32, which XLA asks for on NVIDIA GPUs (nvptx-prec-divf32=1), is 2 ulp = 4.
_DIVISION = 4.0


@dataclass(frozen=True)
class Arithmetic:
    """How an implementation rounds.

    `elementary`, the error of exp, log, tanh, sqrt and rsqrt in units of u, is 8, which is 4 ulp. Measured
    against float64 on XLA's CPU backend, 2.4 to 33 million float32 values per function, jax 0.10.2 and
    0.12.0.1: tanh 4.8, exp 5.2 (1.5 in 0.12), rsqrt 2.7, log 2.1, sqrt 1, logistic 2.5; without a rule here,
    expm1 6.7 (1.2) and log1p 3.6. All float16 and bfloat16 values: below 1, except logistic 2.2. Other devices
    were not measured. If a probe finds more than 8, change it here.
    """

    u: float
    """Unit roundoff of each stored result: 2**-24 for float32, 2**-8 for bfloat16, 2**-11 for float16."""
    u_sum: float
    """Unit roundoff of the accumulator of products and partial sums: 2**-24 if it is float32."""
    tiny: float
    """Absolute error of each stored result, which may be flushed to zero: the smallest normal number."""
    elementary: float = 8.0
    """Error of an elementary function in units of u."""
    stores: int = 0
    """How often a partial sum is rounded to u before the end, if u_sum is finer: the devices that it crosses."""
    u_factor: float = 0.0
    """Unit roundoff to which a contraction first rounds its factors: 2**-8 if dots run in bfloat16."""
    largest: float = sys.float_info.max
    """Largest finite number: the bound of a result that may exceed it is infinite."""

    @property
    def tiny_sum(self) -> float:
        """`tiny` of the accumulator: an accumulator wider than the dtype has at least float32's range."""
        return min(self.tiny, 2.0**-126) if self.u_sum < self.u else self.tiny

    def held(self, constant: Array) -> Array:
        """Bound the error with which the implementation represents a constant: 0 if it is exact."""
        size = np.abs(constant)
        # Veltkamp's splitting gives the nearest number with -log2(u) bits.
        scaled = constant * (2.0 ** (53 + round(math.log2(self.u))) + 1.0)
        with np.errstate(invalid="ignore"):
            off = np.where(scaled - (scaled - constant) == constant, 0.0, self.u * size)
        off = np.where(size < self.tiny, size, off)
        return np.where(np.isinf(size), 0.0, np.where(size > self.largest, np.inf, off))


FLOAT64 = Arithmetic(2.0**-53, 2.0**-53, 2.0**-1022)
FLOAT32 = Arithmetic(2.0**-24, 2.0**-24, 2.0**-126, largest=2.0**128 - 2.0**104)
BFLOAT16 = Arithmetic(2.0**-8, 2.0**-24, 2.0**-126, largest=2.0**128 - 2.0**120)
FLOAT16 = Arithmetic(2.0**-11, 2.0**-24, 2.0**-14, largest=65504.0)
ARITHMETICS = {"float64": FLOAT64, "float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}


class _Carried(NDArrayOperatorsMixin):
    """A reference array and its doubt, an array of the same shape. NumPy's operations carry both."""

    __slots__ = ("arithmetic", "doubt", "value")

    def __init__(self, value: Any, doubt: Any, arithmetic: Arithmetic) -> None:
        self.value: npt.NDArray[Any] = np.asarray(value)
        self.doubt: npt.NDArray[Any] = np.asarray(doubt)
        self.arithmetic = arithmetic
        if self.doubt.shape != self.value.shape:
            self.doubt = np.broadcast_to(self.doubt, self.value.shape).copy()

    def _moved(self, move: Callable[[npt.NDArray[Any]], Any]) -> Self:
        return type(self)(move(self.value), move(self.doubt), self.arithmetic)

    def __array__(self, *_: Any, **__: Any) -> npt.NDArray[Any]:
        """Refuse to become a plain array, because the doubt would be lost silently."""
        raise TypeError(f"a {type(self).__name__} is not a plain array; use value(x) to drop its bound")

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any
    ) -> Any:
        """Apply the rule of a ufunc (NEP 13)."""
        rule = _RULES.get((ufunc, method))
        if rule is None:
            raise _no_rule(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}")
        with np.errstate(all="ignore"):
            result = rule(*inputs, **kwargs)
        if out is None:
            return result
        (target,) = out
        if not isinstance(target, Bounded):
            raise TypeError(f"numpy.{ufunc.__name__} can't write a Bounded into a plain array")
        target[...] = result
        return target

    def __array_function__(
        self, func: Rule, types: Sequence[type], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Apply the rule of a function that is not a ufunc (NEP 18)."""
        rule = _RULES.get((func, "__call__"))
        if rule is None:
            raise _no_rule(func.__name__)
        with np.errstate(all="ignore"):
            return rule(*args, **kwargs)

    def __getitem__(self, index: Any) -> Self:
        """Index as in NumPy."""
        return self._moved(lambda a: a[index])

    def __len__(self) -> int:
        """Give the length of the first dimension."""
        return len(self.value)

    def __repr__(self) -> str:
        """Show both arrays."""
        return f"{type(self).__name__}({self.value!r}, {self.doubt!r})"

    @property
    def shape(self) -> tuple[int, ...]:
        """As in NumPy."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """As in NumPy."""
        return self.value.ndim

    @property
    def size(self) -> int:
        """As in NumPy."""
        return self.value.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the reference, not of the implementation."""
        return self.value.dtype

    @property
    def T(self) -> Self:
        """As in NumPy."""
        return self._moved(np.transpose)

    def reshape(self, *shape: Any) -> Self:
        """As in NumPy."""
        return self._moved(lambda a: a.reshape(*shape))

    def transpose(self, *axes: Any) -> Self:
        """As in NumPy."""
        return self._moved(lambda a: a.transpose(*axes))

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """As in NumPy."""
        return self._moved(lambda a: a.swapaxes(axis1, axis2))


class Bounded(_Carried):
    """A reference `value` and the absolute `error` that an implementation may have."""

    __slots__ = ()

    @property
    def error(self) -> Array:
        """The bound of |implementation - value|, element by element."""
        return self.doubt

    def __setitem__(self, index: Any, item: Any) -> None:
        """Assign as in NumPy, in place."""
        self.value[index], self.doubt[index] = _pair(item, self.arithmetic)

    def __bool__(self) -> bool:
        """The truth value; ValueError if the implementation may branch differently (see Decision)."""
        return bool(self != 0.0)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Bounded:
        """As in NumPy."""
        return _sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Bounded:
        """As in NumPy."""
        return _mean(self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Bounded:
        """As in NumPy."""
        return _max(self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Bounded:
        """As in NumPy."""
        return _min(self, axis, keepdims)


class Decision(_Carried):
    """A comparison of bounded numbers: the reference's answer, and the elements where an implementation may differ.

    np.where, arithmetic (as 0 and 1) and logical operators accept it. They cover both answers of undecided elements.
    """

    __slots__ = ()

    @property
    def undecided(self) -> Bools:
        """True where the errors of both sides together reach the distance between them."""
        return self.doubt

    def __bool__(self) -> bool:
        """The answer; ValueError if it is undecided."""
        if self.doubt.any():
            raise ValueError("undecided within the bounds: use np.where, which covers both answers")
        return bool(self.value)


def bounded(x: npt.ArrayLike, arithmetic: Arithmetic, error: npt.ArrayLike = 0.0) -> Bounded:
    """Copy `x` with bounds; `error` bounds the difference of the implementation's `x` from this one."""
    if np.iscomplexobj(x):
        raise TypeError("Bounded has no rules for complex numbers")
    return Bounded(np.array(x, np.float64), np.array(error, np.float64), arithmetic)


def value(x: npt.ArrayLike | Bounded) -> Array:
    """The reference values of a Bounded; a plain array as it is."""
    return x.value if isinstance(x, Bounded) else np.asarray(x, np.float64)


def error(x: npt.ArrayLike | Bounded) -> Array:
    """The bound; zero for a plain array."""
    return x.error if isinstance(x, Bounded) else np.zeros(np.shape(x))


# Shared by the rules. A pair is (value, error); a rule takes the arguments of its NumPy function.


def _no_rule(name: str) -> TypeError:
    return TypeError(f"Bounded has no rule for numpy.{name}")


def _arithmetic(*operands: Any) -> Arithmetic:
    first, *others = (x.arithmetic for x in operands if isinstance(x, _Carried))
    if any(other != first for other in others):
        raise ValueError(f"operands of different arithmetic: {[first, *others]}")
    return first


@functools.lru_cache
def _number(x: float, arithmetic: Arithmetic) -> Pair:
    return np.asarray(x), np.asarray(arithmetic.held(np.asarray(x)))


def _pair(x: Any, arithmetic: Arithmetic) -> Pair:
    if isinstance(x, Bounded):
        return x.value, x.error
    if isinstance(x, Decision):
        return x.value.astype(np.float64), x.undecided.astype(np.float64)
    constant = np.asarray(x, np.float64)
    return (constant, arithmetic.held(constant)) if constant.ndim else _number(float(constant), arithmetic)


def _pairs(*operands: Any) -> tuple[Arithmetic, list[Pair]]:
    arithmetic = _arithmetic(*operands)
    return arithmetic, [_pair(x, arithmetic) for x in operands]


def _gamma(n: float, u: float) -> float:
    return n * u / (1.0 - n * u) if n * u < 1.0 else math.inf


def _stored(arithmetic: Arithmetic, value: Array, error: Array, roundings: float = 1.0) -> Bounded:
    """Add an operation's own `roundings` to the `error` from its operands."""
    step = roundings * arithmetic.u + HOST
    size = np.abs(value)
    total = error * (1.0 + step) + (size * step + arithmetic.tiny)
    if not size.max(initial=0.0) + total.max(initial=0.0) <= arithmetic.largest:
        total = np.where(size + total > arithmetic.largest, np.inf, total)
        total = np.where(np.isinf(size), error, total)  # the -inf of a mask is exact and not an overflow
    return Bounded(value, total, arithmetic)


def _accumulated(arithmetic: Arithmetic, value: Array, error: Array, size: Array, n: int) -> Bounded:
    """Add the roundings of a sum, at most `n` per term; `size` is the sum of the magnitudes."""
    narrows = arithmetic.u_sum < arithmetic.u
    growth, underflow = _gamma(n, arithmetic.u_sum), n * arithmetic.tiny_sum
    if narrows:
        growth += _gamma(arithmetic.stores, arithmetic.u) * (1.0 + growth)
        underflow += arithmetic.stores * arithmetic.tiny
    total = error + (size * (growth + (n + 8) * HOST) + underflow)
    return _stored(arithmetic, value, total, 1.0 if narrows else 0.0)


# Arithmetic.


def _linear(ufunc: np.ufunc) -> Rule:
    def rule(a: Any, b: Any) -> Bounded:
        arithmetic, ((a, ea), (b, eb)) = _pairs(a, b)
        return _stored(arithmetic, ufunc(a, b), ea + eb)

    return rule


def _multiply(a: Any, b: Any) -> Bounded:
    arithmetic, ((a, ea), (b, eb)) = _pairs(a, b)
    return _stored(arithmetic, a * b, np.abs(a) * eb + ea * (np.abs(b) + eb))


def _divide(a: Any, b: Any) -> Bounded:
    arithmetic, ((a, ea), (b, eb)) = _pairs(a, b)
    ratio, least = a / b, np.abs(b) - eb
    # a'/b' - a/b = ((a' - a) - (a/b)(b' - b)) / b'. An intermediate reciprocal may be flushed to zero.
    carried = (ea + np.abs(ratio) * eb) / least + (np.abs(a) + ea) * arithmetic.tiny
    return _stored(arithmetic, ratio, np.where(least > 0.0, carried, np.inf), _DIVISION)


def _negative(a: Bounded) -> Bounded:
    return Bounded(-a.value, a.error, a.arithmetic)


def _absolute(a: Bounded) -> Bounded:
    return Bounded(np.abs(a.value), a.error, a.arithmetic)


def _power(a: Any, exponent: Any) -> Bounded:
    if not isinstance(a, Bounded) or np.ndim(exponent) or exponent != int(exponent):
        raise _no_rule("power unless the exponent is one integer")
    k = abs(int(exponent))
    if exponent < 0:
        return _divide(1.0, _power(a, k))
    if k < 2:
        return a._moved(np.copy) if k else Bounded(np.ones(a.shape), np.zeros(a.shape), a.arithmetic)
    if k == 2:
        return _multiply(a, a)
    # Mean value theorem. It may be k - 1 products in some order, or one elementary function.
    carried = k * a.error * (np.abs(a.value) + a.error) ** (k - 1)
    return _stored(a.arithmetic, a.value**k, carried, max(k - 1, a.arithmetic.elementary))


# Elementary functions: the difference at the worse end of the interval, or the steepest slope in it.


def _exp(x: Any) -> Bounded:
    arithmetic, ((x, ex),) = _pairs(x)
    result = np.exp(x)
    carried = result * np.expm1(ex)
    if not ex.max(initial=0.0) < 1.0:  # the product may be 0 * inf
        carried = np.where(ex < 1.0, carried, np.exp(x + ex))
    return _stored(arithmetic, result, carried, arithmetic.elementary)


def _log(x: Any) -> Bounded:
    arithmetic, ((x, ex),) = _pairs(x)
    carried = np.where(ex < x, -np.log1p(-ex / x), np.inf)
    return _stored(arithmetic, np.log(x), carried, arithmetic.elementary)


def _sqrt(x: Any) -> Bounded:
    arithmetic, ((x, ex),) = _pairs(x)
    result = np.sqrt(x)
    carried = np.where(ex > 0.0, ex / (result + np.sqrt(x - ex)), 0.0)
    carried = np.where(ex <= x, carried, np.inf)  # it may be the root of a negative number
    return _stored(arithmetic, result, carried, arithmetic.elementary)


def _tanh(x: Any) -> Bounded:
    arithmetic, ((x, ex),) = _pairs(x)
    least = np.tanh(np.maximum(np.abs(x) - ex, 0.0))
    carried = np.minimum(ex * ((1.0 - least) * (1.0 + least) + HOST), 2.0)
    return _stored(arithmetic, np.tanh(x), carried, arithmetic.elementary)


# Choices do not round. Maximum and minimum are 1-Lipschitz in the sup norm.


def _pick(choose: np.ufunc) -> Rule:
    def rule(a: Any, b: Any) -> Bounded:
        arithmetic, ((a, ea), (b, eb)) = _pairs(a, b)
        return Bounded(choose(a, b), np.maximum(ea, eb), arithmetic)

    return rule


def _extreme(choose: Any) -> Callable[..., Bounded]:
    def rule(a: Any, axis: Any = None, keepdims: bool = False) -> Bounded:
        arithmetic, ((a, ea),) = _pairs(a)
        chosen = choose(a, axis=axis, keepdims=keepdims)
        return Bounded(chosen, ea.max(axis=axis, keepdims=keepdims), arithmetic)

    return rule


_max, _min = _extreme(np.max), _extreme(np.min)


def _compare(ufunc: np.ufunc) -> Rule:
    def rule(a: Any, b: Any) -> Decision:
        arithmetic, ((a, ea), (b, eb)) = _pairs(a, b)
        reach = (ea + eb) * (1.0 + HOST)
        return Decision(ufunc(a, b), ~((np.abs(a - b) > reach) | (reach == 0.0)), arithmetic)

    return rule


def _logical(ufunc: np.ufunc) -> Rule:
    def rule(*operands: Any) -> Decision:
        if any(isinstance(x, Bounded) for x in operands):
            raise _no_rule(f"{ufunc.__name__} of numbers")
        options = [(x.value, x.value ^ x.undecided) if isinstance(x, Decision) else (x,) for x in operands]
        answer, *others = (ufunc(*choice) for choice in itertools.product(*options))
        return Decision(answer, np.any([other != answer for other in others], axis=0), _arithmetic(*operands))

    return rule


def _where(condition: Any, a: Any, b: Any) -> Bounded:
    arithmetic = _arithmetic(condition, a, b)
    (a, ea), (b, eb) = _pair(a, arithmetic), _pair(b, arithmetic)
    if not isinstance(condition, Decision):
        return Bounded(np.where(condition, a, b), np.where(condition, ea, eb), arithmetic)
    either = np.where(a == b, 0.0, np.abs(a - b)) + np.maximum(ea, eb)
    chosen = np.where(condition.value, ea, eb)
    return Bounded(np.where(condition.value, a, b), np.where(condition.undecided, either, chosen), arithmetic)


# Sums and contractions.


def _sum(a: Any, axis: Any = None, keepdims: bool = False) -> Bounded:
    arithmetic, ((a, ea),) = _pairs(a)
    total, carried, size = (x.sum(axis=axis, keepdims=keepdims) for x in (a, ea, np.abs(a)))
    terms = a.size // max(total.size, 1)
    return _accumulated(arithmetic, total, carried, size + carried, max(terms - 1, 0))


def _mean(a: Any, axis: Any = None, keepdims: bool = False) -> Bounded:
    total = _sum(a, axis, keepdims)
    return _divide(total, a.size // max(total.size, 1))


def _add_at(target: Any, index: Any, rows: Any) -> None:
    """Scatter-add; XLA rounds each of its additions to the stored type."""
    if not isinstance(target, Bounded):
        raise TypeError(
            "numpy.add.at can't add a Bounded to a plain array; make a Bounded with numpy.zeros_like"
        )
    arithmetic = replace(_arithmetic(target, rows), u_sum=target.arithmetic.u)
    rows, errors = _pair(rows, target.arithmetic)
    size, count = np.abs(target.value) + target.error, np.zeros(target.shape)
    np.add.at(target.value, index, rows)
    np.add.at(target.error, index, errors)
    np.add.at(size, index, np.abs(rows) + errors)
    np.add.at(count, index, 1.0)
    n = int(count.max(initial=0.0)) + arithmetic.stores
    target.error[...] = _accumulated(arithmetic, target.value, target.error, size, n).error


def _contract(product: Rule, a: Any, b: Any, n: int, magnitudes: Rule | None = None) -> Bounded:
    magnitudes = magnitudes or product
    arithmetic, ((a, ea), (b, eb)) = _pairs(a, b)
    sa, sb = np.abs(a), np.abs(b)
    if arithmetic.u_factor:
        ea, eb = ea + arithmetic.u_factor * (sa + ea), eb + arithmetic.u_factor * (sb + eb)
    exact = size = magnitudes(sa, sb)
    if ea.max(initial=0.0) or eb.max(initial=0.0):
        size = magnitudes(sa + ea, sb + eb)
    return _accumulated(arithmetic, product(a, b), size - exact, size, n)


def _matmul(a: Any, b: Any) -> Bounded:
    return _contract(np.matmul, a, b, np.shape(a)[-1])


def _dot(a: Any, b: Any) -> Bounded:
    return _contract(np.dot, a, b, np.shape(a)[-1]) if np.ndim(a) and np.ndim(b) else _multiply(a, b)


def _einsum(subscripts: Any, *operands: Any, optimize: Any = False) -> Bounded:
    if not isinstance(subscripts, str) or len(operands) != 2:
        raise _no_rule("einsum unless it has a string and two operands")
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    lengths: dict[str, int] = {}
    for labels, operand in zip(inputs.split(","), operands, strict=True):
        before, _, after = labels.partition("...")
        shape = np.shape(operand)
        for label, length in itertools.chain(
            zip(before, shape, strict=False), zip(after[::-1], shape[::-1], strict=False)
        ):
            lengths[label] = max(length, lengths.get(label, length))
    kept = output if arrow else [label for label in lengths if inputs.count(label) == 1]
    n = math.prod(length for label, length in lengths.items() if label not in kept)
    product = functools.partial(np.einsum, subscripts, optimize=optimize)
    faster = functools.partial(np.einsum, subscripts, optimize=True)
    return _contract(product, *operands, n, faster)


# Movement: errors move together with their values.


def _move(function: Rule) -> Rule:
    def rule(a: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(a, _Carried):
            raise _no_rule(f"{function.__name__} of a plain array")
        return a._moved(lambda x: function(x, *args, **kwargs))

    return rule


def _split(function: Rule) -> Rule:
    def rule(a: Any, *args: Any, **kwargs: Any) -> list[Any]:
        parts = zip(function(a.value, *args, **kwargs), function(a.doubt, *args, **kwargs), strict=True)
        return [type(a)(*part, a.arithmetic) for part in parts]

    return rule


def _join(function: Rule) -> Rule:
    def rule(arrays: Any, axis: int = 0) -> Bounded:
        arithmetic, pairs = _pairs(*arrays)
        values, errors = zip(*pairs, strict=True)
        return Bounded(function(values, axis=axis), function(errors, axis=axis), arithmetic)

    return rule


# fmt: off
_COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
_LOGICALS = (np.logical_and, np.logical_or, np.logical_xor, np.logical_not,
             np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert)
_MOVES = (np.transpose, np.swapaxes, np.moveaxis, np.reshape, np.ravel, np.take, np.broadcast_to,
          np.expand_dims, np.squeeze, np.roll, np.flip, np.repeat, np.tile, np.tril, np.triu, np.copy,
          np.positive, np.zeros_like)

_CALLS: dict[Rule, Rule] = {
    np.add: _linear(np.add), np.subtract: _linear(np.subtract), np.multiply: _multiply, np.divide: _divide,
    np.negative: _negative, np.absolute: _absolute, np.square: lambda a: _multiply(a, a), np.power: _power,
    np.exp: _exp, np.log: _log, np.sqrt: _sqrt, np.tanh: _tanh,
    np.maximum: _pick(np.maximum), np.minimum: _pick(np.minimum), np.where: _where,
    np.max: _max, np.amax: _max, np.min: _min, np.amin: _min, np.sum: _sum, np.mean: _mean,
    np.matmul: _matmul, np.dot: _dot, np.einsum: _einsum,
    np.concatenate: _join(np.concatenate), np.stack: _join(np.stack),
    np.split: _split(np.split), np.array_split: _split(np.array_split),
    np.shape: lambda a: a.shape, np.ndim: lambda a: a.ndim, np.size: lambda a: a.size,
    **{ufunc: _compare(ufunc) for ufunc in _COMPARISONS},
    **{ufunc: _logical(ufunc) for ufunc in _LOGICALS},
    **{function: _move(function) for function in _MOVES},
}
_RULES: dict[tuple[Rule, str], Rule] = {
    **{(function, "__call__"): rule for function, rule in _CALLS.items()},
    (np.add, "at"): _add_at,
    (np.add, "reduce"): lambda a, axis=0, keepdims=False: _sum(a, axis, keepdims),
    (np.maximum, "reduce"): lambda a, axis=0, keepdims=False: _max(a, axis, keepdims),
    (np.minimum, "reduce"): lambda a, axis=0, keepdims=False: _min(a, axis, keepdims),
}
# fmt: on
