"""Strings of record files, which may come from anyone, made harmless where they are shown.

They are escaped where they could be read as Markdown, HTML, a terminal's control sequence or a spreadsheet's
formula.
"""

from __future__ import annotations

import json
import re
from typing import Any

from meshmark.core.text import printable

LONGEST = 500
"""Characters that are shown of one string of a record."""


def plain(value: Any) -> str:
    """A value of a record as one printable line of bounded length; "" for none."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(text[: LONGEST + 1])
    return text if len(text) <= LONGEST else text[: LONGEST - 4] + " ..."


def markdown(value: Any) -> str:
    """A value of a record as Markdown text that shows just these characters."""
    text = plain(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*\[\]|~#$])", r"\\\1", text)
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)  # within a word it emphasizes nothing
    return text.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def link(value: Any) -> str:
    """A link of a record as Markdown: clickable where it is a plain https address, else text."""
    text = plain(value)
    clickable = re.fullmatch(r"https://[\w.-]+(?:/[\w./#=~%+-]*)?", text, re.ASCII)
    return f"<{text}>" if clickable else markdown(text)


def cell(value: Any) -> Any:
    """A value for CSV; strings that a spreadsheet would take for a formula get an apostrophe before them."""
    if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@")):
        return "'" + value
    return value


def field(value: Any, name: str) -> Any:
    """value[name] where there is such a thing, else None."""
    return value.get(name) if isinstance(value, dict) else None
