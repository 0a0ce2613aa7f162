# SPDX-License-Identifier: Apache-2.0
"""Values, arrays and syntax trees as source text."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from meshmark.judge.repro.formulas import agrees
from meshmark.judge.repro.text import WIDTH

INLINE = 32
"""The most elements of an array that is written out."""


def unparse(node: Any) -> str:
    """The source of a syntax tree, with strings in double quotes."""
    text = ast.unparse(ast.fix_missing_locations(node))
    # By token, since a quotation mark may stand inside of a string.
    changed = {t.start: f'"{t.string[1:-1]}"' for t in _tokens(text) if _is_plain(t.string)}
    lines = text.splitlines(keepends=True)
    for (row, column), new in changed.items():  # as long as before
        lines[row - 1] = lines[row - 1][:column] + new + lines[row - 1][column + len(new) :]
    return "".join(lines)


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """The strings of a text, those inside of an f-string aside: before Python 3.12 these need the other quotes."""
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        depth += (kind == "FSTRING_START") - (kind == "FSTRING_END")
        if kind == "STRING" and not depth:
            yield token


def _is_plain(string: str) -> bool:
    """Whether a string in single quotes stays the same in double quotes."""
    return re.fullmatch(r"'[^'\"\\\n]*'", string) is not None


def bracketed(text: str) -> str:
    """An expression to which a method call can be appended."""
    tree = ast.parse(text, mode="eval").body
    return text if isinstance(tree, (ast.Call, ast.Name, ast.Subscript, ast.Attribute)) else f"({text})"


def as_list(text: str) -> str:
    """An expression of a tuple as one of a list, on several lines where it is long."""
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Tuple):
        return f"list({text})"
    items = [unparse(e) for e in tree.elts]
    line = f"[{', '.join(items)}]"
    return line if len(line) < WIDTH - 12 else "[\n" + "".join(f"    {i},\n" for i in items) + "]"


def reshaped(shape: Sequence[int]) -> str:
    """A shape as the arguments of reshape."""
    return f"({', '.join(map(str, shape))})" if len(shape) else "(())"


def dtype_code(name: str) -> str:
    """A dtype as source."""
    if name == "bool":
        return "bool"
    return f"np.{name}" if hasattr(np, name) else f"ml_dtypes.{name}"


def up(number: float) -> str:
    """A bound as source of three digits, rounded up."""
    if number == 0 or not np.isfinite(number):
        return repr(float(number))
    text = f"{number:.3g}"
    return text if float(text) >= number else f"{number * 1.005:.3g}"


def array_literal(array: np.ndarray) -> str:
    """A small array written out; "" if it is large, or if the text would lose a bit."""
    if array.size > INLINE or not array.size:
        return f"np.zeros({array.shape}, {dtype_code(array.dtype.name)})" if not array.size else ""
    flat = array.ravel()
    if array.size > 4 and (flat == flat[0]).all() and array.dtype.kind in "iub":
        return f"np.full({array.shape}, {flat[0]}, {dtype_code(array.dtype.name)})"
    if array.dtype.kind in "iub":
        items = list(map(str, flat.tolist()))
    elif array.dtype.kind == "c":
        items = [repr(complex(v)) for v in flat]
    elif all(float(v).is_integer() and abs(float(v)) < 1e6 for v in flat):
        items = [str(int(v)) for v in flat]
    else:
        items = [str(v) for v in flat]
    items = [{"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}.get(i, i) for i in items]
    shape = "" if array.ndim == 1 else f".reshape{reshaped(array.shape)}"
    text = f"np.array([{', '.join(items)}], {dtype_code(array.dtype.name)}){shape}"
    try:
        seen = eval(text, {"np": np, "ml_dtypes": ml_dtypes})
    except Exception:
        return ""
    return text if agrees(seen, array) else ""


def count_of(array: np.ndarray) -> str:
    """The expression of an array of 1, 2, 3 ...; "" for any other array."""
    kind = dtype_code(array.dtype.name)
    shape = "" if array.ndim == 1 else f".reshape{reshaped(array.shape)}"
    text = f"np.arange(1, {array.size + 1}, dtype={kind}){shape}"
    if array.dtype.kind == "V":
        text = f"np.arange(1, {array.size + 1}).astype({kind}){shape}"
    if array.dtype.kind not in "fiuV":
        return ""
    return text if agrees(eval(text, {"np": np, "ml_dtypes": ml_dtypes}), array) else ""
