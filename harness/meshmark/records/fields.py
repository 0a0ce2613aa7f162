# SPDX-License-Identifier: Apache-2.0
"""The meaning, unit and limits of a value of a record, and how to read them from an annotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Field:
    """The meaning, unit and limits of a value. Every limit is a check."""

    description: str = ""
    """The meaning, in one or two sentences."""
    unit: str = ""
    """The unit, such as s or B."""
    least: float | None = None
    """The smallest number."""
    above: float | None = None
    """The number must be larger than this."""
    most: int | None = None
    """The largest number, most characters of a text, most items of a list, or most entries of a mapping."""
    fewest: int | None = None
    """Fewest items of a list or entries of a mapping."""
    pattern: str = ""
    """A regular expression that the text matches."""
    keys: str = ""
    """A regular expression that each key of a mapping matches."""
    choices: tuple[str, ...] = ()
    """The texts that are allowed."""
    closed: bool = False
    """Whether an object has the listed fields alone."""
    rest: Any = None
    """The type of an object's fields that are not listed; None for any type."""
    name: str = ""
    """The name under which the JSON Schema defines the value once."""


@dataclass(frozen=True)
class Entry:
    """One field of an object."""

    name: str
    required: bool
    type: Any
    """Its annotation, without NotRequired."""


def entries(definition: type) -> list[Entry]:
    """The fields of a TypedDict, in order."""
    found = []
    for name, hint in get_type_hints(definition, include_extras=True).items():
        optional = get_origin(hint) is NotRequired
        found.append(Entry(name, not optional, get_args(hint)[0] if optional else hint))
    return found


def taken_apart(hint: Any) -> tuple[Any, tuple[Field, ...]]:
    """(the plain type, its Fields) of an annotation. The last Field is the most specific one."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    plain, *said = get_args(hint)
    return plain, tuple(one for one in said if isinstance(one, Field))


def last(fields: tuple[Field, ...], attribute: str) -> Any:
    """The value of an attribute in the most specific Field that sets it; the default if none does."""
    default = getattr(Field, attribute)
    return next((v for f in reversed(fields) if (v := getattr(f, attribute)) != default), default)
