# SPDX-License-Identifier: Apache-2.0
"""The headings of Markdown files, as links name them."""

import re


def anchors(text: str) -> set[str]:
    """The anchors of a Markdown file's headings, as the site and common hosts make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
