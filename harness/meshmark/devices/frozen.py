# SPDX-License-Identifier: Apache-2.0
"""The functions and methods with which a process judges, remembered before its first case.

A plugin may replace a function only while a case is judged, and put it back afterwards. A look before the first case
and after the last one would not find that. So each case is judged between two looks at the same objects.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from meshmark.devices.surroundings import JUDGING, LOOKED_AT

OF_PROGRAMS = ("jax._src.array", "jax._src.stages", "jax.stages")
"""The modules of JAX whose classes are arrays and programs."""

Held = tuple[str, Mapping[str, Any], list[str], list[Any]]
"""(a module or class, its names, the names of its functions and classes, what they were)."""


class Frozen:
    """What the names of the judging modules and their classes stand for, when it is made."""

    def __init__(self) -> None:
        self._held = list(_held())

    def changed(self) -> str:
        """The first name that stands for something else now; "" if there is none. It takes less than a millisecond,
        since each case is judged between two looks."""
        for where, names, own, values in self._held:
            if not all(map(operator.is_, map(names.get, own), values)):
                first = next(n for n, value in zip(own, values, strict=True) if names.get(n) is not value)
                return f"{where}.{first}"
        return ""


def _held() -> Iterator[Held]:
    within = tuple(f"{room}." for room in JUDGING)
    for place, module in list(sys.modules.items()):
        if place not in LOOKED_AT and not f"{place}.".startswith(within):
            continue
        yield _functions(place, vars(module))
        for name, value in list(vars(module).items()):
            own = isinstance(value, type) and value.__module__ == place
            if own and place.startswith((*within, *OF_PROGRAMS)):
                yield _functions(f"{place}.{name}", vars(value))


def _functions(where: str, names: Mapping[str, Any]) -> Held:
    found = {
        name: value
        for name, value in names.items()
        if callable(value) or isinstance(value, (property, staticmethod, classmethod))
        if not isinstance(value, ModuleType)
    }
    return where, names, list(found), list(found.values())
