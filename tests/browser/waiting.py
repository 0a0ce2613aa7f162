# SPDX-License-Identifier: Apache-2.0
"""Waits for texts of the page that appear after an event."""

SECONDS = 20
"""The longest wait. The events `toggle`, `close` and `hashchange` come after the click that causes them, and a busy
machine brings them late."""


def shows(tab, selector: str, *texts: str) -> None:
    """Wait until the elements of `selector` show each of `texts`.

    Raises AssertionError, with what they show instead, when a text does not come within `SECONDS`.
    """
    from playwright.sync_api import expect

    for text in texts:
        expect(tab.locator(selector)).to_contain_text(text, use_inner_text=True, timeout=SECONDS * 1000)
