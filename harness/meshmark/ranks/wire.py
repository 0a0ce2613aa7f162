# SPDX-License-Identifier: Apache-2.0
"""One TCP connection between a rank and the hub: its address, its settings, and its whole messages.

TCP's keepalive and user timeout end the connection of a cut link. No message needs to be sent for that, and a process
that holds the GIL does not count as dead.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from meshmark.core.errors import BadInput
from meshmark.ranks.messages import Garbled, Message, decode, encode

LONGEST = 1 << 26
"""The largest size of a message, in bytes."""

SILENCE = 12.0
"""Seconds without an answer from the other end's kernel after which a connection counts as cut."""


class ChannelError(BadInput, RuntimeError):
    """The ranks can't form a group, or a group can't continue; the message is one line."""


def address(text: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT or [HOST]:PORT; ChannelError for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ChannelError(f"{text!r} is not an address: use HOST:PORT with a port from 1 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def keep_alive(connection: socket.socket) -> None:
    """Make the kernel notice a cut link, and send small messages at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 3),
        ("TCP_KEEPINTVL", 3),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(1000 * SILENCE)),
    ):
        if hasattr(socket, name):  # not every system has each option
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Wire:
    """One end of a connection. It sends and receives whole messages."""

    def __init__(self, connection: socket.socket, longest: int | None = None) -> None:
        """longest: the largest size of a received message in bytes (default: LONGEST)."""
        self.socket, self._sending = connection, threading.Lock()
        self.longest = longest
        self._pending: list[bytes] = []

    def send(self, message: Message) -> None:
        """Send one message. OSError if the other end is gone; then the connection can't be used any more."""
        self.send_line(encode(message))

    def send_line(self, data: bytes) -> None:
        """Send a message that is already encoded."""
        with self._sending:
            try:
                self.socket.sendall(data)
            except OSError:  # a part of the message may be sent: readers of this connection must see its end
                with suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)
                raise

    def receive(self) -> list[Message]:
        """Wait for data, and give the messages that are complete. OSError at the end of the connection, Garbled for
        data that are not a message."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError("its connection closed")
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._pending.append(data)
            if sum(map(len, self._pending)) > (self.longest or LONGEST):
                raise Garbled("a message without an end")
            return []
        lines = b"".join([*self._pending, whole]).split(b"\n")
        self._pending = [rest]
        return list(map(decode, lines))
