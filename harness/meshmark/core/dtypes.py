"""What the case table must know of a dtype: its NumPy type, its significand, its unit roundoff."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """A dtype by its JAX name.

    `digits` is the number of significand bits, the hidden one included (for integers: the bits of the
    largest magnitude), and `capability` the optional capability that it needs, if any.
    """

    name: str
    digits: int
    capability: str | None = None

    @cached_property
    def numpy(self) -> np.dtype:
        """The NumPy dtype (from ml_dtypes where NumPy has none)."""
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
        """The smallest normal magnitude: results below it may be flushed to zero; 0 for exact types."""
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
    )
}


def dtype(name: str) -> DType:
    """The DType of that name; KeyError for one that the table does not know."""
    return DTYPES[name]


def as_bits(array: np.ndarray) -> np.ndarray:
    """The same memory as unsigned integers, so that NaN payloads and the sign of zero compare too."""
    array = np.ascontiguousarray(array)
    size = array.dtype.itemsize
    if array.dtype.kind == "c":  # two words an element
        return array.view(f"u{size // 2}")
    return array.view(f"u{size}")
