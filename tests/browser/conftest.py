# SPDX-License-Identifier: Apache-2.0
"""One browser for all tests, a page of made-up records, and a tab that minds what it is told to do."""

import os

import pytest

from tests.browser import chromium
from tests.browser.records import write
from tests.cluster import packages


@pytest.fixture(scope="session")
def browser():
    """Chromium; where MESHMARK_BROWSER=1 says that it must be there, it is installed, and its absence is a failure."""
    required = os.environ.get("MESHMARK_BROWSER") == "1"
    if required and not chromium.program():
        try:
            packages.install({"chromium": "chromium"})
        except packages.Missing as error:
            pytest.fail(f"no browser to test the page in: {error}", pytrace=False)
    reason = chromium.missing() or _page_missing()
    if reason:
        (pytest.fail if required else pytest.skip)(reason)
    with chromium.browser() as found:
        yield found


def _page_missing() -> str:
    from importlib.util import find_spec

    absent = [name for name in ("bokeh", "jinja2", "pandas", "tabulate") if find_spec(name) is None]
    return f"{', '.join(absent)} not installed: pip install -e '.[page]'" if absent else ""


@pytest.fixture(scope="session")
def page_file(tmp_path_factory, browser):
    from meshmark.report import report

    directory = tmp_path_factory.mktemp("page")
    write(directory / "records")
    found = report.find([directory / "records"])
    texts = report.make_report(found.sources, found.beside)
    report.write(texts, directory / "out")
    return directory / "out" / "index.html"


@pytest.fixture
def open_page(browser, page_file):
    """A function that opens the page at a fragment; at the end nothing may have been logged or asked for."""
    contexts, wrong, asked = [], [], []

    def opened(fragment="", width=1280, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
        tab.on("pageerror", lambda e: wrong.append(str(e)))
        tab.on("dialog", lambda d: wrong.append(f"dialog: {d.message}"))
        tab.on("request", lambda r: asked.append(r.url))
        tab.goto(page_file.as_uri() + fragment)
        tab.wait_for_selector("html[data-ready=yes]")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert not wrong
    assert {url.partition("#")[0] for url in asked if not url.startswith(("data:", "blob:"))} <= {
        page_file.as_uri()
    }
