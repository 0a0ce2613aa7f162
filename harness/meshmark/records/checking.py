# SPDX-License-Identifier: Apache-2.0
"""Makes checks of values from the annotations of the definition, without a schema library.

A check takes a value and gives the first problem, or "". It covers types, limits, choices and, on request, required
fields. Only the JSON Schema checks patterns, except those of texts that code parses (`require_pattern`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from meshmark.records.fields import Field, entries, last, taken_apart

Check = Callable[[Any], str]
"""The first problem of a value, such as "must be text"; "" for none."""

LARGEST = 10**30
"""Whole numbers beyond it are refused: no figure is as large, and they don't fit into a float."""

CALLED = {str: "text", int: "a whole number", float: "a number"}


def check_of(hint: Any, absent: bool = False) -> Check:
    """The check of an annotation. `absent`: whether objects may lack required fields, as in files that were made by
    hand or by another version."""
    plain, fields = taken_apart(hint)
    origin, arguments = get_origin(plain), get_args(plain)
    if plain is Any:
        return _anything
    if origin is Literal:
        return _one_of(arguments)
    if origin in (Union, UnionType):
        return _either([check_of(arm, absent) for arm in arguments])
    if is_typeddict(plain):
        return _object(plain, absent)
    if origin is list:
        return _list(check_of(arguments[0], absent), fields)
    if origin is dict:
        return _mapping(check_of(arguments[1], absent), fields)
    if choices := last(fields, "choices"):
        return _one_of(choices)
    return _primitive(plain, fields)


def _anything(value: Any) -> str:
    return ""


def _one_of(choices: tuple[Any, ...]) -> Check:
    wanted = {(type(choice), choice) for choice in choices}
    called = CALLED.get(type(choices[0]), "another value") if choices else "nothing"

    def check(value: Any) -> str:
        if isinstance(value, (list, dict)):
            return f"must be {called}"
        return "" if (type(value), value) in wanted else f"is unknown: {str(value)[:40]!a}"

    return check


def _either(checks: list[Check]) -> Check:
    def check(value: Any) -> str:
        problem = ""
        for one in checks:
            found = one(value)
            if not found:
                return ""
            problem = problem or found
        return problem

    return check


def _object(definition: type, absent: bool) -> Check:
    known: dict[str, Check] = {}
    required = []
    for entry in entries(definition):
        known[entry.name] = check_of(entry.type, absent)
        if entry.required and not absent:
            required.append(entry.name)

    def check(value: Any) -> str:
        if type(value) is not dict:
            return "must be an object"
        for name in required:
            if name not in value:
                return f"must have {name!a}"
        return inside(value, known)

    return check


def inside(value: Mapping[str, Any], known: Mapping[str, Check]) -> str:
    """The first problem of those fields of an object that have a check; "" for none."""
    for name, inner in value.items():
        one = known.get(name)
        if one is not None and (problem := one(inner)):
            return f"has `{name}`, which {problem}"
    return ""


def _list(each: Check, fields: tuple[Field, ...]) -> Check:
    most, fewest = last(fields, "most"), last(fields, "fewest") or 0

    def check(value: Any) -> str:
        if type(value) is not list:
            return "must be a list"
        if len(value) < fewest or (most is not None and len(value) > most):
            return f"has {len(value)} items, and from {fewest} to {most} are allowed"
        for item in value:
            if problem := each(item):
                return f"has an item that {problem}"
        return ""

    return check


def _mapping(each: Check, fields: tuple[Field, ...]) -> Check:
    most, fewest = last(fields, "most"), last(fields, "fewest") or 0
    keys = re.compile(last(fields, "keys") or "")

    def check(value: Any) -> str:
        if type(value) is not dict:
            return "must be an object"
        if len(value) < fewest or (most is not None and len(value) > most):
            return f"has {len(value)} entries, and from {fewest} to {most} are allowed"
        for key, item in value.items():
            if not keys.search(key):
                return f"has the key {key[:40]!a}, which is not allowed"
            if problem := each(item):
                return f"has `{key[:40]}`, which {problem}"
        return ""

    return check


def _primitive(plain: Any, fields: tuple[Field, ...]) -> Check:
    if plain is NoneType:
        return lambda value: "" if value is None else "must be null"
    if plain is bool:
        return lambda value: "" if value is True or value is False else "must be true or false"
    if plain is str:
        most = last(fields, "most") or math.inf

        def text(value: Any) -> str:
            if type(value) is not str:
                return "must be text"
            return "" if len(value) <= most else f"has {len(value)} characters, and {most} are allowed"

        return text
    types = (int,) if plain is int else (int, float)
    least, above, most = (last(fields, name) for name in ("least", "above", "most"))
    low = -LARGEST if least is None else least
    high = LARGEST if most is None else most
    called = CALLED[plain]

    def number(value: Any) -> str:
        if type(value) not in types or not (value == value and -math.inf < value < math.inf):
            return f"must be {called}"
        if above is not None and not value > above:
            return f"must be above {above:g}"
        if value < low or (value > high and type(value) is int):
            return f"must be {called} from {low:g} to {high:g}"
        return ""

    return number


def require_pattern(pattern: str, called: str) -> Check:
    """The check of a text that code parses: it must match `pattern`. `called`: its name in the problem."""
    form = re.compile(pattern)
    return lambda value: (
        "" if type(value) is str and form.search(value) else f"is not a {called}: {str(value)[:60]!a}"
    )
