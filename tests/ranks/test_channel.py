# SPDX-License-Identifier: Apache-2.0
"""The channel between ranks: its messages, how ranks come together, and the errors when a rank is gone."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from meshmark.core.ports import free_ports
from meshmark.ranks import hub, wire
from meshmark.ranks.channel import Channel, spans
from meshmark.ranks.hub import Hub
from meshmark.ranks.messages import (
    PROTOCOL,
    Ask,
    Begin,
    Bye,
    Hello,
    Welcome,
    Whereabouts,
    encode,
    proof,
)
from meshmark.ranks.wire import ChannelError, Wire, address
from tests.ranks.channels import SOON, by_hand, connected, ended, group, hello, joining, together

pytestmark = pytest.mark.usefixtures("short_waits")


# Addresses, and who says what -------------------------------------------------------------------------------


def test_an_address_is_a_host_and_a_port():
    assert address("host:80") == ("host", 80)
    assert address("[::1]:80") == ("::1", 80)


@pytest.mark.parametrize("text", ["host", "host:", ":80", "host:0", "host:65536", "host:x", "host:-1", ""])
def test_what_is_no_address_is_named(text):
    with pytest.raises(ChannelError, match="is not an address: use HOST:PORT"):
        address(text)


def test_ranks_that_differ_are_grouped():
    assert spans(["a", "a"]) == ""
    assert spans(["a", "b", "a"]) == "ranks 0, 2: a; rank 1: b"


def test_of_mappings_only_what_differs_is_shown():
    assert spans([{"a": 1, "b": 2}, {"a": 1, "b": 3}]) == "rank 0: {'b': 2}; rank 1: {'b': 3}"
    assert spans([{"a": 1}, {"a": 1, "b": None}]) == ""  # as good as unset
    assert spans([{"a": 1}, {"a": 1, "b": 2}]) == "rank 0: {}; rank 1: {'b': 2}"


# Exchanges --------------------------------------------------------------------------------------------------


def test_everybody_gets_the_values_of_all_in_the_order_of_ranks(where):
    with group(where, 3) as ranks:
        for turn in range(5):
            calls = [partial(c.exchange, f"turn {turn}", [c.rank, turn]) for c in ranks]
            assert together(*calls) == [([f"turn {turn}"] * 3, [[0, turn], [1, turn], [2, turn]])] * 3


def test_a_long_value_comes_whole(where):
    with group(where, 2) as ranks:
        found = together(*(lambda c=c: c.exchange("long", "ä" * 3_000_000 + str(c.rank))[1] for c in ranks))
    assert [[len(v), v[-1]] for v in found[0]] == [[3_000_001, "0"], [3_000_001, "1"]]
    assert found[0] == found[1]


def test_who_is_late_is_waited_for(where):
    with group(where, 2) as ranks:
        found = together(
            lambda: ranks[0].exchange("x", 0)[1], lambda: [time.sleep(1.5), ranks[1].exchange("x", 1)[1]][1]
        )
    assert found == [[0, 1], [0, 1]]


def test_an_exchange_can_be_bounded(where):
    with group(where, 2) as ranks, pytest.raises(ChannelError, match=r"did not answer within 1 s \(end\)"):
        ranks[0].exchange("end", None, 0.6)


def test_one_rank_alone_is_a_group(where):
    with group(where, 1) as ranks:
        assert ranks[0].exchange("x", 7) == (["x"], [7])


def test_a_hub_on_a_loopback_address_listens_there_alone():
    hub = Hub("127.0.0.1", free_ports(1)[0], 1, 0.2)
    try:
        assert [one.getsockname()[0] for one in hub._listening] == ["127.0.0.1"]
    finally:
        hub.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6():
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 loopback address here")
        port = probe.getsockname()[1]
    with group(f"[::1]:{port}", 2) as ranks:
        assert together(*(lambda c=c: c.exchange("x", c.rank)[1] for c in ranks)) == [[0, 1]] * 2


# Coming together --------------------------------------------------------------------------------------------

NO_GREETINGS = {
    "nothing": b"",
    "garbage": b"\x00\xff\x16\x03 garbage\n",
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "half a greeting": b'{"kind":"hello","protocol":"meshmark-ra',
    "no object": b"[1, 2]\n",
    "what is too deep": b"[" * 50_000 + b"\n",
    "an older version": b'{"hello":"meshmark-ranks 1","rank":1,"size":2}\n',
    "another version": encode(Hello("meshmark-ranks 0", 1, 2, "")),
    "a rank that is no number": encode(Hello(PROTOCOL, "1", 2, "")),
    "a rank that is true": encode(Hello(PROTOCOL, True, 2, "")),
    "a greeting without a rank": json.dumps({"kind": "hello", "protocol": PROTOCOL}).encode() + b"\n",
    "another message": encode(Begin("psum")),
}


@pytest.mark.parametrize("sent", NO_GREETINGS.values(), ids=NO_GREETINGS)
def test_what_is_no_rank_does_not_hinder_the_others(where, sent):
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        first = pool.submit(Channel, where, 0, 2, SOON)
        stranger = stack.enter_context(connected(where))
        stranger.sendall(sent)
        second = Channel(where, 1, 2, SOON)
        channels = [first.result(SOON), second]
        assert together(*(lambda c=c: c.exchange("x", c.rank)[1] for c in channels)) == [[0, 1]] * 2
        together(*(c.close for c in channels))


def test_a_stranger_during_the_run_is_turned_away(where):
    with group(where, 2) as ranks:
        with connected(where) as bare:
            Wire(bare).send(hello(1, 2))
            assert "two processes say that they are rank 1 of 2" in Wire(bare).receive()[0].reason
        assert together(*(lambda c=c: c.exchange("x", c.rank)[1] for c in ranks)) == [[0, 1]] * 2


def test_a_missing_rank_is_named(where):
    found = together(joining(where, 0, 4, 3.0), joining(where, 2, 4, 3.0))
    told = "ranks 1, 3 of 4 did not come within 3 s: is every rank started, with the same addresses"
    assert [str(error).startswith(told) for error in found] == [True, True]


def test_without_rank_0_the_others_say_so(where, monkeypatch):
    start = time.monotonic()
    with pytest.raises(ChannelError, match=rf"rank 1 found no rank 0 at {where} within 1 s \(.*refused\)"):
        Channel(where, 1, 2, 1.0)
    assert time.monotonic() - start < 60


def test_ranks_of_different_sizes_are_told(where):
    found = together(joining(where, 0, 2), joining(where, 1, 3))
    told = "rank 1 says 3 processes and rank 0 says 2: give every process its own --process-id"
    assert [str(error).startswith(told) for error in found] == [True, True]


def test_a_rank_that_there_is_not_is_told(where):
    found = together(joining(where, 0, 2), joining(where, 5, 2))
    assert [str(error).startswith("rank 5 is not one of 0 to 1: ") for error in found] == [True, True]


def test_two_ranks_with_one_id_are_told_and_so_is_who_comes_later(where, monkeypatch):
    monkeypatch.setattr(hub, "LINGER", 3.0)
    refused = threading.Event()

    def second():
        try:
            return joining(where, 1, 3)()
        finally:
            refused.set()

    def late():
        assert refused.wait(SOON)
        return joining(where, 2, 3)()

    found = together(joining(where, 0, 3), second, second, late)
    assert {str(error).partition(":")[0] for error in found} == {
        "two processes say that they are rank 1 of 3"
    }


def test_a_taken_port_is_told(where):
    with socket.create_server(address(where)), pytest.raises(ChannelError) as error:
        Channel(where, 0, 2, 1.0)
    assert str(error.value).startswith(
        f"rank 0 can't listen on {where} for the other ranks (Address already in use)"
    )
    assert "--control HOST:PORT" in str(error.value)


def test_what_answers_and_is_no_hub_is_told(where):
    with socket.create_server(address(where)) as other:

        def answer():
            with other.accept()[0] as one:
                one.sendall(b"220 mail.example ESMTP\n")
                one.recv(1000)
            other.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ChannelError, match="rank 1 found no rank 0 at"):
            Channel(where, 1, 2, 1.0)
        thread.join(SOON)


# Somebody is gone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "ended: its connection closed"),
        (b'{"kind":"give","turn":1,"what":"x","val', "ended: its connection closed"),
        (b"garbage\n", "sent something that is not a message of this suite"),
        (b"[]\n", "sent something that is not a message of this suite"),
        (b'{"kind":"give","turn":1}\n', "sent something that is not a message of this suite"),
        (encode(Bye(1)), "sent something that is not a message of this suite"),
        (b'{"kind":"shutdown"}\n', "sent something that is not a message of this suite"),
        (
            encode(Welcome(PROTOCOL, 2, proof("", "hub"))),
            "sent something that is not a message of this suite",
        ),
        (b"[" * 50_000 + b"\n", "sent something that is not a message of this suite"),
        (b"\xff\xfe\n", "sent something that is not a message of this suite"),
    ],
    ids=[
        "nothing",
        "half a message",
        "garbage",
        "no object",
        "half of what it must say",
        "a reason that is a number",
        "an unknown kind",
        "a message of the hub's",
        "too deep",
        "no UTF-8",
    ],
)
def test_the_others_learn_of_a_rank_that_is_gone(where, sent, why):
    with by_hand(where, 1, 2) as ((first,), bare):
        bare.sendall(sent)
        if not sent.endswith(b"\n"):
            bare.close()
        ending = ended(lambda: first.exchange("x", 0))
    assert (ending.verdict, ending.reason.partition(" (")[0]) == ("", f"rank 1 {why}")
    assert ending.data == {"ended_rank": 1}


def test_a_message_too_long_is_no_message(where, monkeypatch):
    monkeypatch.setattr(wire, "LONGEST", 100_000)
    with by_hand(where, 1, 2) as ((first,), bare):
        bare.sendall(b"x" * 300_000)
        ending = ended(lambda: first.exchange("x", 0))
    assert (
        ending.reason
        == "rank 1 sent something that is not a message of this suite (a message without an end)"
    )


def test_a_rank_that_dies_in_a_case_is_a_crash_of_this_case_alone(where):
    for named, verdict in (("this", "crash"), ("the one before", "")):
        with by_hand(where, 1, 2) as ((first,), bare):
            Wire(bare).send(Begin(named))
            time.sleep(0.3)
            with first.during("this", SOON):
                bare.close()
                ending = ended(lambda: first.exchange("verdict this", []))
        assert (named, ending.verdict) == (named, verdict)


def test_who_leaves_with_a_reason_is_no_crash(where):
    with group(where, 2) as ranks:
        ranks[1].close("could not begin: no case is chosen")
        ending = ended(lambda: ranks[0].exchange("x", 0))
    assert (ending.verdict, ending.reason) == ("", "rank 1 could not begin: no case is chosen")
    assert "ended_rank" not in ending.data


def test_an_interrupted_rank_tells_the_others(where):
    with group(where, 3) as ranks:
        ranks[1].interrupt("SIGTERM")
        found = together(*(lambda c=c: c.exchange("x", 0) for c in ranks))
    assert {(e.ending.verdict, e.ending.reason) for e in found} == {("", "rank 1 was ended: SIGTERM")}


def test_a_hub_that_ends_is_heard_by_who_waits(where):
    with socket.create_server(address(where)) as listening:

        def answer():
            with listening.accept()[0] as one:
                Wire(one).receive()
                Wire(one).send(Welcome(PROTOCOL, 2, proof("", "hub")))
                Wire(one).receive()

        thread = threading.Thread(target=answer)
        thread.start()
        second = Channel(where, 1, 2, SOON)
        ending = ended(lambda: second.exchange("x", 0))
        thread.join(SOON)
        second.close()
    assert ending.reason == "rank 0 ended: its connection closed"


def test_a_hub_that_ends_is_heard_at_once_where_the_main_thread_is_elsewhere(where):
    heard = threading.Event()
    with socket.create_server(address(where)) as listening, ThreadPoolExecutor(1) as pool:
        second = pool.submit(Channel, where, 1, 2, SOON, lambda ending: heard.set())
        with listening.accept()[0] as one:
            Wire(one).receive()
            Wire(one).send(Welcome(PROTOCOL, 2, proof("", "hub")))
            second.result(SOON)
        assert heard.wait(SOON)
        second.result().close()


# Past a deadline --------------------------------------------------------------------------------------------


def test_past_a_deadline_everybody_says_where_it_is(where):
    heard = {}
    done = threading.Event()
    with by_hand(where, 1, 2) as ((first,), bare):
        first.ended = lambda ending: [heard.update(ending=ending), done.set()]
        connection = Wire(bare)
        with first.during("this", 0.3):
            connection.send(Begin("this"))
            while Ask() not in connection.receive():
                pass
            connection.send(Whereabouts("in module:function:12 < module:caller:3"))
            assert done.wait(SOON)
    ending = heard["ending"]
    assert ending.verdict == "hang"
    assert ending.reason.startswith("past its deadline of 0.3 s: rank 0 in ")
    assert ending.reason.endswith("; rank 1 in module:function:12")
    assert ending.data["stacks"]["1"] == ["in module:function:12", "module:caller:3"]


def test_a_rank_that_does_not_answer_is_named(where):
    done = threading.Event()
    heard = {}
    with by_hand(where, 1, 2) as ((first,), _):
        first.ended = lambda ending: [heard.update(ending=ending), done.set()]
        with first.during("this", 0.3):
            assert done.wait(SOON)
    assert heard["ending"].reason.endswith("; rank 1 does not answer")


def test_a_hub_that_does_not_answer_is_named(where):
    heard = {}
    done = threading.Event()
    with socket.create_server(address(where)) as listening, ThreadPoolExecutor(1) as pool:
        second = pool.submit(
            Channel, where, 1, 2, SOON, lambda ending: [heard.update(ending=ending), done.set()]
        )
        with listening.accept()[0] as one:
            Wire(one).receive()
            Wire(one).send(Welcome(PROTOCOL, 2, proof("", "hub")))
            with second.result(SOON).during("this", 0.3):
                assert done.wait(SOON)
            second.result().close()
    reason = heard["ending"].reason
    assert reason.startswith("past its deadline of 0.3 s: rank 0 does not answer; rank 1 in threading:wait:")


def test_a_hub_that_sends_a_message_of_a_rank_is_as_good_as_gone(where):
    with socket.create_server(address(where)) as listening, ThreadPoolExecutor(1) as pool:
        second = pool.submit(Channel, where, 1, 2, SOON)
        with listening.accept()[0] as one:
            Wire(one).receive()
            Wire(one).send(Welcome(PROTOCOL, 2, proof("", "hub")))
            joined = second.result(SOON)
            Wire(one).send(hello(0, 2))
            ending = ended(lambda: joined.exchange("x", 0))
        joined.close()
    assert (
        ending.reason
        == "rank 0 sent something that is not a message of this suite (the hub does not send hello)"
    )
