# SPDX-License-Identifier: Apache-2.0
"""Writes a finding as a script and as the text of a bug report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meshmark.hunt.another_release import read_result
from meshmark.hunt.differences import DifferenceData
from meshmark.hunt.findings import Finding, read_script, write_finding
from meshmark.hunt.oracles import ALONE, HOST, RELEASE
from meshmark.hunt.scripts import write_script
from meshmark.hunt.workers import Answer, Slot
from meshmark.program_data.program import Program, ProgramData, from_json

KINDS = {
    "numbers": "silent",
    "oracles": "silent",
    "crash": "crash",
    "hang": "crash",
    "internal": "internal",
    "refused": "refused",
}
"""The severity of each kind of difference."""

OUTCOMES = {kind: "wrong" if severity == "silent" else kind for kind, severity in KINDS.items()}
"""The outcome of a replay for each kind of difference, as in the lists of releases."""

SEVERITY = {
    "silent": "The result is wrong, and nothing says so.",
    "crash": "The process ends: no exception can be caught, and the work of the process is lost.",
    "internal": "The compiler raises an internal error for a right program.",
    "refused": "A right program is refused.",
}
"""The sentence for each severity."""


def outcome_of(answer: Answer) -> str:
    """The outcome of a replay in one mode: one of OUTCOMES, right, inexpressible, or "not judged: REASON"."""
    if answer.differences:
        return OUTCOMES[answer.differences[-1]["kind"]]
    if answer.not_run:
        return f"not judged: {answer.not_run[0]}"
    return "inexpressible" if answer.invalid else "right"


def refresh(finding: Finding, store: Path) -> None:
    """Write a finding again, with a new script and report."""
    script = script_of(finding)
    write_finding(finding, script, report_of(finding, script), store)


def read_or_write_script(finding: Finding, name: str, store: Path) -> str:
    """The script in a finding's directory, named as for `findings.find_finding`; a new one if the store is one file."""
    return script_of(finding) if store.is_file() and not Path(name).exists() else read_script(name, store)


def name_of(key: str) -> str:
    """A name for a new group: its key in lower-case letters, digits and hyphens, at most 60 characters."""
    return re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")[:60].strip("-")


def finding_of(
    key: str, data: ProgramData, difference: DifferenceData, slot: Slot, found: dict[str, Any]
) -> Finding:
    """A finding of a shrunk program. Its title is its key until somebody writes a better one."""
    program = from_json(data)
    severity = KINDS[difference["kind"]]
    return Finding(
        name_of(key),
        key,
        severity,
        [key],
        data,
        difference["mode"],
        slot.truth(program, difference["mode"]) if severity == "silent" else [],
        difference["text"],
        difference["what"],
        topology=slot.settings.topology,
        found=found,
    )


def script_of(finding: Finding) -> str:
    """The script of a finding."""
    program = finding.data()
    heading = [finding.title]
    if finding.topology:
        heading.append(
            f"Seen in the program compiled for {finding.topology}, by interpretation; run it there."
        )
    elif finding.mode == ALONE:
        heading.append("One CPU device is wrong, each operation alone is right: JAX_PLATFORMS=cpu shows it.")
    elif finding.mode == HOST:
        heading.append(f"One {_backend(finding)} device is wrong, a CPU is right: run it there.")
    elif finding.mode == RELEASE:
        heading.append("One device gives other numbers under another release of JAX: run it under both.")
    return write_script(
        program,
        finding.mode,
        heading,
        arrays(program, finding.expected),
        numbers=finding.severity == "silent",
    )


def arrays(program: Program, expected: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
    """The expected results as arrays. If there are none, because the program can't be run, one zero per result."""
    if not expected:
        return [np.zeros((), np.float32) for _ in range(_results(program))]
    return [read_result(e) for e in expected]


def _results(program: Program) -> int:
    kind, wrt, outputs = program.transform.kind, program.transform.wrt, program.outputs
    return {"": len(outputs), "vjp": len(wrt), "jvp": 2 * len(outputs)}[kind]


def report_of(finding: Finding, text: str) -> str:
    """The text of a report, in Markdown; `text` is the script."""
    lines = [f"# {finding.title}", "", finding.sentence or SEVERITY[finding.severity], ""]
    lines += ["## Script", "", "```python", text.rstrip("\n"), "```", ""]
    on = "CPU" if finding.mode == ALONE else _backend(finding)
    where = f"compiled for {finding.topology} and interpreted" if finding.topology else on
    lines += [f"Exit code 0 means that all is right. Seen on JAX {_seen_on(finding) or '?'}, {where}:", ""]
    lines += ["    " + line for line in finding.seen.splitlines()[:6]]
    if finding.releases:
        lines += ["", "## Releases", "", "| JAX | outcome |", "|---|---|"]
        lines += [f"| {version} | {outcome} |" for version, outcome in finding.releases.items()]
    if finding.elsewhere:
        lines += ["", "## Elsewhere", "", "| where | outcome |", "|---|---|"]
        lines += [f"| {where} | {outcome} |" for where, outcome in finding.elsewhere.items()]
    if finding.compiled:
        lines += ["", "## In the compiled text", "", finding.compiled]
    if finding.workarounds:
        lines += ["", "## What makes it go away", "", *(f"- {w}" for w in finding.workarounds)]
    lines += ["", "## Reported before", "", finding.reported or "not searched yet", ""]
    return "\n".join(lines)


def _backend(finding: Finding) -> str:
    """The backend that a finding was seen on."""
    return str(finding.found.get("backend", "CPU"))


def _seen_on(finding: Finding) -> str:
    return str(finding.found.get("jax", ""))
