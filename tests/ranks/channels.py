# SPDX-License-Identifier: Apache-2.0
"""Channels between ranks in one process, and raw connections, for the tests of channels."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from meshmark.ranks.channel import Channel, Ended
from meshmark.ranks.messages import (
    PROTOCOL,
    Hello,
    proof,
)
from meshmark.ranks.wire import ChannelError, Wire, address

SOON = 60.0


def hello(rank, size, secret=""):
    """The greeting of a rank of the run with this secret."""
    return Hello(PROTOCOL, rank, size, proof(secret, f"{rank} of {size}"))


@contextmanager
def group(where, size, **more):
    """A channel for each rank, all in this process."""
    with ThreadPoolExecutor(size) as pool:
        found = [pool.submit(Channel, where, rank, size, SOON, **more) for rank in range(size)]
        channels = [one.result(SOON) for one in found]
        try:
            yield channels
        finally:
            list(pool.map(Channel.close, channels))


def together(*calls):
    """Each in a thread of its own: what it gives, or raises."""

    def outcome(call):
        try:
            return call()
        except (ChannelError, Ended) as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(outcome, calls))


def joining(where, rank, size, join=SOON):
    return lambda: Channel(where, rank, size, join)


def connected(where, until=SOON):
    end = time.monotonic() + until
    while True:
        try:
            return socket.create_connection(address(where), timeout=until)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


@contextmanager
def by_hand(where, rank, size):
    """(channels of ranks below `rank`, the bare connection of rank `rank`), which has been welcomed."""
    with ThreadPoolExecutor(rank) as pool, ExitStack() as stack:
        others = [pool.submit(Channel, where, n, size, SOON) for n in range(rank)]
        bare = stack.enter_context(connected(where))
        Wire(bare).send(hello(rank, size))
        channels = [one.result(SOON) for one in others]
        assert b'"welcome"' in bare.recv(1000)
        try:
            yield channels, bare
        finally:
            bare.close()
            list(pool.map(Channel.close, channels))


def ended(call):
    with pytest.raises(Ended) as error:
        call()
    return error.value.ending
