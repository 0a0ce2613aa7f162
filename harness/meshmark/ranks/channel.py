"""A small TCP channel between the ranks of one run: never through the collectives that are under test.

Rank 0 holds the hub, in a thread of its own; every rank, 0 among them, connects to it. A message is one line of strict
JSON. The one operation is `Channel.exchange`: each rank gives a value and gets those of all, in the order of ranks.
Beside it the hub hears what each rank is at, sees at once when a rank's connection ends, and asks everybody where they
are when one is past its deadline. A cut link ends a connection too, by TCP's keepalive and user timeout: no message
needs to be sent for that, and a process that holds the GIL is not taken for a dead one.

Like JAX's own coordinator, the channel trusts the network that it listens on; on a loopback address it listens
there alone.
"""

from __future__ import annotations

import ipaddress
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

from meshmark.core.errors import BadInput

GREETING = "meshmark-ranks 1"
"""What both ends say first: the protocol and its version."""

LONGEST = 1 << 26
"""Bytes of the longest message that is taken."""

LINGER = 3.0
"""Seconds that a hub whose ranks do not fit together goes on to say so to those that come later."""

SILENCE = 12.0
"""Seconds without any sign of life from the other end's kernel after which a connection counts as cut."""

GATHER = 2.0
"""Seconds that the hub waits for the others' whereabouts once one rank is past its deadline."""

GRACE = 5.0
"""Seconds that the main thread has to come back to the channel once a rank is lost or an interrupt came: whatever it
waits for is left then."""


class ChannelError(BadInput, RuntimeError):
    """The ranks did not come together; the message is one line."""


@dataclass(frozen=True)
class Ending:
    """Why a run of several ranks can't go on: the verdict of the case that it was in."""

    verdict: str
    """crash, hang, or "" where no case is to blame."""
    reason: str
    data: Mapping[str, Any] = field(default_factory=dict)


class Ended(BaseException):
    """Raised in the main thread when the run can't go on; no Exception, so that nothing that is judged catches it."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def address(text: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT or [HOST]:PORT; ChannelError where it is neither."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ChannelError(f"{text!r} is no address: use HOST:PORT with a port from 1 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _lively(connection: socket.socket) -> None:
    """Make the kernel notice a cut link, and send small messages at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 3),
        ("TCP_KEEPINTVL", 3),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(1000 * SILENCE)),
    ):
        if hasattr(socket, name):  # each where the system has it
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Wire:
    """One end of a connection: whole messages out of it and into it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket, self._sending = connection, threading.Lock()
        self._pending: list[bytes] = []

    def send(self, **message: Any) -> None:
        """Send one message; OSError where the other end is gone, the connection being of no use then."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            try:
                self.socket.sendall(data)
            except OSError:  # half a message may be on its way: who reads here must see the end
                with suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)
                raise

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have come whole, after waiting for some data; OSError at the end of the connection,
        ValueError for what is no message."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError("its connection closed")
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._pending.append(data)
            if sum(map(len, self._pending)) > LONGEST:
                raise ValueError("a message without an end")
            return []
        lines = b"".join([*self._pending, whole]).split(b"\n")
        self._pending = [rest]
        try:
            messages = [json.loads(line) for line in lines]
        except RecursionError:
            raise ValueError("too deep") from None
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("no message")
        return messages


# The hub ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Rank:
    """What the hub knows of one rank."""

    number: int
    wire: Wire
    at: str = ""
    """The case that it runs, or ""."""
    where: str | None = None
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
        self.given: dict[int, tuple[str, Any]] = {}
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
                    self._tell(rank, welcome=GREETING, size=self.size)
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
                now > self.asked + GATHER or all(r.where is not None for r in self._there())
            ):
                self._over()
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
            connection.settimeout(1.0)  # who says nothing holds up nobody for long
            wire = Wire(connection)
            try:
                hello = wire.receive()[0]
                number, size = hello["rank"], hello["size"]
                if hello["hello"] != GREETING or type(number) is not int:
                    raise ValueError(GREETING)
            except (OSError, ValueError, LookupError, TypeError):
                connection.close()
                return
            refusal = ""
            if self.refusal:
                with suppress(OSError):
                    wire.send(refused=self.refusal)
                connection.close()
                self.ranks.setdefault(number, _Rank(number, wire, left=True))
                return
            if size != self.size:
                refusal = f"rank {number} says {size} processes and rank 0 says {self.size}"
            elif not 0 <= number < self.size:
                refusal = f"rank {number} is none of 0 to {self.size - 1}"
            elif number in self.ranks:
                refusal = f"two processes say that they are rank {number} of {self.size}"
            if refusal:
                refusal += ": give every process its own --process-id and the same --num-processes"
                with suppress(OSError):
                    wire.send(refused=refusal)
                connection.close()
                if len(self.ranks) < self.size:  # of a run that has begun, only the newcomer is turned away
                    self._refuse(refusal)
                return
            connection.settimeout(SILENCE)
            _lively(connection)
            self.ranks[number] = rank = _Rank(number, wire)
            self._selector.register(connection, selectors.EVENT_READ, rank)

    def _refuse(self, reason: str) -> None:
        """The ranks can't come together: tell those that are there, and who comes in the next seconds."""
        self.refusal = reason
        self._until = time.monotonic() + LINGER
        for rank in self._there():
            self._tell(rank, refused=reason)
            rank.left = True

    def _tell(self, rank: _Rank, **message: Any) -> None:
        with suppress(OSError):  # that it is gone is seen when it is read from
            rank.wire.send(**message)

    def _hear(self, rank: _Rank) -> None:
        try:
            messages = rank.wire.receive()
        except (OSError, ValueError) as error:
            self._gone(rank, _why(error))
            return
        try:
            self._obey(rank, messages)
        except (LookupError, TypeError) as error:
            self._gone(rank, _why(error))

    def _obey(self, rank: _Rank, messages: Sequence[Mapping[str, Any]]) -> None:
        for message in messages:
            if "turn" in message:
                self.given[rank.number] = (message["what"], message["value"])
                if gone := [r.number for r in self.ranks.values() if r.left]:
                    self._tell(rank, lost=gone[0], why="had left before", at="", orderly=True)
                if len(self.given) == self.size:
                    self._answer()
            elif "at" in message:
                rank.at, rank.where = message["at"], None
            elif "late" in message:
                rank.where = message["late"]
                self.asked = self.asked or time.monotonic()
                for other in self._there():
                    self._tell(other, where=True)
            elif "bye" in message:
                self._gone(rank, message["bye"], orderly=True)

    def _answer(self) -> None:
        whats = [self.given[n][0] for n in range(self.size)]
        values = [self.given[n][1] for n in range(self.size)]
        self.given, self.turn = {}, self.turn + 1
        for rank in self._there():
            self._tell(rank, turn=self.turn, whats=whats, values=values)

    def _gone(self, rank: _Rank, why: str, orderly: bool = False) -> None:
        """A rank left: the others must know, unless everybody is leaving."""
        if rank.left:
            return
        rank.left = True
        with suppress(KeyError, ValueError):
            self._selector.unregister(rank.wire.socket)
        if why:
            for other in self._there():
                self._tell(other, lost=rank.number, why=why, at=rank.at, orderly=orderly)

    def _over(self) -> None:
        """Past a deadline: tell everybody where everybody was, and what some had already said."""
        self.asked = None
        places = {str(r.number): r.where for r in self._there()}
        said = {str(n): value for n, (_, value) in self.given.items()}
        for rank in self._there():
            self._tell(rank, over=places, said=said)


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


# A rank -----------------------------------------------------------------------------------------------------


class Channel:
    """One rank's end: exchanges values, and learns in a thread of its own what becomes of the others."""

    def __init__(
        self,
        where: str,
        rank: int,
        size: int,
        join: float = 120.0,
        ended: Callable[[Ending], None] = lambda ending: None,
    ) -> None:
        """Join the run at HOST:PORT, rank 0 opening the hub there; ChannelError where the ranks don't come
        together within `join` seconds.

        `ended` is called in the channel's thread where the run can't go on and the main thread did not come back
        to the channel to hear it: it is expected to write down the ending and to leave the process.
        """
        host, port = address(where)
        self.rank, self.size, self.ended = rank, size, ended
        self.hub = Hub(host, port, size, join) if rank == 0 else None
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
            self._wire, early = _joined(host, port, rank, size, join)
        except ChannelError:
            if self.hub:
                self.hub.close(LINGER)
            raise
        for message in early:
            self._take(message)
        self._thread = threading.Thread(target=self._listen, name="meshmark-channel", daemon=True)
        self._thread.start()

    def exchange(self, what: str, value: Any, seconds: float = float("inf")) -> tuple[list[str], list[Any]]:
        """What each rank is at, and its value (JSON types), in the order of ranks; Ended where the run can't go on,
        ChannelError where the others take more than so many seconds."""
        with self._state:
            self._raise()
            self._turn += 1
            turn, self._waiting = self._turn, True
            self._say(turn=turn, what=what, value=value)  # that it fails is learnt where it is read
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
        """While one case runs, which may take so many seconds here."""
        self._deadline = seconds
        self._at, self._until = case, time.monotonic() + seconds
        self._say(at=case)
        try:
            yield
        finally:
            self._at, self._until = "", float("inf")

    def _say(self, **message: Any) -> None:
        with suppress(OSError):
            self._wire.send(**message)

    def _raise(self) -> None:
        if self._ending is not None:
            self._heard = True
            raise Ended(self._ending)

    def interrupt(self, why: str) -> None:
        """From any thread: this rank was told to end, and so tells the others."""
        self._end(Ending("", f"rank {self.rank} was ended: {why}"))
        self._say(bye=f"was ended: {why}")

    def close(self, why: str = "") -> None:
        """Leave; a reason makes the others end too."""
        self._closing = True
        self._say(bye=why)
        if self.hub:
            self.hub.close()
        self._thread.join(2.0)
        self._wire.socket.close()

    def _listen(self) -> None:
        """The thread: answers, losses, deadlines."""
        reading = selectors.DefaultSelector()
        reading.register(self._wire.socket, selectors.EVENT_READ)
        late: float | None = None
        while not self._closing:
            ready = reading.select(0.25)
            now = time.monotonic()
            if ready:
                try:
                    messages = self._wire.receive()
                except (OSError, ValueError) as error:
                    if not self._closing and self._ending is None:
                        # JAX ends this process soon: rank 0 holds its coordinator too.
                        self._end(self._lost(0, _why(error), None), at_once=True)
                    messages = []
                    reading.unregister(self._wire.socket)
                for message in messages:
                    self._take(message)
            if now > self._until and late is None:
                late = now
                self._say(late=self._whereabouts())
            if self._until == float("inf"):
                late = None
            if late is not None and now > late + GATHER + GRACE and self._ending is None:
                self._end(self._hang({"0": None, str(self.rank): self._whereabouts()}, {}))
            if now > self._leave_at and not self._heard:
                self._heard = True
                assert self._ending is not None
                self.ended(self._ending)

    def _take(self, message: dict[str, Any]) -> None:
        if "turn" in message:
            with self._state:
                self._answers[message["turn"]] = (message["whats"], message["values"])
                self._state.notify_all()
        elif "where" in message:
            self._say(late=self._whereabouts())
        elif "over" in message:
            self._end(self._hang(message["over"], message["said"]), at_once=True)
        elif "lost" in message:
            number, why = message["lost"], message["why"]
            if message["orderly"]:
                self._end(Ending("", f"rank {number} {why}"))
            else:
                self._end(self._lost(number, why, message["at"]))

    def _end(self, ending: Ending, at_once: bool = False) -> None:
        with self._state:
            if self._ending is None:
                self._ending = ending
                self._leave_at = time.monotonic() + (0 if at_once and not self._waiting else GRACE)
                self._state.notify_all()

    def _lost(self, number: int, why: str, at: str | None) -> Ending:
        """The ending of a run whose rank `number` vanished; no case is to blame that it had not begun."""
        verdict = "crash" if self._at and at in (None, self._at) else ""
        return Ending(verdict, f"rank {number} {why}", {"ended_rank": number})

    def _hang(self, places: Mapping[str, str | None], said: Mapping[str, Any]) -> Ending:
        told = [
            f"rank {rank} {'does not answer' if place is None else place.split(' < ')[0]}"
            for rank, place in sorted(places.items(), key=lambda item: int(item[0]))
        ]
        data = {
            "stacks": {rank: (place or "").split(" < ") for rank, place in places.items()},
            "said": dict(said),
        }
        return Ending("hang", f"past its deadline of {self._deadline:g} s: {'; '.join(told)}", data)

    def _whereabouts(self) -> str:
        """Where the main thread is: its innermost frames, as module:function:line."""
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


def _why(error: Exception) -> str:
    """What became of the other end, by what reading from it raised."""
    if isinstance(error, ConnectionError):
        return "ended: its connection closed"
    if isinstance(error, OSError):
        return f"can't be reached any more: {error.strerror or error}"
    return f"sent what is no message of this suite ({error})"


def _joined(host: str, port: int, rank: int, size: int, join: float) -> tuple[Wire, list[dict[str, Any]]]:
    """The connection to the hub, once every rank is there, and what came behind the welcome; ChannelError where
    that does not come about."""
    until = time.monotonic() + join + 5.0  # the hub gives up first, and says who is missing
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
            wire.send(hello=GREETING, rank=rank, size=size)
            connection.settimeout(max(0.1, until - time.monotonic()))
            message, *early = wire.receive()
        except (OSError, ValueError, LookupError) as error:
            # A hub that is just ending, such as that of a group before this one, closes the connection too.
            connection.close()
            last = f"what answers there is no hub of this suite ({error})"
            time.sleep(0.2)
            continue
        if "refused" in message:
            connection.close()
            raise ChannelError(str(message["refused"]))
        connection.settimeout(SILENCE)
        _lively(connection)
        return wire, early
    raise ChannelError(
        f"rank {rank} found no rank 0 at {host}:{port} within {join:.0f} s ({last}): is it started, and is"
        " --control (by default the coordinator's port + 1) the same on every rank?"
    )


def spans(values: Sequence[Any]) -> str:
    """Which ranks say what, where they differ: rank 0: a; ranks 1, 2: b. "" where all say the same. Of mappings,
    what is alike is left out."""
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
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}: {json.loads(text)}"
        for text, ranks in groups.items()
    )
