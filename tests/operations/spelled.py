# SPDX-License-Identifier: Apache-2.0
"""Reads the source of the table, and lists the public functions of JAX and their options that it spells nowhere.

    python -m tests.operations.spelled

A fault can't be seen in a call that no case makes, or in an option that no case sets. `spelled.tsv` beside this file
has a row for each function or option that is left: the name, a kind of reason, and a detail. The functions of arrays of
`jax.lax`, `jax.numpy` and four more modules have stricter rows of their own (`meshmark.operations.names`): the case
that calls them.

A module of the table spells a function by its dotted name, through the names that it imports or assigns
(`ours = jax.scipy.linalg`, then `ours.schur`), or as a text beside the module (`named(ours, ..., "schur")`). It sets an
option by a keyword of a call, by its place, or by a key of a dictionary in the same file, or of a shared constant,
where the call takes `**options` or where a text names the function. So an option can count though another function
takes it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

import meshmark.operations
from meshmark.operations import names

ROOM = Path(meshmark.operations.__file__).parent
ROWS = Path(__file__).with_name("spelled.tsv")

MODULES = (
    "jax",
    "jax.numpy.linalg",
    "jax.numpy.fft",
    "jax.scipy.linalg",
    "jax.scipy.special",
    "jax.scipy.signal",
    "jax.scipy.fft",
    "jax.scipy.ndimage",
    "jax.scipy.stats",
    "jax.scipy.cluster.vq",
    "jax.scipy.integrate",
    "jax.scipy.sparse.linalg",
    "jax.lax.linalg",
    "jax.ops",
    "jax.image",
    "jax.debug",
    "jax.tree",
    "jax.tree_util",
    "jax.flatten_util",
    "jax.custom_batching",
    "jax.custom_derivatives",
    "jax.export",
    "jax.ffi",
    "jax.dlpack",
    "jax.dtypes",
    "jax.nn.initializers",
    "jax.experimental",
    "jax.experimental.checkify",
    "jax.experimental.layout",
    "jax.experimental.mesh_utils",
    "jax.experimental.roofline",
    "jax.experimental.scheduling_groups",
    "jax.experimental.serialize_executable",
    "jax.experimental.sparse",
)
"""The modules whose functions must be spelled, beside those of `meshmark.operations.names`."""

REASONS = {
    "not implemented": "JAX raises where it is set",
    "no effect": "JAX ignores it",
    "no arrays": "it works on names, types, text or settings, and on no element of an array",
    "backend": "it needs a kind of device or a library that the suite does not ask for",
    "deprecated": "JAX is about to remove it, or discourages its use",
    "internal": "it registers a rule for JAX itself, or its documentation says that it is internal",
    "alias": "another name of a function that is spelled",
    "not covered": "nothing speaks against it; the table does not have it yet",
}
"""The kinds of reasons, a closed list."""


@dataclass
class Source:
    """What the modules of the table spell."""

    dotted: set[str] = field(default_factory=set)
    """Full names, such as jax.scipy.linalg.schur."""
    beside: set[tuple[str, str]] = field(default_factory=set)
    """A module, and a text in a file that has the module."""
    options: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By the last part of a function's name: the options that a call sets by keyword or in a dictionary."""
    places: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """By the last part of a function's name: the largest number of arguments by place."""


def resolved(node: ast.AST, known: dict[str, str]) -> str | None:
    """The full dotted name of an expression; None if it has none."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := resolved(node.value, known)):
        return f"{owner}.{node.attr}"
    return None


def imported(tree: ast.AST) -> dict[str, str]:
    """What the imports of a module bring of JAX: each name, and what it stands for."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                known[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return {name: full for name, full in known.items() if full.split(".")[0] == "jax"}


def assigned(scope: ast.AST, known: dict[str, str]) -> dict[str, str]:
    """The names that a function or a module has, with those that it assigns (`ours = jax.scipy.linalg`)."""
    found = dict(known)
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for name, what in pairs:
                if isinstance(name, ast.Name) and (full := resolved(what, found)):
                    found[name.id] = full
    return found


def scopes(tree: ast.Module) -> Iterator[ast.AST]:
    """The outer functions of a module, the methods of its classes, and the module itself."""
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node in tree.body:
            yield from node.body if isinstance(node, ast.ClassDef) else (node,)


def without_docstrings(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that are no docstrings."""
    told = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def called(call: ast.Call) -> Iterator[str]:
    """The last parts of the names of the functions that a call has: its own, and that of `partial(function)`."""
    for function in (call.func, *call.args[:1]):
        if isinstance(function, ast.Attribute):
            yield function.attr
        elif isinstance(function, ast.Name):
            yield function.id


def constants() -> dict[str, set[str]]:
    """The keys of the dictionaries that modules of the table have under a name in capitals, which others share."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(ROOM.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
                name = getattr(node.target, "id", "")
                keys = [k.value for k in node.value.keys if isinstance(k, ast.Constant)]
                if name.isupper():
                    found[name] |= {key for key in keys if isinstance(key, str)}
    return found


@cache
def read_source() -> Source:
    """What all modules of the table spell."""
    found, shared = Source(), constants()
    for path in sorted(ROOM.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes, known = list(ast.walk(tree)), imported(tree)
        here = set(known.values())
        for scope in scopes(tree):
            names_here = assigned(scope, known)
            here |= {full for node in ast.walk(scope) if (full := resolved(node, names_here))}
        found.dotted |= here
        texts = set(without_docstrings(tree))
        words = {word for text in texts for word in text.split() if word.isidentifier()}
        found.beside |= {(full, word) for full in here if full in MODULES for word in words}
        calls = [n for n in nodes if isinstance(n, ast.Call)]
        keywords = {k.arg for c in calls for k in c.keywords if k.arg} | texts
        for call in calls:
            for name in called(call):
                found.options[name] |= {k.arg for k in call.keywords if k.arg}
                found.places[name] = max(found.places[name], len(call.args))
                if any(k.arg is None for k in call.keywords):
                    found.options[name] |= keywords
                for k in call.keywords:
                    if k.arg is None and isinstance(k.value, ast.Name):
                        found.options[name] |= shared.get(k.value.id, set())
        for word in words:
            found.options[word] |= keywords
    return found


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public functions of a module that are JAX's own, with their full names."""
    for name in dir(module):
        value = getattr(module, name)
        kind = inspect.isclass(value) or inspect.ismodule(value) or get_origin(value) is not None
        own = str(getattr(value, "__module__", "jax")).split(".")[0] in ("jax", "jaxlib")
        if not name.startswith("_") and callable(value) and own and not kind:
            yield f"{module.__name__}.{name}", value


def functions() -> Iterator[tuple[str, Any]]:
    """The public functions of the modules that this release has."""
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        yield from public(module)


def is_spelled(name: str) -> bool:
    """Whether some module of the table spells a function."""
    module, _, function = name.rpartition(".")
    return name in read_source().dotted or (module, function) in read_source().beside


def unspelled() -> Iterator[str]:
    """The functions that no module of the table spells."""
    for name, _ in functions():
        if not is_spelled(name):
            yield name


def unset() -> Iterator[str]:
    """The options that no module of the table sets, as `function(option)`."""
    source = read_source()
    listed = [(n, f) for n, f in names.functions()] + [(n, f) for n, f in functions() if is_spelled(n)]
    for name, function in listed:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            continue
        last = name.rpartition(".")[2]
        for place, parameter in enumerate(parameters):
            by_place = parameter.kind is not parameter.KEYWORD_ONLY and source.places[last] > place
            optional = parameter.default is not parameter.empty
            if optional and not by_place and parameter.name not in source.options[last]:
                yield f"{name}({parameter.name})"


def read_rows() -> dict[str, tuple[str, str]]:
    """Pattern -> (kind of reason, detail). ValueError for a line of another form."""
    rows = {}
    for number, line in enumerate(ROWS.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split("\t")
        if len(fields) != 3 or fields[1] not in REASONS or not fields[2]:
            raise ValueError(
                f"{ROWS.name}:{number} is not a name, a kind of {', '.join(REASONS)}, and a detail"
            )
        rows[fields[0]] = fields[1], fields[2]
    return rows


def without_reason() -> list[str]:
    """The functions and options that are not spelled, and that no row explains."""
    rows = read_rows()
    return sorted({n for n in (*unspelled(), *unset()) if not any(fnmatchcase(n, row) for row in rows)})


if __name__ == "__main__":
    print(*without_reason(), sep="\n")
