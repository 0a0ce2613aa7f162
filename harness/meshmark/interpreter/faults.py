# SPDX-License-Identifier: Apache-2.0
"""The exceptions for programs that do what no program may do. (`Refused` is for text of unknown meaning.)"""

from __future__ import annotations


class Fault(Exception):
    """The program does something that no correct program does, such as reading unwritten memory."""


class Hang(Fault):
    """Some members of a collective's group reach it, and others never reach it."""
