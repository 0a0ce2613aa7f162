# SPDX-License-Identifier: Apache-2.0
"""The messages between the ranks and the hub: the fields of each kind, and their conversion to bytes and back.

A message is one line of JSON: an object whose `kind` names one of the classes below, with exactly the fields of that
class. `decode` refuses everything else with `Garbled`, so the handlers of messages need not check the fields again.
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
"""The protocol and its version, which both ends send first."""


LONGEST_TEXT = 1 << 16
"""The largest length of a text in a message, in characters. Longer texts are cut."""


class Garbled(ValueError):
    """Bytes that are not a message; the text gives the reason briefly."""


@dataclass(frozen=True)
class Message:
    """The base class of all kinds."""

    kind: ClassVar[str] = ""


# From a rank to the hub -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello(Message):
    """Asks to join as rank `rank` of `size`."""

    kind: ClassVar[str] = "hello"
    protocol: str
    rank: int
    size: int
    run: str
    """The proof that this rank belongs to the hub's run (`proof`)."""


@dataclass(frozen=True)
class Give(Message):
    """This rank's value in its exchange number `turn`. `what` names the matter of the value."""

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
    """The position of this rank's main thread. A rank sends it after its deadline, or if the hub asks."""

    kind: ClassVar[str] = "whereabouts"
    place: str


@dataclass(frozen=True)
class Bye(Message):
    """This rank leaves. With a reason, the others can't continue."""

    kind: ClassVar[str] = "bye"
    reason: str


# From the hub to a rank -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Welcome(Message):
    """All ranks have joined."""

    kind: ClassVar[str] = "welcome"
    protocol: str
    size: int
    run: str
    """The proof that this hub belongs to the rank's run."""


@dataclass(frozen=True)
class JoinRefused(Message):
    """The ranks can't form a group, or this rank can't join it."""

    kind: ClassVar[str] = "refused"
    reason: str


@dataclass(frozen=True)
class Given(Message):
    """The values of all ranks in exchange number `turn`, in the order of ranks."""

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
    """A rank left: `orderly` with its own reason, or it vanished in `case`."""

    kind: ClassVar[str] = "lost"
    rank: int
    why: str
    case: str
    orderly: bool


@dataclass(frozen=True)
class Over(Message):
    """A rank exceeded its deadline. `places`: the position of each rank (None: it did not answer). `given`: the values
    that some ranks had already given."""

    kind: ClassVar[str] = "over"
    places: dict[str, str | None]
    given: dict[str, Any]


def proof(secret: str, who: str) -> str:
    """The text by which a member of a run proves its membership. It depends only on the run's secret and `who`.

    It distinguishes runs, and keeps out everybody who can't read the connection. A reader of the connection could
    repeat it."""
    return hmac.new(secret.encode(errors="surrogateescape"), who.encode(), hashlib.sha256).hexdigest()


def proves(said: str, secret: str, who: str) -> bool:
    """Whether `said`, which may be any text, is the proof of the member `who`."""
    return hmac.compare_digest(said.encode(errors="replace"), proof(secret, who).encode())


# As bytes ---------------------------------------------------------------------------------------------------

_encode = json.JSONEncoder(separators=(",", ":")).encode
_Check = Callable[[Any], bool]


def _check_of(hint: Any) -> _Check:
    """A function that checks whether a JSON value has this type. A bool is not an int."""
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
    """The line of a message with its newline; TypeError for a value that is not possible in JSON."""
    return _encode({"kind": message.kind, **vars(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message in a line; Garbled if the line is not a message."""
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
    values = {"value", "values", "given"}  # values of exchanges become printable when they are shown
    return KINDS[kind](**{n: found[n] if n in values else _printable(found[n]) for n in found})


def _printable(said: Any) -> Any:
    """A peer's texts as printable lines, also inside lists and objects."""
    if isinstance(said, str):
        return saying.printable_line(said, LONGEST_TEXT)
    if isinstance(said, list):
        return list(map(_printable, said))
    if isinstance(said, dict):
        return {_printable(name): _printable(one) for name, one in said.items()}
    return said
