# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of ranks: an address, and short waits for silent ranks."""

import pytest

from meshmark.core.ports import free_ports
from meshmark.ranks import channel, hub


@pytest.fixture
def short_waits(monkeypatch):
    monkeypatch.setattr(hub, "GATHER", 0.5)
    monkeypatch.setattr(channel, "GRACE", 0.5)
    monkeypatch.setattr(hub, "LINGER", 0.5)


@pytest.fixture
def where():
    return f"127.0.0.1:{free_ports(1)[0]}"
