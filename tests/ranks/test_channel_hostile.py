# SPDX-License-Identifier: Apache-2.0
"""The channel refuses ranks of other runs, invalid messages, escapes, silent peers, and others that reach the port."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from meshmark.core.ports import free_ports
from meshmark.ranks import hub
from meshmark.ranks.channel import Channel, spans
from meshmark.ranks.hub import Hub
from meshmark.ranks.messages import (
    PROTOCOL,
    Begin,
    Bye,
    Give,
    Hello,
    JoinRefused,
    Lost,
    Over,
    Welcome,
    decode,
    encode,
)
from meshmark.ranks.wire import ChannelError, Wire, address
from tests.ranks.channels import SOON, by_hand, connected, ended, hello, joining, together
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("short_waits")


# Runs are told apart ----------------------------------------------------------------------------------------


def test_a_rank_of_another_run_takes_nobody_s_place(where):
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Channel, where, 0, 2, SOON, secret="this")
        for greeting in (hello(1, 2, "another"), hello(1, 2), hello(1, 3), hello(7, 2, "another")):
            with connected(where) as stale:
                Wire(stale).send(greeting)
                assert "it is of another run" in Wire(stale).receive()[0].reason
        second = Channel(where, 1, 2, SOON, secret="this")
        channels = [first.result(SOON), second]
        assert together(*(lambda c=c: c.exchange("x", c.rank)[1] for c in channels)) == [[0, 1]] * 2
        together(*(c.close for c in channels))


def test_a_rank_does_not_join_the_hub_of_another_run(where):
    made = Hub("127.0.0.1", address(where)[1], 1, 1.0, "another")
    try:
        with pytest.raises(ChannelError, match="it is of another run"):
            Channel(where, 1, 2, 1.0, secret="this")
    finally:
        made.close()


def test_who_is_missing_is_told_with_those_of_another_run(where):
    found = together(joining(where, 0, 2, 3.0), lambda: Channel(where, 1, 2, 3.0, secret="another"))
    assert "rank 1 of 2 did not come within 3 s" in str(found[0])
    assert "(1 of another run came)" in str(found[0])
    assert "it is of another run" in str(found[1])


def test_silent_connections_do_not_starve_the_ranks(where):
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        first = pool.submit(Channel, where, 0, 2, SOON)
        for number in range(60):
            stack.enter_context(connected(where)).sendall(b"{" * (number % 3))
        start = time.monotonic()
        channels = [Channel(where, 1, 2, SOON), first.result(SOON)]
        assert time.monotonic() - start < 30, "each silent connection cost a second, one after the other"
        together(*(c.close for c in channels))


def test_more_guests_than_there_is_room_for_push_out_the_oldest(where, monkeypatch):
    monkeypatch.setattr(hub, "MOST_GUESTS", 4)
    monkeypatch.setattr(hub, "GREETING", 1.0)
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        first = pool.submit(Channel, where, 0, 2, SOON)
        bare = [stack.enter_context(connected(where)) for _ in range(12)]
        channels = [Channel(where, 1, 2, SOON), first.result(SOON)]
        bare[0].settimeout(SOON)
        assert bare[0].recv(1) == b""
        together(*(c.close for c in channels))


NONSENSE = {
    "an exchange that is not": Give(99, "x", 0),
    "an exchange of the past": Give(0, "x", 0),
    "a number below any": Give(-1, "x", 0),
}


@pytest.mark.parametrize("sent", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_of_a_joined_rank_is_its_own_end_and_told(where, sent):
    with by_hand(where, 1, 2) as ((first,), bare):
        Wire(bare).send(sent)
        ending = ended(lambda: first.exchange("x", 0))
        assert ending.reason.startswith("rank 1 sent something that is not a message of this suite")
        assert first._thread.is_alive()


def test_a_value_given_twice_is_nonsense(where):
    with by_hand(where, 1, 2) as ((first,), bare):
        for _ in range(2):
            Wire(bare).send(Give(1, "x", 0))
        assert until(lambda: first._ending is not None)
        assert "(a value of exchange 1 in exchange 1)" in ended(lambda: first.exchange("x", 0)).reason


def test_an_error_of_the_hub_in_one_rank_s_message_leaves_the_hub_to_the_others(where, monkeypatch):
    obey = Hub._obey

    def fails(self, rank, messages):
        if rank.number == 1:
            raise TypeError("not foreseen")
        obey(self, rank, messages)

    monkeypatch.setattr(Hub, "_obey", fails)
    with by_hand(where, 1, 2) as ((first,), bare):
        Wire(bare).send(Begin("psum"))
        ending = ended(lambda: first.exchange("x", 0))
    assert ending.reason == "rank 1 sent something that is not a message of this suite (TypeError)"


ESCAPES = "\x1b[2J\x1b]0;owned\x07 \udcff"


@pytest.mark.parametrize(
    "message",
    [
        Bye(ESCAPES),
        JoinRefused(ESCAPES),
        Begin(ESCAPES),
        Lost(1, ESCAPES, ESCAPES, True),
        Over({"0": ESCAPES}, {}),
    ],
    ids=lambda message: message.kind,
)
def test_escapes_of_a_peer_are_text_when_they_arrive(message):
    found = decode(encode(message))
    assert "\x1b" not in str(vars(found)).replace("\\x1b", "")
    assert all(text.isprintable() for text in _texts(vars(found)))


def _texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from (*_texts(name), *_texts(one))


def test_escapes_in_what_ranks_differ_in_are_text_where_they_are_told():
    assert spans(["a", ESCAPES]).isprintable()


def test_the_hub_listens_at_the_address_that_is_named_where_it_is_local():
    port = free_ports(1)[0]
    made = Hub("127.0.0.2", port, 1, 0.2)
    try:
        assert [one.getsockname()[0] for one in made._listening] == ["127.0.0.2"] and not made.note
    finally:
        made.close()


def test_the_hub_says_where_it_listens_at_every_address():
    made = Hub("192.0.2.1", free_ports(1)[0], 1, 0.2)  # of a network that is for documents alone
    try:
        assert (
            made.note
            == "rank 0 listens for the others at every address, since 192.0.2.1 is not an address of this machine"
        )
    finally:
        made.close()


# Whoever can reach the port -----------------------------------------------------------------------------------


def test_a_proof_in_letters_of_no_digest_is_none(where):
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Channel, where, 0, 2, SOON, secret="this")
        for said in ("\u00e9" * 64, "\udcff", "\x00", ""):
            with connected(where) as stranger:
                Wire(stranger).send(Hello(PROTOCOL, 1, 2, said))
                assert "it is of another run" in Wire(stranger).receive()[0].reason
        second = Channel(where, 1, 2, SOON, secret="this")
        channels = [first.result(SOON), second]
        assert together(*(lambda c=c: c.exchange("x", c.rank)[1] for c in channels)) == [[0, 1]] * 2
        together(*(c.close for c in channels))


def test_a_hub_with_a_proof_in_such_letters_is_not_joined(where):
    with socket.create_server(address(where)) as listening:

        def answer():
            with listening.accept()[0] as one:
                Wire(one).receive()
                Wire(one).send(Welcome(PROTOCOL, 2, "\u00e9" * 64))
            listening.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ChannelError, match="rank 1 found no rank 0 at"):
            Channel(where, 1, 2, 0.5)
        thread.join(SOON)


def test_a_guest_that_speaks_while_it_is_pushed_out_is_heard_no_more(where, monkeypatch):
    """Both come in one turn of the hub: a new connection, for which the oldest guest goes, and that guest's words."""
    monkeypatch.setattr(hub, "MOST_GUESTS", 1)
    made = Hub(*address(where), 2, SOON)
    made._thread.join(0.3)  # it waits
    try:
        with connected(where) as first:
            assert until(lambda: len(made._guests) == 1)
            (guest,) = made._guests.values()
            made._turn_away(guest)
            first.settimeout(SOON)
            made._hear_guest(guest)
            made._turn_away(guest)
            assert not made._guests and made._thread.is_alive()
    finally:
        made._until = 0.0
        made.close()


def test_an_error_of_the_hub_in_a_guest_s_words_leaves_the_hub_to_the_ranks(where, monkeypatch):
    greet = Hub._greet

    def fails(self, guest):
        if fails.times:
            fails.times -= 1
            raise TypeError("not foreseen")
        greet(self, guest)

    fails.times = 1
    monkeypatch.setattr(Hub, "_greet", fails)
    with ThreadPoolExecutor(1) as pool:
        made = Hub(*address(where), 1, SOON)
        with connected(where) as stranger:
            stranger.sendall(b"x\n")
            assert until(lambda: not fails.times and not made._guests)
        assert made._thread.is_alive()
        made._until = 0.0
        pool.submit(made.close).result(SOON)
