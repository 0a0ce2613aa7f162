# SPDX-License-Identifier: Apache-2.0
"""Figures of the reason of a failure, and relations between them.

A known issue may say how its figures are related, such as `seen == 2 * expected`, where a pattern can't say it.
A relation is a comparison in Python's notation. It has numbers, these names, the operations + - * / // %, and, or,
not, and places such as at[0]:

    wrong, size        how many elements differ, and how many the shard has
    at                 the place of the first or worst of them in the whole array, one number for each dimension
    start, stop        where the shard starts and ends in the whole array, the same
    shape              the shape of the shard: stop - start
    expected, seen     the values there
    planned, found     bytes: of the collective that manual mode spells, and of the first one that was compiled
    sent, ceiling      bytes that one device sends, and at most may send
    needed, allowed    bytes of temporaries, and what the plan allows
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from meshmark.core.errors import BadInput

Figures = Mapping[str, Any]
"""The figures of one failure: numbers, and lists of them, by name."""

NAMES = (
    *("wrong", "size", "at", "start", "stop", "shape", "expected", "seen"),
    *("planned", "found", "sent", "ceiling", "needed", "allowed"),
)

_ELEMENTS = re.compile(
    r"\b(?P<wrong>\d+) of (?P<size>\d+) elements differ on .+? \(shard \[(?P<shard>[\d:, ]*)\]\): at"
    r" \[(?P<at>[\d, ]*)\] expected (?P<expected>.+?), seen (?P<seen>[^\s;|]+)"
)
_BYTES = (
    re.compile(r"\bexpected [a-z-]+ of (?P<planned>\d+) B over .+?, found [a-z-]+ of (?P<found>\d+) B\b"),
    re.compile(r"\bsends (?P<sent>\d+) B per device, over the ceiling of (?P<ceiling>\d+) B\b"),
    re.compile(
        r"\bneeds (?P<needed>\d+) B for temporaries on a device, and the plan allows (?P<allowed>\d+)\b"
    ),
)

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class RelationError(BadInput, ValueError):
    """A text that is not a relation between figures; the message is one line."""


def read_figures(reason: str) -> Iterator[Figures]:
    """The figures of each failure that a reason tells; a reason of several ranks tells several."""
    for told in _ELEMENTS.finditer(reason):
        edges = [tuple(map(int, part.split(":"))) for part in told["shard"].split(", ") if part]
        start, stop = [edge[0] for edge in edges], [edge[1] for edge in edges]
        yield {
            "wrong": int(told["wrong"]),
            "size": int(told["size"]),
            "at": [int(place) for place in told["at"].split(", ") if place],
            "start": start,
            "stop": stop,
            "shape": [end - begin for begin, end in zip(start, stop, strict=True)],
            "expected": _number(told["expected"]),
            "seen": _number(told["seen"]),
        }
    for pattern in _BYTES:
        for told in pattern.finditer(reason):
            yield {name: int(text) for name, text in told.groupdict().items()}


def _number(text: str) -> Any:
    """A value as the judge spells it; NaN, which equals nothing, for what is not a number."""
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, float("nan"))


@lru_cache(maxsize=256)
def read_relation(text: str) -> ast.expr:
    """The relation that a text spells; RelationError if it is not one, or if it names no figure."""
    try:
        found = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise RelationError(f"{text[:60]!a} is not a comparison in Python's notation") from None
    if strange := next((node for node in ast.walk(found) if not _known(node)), None):
        raise RelationError(f"{text[:60]!a}: no relation has {ast.unparse(strange)[:40]!a}")
    if not any(isinstance(node, ast.Name) for node in ast.walk(found)):
        raise RelationError(f"{text[:60]!a} names no figure: choose from {', '.join(NAMES)}")
    return found


def _known(node: ast.AST) -> bool:
    """Whether a relation may have this node of a syntax tree."""
    if isinstance(node, ast.Name):
        return node.id in NAMES
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float))
    operators = (ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.expr_context)
    if isinstance(node, operators):
        return type(node) in (*_BINARY, *_COMPARE, ast.And, ast.Or, ast.Not, ast.USub, ast.Load)
    return isinstance(node, (ast.Compare, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Subscript))


def holds(relation: str, reason: str) -> bool:
    """Whether a reason tells figures, and all of its failures with the named figures satisfy the relation.

    A figure that the reason does not tell satisfies nothing."""
    wanted = read_relation(relation)
    named = {node.id for node in ast.walk(wanted) if isinstance(node, ast.Name)}
    told = [figures for figures in read_figures(reason) if named <= figures.keys()]
    return bool(told) and all(_satisfies(wanted, figures) for figures in told)


def _satisfies(wanted: ast.expr, figures: Figures) -> bool:
    try:
        return bool(_value(wanted, figures))
    except (ArithmeticError, IndexError, TypeError):  # such as a division by zero, or a dimension too many
        return False


def _value(node: ast.expr, figures: Figures) -> Any:
    match node:
        case ast.Name(id=name):
            return figures[name]
        case ast.Constant(value=value):
            return value
        case ast.Subscript(value=array, slice=place):
            return _value(array, figures)[_value(place, figures)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, figures)
        case ast.UnaryOp(operand=operand):
            return -_value(operand, figures)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, figures), _value(right, figures))
        case ast.BoolOp(op=op, values=parts):
            return (all if isinstance(op, ast.And) else any)(_value(part, figures) for part in parts)
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_value(one, figures) for one in (left, *others)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
    raise TypeError(type(node).__name__)
