# SPDX-License-Identifier: Apache-2.0
"""Reads the members of collectives in compiled text with a function that is short enough for a script."""

from __future__ import annotations

import re

import numpy as np


def members(line: str, size: int) -> set[tuple[int, ...]]:
    """The groups or pairs of one collective, as positions in a mesh of `size` devices; without those of one member.

    ValueError for a syntax that only `meshmark.core.groups` reads: listed devices and parts of axes.
    """
    iota = re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line)
    axes = re.search(r"replica_groups=mesh\[([^]]*)\] \{([^:}]*)\}", line)
    listed = re.search(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}", line)
    if iota:
        shape, dims, order = ([*map(int, part.split(","))] if part else None for part in iota.groups())
        groups = np.arange(size).reshape(dims).transpose(order).reshape(shape).tolist()
    elif axes:
        sizes = {name: int(n) for name, n in re.findall(r"([\w.-]+)'?=(\d+)", axes[1])}
        names, grouped = list(sizes), re.findall(r"[\w.-]+", axes[2])
        order = [names.index(n) for n in [*(n for n in names if n not in grouped), *grouped]]
        length = int(np.prod([sizes[n] for n in grouped]))
        groups = np.arange(size).reshape(*sizes.values()).transpose(order).reshape(-1, length).tolist()
    elif listed:
        lists = re.findall(r"[\d,]+(?=\})", listed[1])
        groups = [[*map(int, group.split(","))] for group in lists] or [range(size)]
    else:
        raise ValueError(f"unknown groups: {line}")
    pairs = "source_target_pairs" in line
    return {tuple(g) if pairs else tuple(sorted(g)) for g in groups if len(set(g)) > 1}
