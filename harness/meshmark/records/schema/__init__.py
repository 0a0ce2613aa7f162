# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of a record line, made from the definition (meshmark.records.definition).

`python -m meshmark.records.schema` writes it to records.schema.json beside this module. The file is committed, since
others check records with it; a test compares it with the definition. Each field has its `description` and,
where it has one, its `unit`, which validators leave alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from meshmark.records.definition import KINDS, KNOWN_NEEDS, LINES
from meshmark.records.fields import entries
from meshmark.records.schema.describing import describe_object, describe_value, docstring
from meshmark.records.shared import SCHEMA, Check, EveryLine, Number, Verdict

FILE = Path(__file__).resolve().parent / "records.schema.json"
"""The published schema."""


def made() -> dict[str, Any]:
    """The JSON Schema of one record line."""
    definitions: dict[str, Any] = {}
    for shared in (Number, Verdict, Check):
        describe_value(shared, definitions)
    for kind, line in LINES.items():
        definitions[kind] = {"description": docstring(line)} | describe_object(line, definitions)
    definitions["conformance"] |= {
        "if": {"properties": {"verdict": {"const": "known"}}},
        "then": {"required": list(KNOWN_NEEDS)},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Meshmark record, schema {SCHEMA}",
        "description": "One line of a record file. Its `kind` names the definition that it follows. Fields that are not"
        " listed may be there, and readers leave them alone.",
        "type": "object",
        "required": [*(entry.name for entry in entries(EveryLine) if entry.required), "kind"],
        "properties": {"kind": {"description": "What the line holds.", "enum": list(KINDS)}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"$ref": f"#/$defs/{kind}"}}
            for kind in KINDS
        ],
        "$defs": definitions,
    }


def read_schema() -> str:
    """The contents of the published file."""
    return json.dumps(made(), indent=1, ensure_ascii=False) + "\n"
