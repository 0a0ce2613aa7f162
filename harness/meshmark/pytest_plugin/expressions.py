# SPDX-License-Identifier: Apache-2.0
"""Checks the expressions of -k and -m before anything starts.

pytest parses them only after collection. With workers each worker does that, and pytest-xdist turns an error into an
internal error.
"""

from __future__ import annotations

import re

import pytest
from _pytest.mark import expression as grammar  # pytest has no public name for it

from meshmark.core.text import printable

MENDS = {
    "-k": "join parts of case ids by and, or, not; a part has no = and no comma (psum and x+y)",
    "-m": "join names of markers by and, or, not",
}
"""What to write instead, by option."""

REFUSED = (SyntaxError, getattr(grammar, "ParseError", SyntaxError))
"""What pytest raises for a text that is not an expression: ParseError up to pytest 8."""

_CALL = re.compile(r"([^\s()]+)\s*\(")
"""Matches a word before a parenthesis: a call, or one of the three keywords of the grammar."""


def check_expressions(config: pytest.Config) -> None:
    """One-line UsageError for a text of -k or -m that pytest could not parse, or not apply to a case."""
    for option, text in (("-k", config.option.keyword), ("-m", config.option.markexpr)):
        why = _wrong(option, text.strip())
        if why:
            told = printable(f"{option} {text[:200]!a} is not an expression: {why}: {MENDS[option]}")
            raise pytest.UsageError(told)


def _wrong(option: str, text: str) -> str:
    """Why the text is not an expression, in pytest's words; "" if it is one."""
    if not text:
        return ""
    try:
        grammar.Expression.compile(text)
    except REFUSED as error:
        if isinstance(error, SyntaxError):
            return f"at column {error.offset}: {error.msg}"
        return str(error)
    called = [word for word in _CALL.findall(text) if word not in ("and", "or", "not")]
    return f"{called[0]}(...) is a call, which only -m takes" if option == "-k" and called else ""
