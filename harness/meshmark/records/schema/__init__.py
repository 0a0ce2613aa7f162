# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of a record line, made from the definition (meshmark.records.definition).

`python -m meshmark.records.schema` writes it to records.schema.json beside this module. The file is committed, since
others check records with it; a test compares it with the definition. Each field has its `description` and,
where it has one, its `unit`, which validators leave alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from meshmark.records.definition import KINDS, KNOWN_NEEDS, LINES
from meshmark.records.fields import Field, entries, last, taken_apart
from meshmark.records.shared import SCHEMA, Check, EveryLine, Number, Verdict

FILE = Path(__file__).resolve().parent / "records.schema.json"
"""The published schema."""

PRIMITIVES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}

LIMITS = {
    "string": {"most": "maxLength", "pattern": "pattern"},
    "integer": {"least": "minimum", "above": "exclusiveMinimum", "most": "maximum"},
    "number": {"least": "minimum", "above": "exclusiveMinimum", "most": "maximum"},
    "array": {"fewest": "minItems", "most": "maxItems"},
    "object": {"fewest": "minProperties", "most": "maxProperties"},
}
"""The keywords that hold a Field's limits, by JSON type."""


def made() -> dict[str, Any]:
    """The JSON Schema of one record line."""
    definitions: dict[str, Any] = {}
    for shared in (Number, Verdict, Check):
        _value(shared, definitions)
    for kind, line in LINES.items():
        definitions[kind] = {"description": _told(line)} | _object(line, (), definitions)
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


def _told(definition: type) -> str:
    return " ".join((definition.__doc__ or "").split())


def _object(definition: type, fields: tuple[Field, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a TypedDict."""
    listed = entries(definition)
    found: dict[str, Any] = {"type": "object"}
    if required := [entry.name for entry in listed if entry.required]:
        found["required"] = required
    found["properties"] = {entry.name: _value(entry.type, definitions) for entry in listed}
    if last(fields, "closed"):
        found["additionalProperties"] = False
    elif (rest := last(fields, "rest")) is not None:
        found["additionalProperties"] = _value(rest, definitions)
    return found


def _value(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one annotation. What has a name is added to the definitions, and referred to."""
    plain, fields = taken_apart(hint)
    named = next((i for i, field in enumerate(fields) if field.name), None)
    if named is None:
        return _annotated(_limited(plain, fields, definitions), fields)
    own, more = fields[: named + 1], fields[named + 1 :]
    definitions.setdefault(own[-1].name, _annotated(_limited(plain, own, definitions), own))
    return _annotated({"$ref": f"#/$defs/{own[-1].name}"}, more)


def _annotated(schema: dict[str, Any], fields: tuple[Field, ...]) -> dict[str, Any]:
    said = {what: last(fields, what) for what in ("description", "unit")}
    return {what: value for what, value in said.items() if value} | schema


def _limited(plain: Any, fields: tuple[Field, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a plain type with the limits of its fields."""
    origin, arguments = get_origin(plain), get_args(plain)
    if plain is Any:
        return {}
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin in (Union, UnionType):
        arms = [_value(arm, definitions) for arm in arguments]
        simple = [arm["type"] for arm in arms if set(arm) == {"type"}]
        return {"type": simple} if len(simple) == len(arms) else {"anyOf": arms}
    if is_typeddict(plain):
        return _object(plain, fields, definitions)
    found: dict[str, Any]
    if origin is list:
        found = {"type": "array", "items": _value(arguments[0], definitions)}
    elif origin is dict:
        found = {"type": "object"}
        if keys := last(fields, "keys"):
            found["propertyNames"] = {"pattern": keys}
        if value := _value(arguments[1], definitions):
            found["additionalProperties"] = value
    elif choices := last(fields, "choices"):
        return {"enum": list(choices)}
    else:
        found = {"type": PRIMITIVES[plain]}
    for attribute, keyword in LIMITS.get(found["type"], {}).items():
        if (limit := last(fields, attribute)) not in (None, ""):
            found[keyword] = limit
    return found
