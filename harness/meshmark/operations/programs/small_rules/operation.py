# SPDX-License-Identifier: Apache-2.0
"""Small rules of JAX, many in one case: what is refused, types of results, second calls, bytes on the wire, special
values, rare dtypes, forms of arguments, meshes, whole programs and random numbers.

A rule is a short program with an answer that is written down. A case raises for the first rule that is broken; its
program is that of `programs.forms.base`: f(x) = x * s(x).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import jax

from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.small_rules.ahead import RULES_AHEAD
from meshmark.operations.programs.small_rules.alike import RULES_OF_SHARED_VALUES
from meshmark.operations.programs.small_rules.arrays import RULES_OF_ARRAYS
from meshmark.operations.programs.small_rules.asked import RULES_OF_WHAT_IS_ASKED
from meshmark.operations.programs.small_rules.axes import RULES_OF_AXES
from meshmark.operations.programs.small_rules.bad_calls import RULES_OF_BAD_CALLS
from meshmark.operations.programs.small_rules.bad_shapes import RULES_OF_BAD_SHAPES
from meshmark.operations.programs.small_rules.batched import RULES_OF_BATCHED_CALLS
from meshmark.operations.programs.small_rules.batches import RULES_OF_BATCHES
from meshmark.operations.programs.small_rules.blocks import RULES_OF_BLOCKS
from meshmark.operations.programs.small_rules.calls import RULES_OF_CALLS
from meshmark.operations.programs.small_rules.comparing import line_and_grid
from meshmark.operations.programs.small_rules.conditions import RULES_OF_CONDITIONS
from meshmark.operations.programs.small_rules.corners import RULES_OF_CORNERS
from meshmark.operations.programs.small_rules.derivatives import RULES_OF_DERIVATIVES
from meshmark.operations.programs.small_rules.far import RULES_OF_WHAT_IS_FAR
from meshmark.operations.programs.small_rules.functions import RULES_OF_FUNCTIONS
from meshmark.operations.programs.small_rules.given import RULES_OF_WHAT_IS_GIVEN
from meshmark.operations.programs.small_rules.groups import RULES_OF_GROUPS
from meshmark.operations.programs.small_rules.hosts import RULES_OF_HOSTS
from meshmark.operations.programs.small_rules.kept import RULES_OF_WHAT_IS_KEPT
from meshmark.operations.programs.small_rules.leftovers import RULES_OF_LEFTOVERS
from meshmark.operations.programs.small_rules.lengths import RULES_OF_LENGTH
from meshmark.operations.programs.small_rules.loops import RULES_OF_LOOPS
from meshmark.operations.programs.small_rules.making import RULES_OF_MAKING
from meshmark.operations.programs.small_rules.mapping import RULES_OF_MAPPING
from meshmark.operations.programs.small_rules.meetings import RULES_OF_MEETINGS
from meshmark.operations.programs.small_rules.methods import RULES_OF_METHODS
from meshmark.operations.programs.small_rules.narrow import RULES_OF_NARROW_TYPES
from meshmark.operations.programs.small_rules.numbers import RULES_OF_NUMBERS
from meshmark.operations.programs.small_rules.outside import RULES_FROM_OUTSIDE
from meshmark.operations.programs.small_rules.partial import RULES_OF_PARTIAL_REGIONS
from meshmark.operations.programs.small_rules.places import RULES_OF_PLACES
from meshmark.operations.programs.small_rules.precision import RULES_OF_PRECISION
from meshmark.operations.programs.small_rules.programs import RULES_OF_PROGRAMS
from meshmark.operations.programs.small_rules.promised import RULES_OF_PROMISES
from meshmark.operations.programs.small_rules.pullbacks import RULES_OF_PULLBACKS
from meshmark.operations.programs.small_rules.puts import RULES_OF_PUTS
from meshmark.operations.programs.small_rules.refusal import RULES_OF_REFUSAL
from meshmark.operations.programs.small_rules.regions import RULES_OF_REGIONS
from meshmark.operations.programs.small_rules.remaining import RULES_OF_WHAT_REMAINS
from meshmark.operations.programs.small_rules.reported_batches import RULES_OF_REPORTED_BATCHES
from meshmark.operations.programs.small_rules.reported_programs import RULES_OF_REPORTED_PROGRAMS
from meshmark.operations.programs.small_rules.reported_slopes import RULES_OF_REPORTED_SLOPES
from meshmark.operations.programs.small_rules.results import RULES_OF_RESULTS
from meshmark.operations.programs.small_rules.reuse import RULES_OF_REUSE
from meshmark.operations.programs.small_rules.seldom import RULES_SELDOM_USED
from meshmark.operations.programs.small_rules.several import RULES_OF_SEVERAL
from meshmark.operations.programs.small_rules.sizes import RULES_OF_SIZES
from meshmark.operations.programs.small_rules.slopes import RULES_OF_SLOPES
from meshmark.operations.programs.small_rules.spelled import RULES_OF_SPELLINGS
from meshmark.operations.programs.small_rules.storage import RULES_OF_STORAGE
from meshmark.operations.programs.small_rules.switches import RULES_OF_SWITCHES
from meshmark.operations.programs.small_rules.tested_arrays import RULES_OF_TESTED_ARRAYS
from meshmark.operations.programs.small_rules.tested_layouts import RULES_OF_TESTED_LAYOUTS
from meshmark.operations.programs.small_rules.tested_memories import RULES_OF_TESTED_MEMORIES
from meshmark.operations.programs.small_rules.tested_partitions import RULES_OF_TESTED_PARTITIONS
from meshmark.operations.programs.small_rules.tested_parts import RULES_OF_TESTED_PARTS
from meshmark.operations.programs.small_rules.tested_places import RULES_OF_TESTED_PLACES
from meshmark.operations.programs.small_rules.tested_programs import RULES_OF_TESTED_PROGRAMS
from meshmark.operations.programs.small_rules.tested_pullbacks import RULES_OF_TESTED_PULLBACKS
from meshmark.operations.programs.small_rules.tested_references import RULES_OF_TESTED_REFERENCES
from meshmark.operations.programs.small_rules.tested_regions import RULES_OF_TESTED_REGIONS
from meshmark.operations.programs.small_rules.tested_slopes import RULES_OF_TESTED_SLOPES
from meshmark.operations.programs.small_rules.tested_types import RULES_OF_TESTED_TYPES
from meshmark.operations.programs.small_rules.tested_unreduced import RULES_OF_TESTED_UNREDUCED
from meshmark.operations.programs.small_rules.threads import RULES_OF_THREADS
from meshmark.operations.programs.small_rules.tools import RULES_OF_TOOLS
from meshmark.operations.programs.small_rules.typed import RULES_OF_TYPED_ARRAYS
from meshmark.operations.programs.small_rules.types import RULES_OF_TYPES
from meshmark.operations.programs.small_rules.unasked import RULES_THAT_NOBODY_ASKED
from meshmark.operations.programs.small_rules.unnoticed import RULES_OF_WHAT_NOBODY_NOTICED
from meshmark.operations.programs.small_rules.unreduced import RULES_OF_UNREDUCED
from meshmark.operations.programs.small_rules.uses import RULES_OF_USES
from meshmark.operations.programs.small_rules.values import RULES_OF_VALUES
from meshmark.operations.programs.small_rules.wide import RULES_OF_WIDE_NUMBERS
from meshmark.operations.programs.small_rules.words import RULES_OF_WORDS

SMALL_RULES: dict[str, Callable[..., None]] = {
    **RULES_OF_REFUSAL,
    **RULES_OF_TYPES,
    **RULES_OF_CALLS,
    **RULES_OF_PROGRAMS,
    **RULES_OF_DERIVATIVES,
    **RULES_OF_VALUES,
    **RULES_OF_LOOPS,
    **RULES_OF_HOSTS,
    **RULES_OF_ARRAYS,
    **RULES_OF_FUNCTIONS,
    **RULES_OF_SLOPES,
    **RULES_OF_STORAGE,
    **RULES_OF_USES,
    **RULES_OF_PRECISION,
    **RULES_OF_NUMBERS,
    **RULES_OF_REGIONS,
    **RULES_OF_METHODS,
    **RULES_OF_PUTS,
    **RULES_OF_MAKING,
    **RULES_OF_MAPPING,
    **RULES_OF_AXES,
    **RULES_OF_BATCHES,
    **RULES_OF_RESULTS,
    **RULES_OF_CORNERS,
    **RULES_OF_WORDS,
    **RULES_OF_GROUPS,
    **RULES_OF_SIZES,
    **RULES_OF_WHAT_IS_ASKED,
    **RULES_OF_SPELLINGS,
    **RULES_OF_PROMISES,
    **RULES_OF_CONDITIONS,
    **RULES_OF_PLACES,
    **RULES_OF_SEVERAL,
    **RULES_OF_BLOCKS,
    **RULES_OF_LENGTH,
    **RULES_OF_THREADS,
    **RULES_AHEAD,
    **RULES_OF_PARTIAL_REGIONS,
    **RULES_OF_PULLBACKS,
    **RULES_OF_MEETINGS,
    **RULES_OF_NARROW_TYPES,
    **RULES_FROM_OUTSIDE,
    **RULES_OF_SHARED_VALUES,
    **RULES_OF_WIDE_NUMBERS,
    **RULES_OF_WHAT_IS_GIVEN,
    **RULES_OF_BAD_CALLS,
    **RULES_OF_BAD_SHAPES,
    **RULES_OF_WHAT_IS_KEPT,
    **RULES_OF_REUSE,
    **RULES_OF_BATCHED_CALLS,
    **RULES_SELDOM_USED,
    **RULES_OF_WHAT_IS_FAR,
    **RULES_OF_UNREDUCED,
    **RULES_OF_TYPED_ARRAYS,
    **RULES_OF_REPORTED_SLOPES,
    **RULES_OF_REPORTED_PROGRAMS,
    **RULES_OF_REPORTED_BATCHES,
    **RULES_OF_TESTED_REGIONS,
    **RULES_OF_TESTED_UNREDUCED,
    **RULES_OF_TESTED_REFERENCES,
    **RULES_OF_TESTED_PULLBACKS,
    **RULES_OF_TESTED_SLOPES,
    **RULES_OF_TESTED_PARTITIONS,
    **RULES_OF_TESTED_TYPES,
    **RULES_OF_TESTED_PLACES,
    **RULES_OF_TESTED_PARTS,
    **RULES_OF_TESTED_ARRAYS,
    **RULES_OF_TESTED_PROGRAMS,
    **RULES_OF_TESTED_LAYOUTS,
    **RULES_OF_TESTED_MEMORIES,
    **RULES_OF_WHAT_NOBODY_NOTICED,
    **RULES_THAT_NOBODY_ASKED,
    **RULES_OF_SWITCHES,
    **RULES_OF_TOOLS,
    **RULES_OF_LEFTOVERS,
    **RULES_OF_WHAT_REMAINS,
}
"""Each function takes a mesh over one axis "d" and one over two axes "x" and "y", both of all devices."""


class SmallRule(ProgramForm):
    """One sharded program, with many small rules of one kind beside it."""

    name = "small_rule"
    forms = SMALL_RULES
    two_axes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def host(mesh, x, *, form, axis):
        SMALL_RULES[form](*line_and_grid(mesh))
        return jax.jit(over(mesh, axis))(jax.device_put(x, at(mesh, axis)))
