# SPDX-License-Identifier: Apache-2.0
"""Specializes functions: writes known values in, and removes the branches that they decide.

A function of the table serves many cases: it branches on groups, and takes the axes as an option. A script is about one
case. So the syntax tree of a function is rewritten for given values of its parameters. Known names become literals.
Expressions of literals become their value. Branches that are not taken are removed. A call of a function of the suite
that consists of one expression becomes that expression.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from meshmark.core.values import digits_of, kind_of
from meshmark.judge.repro.trees import joined, substituted

PURE = {
    name: getattr(builtins, name) for name in ("len", "range", "tuple", "list", "min", "max", "sorted", "int")
}
"""What an expression may use, beside numpy and math, to be computed when the script is written. Nothing of JAX: that
would start a backend."""

MOST = 200
"""Characters of a literal above which an expression is not replaced by its value."""


@dataclass(frozen=True)
class Known:
    """A known name: its value while the script is written, and its source text in the script."""

    value: Any
    code: str


@dataclass
class Folded:
    """A function for known values: the parameters that are left, and its body."""

    parameters: list[str]
    body: list[ast.stmt]

    @property
    def expression(self) -> ast.expr | None:
        """The returned expression of a function that consists of one return statement; None for any other."""
        if len(self.body) == 1 and isinstance(self.body[0], ast.Return):
            return self.body[0].value
        return None


def literal_known(value: Any) -> Known:
    """A known value whose source text is its `repr`."""
    return Known(value, repr(value))


def is_literal(value: Any) -> bool:
    """Whether a value is of plain types, so that its `repr` is its source text."""
    if isinstance(value, (tuple, list)):
        return all(map(is_literal, value))
    if isinstance(value, dict):
        return all(is_literal(k) and is_literal(v) for k, v in value.items())
    return (
        value is None or type(value) in (bool, str) or (type(value) in (int, float) and math.isfinite(value))
    )


def fold(
    function: FunctionType,
    definition: ast.FunctionDef | ast.Lambda,
    known: Mapping[str, Known],
    callee: Callable[[FunctionType], ast.FunctionDef | ast.Lambda | None],
    callers: tuple[FunctionType, ...] = (),
) -> Folded:
    """The function for the known values of parameters.

    definition: its syntax tree. callee: gives the tree of another function of the suite, or None for one whose calls
    stay. callers: the functions that are being folded; a call of one of them stays too."""
    arguments = definition.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg:
        names.append(arguments.vararg.arg)
    names += [a.arg for a in arguments.kwonlyargs if a.arg not in known]
    defaults = function.__kwdefaults__ or {}
    known = {k: literal_known(v) for k, v in defaults.items() if is_literal(v)} | dict(known)
    names = [n for n in names if n not in known]
    folder = _Folder(function, known, callee, (*callers, function))
    if isinstance(definition, ast.Lambda):
        body: list[ast.stmt] = [ast.Return(folder.visit(copy.deepcopy(definition.body)))]
    else:
        body = folder.statements([copy.deepcopy(s) for s in definition.body], top=True)
    return Folded(names, joined(body))


class _Folder(ast.NodeTransformer):
    """Rewrites the body of one function."""

    def __init__(
        self,
        function: FunctionType,
        known: Mapping[str, Known],
        callee: Any,
        callers: tuple[FunctionType, ...],
    ) -> None:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.space = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        self.known = dict(known)
        self.callee, self.callers = callee, callers
        self.bound: Counter[str] = Counter()

    # Statements

    def statements(self, body: Sequence[ast.stmt], top: bool = False) -> list[ast.stmt]:
        """The statements that remain of these after folding."""
        if top:
            self.bound = Counter(
                node.id
                for s in body
                for node in ast.walk(s)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            )
        left: list[ast.stmt] = []
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            done = self.visit(statement)
            for new in done if isinstance(done, list) else [done]:
                if top and self._learned(new):
                    continue
                left.append(new)
                if isinstance(new, ast.Return):
                    return left
        return left

    def _learned(self, statement: ast.stmt) -> bool:
        """Whether a statement is the only one that binds its name, and binds it to a known value. The name is then
        known, and the statement is not needed."""
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return False
        target = statement.targets[0]
        if not isinstance(target, ast.Name) or self.bound[target.id] != 1:
            return False
        found = self.value(statement.value)
        if found is None or isinstance(found.value, (list, dict)):  # these may be changed in place
            return False
        self.known[target.id] = found
        return True

    def visit_If(self, node: ast.If) -> Any:
        found = self.value(node.test)
        if found is not None:
            return self.statements(node.body if found.value else node.orelse)
        node.test = self.visit(node.test)
        if isinstance(node.test, ast.Constant):
            return self.statements(node.body if node.test.value else node.orelse)
        node.body = self.statements(node.body) or [ast.Pass()]
        node.orelse = self.statements(node.orelse)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return []
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self._scoped(node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return self._scoped(node)

    def _scoped(self, node: Any) -> Any:
        """An inner function. Its own names hide known outer ones."""
        before = self.known
        a = node.args
        own = {p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg)))}
        own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.known = {k: v for k, v in before.items() if k not in own}
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            for parameter in (*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))):
                parameter.annotation = None
            node.returns = None
            node.body = self.statements(node.body)
        self.known = before
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        target, value = node.targets[0], node.value
        names = (
            [e.id for e in target.elts if isinstance(e, ast.Name)] if isinstance(target, ast.Tuple) else []
        )
        if isinstance(value, ast.Tuple) and len(names) == len(value.elts) and len(node.targets) == 1:
            read = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
            if not read & set(names):  # one statement for each
                pairs = zip(names, value.elts, strict=True)
                return [ast.Assign([ast.Name(n, ast.Store())], self.visit(e)) for n, e in pairs]
        return self.generic_visit(node)

    # Expressions

    def value(self, node: ast.expr) -> Known | None:
        """The value of an expression of known names, numpy, math and the functions of PURE; None if it is not known."""
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        own = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        # No builtin is available except __import__: NumPy imports a module for the name of a dtype.
        space: dict[str, Any] = {"__builtins__": {"__import__": builtins.__import__}}
        for name in names - own:
            if name in self.known:
                space[name] = self.known[name].value
            elif name in self.bound:
                return None
            elif any(self.space.get(name) is pure for pure in (np, math, digits_of, kind_of)):
                space[name] = self.space[name]
            elif name in PURE and name not in self.space:
                space[name] = PURE[name]
            else:
                return None
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        try:
            with np.errstate(all="ignore"):
                found = eval(
                    compile(ast.Expression(ast.fix_missing_locations(node)), "<folded>", "eval"), space
                )
        except Exception:
            return None
        if type(found) is np.bool_:
            found = bool(found)
        return literal_known(found) if is_literal(found) and len(repr(found)) <= MOST else None

    def visit(self, node: ast.AST) -> Any:
        """The node, or its value as a literal."""
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            found = self.value(node)
            if found is not None and not isinstance(node, (ast.Constant, ast.Starred)):
                return ast.parse(found.code, mode="eval").body
        return super().visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant) or (found := self.value(test)) is not None:
            taken = test.value if isinstance(test, ast.Constant) else found.value  # type: ignore[union-attr]
            return self.visit(node.body if taken else node.orelse)
        return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        stops = isinstance(node.op, ast.Or)
        left = []
        for part in map(self.visit, node.values):
            found = self.value(part)
            if found is None:
                left.append(part)
            elif bool(found.value) is stops:
                left.append(part)
                break
        if not left:
            return ast.Constant(not stops)
        return left[0] if len(left) == 1 else ast.BoolOp(node.op, left)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        node.left, node.right = self.visit(node.left), self.visit(node.right)
        one = isinstance(node.left, ast.Constant) and node.left.value == 1.0
        return node.right if one and isinstance(node.op, ast.Mult) else node

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            kinds = node.args[1] if len(node.args) == 2 else None
            if isinstance(kinds, ast.Name) and kinds.id == "Bounded":
                return ast.Constant(False)  # a script has plain arrays
        self.generic_visit(node)
        arguments: list[ast.expr] = []
        for argument in node.args:
            spread = isinstance(argument, ast.Starred) and isinstance(argument.value, (ast.Tuple, ast.List))
            arguments += argument.value.elts if spread else [argument]  # type: ignore[attr-defined]
        node.args = arguments
        return self._inlined(node) or self._without_defaults(node)

    def _without_defaults(self, node: ast.Call) -> ast.Call:
        """The call without the keywords that have their default values."""
        function: Any = None
        if isinstance(node.func, ast.Name):
            function = self.space.get(node.func.id)
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            function = getattr(self.space.get(node.func.value.id), node.func.attr, None)
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            return node
        node.keywords = [
            k
            for k in node.keywords
            if not (
                k.arg
                and k.arg in parameters
                and isinstance(k.value, ast.Constant)
                and type(k.value.value) is type(parameters[k.arg].default)
                and k.value.value == parameters[k.arg].default
            )
        ]
        return node

    def _inlined(self, node: ast.Call) -> ast.expr | None:
        """The expression that replaces a call of a function of the suite; None if the call must stay."""
        target = self._function(node.func)
        if target is None or target in self.callers or any(isinstance(a, ast.Starred) for a in node.args):
            return None
        definition = self.callee(target)
        if definition is None or any(k.arg is None for k in node.keywords):
            return None
        a = definition.args
        names = [p.arg for p in (*a.posonlyargs, *a.args)]
        if a.vararg or a.kwarg or len(node.args) > len(names):
            return None
        given = dict(zip(names, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
        everything = {*names, *(p.arg for p in a.kwonlyargs)}
        if set(given) != everything:
            return None
        known = {n: f for n, e in given.items() if (f := self.value(e)) is not None}
        folded = fold(target, definition, known, self.callee, self.callers)
        body = folded.expression
        if body is None:
            return None
        used = Counter(n.id for n in ast.walk(body) if isinstance(n, ast.Name))
        inner = {n.id for n in ast.walk(body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        inner |= {p.arg for n in ast.walk(body) if isinstance(n, ast.Lambda) for p in n.args.args}
        rest = {n: e for n, e in given.items() if n not in known}
        for name, expression in rest.items():
            outer = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)}
            if (used[name] > 1 and not isinstance(expression, ast.Name)) or outer & inner:
                return None
        for name in set(used) - set(rest) - inner:
            if name in target.__globals__ and target.__globals__[name] is not self.space.get(name):
                return None
            if name in self.bound or name in self.known:
                return None
        return substituted(body, rest)

    def _function(self, node: ast.expr) -> FunctionType | None:
        if isinstance(node, ast.Name):
            found = self.known[node.id].value if node.id in self.known else self.space.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = getattr(self.space.get(node.value.id), node.attr, None)
        else:
            return None
        return found if isinstance(found, FunctionType) else None
