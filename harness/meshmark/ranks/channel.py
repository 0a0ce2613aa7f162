# SPDX-License-Identifier: Apache-2.0
"""A small TCP channel between the ranks of one run. It does not use the collectives that are under test.

Rank 0 has the hub (`meshmark.ranks.hub`). Every rank, including rank 0, connects to it. The only operation is
`Channel.exchange`: each rank gives a value and gets the values of all ranks, in the order of ranks. A separate thread
notices when another rank is lost.

The hub listens at the given address, if it is an address of this machine. All ranks of a run share a secret, which
distinguishes them from ranks of another run and from strangers. Like JAX's own coordinator, the channel trusts
everybody who can read its traffic.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from meshmark.core import saying
from meshmark.core.interrupts import FromOutside
from meshmark.ranks import hub as hubs
from meshmark.ranks.hub import Hub, describe_loss
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
    proof,
    proves,
)
from meshmark.ranks.wire import SILENCE, ChannelError, Wire, address, keep_alive

GRACE = 5.0
"""Seconds in which the main thread must return to the channel after a rank is lost or an interrupt came. After that the
process ends, whatever the main thread waits for."""


@dataclass(frozen=True)
class Ending:
    """The reason why a run of several ranks can't continue, and the verdict of the case that it was in."""

    verdict: str
    """crash, hang, or "" if no case is the cause."""
    reason: str
    data: Mapping[str, Any] = field(default_factory=dict)


class Ended(FromOutside):
    """Raised in the main thread when the run can't continue. Code under test does not catch it."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Channel:
    """One rank's end of the channel. It exchanges values, and its own thread listens for losses of other ranks."""

    def __init__(
        self,
        where: str,
        rank: int,
        size: int,
        join: float = 120.0,
        ended: Callable[[Ending], None] = lambda ending: None,
        secret: str = "",
    ) -> None:
        """Join the run at HOST:PORT. Rank 0 opens the hub there. ChannelError if not all ranks come within `join`
        seconds.

        secret: ranks with another one belong to another run. ended: is called in the channel's thread if the run can't
        continue and the main thread does not return to the channel in time. It must record the ending and end the
        process.
        """
        host, port = address(where)
        self.rank, self.size, self.ended = rank, size, ended
        self.hub = Hub(host, port, size, join, secret) if rank == 0 else None
        self._state = threading.Condition()
        self._answers: dict[int, tuple[list[str], list[Any]]] = {}
        self._turn = 0
        self._ending: Ending | None = None
        self._at, self._until, self._waiting = "", float("inf"), False
        self._deadline = 0.0
        self._closing = self._heard = False
        self._leave_at = float("inf")
        self._main = threading.main_thread().ident
        try:
            self._wire, early = _joined(host, port, rank, size, join, secret)
        except ChannelError:
            if self.hub:
                self.hub.close(hubs.LINGER)
            raise
        try:
            for message in early:
                self._take(message)
        except Garbled as error:
            raise ChannelError(f"rank 0 {describe_loss(error)}") from None
        self._thread = threading.Thread(target=self._listen, name="meshmark-channel", daemon=True)
        self._thread.start()

    def exchange(self, what: str, value: Any, seconds: float = float("inf")) -> tuple[list[str], list[Any]]:
        """Give a value (JSON types) to all ranks. Gives (each rank's `what`, each rank's value), in the order of ranks.

        what: names the matter of this rank. Ended if the run can't continue, ChannelError if the others take more than
        `seconds`."""
        with self._state:
            self._raise()
            self._turn += 1
            turn, self._waiting = self._turn, True
            self._send(Give(turn, what, value))  # the listening thread notices a failure
            try:
                until = time.monotonic() + seconds
                while turn not in self._answers:
                    self._raise()
                    if time.monotonic() > until:
                        raise ChannelError(f"the other ranks did not answer within {seconds:.0f} s ({what})")
                    self._state.wait(0.5)
                return self._answers.pop(turn)
            finally:
                self._waiting = False

    @contextmanager
    def during(self, case: str, seconds: float) -> Iterator[None]:
        """The context of one case, which may take `seconds` on this rank."""
        self._deadline = seconds
        self._at, self._until = case, time.monotonic() + seconds
        self._send(Begin(case))
        try:
            yield
        finally:
            self._at, self._until = "", float("inf")

    def _send(self, message: Message) -> None:
        with suppress(OSError):
            self._wire.send(message)

    def _raise(self) -> None:
        if self._ending is not None:
            self._heard = True
            raise Ended(self._ending)

    def interrupt(self, why: str) -> None:
        """End this rank's run, and tell the others. It may be called from any thread."""
        self._end(Ending("", f"rank {self.rank} was ended: {why}"))
        self._send(Bye(f"was ended: {why}"))

    def close(self, why: str = "") -> None:
        """Leave the channel. With a reason, the other ranks end too."""
        self._closing = True
        self._send(Bye(why))
        if self.hub:
            self.hub.close()
        self._thread.join(2.0)
        self._wire.socket.close()

    def _listen(self) -> None:
        """Run the channel's thread: it handles answers, losses and deadlines."""
        reading = selectors.DefaultSelector()
        reading.register(self._wire.socket, selectors.EVENT_READ)
        late: float | None = None
        while not self._closing:
            ready = reading.select(0.25)
            now = time.monotonic()
            if ready:
                try:
                    for message in self._wire.receive():
                        self._take(message)
                except (OSError, Garbled) as error:
                    if not self._closing and self._ending is None:
                        # JAX ends this process soon, because rank 0 has its coordinator too.
                        self._end(self._lost(0, describe_loss(error), None), at_once=True)
                    reading.unregister(self._wire.socket)
            if now > self._until and late is None:
                late = now
                self._send(Whereabouts(self._whereabouts()))
            if self._until == float("inf"):
                late = None
            if late is not None and now > late + hubs.GATHER + GRACE and self._ending is None:
                self._end(self._hang({"0": None, str(self.rank): self._whereabouts()}, {}))
            if now > self._leave_at and not self._heard:
                self._heard = True
                assert self._ending is not None
                self.ended(self._ending)

    def _take(self, message: Message) -> None:
        match message:
            case Given():
                with self._state:
                    self._answers[message.turn] = (message.whats, message.values)
                    self._state.notify_all()
            case Ask():
                self._send(Whereabouts(self._whereabouts()))
            case Over():
                self._end(self._hang(message.places, message.given), at_once=True)
            case Lost(orderly=True):
                self._end(Ending("", f"rank {message.rank} {message.why}"))
            case Lost():
                self._end(self._lost(message.rank, message.why, message.case))
            case _:
                raise Garbled(f"the hub does not send {message.kind}")

    def _end(self, ending: Ending, at_once: bool = False) -> None:
        with self._state:
            if self._ending is None:
                self._ending = ending
                self._leave_at = time.monotonic() + (0 if at_once and not self._waiting else GRACE)
                self._state.notify_all()

    def _lost(self, number: int, why: str, at: str | None) -> Ending:
        """The ending of a run whose rank `number` vanished. Only a case that this rank had begun can be the cause."""
        verdict = "crash" if self._at and at in (None, self._at) else ""
        return Ending(verdict, f"rank {number} {why}", {"ended_rank": number})

    def _hang(self, places: Mapping[str, str | None], said: Mapping[str, Any]) -> Ending:
        where = [
            f"rank {rank} {'does not answer' if place is None else place.split(' < ')[0]}"
            for rank, place in sorted(places.items(), key=lambda item: (len(item[0]), item[0]))
        ]
        data = {
            "stacks": {rank: (place or "").split(" < ") for rank, place in places.items()},
            "said": dict(said),
        }
        return Ending("hang", f"past its deadline of {self._deadline:g} s: {'; '.join(where)}", data)

    def _whereabouts(self) -> str:
        """The position of the main thread: its innermost frames, as module:function:line."""
        if self._waiting:
            return "waits for the others"
        if not self._at:
            return "is in no case"
        frame = sys._current_frames().get(self._main or 0)
        found: list[str] = []
        while frame is not None and len(found) < 12:
            code = frame.f_code
            found.append(f"{PurePath(code.co_filename).stem}:{code.co_name}:{frame.f_lineno}")
            frame = frame.f_back
        return "in " + " < ".join(found)


def _joined(
    host: str, port: int, rank: int, size: int, join: float, secret: str
) -> tuple[Wire, list[Message]]:
    """(the connection to the hub after every rank has joined, the messages that followed the welcome); ChannelError if
    the ranks do not join."""
    until = time.monotonic() + join + 5.0  # the hub gives up first, and names the missing ranks
    last: object = "nobody listens there"
    while time.monotonic() < until:
        try:
            connection = socket.create_connection((host, port), timeout=5.0)
        except OSError as error:
            last = error.strerror or error
            time.sleep(0.05)
            continue
        wire = Wire(connection)
        try:
            wire.send(Hello(PROTOCOL, rank, size, proof(secret, f"{rank} of {size}")))
            connection.settimeout(max(0.1, until - time.monotonic()))
            message, *early = wire.receive()
            if not isinstance(message, Welcome | JoinRefused):
                raise Garbled(f"{message.kind} instead of welcome")
            if isinstance(message, Welcome) and not proves(message.run, secret, "hub"):
                raise Garbled("a hub of another run")
        except (OSError, ValueError) as error:  # ValueError: garbled, or half a message
            # A hub that is ending, such as that of the previous group, closes the connection too.
            connection.close()
            last = f"what answers there is not a hub of this suite ({error})"
            time.sleep(0.2)
            continue
        if isinstance(message, JoinRefused):
            connection.close()
            raise ChannelError(message.reason)
        connection.settimeout(SILENCE)
        keep_alive(connection)
        return wire, early
    raise ChannelError(
        f"rank {rank} found no rank 0 at {host}:{port} within {join:.0f} s ({last}): is it started, and is"
        " --control (by default the coordinator's port + 1) the same on every rank?"
    )


def spans(values: Sequence[Any]) -> str:
    """The differing values with their ranks, as "rank 0: a; ranks 1, 2: b"; "" if all are equal. Equal entries of
    mappings are left out."""
    if all(isinstance(value, Mapping) for value in values):
        names = sorted({name for value in values for name in value})
        unlike = [n for n in names if any(value.get(n) != values[0].get(n) for value in values)]
        values = [{n: value[n] for n in unlike if n in value} for value in values]
    groups: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        groups.setdefault(json.dumps(value, sort_keys=True), []).append(rank)
    if len(groups) < 2:
        return ""
    return "; ".join(
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}: {saying.printable_line(json.loads(text))}"
        for text, ranks in groups.items()
    )
