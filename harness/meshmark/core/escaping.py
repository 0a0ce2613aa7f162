# SPDX-License-Identifier: Apache-2.0
"""Escapes strings of record files, which anyone may have written, for the places where they are shown.

The places are Markdown, HTML, a terminal (control sequences) and a spreadsheet (formulas).
"""

from __future__ import annotations

import json
import re
from typing import Any

from meshmark.core.text import printable

LONGEST = 500
"""The most characters that are shown of one string of a record."""


def plain(value: Any) -> str:
    """A value of a record as one printable line of bounded length; "" for None."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(text[: LONGEST + 1])
    return text if len(text) <= LONGEST else text[: LONGEST - 4] + " ..."


def escape_markdown(value: Any) -> str:
    """A value of a record as Markdown text that displays exactly these characters."""
    text = plain(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*\[\]|~#$])", r"\\\1", text)
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)  # within a word an underscore does not start emphasis
    return text.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def link(value: Any) -> str:
    """A link of a record as Markdown: clickable if it is a plain https address, otherwise text."""
    text = plain(value)
    clickable = re.fullmatch(r"https://[\w.-]+(?:/[\w./#=~%+-]*)?", text, re.ASCII)
    return f"<{text}>" if clickable else escape_markdown(text)


def cell(value: Any) -> Any:
    """A value for CSV; an apostrophe goes before a string that a spreadsheet would read as a formula."""
    if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@")):
        return "'" + value
    return value


def field(value: Any, name: str) -> Any:
    """value[name], or None if value is not a dictionary or lacks the name."""
    return value.get(name) if isinstance(value, dict) else None
