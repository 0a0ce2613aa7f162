# SPDX-License-Identifier: Apache-2.0
"""Unreduced and reduced arguments of functions: the value after a reshard, and gradients.

The program is that of `programs.forms.base`: f(x) = x * s(x). Wrong results raise an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax

from meshmark.operations.programs.forms.base import ProgramForm, at
from meshmark.operations.programs.unreduced.calls import CALLS
from meshmark.operations.programs.unreduced.forms import VALUES
from meshmark.operations.programs.unreduced.slopes import SLOPES

UNREDUCED: dict[str, Callable[..., Any]] = {**VALUES, **CALLS, **SLOPES}
"""Each function takes a mesh, its last axis, and the input sharded over that axis."""


class UnreducedValue(ProgramForm):
    """Functions of unreduced arrays, and gradients by reduced ones, against the plain program."""

    name = "unreduced_value"
    forms = UNREDUCED
    two_axes: ClassVar[tuple[str, ...]] = ()
    ending: ClassVar[tuple[str, ...]] = ("debug_callback", "pure_callback")

    @staticmethod
    def host(mesh, x, *, form, axis):
        return UNREDUCED[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
