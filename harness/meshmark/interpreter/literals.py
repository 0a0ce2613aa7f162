# SPDX-License-Identifier: Apache-2.0
"""Reads the constants of HLO text."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from meshmark.core.hlo_types import Refused, Shape

_NUMBER = re.compile(r"\(([^()]*?), ?([^()]*?)\)|(-?nan\(0x[0-9a-f]+\)|[^\s{},()]+)")
_NAN = re.compile(r"(-?)nan\((0x[0-9a-f]+)\)")
_COMMENT = re.compile(r"/\*.*?\*/")


@lru_cache(maxsize=2048)
def literal(text: str, shape: Shape) -> np.ndarray:
    """The array of a constant, in the dtype and dimensions of its type; Refused if the text leaves elements out."""
    if "..." in text:
        raise Refused("a constant that the text leaves out")
    found = [_element(match, shape) for match in _NUMBER.finditer(_COMMENT.sub("", text))]
    if len(found) != shape.size:
        raise Refused(f"a constant of {len(found)} elements for {shape}")
    result = np.array(found, shape.numpy).reshape(shape.dims)
    result.flags.writeable = False
    return result


def _element(match: re.Match[str], shape: Shape) -> object:
    text = match[3]
    if text is None:
        return complex(float(match[1]), float(match[2]))
    if text in ("true", "false"):
        return text == "true"
    kind = shape.numpy
    if (payload := _NAN.fullmatch(text)) and kind.itemsize <= 8:
        return _nan(bool(payload[1]), int(payload[2], 16), kind)
    try:
        if kind.kind in "iu" or shape.dtype in ("s2", "u2", "s4", "u4"):
            return int(text)
        return float(text)
    except ValueError:
        raise Refused(f"the constant {text[:40]}") from None


def _nan(negative: bool, payload: int, kind: np.dtype) -> object:
    """A NaN with this sign and payload, as a scalar of the dtype `kind`."""
    bits = kind.itemsize * 8
    ones = int(np.array(np.inf, kind).view(f"u{kind.itemsize}"))
    pattern = ones | payload | (int(negative) << (bits - 1))
    return np.array(pattern, f"u{kind.itemsize}").view(kind)[()]
