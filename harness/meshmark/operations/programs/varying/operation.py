# SPDX-License-Identifier: Apache-2.0
"""Functions whose result depends on what varies between devices, while their other arguments do not: by a number, a
predicate, an index, a bound, a random key, the keys of an order, a callback or a mutable array.

With check_vma the type of a result says over which axes it varies. If a function loses that mark, `out_specs=P()` is
taken although the devices hold different numbers, and the gradient by an argument that is the same on all devices is
that of one device, times their number. Nothing else says so. A case checks the type, the refusal, the values and the
gradients of a group of functions (see `judging.judge`). Its program is that of `forms.base`: f(x) = x * s(x).

Each bug of a released JAX has a form of its own, so that its known issue hides nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import jax

from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.small_rules.comparing import line_and_grid
from meshmark.operations.programs.varying import arrays, effects, orders, programs
from meshmark.operations.programs.varying.judging import Pairs, judge

VARYING: dict[str, Pairs] = {
    "elementwise": arrays.ELEMENTWISE,
    "created": arrays.CREATED,
    "choices": arrays.CHOICES,
    "slices": arrays.SLICES,
    "gathers": arrays.GATHERS,
    "scatters": arrays.SCATTERS,
    "orders": orders.ORDERS,
    "reductions": orders.REDUCTIONS,
    "running": orders.RUNNING,
    "products": orders.PRODUCTS,
    "linear_algebra": orders.LINEAR_ALGEBRA,
    "loops": programs.LOOPS,
    "calls": programs.CALLS,
    "random": programs.RANDOM,
    "mutable": effects.MUTABLE,
    "branches": programs.BRANCHES,
    "turns": programs.TURNS,
    "orders_by_key": orders.ORDERS_BY_KEY,
    "permutations": orders.PERMUTATIONS,
    "bit_generator": effects.BIT_GENERATOR,
    "callbacks": effects.CALLBACKS,
    "exponents": arrays.EXPONENTS,
    "mutable_reads": effects.MUTABLE_READS,
    "mutable_in_branches": effects.MUTABLE_IN_BRANCHES,
}
"""The functions of each form. A released JAX loses the mark in the forms from `branches` on."""

NOT_EAGER = ("mutable", "mutable_reads", "mutable_in_branches")
"""A shard_map without jit takes no mutable arrays."""


class VaryingResult(ProgramForm):
    """Functions of what varies between devices: type, refusal of P(), values, and gradients by what does not vary."""

    name = "varying_result"
    forms: ClassVar[dict[str, Callable[..., None]]] = {
        form: partial(judge, pairs=pairs, eagerly=form not in NOT_EAGER) for form, pairs in VARYING.items()
    }
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        with jax.default_matmul_precision("highest"):
            judge(*line_and_grid(mesh), pairs=VARYING[form], eagerly=form not in NOT_EAGER)
        return jax.jit(over(mesh, axis))(jax.device_put(x, at(mesh, axis)))
