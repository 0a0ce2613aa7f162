# SPDX-License-Identifier: Apache-2.0
"""Reads optimized HLO text for interpretation: text of an unknown form is refused wherever it occurs."""

from __future__ import annotations

from meshmark.core.errors import BadInput
from meshmark.core.hlo_module import Module
from meshmark.core.hlo_reader import read_module
from meshmark.core.hlo_types import Refused


class NotHlo(BadInput, ValueError):
    """A text that is not an HLO module; the message is one line."""


def parse_module(text: str) -> Module:
    """The module of a text. NotHlo if the text is not HLO, Refused for a line or type of an unknown form."""
    module = read_module(text)
    if not module.header or not module.entry_name or module.unfinished:
        raise NotHlo("the text is not a whole module of HLO: it has no header, or no entry computation")
    for unread in module.unread:
        raise Refused(unread)
    for computation in module.computations.values():
        for unread in computation.unread:
            raise Refused(unread)
        if not computation.instructions:
            raise NotHlo(f"the computation {computation.name} is empty")
    for _, instruction in module.instructions():
        _ = instruction.shape, instruction.operands
        for unread in instruction.unread:
            raise Refused(unread)
    return module
