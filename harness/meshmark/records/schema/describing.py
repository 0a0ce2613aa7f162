# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of one object or value, made from its annotation: a TypedDict, and Fields with meaning and limits."""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from meshmark.records.fields import Field, entries, last, taken_apart

PRIMITIVES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}

LIMITS = {
    "string": {"most": "maxLength", "pattern": "pattern"},
    "integer": {"least": "minimum", "above": "exclusiveMinimum", "most": "maximum"},
    "number": {"least": "minimum", "above": "exclusiveMinimum", "most": "maximum"},
    "array": {"fewest": "minItems", "most": "maxItems"},
    "object": {"fewest": "minProperties", "most": "maxProperties"},
}
"""The keywords that hold a Field's limits, by JSON type."""


def docstring(definition: type) -> str:
    """The docstring of a TypedDict, in one line."""
    return " ".join((definition.__doc__ or "").split())


def describe_object(
    definition: type, definitions: dict[str, Any], fields: tuple[Field, ...] = ()
) -> dict[str, Any]:
    """The schema of a TypedDict. What has a name is added to the definitions."""
    listed = entries(definition)
    found: dict[str, Any] = {"type": "object"}
    if required := [entry.name for entry in listed if entry.required]:
        found["required"] = required
    found["properties"] = {entry.name: describe_value(entry.type, definitions) for entry in listed}
    if last(fields, "closed"):
        found["additionalProperties"] = False
    elif (rest := last(fields, "rest")) is not None:
        found["additionalProperties"] = describe_value(rest, definitions)
    return found


def describe_value(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
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
        arms = [describe_value(arm, definitions) for arm in arguments]
        simple = [arm["type"] for arm in arms if set(arm) == {"type"}]
        return {"type": simple} if len(simple) == len(arms) else {"anyOf": arms}
    if is_typeddict(plain):
        return describe_object(plain, definitions, fields)
    found: dict[str, Any]
    if origin is tuple:
        return {
            "type": "array",
            "prefixItems": [describe_value(one, definitions) for one in arguments],
            "minItems": len(arguments),
            "maxItems": len(arguments),
        }
    if origin is list:
        found = {"type": "array", "items": describe_value(arguments[0], definitions)}
    elif origin is dict:
        found = {"type": "object"}
        if keys := last(fields, "keys"):
            found["propertyNames"] = {"pattern": keys}
        if value := describe_value(arguments[1], definitions):
            found["additionalProperties"] = value
    elif choices := last(fields, "choices"):
        return {"enum": list(choices)}
    else:
        found = {"type": PRIMITIVES[plain]}
    for attribute, keyword in LIMITS.get(found["type"], {}).items():
        if (limit := last(fields, attribute)) not in (None, ""):
            found[keyword] = limit
    return found
