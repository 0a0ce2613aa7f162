# SPDX-License-Identifier: Apache-2.0
"""Pitfalls of asv in benchmark files, found by reading their syntax trees (see meshmark.asv.pitfalls)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from meshmark.asv.pitfalls import ACCEPTED, DoctorError, Pitfall, read_text
from meshmark.core.text import printable

QUERIES = re.compile(
    r"jax\.(local_)?(devices|device_count|process_count|process_index|process_indices)|jax\.(default_backend|host_count"
    r"|make_mesh|device_put|block_until_ready|live_arrays|random\..+|extend\.backend\..+)"
    r"|jax\.numpy\.(?!(dtype|finfo|iinfo|issubdtype|result_type|promote_types)$).+"
    r"|jax\.experimental\.mesh_utils\..+|jax\.lib\.xla_bridge\..+"
)
"""Calls that start a backend."""

COUNTS = re.compile(r"jax\.(local_)?(devices|device_count)|(os|multiprocessing)\.(process_)?cpu_count")
"""Calls whose result depends on the machine."""

BLOCKS = frozenset(
    {"block_until_ready", "device_get", "asarray", "array", "item", "tolist", "float", "int", "bool", "print"}
)
"""Names of calls that wait for a result."""

SYNCHRONOUS = frozenset({"compile", "lower", "trace", "eval_shape", "make_jaxpr"})
"""Names of calls that dispatch nothing."""

RATE = re.compile(r"/\s*s(ec(onds?)?)?\b|per[ _]second|bandwidth|throughput", re.IGNORECASE)
"""Units of a rate."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Benchmarks:
    """One benchmark file, parsed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = read_text(path)
        self.lines = text.split("\n")
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise DoctorError(
                f"{path} is not Python: {getattr(error, 'msg', error)} (line {getattr(error, 'lineno', 0) or 0})"
            ) from None
        self.names = dict(_imports(self.tree))
        self.functions = {n.name: n for n in self.tree.body if isinstance(n, _Function)}
        self.classes = {n.name: n for n in self.tree.body if isinstance(n, ast.ClassDef)}
        self.assigned = dict(_assignments(self.tree.body))
        self.uses_jax = any(name == "jax" or name.startswith("jax.") for name in self.names.values())

    def findings(self) -> list[Pitfall]:
        """The findings, without accepted lines."""
        found = [*self._at_import(), *self._parameters(), *self._late()]
        for name, function, owner in self._benchmarks():
            found += self._benchmark(name, function, owner)
        for node in ast.walk(self.tree):
            if isinstance(node, _Function) and node.name == "setup_cache":
                found += self._raised(node)
        return [f for f in found if not ACCEPTED.search(self.lines[f.line - 1])]

    def _finding(self, node: ast.AST, name: str, what: str = "") -> Pitfall:
        return Pitfall(self.path, getattr(node, "lineno", 1), name, what)

    # Names

    def called(self, call: ast.Call) -> str:
        """The full dotted name of the called function: jax.numpy.ones for jnp.ones; "" if it has none."""
        parts: list[str] = []
        node: ast.expr = call.func
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.names.get(node.id, node.id), *reversed(parts)])

    def _reaches(self, node: ast.AST, pattern: re.Pattern[str], seen: frozenset[str] = frozenset()) -> str:
        """The first call below this node whose name matches, also through functions and names of this file."""
        for below in _executed(node):
            reached = ""
            if isinstance(below, ast.Call):
                name = self.called(below)
                if pattern.fullmatch(name):
                    return name
                if name in self.functions and name not in seen:
                    reached = self._reaches_body(self.functions[name], pattern, seen | {name})
            elif isinstance(below, ast.Name) and below.id in self.assigned and below.id not in seen:
                reached = self._reaches(self.assigned[below.id], pattern, seen | {below.id})
            if reached:
                return reached
        return ""

    def _reaches_body(self, function: _Function, pattern: re.Pattern[str], seen: frozenset[str]) -> str:
        return next(filter(None, (self._reaches(s, pattern, seen) for s in function.body)), "")

    # At import

    def _at_import(self) -> Iterator[Pitfall]:
        for statement in _import_time(self.tree.body):
            for node in _executed(statement):
                if not isinstance(node, ast.Call):
                    continue
                name = self.called(node)
                if name in self.functions:
                    name = self._reaches_body(self.functions[name], QUERIES, frozenset({name}))
                if QUERIES.fullmatch(name):
                    yield self._finding(node, "device-query", f"{name}()")

    def _late(self) -> Iterator[Pitfall]:
        """JAX environment variables that are set after an import of JAX."""
        imported = False
        for statement in self.tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                imported = imported or any(n.split(".")[0] == "jax" for _, n in _imports(statement))
            elif imported:
                for node in ast.walk(statement):
                    key = _environment_key(node)
                    if key.startswith("JAX_"):
                        yield self._finding(node, "late-variable", key)

    def _parameters(self) -> Iterator[Pitfall]:
        for node in ast.walk(self.tree):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_last(target) == "params" for target in targets) and (
                name := self._reaches(node.value, COUNTS)
            ):
                yield self._finding(node, "params-devices", f"{name}()")

    # Benchmarks

    def _benchmarks(self) -> Iterator[tuple[str, _Function, ast.ClassDef | None]]:
        for function in self.functions.values():
            yield function.name, function, None
        for owner in self.classes.values():
            for name, function in self._methods(owner).items():
                yield name, function, owner

    def _family(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        """The class and its bases in this file, nearest first."""
        found, waiting = [], [owner]
        while waiting:
            current = waiting.pop(0)
            if current not in found:
                found.append(current)
                waiting += [
                    self.classes[b.id]
                    for b in current.bases
                    if isinstance(b, ast.Name) and b.id in self.classes
                ]
        return found

    def _methods(self, owner: ast.ClassDef) -> dict[str, _Function]:
        found: dict[str, _Function] = {}
        for current in self._family(owner):
            for node in current.body:
                if isinstance(node, _Function):
                    found.setdefault(node.name, node)
        return found

    def _attributes(self, name: str, owner: ast.ClassDef | None) -> dict[str, ast.expr]:
        """Attributes of a benchmark: of the function, its class and the module, nearest first."""
        found: dict[str, ast.expr] = {}
        bodies = [c.body for c in self._family(owner)] if owner else []
        for body in (*bodies, self.tree.body):
            found = dict(_assignments(body, name)) | found
        if owner:
            found = dict(_assignments(self.tree.body, f"{owner.name}.{name}")) | found
        for body in (*bodies, self.tree.body):
            for attribute, value in _assignments(body):
                found.setdefault(attribute, value)
        return found

    def _benchmark(self, name: str, function: _Function, owner: ast.ClassDef | None) -> Iterator[Pitfall]:
        attributes = self._attributes(name, owner)
        if re.match(r"time_.", name):
            setup = self._methods(owner).get("setup") if owner else None
            setup = setup or self.functions.get("setup")
            if setup is None and isinstance(given := attributes.get("setup"), ast.Name):
                setup = self.functions.get(given.id)
            if setup is not None:
                if not {"number", "repeat"} <= set(attributes):
                    yield self._finding(function, "number-one", name)
                yield from self._compiles(setup)
            if self.uses_jax and "dispatch" not in name and self._unblocked(function, owner):
                yield self._finding(function, "unblocked", name)
            yield from self._raised(function)
        elif re.match(r"track_.", name):
            unit = attributes.get("unit")
            if isinstance(unit, ast.Constant) and isinstance(unit.value, str) and RATE.search(unit.value):
                yield self._finding(unit, "rate", f"{name} in {printable(unit.value)}")
            yield from self._raised(function)

    def _compiles(self, setup: _Function) -> Iterator[Pitfall]:
        for node in _body(setup):
            if isinstance(node, ast.Call) and (
                self.called(node) == "jax.jit"
                or (_last(node.func) == "compile" and self.called(node) not in ("re.compile", "compile"))
            ):
                yield self._finding(node, "setup-compiles")

    def _raised(self, function: _Function) -> Iterator[Pitfall]:
        for node in _body(function):
            if isinstance(node, ast.Raise) and node.exc is not None:
                raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                if _last(raised) == "NotImplementedError":
                    yield self._finding(node, "skip", function.name)

    def _unblocked(self, function: _Function, owner: ast.ClassDef | None) -> bool:
        """Whether the function makes a call, and nothing that it reaches in this file waits for a result."""
        methods = self._methods(owner) if owner else {}
        seen: set[str] = set()
        waiting, calls = [function], False
        while waiting:
            for node in _body(waiting.pop()):
                if not isinstance(node, ast.Call):
                    continue
                calls = True
                last, full = _last(node.func), self.called(node)
                on_device = full in ("jax.numpy.asarray", "jax.numpy.array")
                if (last in BLOCKS and not on_device) or last in SYNCHRONOUS:
                    return False
                inner = methods.get(last) if full == f"self.{last}" else self.functions.get(full)
                if inner is not None and last not in seen:
                    seen.add(last)
                    waiting.append(inner)
        return calls


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Local name and full name of everything imported anywhere below."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _assignments(body: Iterable[ast.stmt], of: str = "") -> Iterator[tuple[str, ast.expr]]:
    """The assignments to plain names in these statements, or to attributes of the object `of`."""
    for node in body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if not of and isinstance(target, ast.Name):
                    yield target.id, node.value
                elif of and isinstance(target, ast.Attribute) and ast.unparse(target.value) == of:
                    yield target.attr, node.value


def _import_time(body: Iterable[ast.stmt]) -> Iterator[ast.stmt | ast.expr]:
    """The code that runs when the file is imported: without function bodies and without `if __name__ == ...` blocks."""
    for node in body:
        if isinstance(node, _Function):
            yield from node.decorator_list
            yield from node.args.defaults
            yield from filter(None, node.args.kw_defaults)
        elif isinstance(node, ast.ClassDef):
            yield from (*node.decorator_list, *node.bases)
            yield from _import_time(node.body)
        elif isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
            if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
                continue
            for field in ("test", "iter"):
                if isinstance(part := getattr(node, field, None), ast.expr):
                    yield part
            for item in getattr(node, "items", []):
                yield item.context_expr
            for field in ("body", "orelse", "finalbody"):
                yield from _import_time(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _import_time(handler.body)
        else:
            yield node


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """The node and the nodes below it, without bodies of functions that are only defined."""
    yield node
    if isinstance(node, (*_Function.__args__, ast.Lambda)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _executed(child)


def _body(function: _Function) -> Iterator[ast.AST]:
    """The nodes below the statements of a function, without those of inner functions."""
    for statement in function.body:
        yield from _executed(statement)


def _environment_key(node: ast.AST) -> str:
    """The variable that os.environ[...] = ... or os.environ.setdefault(...) sets; "" for other nodes."""
    key: ast.AST | None = None
    if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Subscript):
        key = target.slice if ast.unparse(target.value) == "os.environ" else None
    elif isinstance(node, ast.Call) and node.args:
        key = node.args[0] if ast.unparse(node.func) in ("os.environ.setdefault", "os.putenv") else None
    return str(key.value) if isinstance(key, ast.Constant) else ""


def _last(node: ast.AST) -> str:
    """The last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
