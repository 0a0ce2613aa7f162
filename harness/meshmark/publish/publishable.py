# SPDX-License-Identifier: Apache-2.0
"""Finds what must not be published: paths, hosts, users, addresses.

core.privacy knows the user and host of this machine, but a reviewer's machine has others. This module therefore looks
for patterns: absolute paths, IP, MAC and e-mail addresses, names in a private domain, and shell prompts. A bare host or
user name in free text has no pattern. Only its owner can find it, and `submit` runs on the owner's machine.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from meshmark.core.privacy import redact
from meshmark.records.run_definition import RunFacts

_QUAD = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)")
_SIX = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_MAC = re.compile(r"(?<![\w:])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}(?![\w:])")
_MAIL = re.compile(
    r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}\.[A-Za-z]{2,24}(?![\w.-])"
)
_INSIDE = re.compile(
    r"(?<![\w.-])[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}\.(?:internal|local|localdomain|lan|corp|intra|home\.arpa)"
    r"(?![\w-])"
)
_PROMPT = re.compile(r"(?<![\w.@/-])[a-z_][a-z0-9_-]{0,31}@[A-Za-z][A-Za-z0-9.-]{0,62}:[~/$]")

_CASE = re.compile(
    r"(?<![a-z0-9_])[a-z0-9_]{1,64}/[^/\s]{1,200}/(?:auto|explicit|manual|manual-novma|pmap|pjit|host|\*)/[0-9x]+(?:-shuffled|-interleaved)?/[a-z0-9_]+/[A-Za-z0-9.]+"
)
"""A case id; its slashes do not make it a path."""

SHAPES: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("an e-mail address", _MAIL, "<email>"),
    ("a MAC address", _MAC, "<address>"),
    ("a user and host", _PROMPT, "<user>@<host>:"),
    ("a host name", _INSIDE, "<host>"),
)

LONGEST_SHOWN = 60


def clean(text: str, versions: Collection[str] = (), keep: Collection[str] = ()) -> str:
    """The text with what `found` finds replaced: <path>, <user>, <host>, <ip>, <email>, <address>."""
    ids = _CASE.findall(text)
    between = [_clean(part, versions, keep) for part in _CASE.split(text)]
    return "".join(part for pair in zip(between, [*ids, ""], strict=True) for part in pair)


def _clean(text: str, versions: Collection[str], keep: Collection[str]) -> str:
    for _, pattern, mark in SHAPES:
        text = pattern.sub(partial(_marked, mark=mark, keep=keep), text)
    for pattern in (_QUAD, _SIX):
        text = pattern.sub(lambda m: "<ip>" if _address(m[0], versions) else m[0], text)
    return redact(text)


def _marked(match: re.Match[str], mark: str, keep: Collection[str]) -> str:
    return match[0] if match[0] in keep else mark


def find_private_text(
    text: str, versions: Collection[str] = (), keep: Collection[str] = ()
) -> list[tuple[str, str]]:
    """(kind, text) of each part that may not be published. versions: four-part version numbers, such as JAX 0.12.0.1,
    which are not IP addresses. keep: texts that are public on purpose, such as the contact."""
    text = _CASE.sub("case", text)
    hits = []
    for what, pattern, _ in SHAPES:
        hits += [(what, m[0]) for m in pattern.finditer(text) if m[0] not in keep]
    for pattern in (_QUAD, _SIX):
        hits += [("an IP address", m[0]) for m in pattern.finditer(text) if _address(m[0], versions)]
    if redact(text).count("<path>") > text.count(
        "<path>"
    ):  # only paths: a reviewer's user name may be an ordinary word
        hits.append(("an absolute path", text))
    return [(what, one[:LONGEST_SHOWN]) for what, one in hits]


def _address(text: str, versions: Collection[str]) -> bool:
    if text in versions:
        return False
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    # 0.x.y.z is a version and not a host; the loopback and "any" addresses identify nobody.
    return not (address.is_loopback or address.is_unspecified or text.startswith("0."))


UNTOUCHED = (
    "schema",
    "kind",
    "run",
    "case",
    "operation",
    "variant",
    "mode",
    "mesh",
    "dtype",
    "level",
    "versions",
)
"""Fields of a record that are not searched: the schema fixes their form, or they hold versions."""


def strings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(field, text) of every text in a record, except in UNTOUCHED fields."""
    todo = [(name, value)]
    while todo:
        name, value = todo.pop()
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                if key in UNTOUCHED and not name:
                    continue
                yield name or "a field's name", str(key)
                todo.append((f"{name}.{key}" if name else str(key), inner))
        elif isinstance(value, list):
            todo += [(name, inner) for inner in value if isinstance(inner, (str, dict, list))]


def clean_record(
    value: Any, versions: Collection[str] = (), keep: Collection[str] = (), top: bool = True
) -> Any:
    """A record with cleaned texts, except in UNTOUCHED fields and the facts' versions."""
    if isinstance(value, str):
        return clean(value, versions, keep)
    if isinstance(value, list):
        return [clean_record(inner, versions, keep, False) for inner in value]
    if isinstance(value, dict):
        return {
            k: v if (k in UNTOUCHED and top) or k == "versions" else clean_record(v, versions, keep, False)
            for k, v in value.items()
        }
    return value


def versions_of(facts: RunFacts) -> frozenset[str]:
    """The version numbers that the facts of a run name."""
    named = [facts.get("versions"), facts.get("compiler")]
    return frozenset(str(v) for group in named if isinstance(group, dict) for v in group.values())
