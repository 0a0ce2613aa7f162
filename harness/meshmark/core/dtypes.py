# SPDX-License-Identifier: Apache-2.0
"""The dtypes of the case table: NumPy type, significand and unit roundoff of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """A dtype by its JAX name.

    `digits` is the number of significand bits, with the hidden bit (for integers: the bits of the largest
    magnitude). `capability` is the optional capability that the dtype needs, if any.
    """

    name: str
    digits: int
    capability: str | None = None

    @cached_property
    def numpy(self) -> np.dtype:
        """The NumPy dtype (from ml_dtypes if NumPy does not have it)."""
        return np.dtype(getattr(ml_dtypes, self.name, None) or self.name)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize

    @property
    def kind(self) -> str:
        """ "float", "complex", "int", "uint" or "bool"."""
        if self.name.startswith(("float", "bfloat")):
            return "float"
        return self.name.rstrip("0123456789")

    @property
    def unit_roundoff(self) -> float:
        """u = eps/2 of round to nearest: 2**-digits; 0 for exact types."""
        return 2.0**-self.digits if self.kind in ("float", "complex") else 0.0

    @cached_property
    def tiny(self) -> float:
        """The smallest normal magnitude (smaller results may be flushed to zero); 0 for exact types."""
        return float(self._info.tiny) if self.unit_roundoff else 0.0

    @cached_property
    def largest(self) -> float:
        """The largest finite magnitude of a float type; infinity for exact types."""
        return float(self._info.max) if self.unit_roundoff else float("inf")

    @property
    def _info(self) -> ml_dtypes.finfo:
        return ml_dtypes.finfo({"complex64": "float32", "complex128": "float64"}.get(self.name, self.name))


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("float32", 24),
        DType("bfloat16", 8),
        DType("float16", 11),
        DType("int32", 31),
        DType("int8", 7),
        DType("uint8", 8),
        DType("bool", 1),
        DType("complex64", 24, "complex"),
        DType("float64", 53, "x64"),
        DType("complex128", 53, "x64"),
        DType("int16", 15),
        DType("uint16", 16),
        DType("uint32", 32),
        DType("int64", 63, "x64"),
        DType("uint64", 64, "x64"),
        DType("float8_e4m3fn", 4, "fp8"),
        DType("float8_e4m3fnuz", 4, "fp8"),
        DType("float8_e4m3b11fnuz", 4, "fp8"),
        DType("float8_e4m3", 4, "fp8"),
        DType("float8_e3m4", 5, "fp8"),
        DType("float8_e5m2", 3, "fp8"),
        DType("float8_e5m2fnuz", 3, "fp8"),
        DType("float8_e8m0fnu", 1, "fp8"),
        DType("float4_e2m1fn", 2, "subbyte"),
        DType("int4", 3, "subbyte"),
        DType("uint4", 4, "subbyte"),
        DType("int2", 1, "subbyte"),
        DType("uint2", 2, "subbyte"),
    )
}


SUBBYTE = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
"""Bits of the dtypes that are narrower than the byte that NumPy gives them."""


def dtype(name: str) -> DType:
    """The DType with this name; KeyError if the table has none."""
    return DTYPES[name]


def as_bits(array: np.ndarray) -> np.ndarray:
    """View an array as unsigned integers: then NaN payloads and the sign of zero are compared too."""
    word, low = _word(array.dtype)
    bits: np.ndarray = np.ascontiguousarray(array).view(word)
    return bits if low is None else bits & low


@lru_cache(maxsize=64)
def _word(dtype: np.dtype) -> tuple[np.dtype, np.uint8 | None]:
    """(the unsigned integers of which an element consists, the bits of it that count: None for all)."""
    parts = 2 if dtype.kind == "c" else 1
    low = np.uint8(2 ** SUBBYTE[dtype.name] - 1) if dtype.name in SUBBYTE else None
    return np.dtype(f"u{dtype.itemsize // parts}"), low
