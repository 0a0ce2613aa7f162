# SPDX-License-Identifier: Apache-2.0
"""Two meshes in one program, one callable under two meshes, executables for other devices, and other memories.

The program is that of `programs.forms.base`: f(x) = x * s(x). Wrong results raise an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax

from meshmark.operations.programs.forms.base import ProgramForm, at
from meshmark.operations.programs.meshes.again import AGAIN
from meshmark.operations.programs.meshes.elsewhere import ELSEWHERE
from meshmark.operations.programs.meshes.two import TWO_MESHES

SECOND: dict[str, Callable[..., Any]] = {**TWO_MESHES, **AGAIN, **ELSEWHERE}
"""Each function takes a mesh, its last axis, and the input sharded over that axis."""


class SecondMesh(ProgramForm):
    """Programs and callables over two meshes of the same devices, and executables for other devices."""

    name = "second_mesh"
    forms = SECOND
    two_axes: ClassVar[tuple[str, ...]] = ()
    ending: ClassVar[tuple[str, ...]] = ("stored_reversed", "stored_half", "partial_region_beside")

    @staticmethod
    def host(mesh, x, *, form, axis):
        return SECOND[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
