# SPDX-License-Identifier: Apache-2.0
"""Interprets a compiled program and judges the numbers that it computes, without the hardware.

The lines of numbers (or gradient) and replicas carry the field `interpreted`. They judge the compiled text; nothing
runs on a device. What the text does not state is taken from the chip's documentation and is named in `assumed`. If the
interpreter does not know something, the lines are `not_run` and `refused` names it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from meshmark.core import layout
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.hlo_types import Refused
from meshmark.core.verdicts import Line
from meshmark.devices import chips
from meshmark.devices.compat import whole_text
from meshmark.devices.topologies import Topology
from meshmark.interpreter import reader
from meshmark.interpreter.evaluator import interpret
from meshmark.interpreter.faults import Fault, Hang
from meshmark.judge.checks import numbers_check, numbers_lines
from meshmark.judge.numbers import Numbers, Shard, compare_shards
from meshmark.judge.programs import Program
from meshmark.operations.cases import Case, Cell

MOST_BYTES = 8 * 2**30
"""The most memory of a program that is interpreted: of all devices together, by the figures of the compiler."""


def judge_lines(program: Program, compiled: Any, topology: Topology, seed: int) -> list[Line]:
    """The lines of numbers (or gradient) and replicas of a program that was compiled for a topology."""
    chip = chips.CHIPS[topology.chip]
    own = {"interpreted": True, "assumed": assumptions(program, chip, topology)}
    start = time.perf_counter()
    found = judged(program, compiled, chips.factor_bits(chip), seed)
    own["interpret_s"] = round(time.perf_counter() - start, 6)
    for line in found:
        line.data |= {name: value for name, value in own.items() if value not in ([], "")}
    return found


def assumptions(program: Program, chip: chips.Chip, topology: Topology) -> list[str]:
    """The assumptions of the interpretation, which the text does not state."""
    found = []
    if program.case.plan.precision == "default":
        bits = chips.factor_bits(chip)["default"]
        found.append(f"float32 products at default precision round their factors to {bits} bits")
    if topology.platform == "cuda":
        found.append("not autotuned: compiled without a GPU")
    return found


def judged(program: Program, compiled: Any, factor_bits: Mapping[str, int], seed: int) -> list[Line]:
    """The lines of a compiled program by interpretation of its text, without the fields that mark them."""
    check = numbers_check(program.case)
    try:
        if (need := program.case.mesh.size * memory_bytes(compiled)) > MOST_BYTES:
            raise Refused(f"a program of {need / 2**30:.0f} GiB on all devices")
        module = reader.parse_module(whole_text(compiled))
        outputs = interpret(module, arguments(program, compiled, seed), factor_bits)
    except Refused as refused:
        data = {"refused": refused.name}
        return [Line(name, "not_run", str(refused), dict(data)) for name in (check, "replicas")]
    except Hang as hang:
        return [Line(check, "hang", str(hang))]
    except Fault as fault:
        return [Line(check, "fail", str(fault))]
    return compared(program, outputs, factor_bits, seed, compiled)


@lru_cache(maxsize=4)
def inputs(cell: Cell, seed: int) -> list[np.ndarray]:
    """The whole inputs of a cell, once for all of its modes."""
    return cell.arguments(seed)


@lru_cache(maxsize=4)
def wanted(cell: Cell, seed: int, u_factor: float) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """The expected results of a cell and their bounds, once for all of its modes. Subnormal numbers are kept, as the
    interpreter keeps them. `u_factor`: the unit roundoff of the factors of products."""
    return cell.expected(inputs(cell, seed), u_factor)


def memory_bytes(compiled: Any) -> int:
    """Bytes of arguments, outputs and temporaries of one device, by the compiler's analysis."""
    found = compiled.memory_analysis()
    return int(found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes)


def given(program: Program, compiled: Any, seed: int) -> list[tuple[np.ndarray, layout.Spec]]:
    """The whole inputs of the compiled program with their specs. Arguments that the program does not use are dropped,
    as JAX drops them."""
    case = program.case
    arrays = inputs(case.cell, seed)
    used = jax.tree.leaves(compiled.input_shardings[0], is_leaf=lambda s: s is None)
    return [
        (program.view(plan, array), seen.spec)
        for plan, seen, array, sharding in zip(
            case.plan.arguments, program.arguments, arrays, used, strict=True
        )
        if sharding is not None
    ]


def arguments(program: Program, compiled: Any, seed: int) -> list[np.ndarray]:
    """The inputs of the compiled program, [devices, *local shape] each, in the order of the mesh."""
    sizes = program.case.mesh.sizes
    return [np.stack(layout.split(array, spec, sizes)) for array, spec in given(program, compiled, seed)]


def claimed(program: Program, compiled: Any) -> list[list[tuple[slice, ...]]]:
    """For each result the part of each device, by flat mesh position, from the compiled program's shardings."""
    found = []
    for result, sharding in zip(program.results, jax.tree.leaves(compiled.output_shardings), strict=True):
        indices = sharding.devices_indices_map(tuple(result.shape))
        found.append(
            [
                tuple(slice(*i.indices(n)[:2]) for i, n in zip(indices[device], result.shape, strict=True))
                for device in program.mesh.devices.flat
            ]
        )
    return found


def u_factor(case: Case, factor_bits: Mapping[str, int]) -> float:
    """The unit roundoff to which the chip's products round the factors of a case; 0.0 if they round none."""
    asked = case.plan.precision == "default" and case.plan.judge == "bound"
    rounds = asked and dtype_of(case.cell.request.dtype).name in ("float32", "complex64")
    bits = factor_bits.get("default", 0) if rounds else 0
    return 2.0**-bits if bits else 0.0


def compared(
    program: Program,
    outputs: Sequence[np.ndarray],
    factor_bits: Mapping[str, int],
    seed: int,
    compiled: Any,
) -> list[Line]:
    """The lines of these outputs, [devices, *local shape] each, of a compiled program."""
    case, check = program.case, numbers_check(program.case)
    if len(outputs) != len(program.results):
        return [Line(check, "fail", f"{len(outputs)} results instead of {len(program.results)}")]
    expected, bounds = wanted(case.cell, seed, u_factor(case, factor_bits))
    places = [program.devices[i] for i in case.mesh.ordinals.flat]
    numbers: list[Numbers] = []
    for plan, result, output, parts, whole, limit in zip(
        case.plan.results, program.results, outputs, claimed(program, compiled), expected, bounds, strict=True
    ):
        if output.dtype != dtype_of(result.dtype).numpy:
            return [Line(check, "fail", f"result is {output.dtype} instead of {result.dtype}")]
        shards = [
            Shard(place, np.asarray(data, order="C"), part)
            for place, data, part in zip(places, output, parts, strict=True)
        ]
        want = program.view(plan, whole)
        bound = None if limit is None else program.view(plan, limit)
        numbers.append(compare_shards(case, places, result, shards, want, bound))
        if numbers[-1].badness > 1 and bound is None and unspecified(shards, want):
            name = "unspecified bits: only NaN payloads, signs of zeros or subnormals differ"
            return [Line(c, "not_run", name, {"refused": name}) for c in (check, "replicas")]
    found = numbers_lines(case, numbers)
    if case.plan.precision:
        bits = factor_bits.get(case.plan.precision, 0)
        found[0].data["precision"] = case.plan.precision + (f" ({bits} bits, assumed)" if bits else "")
    return found


def unspecified(shards: Sequence[Shard], want: np.ndarray) -> bool:
    """Whether the shards differ from the reference only where arithmetic may: both are NaN, both are zero, or a
    subnormal is flushed."""
    for shard in shards:
        wanted = want[shard.index]
        if wanted.dtype.kind not in "fcV" or shard.data.shape != wanted.shape:
            return False
        seen = shard.data.astype(np.complex128 if wanted.dtype.kind == "c" else np.float64)
        exact = wanted.astype(seen.dtype)
        tiny = np.finfo(wanted.dtype).tiny if wanted.dtype.kind == "f" else 0.0
        same = (seen == exact) | (np.isnan(seen) & np.isnan(exact))
        flushed = (np.abs(exact) < tiny) & (seen == 0)
        if not (same | flushed).all():
            return False
    return True
