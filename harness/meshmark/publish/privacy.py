# SPDX-License-Identifier: Apache-2.0
"""Checks the privacy of a submission: of its records, its logs, and its product.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from meshmark.publish import logs, publishable
from meshmark.publish.bundles import Bundle, Room
from meshmark.publish.review import Entry, Review
from meshmark.records.product_definition import ProductData
from meshmark.records.results import PRODUCT

NAMED = 0b11110
"""The bits in the head of a packed file that say that a name, a comment or further bytes follow: gzip writes the name
of the file, which may be that of a person or project, and no reader shows it. `submit` writes none."""

LONGEST_TEXT = 20_000
"""Characters of the longest text in a record: the search for addresses takes time."""


def check_privacy(
    bundle: Bundle,
    files: Mapping[str, Sequence[Entry]],
    product: ProductData,
    room: Room,
    review: Review,
) -> None:
    """Complain about names of persons, hosts and places, except in the contact. room: how much may still be read."""
    versions: set[str] = {bundle.release}
    for lines in files.values():
        for _, record in lines:
            if record["kind"] == "run":
                versions |= publishable.versions_of(record["facts"])
    seen: dict[str, list[tuple[str, str]]] = {}
    for name, lines in files.items():
        for number, record in lines:
            for where, text in publishable.strings(record):
                if len(text) > LONGEST_TEXT:
                    why = (
                        f"{where[:60]!a} has {len(text)} characters, and {LONGEST_TEXT} are read: shorten it"
                    )
                    review.complain(name, why, number, "long text")
                    continue
                if text not in seen:
                    seen[text] = publishable.find_private_text(text, versions)
                for what, hit in seen[text]:
                    mend = "submit again, which replaces it"
                    review.complain(name, f"{where[:60]!a} holds {what}: {hit!a}: {mend}", number, "privacy")
    for name in sorted(filter(logs.NAME.fullmatch, bundle.files)):
        for number, text in logs.find_wrong_log_lines(bundle.files[name], versions, room):
            review.complain(name, text, number, "log")
    for name, file in bundle.files.items():
        if name.endswith(".gz") and file.data[3:4] and file.data[3] & NAMED:
            review.complain(
                name, "its packed head holds a name or a comment: submit again, which packs it without"
            )
    contact = product.get("contact", "")
    keep = {contact, *re.findall(r"[^\s<>(),;]+@[^\s<>(),;]+", contact)}
    for where, text in publishable.strings(product):
        for what, hit in publishable.find_private_text(text, versions, keep):
            review.complain(
                PRODUCT, f"{where[:60]!a} holds {what}: {hit!a}: take it out (a contact goes into `contact`)"
            )
