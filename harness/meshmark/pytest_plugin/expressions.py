# SPDX-License-Identifier: Apache-2.0
"""The expressions of -k and -m, read before anything starts.

pytest reads them when it has collected. With workers that is in each worker, and pytest-xdist turns their refusal into
an internal error of its own.
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
"""A word before a parenthesis: a call, or one of the three words of the grammar."""


def check(config: pytest.Config) -> None:
    """UsageError, one line, for a text of -k or -m that pytest could not read, or not apply to a case."""
    for option, text in (("-k", config.option.keyword), ("-m", config.option.markexpr)):
        why = _wrong(option, text.strip())
        if why:
            told = printable(f"{option} {text[:200]!a} is not an expression: {why}: {MENDS[option]}")
            raise pytest.UsageError(told)


def _wrong(option: str, text: str) -> str:
    """Why it is not an expression, in pytest's words; "" if it is one."""
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
