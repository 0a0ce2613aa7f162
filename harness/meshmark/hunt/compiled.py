# SPDX-License-Identifier: Apache-2.0
"""Runs a program without the hardware: compiles it for a topology and interprets the compiled text.

The results have the form of `meshmark.hunt.oracles.run_program`, but nothing runs on a device. Products have the
highest precision, because right answers are exact with it. The usual rounding of factors would hide small differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from meshmark.core.hlo_types import Refused
from meshmark.devices import chips, topologies
from meshmark.devices.compat import whole_text
from meshmark.hunt.oracles import NotRun, apply_jit, place_inputs
from meshmark.interpreter import reader
from meshmark.interpreter.evaluator import interpret
from meshmark.interpreter.faults import Fault
from meshmark.program_data.program import Program
from meshmark.program_data.values import make_inputs

MODES = ("auto", "explicit")
"""The modes that can be interpreted. The mode that runs each operation alone has no compiled program."""


@dataclass(frozen=True)
class Part:
    """One device's part of a result, with the attributes of a shard of a jax.Array."""

    device: Any
    index: tuple[slice, ...]
    data: np.ndarray


@dataclass(frozen=True)
class Interpreted:
    """A result of an interpreted program, with those attributes of a jax.Array that the comparison reads."""

    shape: tuple[int, ...]
    dtype: np.dtype
    addressable_shards: tuple[Part, ...]


@dataclass(frozen=True)
class Interpretation:
    """Compiles programs for these devices and interprets them.

    bits: by precision, the number of significand bits to which the chip rounds the factors of products.
    """

    devices: Sequence[Any]
    bits: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str) -> Interpretation:
        """An interpretation for the topology of this name, such as "v5e:2x4"; TopologyError without its compiler."""
        topology = topologies.parse_topology(name)
        return cls(topologies.devices(topology), chips.factor_bits(chips.CHIPS[topology.chip]))

    def __call__(self, program: Program, mode: str) -> list[Interpreted]:
        """The results of a program in a mode.

        Raises JAX's own errors, the interpreter's Fault and Hang, and NotRun if the interpreter can't run it."""
        if mode not in MODES:
            raise NotRun(f"mode {mode} of a topology")
        if program.mesh_size > len(self.devices):
            raise NotRun(f"{program.mesh_size} devices on a topology of {len(self.devices)}")
        mesh, places = place_inputs(program, mode, self.devices)
        structs = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
            for x, place in zip(make_inputs(program), places, strict=True)
        ]
        with jax.default_matmul_precision("highest"), jax.enable_x64(program.x64):
            compiled = apply_jit(program, mode, mesh, lambda function: function.lower(*structs).compile())
        try:
            outputs = interpret(
                reader.parse_module(whole_text(compiled)), make_shards(program, compiled, mesh), self.bits
            )
        except Refused as refused:
            raise NotRun(refused.name) from None
        except Fault:
            raise
        except Exception as error:  # an error of the interpreter itself is not a finding about JAX
            raise NotRun(f"{type(error).__name__} in the interpreter: {error}") from None
        return list(split_outputs(compiled, outputs, mesh))


def make_shards(program: Program, compiled: Any, mesh: Any) -> list[np.ndarray]:
    """The inputs of the compiled program, each of shape [devices, *shape of one shard], devices in mesh order.

    JAX drops inputs that it does not use, so there may be fewer than `program.inputs`."""
    used = jax.tree.leaves(compiled.input_shardings[0], is_leaf=lambda s: s is None)
    return [
        np.stack([x[index] for index in find_indices(sharding, x.shape, mesh)])
        for x, sharding in zip(make_inputs(program), used, strict=True)
        if sharding is not None
    ]


def find_indices(sharding: Any, shape: Sequence[int], mesh: Any) -> list[Any]:
    """Each device's part of an array of this shape: one tuple of slices per device, in mesh order."""
    found = sharding.devices_indices_map(tuple(shape))
    return [found[device] for device in mesh.devices.flat]


def split_outputs(compiled: Any, outputs: Sequence[np.ndarray], mesh: Any) -> list[Interpreted]:
    """Each output, of shape [devices, *shape of one shard], as a result with its shards on the mesh's devices."""
    found = []
    shardings = jax.tree.leaves(compiled.output_shardings)
    types = jax.tree.leaves(compiled.out_info)
    for output, sharding, kind in zip(outputs, shardings, types, strict=True):
        parts = tuple(
            Part(device, index, np.asarray(data))
            for device, index, data in zip(
                mesh.devices.flat, find_indices(sharding, kind.shape, mesh), output, strict=True
            )
        )
        found.append(Interpreted(tuple(kind.shape), output.dtype, parts))
    return found
