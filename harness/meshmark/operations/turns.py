# SPDX-License-Identifier: Apache-2.0
"""Turns: one main mode judges a cell that departs from the ordinary in two ways.

A profile takes cells up to a weight. Its heaviest cells combine two departures, such as another mesh and another
option, and they are the most: in three modes each they would be half of the profile. A fault that needs both departures
and one mode together is rare. So one of the modes auto, explicit and manual judges such a cell, and the modes take
turns: over the meshes of one variant, each mode comes again after three meshes. The start differs from variant to
variant.

Four kinds of cells take no turns: those below the weight `Selection.turns_from`; variants on the ordinary mesh, with
the ordinary dtype and size, up to the weight of the standard profile; cells of an optional capability; and the lesser
modes.

The turn of a cell follows from its own coordinates. It stays the same if a selection names modes or meshes, and if the
table grows.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from meshmark.core import meshes
from meshmark.operations.base import Operation, Request

MAIN_MODES = ("auto", "explicit", "manual")
"""The modes that take turns."""


def mode_in_turn(operation: Operation, request: Request, modes: Sequence[str], num_devices: int) -> str:
    """The one of these modes whose turn it is in this cell."""
    start = zlib.crc32(f"{operation.name} {request.variant.label}".encode())
    sizes, dtypes = [*operation.sizes], operation.dtypes
    place = _rank(request.mesh, num_devices, request.processes)
    return modes[(start + place + sizes.index(request.size) + dtypes.index(request.dtype)) % len(modes)]


def _rank(mesh: meshes.MeshShape, num_devices: int, processes: int) -> int:
    """The position of a mesh among the meshes of its weight; 0 for a mesh that the table does not have."""
    return _ranks(num_devices, processes).get(mesh, 0)


@lru_cache(maxsize=8)
def _ranks(num_devices: int, processes: int) -> dict[meshes.MeshShape, int]:
    seen: Counter[int] = Counter()
    ranks = {}
    for mesh, weight in meshes.weighted(num_devices, processes).items():
        ranks[mesh] = seen[weight]
        seen[weight] += 1
    return ranks
