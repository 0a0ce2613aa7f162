# SPDX-License-Identifier: Apache-2.0
"""Dots and convolutions. Products are summed in double precision and rounded once.

At default precision a device may round the factors first: TPUs to bfloat16, recent GPUs to TF32. The text does not have
this rounding. It is taken from the chip's documentation, and records call it assumed.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused
from meshmark.interpreter.elementwise import is_float, rounded, wide
from meshmark.interpreter.meanings import array_shape, dimensions, means
from meshmark.interpreter.values import AnyValue, Value, array, spread_poison
from meshmark.interpreter.windows import Window, window_of

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

TF32 = 11
"""The significand bits of TF32. GPUs round to TF32 with ties away from zero (cvt.rna.tf32.f32 of the PTX ISA). A
product of 64x64 matrices whose factors have a tie shows it on an H100."""

_ALGORITHMS = {
    "dot_f64_f64_f64": 0,
    "dot_f32_f32_f32": 0,
    "dot_bf16_bf16_f32_x9": 0,
    "dot_bf16_bf16_f32_x6": 0,
    "dot_bf16_bf16_f32_x3": 16,
    "dot_tf32_tf32_f32_x3": 21,
    "dot_tf32_tf32_f32": TF32,
    "dot_bf16_bf16_f32": 8,
}
"""The significand bits to which an algorithm rounds float32 factors; 0 if it keeps all bits."""


def factor_bits(evaluator: Evaluator, instruction: Instruction, kind: np.dtype) -> int:
    """The significand bits to which the factors of a product are rounded; 0 if they are not."""
    if kind not in (np.dtype(np.float32), np.dtype(np.complex64)):
        return 0
    algorithm = instruction.attributes.get("algorithm", "")
    if algorithm:
        if algorithm not in _ALGORITHMS:
            raise Refused(f"dot algorithm {algorithm}")
        return _ALGORITHMS[algorithm]
    asked = set(instruction.attributes.get("operand_precision", "{default}").strip("{}").split(","))
    if asked == {"highest"}:
        return 0
    if not asked <= {"default", "high", "highest"}:
        raise Refused(f"operand precision {','.join(sorted(asked))}")
    return evaluator.factor_bits.get("default" if "default" in asked else "high", 0)


def factors(data: np.ndarray, bits: int) -> np.ndarray:
    """Factors in the type in which products are summed, with significands rounded to `bits` (0: not rounded).

    Ties round to even, but away from zero for TF32."""
    if data.dtype.kind in "iub" or (data.dtype.kind == "V" and not is_float(data.dtype)):
        return data.astype(np.int64)
    exact = wide(data)
    if not bits:
        return exact
    if exact.dtype.kind == "c":
        return factors(exact.real, bits) + 1j * factors(exact.imag, bits)
    mantissa, exponent = np.frexp(exact)
    scaled = mantissa * 2.0**bits
    whole = np.trunc(scaled + np.copysign(0.5, scaled)) if bits == TF32 else np.rint(scaled)
    return np.where(np.isfinite(exact), np.ldexp(whole, exponent - bits), exact)


_DOT = ("lhs_batch_dims", "lhs_contracting_dims", "rhs_batch_dims", "rhs_contracting_dims")


_SHORT_TILE = re.compile(r'^\{"sizes":\["16"\]')
"""The configuration of a dot inside of a Triton kernel: tiles of 16 along the contracted dimension."""

_FOUR_BITS = re.compile(r"[su][24]\[")
"""The type of an array of integers of 4 bits, or 2."""

_CARRYING = ("bitcast", "broadcast", "convert", "copy", "fusion", "reshape", "slice", "transpose")
"""Opcodes that carry the numbers of an operand on, in another type or place."""


def _is_of_four_bits(evaluator: Evaluator, instruction: Instruction) -> bool:
    """Whether a factor of a dot was cast from integers of 4 bits in the same computation, or in one that it calls."""
    computation = evaluator.computation_now
    names = list(instruction.operands)
    while names:
        factor = computation.by_name[names.pop()]
        inner = (i for _, name in factor.calls for i in evaluator.computation(name).instructions)
        if any(_FOUR_BITS.match(i.type_text) for i in (factor, *inner)):
            return True
        names += factor.operands if factor.opcode in _CARRYING else ()
    return False


@means("dot", attributes=(*_DOT, "operand_precision", "algorithm"))
def _dot(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    left, right = (array(operand, instruction.name) for operand in operands)
    if _SHORT_TILE.match(instruction.backend_config):
        # An H100 got such products wrong: results/findings/products-of-narrow-integers-on-a-gpu.
        if left.data.dtype == np.int8:
            raise Refused("a Triton product of int8 in tiles of 16, which an H100 got wrong")
        if _is_of_four_bits(evaluator, instruction):
            raise Refused("a Triton product of 4-bit integers in tiles of 16, which an H100 got wrong")
    lhs_batch, lhs_summed, rhs_batch, rhs_summed = (dimensions(instruction, name) for name in _DOT)
    bits = factor_bits(evaluator, instruction, left.data.dtype)
    kind = array_shape(instruction).numpy
    total = dot(
        factors(left.data, bits), factors(right.data, bits), lhs_batch, lhs_summed, rhs_batch, rhs_summed
    )
    return Value(rounded(total, kind), spread_poison([left, right], total.ndim - 1))


def dot(
    left: np.ndarray,
    right: np.ndarray,
    lhs_batch: Sequence[int],
    lhs_summed: Sequence[int],
    rhs_batch: Sequence[int],
    rhs_summed: Sequence[int],
) -> np.ndarray:
    """The dot of two arrays [devices, *dims]: [devices, *batch, *free of the left, *free of the right].

    The numbers of dimensions do not count the device axis."""
    a, rows = _matrix(left, lhs_batch, lhs_summed, summed_last=True)
    b, columns = _matrix(right, rhs_batch, rhs_summed, summed_last=False)
    batch = [left.shape[d + 1] for d in lhs_batch]
    product = a @ b
    return product.reshape(product.shape[0], *batch, *rows, *columns)


def _matrix(
    data: np.ndarray, batch: Sequence[int], summed: Sequence[int], summed_last: bool
) -> tuple[np.ndarray, list[int]]:
    """(the operand as [devices, batch, rows, columns], the sizes of its free dimensions)."""
    free = [d for d in range(data.ndim - 1) if d not in batch and d not in summed]
    order = [*batch, *free, *summed] if summed_last else [*batch, *summed, *free]
    shape = data.shape[1:]
    sizes = [shape[d] for d in free]
    blocks = (math.prod(shape[d] for d in dims) for dims in (batch, free, summed))
    nb, nf, ns = blocks
    moved = data.transpose(0, *(d + 1 for d in order))
    return moved.reshape(data.shape[0], nb, *((nf, ns) if summed_last else (ns, nf))), sizes


_LABELS = re.compile(r"([bf\d]+)_([io\d]+)->([bf\d]+)")


def labels(instruction: Instruction) -> tuple[str, str, str]:
    """The labels of the dimensions of a convolution's input, kernel and output; Refused for an unknown form."""
    match = _LABELS.fullmatch(instruction.attributes["dim_labels"])
    if not match:
        raise Refused(f"dim_labels {instruction.attributes['dim_labels'][:60]}")
    spatial = "".join(map(str, range(len(match[1]) - 2)))
    for text, others in zip(match.groups(), ("bf", "io", "bf"), strict=True):
        if sorted(text) != sorted(spatial + others):
            raise Refused(f"dim_labels {match[0][:60]}")
    return match[1], match[2], match[3]


@means(
    "convolution",
    attributes=("window", "dim_labels", "feature_group_count", "batch_group_count", "operand_precision"),
)
def _convolution(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    left, right = (array(operand, instruction.name) for operand in operands)
    lhs, rhs, out = labels(instruction)
    spatial = sorted(set(lhs) - {"b", "f"})
    window = window_of(instruction.attributes.get("window", "{}"), len(spatial))
    bits = factor_bits(evaluator, instruction, left.data.dtype)
    a = factors(left.data, bits).transpose(0, *(lhs.index(c) + 1 for c in (*spatial, "b", "f")))
    b = factors(right.data, bits).transpose(0, *(rhs.index(c) + 1 for c in (*spatial, "i", "o")))
    groups = int(instruction.attributes.get("feature_group_count", "1"))
    batches = int(instruction.attributes.get("batch_group_count", "1"))
    if groups > 1 and batches > 1:
        raise Refused("a convolution with groups of features and of the batch")
    total = convolution(a, b, window, groups, batches)
    order = (*spatial, "b", "f")
    result = total.transpose(0, *(order.index(c) + 1 for c in out))
    kind = array_shape(instruction).numpy
    return Value(rounded(result, kind), spread_poison([left, right], result.ndim - 1))


def convolution(
    a: np.ndarray, b: np.ndarray, window: Sequence[Window], groups: int = 1, batches: int = 1
) -> np.ndarray:
    """The convolution [devices, *spatial, batch, output features] of `a`, [devices, *spatial, batch, features], and
    `b`, [devices, *window, input features, output features]. groups: feature groups. batches: batch groups."""
    if groups > 1:
        parts = zip(np.split(a, groups, -1), np.split(b, groups, -1), strict=True)
        return np.concatenate([convolution(x, y, window) for x, y in parts], -1)
    if batches > 1:
        parts = zip(np.split(a, batches, -2), np.split(b, batches, -1), strict=True)
        return np.concatenate([convolution(x, y, window) for x, y in parts], -1)
    sizes = a.shape[1:-2]
    outputs = [w.output(n) for w, n in zip(window, sizes, strict=True)]
    devices = max(a.shape[0], b.shape[0])
    kind = np.result_type(a, b)
    result = np.zeros((devices, *outputs, a.shape[-2], b.shape[-1]), kind)
    expand = (slice(None), *(None,) * len(window))
    for place in itertools.product(*(range(w.size) for w in window)):
        hits = [w.hits(k, n, o) for w, k, n, o in zip(window, place, sizes, outputs, strict=True)]
        if any(hit is None for hit in hits):
            continue
        to = (slice(None), *(hit[0] for hit in hits))  # type: ignore[index]
        of = (slice(None), *(hit[1] for hit in hits))  # type: ignore[index]
        kernel = tuple(w.size - 1 - k if w.reversed else k for w, k in zip(window, place, strict=True))
        result[to] += a[of] @ b[(slice(None), *kernel)][expand]  # type: ignore[arg-type]
    return result
