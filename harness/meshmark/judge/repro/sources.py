# SPDX-License-Identifier: Apache-2.0
"""Copies the suite's own functions as text, with everything that they use, without annotations and docstrings.

The copy is made from the code that judges, so it cannot drift from it. Other packages are imported. This module starts
no JAX backend.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

from meshmark.core.errors import BadInput

STAND_INS = (("meshmark.core.bounds", "Bounded"), ("meshmark.core.extras", "command"))
"""Names that are not copied: this module's object of the same name takes their place."""


def command(extra):
    """The command that a script names for a missing package."""
    return f"pip install {extra}"


class ReproError(BadInput, ValueError):
    """A case that can't be printed as a script; the message is one line."""


class Bounded:
    """Stands for the suite's arrays with error bounds, which a script does not have."""


@dataclass(frozen=True)
class ModuleSource:
    """A module's source: its lines, the statement that binds each global, the statements that add to one
    (`NAMES |= ...`, `product.defjvp(...)`), and the functions by first line."""

    lines: list[str]
    globals: dict[str, ast.stmt]
    additions: dict[str, list[ast.stmt]]
    functions: dict[int, list[Any]]


@cache
def source(module: ModuleType) -> ModuleSource:
    """Read a module's source."""
    text = inspect.getsource(module)
    tree = ast.parse(text)
    functions: dict[int, list[Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            functions.setdefault(_first_line(node), []).append(node)
    found: dict[str, ast.stmt] = {}
    additions: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            additions.setdefault(statement.target.id, []).append(statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            method = statement.value.func
            if isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name):
                additions.setdefault(method.value.id, []).append(statement)
        else:
            found |= {name: statement for name in _bound_names(statement)}
    return ModuleSource(text.splitlines(keepends=True), found, additions, functions)


def _first_line(node: Any) -> int:
    """The line in which a definition starts, decorators included."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


Edit = tuple[tuple[int, int], tuple[int, int], str]
"""Replace what stands between two (line, column) positions of the ast."""


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text with these edits, which do not overlap."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    places = [(starts[a - 1] + b, starts[c - 1] + d, new) for (a, b), (c, d), new in edits]
    for start, end, new in sorted(places, reverse=True):
        data = data[:start] + new.encode() + data[end:]
    return data.decode()


def _start(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: Any) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset


@cache
def unannotated(text: str) -> str:
    """The source of one statement without docstrings and without the annotations of functions and variables. Those in
    the body of a class become strings, since dataclasses read them, and a class may name itself there."""
    tree = ast.parse(text)
    fields = {id(n) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body}
    edits: list[Edit] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and id(node) in fields:
            if "ClassVar" not in (said := ast.unparse(node.annotation)):
                edits.append((_start(node.annotation), _end(node.annotation), repr(said)))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            edits.append((_end(node.target), _end(node.annotation), ""))
        elif isinstance(node, ast.FunctionDef):
            edits.append((_start(node), _signature_end(text, node), _signature(node)))
            if ast.get_docstring(node) is not None and len(node.body) > 1:
                following = (_first_line(node.body[1]), node.body[1].col_offset)
                edits.append((_start(node.body[0]), following, ""))
    return edited(text, edits)


def _signature(node: ast.FunctionDef) -> str:
    a = node.args
    for argument in (*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))):
        argument.annotation = None
    return f"def {node.name}({ast.unparse(a)})"


def _signature_end(text: str, node: ast.FunctionDef) -> tuple[int, int]:
    if node.returns is not None:
        return _end(node.returns)
    inside = [_end(n) for n in ast.walk(node.args) if hasattr(n, "end_lineno")]
    line, column = max(inside, default=(node.lineno, node.col_offset + len(f"def {node.name}(".encode())))
    lines = text.encode().splitlines()
    while b")" not in lines[line - 1][column:]:
        line, column = line + 1, 0
    return line, lines[line - 1].index(b")", column) + 1


def _global_names(table: symtable.SymbolTable) -> set[str]:
    outermost = table.get_type() == "module"
    found = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (outermost or s.is_global())}
    return found.union(*map(_global_names, table.get_children()))


def _local_names(table: symtable.SymbolTable) -> set[str]:
    inside = table.get_type() != "module"
    found = {s.get_name() for s in table.get_symbols() if inside and s.is_local()}
    return found.union(*map(_local_names, table.get_children()))


@cache
def _analysed(text: str) -> tuple[ast.Module, set[str], set[str]]:
    """(tree, the globals that it uses, all names that are local somewhere in it). The results are shared: do not change
    them."""
    table = symtable.symtable(text, "script", "exec")
    return ast.parse(text), _global_names(table), _local_names(table)


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module binds there."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name


class Bundle:
    """Definitions in the order in which a script needs them, and the imports that they use.

    Functions of the suite, and of the package that a case's operation is from, are copied. Everything else is imported.
    """

    def __init__(
        self,
        packages: Sequence[str] = ("meshmark",),
        reserved: Sequence[str] = (),
        chosen: Sequence[str] = (),
    ) -> None:
        """Copy from `packages`, import from all others, and use none of the `reserved` names. chosen: if a table of
        functions has any of these entries, only they are copied."""
        self.packages = {p.split(".")[0] for p in packages}
        self.imports: dict[str, None] = {}
        self.parts: list[str] = []
        self._names: dict[Any, str] = {}
        self._reserved = set(reserved)
        self._chosen = frozenset(chosen)

    def marked(self) -> tuple[int, dict[str, None], dict[Any, str]]:
        """The present state, for `back_to`."""
        return len(self.parts), dict(self.imports), dict(self._names)

    def back_to(self, mark: tuple[int, dict[str, None], dict[Any, str]]) -> None:
        """Forget everything that was added since `marked` gave this state."""
        count, self.imports, self._names = mark
        del self.parts[count:]

    def add(self, function: Callable[..., Any]) -> str:
        """Copy a function with everything that it uses, and give its name in the script.

        ReproError if it uses something whose source is not available.
        """
        if not isinstance(function, FunctionType):
            raise ReproError(f"{function!r} is not a plain function: write it as one in the table")
        if (function.__module__, function.__name__) in STAND_INS:
            return self._global(sys.modules[__name__], function.__name__)
        module = sys.modules[function.__module__]
        if vars(module).get(function.__qualname__) is function:
            return self._global(module, function.__name__)
        closure = closure_of(function)
        key = (function.__code__, *map(id, closure.values()))
        if key in self._names:
            return self._names[key]
        label = function.__name__.strip("<>")
        name = self._claim(key, label if label != "lambda" else "its", function.__qualname__.split(".")[-2])
        self._copy(_definition(module, function, name), name, label, module, closure)
        return name

    def stand_in(self, module: str, name: str, text: str) -> None:
        """Use this text as the definition of a function of a module of the suite, in place of a copy."""
        if (module, name) not in self._names:
            self._names[module, name] = name
            self.parts.append(text)

    def define(self, name: str, text: str, function: FunctionType) -> str:
        """Add a definition that was made from a function's source, and give its name in the script."""
        key = ("defined", text)
        if key not in self._names:
            claimed = self._claim(key, name, "its")
            self.parts.append(self.resolved(text, function).replace(f"def {name}(", f"def {claimed}(", 1))
        return self._names[key]

    def resolved(self, text: str, function: FunctionType) -> str:
        """Text that was made from a function's source, with the script's names for everything that it uses."""
        return self._resolved(text, "", "", sys.modules[function.__module__], closure_of(function)).strip()

    def _claim(self, key: Any, name: str, prefix: str) -> str:
        """A free name. A definition does not hide one of Python's own, such as slice, which others may use."""
        taken = self._names.values()
        while name in taken or name in self._reserved or (prefix and hasattr(builtins, name)):
            name = f"{prefix.strip('<>')}_{name}"
        self._names[key] = name
        return name

    def _ours(self, module: str | None) -> bool:
        return (module or "").split(".")[0] in self.packages

    def _global(self, module: ModuleType, name: str) -> str:
        """The script's name of a module's global, which is copied or imported if it was not before."""
        found = source(module)
        statement = found.globals.get(name)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            return self._import(statement, name)
        key = (module.__name__, name)
        if key in self._names:
            return self._names[key]
        if statement is None:
            raise ReproError(f"{module.__name__}.{name} is bound by no statement of its module")
        claimed = self._claim(key, name, module.__name__.rpartition(".")[2])
        for part in (statement, *found.additions.get(name, ())):
            text = "".join(found.lines[_first_line(part) - 1 : part.end_lineno])
            if is_table(vars(module).get(name)):
                text = with_entries(text, self._chosen & set(vars(module)[name]), vars(module))
            self._copy(text, claimed, name, module, {})
        return claimed

    def _import(self, statement: ast.Import | ast.ImportFrom, name: str) -> str:
        alias = next(a for a in statement.names if (a.asname or a.name).split(".")[0] == name)
        if isinstance(statement, ast.ImportFrom) and self._ours(statement.module):
            stand_in = (statement.module, alias.name) in STAND_INS
            return self._global(sys.modules[__name__ if stand_in else statement.module or ""], alias.name)
        source = f"from {statement.module} " if isinstance(statement, ast.ImportFrom) else ""
        whole = not source and not alias.asname  # `import a.b` binds a, as `import a` does
        bound = f"import {name}" if whole else f"{source}import {alias.name} as {name}"
        claimed = self._names.get(bound) or self._claim(bound, name, "")
        if whole and claimed != name:
            raise ReproError(f"the name of `import {alias.name}` is taken by another definition")
        renamed = f" as {claimed}" if not whole and claimed != alias.name else ""
        self.imports[f"{source}import {alias.name}{renamed}"] = None
        return claimed

    def _copy(self, text: str, name: str, old: str, module: ModuleType, closure: Mapping[str, Any]) -> None:
        """Append a definition, after everything that it uses, with the script's names."""
        self.parts.append(
            self._resolved(unannotated(textwrap.dedent(text)), name, old, module, closure).strip()
        )

    def _resolved(
        self, text: str, name: str, old: str, module: ModuleType, closure: Mapping[str, Any]
    ) -> str:
        """The text with the script's names for everything that it uses, which is copied first."""
        tree, globals_, shadowed = _analysed(text)
        edits: list[Edit] = []
        # `values.distinct` or `AllToAll.auto`: a function of ours, by way of its module or class
        dotted = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                holder = {**vars(module), **closure}.get(node.value.id)
                called = isinstance(getattr(holder, node.attr, None), FunctionType)
                # of a module also a constant or a class
                if self._holds(holder) and (called or isinstance(holder, ModuleType)):
                    dotted[id(node.value)] = node
        for node in dotted.values():
            holder = {**vars(module), **closure}[node.value.id]  # type: ignore[attr-defined]
            value = getattr(holder, node.attr)
            copied = self.add(value) if isinstance(value, FunctionType) else self._global(holder, node.attr)
            edits.append((_start(node), _end(node), self._unhidden(copied, shadowed)))
        plain = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in dotted]
        for used in sorted(globals_ & {n.id for n in plain}):
            if used in closure:
                new = self._closed_over(used, closure[used])
            elif old and used == old:
                new = name
            elif used in vars(module):
                new = self._global(module, used)
            else:
                continue  # of Python itself
            if new != used:
                if used in shadowed:
                    raise ReproError(f"{old} of {module.__name__} uses {used} as a local name too")
                new = self._unhidden(new, shadowed)
                edits += [(_start(n), _end(n), new) for n in plain if n.id == used]
        head = tree.body[0]
        if name and isinstance(head, (ast.FunctionDef, ast.ClassDef)) and head.name != name:
            keyword = len("def " if isinstance(head, ast.FunctionDef) else "class ")
            start = (head.lineno, keyword)
            edits.append((start, (head.lineno, keyword + len(head.name.encode())), name))
        elif name and isinstance(head, ast.Assign) and name != old:
            edits += [
                (_start(n), _end(n), name) for n in head.targets if isinstance(n, ast.Name) and n.id == old
            ]
        return edited(text, edits)

    def _unhidden(self, name: str, local: Set[str]) -> str:
        """A name of the script's definition that no local name of the text that uses it hides."""
        while name in local:
            key = ("another name", name)
            if key not in self._names:
                another = self._claim(key, f"the_{name}", "its")
                self.parts.append(f"{another} = {name}")
            name = self._names[key]
        return name

    def _holds(self, holder: Any) -> bool:
        if isinstance(holder, ModuleType):
            return self._ours(holder.__name__)
        return isinstance(holder, type) and self._ours(holder.__module__)

    def _closed_over(self, name: str, value: Any) -> str:
        if isinstance(value, FunctionType) and self._ours(value.__module__):
            return self.add(value)
        key = (name, repr(value))
        if key not in self._names:
            self.parts.append(f"{self._claim(key, name, 'its')} = {literal(value)}")
        return self._names[key]


def is_table(value: Any) -> bool:
    """Whether a global is a table of functions by name: of functions, of tuples of them, or of such tables."""
    if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
        return False
    return all(
        callable(v) or (isinstance(v, tuple) and v and callable(v[0])) or is_table(v) for v in value.values()
    )


def with_entries(text: str, wanted: frozenset[str], namespace: Mapping[str, Any]) -> str:
    """The statement of a table with only the wanted entries; unchanged if it has none of them. Of the tables that are
    spread into it, those with a wanted entry stay. namespace: the globals of its module, by name."""
    [statement] = ast.parse(text).body
    table = getattr(statement, "value", None)
    if not wanted:
        return text
    if isinstance(table, ast.DictComp):
        # Such a table is often made of another one. Copied whole, it would ask for entries that the script leaves out.
        entries = _entries_of(statement, wanted, namespace)
        return edited(text, [(_start(table), _end(table), entries)]) if entries else text
    if not isinstance(table, ast.Dict):
        return text
    kept, rest = [], set(wanted)
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and key.value in wanted:
            kept.append(f"{key.value!r}: {ast.get_source_segment(text, value)}")
            rest.discard(key.value)
    if rest:  # in another table, whose entries are spread into this one
        spread = [value for key, value in zip(table.keys, table.values, strict=True) if key is None]
        names = [ast.get_source_segment(text, value) or "" for value in spread]
        kept += [f"**{name}" for name in names if rest & set(namespace.get(name, rest))]
    if not kept:  # they were added later
        return text
    entries = "".join(f"    {entry},\n" for entry in kept)
    return edited(text, [(_start(table), _end(table), f"{{\n{entries}}}")])


def _entries_of(statement: Any, wanted: Set[str], namespace: Mapping[str, Any]) -> str:
    """The wanted entries of a table, taken from another global table that has them too; "" if there is none."""
    target: Any = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
    table = namespace[target.id]
    others = (n for n, v in namespace.items() if isinstance(v, dict) and v is not table)
    other = next((n for n in others if all(namespace[n].get(k) is table[k] for k in wanted)), None)
    if other is None:
        return ""
    return f"{{{', '.join(f'{k!r}: {other}[{k!r}]' for k in sorted(wanted))}}}"


def closure_of(function: FunctionType) -> dict[str, Any]:
    """What a function closes over, by name."""
    cells = function.__closure__ or ()
    return dict(zip(function.__code__.co_freevars, (c.cell_contents for c in cells), strict=True))


def tree_of(function: FunctionType) -> ast.FunctionDef | ast.Lambda | None:
    """The syntax tree of a function; None if its file can't be read, or if its line defines another one too."""
    try:
        found = source(sys.modules[function.__module__])
    except (OSError, TypeError):
        return None
    here = found.functions.get(function.__code__.co_firstlineno, [])
    nodes = [n for n in here if getattr(n, "name", "<lambda>") == function.__name__]
    return nodes[0] if len(nodes) == 1 else None


def _definition(module: ModuleType, function: FunctionType, name: str) -> str:
    """The source of a static, nested or nameless function, without decorators."""
    found = source(module)
    here = found.functions.get(function.__code__.co_firstlineno, [])
    nodes = [n for n in here if getattr(n, "name", "<lambda>") == function.__name__]
    if len(nodes) != 1:
        where = f"{module.__name__}.{function.__qualname__}"
        raise ReproError(f"{where} is not found alone in its line: is its file as it was imported?")
    node = nodes[0]
    if isinstance(node, ast.Lambda):
        return f"{name} = {ast.get_source_segment(''.join(found.lines), node)}\n"
    return "".join(found.lines[node.lineno - 1 : node.end_lineno])


def literal(value: Any) -> str:
    """Python source of a value of plain types; ReproError for any other."""
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if isinstance(value, float):
            return f'float("{value}")'
        raise ReproError(f"{text} is not a literal: options of the table must be literals") from None
    return text
