# SPDX-License-Identifier: Apache-2.0
"""The case table: the vocabulary, the choice of cases, and one package per kind of operation.

Importing this package registers every operation. A new module in one of the packages needs no entry here.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType

from meshmark.operations.base import Operation

PACKAGES = ("collectives", "functions", "models", "placements", "transforms", "programs", "processes")
"""The packages that hold operations, in the order of tables."""


def _modules(package: str) -> list[ModuleType]:
    parent = importlib.import_module(f"{__name__}.{package}")
    names = sorted(found.name for found in pkgutil.walk_packages(parent.__path__, f"{parent.__name__}."))
    return [importlib.import_module(name) for name in names]


FAMILIES: tuple[ModuleType, ...] = tuple(module for package in PACKAGES for module in _modules(package))
"""Every module of these packages."""


def _leaves(cls: type[Operation]) -> list[type[Operation]]:
    return [leaf for sub in cls.__subclasses__() for leaf in [*([sub] if sub.name else []), *_leaves(sub)]]


def _by_name(classes: Iterable[type[Operation]]) -> dict[str, Operation]:
    """One operation per class, by name. ValueError if two classes have the same name: one would hide the other."""
    found: dict[str, Operation] = {}
    for cls in dict.fromkeys(classes):
        if cls.name in found:
            raise ValueError(
                f"{type(found[cls.name]).__name__} and {cls.__name__} are both named {cls.name!r}"
            )
        found[cls.name] = cls()
    return found


OPERATIONS: dict[str, Operation] = _by_name(_leaves(Operation))
"""Every operation by name, in the order of the modules and classes."""
