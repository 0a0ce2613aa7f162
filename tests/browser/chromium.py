# SPDX-License-Identifier: Apache-2.0
"""Chromium from the system's packages, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def missing() -> str:
    """Why there is no browser here; "" where there is one."""
    if find_spec("playwright") is None:
        return "playwright is not installed: pip install playwright"
    if not program():
        return "no Chromium: apt-get install chromium"
    return ""


def program() -> str | None:
    """Where Chromium is."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def axe() -> Any:
    """The module of axe-core. Where it is absent, the test is skipped; it fails where MESHMARK_BROWSER=1 says that
    everything for the browser must be there."""
    if find_spec("axe_playwright_python") is None and os.environ.get("MESHMARK_BROWSER") == "1":
        pytest.fail("axe-playwright-python is not installed", pytrace=False)
    return pytest.importorskip("axe_playwright_python.sync_playwright")


@contextmanager
def browser() -> Iterator[Any]:
    """A browser without a network to speak of: whatever it asks for beyond files and this machine is
    refused by name."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        found = playwright.chromium.launch(executable_path=program(), args=arguments)
        try:
            yield found
        finally:
            found.close()
