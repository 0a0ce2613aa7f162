# SPDX-License-Identifier: Apache-2.0
"""The case table, one module per family. Importing this package registers every operation."""

from __future__ import annotations

from meshmark.operations import (
    algebra,
    arrays,
    calls,
    collective_gradients,
    collective_reductions,
    collectives,
    contraction,
    creation,
    decoder,
    decoding,
    elementwise,
    experts,
    extents,
    forms,
    indexing,
    layers,
    lifecycle,
    messages,
    multihost,
    networks,
    optimizers,
    ordering,
    parallel,
    permutations,
    pipeline,
    pipelines,
    placement,
    processes,
    program_forms,
    reductions,
    refusals,
    restoring,
    shapes,
    training,
    transforms,
    views,
    windows,
)
from meshmark.operations.base import Operation

FAMILIES = (
    collective_reductions,
    collectives,
    permutations,
    contraction,
    layers,
    training,
    placement,
    arrays,
    views,
    processes,
    multihost,
    pipelines,
    messages,
    lifecycle,
    indexing,
    shapes,
    elementwise,
    reductions,
    windows,
    ordering,
    creation,
    algebra,
    networks,
    collective_gradients,
    transforms,
    program_forms,
    refusals,
    forms,
    extents,
    calls,
    decoder,
    decoding,
    parallel,
    pipeline,
    experts,
    optimizers,
    restoring,
)


def _leaves(cls: type[Operation]) -> list[type[Operation]]:
    return [leaf for sub in cls.__subclasses__() for leaf in [*([sub] if sub.name else []), *_leaves(sub)]]


OPERATIONS: dict[str, Operation] = {cls.name: cls() for cls in dict.fromkeys(_leaves(Operation))}
"""Every operation by name, in the order of the modules and classes."""
