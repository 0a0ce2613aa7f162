# SPDX-License-Identifier: Apache-2.0
"""The hub, on rank 0: takes the ranks in, passes their values around, and says when it is over.

It runs in a thread of its own. It hears what each rank is at, sees at once when a rank's connection ends, and asks
everybody where they are when one is past its deadline.
"""

from __future__ import annotations

import ipaddress
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from meshmark.ranks.messages import (
    PROTOCOL,
    Ask,
    Begin,
    Bye,
    Garbled,
    Give,
    Given,
    Hello,
    Lost,
    Message,
    Over,
    Refused,
    Welcome,
    Whereabouts,
    encode,
)
from meshmark.ranks.wire import SILENCE, ChannelError, Wire, keep_alive

LINGER = 3.0
"""Seconds for which a hub whose ranks do not fit together goes on to tell those that come later."""

GATHER = 2.0
"""Seconds that the hub waits for the others' whereabouts once one rank is past its deadline."""


def describe_loss(error: Exception) -> str:
    """What became of the other end of a connection, by what reading from it raised."""
    if isinstance(error, ConnectionError):
        return "ended: its connection closed"
    if isinstance(error, OSError):
        return f"can't be reached any more: {error.strerror or error}"
    return f"sent something that is not a message of this suite ({error})"


@dataclass(eq=False)
class _Rank:
    """What the hub knows of one rank."""

    number: int
    wire: Wire
    case: str = ""
    """The case that it runs, or ""."""
    place: str | None = None
    """Where it was when it was past its deadline."""
    left: bool = False


class Hub:
    """Rank 0's side: takes the ranks in, passes their values around, and says when it is over."""

    def __init__(self, host: str, port: int, size: int, join: float) -> None:
        """Listen; ChannelError where the port is taken. Ranks have `join` seconds to come."""
        self.size, self.join = size, join
        self.ranks: dict[int, _Rank] = {}
        self.refusal = ""
        self.turn = 0
        self.given: dict[int, Give] = {}
        self.asked: float | None = None
        family, bound = _bound(host)
        self._listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and bound == "::":
                self._listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._listening.bind((bound, port))
            self._listening.listen(size + 8)
        except OSError as error:
            self._listening.close()
            raise ChannelError(
                f"rank 0 can't listen on {host}:{port} for the other ranks ({error.strerror}): is another process"
                " rank 0 too? Else name a free port with --control HOST:PORT on every rank"
            ) from None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ, None)
        self._until = time.monotonic() + join
        self._thread = threading.Thread(target=self._run, name="meshmark-hub", daemon=True)
        self._thread.start()

    def close(self, seconds: float = 5.0) -> None:
        """Wait until every rank has left, or for so long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        joined = False
        while not (self.refusal and len(self.ranks) == self.size):
            for key, _ in self._selector.select(0.25):
                if key.fileobj is self._listening:
                    self._greet()
                else:
                    self._hear(key.data)
            now = time.monotonic()
            if not joined and len(self.ranks) == self.size:
                joined = True
                for rank in self.ranks.values():
                    self._send(rank, Welcome(PROTOCOL, self.size))
            if not joined and now > self._until:
                if self.refusal:
                    break
                missing = [str(n) for n in range(self.size) if n not in self.ranks]
                self._refuse(
                    f"rank{'s' * (len(missing) > 1)} {', '.join(missing)} of {self.size} did not come within"
                    f" {self.join:.0f} s: is every rank started, with the same addresses and --num-processes?"
                )
                break
            if self.asked is not None and (
                now > self.asked + GATHER or all(r.place is not None for r in self._there())
            ):
                self._finish()
            if joined and all(r.left for r in self.ranks.values()):
                break
        self._selector.close()
        self._listening.close()
        for rank in self.ranks.values():
            with suppress(OSError):
                rank.wire.socket.close()

    def _there(self) -> list[_Rank]:
        """Who has not left; rank 0 last, for its process may end, and this thread with it, once it has heard."""
        return [rank for _, rank in sorted(self.ranks.items(), reverse=True) if not rank.left]

    def _greet(self) -> None:
        """Take a new connection in: its first message must be the greeting of a rank that is still missing."""
        with suppress(OSError):
            connection, _ = self._listening.accept()
            connection.settimeout(1.0)  # silent peers cannot block others for long
            wire = Wire(connection)
            try:
                hello = next(iter(wire.receive()), None)
            except (OSError, Garbled):
                hello = None
            if not isinstance(hello, Hello) or hello.protocol != PROTOCOL:
                connection.close()
                return
            number, size = hello.rank, hello.size
            refusal = ""
            if self.refusal:
                with suppress(OSError):
                    wire.send(Refused(self.refusal))
                connection.close()
                self.ranks.setdefault(number, _Rank(number, wire, left=True))
                return
            if size != self.size:
                refusal = f"rank {number} says {size} processes and rank 0 says {self.size}"
            elif not 0 <= number < self.size:
                refusal = f"rank {number} is not one of 0 to {self.size - 1}"
            elif number in self.ranks:
                refusal = f"two processes say that they are rank {number} of {self.size}"
            if refusal:
                refusal += ": give every process its own --process-id and the same --num-processes"
                with suppress(OSError):
                    wire.send(Refused(refusal))
                connection.close()
                if len(self.ranks) < self.size:  # of a run that has begun, only the newcomer is turned away
                    self._refuse(refusal)
                return
            connection.settimeout(SILENCE)
            keep_alive(connection)
            self.ranks[number] = rank = _Rank(number, wire)
            self._selector.register(connection, selectors.EVENT_READ, rank)

    def _refuse(self, reason: str) -> None:
        """The ranks can't come together: tell those that are there, and who comes in the next seconds."""
        self.refusal = reason
        self._until = time.monotonic() + LINGER
        for rank in self._there():
            self._send(rank, Refused(reason))
            rank.left = True

    def _send(self, rank: _Rank, message: Message) -> None:
        with suppress(OSError):  # that it is gone is seen when it is read from
            rank.wire.send(message)

    def _hear(self, rank: _Rank) -> None:
        try:
            self._obey(rank, rank.wire.receive())
        except (OSError, Garbled) as error:
            self._drop(rank, describe_loss(error))

    def _obey(self, rank: _Rank, messages: Sequence[Message]) -> None:
        for message in messages:
            match message:
                case Give():
                    self.given[rank.number] = message
                    if gone := [r.number for r in self.ranks.values() if r.left]:
                        self._send(rank, Lost(gone[0], "had left before", "", orderly=True))
                    if len(self.given) == self.size:
                        self._answer()
                case Begin():
                    rank.case, rank.place = message.case, None
                case Whereabouts():
                    rank.place = message.place
                    self.asked = self.asked or time.monotonic()
                    for other in self._there():
                        self._send(other, Ask())
                case Bye():
                    self._drop(rank, message.reason, orderly=True)
                case _:
                    raise Garbled(f"a rank does not send {message.kind}")

    def _answer(self) -> None:
        given = [self.given[number] for number in range(self.size)]
        self.given, self.turn = {}, self.turn + 1
        answer = encode(Given(self.turn, [one.what for one in given], [one.value for one in given]))
        for rank in self._there():
            with suppress(OSError):  # as in _send
                rank.wire.send_line(answer)

    def _drop(self, rank: _Rank, why: str, orderly: bool = False) -> None:
        """A rank left: the others must know, unless everybody is leaving."""
        if rank.left:
            return
        rank.left = True
        with suppress(KeyError, ValueError):
            self._selector.unregister(rank.wire.socket)
        if why:
            for other in self._there():
                self._send(other, Lost(rank.number, why, rank.case, orderly))

    def _finish(self) -> None:
        """Past a deadline: say to everybody where everybody was, and what some had already given."""
        self.asked = None
        places = {str(rank.number): rank.place for rank in self._there()}
        given = {str(number): one.value for number, one in self.given.items()}
        for rank in self._there():
            self._send(rank, Over(places, given))


def _bound(host: str) -> tuple[socket.AddressFamily, str]:
    """Where to listen for a coordinator of this name: a loopback address alone, else on every address."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    for family, *_, where in found:
        if ipaddress.ip_address(str(where[0]).partition("%")[0]).is_loopback:
            return family, str(where[0])
    return (socket.AF_INET6, "::") if socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")
