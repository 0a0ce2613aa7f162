# SPDX-License-Identifier: Apache-2.0
"""Reads the members and the bytes of collectives in compiled text with functions that are short enough for a script."""

from __future__ import annotations

import math
import re

import numpy as np


def members(line: str, size: int) -> set[tuple[int, ...]]:
    """The groups or pairs of one collective, as positions in a mesh of `size` devices; without those of one member.

    ValueError for an unknown syntax.
    """
    iota = re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line)
    axes = re.search(r"replica_groups=mesh\[([^]]*)\](?:, device_ids=\(([^a-z]*)\))? \{([^}]*)\}", line)
    listed = re.search(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}", line)
    if iota:
        shape, dims, order = ([*map(int, part.split(","))] if part else None for part in iota.groups())
        groups = np.arange(size).reshape(dims).transpose(order).reshape(shape).tolist()
    elif axes:
        sizes = {name: int(n) for name, n in re.findall(r"([\w.-]+)'?=(\d+)", axes[1])}
        ids = np.arange(size)
        if axes[2]:
            first, *turn = ([*map(int, re.findall(r"\d+", part))] for part in axes[2].split("T"))
            ids = ids.reshape(first).transpose(*turn) if "[" in axes[2] else np.array(first)
        at = dict(zip(sizes, np.indices([*sizes.values()]).reshape(len(sizes), -1), strict=True))
        for name, before, part in re.findall(r"([\w.-]+)'?(?::\((\d+)\)(\d+))?", axes[3]):
            n = int(part or sizes[name])
            stride = sizes[name] // (int(before or 1) * n)
            at[name] -= at[name] // stride % n * stride  # the members of a group differ in this alone
        same = np.ravel_multi_index([*at.values()], [*sizes.values()])
        groups = [ids.flatten()[same == key].tolist() for key in np.unique(same)]
    elif listed:
        lists = re.findall(r"[\d,]+(?=\})", listed[1])
        groups = [[*map(int, group.split(","))] for group in lists] or [range(size)]
    else:
        raise ValueError(f"unknown groups: {line}")
    return {tuple(g if "_pairs" in line else sorted(g)) for g in groups if len(set(g)) > 1}


def payload(line: str, kind: str, size: int, itemsize: int) -> int:
    """The payload of one collective in bytes per device, as nccl-tests count it, in a mesh of `size` devices.

    A reduction of a type that is narrower than 32 bits counts in elements of `itemsize` bytes: XLA may reduce it in a
    wider one.
    """
    shape = line.partition(f" {kind}")[0]
    if f" {kind}-start(" in line and (kind != "all-reduce" or shape.startswith("((")):
        depth = np.cumsum([(c in "([{") - (c in ")]}") for c in shape])
        commas = [i for i, c in enumerate(shape) if c == "," and depth[i] == 1]
        shape = shape[commas[0] : [*commas, None][1]]  # (operands, result, contexts ...)
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


def executed(pattern: str, text: str) -> list[tuple[str, ...]]:
    """As re.findall in optimized HLO text, with the matches in a computation as often as it runs in one execution.

    ValueError for a loop whose number of turns the text does not say.
    """
    blocks = re.findall(r"^(ENTRY )?%?(\S+) .*\{\n((?:  .*\n)*)\}", text, re.M)
    runs = {name: 1 if entry else 0 for entry, name, _ in blocks}
    found = []
    for _, caller, block in reversed(blocks):  # a computation stands before those that call it
        found += re.findall(pattern, block) * runs[caller]
        for line in block.splitlines():
            turns = re.search(r"known_trip_count\W+n\W+(\d+)", line)
            if " while(" in line and not turns:
                raise ValueError(f"a loop of unknown length: {line}")
            if " async-update(" in line or " async-done(" in line:
                continue  # these repeat what their start calls
            called = r"(body|condition|calls|to_apply|\w+_computations?)=\{?(%[^ ,{}]+(?:, %[^ ,{}]+)*)"
            for how, names in re.findall(called, line):
                times = int(turns[1]) + (how == "condition") if turns else 1
                for name in names.replace("%", "").split(", "):
                    runs[name] += times * runs[caller]
    return found


def connects(over: list[tuple[int, ...]], devices: tuple[int, ...]) -> bool:
    """Whether groups or pairs connect these devices, directly or through others."""
    joined = {devices[0]}
    for _ in over:
        joined |= {i for group in over if joined & set(group) for i in group}
    return joined >= set(devices)
