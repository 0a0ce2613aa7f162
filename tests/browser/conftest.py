# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one browser for all tests, a page of invented records, and tabs in which an error or a request fails."""

import os

import pytest

from tests.browser import chromium
from tests.browser.records import write
from tests.checkout import ROOT
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


def make(directory):
    """The report of the records in a directory, beside it; its first page."""
    from meshmark.report import report

    found = report.find_records([directory])
    report.write_pages(report.make_report(found.sources, found.beside), directory.parent / "out")
    return directory.parent / "out" / "index.html"


@pytest.fixture(scope="session")
def page_file(tmp_path_factory, browser):
    directory = tmp_path_factory.mktemp("page")
    write(directory / "records")
    return make(directory / "records")


@pytest.fixture
def open_file(browser):
    """A function that opens a page at a fragment. At the end nothing may have been logged, or asked for beyond the
    files beside it."""
    contexts, wrong, asked, opened = [], [], [], []

    def open_(file, fragment="", width=1280, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        opened.append(file.parent.as_uri())
        tab = context.new_page()
        tab.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
        tab.on("pageerror", lambda e: wrong.append(str(e)))
        tab.on("dialog", lambda d: wrong.append(f"dialog: {d.message}"))
        tab.on("request", lambda r: asked.append(r.url))
        tab.goto(file.as_uri() + fragment)
        tab.wait_for_selector("html[data-ready=yes]")
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert not wrong
    of = [url.partition("#")[0] for url in asked if not url.startswith(("data:", "blob:"))]
    assert all(url.endswith(".html") and url.rpartition("/")[0] in opened for url in of), of


@pytest.fixture(scope="session")
def published(tmp_path_factory, browser):
    """The page of the published results, drawn by the code as it is now."""
    from meshmark.report import page

    data = page.data_of((ROOT / "results" / "page" / "index.html").read_text(encoding="utf-8"))
    file = tmp_path_factory.mktemp("published") / "index.html"
    file.write_text(page.page(data), encoding="utf-8")
    return file


@pytest.fixture
def open_page(open_file, page_file):
    """A function that opens the page of made-up records at a fragment."""
    return lambda fragment="", **options: open_file(page_file, fragment, **options)
