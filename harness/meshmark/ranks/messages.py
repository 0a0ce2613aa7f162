# SPDX-License-Identifier: Apache-2.0
"""The messages between the ranks and the hub: what each kind holds, and the one place where they become bytes and back.

A message is one line of JSON: an object whose `kind` names one of the classes below, with exactly the fields of that
class. `decode` refuses everything else with `Garbled`, so whoever handles a message need not look at its parts again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from meshmark.core import saying

PROTOCOL = "meshmark-ranks 3"
"""The protocol and its version, which both ends say first."""


LONGEST_TEXT = 1 << 16
"""Characters of the longest text of a message that are taken."""


class Garbled(ValueError):
    """Bytes that are not a message; the text says why, in a few words."""


@dataclass(frozen=True)
class Message:
    """What all kinds have."""

    kind: ClassVar[str] = ""


# From a rank to the hub -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello(Message):
    """Asks to take part, as rank `rank` of `size`."""

    kind: ClassVar[str] = "hello"
    protocol: str
    rank: int
    size: int
    run: str
    """Proves that this rank is of the hub's run (`proof`)."""


@dataclass(frozen=True)
class Give(Message):
    """This rank's value in its exchange number `turn`; `what` says what the value is of."""

    kind: ClassVar[str] = "give"
    turn: int
    what: str
    value: Any


@dataclass(frozen=True)
class Begin(Message):
    """This rank begins a case."""

    kind: ClassVar[str] = "begin"
    case: str


@dataclass(frozen=True)
class Whereabouts(Message):
    """Where this rank's main thread is: because it is past its deadline, or because the hub has asked."""

    kind: ClassVar[str] = "whereabouts"
    place: str


@dataclass(frozen=True)
class Bye(Message):
    """This rank leaves; with a reason, the others can't go on without it."""

    kind: ClassVar[str] = "bye"
    reason: str


# From the hub to a rank -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Welcome(Message):
    """All ranks are there."""

    kind: ClassVar[str] = "welcome"
    protocol: str
    size: int
    run: str
    """Proves that this hub is of the rank's run."""


@dataclass(frozen=True)
class Refused(Message):
    """The ranks can't come together, or this rank can't take part."""

    kind: ClassVar[str] = "refused"
    reason: str


@dataclass(frozen=True)
class Given(Message):
    """What all ranks gave in exchange number `turn`, in the order of ranks."""

    kind: ClassVar[str] = "given"
    turn: int
    whats: list[str]
    values: list[Any]


@dataclass(frozen=True)
class Ask(Message):
    """Asks for the rank's whereabouts."""

    kind: ClassVar[str] = "ask"


@dataclass(frozen=True)
class Lost(Message):
    """A rank left: `orderly` with a reason of its own, or it vanished in `case`."""

    kind: ClassVar[str] = "lost"
    rank: int
    why: str
    case: str
    orderly: bool


@dataclass(frozen=True)
class Over(Message):
    """A rank is past its deadline: where each rank was (None: it did not answer), and what some had already given."""

    kind: ClassVar[str] = "over"
    places: dict[str, str | None]
    given: dict[str, Any]


def proof(secret: str, who: str) -> str:
    """The text by which a member of a run proves that it is one. It follows from the run's secret alone. A reader of
    the connection can repeat it, so it tells runs apart, and keeps out everybody who can't read the connection."""
    return hmac.new(secret.encode(errors="surrogateescape"), who.encode(), hashlib.sha256).hexdigest()


def proves(said: str, secret: str, who: str) -> bool:
    """Whether what somebody says of itself, which may be any text, is the proof of a member."""
    return hmac.compare_digest(said.encode(errors="replace"), proof(secret, who).encode())


# As bytes ---------------------------------------------------------------------------------------------------

_encode = json.JSONEncoder(separators=(",", ":")).encode
_Check = Callable[[Any], bool]


def _check_of(hint: Any) -> _Check:
    """What says whether a JSON value is of this type; a bool is not an int."""
    if hint is Any:
        return lambda value: True
    origin = get_origin(hint)
    if origin is list:
        (inner,) = map(_check_of, get_args(hint))
        return lambda value: type(value) is list and all(map(inner, value))
    if origin is dict:
        inner = _check_of(get_args(hint)[1])
        return lambda value: type(value) is dict and all(map(inner, value.values()))
    if origin is UnionType:
        either = [_check_of(one) for one in get_args(hint)]
        return lambda value: any(check(value) for check in either)
    return lambda value: type(value) is hint


def _fields_of(cls: type[Message]) -> dict[str, _Check]:
    hints = get_type_hints(cls)
    return {field.name: _check_of(hints[field.name]) for field in fields(cls)}


KINDS: dict[str, type[Message]] = {cls.kind: cls for cls in Message.__subclasses__()}
_FIELDS = {kind: _fields_of(cls) for kind, cls in KINDS.items()}


def encode(message: Message) -> bytes:
    """The line of a message, its newline included; TypeError for a value that JSON has not."""
    return _encode({"kind": message.kind, **vars(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message of a line; Garbled for what is not one."""
    try:
        found = json.loads(line)
    except RecursionError:
        raise Garbled("too deep") from None
    except ValueError:
        raise Garbled("not JSON") from None
    if type(found) is not dict:
        raise Garbled("not an object")
    kind = found.pop("kind", None)
    if type(kind) is not str:
        raise Garbled("an object without a kind")
    if kind not in KINDS:
        raise Garbled(f"unknown kind {kind[:40]!a}")
    expected = _FIELDS[kind]
    if found.keys() != expected.keys():
        wrong = sorted(found.keys() ^ expected.keys())[0]
        raise Garbled(f"{kind} {'lacks' if wrong in expected else 'has an unknown field'} {wrong[:40]!a}")
    for name, check in expected.items():
        if not check(found[name]):
            raise Garbled(f"{kind} has a wrong {name}")
    values = {"value", "values", "given"}  # of exchanges: made printable where they are shown
    return KINDS[kind](**{n: found[n] if n in values else _printable(found[n]) for n in found})


def _printable(said: Any) -> Any:
    """What a peer says in words, as printable lines."""
    if isinstance(said, str):
        return saying.line_of(said, LONGEST_TEXT)
    if isinstance(said, list):
        return list(map(_printable, said))
    if isinstance(said, dict):
        return {_printable(name): _printable(one) for name, one in said.items()}
    return said
