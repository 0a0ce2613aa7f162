# SPDX-License-Identifier: Apache-2.0
"""Weights: how far each coordinate of a case is from the ordinary one, for conformance and for timing.

A weight of 0 is ordinary: float32, the most square mesh, 4 KiB, plain options, the three main modes. A profile takes
the cases whose weights add up to at most its limit. So `quick` holds the cases that depart from the ordinary in one
small way, `standard` every case that departs in one or two, and `full` holds their combinations. Conformance and timing
use different weights: a check needs breadth, and timing covers what people choose between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from meshmark.core import meshes
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Operation, Variant, parse_size

if TYPE_CHECKING:
    from meshmark.operations.selection import Selection

PROFILES = {"smoke": 0, "quick": 1, "standard": 2, "full": 4}
"""The profiles of the conformance tests, and the largest weight that each profile takes."""

TURN_WEIGHTS = {"standard": 2, "full": 3}
"""The weight of a cell from which its main modes take turns, by profile (see meshmark.operations.turns)."""

TIMED_PROFILES = {"quick": 0, "standard": 2, "full": 4, "sweep": 0}
"""The profiles of the benchmarks. `sweep` has the cells of `quick` in the sizes of SWEPT."""

SWEPT = tuple(
    f"{2**i // 2**shift}{unit}"
    for i in range(3, 37)
    for shift, unit in [
        (30, "GiB") if i >= 30 else (20, "MiB") if i >= 20 else (10, "KiB") if i >= 10 else (0, "B")
    ]
)
"""The sizes 8 B, 16 B, ... 64 GiB. A benchmark times those that fit in memory."""

MODE_WEIGHTS = {"auto": 0, "explicit": 0, "manual": 0, "host": 0, "manual-novma": 2, "pmap": 1, "pjit": 2}

DTYPE_WEIGHT = 2
"""The weight of a dtype that is neither float32 nor the first dtype of the operation."""

USUAL_DTYPES = (
    *("float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool"),
    *("complex64", "float64", "complex128"),
)
"""The dtypes of version 1 of the table. The other dtypes weigh one more. They take turns in the cases that cover
pairs."""

OPTIONAL_LIMIT = DTYPE_WEIGHT + 1
"""The largest weight of a case that judges an optional capability by default. It admits the rarer dtypes."""

RARE_WEIGHT = 2
"""The weight that timing adds to rare coordinates. These are dtypes other than bfloat16, the lesser modes, and meshes
that have an axis of size 1, are permuted, or leave devices out."""


class Weights(Protocol):
    """The weights of one use of the table."""

    profiles: Mapping[str, int]

    def meshes(self, selection: Selection, num_devices: int) -> dict[MeshShape, int]:
        """The meshes to choose from, and the weight of each."""

    def mesh(self, operation: Operation, weight: int) -> int:
        """The weight of a mesh for this operation."""

    def variants(self, operation: Operation, mesh: MeshShape, most: int) -> Iterable[Variant]:
        """The variants to choose from, of weight `most` or less."""

    def mode(self, operation: Operation, mode: str, variant: Variant, selection: Selection) -> int:
        """The weight of a mode for this variant of an operation."""

    def dtype(self, operation: Operation, dtype: str, selection: Selection) -> int:
        """The weight of a dtype."""

    def sizes(self, operation: Operation, selection: Selection) -> dict[str, int]:
        """The sizes of an operation to choose from, and the weight of each."""

    def check_size(self, size: str, declared: Iterable[str]) -> bool:
        """Whether a selection may name this size; ValueError, with the reason, for text that is not a size."""


class ConformanceWeights:
    """The weights of `pytest conformance`."""

    profiles: Mapping[str, int] = PROFILES

    def meshes(self, selection: Selection, num_devices: int) -> dict[MeshShape, int]:
        """Every factorization of the devices. Any other mesh that the selection names weighs 1."""
        weighted = meshes.weighted(num_devices, selection.processes)
        if not selection.meshes:
            return weighted
        return {mesh: weighted.get(mesh, 1) for mesh in map(meshes.parse_mesh, selection.meshes)}

    def mesh(self, operation: Operation, weight: int) -> int:
        """The standard profile takes all meshes for an operation that is judged everywhere."""
        return min(weight, PROFILES["standard"]) if operation.everywhere else weight

    def variants(self, operation: Operation, mesh: MeshShape, most: int) -> Iterable[Variant]:
        """All variants, with every kind of values."""
        return operation.filled_variants(mesh, most)

    def mode(self, operation: Operation, mode: str, variant: Variant, selection: Selection) -> int:
        """The weight of the mode. It stays the same if the selection names the mode."""
        own = operation.mode_weight(mode, variant)
        return MODE_WEIGHTS[mode] if own is None else own

    def dtype(self, operation: Operation, dtype: str, selection: Selection) -> int:
        """float32 and an operation's first dtype are ordinary."""
        return 0 if dtype in ("float32", operation.dtypes[0]) else DTYPE_WEIGHT + (dtype not in USUAL_DTYPES)

    def sizes(self, operation: Operation, selection: Selection) -> dict[str, int]:
        """The operation's sizes."""
        return dict(operation.sizes)

    def check_size(self, size: str, declared: Iterable[str]) -> bool:
        """Whether an operation declares this size."""
        return size in declared


class TimingWeights:
    """The weights of the benchmarks. Named coordinates are in every profile."""

    profiles: Mapping[str, int] = TIMED_PROFILES

    def meshes(self, selection: Selection, num_devices: int) -> dict[MeshShape, int]:
        """One axis over all devices is ordinary: bandwidth is quoted on it. Named meshes are ordinary too."""
        if selection.meshes:
            return dict.fromkeys(map(meshes.parse_mesh, selection.meshes), 0)
        weighted = meshes.weighted(num_devices, selection.processes)
        found = {mesh: weight + RARE_WEIGHT * (weight > 1) for mesh, weight in weighted.items()}
        found[MeshShape((num_devices,))] = 0
        return found

    def mesh(self, operation: Operation, weight: int) -> int:
        """The same for every operation."""
        return weight

    def variants(self, operation: Operation, mesh: MeshShape, most: int) -> Iterable[Variant]:
        """The variants that the operation declares to be timed. They are all ordinary."""
        return operation.timed_variants(mesh)

    def mode(self, operation: Operation, mode: str, variant: Variant, selection: Selection) -> int:
        """The lesser modes are rare; a named mode is ordinary."""
        weight = MODE_WEIGHTS[mode]
        return 0 if not weight or mode in selection.modes else weight + RARE_WEIGHT

    def dtype(self, operation: Operation, dtype: str, selection: Selection) -> int:
        """Dtypes other than bfloat16 are rare; a named dtype is ordinary."""
        if dtype in ("float32", operation.dtypes[0], *selection.dtypes):
            return 0
        return DTYPE_WEIGHT if dtype == "bfloat16" else DTYPE_WEIGHT + RARE_WEIGHT

    def sizes(self, operation: Operation, selection: Selection) -> dict[str, int]:
        """The sizes that the operation declares to be timed, and any size that is named in the operation's unit: bytes,
        or a dimension such as n512. The lightest sizes of a named operation weigh 0."""
        if operation.timed:
            known = dict(operation.timed)
            dimension = next(iter(operation.sizes)).startswith("n")
            if selection.profile == "sweep":
                known = {} if dimension else dict.fromkeys(SWEPT, 0)
            known |= {size: 0 for size in selection.sizes if size.startswith("n") == dimension}
        elif selection.profile == "sweep":
            return {}
        else:
            ordinary_sizes = (size for size, weight in operation.sizes.items() if not weight)
            known = dict.fromkeys(ordinary_sizes, TIMED_PROFILES["full"])
        least = min(known.values(), default=0) if selection.operations else 0
        return {size: weight - least for size, weight in known.items()}

    def check_size(self, size: str, declared: Iterable[str]) -> bool:
        """Accept a declared size, and any other one that shapes can have exactly: a power of two up to 4 KiB, a
        multiple of it, or a dimension that is a multiple of 8. Another size in the results would not be that of the
        arrays."""
        number = parse_size(size)
        if size in declared:
            return True
        if size.startswith("n"):
            if number % 8 or not number:
                raise ValueError(f"{size} is no dimension of whole tiles: use a multiple of 8, such as n512")
        elif number % TILE and not (number < TILE and number & (number - 1) == 0):
            raise ValueError(
                f"{size} is no size of whole tiles: use a multiple of 4KiB, or a power of two below it"
            )
        return True


TILE = 4096
"""The bytes of 8 x 128 numbers of 32 bits. Payloads above it are whole tiles of them."""

CONFORMANCE: Weights = ConformanceWeights()
TIMING: Weights = TimingWeights()
