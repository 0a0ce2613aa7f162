# SPDX-License-Identifier: Apache-2.0
"""Reads the collectives that the compiler inserted: how many, over which groups, with how many bytes.

The input is optimized HLO text (`compiled.as_text()`), the only public account of compiled communication, as JAX
0.10 to 0.12 print it for CPU, TPU and GPU. Numbers in groups and pairs (`meshmark.core.groups`) are positions in the
flattened array of the mesh's devices, not device ids.

`send`, `recv` and custom calls that communicate are not read. A branch of a conditional counts as if it ran.
"""

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from meshmark.core import groups
from meshmark.core.groups import Groups, integers

Instruction = re.Match[str]  # of _INSTRUCTION: name, type, opcode, the rest of the line


@dataclass(frozen=True)
class Collective:
    """One collective of a compiled program, as one device sees it."""

    kind: str  # HLO opcode, without "-start"
    nbytes: int  # payload S of one device: reduced, gathered (output), scattered (input), exchanged or sent
    dtype: str  # HLO element type of S; the first one if a tuple mixes types
    groups: Groups  # replica groups, in order; () for collective-permute
    pairs: tuple[tuple[int, int], ...]  # source and target, for collective-permute
    trips: int | None = 1  # how often it runs in one execution; None if an enclosing loop's count is unknown
    dimensions: tuple[int, ...] = ()  # as printed: the gathered, scattered or exchanged dimension
    reduction: str = ""  # root opcode of the reducing computation: "add", "maximum", ...
    asynchronous: bool = False  # split into a start and a done
    name: str = field(default="", compare=False)  # of its instruction: the first one, if it is split
    computation: str = field(default="", compare=False)  # where that instruction stands
    inserted: bool = field(default=False, compare=False)  # the text says that the partitioner put it there


def wire_bytes(c: Collective) -> float:
    """Bytes that one device sends: f * S * trips, with f from NVIDIA's nccl-tests, doc/PERFORMANCE.md.

    An unknown trip count is taken as 1. If groups differ in size, the largest counts. ragged-all-to-all
    counts as if it filled its output.
    """
    n = max(map(len, c.groups), default=1)
    if c.kind == "collective-permute":
        factor = float(any(source != target for source, target in c.pairs))
    elif c.kind == "collective-broadcast":
        factor = float(n > 1)
    else:
        factor = (2 if c.kind == "all-reduce" else 1) * (n - 1) / n
    return factor * c.nbytes * (1 if c.trips is None else c.trips)


def collectives(text: str, num_partitions: int | None = None) -> tuple[Collective, ...]:
    """The collectives in HLO text, in the order of the text; each asynchronous one appears once.

    `num_partitions` is what an empty `replica_groups={}` spans; by default the module's header gives it.
    Raises ValueError for an unknown element type or an unknown form of groups: a wrong count would be worse than none.
    """
    if not ("all-" in text or "reduce-scatter" in text or "collective-" in text):
        return ()
    module = parse_hlo(text)
    found: list[Collective] = []
    chains: set[tuple[str, ...]] = set()
    for computation, instruction in module.collectives:
        name, shape, opcode, rest = instruction.groups()
        rest = _FREE_TEXT.split(rest, maxsplit=1)[0]
        kind, start = opcode.removesuffix("-start"), opcode.endswith("-start")
        chain = _CHAIN.findall(rest)
        if chain:
            # A TPU continuation fusion prints its collective in the start, in every step and in the done.
            key = (kind, *chain, *_CHANNEL.findall(rest))
            if key in chains:
                continue
            chains.add(key)
        permute = kind == "collective-permute"
        members = () if permute else groups.groups(rest, num_partitions or module.num_devices)
        dtype, nbytes = payload(_result_of_start(shape, kind) if start else shape)
        if kind == "reduce-scatter":
            nbytes *= len(members[0])  # the text gives its output; S is its input
        elif kind == "all-reduce" and computation.startswith("all-reduce-scatter"):
            kind = "reduce-scatter"  # a TPU fusion that does this with all-reduce and dynamic-slice
        trips, in_async = module.runs(computation)
        dimensions = _DIMENSIONS.search(rest)
        applied = _TO_APPLY.search(rest)
        found.append(
            Collective(
                kind=kind,
                nbytes=nbytes,
                dtype=dtype,
                groups=members,
                pairs=groups.pairs(rest) if permute else (),
                trips=trips,
                dimensions=integers(dimensions[1]) if dimensions else (),
                reduction=module.root(applied[1]) if applied else "",
                asynchronous=start or in_async or bool(chain),
                name=name,
                computation=computation,
                inserted=GENERATED in rest or (bool(chain or in_async) and module.generated(computation)),
            )
        )
    return tuple(found)


# Text -------------------------------------------------------------------------------------------------------

_REDUCING = ("all-reduce", "reduce-scatter")
_MOVING = ("all-gather", "all-to-all", "ragged-all-to-all", "collective-permute", "collective-broadcast")
_OPCODES = frozenset(kind + suffix for kind in _REDUCING + _MOVING for suffix in ("", "-start"))

# name = type opcode(rest. Within a type, ")" is never followed by a space, a word and "(".
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?(\S+) = (\(.*?\)|\S+) ([\w-]+)\((.*)")
_COMPUTATION = re.compile(r"(?:ENTRY )?%?([^\s(]+)")
_DEVICES = re.compile(r"\b(?:num_partitions|replica_count)=(\d+)")
_FREE_TEXT = re.compile(r", (?:metadata|backend_config)=")  # last in the line, with names that the user chose
CALL = re.compile(
    r", (body|condition|calls|to_apply|(?:true|false)_computation|(?:branch|called)_computations)"
    r"=(\{[^}]*\}|%[\w.-]+)"
)
NAME = re.compile(r"%([\w.-]+)")
_TRIP_COUNT = re.compile(r"known_trip_count\W+n\W+(\d+)")
_TO_APPLY = re.compile(r", to_apply=%?([\w.-]+)")
_DIMENSIONS = re.compile(r", dimensions=\{([\d,]*)\}")
_CHANNEL = re.compile(r"channel_id=(\d+)")
_CHAIN = re.compile(r'chain_id="([^"]*)"')
GENERATED = 'is_spmd_generated="true"'
"""The frontend attribute of what the partitioner put into a program, where the compiler keeps it (TPU)."""


class Module:
    """The HLO text by computation, with the callers of each."""

    def __init__(self, text: str) -> None:
        self.lines: dict[str, list[str]] = {}  # of each computation
        self.collectives: list[tuple[str, Instruction]] = []  # computation, instruction
        self.entry = self.header = name = ""
        lines: list[str] = []
        for line in text.split("\n"):
            if line.endswith("{") and not line.startswith(" ") and (computation := _COMPUTATION.match(line)):
                name = computation[1]
                lines = self.lines[name] = []
                if line.startswith("ENTRY"):
                    self.entry = name
            elif line.startswith("HloModule"):
                self.header = line
            else:
                lines.append(line)
                # Searching for a plain string is several times faster than matching every line.
                maybe = "all-" in line or "reduce-scatter" in line or "collective-" in line
                if maybe and (match := _INSTRUCTION.match(line)) and match[3] in _OPCODES:
                    self.collectives.append((name, match))

    @property
    def num_devices(self) -> int:
        """The number of devices of the program, from the module's header."""
        return math.prod(map(int, _DEVICES.findall(self.header)))

    def root(self, name: str) -> str:
        """The opcode of a computation's root; "" if it has none."""
        root = self.instructions(name).get("ROOT")
        return root[3] if root else ""

    def generated(self, name: str) -> bool:
        """Whether the partitioner inserted the collective that a computation wraps. An instruction that calls the
        computation, or another computation of the same chain, carries the partitioner's mark."""
        chains = {chain for line in self.lines[name] for chain in _CHAIN.findall(line)}
        same = {
            other
            for other, lines in self.lines.items()
            if other == name or any(chains.intersection(_CHAIN.findall(line)) for line in lines)
        }
        return any(
            GENERATED in line and same.intersection(NAME.findall(names))
            for lines in self.lines.values()
            for line in lines
            for _, names in CALL.findall(line)
        )

    def runs(self, name: str) -> tuple[int | None, bool]:
        """How often a computation runs in one execution (None: unknown), and whether an async-start calls it."""
        if name == self.entry or name not in self.callers:
            return 1, False
        trips: int | None = 0
        for caller, times, _ in self.callers[name]:
            outer, _ = self.runs(caller)
            trips = None if trips is None or outer is None or times is None else trips + outer * times
        return trips, any(asynchronous for *_, asynchronous in self.callers[name])

    @functools.cached_property
    def callers(self) -> dict[str, list[tuple[str, int | None, bool]]]:
        """Callers by computation: caller, calls per run of the caller, whether by async-start."""
        callers: dict[str, list[tuple[str, int | None, bool]]] = {}
        for caller, lines in self.lines.items():
            for line in lines:
                calls = "=%" in line or "={%" in line
                if not calls or not (instruction := _INSTRUCTION.match(line)):
                    continue
                opcode = instruction[3]
                if opcode in ("async-update", "async-done"):  # these repeat what their async-start calls
                    continue
                count = self.turns(caller, instruction) if opcode == "while" else 1
                for attribute, called in CALL.findall(instruction[4]):
                    # A loop tests its condition one more time than it runs its body.
                    times = count + 1 if attribute == "condition" and count is not None else count
                    for name in NAME.findall(called):
                        callers.setdefault(name, []).append((caller, times, opcode == "async-start"))
        return callers

    def turns(self, caller: str, loop: Instruction) -> int | None:
        """How often a while loop runs its body: from the compiler's note, otherwise from its constants.

        TPU compilers leave no note, but keep a counted loop as i = start; while i < stop: i += step.
        """
        if noted := _TRIP_COUNT.search(loop[4]):
            return int(noted[1])
        called = dict(CALL.findall(loop[4]))
        try:
            condition = self.instructions(called["condition"][1:])
            body = self.instructions(called["body"][1:])
            before = self.instructions(caller)
            test = condition["ROOT"]
            if test[3] != "compare" or "direction=LT" not in test[4]:
                return None
            i, stop = operands(test)
            index = _tuple_index(condition, i)
            start = operands(before[operands(loop)[0]])[index]
            i, step = operands(_source(body, operands(body["ROOT"])[index], "add"))
            if _tuple_index(body, i) != index:
                return None
            distance, stride = _constant(condition, stop) - _constant(before, start), _constant(body, step)
            return max(0, math.ceil(distance / stride)) if stride > 0 else None
        except (LookupError, ValueError):
            return None  # another form of loop

    def instructions(self, name: str) -> dict[str, Instruction]:
        """The instructions of a computation by name; the root is also under "ROOT"."""
        instructions: dict[str, Instruction] = {}
        for line in self.lines.get(name, ()):
            if match := _INSTRUCTION.match(line):
                instructions[match[1]] = match
                if line.lstrip().startswith("ROOT "):
                    instructions["ROOT"] = match
        return instructions


@functools.lru_cache(maxsize=1)
def parse_hlo(text: str) -> Module:
    """The module of a text. The last one is kept: the checks of a program all read the same text."""
    return Module(text)


def operands(instruction: Instruction) -> list[str]:
    """The names of its operands."""
    return NAME.findall(instruction[4].partition(")")[0])


def _source(instructions: Mapping[str, Instruction], name: str, opcode: str) -> Instruction:
    """The instruction `name`, or the one that it copies; its opcode must be `opcode`."""
    instruction = instructions[name]
    while instruction[3] in ("copy", "copy-start", "copy-done"):
        instruction = instructions[operands(instruction)[0]]
    if instruction[3] != opcode:
        raise LookupError(name)
    return instruction


def _tuple_index(instructions: Mapping[str, Instruction], name: str) -> int:
    """Which element of the computation's parameter `name` is."""
    element = _source(instructions, name, "get-tuple-element")
    _source(instructions, operands(element)[0], "parameter")
    return int(element[4].partition(", index=")[2].partition(",")[0])


def _constant(instructions: Mapping[str, Instruction], name: str) -> int:
    return int(_source(instructions, name, "constant")[4].partition(")")[0])


# Bytes ------------------------------------------------------------------------------------------------------

_BITS = {"pred": 8, "bf16": 16, "c64": 64, "c128": 128}
_BITS |= {f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)}
_BITS |= {f"f{bits}": bits for bits in (16, 32, 64)} | {"f4e2m1fn": 4}
_BITS |= {
    f"f8e{kind}": 8 for kind in ("3m4", "4m3", "4m3b11fnuz", "4m3fn", "4m3fnuz", "5m2", "5m2fnuz", "8m0fnu")
}

_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")  # without its layout; <= marks a bounded dynamic dimension


def bits(dtype: str) -> int:
    """The bits of an element type of HLO, such as bf16; ValueError for one that is unknown."""
    if dtype not in _BITS:
        raise ValueError(f"unknown HLO element type {dtype!r}")
    return _BITS[dtype]


def shapes(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """(element type, dimensions) of the array, or of each array of the tuple, that an HLO type names."""
    return [(dtype, integers(dims.replace("<=", ""))) for dtype, dims in _ARRAY.findall(text)]


@functools.lru_cache(maxsize=4096)
def payload(shape: str) -> tuple[str, int]:
    """First element type and bytes, without padding, of an array or tuple type of HLO."""
    arrays = _ARRAY.findall(shape)
    if not arrays:
        raise ValueError(f"no array in the HLO type {shape!r}")
    nbytes = 0
    for dtype, dims in arrays:
        if dtype not in _BITS:
            raise ValueError(f"unknown HLO element type {dtype!r} in {shape!r}")
        nbytes += -(-_BITS[dtype] * math.prod(integers(dims.replace("<=", ""))) // 8)
    return arrays[0][0], nbytes


def _result_of_start(shape: str, kind: str) -> str:
    """The part of an asynchronous start's type that is the collective's result.

    The type is (operands, result, contexts...), except that all-reduce-start may have the type of its result alone.
    Operands are a nested tuple if XLA wraps the collective generically, or if there are several.
    """
    if kind == "all-reduce" and not shape.startswith("(("):
        return shape
    depth, part, parts = 0, "", []
    for character in shape[1:-1]:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append(part)
            part = ""
        else:
            part += character
    return (*parts, part)[1]
