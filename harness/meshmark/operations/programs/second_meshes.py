# SPDX-License-Identifier: Apache-2.0
"""Two meshes in one program, one callable under two meshes, executables for other devices, and other memories.

The program is that of `programs.forms`: f(x) = x * s(x). Wrong results raise an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax

from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Variant
from meshmark.operations.programs.elsewhere import ELSEWHERE
from meshmark.operations.programs.forms import ProgramForm, at
from meshmark.operations.programs.mesh_again import AGAIN
from meshmark.operations.programs.two_meshes import TWO_MESHES

SECOND: dict[str, Callable[..., Any]] = {**TWO_MESHES, **AGAIN, **ELSEWHERE}
"""Each function takes a mesh, its last axis, and the input sharded over that axis."""

ENDING = ("stored_reversed", "stored_half")
"""The forms that end the process on some release. Only the full profile runs them."""


class SecondMesh(ProgramForm):
    """Programs and callables over two meshes of the same devices, and executables for other devices."""

    name = "second_mesh"
    forms = SECOND
    two_axes: ClassVar[tuple[str, ...]] = ()

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for variant in super().variants(mesh):
            yield Variant.of(3, **dict(variant.options)) if variant["form"] in ENDING else variant

    @staticmethod
    def host(mesh, x, *, form, axis):
        return SECOND[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
