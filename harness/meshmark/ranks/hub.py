# SPDX-License-Identifier: Apache-2.0
"""The hub, on rank 0: it admits the ranks, exchanges their values, and announces the end of a run.

It runs in its own thread. It knows the case of each rank, and notices at once if a rank's connection ends. If one rank
exceeds its deadline, it asks all ranks for their whereabouts.
"""

from __future__ import annotations

import errno
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from meshmark.ranks.messages import (
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
    Message,
    Over,
    Welcome,
    Whereabouts,
    encode,
    proof,
    proves,
)
from meshmark.ranks.wire import SILENCE, ChannelError, Wire, keep_alive

LINGER = 3.0
"""If the ranks can't form a group, the hub tells later ranks the reason for this many seconds."""

GREETING = 20.0
"""Seconds in which a connection must send its greeting."""

LONGEST_GREETING = 1 << 12
"""The largest size of a greeting, in bytes."""

MOST_GUESTS = 256
"""The largest number of connections without a greeting. The oldest is closed for a new one."""

BACKLOG = 4096
"""The number of connections that the system may hold before they are accepted."""

OTHER_RUN = (
    "it is of another run: give every process the same --control-secret, or none, and start them as one job"
)

GATHER = 2.0
"""Seconds that the hub waits for the others' whereabouts after one rank exceeds its deadline."""


def describe_loss(error: Exception) -> str:
    """A description of the loss of a connection, by the error that reading from it raised."""
    if isinstance(error, ConnectionError):
        return "ended: its connection closed"
    if isinstance(error, OSError):
        return f"can't be reached any more: {error.strerror or error}"
    return f"sent something that is not a message of this suite ({error})"


@dataclass(eq=False)
class _Rank:
    """The hub's state of one rank."""

    number: int
    wire: Wire
    case: str = ""
    """The case that it has begun last; "" before the first one."""
    place: str | None = None
    """Its whereabouts, after a rank exceeded its deadline; None if it has not answered."""
    left: bool = False


@dataclass(eq=False)
class _Guest:
    """A connection that has not sent a greeting yet."""

    wire: Wire
    until: float
    """The time at which it is closed."""


class Hub:
    """The hub: it admits the ranks, exchanges their values, and announces the end of a run."""

    def __init__(self, host: str, port: int, size: int, join: float, secret: str = "") -> None:
        """Listen and start the hub's thread. ChannelError if the port is taken.

        Ranks have `join` seconds to come, and prove by `secret` that they belong to this run."""
        self.size, self.join, self.secret = size, join, secret
        self.ranks: dict[int, _Rank] = {}
        self.refusal = ""
        self.turn = 0
        self.given: dict[int, Give] = {}
        self.asked: float | None = None
        self.strangers = 0
        """The number of connections from ranks of another run."""
        try:
            self._listening, self.note = _listening(host, port)
        except OSError as error:
            raise ChannelError(
                f"rank 0 can't listen on {host}:{port} for the other ranks ({error.strerror}): is another process"
                " rank 0 too? Else name a free port with --control HOST:PORT on every rank"
            ) from None
        self._guests: dict[socket.socket, _Guest] = {}
        self._selector = selectors.DefaultSelector()
        for one in self._listening:
            self._selector.register(one, selectors.EVENT_READ, None)
        self._until = time.monotonic() + join
        self._thread = threading.Thread(target=self._run, name="meshmark-hub", daemon=True)
        self._thread.start()

    def close(self, seconds: float = 5.0) -> None:
        """Wait until every rank has left, for `seconds` at most."""
        self._thread.join(seconds)

    def _run(self) -> None:
        joined = False
        while not (self.refusal and len(self.ranks) == self.size):
            for key, _ in self._selector.select(0.25):
                if isinstance(key.fileobj, socket.socket) and key.fileobj in self._listening:
                    self._welcome_guest(key.fileobj)
                elif isinstance(key.data, _Guest):
                    self._hear_guest(key.data)
                else:
                    self._hear(key.data)
            now = time.monotonic()
            for guest in [guest for guest in self._guests.values() if now > guest.until]:
                self._turn_away(guest)
            if not joined and len(self.ranks) == self.size:
                joined = True
                for rank in self.ranks.values():
                    self._send(rank, Welcome(PROTOCOL, self.size, proof(self.secret, "hub")))
            if not joined and now > self._until:
                if self.refusal:
                    break
                missing = [str(n) for n in range(self.size) if n not in self.ranks]
                self._refuse(
                    f"rank{'s' * (len(missing) > 1)} {', '.join(missing)} of {self.size} did not come within"
                    f" {self.join:.0f} s: is every rank started, with the same addresses and --num-processes?"
                    + (f" ({self.strangers} of another run came)" if self.strangers else "")
                )
                break
            if self.asked is not None and (
                now > self.asked + GATHER or all(r.place is not None for r in self._there())
            ):
                self._finish()
            if joined and all(r.left for r in self.ranks.values()):
                break
        self._selector.close()
        for one in (*self._listening, *self._guests):
            one.close()
        for rank in self.ranks.values():
            with suppress(OSError):
                rank.wire.socket.close()

    def _there(self) -> list[_Rank]:
        """The ranks that have not left. Rank 0 is last: its process may end after a message, and this thread with
        it."""
        return [rank for _, rank in sorted(self.ranks.items(), reverse=True) if not rank.left]

    def _welcome_guest(self, listening: socket.socket) -> None:
        """Accept a new connection. It has GREETING seconds for its greeting, and does not block others."""
        try:
            connection, _ = listening.accept()
        except OSError:  # it is closed already, or this process has reached its limit of open files
            time.sleep(0.02)
            return
        if len(self._guests) >= MOST_GUESTS:
            self._turn_away(next(iter(self._guests.values())))
        connection.settimeout(1.0)
        guest = _Guest(Wire(connection, LONGEST_GREETING), time.monotonic() + GREETING)
        self._guests[connection] = guest
        self._selector.register(connection, selectors.EVENT_READ, guest)

    def _turn_away(self, guest: _Guest, why: str = "") -> None:
        """Close a connection that does not belong to a rank, after a message with the reason, if there is one.

        A connection that was closed before may be handled again in the same round. Then nothing happens."""
        if guest.wire.socket not in self._guests:
            return
        self._leave_guests(guest)
        if why:
            with suppress(OSError):
                guest.wire.send(JoinRefused(why))
        guest.wire.socket.close()

    def _leave_guests(self, guest: _Guest) -> None:
        del self._guests[guest.wire.socket]
        self._selector.unregister(guest.wire.socket)

    def _hear_guest(self, guest: _Guest) -> None:
        """Read from a guest. No error in it stops the hub."""
        try:
            self._greet(guest)
        except Exception:
            self._turn_away(guest)

    def _greet(self, guest: _Guest) -> None:
        """Read a guest's first message. It must be the greeting of a rank of this run that is still missing."""
        try:
            said = guest.wire.receive()
        except (OSError, Garbled):
            self._turn_away(guest)
            return
        if not said:  # half a greeting
            return
        hello = said[0]
        if not isinstance(hello, Hello) or hello.protocol != PROTOCOL:
            self._turn_away(guest)
            return
        number, size = hello.rank, hello.size
        if not proves(hello.run, self.secret, f"{number} of {size}"):
            self.strangers += 1
            self._turn_away(guest, OTHER_RUN)
            return
        if self.refusal:
            self._turn_away(guest, self.refusal)
            self.ranks.setdefault(number, _Rank(number, guest.wire, left=True))
            return
        refusal = ""
        if size != self.size:
            refusal = f"rank {number} says {size} processes and rank 0 says {self.size}"
        elif not 0 <= number < self.size:
            refusal = f"rank {number} is not one of 0 to {self.size - 1}"
        elif number in self.ranks:
            refusal = f"two processes say that they are rank {number} of {self.size}"
        if refusal:
            refusal += ": give every process its own --process-id and the same --num-processes"
            self._turn_away(guest, refusal)
            if len(self.ranks) < self.size:  # after the start of a run only the newcomer is refused
                self._refuse(refusal)
            return
        self._leave_guests(guest)
        connection = guest.wire.socket
        guest.wire.longest = None
        connection.settimeout(SILENCE)
        keep_alive(connection)
        self.ranks[number] = rank = _Rank(number, guest.wire)
        self._selector.register(connection, selectors.EVENT_READ, rank)

    def _refuse(self, reason: str) -> None:
        """Refuse the group: tell the ranks that are connected, and those that connect in the next LINGER seconds."""
        self.refusal = reason
        self._until = time.monotonic() + LINGER
        for rank in self._there():
            self._send(rank, JoinRefused(reason))
            rank.left = True

    def _send(self, rank: _Rank, message: Message) -> None:
        with suppress(OSError):  # the next read notices that it is gone
            rank.wire.send(message)

    def _hear(self, rank: _Rank) -> None:
        try:
            self._obey(rank, rank.wire.receive())
        except (OSError, Garbled) as error:
            self._drop(rank, describe_loss(error))
        except Exception as error:  # no message of a rank stops the hub
            self._drop(rank, describe_loss(Garbled(type(error).__name__)))

    def _obey(self, rank: _Rank, messages: Sequence[Message]) -> None:
        for message in messages:
            match message:
                case Give():
                    if message.turn != self.turn + 1 or rank.number in self.given:
                        raise Garbled(f"a value of exchange {message.turn} in exchange {self.turn + 1}")
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
        """Note that a rank left. With a reason, the other ranks are told."""
        if rank.left:
            return
        rank.left = True
        with suppress(KeyError, ValueError):
            self._selector.unregister(rank.wire.socket)
        if why:
            for other in self._there():
                self._send(other, Lost(rank.number, why, rank.case, orderly))

    def _finish(self) -> None:
        """After a deadline: send to all ranks the whereabouts of all, and the values that some had already given."""
        self.asked = None
        places = {str(rank.number): rank.place for rank in self._there()}
        given = {str(number): one.value for number, one in self.given.items()}
        for rank in self._there():
            self._send(rank, Over(places, given))


def _listening(host: str, port: int) -> tuple[list[socket.socket], str]:
    """(sockets that listen at this host's addresses, a note). If the name has no address of this machine (for example
    behind a router or a service), they listen at every address, and the note tells it. OSError if the port is taken."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    made: list[socket.socket] = []
    for family, _, _, _, where in dict.fromkeys(found):
        try:
            made.append(_listen(family, where))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                for one in made:
                    one.close()
                raise
    if made:
        return made, ""
    everywhere = (socket.AF_INET6, "::") if socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")
    note = f"rank 0 listens for the others at every address, since {host} is not an address of this machine"
    return [_listen(everywhere[0], (everywhere[1], port))], note


def _listen(family: int, where: Any) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
        made.bind(where)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made
