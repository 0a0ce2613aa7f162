# SPDX-License-Identifier: Apache-2.0
"""The exceptions that stop an interpretation: for unknown text, and for programs that do what no program may do."""

from __future__ import annotations


class Refused(Exception):
    """The interpreter does not know the meaning of something in the text. `name` names it briefly.

    A refused program is not judged. The interpreter never guesses.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the interpreter does not know {name}")
        self.name = name


class Fault(Exception):
    """The program does something that no correct program does, such as reading unwritten memory."""


class Hang(Fault):
    """Some members of a collective's group reach it, and others never reach it."""
