# SPDX-License-Identifier: Apache-2.0
"""Shardy's custom calls in HLO, in which a program keeps its shardings before compilation.

Such a program has global values, which are equal on all devices here. Where a `shard_map` begins, each device takes its
block of them. Where it ends, the blocks are assembled. The syntax is that of openxla/shardy, as JAX 0.10 to 0.12 print
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core import layout
from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused, TupleShape
from meshmark.interpreter.custom_calls import target
from meshmark.interpreter.values import AnyValue, Value, array, full

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

Sizes = Mapping[str, int]
"""The sizes of a mesh by axis name."""

_ATTRIBUTE = re.compile(r'([\w.]+)="((?:[^"\\]|\\.)*)"')
_MESH = re.compile(r"(\w+) = #sdy\.mesh<\[([^\]]*)\]([^>]*)>")
_AXIS = re.compile(r'"(\w+)"=(\d+)')
_SHARDING = re.compile(r"<@(\w+), \[([^\]]*)\][^>]*>")
_DIMENSION = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r'"(\w+)"')


@target("xla.sdy.FuncResultSharding", "xla.sdy.PropagationBarrier")
def _same(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """Notes for the partitioner, which do not change the value."""
    return operands[0] if len(operands) == 1 else tuple(operands)


@target("xla.sdy.GlobalToLocalShape")
def _local(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return _each(evaluator, instruction, operands, "xla.sdy.in_shardings", _block)


@target("xla.sdy.LocalToGlobalShape")
def _global(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return _each(evaluator, instruction, operands, "xla.sdy.out_shardings", _whole)


def _each(
    evaluator: Evaluator,
    instruction: Instruction,
    operands: Sequence[AnyValue],
    name: str,
    change: Callable[[np.ndarray, layout.Spec, Sizes], np.ndarray],
) -> AnyValue:
    """Every operand, changed by `change` according to its sharding along the manual axes.

    name: the attribute that has the shardings."""
    found = {key: text.replace('\\"', '"') for key, text in _ATTRIBUTE.findall(instruction.frontend)}
    manual = set(_NAME.findall(found.get("xla.sdy.manual_axes", "")))
    shardings = _SHARDING.findall(found.get(name, ""))
    if len(shardings) != len(operands):
        raise Refused(f"{len(shardings)} shardings for {len(operands)} arrays")
    meshes = _meshes(evaluator)
    results = []
    for operand, (mesh, dims) in zip(operands, shardings, strict=True):
        if mesh not in meshes or ":(" in dims:
            raise Refused(f"the sharding <@{mesh}, [{dims[:60]}]>")
        axes = [tuple(a for a in _NAME.findall(d) if a in manual) for d in _DIMENSION.findall(dims)]
        spec = tuple(entry or None for entry in axes)
        whole = full(array(operand, instruction.name).known(instruction.name), evaluator.devices)
        results.append(Value(change(whole, spec, meshes[mesh])))
    return tuple(results) if isinstance(instruction.shape, TupleShape) else results[0]


def _meshes(evaluator: Evaluator) -> dict[str, Sizes]:
    """The meshes of the module by name; Refused if one has its own order of devices."""
    text = evaluator.module.attributes.get("frontend_attributes", "").replace("\\", "")
    found: dict[str, Sizes] = {}
    for name, axes, rest in _MESH.findall(text):
        if rest:
            raise Refused(f"a mesh with {rest.strip(', ')[:60]}")
        found[name] = {axis: int(size) for axis, size in _AXIS.findall(axes)}
    return found


def _block(data: np.ndarray, spec: layout.Spec, sizes: Sizes) -> np.ndarray:
    """[devices, *global] to [devices, *local]: each device takes its block of its value."""
    places = layout.indices(data.shape[1:], spec, sizes)
    return np.stack([data[device][place] for device, place in enumerate(places)])


def _whole(data: np.ndarray, spec: layout.Spec, sizes: Sizes) -> np.ndarray:
    """[devices, *local] to [devices, *global]: each device assembles the blocks of those devices that differ from it
    only along the axes of the spec."""
    named = {axis for entry in spec for axis in layout.axes_of(entry)}
    order = [*(a for a in sizes if a not in named), *(a for a in sizes if a in named)]
    numbers = (
        np.arange(len(data)).reshape(tuple(sizes.values())).transpose([list(sizes).index(a) for a in order])
    )
    within = {axis: sizes[axis] for axis in order if axis in named}
    groups = numbers.reshape(-1, int(np.prod(list(within.values()), dtype=int)))
    joined = [layout.assemble(list(data[group]), spec, within) for group in groups]
    result = np.empty((len(data), *joined[0].shape), data.dtype)
    for group, array_ in zip(groups, joined, strict=True):
        result[group] = array_
    return result
