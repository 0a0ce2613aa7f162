# SPDX-License-Identifier: Apache-2.0
"""Compares the machines that run lines name. Records of earlier versions of Meshmark say less of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LATER = ("usable", "quota")
"""The fields of a host that records of earlier versions lack: how many cores a process may use."""


def comparable(hosts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fields by which these machines can be compared: those of LATER only if every machine has one of them."""
    told = all(any(name in host for name in LATER) for host in hosts)
    return [{name: value for name, value in host.items() if told or name not in LATER} for host in hosts]
