# SPDX-License-Identifier: Apache-2.0
"""Makes the texts and data of a case safe for another process, a record or a terminal.

A case may raise anything: an exception whose `str` raises too, a text with a lone surrogate or a NUL, a message of many
megabytes, or data that JSON can't hold. The case must still get its verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from meshmark.core.text import printable

LONGEST = 10_000
"""Characters that are kept of one text."""

DEEPEST = 20
"""Levels of nested data that are kept."""


def text_of(value: object) -> str:
    """`str(value)`; if that raises, a text with the type of the value and the type of the exception."""
    try:
        return str(value)
    except BaseException as error:
        return f"<{type(value).__name__} whose str() raises {type(error).__name__}>"


def printable_line(value: object, longest: int = LONGEST) -> str:
    """The value as one printable line of bounded length."""
    if type(value) is str and len(value) <= longest and value.isprintable():
        return value
    text = text_of(value)
    text = printable(text[: longest + 1])
    return text if len(text) <= longest else text[: longest - 4] + " ..."


STATUS_CODE = re.compile("[A-Z_]+:")


def first_line(value: object) -> str:
    """The first line of a text of any length. Where it is a status code alone, such as XLA's `UNIMPLEMENTED:`, the next
    line that is not empty stands behind it."""
    first, *others = (line.strip() for line in text_of(value).strip()[: 1 << 16].split("\n"))
    told = next(filter(None, others), "") if STATUS_CODE.fullmatch(first) else ""
    return f"{first} {told}".rstrip()


def data_of(value: Any, depth: int = 0) -> Any:
    """The value in JSON types. Texts become printable lines, NumPy's numbers become plain numbers, and what JSON can't
    hold becomes text. Data that is nested too deeply, or in itself, is cut off."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return printable_line(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if depth >= DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {printable_line(name): data_of(one, depth + 1) for name, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [data_of(one, depth + 1) for one in value]
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "ndim", None) == 0:
        return data_of(item(), depth + 1)
    return printable_line(value)


def encodable(value: Any, depth: int = 0) -> Any:
    """The value in the types that pytest-xdist's channel carries, with texts that UTF-8 can encode.

    A worker's reports, warnings and errors go through this. Text that UTF-8 can encode is unchanged.
    """
    if value is None or isinstance(value, (bool, bytes, complex)):
        return value
    if isinstance(value, str):
        return str(value).encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if depth >= 5 * DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {encodable(name, depth + 1): encodable(one, depth + 1) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(encodable(one, depth + 1) for one in value)
    if isinstance(value, (set, frozenset)):
        return type(value)(encodable(one, depth + 1) for one in value)
    if isinstance(value, list):
        return [encodable(one, depth + 1) for one in value]
    return encodable(text_of(value), depth + 1)
