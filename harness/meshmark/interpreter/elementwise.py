# SPDX-License-Identifier: Apache-2.0
"""Instructions that compute each element from the elements at the same index.

Within one instruction functions of floating-point numbers are computed in double precision. The result is rounded once,
to the type of the instruction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused
from meshmark.interpreter.meanings import array_shape, means
from meshmark.interpreter.values import AnyValue, Value, array, joint_poison

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator


def is_float(kind: np.dtype) -> bool:
    """Whether a dtype is floating-point, of NumPy or of ml_dtypes."""
    return kind.kind == "f" or (kind.kind == "V" and "float" in kind.name)


def wide(data: np.ndarray) -> np.ndarray:
    """Floating-point data in double precision; other data unchanged."""
    if data.dtype.kind == "c":
        return data.astype(np.complex128)
    return data.astype(np.float64) if is_float(data.dtype) else data


def rounded(data: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Data in the dtype `kind` of an instruction."""
    return data if data.dtype == kind else data.astype(kind)


def narrowed(data: np.ndarray, kind: np.dtype) -> np.ndarray:
    """float32 data as bfloat16 if the instruction has that type, other data unchanged. On TPU any instruction that
    makes the factors of a product may round them this way."""
    return data.astype(kind) if data.dtype == np.float32 and kind == ml_dtypes.bfloat16 else data


def _register(opcodes: str, compute: Callable[..., np.ndarray], changes_type: bool = False) -> None:
    """Register a function of arrays as the meaning of opcodes. The result has the type of their operands, unless
    `changes_type`."""

    def function(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
        values = [array(operand, instruction.name) for operand in operands]
        kinds = {value.data.dtype for value in values}
        if len(kinds) > 1 and not instruction.opcode.startswith("shift"):
            raise Refused(f"{instruction.opcode} of mixed types")
        data = compute(*(value.data for value in values))
        kind = array_shape(instruction).numpy if changes_type else values[0].data.dtype
        return Value(narrowed(rounded(data, kind), array_shape(instruction).numpy), joint_poison(values))

    means(*opcodes.split())(function)


def _widely(compute: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The same function in double precision. The caller rounds the result."""
    return lambda *data: compute(*map(wide, data))


# One operand -------------------------------------------------------------------------------------------------


def _sign(a: np.ndarray) -> np.ndarray:
    if is_float(a.dtype):
        return np.where(np.isnan(a) | (a == 0), a, np.sign(wide(a)).astype(a.dtype))
    return np.sign(a)


def _away_from_zero(a: np.ndarray) -> np.ndarray:
    """Data rounded to the nearest integer, with halves away from zero."""
    down = np.trunc(a)
    return np.where(np.abs(a - down) >= 0.5, down + np.copysign(1.0, a), np.copysign(down, a))


def _logistic(a: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-a))


def _leading_zeros(a: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    unsigned = a.view(f"u{a.dtype.itemsize}")
    zeros = np.full(a.shape, bits, a.dtype)
    for place in range(bits):
        zeros = np.where(unsigned >> np.array(place, unsigned.dtype) != 0, bits - 1 - place, zeros)
    return zeros.astype(a.dtype)


_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": _logistic,
    "tanh": np.tanh,
    "tan": np.tan,
    "sine": np.sin,
    "cosine": np.cos,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atanh": np.arctanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "cbrt": np.cbrt,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "ceil": np.ceil,
    "floor": np.floor,
    "round-nearest-even": np.rint,
    "round-nearest-afz": _away_from_zero,
}
for _opcode, _function in _FUNCTIONS.items():
    _register(_opcode, _widely(_function))

_register("negate", lambda a: np.bitwise_xor(a, True) if a.dtype == bool else np.negative(a))
_register("abs", np.abs, changes_type=True)
_register("sign", _sign)
_register("not", lambda a: np.logical_not(a) if a.dtype == bool else np.invert(a))
_register("is-finite", lambda a: np.isfinite(wide(a)), changes_type=True)
_register("real", lambda a: a.real if a.dtype.kind == "c" else a, changes_type=True)
_register("imag", lambda a: a.imag if a.dtype.kind == "c" else np.zeros_like(a), changes_type=True)
_register("popcnt", lambda a: np.bitwise_count(a.view(f"u{a.dtype.itemsize}")).astype(a.dtype))
_register("count-leading-zeros", _leading_zeros)

# Two operands ------------------------------------------------------------------------------------------------


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return wide(a) / wide(b)
    # XLA: towards zero; -1 (all bits one) for a zero divisor; the smallest number divided by -1 is itself.
    safe = np.where((b == 0) | (b == -1 if a.dtype.kind == "i" else False), 1, b).astype(a.dtype)
    quotient = _truncated(a, safe)
    if a.dtype.kind == "i":
        quotient = np.where(b == -1, np.negative(a), quotient)
    return np.where(b == 0, np.invert(np.zeros_like(a)), quotient).astype(a.dtype)


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    down = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return down
    inexact = np.multiply(down, b) != a
    return np.where(inexact & ((a < 0) != (b < 0)), down + 1, down).astype(a.dtype)


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return np.fmod(wide(a), wide(b))
    safe = np.where((b == 0) | (b == -1 if a.dtype.kind == "i" else False), 1, b).astype(a.dtype)
    rest = np.fmod(a, safe)
    return np.where(b == 0, a, rest).astype(a.dtype)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return np.power(wide(a), wide(b))
    result, base, left = np.ones_like(a), np.array(a), np.maximum(b, 0)
    while left.any():
        result = np.where(left & 1 == 1, np.multiply(result, base), result)
        base, left = np.multiply(base, base), left >> 1
    negative = np.where(a == 1, 1, np.where(a == -1, np.where(b & 1 == 1, -1, 1), 0))
    return np.where(b < 0, negative, result).astype(a.dtype) if b.dtype.kind == "i" else result


def _shift(compute: np.ufunc, kind: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A shift of numbers as unsigned (kind "u") or signed ("i") ones. A shift by the width or more shifts out all
    bits."""

    def shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = a.dtype.itemsize * 8
        source = a.view(f"{kind}{a.dtype.itemsize}")
        by = b.view(f"u{b.dtype.itemsize}")
        moved = compute(source, np.where(by < bits, by, bits - 1).astype(source.dtype))
        out = np.where(source < 0, -1, 0).astype(source.dtype)
        return np.where(by < bits, moved, out).view(a.dtype)

    return shift


def _logical(bits: np.ufunc, truth: np.ufunc) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda a, b: (truth if a.dtype == bool else bits)(a, b)


def _arithmetic(compute: np.ufunc) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype == bool and compute is np.subtract:
            raise Refused("subtract of pred")
        return compute(wide(a), wide(b)) if a.dtype.kind == "V" else compute(a, b)

    return function


_register("add", _arithmetic(np.add))
_register("subtract", _arithmetic(np.subtract))
_register("multiply", _arithmetic(np.multiply))
_register("maximum", _arithmetic(np.maximum))
_register("minimum", _arithmetic(np.minimum))
_register("divide", _divide)
_register("remainder", _remainder)
_register("power", _power)
_register("atan2", _widely(np.arctan2))
_register("and", _logical(np.bitwise_and, np.logical_and))
_register("or", _logical(np.bitwise_or, np.logical_or))
_register("xor", _logical(np.bitwise_xor, np.logical_xor))
_register("shift-left", _shift(np.left_shift, "u"))
_register("shift-right-logical", _shift(np.right_shift, "u"))
_register("shift-right-arithmetic", _shift(np.right_shift, "i"))


def _complex(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    kind = np.complex128 if a.dtype == np.float64 else np.complex64
    result = np.empty(np.broadcast_shapes(a.shape, b.shape), kind)
    result.real, result.imag = a, b
    return result


_register("complex", _complex, changes_type=True)

_COMPARISONS = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


_KINDS = ("FLOAT", "SIGNED", "UNSIGNED")


def _kind_of(kind: np.dtype) -> str:
    """The comparison type of a dtype, as HLO names it."""
    if is_float(kind) or kind.kind == "c":
        return "FLOAT"
    return "UNSIGNED" if kind.kind in "ub" or kind.name.startswith("uint") else "SIGNED"


def total_order(data: np.ndarray) -> np.ndarray:
    """Integers that have the total order of these floating-point numbers: -NaN < -inf < ... < -0 < 0 < ... < inf <
    NaN."""
    size = data.dtype.itemsize
    signed = np.ascontiguousarray(data).view(f"i{size}")
    return np.where(signed < 0, signed ^ np.array(np.iinfo(signed.dtype).max, signed.dtype), signed)


@means("compare", attributes=("direction", "type", "order"))
def _compare(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    a, b = (value.data for value in values)
    kind, order = (instruction.attributes.get(name, "") for name in ("type", "order"))
    if order not in ("", "TOTAL", "PARTIAL"):
        raise Refused(f"compare with order {order}")
    if "TOTALORDER" in (kind, f"{order}ORDER") and is_float(a.dtype):
        a, b = total_order(a), total_order(b)
    elif kind and (kind not in _KINDS or _kind_of(a.dtype) != kind):
        raise Refused(f"compare of type {kind} of {a.dtype}")
    direction = instruction.attributes["direction"]
    if direction not in _COMPARISONS:
        raise Refused(f"compare with direction {direction}")
    return Value(_COMPARISONS[direction](a, b), joint_poison(values))


# Three operands ----------------------------------------------------------------------------------------------


@means("select")
def _select(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """Takes each element from one of two arrays. Poison in the other array is not read."""
    predicate, on_true, on_false = (array(operand, instruction.name) for operand in operands)
    chosen = _scalar(predicate.data, on_true.data)
    data = narrowed(np.where(chosen, on_true.data, on_false.data), array_shape(instruction).numpy)
    poison = None
    if on_true.poison is not None or on_false.poison is not None:
        none = np.zeros((1,) * on_true.data.ndim, bool)
        poison = np.where(
            chosen,
            none if on_true.poison is None else on_true.poison,
            none if on_false.poison is None else on_false.poison,
        )
    if predicate.poison is not None:
        unknown = _scalar(predicate.poison, on_true.data)
        poison = unknown if poison is None else poison | unknown
    return Value(data, poison)


def _scalar(data: np.ndarray, other: np.ndarray) -> np.ndarray:
    """A scalar per device, reshaped so that it broadcasts with `other`. Other data are unchanged."""
    return data.reshape(-1, *(1,) * (other.ndim - 1)) if data.ndim == 1 else data


def _clamp(low: np.ndarray, a: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(_scalar(low, a), a), _scalar(high, a))


@means("clamp")
def _clamped(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    shaped = [Value(v.data, None if v.poison is None else _scalar(v.poison, values[1].data)) for v in values]
    return Value(_clamp(*(value.data for value in values)), joint_poison(shaped))


# Types -------------------------------------------------------------------------------------------------------


def converted(data: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Data converted as XLA does: to integers towards zero and saturating, with NaN as 0; to pred as data != 0."""
    if kind.kind == "b":
        return data != 0
    if data.dtype == bool:
        return data.astype(np.uint8).astype(kind)
    if kind.kind in "iu" and is_float(data.dtype):
        limits = np.iinfo(kind)
        real = np.trunc(wide(data))
        inside = np.where((real >= float(limits.min)) & (real < float(limits.max) + 1.0), real, 0.0)
        result = inside.astype(kind)
        result = np.where(real >= float(limits.max), limits.max, result)
        return np.where(real <= float(limits.min), limits.min, result).astype(kind)
    if kind.kind == "V" and data.dtype.kind in "iuc":
        return wide(data.astype(np.float64)).astype(kind)
    if data.dtype.kind == "V" and not is_float(data.dtype):  # integers of 2 and 4 bits
        return data.astype(np.int8).astype(kind)
    return data.astype(kind)


@means("convert")
def _convert(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    value = array(operands[0], instruction.name)
    return Value(converted(value.data, array_shape(instruction).numpy), value.poison)


@means("copy")
def _copy(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The same value in another layout."""
    value = array(operands[0], instruction.name)
    return Value(narrowed(value.data, array_shape(instruction).numpy), value.poison)


@means("bitcast-convert")
def _bitcast_convert(
    evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]
) -> AnyValue:
    value, shape = array(operands[0], instruction.name), array_shape(instruction)
    size, new = value.data.dtype.itemsize, shape.numpy.itemsize
    if any("int2" in kind.name or "int4" in kind.name for kind in (value.data.dtype, shape.numpy)):
        raise Refused("bitcast-convert of packed integers")
    data = np.ascontiguousarray(value.data)
    if size == new:
        return Value(data.view(shape.numpy), value.poison)
    result = (data[..., None] if new < size else data).view(shape.numpy)
    if new < size:  # one element becomes several, along a new last dimension
        return Value(result, None if value.poison is None else value.poison[..., None])
    poison = None if value.poison is None else np.any(np.broadcast_to(value.poison, data.shape), axis=-1)
    return Value(result[..., 0], poison)


@means("reduce-precision", attributes=("exponent_bits", "mantissa_bits"))
def _reduce_precision(
    evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]
) -> AnyValue:
    value = array(operands[0], instruction.name)
    bits = (int(instruction.attributes["exponent_bits"]), int(instruction.attributes["mantissa_bits"]))
    kinds = {(8, 7): ml_dtypes.bfloat16, (5, 10): np.float16, (8, 23): np.float32, (11, 52): np.float64}
    kind = value.data.dtype
    if not is_float(kind):
        raise Refused(f"reduce-precision of {kind.name}")
    if bits in kinds:
        return Value(value.data.astype(kinds[bits]).astype(kind), value.poison)
    if bits[0] != 8 or kind.itemsize > 4:
        raise Refused(f"reduce-precision of {kind.name} to {bits[0]} and {bits[1]} bits")
    return Value(_shortened(value.data.astype(np.float32), bits[1]).astype(kind), value.poison)


def _shortened(x: np.ndarray, bits: int) -> np.ndarray:
    """float32 data rounded to `bits` fraction bits, with ties to even.

    The exponent keeps its eight bits. Rounding the bit pattern as an integer carries into it, up to infinity. NaN stays
    NaN."""
    cut = 23 - bits
    if cut <= 0:
        return x
    pattern = x.view(np.uint32).astype(np.uint64)
    half = (1 << (cut - 1)) - 1 + ((pattern >> cut) & 1)
    rounded = ((pattern + half) >> cut << cut).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), x, rounded)
