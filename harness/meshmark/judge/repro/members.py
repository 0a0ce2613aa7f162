# SPDX-License-Identifier: Apache-2.0
"""Reads the members and the bytes of collectives in compiled text with functions that are short enough for a script."""

from __future__ import annotations

import math
import re

import numpy as np


def members(line: str, size: int) -> set[tuple[int, ...]]:
    """The groups or pairs of one collective, as positions in a mesh of `size` devices; without those of one member.

    ValueError for a syntax that only `meshmark.core.groups` reads: parts of axes.
    """
    iota = re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line)
    axes = re.search(r"replica_groups=mesh\[([^]]*)\](?:, device_ids=\(([^a-z]*)\))? \{([^:}]*)\}", line)
    listed = re.search(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}", line)
    if iota:
        shape, dims, order = ([*map(int, part.split(","))] if part else None for part in iota.groups())
        groups = np.arange(size).reshape(dims).transpose(order).reshape(shape).tolist()
    elif axes:
        sizes = {name: int(n) for name, n in re.findall(r"([\w.-]+)'?=(\d+)", axes[1])}
        names, grouped = list(sizes), re.findall(r"[\w.-]+", axes[3])
        order = [names.index(n) for n in [*(n for n in names if n not in grouped), *grouped]]
        length = int(np.prod([sizes[n] for n in grouped]))
        ids = np.arange(size)
        if axes[2]:
            first, *turn = ([*map(int, re.findall(r"\d+", part))] for part in axes[2].split("T"))
            ids = ids.reshape(first).transpose(*turn) if "[" in axes[2] else np.array(first)
        groups = ids.reshape(*sizes.values()).transpose(order).reshape(-1, length).tolist()
    elif listed:
        lists = re.findall(r"[\d,]+(?=\})", listed[1])
        groups = [[*map(int, group.split(","))] for group in lists] or [range(size)]
    else:
        raise ValueError(f"unknown groups: {line}")
    pairs = "source_target_pairs" in line
    return {tuple(g) if pairs else tuple(sorted(g)) for g in groups if len(set(g)) > 1}


def payload(line: str, kind: str, size: int, itemsize: int) -> int:
    """The payload of one collective in bytes per device, as nccl-tests count it, in a mesh of `size` devices.

    A reduction of a type that is narrower than 32 bits counts in elements of `itemsize` bytes: XLA may reduce it in a
    wider one. ValueError for an asynchronous start, whose type names its operands too.
    """
    shape = line.partition(f" {kind}")[0]
    if f" {kind}-start(" in line and (kind != "all-reduce" or shape.startswith("((")):
        raise ValueError(f"an asynchronous start: {line}")
    total = 0
    for bits, dims in re.findall(r"[a-z]+(\d*)\w*\[([\d,]*)\]", shape):
        width = int(bits or 8)
        if kind in ("all-reduce", "reduce-scatter") and width <= 32:
            width = min(width, 8 * itemsize)
        total += math.ceil(width / 8 * math.prod(int(n) for n in dims.split(",") if n))
    if kind == "reduce-scatter":
        total *= max(map(len, members(line, size)), default=1)
    return total


def wire(line: str, kind: str, size: int) -> float:
    """The bytes that one device sends for one collective, with the factors of nccl-tests."""
    n = max(map(len, members(line, size)), default=1)
    factors = {"all-reduce": 2 * (n - 1) / n, "collective-permute": n - 1, "collective-broadcast": n > 1}
    return factors.get(kind, (n - 1) / n) * payload(line, kind, size, 8)


def connects(over: list[tuple[int, ...]], devices: tuple[int, ...]) -> bool:
    """Whether groups or pairs connect these devices, directly or through others."""
    joined = {devices[0]}
    for _ in over:
        joined |= {i for group in over if joined & set(group) for i in group}
    return joined >= set(devices)
