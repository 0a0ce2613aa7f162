# SPDX-License-Identifier: Apache-2.0
"""The lines of a submitted record file, each checked against the published JSON Schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from meshmark.core import extras
from meshmark.publish import bundles
from meshmark.publish.bundles import Bundle, BundleError, Room
from meshmark.publish.review import Entry, Review
from meshmark.records import schema
from meshmark.records.definition import KINDS
from meshmark.records.reading import Records


def entries(bundle: Bundle, name: str, room: Room, review: Review) -> list[Entry]:
    """The lines of a record file that follow the schema; each other line becomes a complaint."""
    found: list[Entry] = []
    declared: set[str] = set()
    for number, record in bundles.read_lines(bundle.files[name], room):
        if isinstance(record, str):
            review.complain(name, record, number, "not a record")
            continue
        if why := schema_problem(record):
            review.complain(
                name, f"{why}: make the file again, or use the suite that wrote it", number, "schema"
            )
            continue
        if record["kind"] == "run":
            declared.add(record["run"])
        elif record["run"] not in declared:
            review.complain(
                name, f"run {record['run']} has no run line above: submit whole files", number, "run"
            )
            continue
        found.append((number, record))
    return found


@cache
def _validators() -> dict[str, Any]:
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        raise BundleError(
            f"records are checked with jsonschema, which is not installed: {extras.command('submit')}"
        ) from None
    published = json.loads(schema.FILE.read_text(encoding="utf-8"))
    definitions = published["$defs"]
    return {k: Draft202012Validator({"$ref": f"#/$defs/{k}", "$defs": definitions}) for k in KINDS}


def _innermost(error: Any) -> Any:
    """The most specific error: if a value fits none of several types, why it does not fit the nearest one."""
    from jsonschema.exceptions import best_match

    return best_match([error])


_FITTING: set[bytes] = set()
"""Digests of records that follow the schema. `submit` checks its input and then its output, so it asks the schema only
once for each line."""

_MOST_FITTING = 1 << 17
"""The most digests to keep: at most 20 MB of memory."""


def schema_problem(record: Mapping[str, Any]) -> str:
    """Why a record does not follow the published JSON Schema; "" if it does."""
    kind = record.get("kind")
    if not isinstance(kind, str) or kind not in _validators():
        return f"not a record: `kind` must be one of {', '.join(KINDS)}"
    # repr separates what the schema separates, such as 1, 1.0 and True, and is faster than JSON.
    digest = hashlib.sha256(repr(record).encode("utf-8", "surrogatepass")).digest()
    if digest in _FITTING:
        return ""
    error = next(_validators()[kind].iter_errors(record), None)
    if error is None:
        if len(_FITTING) >= _MOST_FITTING:
            _FITTING.clear()
        _FITTING.add(digest)
        return ""
    error = _innermost(error)
    where = ".".join(str(part)[:30] for part in error.absolute_path) or kind
    return f"schema: {where[:80]}: {str(error.message)[:120]}"


def as_records(lines: Sequence[Entry]) -> Records:
    """Checked lines as meshmark.records.reading reads them."""
    found = Records()
    for _, record in lines:
        found.add(record)
    return found
