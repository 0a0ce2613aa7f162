# SPDX-License-Identifier: Apache-2.0
"""False values for every field: other values of the same type, no value, and values of another line or run.

Each change has a sort, by which the table of the audit counts. This module does not know what a field means.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from meshmark.records import results
from meshmark.records.definition import LINES
from meshmark.records.fields import entries, last, taken_apart
from meshmark.records.product_definition import ProductData
from tests.audit.bundles import Change, Files, Honest, Line

Path = tuple[Any, ...]
"""The way to a value in a line."""

FEW = 3
"""So many values of one sort."""


@dataclass(frozen=True)
class Falsehood:
    """One false value, in one line or in all lines alike."""

    field: str
    """The field: `timing.samples_s`, or two of them."""
    sort: str
    where: str
    """Which line of the part, in words."""
    kind: str
    change: Change
    file: str = ""
    """The one file of the part that it is in; "" where it is in all of them."""

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"{self.field} · {self.sort} · {self.where}"


def fields_of(hint: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Each field below an annotation, by name, with its annotation."""
    plain, _ = taken_apart(hint)
    if get_origin(plain) is list:
        (inner,) = get_args(plain)
        yield from fields_of(inner, f"{place}[]")
    elif isinstance(plain, type) and hasattr(plain, "__required_keys__"):
        for entry in entries(plain):
            own = f"{place}.{entry.name}"
            yield own, entry.type
            yield from fields_of(entry.type, own)


FIELDS: dict[str, Any] = {name: hint for kind, line in LINES.items() for name, hint in fields_of(line, kind)}
"""Every field of every kind of line, such as `run.facts.devices[].id`."""


def name_of(kind: str, path: Path) -> str:
    """The name of a place in a line."""
    found = kind
    for part in path:
        found += "[]" if isinstance(part, int) else f".{part}"
        if found not in FIELDS and not found.endswith("[]"):
            return found.rsplit(".", 1)[0] + "{}"
    return found


def values(line: Line) -> Iterator[tuple[Path, Any]]:
    """Every place in a line with its value; of a list its first two items, of a mapping its first six."""

    def walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        if path:
            yield path, value
        if isinstance(value, dict):
            for name, inner in list(value.items()):
                yield from walk(inner, (*path, name))
        elif isinstance(value, list):
            for number, inner in enumerate(value[:2]):
                if isinstance(inner, (dict, list)):
                    yield from walk(inner, (*path, number))

    yield from walk(line, ())


def get(line: Any, path: Path) -> Any:
    """The value at a place; KeyError and the like where there is none."""
    for part in path:
        line = line[part]
    return line


def put(line: Any, path: Path, value: Any) -> None:
    """Another value at a place."""
    get(line, path[:-1])[path[-1]] = value


ABSENT = object()

USUAL = {
    "seed": 0,
    "repeat": 1,
    "calls": 1,
    "profile": "standard",
    "layout": "plain",
    "timed": False,
    "scaling": False,
}
"""What a field that is not there stands for. Without it the line says the same, and so it does where the field was
empty: such a change is no lie."""

IN_ANY_ORDER = "run.selection."
"""Lists of choices, in which order and repetition say nothing."""


def _is_usual(name: Any, value: Any) -> bool:
    return value in ("", None) or value == [] or value == {} or (name in USUAL and USUAL[name] == value)


def others(name: str, value: Any, pool: list[Any]) -> Iterator[tuple[str, Any]]:
    """(sort, another value) for a value of the field of this name; pool: what other lines have there."""
    yield from (one for one in _others(name, value, pool) if one[1] != value)


def _others(name: str, value: Any, pool: list[Any]) -> Iterator[tuple[str, Any]]:
    hint = FIELDS.get(name)
    said = taken_apart(hint)[1] if hint is not None else ()
    different = [one for one in pool if one != value]
    yield from (("another's", one) for one in different[:FEW])
    if isinstance(value, bool):
        yield "the opposite", not value
    elif isinstance(value, (int, float)):
        yield from _numbers(value)
    elif isinstance(value, str):
        if choices := last(said, "choices"):
            yield from ((f"{one} instead", one) for one in choices if one != value)
        yield from (("another text", one) for one in _texts(value))
    elif isinstance(value, list) and value:
        yield "shorter", value[:-1]
        yield "longer", [*value, copy.deepcopy(value[-1])]
        if len(value) > 1:
            mixed = random.Random(len(value)).sample(value, len(value))
            yield "in another order", value[::-1] if mixed == value else mixed
        if len(value) > 3 and all(isinstance(v, float) for v in value):
            yield "a little more", [v * 1.1 for v in value]
            yield "a little less", [v * 0.9 for v in value]
            yield "much more", [v * 1000 for v in value]
            yield "much less", [v / 1000 for v in value]
            yield "shorter", sorted(value, key=value.index)[: len(value) // 2]
            yield "shorter", [v for v in value if v != max(value)]
    elif isinstance(value, dict) and value:
        for key in [key for key in value if not _is_usual(key, value[key])][:FEW]:
            yield "shorter", {k: v for k, v in value.items() if k != key}
    elif value is None:
        yield "a little more", 1


def made_up(hint: Any) -> list[Any]:
    """Values for a field that no published line has."""
    plain, said = taken_apart(hint)
    if choices := last(said, "choices"):
        return list(choices[:2])
    if pattern := last(said, "pattern"):
        return ["0123456789abcdef"[: int(re.search(r"{(\d+)}", pattern)[1])] if "0-9a-f" in pattern else "L1"]
    if get_origin(plain) is Literal:
        return list(get_args(plain))
    if get_origin(plain) is list:
        return [[], [one for one in made_up(get_args(plain)[0])[:1]]]
    if get_origin(plain) is dict or hasattr(plain, "__required_keys__"):
        return [{}]
    if get_origin(plain) in (Union, UnionType):
        return [value for one in get_args(plain) if one is not type(None) for value in made_up(one)][:3]
    return {int: [0, 1], float: [0.0, 0.25], str: ["", "x"], bool: [True, False]}.get(plain, [])


def _numbers(value: float) -> Iterator[tuple[str, Any]]:
    whole = isinstance(value, int)
    if value:
        more, less = (value + 1, value - 1) if whole else (value * 1.1, value * 0.9)
        yield "a little more", more
        yield "a little less", less
        yield "much more", value * 1000
        yield "much less", value // 1000 if whole else value / 1000
        yield "nothing", 0 if whole else 0.0
    else:
        yield "a little more", 1 if whole else 1e-6
        yield "much more", 1_000_000 if whole else 1e6


def _texts(value: str) -> Iterator[str]:
    """Texts that are nearly the same: another last digit, one more letter, another case."""
    digits = [i for i, letter in enumerate(value) if letter.isdigit()]
    for at in dict.fromkeys(digits[-1:] + digits[:1]):
        yield value[:at] + str((int(value[at]) + 1) % 10) + value[at + 1 :]
    yield value + "x"
    if value:
        yield ""


def lines_of(one: Honest) -> Iterator[tuple[str, str, int, Line]]:
    """(in words, file, index, line) of the lines that stand for all of their class."""
    seen: set[tuple[str, ...]] = set()
    for name, lines in one.files.items():
        for number, line in enumerate(lines):
            kind = line["kind"]
            about = [name.partition(".")[0], kind]
            if kind == "conformance":
                about += [line["check"], line["verdict"]]
                about += ["rounded"] if line.get("bound") else []
                about += ["that exchanges"] if line.get("collectives") else []
                about += [n for n in ("fixed", "signal", "told", "workspace_bytes", "deviation") if n in line]
                about += ["spelled"] if line["mode"] == "manual" and kind == "communication" else []
            elif kind == "timing":
                about += [line["cadence"]] + ["with a control"] * ("control_s" in line)
            elif kind == "ceiling":
                about += [line["name"]]
            key = tuple(about)
            if key not in seen:
                seen.add(key)
                yield " ".join(about), name, number, line


OTHER_MACHINES = {
    "run.facts.host.machine": ["x86_64", "aarch64"],
    "run.facts.host.system": ["Linux", "Darwin", "Windows"],
}
"""What honest lines of other machines would have. All products of this repository are of one kind of host."""


def pools(every: list[Honest]) -> dict[str, list[Any]]:
    """What lines have in each field, by its name; a few different values of each."""
    found: dict[str, list[Any]] = copy.deepcopy(OTHER_MACHINES)
    for one in every:
        for lines in one.files.values():
            for line in lines:
                for path, value in values(line):
                    own = found.setdefault(name_of(line["kind"], path), [])
                    if (
                        len(own) < 8
                        and value not in own
                        and not (isinstance(value, list) and len(value) > 200)
                    ):
                        own.append(value)
    return found


def on_line(name: str, number: int, path: Path, value: Any) -> Change:
    """Another value at one place of one line; ABSENT takes the field away."""

    def change(files: Files, product: Line) -> None:
        line = files[name][number] = copy.deepcopy(files[name][number])
        if value is ABSENT:
            del get(line, path[:-1])[path[-1]]
        else:
            put(line, path, copy.deepcopy(value))

    return change


def on_all(kind: str, path: Path, was: Any, value: Any) -> Change:
    """The same value in every line of the kind that has the first one there."""

    def change(files: Files, product: Line) -> None:
        for lines in files.values():
            for number, line in enumerate(lines):
                if line["kind"] != kind:
                    continue
                try:
                    if get(line, path) == was:
                        line = lines[number] = copy.deepcopy(line)
                        if value is ABSENT:
                            del get(line, path[:-1])[path[-1]]
                        else:
                            put(line, path, copy.deepcopy(value))
                except (KeyError, IndexError, TypeError):
                    continue

    return change


def in_order(*changes: Change) -> Change:
    """One change after the other."""

    def change(files: Files, product: Line) -> None:
        for one in changes:
            one(files, product)

    return change


def single(one: Honest, pool: Mapping[str, list[Any]]) -> Iterator[Falsehood]:
    """Every false value of one field of one part."""
    for where, name, number, line in lines_of(one):
        kind, there = line["kind"], set()
        file = "" if kind == "run" else name
        for path, value in values(line):
            field = name_of(kind, path)
            there.add(field)
            if path[0] in UNTOUCHED:
                continue
            found = [*others(field, value, pool.get(field, []))]
            if isinstance(path[-1], str) and not _is_usual(path[-1], value):
                found.append(("absent", ABSENT))
            for sort, other in found:
                if field.startswith(IN_ANY_ORDER) and sort in ("longer", "in another order"):
                    continue
                yield Falsehood(field, sort, where, kind, on_line(name, number, path, other), file)
                if kind == "run":
                    all_alike = on_all(kind, path, value, other)
                    yield Falsehood(field, sort, "every run line", kind, all_alike)
        for field, hint in FIELDS.items():
            _, *path = field.split(".")
            if not field.startswith(f"{kind}.") or field in there or "[]" in field or path[-1] in UNTOUCHED:
                continue
            try:
                if not isinstance(get(line, tuple(path[:-1])), dict):
                    continue
            except (KeyError, TypeError):
                continue
            for value in pool.get(field, [])[:2] or made_up(hint):
                if not _is_usual(path[-1], value):
                    yield Falsehood(
                        field, "added", where, kind, on_line(name, number, tuple(path), value), file
                    )


UNTOUCHED = ("schema", "kind")
"""What makes a line a line of its kind."""


def of_product(one: Honest) -> Iterator[Falsehood]:
    """Every false value of a field of product.yaml."""
    told = {"level": "L9", "contact": "https://example.org/x", "marks": ["other: x"], "title": "Eight TPUs"}
    for name in ProductData.__annotations__:
        value = one.product.get(name)
        found = [*others(f"product.{name}", value, []), ("absent", ABSENT)] if value is not None else []
        found += [("added", told[name])] if value is None and name in told else []
        for sort, other in found:
            yield Falsehood(f"product.{name}", sort, "product.yaml", "product", _in_product(name, other))


def _in_product(name: str, value: Any) -> Change:
    def change(files: Files, product: Line) -> None:
        product.pop(name, None)
        if value is not ABSENT:
            product[name] = value

    return change


def of_manifest(one: Honest) -> Iterator[Falsehood]:
    """Every false value of what is made from the records: the manifest and environment.json."""
    for name in (results.MANIFEST, results.ENVIRONMENT):
        made = json.loads(one.sealed.files[name].data)
        for path, value in values(made):
            field = f"{name}." + ".".join(
                "[]" if isinstance(p, int) else p for p in path if "jsonl" not in str(p)
            )
            for sort, other in [*others("", value, []), ("absent", ABSENT)]:
                if isinstance(value, list) and not value:
                    continue
                yield Falsehood(field, sort, name, "made", _in_made(name, path, other))


def _in_made(name: str, path: Path, value: Any) -> Change:
    def change(files: Files, product: Line) -> None:
        product["made"] = (name, path, value)

    return change


def pairs(one: Honest, pool: Mapping[str, list[Any]]) -> Iterator[Falsehood]:
    """Two numbers of one line times the same factor; two facts of a run replaced by those of another."""
    for where, name, number, line in lines_of(one):
        kind = line["kind"]
        if kind == "run":
            yield from _facts(one, pool, line)
            continue
        numeric = [
            (path, value)
            for path, value in values(line)
            if path[0] not in ("schema", "size_bytes", "seed") and _scalable(value)
        ]
        for at, (path, value) in enumerate(numeric):
            for other, second in numeric[at + 1 :]:
                for factor in (0.5, 2):
                    both = in_order(
                        on_line(name, number, path, _times(value, factor)),
                        on_line(name, number, other, _times(second, factor)),
                    )
                    named = f"{name_of(kind, path)} + {name_of(kind, other)}"
                    yield Falsehood(named, "two fields", where, kind, both, name)


def _scalable(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, (int, float)):
        return bool(value)
    return isinstance(value, list) and len(value) > 0 and all(isinstance(v, float) for v in value)


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, list):
        return [v * factor for v in value]
    return int(value * factor) if isinstance(value, int) else value * factor


def _facts(one: Honest, pool: Mapping[str, list[Any]], line: Line) -> Iterator[Falsehood]:
    found = []
    for path, value in values(line):
        field = name_of("run", path)
        if path[0] in ("schema", "kind", "run"):
            continue
        other = [v for v in pool.get(field, []) if v != value]
        if other:
            found.append((path, value, field, other[0]))
    for at, (path, value, field, other) in enumerate(found):
        for second, was, named, new in found[at + 1 :]:
            if second[: len(path)] == path:
                continue
            both = in_order(on_all("run", second, was, new), on_all("run", path, value, other))
            yield Falsehood(f"{field} + {named}", "two fields", "every run line", "run", both)
