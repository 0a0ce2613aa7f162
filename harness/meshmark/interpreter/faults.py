# SPDX-License-Identifier: Apache-2.0
"""The exceptions that stop an interpretation: unknown text, and programs that do what no program may."""

from __future__ import annotations


class Refused(Exception):
    """The interpreter does not know the meaning of something in the text; `name` says what, in a word or two.

    A refused program is not judged. It is never computed with a guess.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the interpreter does not know {name}")
        self.name = name


class Fault(Exception):
    """The program does what no right program does, such as reading memory that nothing wrote."""


class Hang(Fault):
    """Some members of a collective's group reach it, and others never do."""
