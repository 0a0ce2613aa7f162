# SPDX-License-Identifier: Apache-2.0
"""Judges cases without the hardware: the checks of a compiled program that need no execution.

A case is lowered and compiled for a topology (`devices.topologies`) by the real TPU or GPU compiler. Its lines:

    compile        it compiled, and the compile time
    sharding       shape, dtype and place of the outputs of the compiled program; types while tracing
    communication  the same contract as for programs that run (`meshmark.judge.communication`)
    memory         the memory that one device needs, and the memory that it has
    host           no transfer between host and device inside the program
    export         exported on this machine's CPU for another platform, read back, the same program
    execute        not_run: nothing can run there
    numbers (or gradient), replicas    by interpretation of the text (`meshmark.judge.interpreted`), and marked so

An exception gives a line `execute` with verdict error, as for programs that run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from meshmark.core import interrupts, layout
from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_reader import read_module
from meshmark.core.hlo_types import flat
from meshmark.core.verdicts import Line
from meshmark.devices import containment, topologies
from meshmark.devices.chips import CHIPS
from meshmark.devices.topologies import Topology
from meshmark.judge import interpreted
from meshmark.judge.checks import clear_sometimes, line_of_exception
from meshmark.judge.communication import SPELLED, communication
from meshmark.judge.placement import typed
from meshmark.judge.programs import Program, sharding
from meshmark.operations.base import Argument, Result
from meshmark.operations.cases import Case


def counters(case: Case, devices: Sequence[Any]) -> dict[str, Any]:
    """The compiled figures of a case on these devices (compile-only or real), without any verdict.

    The keys of the communication line (collectives, wire_bytes, flops, bytes_accessed, temp_bytes, excess_bytes
    if manual mode specifies its collectives), of the memory line (argument_bytes, output_bytes, alias_bytes,
    memory_bytes, all of one device) and compile_s, the seconds that lowering and compiling took. Raises what
    JAX raises.
    """
    start = time.perf_counter()
    compiled = Program(case, tuple(devices)).compile()
    seconds = time.perf_counter() - start
    return communication(case, compiled).data | needs(compiled) | {"compile_s": seconds}


@dataclass
class CompileOnly:
    """Judges cases on one topology, in one layout of its devices."""

    topology: Topology
    layout: str = "plain"
    counters: Mapping[str, str] = field(default_factory=dict)
    """The committed counters of this release, compiler and topology by case id (see meshmark.levels.counters)."""
    exports: tuple[str, ...] = ()
    """Platforms for which each case is exported too: tpu, cuda."""
    seed: int = 0
    """The seed of the inputs with which compiled programs are interpreted."""
    earlier: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Where there are no counters of this release: an older release and its counters by case id."""
    _judged_cases: int = 0

    def run(self, case: Case) -> list[Line]:
        """All check lines of a case. Whatever the case raises becomes a line and is not raised."""
        lines: list[Line] = []
        self._judged_cases += 1
        clear_sometimes(self._judged_cases)
        try:
            lines.extend(self._lines(case))
        except BaseException as error:
            if interrupts.from_outside(error):
                raise
            lines.append(line_of_exception(case, error))
        return lines

    def _lines(self, case: Case) -> Iterator[Line]:
        devices = topologies.devices(self.topology, self.layout, case.mesh.shape)
        program = Program(case, devices)
        start = time.perf_counter()
        lowered = program.lower()
        with program.context():
            compiled = lowered.compile()
        yield Line("compile", data={"compile_s": round(time.perf_counter() - start, 6)})
        places = [devices[i] for i in case.mesh.ordinals.flat]
        yield check_promises(case, places, program.results, lowered, compiled, program.traced_types)
        found = communication(
            case,
            compiled,
            self.counters.get(case.id),
            self.earlier.get(case.id),
            containment.words_so_far(),
        )
        yield (
            across_slices(case, self.topology, found, compiled.as_text())
            if self.topology.slices > 1
            else found
        )
        yield memory(self.topology, compiled)
        yield host(case, compiled.as_text())
        for name in self.exports if case.mode != "pmap" else ():  # jax.export takes only jitted functions
            yield exported(program, name)
        yield Line("execute", "not_run", f"compiled for {self.topology}, where nothing can run")
        yield from interpreted.judge_lines(program, compiled, self.topology, self.seed)


def check_promises(
    case: Case,
    places: Sequence[Any],
    results: Sequence[Argument | Result],
    lowered: Any,
    compiled: Any,
    traced: Sequence[Any],
) -> Line:
    """The sharding line: shapes, dtypes and shardings that the compiled program promises for its outputs, and in
    explicit mode the types seen while tracing; `places` are the devices by flat mesh position."""
    shapes, shardings = jax.tree.leaves(lowered.out_info), jax.tree.leaves(compiled.output_shardings)
    if not len(shapes) == len(shardings) == len(results):
        return Line("sharding", "fail", f"{len(shapes)} results instead of {len(results)}")
    wrong = [
        _misplaced(case, places, result, shape, sharding)
        for result, shape, sharding in zip(results, shapes, shardings, strict=True)
    ]
    wrong += [typed(case, result, seen) for result, seen in zip(results, traced, strict=False)]
    reason = next(filter(None, wrong), "")
    return Line("sharding", "fail" if reason else "pass", reason)


def _misplaced(
    case: Case, places: Sequence[Any], result: Argument | Result, shape: Any, sharding: Any
) -> str:
    """The difference between this output and the plan, in type and placement; "" if there is none."""
    if tuple(shape.shape) != tuple(result.shape) or shape.dtype.name != result.dtype:
        return f"result is {shape.dtype}{list(shape.shape)} instead of {result.dtype}{list(result.shape)}"
    seen = sharding.devices_indices_map(tuple(result.shape))
    if len(seen) != case.mesh.size:
        return f"on {len(seen)} devices instead of {case.mesh.size}"
    wanted = layout.indices(result.shape, result.spec, case.mesh.sizes)
    for place, want in zip(places, wanted, strict=True):
        index = seen.get(place)
        plain = None
        if index is not None:
            plain = tuple(slice(*i.indices(n)[:2]) for i, n in zip(index, result.shape, strict=True))
        if plain != want:
            return f"{place} would hold {_shown(plain)} instead of {_shown(want)} ({sharding})"
    return ""


def _shown(index: Sequence[slice] | None) -> str:
    return "nothing" if index is None else "[" + ", ".join(f"{i.start}:{i.stop}" for i in index) + "]"


def needs(compiled: Any) -> dict[str, int]:
    """Bytes that one device needs for a compiled program: arguments, outputs and temporaries, minus what outputs
    share with arguments."""
    found = compiled.memory_analysis()
    named = {
        "argument_bytes": found.argument_size_in_bytes,
        "output_bytes": found.output_size_in_bytes,
        "temp_bytes": found.temp_size_in_bytes,
        "alias_bytes": found.alias_size_in_bytes,
    }
    return named | {"memory_bytes": sum(named.values()) - 2 * named["alias_bytes"]}


def memory(topology: Topology, compiled: Any) -> Line:
    """The memory line: compares what one device needs with its share of the chip's memory
    (`meshmark.devices.chips`)."""
    data: dict[str, Any] = dict(needs(compiled))
    has = CHIPS[topology.chip].memory_bytes / topology.devices_per_chip
    data["capacity_bytes"] = has
    need = data["memory_bytes"]
    reason = "" if need <= has else f"needs {need} B per device, and a device of {topology} has {has:.0f} B"
    return Line("memory", "fail" if reason else "pass", reason, data)


# Export ------------------------------------------------------------------------------------------------------


def exported(program: Program, platform: str) -> Line:
    """The export line: traced and lowered for another platform on this machine, serialized, read back, and
    lowered again as a call inside jit over the same mesh; the line holds the bytes of the artifact.

    The result must describe the same arrays on the same number of devices. The call is lowered and not compiled,
    because it holds the same program, which the check `compile` judges. An exception gives this line verdict error.
    """
    from jax import export

    case, structs = program.case, program.structs()
    places = [sharding(program.mesh, result.spec) for result in program.results]
    try:
        with program.context():
            artifact = export.export(program.jitted(), platforms=[platform])(*structs)
            data = artifact.serialize(vjp_order=0)
            back = export.deserialize(data)
            again = jax.jit(back.call, out_shardings=places[0] if len(places) == 1 else tuple(places))
            lowered = again.trace(*structs).lower(lowering_platforms=(platform,))
    except (Exception, SystemExit) as error:
        line = line_of_exception(case, error)
        return Line("export", line.verdict, line.reason, line.data | {"platform": platform})
    wrong = ""
    if back.platforms != (platform,):
        wrong = f"read back for {', '.join(back.platforms)}"
    elif back.nr_devices != case.mesh.size:
        wrong = f"read back for {back.nr_devices} devices instead of {case.mesh.size}"
    elif [(tuple(a.shape), a.dtype.name) for a in back.out_avals] != [
        (tuple(r.shape), r.dtype) for r in program.results
    ]:
        wrong = f"read back with results {list(back.out_avals)}"
    elif back.mlir_module_serialized != artifact.mlir_module_serialized:
        wrong = "the program that was read back is another one"
    elif len(jax.tree.leaves(lowered.out_info)) != len(program.results):
        wrong = "the call of what was read back has other results"
    return Line(
        "export", "fail" if wrong else "pass", wrong, {"platform": platform, "export_bytes": len(data)}
    )


# Several slices ----------------------------------------------------------------------------------------------

_MEGASCALE = 'handler_name="xla_megascale_runtime"'
"""The mark of the sends and receives with which libtpu's compiler connects slices."""


def transfers(text: str) -> tuple[int, int]:
    """(number, bytes) of one device's sends to other slices, in optimized HLO text; bytes are without layout padding,
    which is unknown."""
    if _MEGASCALE not in text:
        return 0, 0
    sends = [
        instruction
        for _, instruction in read_module(text).instructions()
        if _is_to_host(instruction, "send") and _MEGASCALE in instruction.frontend
    ]
    arrays = [next(flat(send.logical_shape)) for send in sends]  # the first array is what is sent
    return len(sends), sum(array.nbytes for array in arrays)


def across_slices(case: Case, topology: Topology, line: Line, text: str) -> Line:
    """The communication line over several slices, from that of the program of one slice.

    libtpu compiles one program per slice. Data that leaves the slice goes through the host to libtpu's own runtime; the
    program shows only sends and receives. So kinds and bytes between slices are not judged (verdict not_run). Two
    things are judged: a program that must connect slices sends to another one, and a program without communication
    across slices does not.
    """
    number, nbytes = transfers(text)
    each = case.mesh.size // topology.slices

    def crosses(groups: Iterable[Sequence[int]]) -> bool:
        return any(len({member // each for member in group}) > 1 for group in groups)

    must = crosses(case.plan.connected)
    spelled = case.plan.traffic is None or crosses(group for t in case.plan.traffic for group in t.groups)
    reason, verdict = (
        "kinds and bytes between slices are inside libtpu's runtime, and can't be read",
        "not_run",
    )
    if must and not number:
        reason, verdict = "the slices are not connected: nothing is sent from one to another", "fail"
    elif number and case.mode in SPELLED and not spelled:
        reason, verdict = f"{number} sends between slices are not in the contract", "fail"
    data = {k: v for k, v in line.data.items() if k != "excess_bytes"}
    return Line("communication", verdict, reason, data | {"slice_sends": number, "slice_bytes": nbytes})


# Round trips over the host, in optimized HLO -----------------------------------------------------------------

_HOST_SPACE = re.compile(r"\bS\(5\)")
_HOST_CALL = re.compile(
    r"(?:xla_(?:ffi_)?python_\w*callback|\w*[Hh]ost[Cc]allback|HostExecute|MoveToHost|MoveToDevice)\w*"
)
_THREADS = ("execution_thread", "async_execution_thread")


def round_trips(text: str) -> list[str]:
    """The host transfers in optimized HLO text, a few words each; empty if there are none.

    These are infeed and outfeed, host send and recv, custom calls to the host, computations on the host's
    thread, and buffers in host memory (memory space 5 of XLA's layouts).
    """
    module = read_module(text)
    found: dict[str, None] = {}
    if _HOST_SPACE.search(module.attributes.get("entry_computation_layout", "")):
        found["argument or result in host memory"] = None
    for _, instruction in module.instructions():
        if _MEGASCALE in instruction.line:  # data for another slice always leaves through the host
            continue
        if instruction.opcode in ("infeed", "outfeed") or _is_to_host(instruction, "send", "recv"):
            found[instruction.opcode] = None
        if _HOST_CALL.fullmatch(instruction.target):
            found[instruction.target] = None
        if any(instruction.attributes.get(thread) == '"host"' for thread in _THREADS):
            found["computation on the host"] = None
        parts = instruction.type_text, instruction.operand_text, *instruction.attributes.values()
        if any(map(_HOST_SPACE.search, parts)):
            found["buffer in host memory"] = None
    return list(found)


def _is_to_host(instruction: Instruction, *opcodes: str) -> bool:
    """Whether an instruction has one of these opcodes, and sends to the host or receives from it."""
    return instruction.opcode in opcodes and instruction.attributes.get("is_host_transfer") == "true"


def host(case: Case, text: str) -> Line:
    """The host line: no round trip over the host inside the program, or at least one if the operation calls the
    host."""
    found = round_trips(text)
    if case.operation.calls_host(case.cell.request.variant):
        return Line("host", "pass") if found else Line("host", "fail", "the program never calls the host")
    return Line("host", "fail" if found else "pass", ", ".join(found))
