# SPDX-License-Identifier: Apache-2.0
"""Checks that the functions and methods that this process has loaded are those of their source files.

Records hold a digest of the package's sources. Python may run other code: a compiled file (`__pycache__`) that does not
belong to its source, or a method with which a plugin has replaced another. So each source is compiled again and
compared with the loaded code. Changed constants, and code that changes this module, are not found.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import sys
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, partial
from importlib.machinery import SourceFileLoader
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    GeneratorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

Sources = dict[str, list[CodeType]]
"""The code of a source file by qualified name: a name may be defined several times, as properties are."""


HEAD = 16
"""Bytes of a compiled file before its code: a magic number, flags, and what it says of its source (PEP 552)."""


def unlike_source(packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(name, why) of the functions and methods that the loaded modules of these packages have and their sources do not
    define."""
    within = tuple(f"{package}." for package in packages)
    for name, module in sorted(sys.modules.items()):
        if not f"{name}.".startswith(within) or not isinstance(module, ModuleType):
            continue
        loader = getattr(module.__spec__, "loader", None)
        if type(loader) is SourceFileLoader:  # pytest rewrites the assertions of what it loads itself
            yield from ((f"{name}.{own}", why) for own, why in _of_module(module))


def unlike_imports(module: ModuleType) -> Iterator[tuple[str, str]]:
    """(name, why) of the names that a module imports from this package and that are other objects there."""
    for home, name, own in _imports(str(module.__file__)):
        there = vars(sys.modules[home]).get(name) if home in sys.modules else None
        if there is not None and own in vars(module) and vars(module)[own] is not there:
            yield own, f"not the {name} of {home}"


@cache
def _imports(file: str) -> tuple[tuple[str, str, str], ...]:
    """(module, name there, name here) of what a source file of this package imports from the package at its top."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()  # unlike_source says so
    package = __package__.partition(".")[0]
    return tuple(
        (node.module, one.name, one.asname or one.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        if node.module.partition(".")[0] == package
        for one in node.names
    )


def of_other_sources(files: Iterable[Path]) -> Iterator[Path]:
    """The source files for which Python would load a compiled file (`__pycache__`) that was not made from them."""
    for file in files:
        compiled = Path(importlib.util.cache_from_source(str(file)))
        try:
            data, found, text = compiled.read_bytes(), file.stat(), file.read_bytes()
        except OSError:
            continue  # Python compiles the source
        flags, time, size = (int.from_bytes(data[at : at + 4], "little") for at in (4, 8, 12))
        stale = (time, size) != (int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF)
        if data[:4] != importlib.util.MAGIC_NUMBER or (flags == 0 and stale):
            continue  # Python compiles it again
        try:
            code = marshal.loads(data[HEAD:])
            same = isinstance(code, CodeType) and _is_same_code(
                code, compile(text, str(file), "exec", dont_inherit=True)
            )
        except (ValueError, EOFError, TypeError, SyntaxError):
            same = False
        if not same:
            yield file


def _of_module(module: ModuleType) -> Iterator[tuple[str, str]]:
    file = str(module.__file__)
    sources = _compiled(file)
    if sources is None:
        yield "__file__", "its source can't be read"
        return
    yield from _of_names(vars(module), "", sources, file)
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from _of_names(vars(value), f"{value.__qualname__}.", sources, file)


def _of_names(names: Any, prefix: str, sources: Sources, file: str) -> Iterator[tuple[str, str]]:
    """(name, why) of the members that differ from their source, of a module or of the class named by the prefix."""
    for name, value in list(names.items()):
        # A function's code has this flag, the body of a class doesn't.
        own = [code for code in sources.get(f"{prefix}{name}", []) if code.co_flags & CO_OPTIMIZED]
        layers = list(codes_of(value))
        if own and not any(_is_same_code(code, layer) for layer in layers for code in own):
            others = [layer.co_filename for layer in layers]
            changed = "its code is not that of its source, as of another compiled file (__pycache__)"
            elsewhere = f"replaced by code of {Path(others[0]).name if others else type(value).__module__}"
            yield f"{prefix}{name}", changed if file in others else elsewhere
        elif own and len(layers) == 1:
            continue  # it was just compared
        elif not all(_is_of_its_source(layer, file, sources) for layer in layers):
            yield f"{prefix}{name}", "its code is not that of its source"


def _is_of_its_source(code: CodeType, file: str, sources: Sources) -> bool:
    """Whether the source that a code object names defines it. Code made of a text (`<string>`) names none."""
    named: Sources | None = sources
    if code.co_filename != file:
        named = None if code.co_filename.startswith("<") else _compiled(code.co_filename)
    return named is None or any(_is_same_code(code, one) for one in named.get(code.co_qualname, []))


def codes_of(value: Any) -> Iterator[CodeType]:
    """The code of the Python functions that a value runs, the outermost first.

    Bound methods and slots (`f.__call__`, `generator.__next__`) run what they are bound to."""
    for _ in range(20):
        if isinstance(value, property):
            for part in (value.fget, value.fset, value.fdel):
                if part is not None:
                    yield from codes_of(part)
            return
        if isinstance(value, (staticmethod, classmethod, MethodType)):
            value = value.__func__
        elif isinstance(value, (partial, cached_property)):
            value = value.func
        elif isinstance(value, (MethodWrapperType, BuiltinMethodType)):
            value = None if isinstance(value.__self__, ModuleType) else value.__self__
        elif isinstance(value, GeneratorType):
            yield value.gi_code
            return
        elif isinstance(value, FunctionType):
            yield value.__code__
            value = vars(value).get("__wrapped__")
        elif not isinstance(value, type):
            value = getattr(value, "__dict__", {}).get("__wrapped__")
        if value is None or isinstance(value, type):
            return


@cache
def _compiled(file: str) -> Sources | None:
    """The code objects that a source file defines; None if it can't be read or compiled."""
    try:
        whole = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None
    found: Sources = {}
    left = [whole]
    while left:
        inner = [one for one in left.pop().co_consts if isinstance(one, CodeType)]
        left += inner
        for code in inner:
            found.setdefault(code.co_qualname, []).append(code)
    return found


@cache
def _is_same_code(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects are the same, apart from their line numbers."""
    return one is other or _content(one) == _content(other)


def _content(code: CodeType) -> tuple[Any, ...]:
    return (
        *(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_exceptiontable),
        tuple(map(_constant, code.co_consts)),
    )


def _constant(value: Any) -> Any:
    """A constant with its type, because 0, False and 0.0 compare equal."""
    if isinstance(value, CodeType):
        return _content(value)
    if isinstance(value, (tuple, frozenset)):
        inner = [_constant(one) for one in value]
        return type(value), tuple(sorted(inner, key=repr) if isinstance(value, frozenset) else inner)
    return type(value), repr(value)
