# SPDX-License-Identifier: Apache-2.0
"""Mutates files: lines of JSON, a JSON object, or a text, each with one to three mutations that a seed draws."""

from __future__ import annotations

import copy
import json
import random

from tests.studies.mutations import bytes_of, mutated, text_of

PIECES = (
    "= ",
    "[",
    '"""',
    "1979-05-27",
    "inf",
    "true",
    "[[]]",
    "{}",
    "'",
    '["*"]',
    "0x",
    '">=x"',
    '"("',
    "[1]",
)
"""What a text gets instead of a word: much of it means something in TOML."""


def spoilt_lines(data: bytes, draw: random.Random) -> bytes:
    """Lines of JSON with one to three mutations."""
    lines = [json.loads(line) for line in data.splitlines()]
    for _ in range(draw.randint(1, 3)):
        number = draw.randrange(len(lines))
        how = draw.randrange(10)
        if how == 0 and len(lines) > 1:
            del lines[number]
        elif how == 1:
            lines.insert(number, copy.deepcopy(draw.choice(lines)))
        elif isinstance(lines[number], dict) and lines[number]:
            lines[number] = mutated(lines[number], draw)
    if draw.randrange(20) == 0:
        return b"[" * 100_000 + b"\n"
    return bytes_of("".join(text_of(line) + "\n" for line in lines), draw)


def spoilt_object(data: bytes, draw: random.Random) -> bytes:
    """A JSON object with one to three mutations."""
    found = json.loads(data)
    for _ in range(draw.randint(1, 3)):
        found = mutated(found, draw) if found else found
    return b"[" * 100_000 if draw.randrange(20) == 0 else bytes_of(text_of(found), draw)


def spoilt_text(data: bytes, draw: random.Random) -> bytes:
    """A text with one to three words replaced."""
    lines = data.decode().splitlines()
    for _ in range(draw.randint(1, 3)):
        number = draw.randrange(len(lines))
        words = lines[number].split(" ")
        at = draw.randrange(len(words))
        other = draw.choice(
            (*PIECES, "", "x", words[-1] * 2, "9" * 400, "-1", "{{0,1}}", "f32[", "%", ")", "\x00")
        )
        words[at] = other
        lines[number] = " ".join(words)
    return bytes_of("\n".join(lines) + "\n", draw)
