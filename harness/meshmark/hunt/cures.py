# SPDX-License-Identifier: Apache-2.0
"""Finds what makes a difference go away: one change of the program, of its mode, or of the compiler.

Two findings with different operations and the same cures may have one cause. For a user a cure is a workaround.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from meshmark.hunt.blame import PASSES
from meshmark.hunt.differences import DifferenceData
from meshmark.hunt.rules import drop_axis
from meshmark.hunt.workers import Judging
from meshmark.program_data.program import Node, Program, Transform, prune, to_json


@dataclass(frozen=True)
class Change:
    """One change: a sentence, the changed program, and the changed job and mode, if any."""

    said: str
    program: Program
    job: Mapping[str, Any] = field(default_factory=dict)
    mode: str = ""


def list_changes(
    program: Program, mode: str, kind: str, others: Sequence[str] = ("explicit", "eager")
) -> Iterator[Change]:
    """The changes that a program in a mode can have, the simplest for a user first.

    kind: the kind of its difference. Explicit axes may refuse a program by rule, so they say nothing of a refusal.
    others: the modes to try instead of auto."""
    for other in [m for m in others if mode == "auto" and (m, kind) != ("explicit", "refused")]:
        said = "axes of type Explicit" if other == "explicit" else "operation by operation, without jit"
        yield Change(said, program, mode=other)
    if any(node.op == "shard_map" and node.kwargs.get("check_vma", True) for node in program.nodes):
        yield Change("`check_vma=False`", replace(program, nodes=tuple(map(_unchecked, program.nodes))))
    if any(spec is not None for spec in program.out_specs):
        yield Change(
            "results whose sharding is left to the compiler",
            replace(program, out_specs=(None,) * len(program.out_specs)),
        )
    if any(any(item.spec) for item in program.inputs):
        whole = tuple(replace(i, spec=((),) * len(i.shape)) for i in program.inputs)
        yield Change("inputs that are whole on every device", replace(program, inputs=whole))
    for k, (name, _) in enumerate(program.axes if len(program.axes) > 1 else ()):
        yield Change(f"a mesh without the axis {name!r}", drop_axis(program, k))
    if program.transform.kind:
        plain = replace(program, inputs=program.inputs[: program.given], transform=Transform())
        yield Change("no derivative", prune(plain))
    yield Change('`jax.config.update("jax_use_shardy_partitioner", False)`', program, {"shardy": False})
    for name in PASSES:
        yield Change(f"XLA without its pass {name}", program, {"without": name})


def _unchecked(node: Node) -> Node:
    return replace(node, kwargs=node.kwargs | {"check_vma": False}) if node.op == "shard_map" else node


def find_cures(
    slot: Judging,
    program: Program,
    difference: DifferenceData,
    light: bool = False,
    others: Sequence[str] = ("explicit", "eager"),
) -> list[str]:
    """The changes of `list_changes` with which a program is right, as sentences without a full stop.

    A change with which it can't be judged is none. [] if the program is right without a change too, as one may be that
    was wrong once. difference: as `differences.Difference.to_json` gives it, with its mode. light: compile with
    `oracles.LIGHT`, as where the difference was seen."""
    mode, kind = difference["mode"], difference["kind"]

    def is_right(change: Change) -> bool:
        job = {"program": to_json(change.program), **({"light": True} if light else {}), **change.job}
        answer = slot.judge(job, (change.mode or mode,))
        return not (answer.differences or answer.invalid or answer.not_run)

    if is_right(Change("no change", program)):
        return []
    return [change.said for change in list_changes(program, mode, kind, others) if is_right(change)]
