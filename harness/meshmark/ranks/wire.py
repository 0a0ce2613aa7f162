# SPDX-License-Identifier: Apache-2.0
"""One TCP connection between a rank and the hub: its address, its settings, and whole messages in and out.

A cut link ends a connection by TCP's keepalive and user timeout: no message needs to be sent for that, and a process
that holds the GIL is not taken for a dead one.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from meshmark.core.errors import BadInput
from meshmark.ranks.messages import Garbled, Message, decode, encode

LONGEST = 1 << 26
"""Bytes of the longest message that is taken."""

SILENCE = 12.0
"""Seconds without any sign of life from the other end's kernel after which a connection counts as cut."""


class ChannelError(BadInput, RuntimeError):
    """The ranks did not come together; the message is one line."""


def address(text: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT or [HOST]:PORT; ChannelError where it is neither."""
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
        if hasattr(socket, name):  # each where the system has it
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Wire:
    """One end of a connection: whole messages out of it and into it."""

    def __init__(self, connection: socket.socket, longest: int | None = None) -> None:
        """longest: bytes of the longest message that is taken; by default LONGEST."""
        self.socket, self._sending = connection, threading.Lock()
        self.longest = longest
        self._pending: list[bytes] = []

    def send(self, message: Message) -> None:
        """Send one message; OSError where the other end is gone, the connection being of no use then."""
        self.send_line(encode(message))

    def send_line(self, data: bytes) -> None:
        """Send a message that is encoded already."""
        with self._sending:
            try:
                self.socket.sendall(data)
            except OSError:  # half a message may be on its way: who reads here must see the end
                with suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)
                raise

    def receive(self) -> list[Message]:
        """The messages that have come whole, after waiting for some data; OSError at the end of the connection,
        Garbled for what is not a message."""
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
