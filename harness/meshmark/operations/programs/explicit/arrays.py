# SPDX-License-Identifier: Apache-2.0
"""The functions of `cuts.operation` over Explicit axes, by JAX's own sharding rules: no `auto_axes` around them and no
`out_sharding`.

In mode explicit most operations run inside `auto_axes` (see `functions.wholes`), and so by the rules of the compiler. A
case here judges the values that JAX's rules lead to, whether a result lies as its type says, and whether a right call
is refused. The program of the case is that of `programs.forms.base`: f(x) = x * s(x). Wrong results raise an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import jax

from meshmark.operations.programs.cuts.operation import CUT_ARRAYS
from meshmark.operations.programs.forms.base import ProgramForm, at, explicit, over
from meshmark.operations.programs.small_rules.comparing import line_and_grid

EXPLICIT_ARRAYS: dict[str, Callable[..., None]] = {
    name: CUT_ARRAYS[name]
    for name in (
        *("numbers_of_int8", "truths", "indices", "specials_of_float32", "complex_numbers"),
        *("products", "convolutions", "attention", "algebra"),
        *(n for n in CUT_ARRAYS if n.startswith(("numpy_", "slopes_")) and n != "slopes_numbers"),
    )
}


class ExplicitArray(ProgramForm):
    """One sharded program, with many functions of arrays over Explicit axes beside it."""

    name = "explicit_array"
    forms = EXPLICIT_ARRAYS
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        EXPLICIT_ARRAYS[form](*map(explicit, line_and_grid(mesh)))
        return jax.jit(over(mesh, axis))(jax.device_put(x, at(mesh, axis)))
