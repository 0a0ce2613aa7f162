# SPDX-License-Identifier: Apache-2.0
"""A selection of cases: profile, levels, operations, modes, meshes, dtypes and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meshmark.core import meshes
from meshmark.core.dtypes import DTYPES
from meshmark.core.errors import BadInput, unknown
from meshmark.operations import OPERATIONS
from meshmark.operations.base import MODES, parse_size
from meshmark.operations.weights import CONFORMANCE, TIMING, TURN_WEIGHTS, Weights

LEVELS = ("L0", "L1", "L2", "L3", "L4")

CAPABILITIES = {
    "x64": "64-bit types",
    "complex": "complex numbers",
    "fp8": "floats of eight bits",
    "subbyte": "numbers of four and two bits",
    "groups": "axis_index_groups",
    "broadcast": "lax.pbroadcast (collective-broadcast)",
    "ragged": "lax.ragged_all_to_all",
    "checkpoint": "orbax-checkpoint",
    "optax": "optax",
    "flax": "Flax NNX",
    "datarax": "Datarax",
}
"""The capabilities that hardware may lack. --with and --without take these names."""

CAPABILITY_PATTERNS = {
    "x64": r"\b(float64|int64|uint64|f64|s64|u64|64[- ]bit|x64|double)\b",
    "complex": r"\b(complex\w*|c64|c128)\b",
    "fp8": r"float8|\bf8|fp8|e\dm\d",
    "subbyte": r"float4|\bf4|\bu?int[24]\b|\b[su][24]\b|sub-?byte|[42][- ]bit",
    "groups": r"axis_index_groups|replica[ _]?groups?|subgroups?",
    "broadcast": r"pbroadcast|collective[-_ ]?broadcast",
    "ragged": r"ragged",
    "checkpoint": r"checkpoint|orbax",
    "optax": r"optax",
    "flax": r"flax",
    "datarax": r"datarax",
}
"""For each capability, the pattern of a message by which a backend says that it lacks the capability. A verdict is
`unsupported` if the message contains the pattern, or if a stated precondition is not met. Any other message about
something that is not implemented is an error."""


class SelectionError(BadInput, ValueError):
    """A selection that the table does not have. The message names the wrong part and the valid choices."""


@dataclass(frozen=True)
class Selection:
    """A selection of cases; an empty tuple selects everything. Check it with `checked`."""

    profile: str = "standard"
    levels: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    """The optional capabilities that are demanded. Their cases are selected like all others."""
    present: tuple[str, ...] = ()
    """The optional capabilities that a probe found. A few of their cases join the selection (see
    meshmark.operations.cases)."""
    without: tuple[str, ...] = ()
    """The optional capabilities that are left out, even if a probe finds them."""
    operations: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    meshes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    limit: int | None = field(default=None)
    """The largest weight; None for that of the profile."""
    processes: int = 1
    """Number of processes that share the devices."""
    timed: bool = False
    """Whether to select from what the benchmarks time. They have their own sizes (any size if it is named), variants
    and profiles."""

    covering: bool = True
    """Whether the profiles also take the cases that cover pairs of classes. The shortest profile never takes them."""
    turning: bool = True
    """Whether main modes take turns (see meshmark.operations.turns). They did not before version 13 of the table."""

    @property
    def turns_from(self) -> int | None:
        """The weight from which main modes take turns; None if they never do."""
        if not self.turning or self.timed or self.limit is not None:
            return None
        return TURN_WEIGHTS.get(self.profile)

    @property
    def covers(self) -> bool:
        """Whether the selection takes the cases that cover pairs of classes."""
        return self.covering and not self.timed and self.limit is None and self.profile != "smoke"

    @property
    def joining(self) -> tuple[str, ...]:
        """The capabilities of which a few cases join: those that a probe found and no option names. The shortest
        profile, the benchmarks and a selection with a limit have none."""
        if self.timed or self.limit is not None or self.profile == "smoke":
            return ()
        return tuple(c for c in self.present if c not in (*self.capabilities, *self.without))

    @property
    def whole(self) -> bool:
        """Whether it is the profile `full` without further options; `present` and `without` do not count."""
        return replace(self, present=(), without=()) == Selection("full")

    def described(self) -> dict[str, Any]:
        """The selection for a run line: only the fields that are set, and the number of processes only if there are
        several."""
        usual = (("processes", 1), ("covering", True), ("turning", True))
        return {k: v for k, v in vars(self).items() if v not in ((), None) and (k, v) not in usual}

    @property
    def weights(self) -> Weights:
        """The weights that this selection uses."""
        return TIMING if self.timed else CONFORMANCE

    @property
    def profiles(self) -> Mapping[str, int]:
        """The profiles that the selection may name."""
        return self.weights.profiles

    def checked(self, num_devices: int) -> Selection:
        """This selection. SelectionError for an unknown name or a mesh that does not fit the devices and processes."""
        declared = {s for o in OPERATIONS.values() for s in (*o.sizes, *o.timed)}
        every_size = sorted(declared, key=lambda s: (s[0] == "n", parse_size(s)))
        for what, chosen, valid in (
            ("profile", (self.profile,), self.profiles),
            ("level", self.levels, LEVELS),
            ("capability", (*self.capabilities, *self.present, *self.without), CAPABILITIES),
            ("operation", self.operations, OPERATIONS),
            ("mode", self.modes, MODES),
            ("dtype", self.dtypes, DTYPES),
            ("size", self.sizes, every_size),
        ):
            for name in chosen:
                try:
                    found = self.weights.check_size(name, valid) if what == "size" else name in valid
                except ValueError as error:
                    raise SelectionError(str(error)) from None
                if not found:
                    raise SelectionError(unknown(what, name, valid, "meshmark list"))
        if both := [name for name in self.capabilities if name in self.without]:
            raise SelectionError(f"{both[0]} is in --with and in --without: name it once")
        for label in self.meshes:
            try:
                mesh = meshes.parse_mesh(label)
            except ValueError as error:
                raise SelectionError(str(error)) from None
            if mesh.size > num_devices:
                fits = [m.label for m in meshes.weighted(num_devices, self.processes)][:3]
                raise SelectionError(
                    f"mesh {label} needs {mesh.size} devices and there are {num_devices}:"
                    f" {' or '.join(fits)} would fit (see `meshmark list`)"
                )
            if mesh.size <= num_devices - num_devices // self.processes:
                raise SelectionError(
                    f"mesh {label} leaves a process without a device: name one of more than"
                    f" {num_devices - num_devices // self.processes} devices"
                )
        return self
