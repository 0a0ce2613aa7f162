# SPDX-License-Identifier: Apache-2.0
"""Makes the page of records, field by field, from their JSON Schema."""

import json
from collections.abc import Iterator
from typing import Any

from docs import package
from docs.commands_page import cell
from meshmark.records import reading

INTRODUCTION = """# Records, field by field

`--record FILE` writes a record file: one JSON object per line, append-only, flushed after each case. The first line of
a run describes the run. Every other line names its run. This page is made from the JSON Schema
([records.schema.json]({schema})), by which `meshmark validate` checks each line.

- A run of `meshmark test` or `meshmark bench` writes what it chose (`chosen`), and closes with what the file holds
  (`end`). A file without its closing line is of a run that did not end, or was cut: `levels`, `report` and the other
  readers say how many of the chosen cases are there, and `validate` refuses it. `--resume` takes the line away and
  writes a new one. Files of earlier versions have neither line: their run line has no `closes`, and a cut can't be seen
  in them. The line shows a cut and a slip. It is not a proof: whoever can write records can write it.
- Fields that are not listed may stand in a line. A reader ignores them.
- A number that JSON cannot write stands as the text `inf`, `-inf` or `nan`.
- Sizes are bytes, times are seconds, unless the name says otherwise.
- Every command reads a file in these limits: {lines:,} lines and {gib} GiB, unpacked; {characters:,} characters in a
  line; {brackets} brackets inside each other. A larger file is refused before it fills the memory: record fewer cases
  in one file. A line that is too long ends the reading with a problem, and a line that is too deep is one.
"""

LIMITS = {
    "lines": reading.MOST_LINES,
    "gib": reading.MOST_BYTES >> 30,
    "characters": reading.LONGEST,
    "brackets": reading.DEEPEST,
}
"""The limits of the reader, by their names in the introduction."""

KINDS = {
    "run": "One per run, first: what ran, where, on what.",
    "conformance": "One per check of a case.",
    "timing": "One per case, cadence and process: all samples.",
    "ceiling": "One per measured ceiling of the machine.",
    "comparison": "What `meshmark compare` found, and one line per child process.",
    "schedule": "One per compiled program of `meshmark weather`.",
    "chosen": "What the run is to judge, once that is known.",
    "end": "The last line: that the run ended, and how many lines, cases and timings the file has.",
}
"""What a line of each kind is, if the schema does not say it."""


def described(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A schema node merged with the node that it refers to."""
    if "$ref" in node:
        return definitions[node["$ref"].removeprefix("#/$defs/")] | {
            k: v for k, v in node.items() if k != "$ref"
        }
    return node


def kind(node: dict[str, Any], definitions: dict[str, Any]) -> str:
    """The type of a field in words: text, integer from 1, list of number, one of `pass`, `fail` ..."""
    if node.get("$ref") == "#/$defs/number":  # the introduction says which texts stand for a number
        return "number"
    node = described(node, definitions)
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    if "enum" in node:
        return "one of " + ", ".join(f"`{value}`" for value in node["enum"])
    if "anyOf" in node or "oneOf" in node:
        return " or ".join(kind(one, definitions) for one in node.get("anyOf", node.get("oneOf")))
    types = node.get("type", "any")
    names = {"string": "text", "array": "list", "object": "object", "null": "null"}
    text = " or ".join(names.get(t, t) for t in ([types] if isinstance(types, str) else types))
    if types == "array" and "items" in node:
        text = f"list of {kind(node['items'], definitions)}"
    if types == "object" and isinstance(node.get("additionalProperties"), dict):
        text = f"object of {kind(node['additionalProperties'], definitions)}"
    for word, name in (("from", "minimum"), ("above", "exclusiveMinimum"), ("to", "maximum")):
        if name in node:
            text += f" {word} {node[name]}"
    return f"{text}, in {node['unit']}" if "unit" in node else text


def fields(
    node: dict[str, Any], definitions: dict[str, Any], before: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    """(name, type, whether it is required, meaning) of each field and of the fields inside it."""
    required = node.get("required", ())
    for name, inner in node.get("properties", {}).items():
        full = described(inner, definitions)
        need = "yes" if name in required else ""
        yield f"{before}{name}", kind(inner, definitions), need, full.get("description", "")
        inside, mark = full, "."
        while inside.get("type") == "array" and "items" in inside:
            inside, mark = described(inside["items"], definitions), f"[]{mark}"
        if inside.get("properties") and inner.get("$ref") != "#/$defs/facts":
            yield from fields(inside, definitions, f"{before}{name}{mark}")


def table(node: dict[str, Any], definitions: dict[str, Any]) -> Iterator[str]:
    """The table of a definition's fields."""
    yield "| field | type | required | meaning |\n|---|---|---|---|"
    for name, type_, need, meaning in fields(node, definitions):
        yield f"| `{name}` | {cell(type_)} | {need} | {cell(meaning)} |"
    yield ""


def page(link: str) -> str:
    """The Markdown of the page; `link` leads to the schema itself."""
    schema = json.loads(package.SCHEMA.read_text(encoding="utf-8"))
    definitions = schema["$defs"]
    parts = [INTRODUCTION.format(schema=link, **LIMITS)]
    for name in schema["properties"]["kind"]["enum"]:
        node = definitions[name]
        parts += [
            f"## Kind `{name}`\n",
            node.get("description") or KINDS.get(name, ""),
            "",
            *table(node, definitions),
        ]
    facts = definitions["facts"]
    parts += ["## Facts of a run\n", facts.get("description") or "The field `facts` of a run line.", ""]
    parts += [*table(facts, definitions)]
    return "\n".join(parts) + "\n"
