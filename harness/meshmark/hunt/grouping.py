# SPDX-License-Identifier: Apache-2.0
"""Groups findings by root cause: one smaller program, one check of the compiler or one message explains all findings of
a group."""

from __future__ import annotations

import re
from typing import Any

from meshmark.hunt.differences import DifferenceData
from meshmark.hunt.oracles import DEVICE_IS_WRONG
from meshmark.program_data.building import find_types
from meshmark.program_data.program import Node, Program, list_references

NUMBERS = ("numbers", "oracles")
"""The kinds of difference whose message does not name the place of the fault: numbers that differ from the unsharded
program's, or whose unsharded program differs from another oracle."""

TRAITS = {
    "window_strides": "strided",
    "base_dilation": "dilated",
    "lhs_dilation": "dilated",
    "rhs_dilation": "dilated kernel",
    "window_dilation": "dilated kernel",
    "feature_group_count": "groups",
    "batch_group_count": "batch groups",
    "reverse": "reverse",
}
"""Options that distinguish programs of one operation, unless they have their neutral values."""


VERIFIED = re.compile(
    r"Expected instruction to have shape equal to [^\n]*\n%[\w.-]+ = \S+ ([a-z-]+)\((?:%([a-z-]+))?"
)
"""The verifier's message about an instruction. Groups: its operation, and the name of its first operand."""


def make_key(program: Program, difference: DifferenceData) -> str:
    """The key of a shrunk finding's group: a text that is equal for findings of one root cause. Files record it.

    difference: as `differences.Difference.to_json` gives it, here and below.
    For wrong numbers it is the kind of wrongness, if that identifies the cause; else the operations with their
    distinguishing options, and the transform. For other findings it is the check or the message without its numbers,
    which names the place in the compiler.
    """
    if difference["kind"] not in NUMBERS:
        return locate(program, difference)
    if named := find_cause(program, difference):
        return named
    if is_of_device(difference):
        wrongness = difference.get("data", {}).get("wrongness") or "values"
        return f"oracles on {difference['what']}: {_describe_with_dtypes(program)}: {wrongness}"
    parts = [_described(program, n) for n in program.nodes if n.op not in ("item", "constrain")]
    transform = f" {program.transform.kind}" if program.transform.kind else ""
    return f"{difference['kind']}: {' '.join(sorted(set(parts))) or 'reshard'}{transform}"


def is_of_device(difference: DifferenceData) -> bool:
    """Whether the unsharded program is wrong on an accelerator, where a CPU is right. Its cause lies in that backend,
    so a pass of XLA that has a part in it doesn't make it a finding of the CPU."""
    return DEVICE_IS_WRONG in str(difference.get("text", ""))


def _describe_with_dtypes(program: Program) -> str:
    """The operations, each with the dtypes that it reads: a backend has kernels of its own for some dtypes."""
    types = find_types(program)
    found = set()
    for node in program.nodes:
        if node.op in ("item", "constrain"):
            continue
        dtypes = sorted({t.dtype.name for t in (types[v] for v in node.reads()) if hasattr(t, "dtype")})
        found.add(_described(program, node) + (f" of {' and '.join(dtypes)}" if dtypes else ""))
    return ", ".join(sorted(found))


def _described(program: Program, node: Node) -> str:
    """An operation with its distinguishing options and the operations of its bodies."""
    traits = {TRAITS[k] for k, v in node.kwargs.items() if k in TRAITS and _moves(v)}
    if _relaid(node.kwargs.get("dimension_numbers")):
        traits.add("relaid")
    if "groups" in traits and _several(program, node):
        traits = traits - {"groups"} | {"groups of several"}
    name = _spelled(node) + (f"[{', '.join(sorted(traits))}]" if traits else "")
    inner = "+".join(n.op for b in node.bodies for n in b.nodes)
    return f"{name}({inner})" if inner else name


SCATTERS = re.compile(
    r"at\.\w+|jax\.ops\.segment_\w+|lax\.scatter\w*|jnp\.(?:bincount|nonzero|flatnonzero|argwhere|unique)"
)
"""The operations that XLA scatters. An update at constant places is none of them: it updates a slice."""


def make_key_of_operation(program: Program, node: Node) -> str:
    """The key of wrong numbers that first come up in this operation of a program.

    Operations that are one operation of XLA have one key: scatters, and updates of a slice. A scatter whose operands
    have dimensions that the mesh does not divide has another key than other scatters."""
    if node.op == "item":
        node = program.nodes[node.args[0]["v"] - program.given]
    if node.op.startswith("at.") and not any(True for _ in list_references((node.args[1],))):
        return "numbers: wrong in an update of a slice"
    if SCATTERS.fullmatch(node.op):
        types = find_types(program)
        shapes = [
            t.shape for t in (types[v] for v in node.reads() if v >= program.given) if hasattr(t, "shape")
        ]
        uneven = any(n % size for shape in shapes for n in shape for _, size in program.axes)
        return f"numbers: wrong in a scatter{' of uneven shards' if uneven else ''}"
    return f"numbers: wrong in {_described(program, node)}"


def _spelled(node: Node) -> str:
    """The operation of a node. A getitem of forward slices, such as x[1::3], is a lax.slice."""
    if node.op == "getitem" and all(isinstance(i, dict) and _forwards(i.get("slice")) for i in node.args[1]):
        return "lax.slice"
    return node.op


def _forwards(bounds: Any) -> bool:
    """Whether these are the bounds of a slice with a positive step."""
    return isinstance(bounds, (list, tuple)) and (bounds[2] is None or bounds[2] > 0)


EXTREMES = re.compile(r"max|min")
"""A part of the name of each operation that takes the larger or the smaller of two numbers."""

UNGROUPED = (
    *("lax.conv_general_dilated", "lax.conv_transpose", "jnp.convolve", "jnp.correlate"),
    "lax.conv_general_dilated_patches",
)
"""The convolutions that may wrongly be summed over replicas too, in the forward pass or in a derivative."""


def find_cause(program: Program, difference: DifferenceData) -> str:
    """The key of wrong numbers whose kind of wrongness identifies the cause, whatever other operations do; else ""."""
    what = str(difference.get("what", ""))
    operations = set(program.operations) - {"item", "constrain"}
    if what == "a NaN is lost" and any(EXTREMES.search(op) for op in operations):
        return "numbers: a NaN is lost in a minimum or maximum"
    factor = re.fullmatch(r"factor ([2-9]|\d\d+)", what)
    grouped = any(
        n.kwargs.get(f"{k}_group_count", 1) != 1 for n in program.nodes for k in ("feature", "batch")
    )
    if factor and not operations.isdisjoint(UNGROUPED) and not grouped:
        return "numbers: a convolution is too large by an integer factor"
    return ""


WRITES = re.compile(r"at\.\w+|lax\.(?:dynamic_update|scatter)\w*|jnp\.(?:put|insert|fill_diagonal)\w*")
"""The operations that write into an array. XLA does that in place."""


def make_key_without(program: Program, difference: DifferenceData, left_out: str) -> str:
    """The key of wrong numbers that a pass of the compiler causes. left_out: the pass without which they are right.

    A pass does many things. The kept causes write into an array in place, so a program without such an operation has
    another cause, and its key has its operations."""
    key = f"{difference['kind']}: right without {left_out}"
    if any(map(WRITES.fullmatch, program.operations)):
        return key
    return f"{key}: {' '.join(sorted({op for op in program.operations if op not in ('item', 'constrain')}))}"


def _relaid(numbers: Any) -> bool:
    """Whether the result of a convolution has another order of dimensions than the input."""
    return isinstance(numbers, (list, tuple)) and len(numbers) == 3 and numbers[0] != numbers[2]


def _several(program: Program, node: Node) -> bool:
    """Whether each group of a convolution has several input features, by the size of the kernel's dimension "I"."""
    kernel = node.args[1]
    if not isinstance(kernel, dict) or "v" not in kernel:
        return False
    numbers = node.kwargs.get("dimension_numbers")
    at = numbers[1].index("I") if numbers else 1
    return bool(find_types(program)[kernel["v"]].shape[at] > 1)


def _moves(value: Any) -> bool:
    return value not in (1, 0, None, False) and not (isinstance(value, (list, tuple)) and set(value) == {1})


def locate(program: Program, difference: DifferenceData) -> str:
    """The kind and place of a difference, as `describe_place` gives it. An exception without a message names no place:
    the operations are appended."""
    said = describe_place(difference)
    if not str(difference["what"]).rstrip().endswith("Error:"):
        return said
    return f"{said} {' '.join(sorted({op for op in program.operations if op not in ('item', 'constrain')}))}"


def describe_place(difference: DifferenceData) -> str:
    """The kind and place of a difference other than wrong numbers. The compiler's verifier has one message for all
    instructions of a wrong shape, so the operation is appended. For a copy, which may follow any operation, it is the
    name of the copied instruction."""
    said = f"{difference['kind']}: {normalize_message(difference['what'])}"
    named = VERIFIED.search(str(difference.get("text", "")))
    if not named:
        return said
    return f"{said} (copy of {named[2]})" if named[1] == "copy" and named[2] else f"{said} ({named[1]})"


def normalize_message(what: str) -> str:
    """A message without its dtypes, ranks and axes, which differ between programs, and without the spelling of XLA's
    folder, which differs between releases; at most 120 characters."""
    what = what.replace("external/xla+/", "external/xla/")
    line = re.sub(r"\b(?:f|s|u|bf|c|pred|float|int|uint|bfloat)N?\[\]", "T[]", what)
    line = re.sub(r"([\[({])N(?:,\s*N)+(?=[\])},]|$)", r"\1N", line)
    line = re.sub(r"frozenset\(\{[^}]*\}\)", "frozenset({..})", line)
    return re.sub(r"\s+", " ", line)[:120]


def make_raw_key(difference: DifferenceData, program: Program) -> str:
    """A key that similar findings share before they are shrunk. For wrong numbers it has all operations."""
    if difference["kind"] not in NUMBERS:
        return locate(program, difference)
    ops = sorted({op for op in program.operations if op not in ("item", "constrain")})
    return f"{difference['kind']}: {' '.join(ops)} {program.transform.kind}"
