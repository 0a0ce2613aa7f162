# SPDX-License-Identifier: Apache-2.0
"""Which mesh positions need elements of which others, for functions that only move elements.

A reference is applied to the number of each element, which shows where the element goes. Numbers below zero are
constants, which no position has to send.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import indices
from meshmark.operations.base import Argument, Plan, Result, Traffic


@dataclass(frozen=True)
class Blocks:
    """The blocks of all arguments. Each element is in one block, and each block lies on one position or more."""

    numbers: tuple[np.ndarray, ...]
    """For each argument, the numbers of its elements."""
    block_of: np.ndarray
    """By number of an element, the number of its block."""
    holders: np.ndarray
    """By block and position, whether the position holds the block."""
    itemsizes: np.ndarray
    """By block, the bytes of an element."""

    def find(self, chosen: np.ndarray) -> np.ndarray:
        """The numbers of the blocks of the chosen elements, each once. chosen: a truth per element."""
        return np.flatnonzero(np.bincount(self.block_of[chosen], minlength=len(self.holders)))


def divide(arguments: Sequence[Argument], sizes: Mapping[str, int]) -> Blocks:
    """The blocks of the arguments over a mesh with these axis sizes."""
    numbers, block_of = [], []
    holders: list[np.ndarray] = []
    itemsizes: list[int] = []
    total, positions = 0, math.prod(sizes.values())
    for argument in arguments:
        count = math.prod(argument.shape)
        numbers.append(np.arange(total, total + count).reshape(argument.shape))
        total += count
        blocks = np.zeros(argument.shape, np.int32)
        known: dict[tuple[int, ...], int] = {}
        for position, index in enumerate(indices(argument.shape, argument.spec, sizes)):
            start = tuple(i.start for i in index)
            if start not in known:
                known[start] = len(holders)
                holders.append(np.zeros(positions, bool))
                itemsizes.append(dtype_of(argument.dtype).itemsize)
                blocks[index] = known[start]
            holders[known[start]][position] = True
        block_of.append(blocks.ravel())
    return Blocks(tuple(numbers), np.concatenate(block_of), np.array(holders), np.array(itemsizes))


def find_needs(
    reference: Callable[..., Any], blocks: Blocks, results: Sequence[Result], sizes: Mapping[str, int]
) -> Iterator[tuple[int, np.ndarray]]:
    """(position, by number of an element whether the position needs it for its part of a result)."""
    outputs = reference(*blocks.numbers)
    for result, output in zip(results, outputs if isinstance(outputs, tuple) else (outputs,), strict=True):
        known: dict[tuple[int, ...], np.ndarray] = {}
        for position, index in enumerate(indices(result.shape, result.spec, sizes)):
            start = tuple(i.start for i in index)
            if start not in known:
                sources = np.asarray(output)[index].ravel()
                known[start] = np.zeros(len(blocks.block_of), bool)
                known[start][sources[sources >= 0]] = True
            yield position, known[start]


def find_connections(
    reference: Callable[..., Any],
    arguments: Sequence[Argument],
    results: Sequence[Result],
    sizes: Mapping[str, int],
) -> tuple[tuple[int, ...], ...]:
    """The groups of positions that must exchange data. If exactly one position holds an element that another position
    needs, the two must be connected. If several positions hold it, none of them is required."""
    blocks = divide(arguments, sizes)
    alone = np.where(blocks.holders.sum(1) == 1, blocks.holders.argmax(1), -1)
    group = list(range(math.prod(sizes.values())))
    for position, needed in find_needs(reference, blocks, results, sizes):
        for block in blocks.find(needed):
            other = alone[block]
            if other >= 0 and group[position] != group[other]:
                old, new = group[position], group[other]
                group = [new if g == old else g for g in group]
    members: dict[int, list[int]] = {}
    for position, root in enumerate(group):
        members.setdefault(root, []).append(position)
    return tuple(tuple(m) for m in members.values() if len(m) > 1)


@cache
def rank_neighbours(shape: tuple[int, ...]) -> np.ndarray:
    """By position of a mesh of this shape: all positions, those that differ along the fewest axes first."""
    places = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)
    differing = (places[:, None] != places[None]).sum(2)
    return np.argsort(differing, axis=1, kind="stable")


def find_traffic(
    reference: Callable[..., Any],
    arguments: Sequence[Argument],
    results: Sequence[Result],
    sizes: Mapping[str, int],
) -> tuple[Traffic, ...]:
    """The least that must be sent: the elements that a position needs and does not hold, each once, from a holder that
    differs along the fewest mesh axes.

    The payload is that of the position that needs most. It is stated as one collective-permute, whatever collectives a
    program uses; () if every position holds what it needs."""
    blocks = divide(arguments, sizes)
    wanted: dict[int, np.ndarray] = {}
    for position, needed in find_needs(reference, blocks, results, sizes):
        wanted[position] = wanted[position] | needed if position in wanted else needed
    pairs, most = set(), 0
    for position, needed in wanted.items():
        lacking = needed & ~blocks.holders[blocks.block_of, position]
        most = max(most, int(blocks.itemsizes[blocks.block_of[lacking]].sum()))
        order = rank_neighbours(tuple(sizes.values()))[position]
        for block in blocks.find(lacking):
            pairs.add((int(order[blocks.holders[block, order].argmax()]), position))
    return (Traffic("collective-permute", most, tuple(sorted(pairs))),) if most else ()


def state_moves(plan: Plan, reference: Callable[..., Any], sizes: Mapping[str, int]) -> Plan:
    """The plan with the connections and the theory of a function that only moves elements."""
    found = (reference, plan.arguments, plan.results, sizes)
    return replace(plan, connect=partial(find_connections, *found), owed=partial(find_traffic, *found))
