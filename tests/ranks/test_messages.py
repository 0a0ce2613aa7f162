# SPDX-License-Identifier: Apache-2.0
"""Messages of the channel: each is read back unchanged, and anything else is refused with the reason."""

import json

import pytest

from meshmark.ranks.messages import (
    KINDS,
    PROTOCOL,
    Ask,
    Begin,
    Bye,
    Garbled,
    Give,
    Given,
    Hello,
    JoinRefused,
    Lost,
    Over,
    Welcome,
    Whereabouts,
    decode,
    encode,
    proof,
)

# Messages ---------------------------------------------------------------------------------------------------

ONE_OF_EACH = [
    Hello(PROTOCOL, 1, 2, ""),
    Give(3, "verdict of a case", [{"check": "numbers", "ä": None}]),
    Begin("psum"),
    Whereabouts("in module:function:12"),
    Bye(""),
    Welcome(PROTOCOL, 2, proof("", "hub")),
    JoinRefused("two processes"),
    Given(3, ["x", "x"], [1.5, None]),
    Ask(),
    Lost(1, "ended", "psum", True),
    Over({"0": None, "1": "in module"}, {"0": []}),
]


def test_every_kind_of_message_comes_back_as_it_was():
    assert {message.kind for message in ONE_OF_EACH} == set(KINDS)
    for message in ONE_OF_EACH:
        line = encode(message)
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert decode(line) == message


GARBLED = {
    "not JSON": b"{",
    "not an object": b"[]",
    "an object without a kind": b"{}",
    "unknown kind 'shutdown'": b'{"kind":"shutdown"}',
    "bye lacks 'reason'": b'{"kind":"bye"}',
    "ask has an unknown field 'more'": b'{"kind":"ask","more":1}',
    "begin has a wrong case": b'{"kind":"begin","case":7}',
    "give has a wrong turn": b'{"kind":"give","turn":true,"what":"x","value":1}',
    "given has a wrong whats": b'{"kind":"given","turn":1,"whats":["x",2],"values":[1,2]}',
    "over has a wrong places": b'{"kind":"over","places":{"0":1},"given":{}}',
    "lost has a wrong orderly": b'{"kind":"lost","rank":1,"why":"","case":"","orderly":0}',
    "too deep": b"[" * 50_000,
}


@pytest.mark.parametrize(("reason", "line"), GARBLED.items(), ids=GARBLED)
def test_what_is_not_a_message_is_refused_with_the_reason(reason, line):
    with pytest.raises(Garbled) as error:
        decode(line)
    assert str(error.value) == reason


def test_a_kind_of_any_length_is_told_in_a_few_words():
    with pytest.raises(Garbled) as error:
        decode(json.dumps({"kind": "x" * 100_000}).encode())
    assert len(str(error.value)) < 100
