# SPDX-License-Identifier: Apache-2.0
"""Input values as a pure function of seed and global index.

A process can therefore make only its own shards, and a program that is not executed needs no values. Every
function takes the flat global index of each wanted element and gives that element's value: a block equals the
same block of the whole array. The source of randomness is the finalizer of splitmix64 (Steele, Lea, Flood, "Fast
splittable pseudorandom number generators", OOPSLA 2014) applied to a counter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import ml_dtypes
import numpy as np

AT_ONCE = 1 << 15
"""Values that are made at once, so that intermediate arrays stay in the processor's cache."""


def random_bits(seed: int, index: np.ndarray) -> np.ndarray:
    """64 random bits for each element of `index` (uint64), as uint64."""
    with np.errstate(over="ignore"):
        z = np.asarray(index + np.uint64(1 + seed) * np.uint64(0xD1B54A32D192ED03))
        z *= np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z ^= z >> np.uint64(shift)
            z *= np.uint64(factor)
        z ^= z >> np.uint64(31)
        return z


def kind_of(dtype: np.dtype) -> str:
    """ "b", "i", "u", "f" or "c", also of the dtypes of ml_dtypes, which NumPy calls void."""
    if dtype.kind != "V":
        return dtype.kind
    return "f" if "float" in dtype.name else dtype.name[0]


def digits_of(dtype: np.dtype) -> int:
    """Significand bits of a float dtype, with the hidden bit; magnitude bits of an integer dtype."""
    if kind_of(dtype) in "iu":
        width = dtype.itemsize * 8 if dtype.kind != "V" else ml_dtypes.iinfo(dtype).bits
        return width - (kind_of(dtype) == "i")
    if dtype.kind == "c":
        return {8: 24, 16: 53}[dtype.itemsize]
    return ml_dtypes.finfo(dtype).nmant + 1


def distinct(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Values for data that only moves: full random significands, both signs, magnitudes 2**-7 to 2**8."""
    if dtype.kind == "b":
        return (bits >> np.uint64(40)) & np.uint64(1) == 1
    if dtype.kind in "iu":
        return (bits >> np.uint64(64 - 8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
    if dtype.kind == "c":
        real = np.dtype(f"f{dtype.itemsize // 2}")
        return distinct(bits, index, shape, real) + dtype.type(1j) * distinct(
            random_bits(1, bits), index, shape, real
        )
    digits = digits_of(dtype)
    if kind_of(dtype) in "iu":  # of four or two bits
        drawn = (bits >> np.uint64(60)).astype(np.int64) % 2 ** (digits + (kind_of(dtype) == "i"))
        return (drawn - 2**digits * (kind_of(dtype) == "i")).astype(dtype)
    significand = (bits >> np.uint64(64 - digits)) | np.uint64(1 << (digits - 1))
    exponent = (bits & np.uint64(15)).astype(np.int64) - 7 - (digits - 1)
    if dtype.itemsize == 1:  # the range of exponents is narrower
        info = ml_dtypes.finfo(dtype)
        low, high = (
            int(np.log2(float(info.tiny))),
            int(np.log2(float(info.max) / (2.0 - 2.0 ** (1 - digits)))),
        )
        low, high = max(low, -7), min(high, 8)
        exponent = (bits & np.uint64(15)).astype(np.int64) % (high - low + 1) + low - (digits - 1)
    sign = 1.0 - 2.0 * ((bits >> np.uint64(4)) & np.uint64(1)).astype(np.float64)
    if dtype.name == "float8_e8m0fnu":  # neither a sign nor a zero
        sign = np.ones_like(sign)
    return np.ldexp(sign * significand.astype(np.float64), exponent).astype(dtype)


def special(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Special values of a float dtype (NaN, infinities, both zeros, the smallest and largest) mixed with
    ordinary ones. A program that only moves data must keep each of them to the bit. Other dtypes have none."""
    if kind_of(dtype) != "f":
        return distinct(bits, index, shape, dtype)
    info = ml_dtypes.finfo(dtype)
    values = np.array(
        [
            np.nan,
            np.inf,
            -np.inf,
            0.0,
            -0.0,
            info.tiny,
            -info.tiny,
            info.max,
            info.min,
            info.smallest_subnormal,
        ],
        dtype,
    )
    pick = (bits >> np.uint64(32)) % np.uint64(2 * len(values))
    ordinary = distinct(bits, index, shape, dtype)
    return np.where(pick < len(values), values[pick.astype(np.int64) % len(values)], ordinary)


def summands(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, terms: int
) -> np.ndarray:
    """Odd integers; the sum of any `terms` of them is exact in `dtype`, in every order.

    |v| <= 2**digits / terms, so that the dtype represents every partial sum. The values are odd, and
    half of them have the largest allowed magnitude, so that rounding to a narrower type changes them.
    """
    if dtype.kind == "c":
        real = np.dtype(f"f{dtype.itemsize // 2}")
        return summands(bits, index, shape, real, terms=terms) + dtype.type(1j) * summands(
            random_bits(1, bits), index, shape, real, terms=terms
        )
    room = digits_of(dtype) - max(terms - 1, 0).bit_length()
    if room < 1:
        raise ValueError(f"{terms} terms are too many for an exact sum in {dtype}")
    magnitude = (bits >> np.uint64(64 - room)) | np.uint64(1)
    if room > 1:
        magnitude |= ((bits >> np.uint64(8)) & np.uint64(1)) << np.uint64(room - 1)
    signed = magnitude.astype(np.int64)
    if kind_of(dtype) != "u":
        signed = np.where((bits >> np.uint64(9)) & np.uint64(1) == 1, -signed, signed)
    return signed.astype(dtype)


def odd_rows(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Odd integers that use the whole significand, 2**(digits-1) <= |v| < 2**digits, one sign per row (all
    but the last dimension): the difference of two values of a row is exact (see `plus_minus`)."""
    digits = digits_of(dtype)
    magnitude = (bits >> np.uint64(64 - digits)) | np.uint64(1) | np.uint64(1 << (digits - 1))
    signed = magnitude.astype(np.int64)
    if dtype.kind != "u":
        negative = random_bits(7, index // np.uint64(shape[-1])) >> np.uint64(63) == 1
        signed = np.where(negative, -signed, signed)
    return signed.astype(dtype)


def plus_minus(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """A factor in {-1, 0, 1} of shape [..., k, n]: each column has one +1 and one -1 (only +1 if k is 1).

    With `odd_rows` on the left, every product and every partial sum, in any order, is an integer that the
    dtype represents. The result is exact for any k, and an intermediate rounding changes nearly every output.
    The +1 of column j is in row (j + r) mod k, so that k columns use every row. r is random for the first matrix, and
    one more for each further one: k matrices in a row differ. The -1 is half the rows further on, and so in another
    shard if the contraction is split.
    """
    rows, columns = np.uint64(shape[-2]), np.uint64(shape[-1])
    row, column = index // columns % rows, index % columns
    plus = (column + random_bits(11, np.zeros(1, np.uint64)) + index // (rows * columns)) % rows
    minus = (plus + rows // np.uint64(2)) % rows if rows > 1 else rows
    return ((row == plus).astype(np.int8) - (row == minus).astype(np.int8)).astype(dtype)


def patterns(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Random bit patterns of an integer or float dtype of 8 or 16 bits. Those that are not finite numbers become
    zeros, and so do floats that are so small that the sum of two could be subnormal and not zero."""
    drawn = (bits >> np.uint64(64 - 8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
    if kind_of(dtype) != "f":
        return drawn
    info = ml_dtypes.finfo(dtype)
    with np.errstate(invalid="ignore"):  # NaN
        wide = np.abs(drawn.astype(np.float64))
        usable = (wide <= float(info.max)) & (wide * float(info.eps) >= float(info.tiny))
    return np.where(usable, drawn, np.zeros_like(drawn))


def uniform(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, scale: float = 1.0
) -> np.ndarray:
    """Random values in [-scale, scale), rounded to `dtype`."""
    unit = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    return (scale * unit).astype(dtype)


def tokens(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, below: int
) -> np.ndarray:
    """Random integers in [0, below)."""
    return ((bits >> np.uint64(16)) % np.uint64(below)).astype(dtype)


def whole(shape: Sequence[int]) -> tuple[slice, ...]:
    """The slice that is the whole array."""
    return tuple(slice(0, size) for size in shape)


def pieces(sizes: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """An array of these sizes in pieces of AT_ONCE elements at most, in order: each is of whole rows of the last
    dimensions."""
    cut, row = len(sizes) - 1, 1
    while row * sizes[cut] <= AT_ONCE and cut > 0:
        row *= sizes[cut]
        cut -= 1
    step = max(1, AT_ONCE // row)
    behind = [slice(0, size) for size in sizes[cut + 1 :]]
    for before in np.ndindex(*sizes[:cut]):
        one = [slice(at, at + 1) for at in before]
        for start in range(0, sizes[cut], step):
            yield (*one, slice(start, min(start + step, sizes[cut])), *behind)


def flat_index(shape: Sequence[int], block: Sequence[slice]) -> np.ndarray:
    """Flat global index (row-major) of each element of one block, as uint64."""
    index = np.zeros((1,) * len(shape), np.uint64)
    stride = 1
    for d in reversed(range(len(shape))):
        line = np.arange(block[d].start, block[d].stop, dtype=np.uint64) * np.uint64(stride)
        index = index + line.reshape([-1 if i == d else 1 for i in range(len(shape))])
        stride *= shape[d]
    return index
