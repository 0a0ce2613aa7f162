# SPDX-License-Identifier: Apache-2.0
"""Makes the page on the data of the results' page, object by object, from their definition."""

import inspect
import re
from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin, is_typeddict

from docs import records_page
from docs.commands_page import cell
from meshmark.records.fields import entries, last, taken_apart
from meshmark.records.schema.describing import describe_value
from meshmark.report.page_definition import PageData

INTRODUCTION = """# The page's data, field by field

[The page of the results](page.md) holds its data as JSON, in the element `<script id="data">`. Anyone can read them:

    from pathlib import Path
    from meshmark.report import page

    data = page.data_of(Path("results/page/index.html").read_text(encoding="utf-8"))
    print([run["label"] for run in data["runs"]])

`meshmark.report.page_definition.describe()` gives their JSON Schema, by which a test checks the published page. The
records behind the page hold more ([records, field by field](records.md)).

- Tables are stored by column. Every column of a table has one value per row.
- A column of texts holds indices of `strings`. The tables below call such an index *index of a text*.
- Sizes are bytes, times are seconds, unless the field says otherwise.
- A figure has five significant digits. Null stands for an unknown or an infinite one.
"""


def title(definition: type) -> str:
    """The heading of an object: PageData is Page data."""
    return " ".join(re.findall(r"[A-Z][a-z]*", definition.__name__)).capitalize()


def anchor(definition: type) -> str:
    """The address of an object's heading in the page."""
    return "#" + title(definition).lower().replace(" ", "-")


def kind(hint: Any) -> str:
    """The type of a field in words, with links to the objects that it holds."""
    plain, fields = taken_apart(hint)
    origin, arguments = get_origin(plain), get_args(plain)
    unit = f", in {found}" if (found := last(fields, "unit")) else ""
    if last(fields, "description") == "An index of `strings`.":
        return "index of a text"
    if is_typeddict(plain):
        return f"[{title(plain).lower()}]({anchor(plain)})"
    if plain is type(None):
        return "null"
    if origin is list:
        return f"list of {kind(arguments[0])}{unit}"
    if origin is tuple:
        return f"({', '.join(map(kind, arguments))}){unit}"
    if origin is dict:
        return f"object of {kind(arguments[1])}{unit}"
    if plain == float | None:
        return f"figure{unit}"
    if origin in (Union, UnionType):
        return " or ".join(map(kind, arguments)) + unit
    return records_page.kind(describe_value(hint, {}), {})


def inside(hint: Any) -> Iterator[type]:
    """The objects that a field holds."""
    plain, _ = taken_apart(hint)
    if is_typeddict(plain):
        yield plain
    for argument in get_args(plain):
        yield from inside(argument)


def objects() -> list[type]:
    """The objects of a page's data: the whole first, each other one once, after the first that holds it."""
    found: list[type] = [PageData]
    for one in found:
        for entry in entries(one):
            found.extend(dict.fromkeys(held for held in inside(entry.type) if held not in found))
    return found


def page() -> str:
    """The Markdown of the page."""
    parts = [INTRODUCTION]
    for one in objects():
        parts += [f"## {title(one)}\n", f"{inspect.cleandoc(one.__doc__ or '')}\n"]
        parts.append("| field | type | required | meaning |\n|---|---|---|---|")
        for entry in entries(one):
            meaning = last(taken_apart(entry.type)[1], "description")
            if meaning == "An index of `strings`.":
                meaning = ""
            parts.append(
                f"| `{entry.name}` | {cell(kind(entry.type))} | {'yes' if entry.required else ''} | {cell(meaning)} |"
            )
        parts.append("")
    return "\n".join(parts)
