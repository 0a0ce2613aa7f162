# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML pages from the data of report.page_data. Each works offline from a file, loads nothing, and runs
only its own scripts.

Strings of records are harmless in a page. They are JSON in a script element with a type that does not run, and every
`<`, `>` and `&` is escaped, so no string can end the element. The page's code inserts strings only as text. The content
security policy allows only the scripts whose hashes it lists, and no connection, frame or form.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from meshmark.core import extras
from meshmark.core.errors import BadInput
from meshmark.report import page_site
from meshmark.report.page_definition import PageData

TEMPLATES = Path(__file__).resolve().parent / "templates"
PLOTTING = ("bokeh.min.js", "bokeh-api.min.js")
"""Bokeh's core, and its interface for making plots in the browser."""

PARTS = (
    *("dom", "data", "address", "site", "sections", "keys", "tables", "filters"),
    *("matrix", "cases", "glance", "wrong", "changes", "comparisons", "heat", "modes"),
    *(
        "charts",
        "roofline",
        "speed",
        "over_time",
        "communication",
        "weather",
        "growth",
        "others",
        "answers",
        "runs",
        "main",
    ),
)
"""The parts of the page's own script, in order; they share one scope."""

MOST = 10_000_000
"""The most bytes of a page."""
LINKS = 50_000
"""Bytes of a page that are reserved for links to the other pages."""


class PageError(BadInput, RuntimeError):
    """A page can't be made; the message is one line that says what to do."""


def pages(data: PageData) -> dict[str, str]:
    """Each page by its file name: index.html, and pages of machines if the records do not fit into one page of MOST
    bytes. PageError if Jinja or Bokeh is missing, or if no division is small enough."""
    last: list[tuple[PageData, str]] = []

    def fits(part: PageData) -> bool:
        last[:] = [(part, page(part))]
        return len(last[0][1].encode()) <= MOST - (0 if part is data else LINKS)

    try:
        found = page_site.build(data, fits)
    except page_site.TooLarge as error:
        raise PageError(str(error)) from None
    if len(found) == 1:
        return {page_site.FIRST: last[0][1]}
    return {name: page(part) for name, part in found.items()}


def page(data: PageData) -> str:
    """One page of the data; PageError if Jinja or Bokeh is missing."""
    try:
        import bokeh
        import jinja2
    except ImportError as error:
        raise PageError(
            f"the page needs {error.name}, which is not installed: {extras.command('page')}"
        ) from None
    static = Path(bokeh.__file__).parent / "server" / "static" / "js"
    try:
        plot = [_script(static / name) for name in PLOTTING]
    except OSError as error:
        raise PageError(f"this Bokeh has no {error.filename}: {extras.command('page')}") from None
    js = _own_script()
    policy = "; ".join(
        [
            "default-src 'none'",
            "script-src " + " ".join(f"'{script_hash(text)}'" for text in (js, *plot)),
            "style-src 'unsafe-inline'",  # Bokeh's charts use style elements
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    safe = jinja2.utils.markupsafe.Markup
    made: str = environment.get_template("page.html").render(
        policy=safe(policy),
        suite=data["suite"],
        bokeh=bokeh.__version__,
        css=safe((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        js=safe(js),
        plot=[safe(text) for text in plot],
        data=safe(embed(data)),
        runs=data["runs"],
    )
    return made


def embed(data: PageData) -> str:
    """The data as JSON that can't end a script element or be read as markup."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def data_of(html: str) -> Any:
    """The data of a page that `page` made; PageError for any other text."""
    start = html.find('<script type="application/json" id="data">')
    end = html.find("</script>", start)
    if start < 0 or end < 0:
        raise PageError("not a page of Meshmark: it has no data")
    try:
        return json.loads(html[html.index(">", start) + 1 : end])
    except ValueError:
        raise PageError("not a page of Meshmark: its data are not JSON") from None


def _own_script() -> str:
    """The page's own script: its parts in one function, so that no name is global."""
    parts = "\n".join(_script(TEMPLATES / "page" / f"{name}.js") for name in PARTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def _script(path: Path) -> str:
    text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
    low = text.lower()
    if "</script" in low or "<!--" in low:
        raise PageError(
            f"{path.name} can't be put inside a page: use another Bokeh: {extras.command('page')}"
        )
    return text


def script_hash(text: str) -> str:
    """The hash of a script, as the content security policy of a page names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
