# SPDX-License-Identifier: Apache-2.0
"""Functions of arrays that are cut over the devices along each dimension in turn, held to their definitions in NumPy.

Faults of compilers have conditions: a dimension that is cut, a dtype, a special value, an option. A case here has many
functions of one kind, and runs all of them under every placement of their arrays. The program of the case is that of
`programs.forms.base`: f(x) = x * s(x). Wrong results raise an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import jax

from meshmark.operations.programs.cuts.calls import CUT_CALLS
from meshmark.operations.programs.cuts.floats import CUT_FLOATS
from meshmark.operations.programs.cuts.indices import CUT_INDICES
from meshmark.operations.programs.cuts.integers import CUT_INTEGERS
from meshmark.operations.programs.cuts.options import CUT_OPTIONS
from meshmark.operations.programs.cuts.products import CUT_PRODUCTS
from meshmark.operations.programs.cuts.slopes import CUT_SLOPES
from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.small_rules.comparing import line_and_grid

CUT_ARRAYS: dict[str, Callable[..., None]] = {
    **CUT_INTEGERS,
    **CUT_INDICES,
    **CUT_FLOATS,
    **CUT_PRODUCTS,
    **CUT_CALLS,
    **CUT_SLOPES,
    **CUT_OPTIONS,
}
"""Each function takes a mesh over one axis "d" and one over two axes "x" and "y", both of all devices."""


class CutArray(ProgramForm):
    """One sharded program, with many functions of arrays that are cut along each dimension in turn beside it."""

    name = "cut_array"
    forms = CUT_ARRAYS
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        CUT_ARRAYS[form](*line_and_grid(mesh))
        return jax.jit(over(mesh, axis))(jax.device_put(x, at(mesh, axis)))
