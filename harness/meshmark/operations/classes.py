# SPDX-License-Identifier: Apache-2.0
"""Classes of a case's coordinates, and the members of each class on these devices. Covering arrays cover pairs of
classes.

Members of one class are more alike than members of two classes: bfloat16 and float16 are in one class of dtypes, and
all meshes with an axis of size 1 are in one class of meshes. A class may have no member on few devices.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshmark.core import meshes
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import axes_of
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Operation, Plan, parse_size


def of_dtype(name: str) -> str:
    """The class of a dtype: float32, half (16-bit floats), wide (needs x64), narrow (8-bit floats and types of fewer
    bits), int, uint, bool or complex."""
    kind = dtype_of(name)
    if kind.capability == "x64":
        return "wide"
    if kind.capability in ("fp8", "subbyte"):
        return "narrow"
    return "half" if kind.kind == "float" and kind.itemsize == 2 else name if name == "float32" else kind.kind


def of_mesh(mesh: MeshShape, num_devices: int) -> str:
    """The class of a mesh: part (not all devices), ordered (devices in another order), ones (an axis of size 1), line
    (one axis), cube (three axes), square (the preferred mesh of two axes) or flipped (another mesh of two axes)."""
    if mesh.size < num_devices:
        return "part"
    if mesh.order:
        return "ordered"
    if 1 in mesh.shape and len(mesh.shape) > 1:
        return "ones"
    if len(mesh.shape) != 2:
        return "line" if len(mesh.shape) == 1 else "cube"
    return "square" if mesh == meshes.preferred(num_devices) else "flipped"


def of_size(operation: Operation, size: str) -> str:
    """The class of a size: ordinary, empty, small or large, compared with the operation's ordinary size."""
    if size == "0B":
        return "empty"
    if not operation.sizes[size]:
        return "ordinary"
    ordinary = min(parse_size(s) for s, weight in operation.sizes.items() if not weight)
    return "small" if parse_size(size) < ordinary else "large"


def of_fill(kind: str | None) -> str:
    """The class of special values: ordinary (none), nan, infinite (or too large), or small (zeros, subnormal numbers,
    ties and mixtures)."""
    if not kind:
        return "ordinary"
    if kind.startswith("nan"):
        return "nan"
    return "infinite" if kind.startswith("inf") or kind == "extreme" else "small"


def of_input(plan: Plan, mesh: MeshShape) -> str:
    """How many of the axes of more than one device shard the inputs: all, some or none."""
    used = {a for argument in plan.arguments for entry in argument.spec for a in axes_of(entry)}
    real = {a for a, size in mesh.sizes.items() if size > 1}
    return "all" if real <= used else "some" if used & real else "none"


def meshes_by_class(num_devices: int, processes: int = 1) -> dict[str, list[MeshShape]]:
    """The meshes of each class, the lightest first."""
    found: dict[str, list[MeshShape]] = {}
    weighted = meshes.weighted(num_devices, processes)
    for mesh in sorted(weighted, key=lambda m: weighted[m]):
        found.setdefault(of_mesh(mesh, num_devices), []).append(mesh)
    return found


def find_dtypes(operation: Operation, kind: str) -> Iterator[str]:
    """The dtypes of the operation that are in a class."""
    return (name for name in operation.dtypes if of_dtype(name) == kind)
