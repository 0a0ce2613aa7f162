# SPDX-License-Identifier: Apache-2.0
"""Ports for processes that are about to start."""

import random
import socket

import pytest

from meshmark.core import ports


def test_free_ports_are_different_and_free():
    found = ports.free_ports(5)
    assert len(set(found)) == 5
    for port in found:
        socket.create_server(("127.0.0.1", port)).close()


def test_the_system_gives_them_to_nobody_who_asks_for_any_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        given = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", given)) as connection:
            assert not {given, connection.getsockname()[1]} & {*ports.QUIET}


def test_a_port_that_is_taken_is_passed_over(monkeypatch):
    taken, free = ports.free_ports(2)

    class Drawn:
        def sample(self, *_):
            return [taken, free]

    monkeypatch.setattr(random, "SystemRandom", Drawn)
    with socket.create_server(("127.0.0.1", taken)), pytest.raises(OSError, match="2 free ports"):
        ports.free_ports(2)
