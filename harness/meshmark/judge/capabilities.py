# SPDX-License-Identifier: Apache-2.0
"""Finds the optional capabilities of the backend: the child that lists the devices judges cases of each.

The backend has a capability unless the error of every tried case says that it is not implemented
(`meshmark.judge.checks.line_of_exception`). The run itself judges wrong numbers and errors of other kinds.
The child ends after its probes. If a probe crashes the child or hangs, that is its answer, and another child goes on
with the next capability.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshmark.core.privacy import redact
from meshmark.core.text import printable
from meshmark.core.verdicts import worst
from meshmark.devices import containment, environment, probe
from meshmark.devices.facts import Facts
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection, SelectionError

CHILD = (sys.executable, "-m", "meshmark.judge.capabilities")
"""The command of the child process. The question follows it."""

HAS = "has"
LACKS = "lacks"
DEADLINE = 60.0
"""The seconds that the probe of one capability may take."""

ORDER = ("manual", "host", "explicit", "auto")
"""The modes in the order in which they are tried. Manual mode is first, because it spells a capability itself."""


def probe_facts(selection: Selection, wanted: Sequence[str], timeout: float = containment.START) -> Facts:
    """The facts of the devices, with an answer for each wanted capability that matters: the selection demands it, or
    one of its cases would join the selection. An answer is "has", "lacks: REASON", "crash: HOW" or "hang: HOW". Raises
    NoBackend as `meshmark.devices.probe.probe` does.
    """
    if not wanted:
        return probe.probe()
    question = {"selection": selection.described(), "wanted": list(wanted)}
    found: Facts | None = None
    answers: dict[str, str] = {}
    while found is None or question["wanted"]:
        ended, said, last = _ask(question, timeout + DEADLINE * len(wanted))
        if found is None:
            found = probe.facts_said([line["facts"] for line in said if "facts" in line], last)
        begun = [line["begins"] for line in said if "begins" in line]
        answers |= {name: text for line in said for name, text in line.get("answers", {}).items()}
        left = [name for name in question["wanted"] if name not in begun]
        if any("done" in line for line in said):
            left = []
        elif begun and begun[-1] not in answers:
            answers[begun[-1]] = ended
        else:  # it ended between two probes: another child would end there too
            answers |= dict.fromkeys(left, ended)
            left = []
        question["wanted"] = left
    return replace(found, capabilities=answers)


def present(found: Mapping[str, str]) -> tuple[str, ...]:
    """The capabilities that the backend has, from the answers."""
    return tuple(name for name, answer in found.items() if answer == HAS)


def _ask(question: Mapping[str, Any], timeout: float) -> tuple[str, list[dict[str, Any]], str]:
    """Run one child: (how it ended, its messages, its last line of standard error). Its output goes to files, so that
    processes that it leaves behind cannot block the answer."""
    command = [*CHILD, json.dumps(question)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, env=environment.of_child())
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            child.kill()
            child.wait()
        out.seek(0)
        err.seek(0)
        said = [
            json.loads(line.removeprefix(probe.MARK))
            for line in out.read().decode(errors="replace").splitlines()
            if line.startswith(probe.MARK) and line.endswith("}")
        ]
        raw = err.read().decode(errors="replace")
    last = (raw.strip().splitlines() or [f"exit code {code}"])[-1]
    if code is None:
        return f"hang: past {timeout:.0f} s", said, last
    known = code < 0 and -code in list(signal.Signals)
    how = signal.Signals(-code).name if known else f"exit code {code}"
    line = containment.line_of_death(how, raw)
    return f"{line.verdict}: {line.reason}", said, last


def candidates(selection: Selection, num_devices: int) -> dict[str, list[Case]]:
    """By capability, the cases that would join the selection, in the order of their modes in ORDER."""
    found: dict[str, list[Case]] = {}
    for cell, mode in cases.optional(selection, num_devices):
        for name in cell.capabilities:
            found.setdefault(name, []).append(cell.case(mode))
    for chosen in found.values():
        chosen.sort(key=lambda case: ORDER.index(case.mode) if case.mode in ORDER else len(ORDER))
    return found


def answer(judge: Any, chosen: Sequence[Case]) -> str:
    """Whether the backend has the capability of these cases: "has", or "lacks" and the last reason."""
    reason, tried = "", set[str]()
    for case in chosen:
        if case.operation.name in tried:
            continue
        tried.add(case.operation.name)
        lines = judge.run(case)
        if worst(line.verdict for line in lines) != "unsupported":
            return HAS
        reason = next(line.reason for line in lines if line.verdict == "unsupported")
    return f"{LACKS}: {printable(redact(reason))[:300]}"


def main(arguments: Sequence[str]) -> None:
    """The child: print the facts of the devices, and an answer for each wanted capability."""
    question = json.loads(arguments[0])
    found = probe.facts()
    _say(facts=found.to_json())
    given: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in question["selection"].items()
    }
    wanted = tuple(question["wanted"])
    try:
        asked = replace(Selection(**given).checked(found.num_devices), present=wanted)
        few = Selection("standard", present=wanted, covering=False)
        joining, tried = (candidates(s, found.num_devices) for s in (asked, few))
    except SelectionError:  # the run itself says what is wrong with it
        _say(done=True)
        return
    import jax

    from meshmark.judge.checks import Judge

    jax.config.update("jax_enable_compilation_cache", False)  # a cache on disk may hold something else
    judge = Judge(tuple(jax.devices()))
    for name in wanted:
        if name not in joining and (name not in asked.capabilities or name not in tried):
            continue
        _say(begins=name)
        faulthandler.dump_traceback_later(DEADLINE, exit=True)
        _say(answers={name: answer(judge, tried[name])})
        faulthandler.cancel_dump_traceback_later()
    _say(done=True)


def _say(**message: Any) -> None:
    print(probe.MARK + json.dumps(message), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
