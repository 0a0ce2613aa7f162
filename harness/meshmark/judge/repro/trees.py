# SPDX-License-Identifier: Apache-2.0
"""Syntax trees rewritten: names replaced, statements joined."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from typing import Any

LONGEST = 96
"""Characters of a line above which a value that is used once keeps a name of its own."""


class _Substitute(ast.NodeTransformer):
    """Replaces names with expressions."""

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self.given = given

    def visit_Name(self, node: ast.Name) -> Any:
        return copy.deepcopy(self.given[node.id]) if node.id in self.given else node


class _Unwrapped(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        return node.args[0] if ast.unparse(node.func) == "np.uint64" and len(node.args) == 1 else node


def without_uint64(definition: ast.FunctionDef | ast.Lambda) -> Any:
    """A definition with n in place of np.uint64(n): next to a uint64 array, NumPy 2 takes a Python number as uint64."""
    return _Unwrapped().visit(copy.deepcopy(definition))


def substituted(expression: ast.expr, given: Mapping[str, ast.expr]) -> ast.expr:
    """An expression with its names replaced by other expressions."""
    return _Substitute(given).visit(copy.deepcopy(expression))


def joined(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements, with each value that is bound once and used once moved to its use if the line stays short."""
    left = list(body)
    for statement in body:
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            continue
        if len(statement.targets) != 1 or statement not in left:
            continue
        name, at = statement.targets[0].id, left.index(statement)
        nodes = [n for s in left for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name]
        users = [
            s for s in left[at + 1 :] if any(n in ast.walk(s) for n in nodes if isinstance(n.ctx, ast.Load))
        ]
        if len(nodes) != 2 or len(users) != 1 or not isinstance(users[0], (ast.Assign, ast.Return)):
            continue
        between = left[at + 1 : left.index(users[0])]
        if any(not isinstance(t, ast.Name) for s in between if isinstance(s, ast.Assign) for t in s.targets):
            continue  # what is read may be changed in place
        read = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
        written = {
            n.id
            for s in between
            for n in ast.walk(s)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        if read & written or any(not isinstance(s, ast.Assign) for s in between):
            continue
        new = _Substitute({name: statement.value}).visit(copy.deepcopy(users[0]))
        if len(ast.unparse(ast.fix_missing_locations(new))) <= LONGEST:
            left[left.index(users[0])] = new
            left.remove(statement)
    return left
