# SPDX-License-Identifier: Apache-2.0
"""The catalogue of what goes wrong with several processes, each fault with its outcome, and the command that runs it.

    python -m tests.ranks.faults [--only NAME,...] [--write docs/process-faults.md]

Every fault is a real one in real processes: two ranks of one device each run three cases of psum, and the second case
(or the beginning) is struck. Of each run are checked the exit codes of all ranks, the verdicts in the records, which
must be readable, what the user reads, that no process is left, and the seconds from the fault to the end of the last
rank against a limit.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from tests.ranks import network
from tests.ranks.faults_around import AROUND
from tests.ranks.faults_between import BETWEEN
from tests.ranks.staging import CASES, DEADLINE, SLACK, START, USUAL, Fault, Seen, line_of, observed, wrong

CATALOGUE: tuple[Fault, ...] = (*BETWEEN, *AROUND)
"""Every fault: those between ranks, and those around a run."""


def _code(code: int) -> str:
    return str(code) if code >= 0 else signal.Signals(-code).name


def _shown(text: str) -> str:
    """The line without what differs from run to run."""
    text = re.sub(r"^\[\d\] ", "", text)
    text = re.sub(r"^(E +|ERROR: |! _pytest\.outcomes\.Exit: |!+ )", "", text).rstrip("! ")
    text = re.sub(r"/\S*/(records\.jsonl\S*)", r"\1", text)
    text = re.sub(r"(127\.0\.0\.1|10\.203\.0\.\d):\d+", r"\1:PORT", text)
    return text.replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the catalogue; 1 where a fault came to another end than it must."""
    parser = argparse.ArgumentParser(prog="python -m tests.ranks.faults", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT,...", help="faults whose names hold one of these")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table there")
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="so many faults at once (default 1)"
    )
    chosen = parser.parse_args(arguments)
    wanted = [text for text in chosen.only.split(",") if text]
    rows, bad = [], 0
    faults = [f for f in CATALOGUE if not wanted or any(text in f.name for text in wanted)]
    with ThreadPoolExecutor(chosen.at_once) as pool:
        for fault, outcome in zip(faults, pool.map(_outcome, faults), strict=True):
            if isinstance(outcome, str):
                bad += not outcome.startswith("skipped")
                print(outcome, flush=True)
                continue
            told = wrong(fault, outcome)
            bad += bool(told)
            line = line_of(fault, outcome)
            word = "WRONG  " if told else "ok     "
            print(f"{word} {fault.name}: {outcome.seconds:.1f} s: {line}", flush=True)
            for one in told:
                print(f"        {one}")
            for number, text in enumerate(outcome.texts if told else ()):
                print(f"        -- output {number}\n{text}", flush=True)
            rows.append(_row(fault, outcome))
    if chosen.write and not bad:
        chosen.write.write_text(page(rows), encoding="utf-8")
    print(f"{len(rows)} faults, {bad} of them came to another end than they must")
    return 1 if bad else 0


def _outcome(fault: Fault) -> Seen | str:
    """What came of a fault, or why that can't be said."""
    if without := fault.missing():
        return f"skipped {fault.name}: {without}"
    with tempfile.TemporaryDirectory(prefix="meshmark-faults-") as directory:
        try:
            return observed(fault, Path(directory))
        except TimeoutError as error:
            return f"WRONG   {fault.name}: {error}"


def _row(fault: Fault, seen: Seen) -> tuple[str, ...]:
    """Its row of the table."""
    codes = ", ".join(map(_code, seen.codes))
    verdict = seen.verdicts.get(CASES[1], "none")
    line = _shown(line_of(fault, seen)) if fault.line else "(nothing)"
    name = fault.name.replace("|", "\\|")
    return (name, verdict, codes, line, f"{seen.seconds:.1f}", f"{fault.allowed:.0f}")


def page(rows: Sequence[tuple[str, ...]]) -> str:
    """The page of the table."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "jaxlib"))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"""# What goes wrong with several processes

Made by `python -m tests.ranks.faults --write docs/process-faults.md` ({versions}, Python
{sys.version.split()[0]}, {os.cpu_count()} cores, {len(rows)} faults).

Each fault is real, in real processes. Two ranks of one virtual CPU device each run three cases of psum, with
`--deadline {DEADLINE}`; rows that speak of workers have one worker on two devices, or none. The fault strikes the
second case, or the start. The command checks every row: the exit codes of all ranks; the verdicts of all three cases
in the record files, which must be readable to the last line; the line that the user reads; no traceback; no process
left (every process carries a mark in its environment, and the command looks for it in /proc); and the seconds against a
limit.

- *Verdict*: that of the struck case over all ranks' files. None: the fault concerns no case, and the case is judged
  when the run goes on.
- *Exit codes*: those of the ranks in their order. In rows with `launch:` that of the launcher.
- *Seconds*: from the fault to the end of the last process. Where the fault is at the start: from the start (a few
  seconds of imports). Where a group is started again: with the whole of the new group.
- *Limit*: the deadline and {SLACK} s, and {START:.0f} s for each new group, times the seconds that the ranks took to
  start over {USUAL:.0f}, where they took longer.

| fault | verdict | exit codes | what the user reads | seconds | limit |
|---|---|---|---|---:|---:|
{table}

## What this says

- **Exit codes are pytest's.** 0: all is well. 1: a bad verdict, or a rank was lost. 2: interrupted. 4: the ranks did
  not come together, or may not run together. A killed rank has the code of its signal.
- **`meshmark launch` calls the roll.** It believes exit codes of 0 where every rank has joined the others, once, and
  has said itself that its run ended with 0. Python, a plugin or a shell can end a rank before the suite begins, or hide
  its code. A command that does not run the suite does not have to join. (`meshmark test`, `bench`, `hunt` and
  `pytest conformance` run it.)
- **A case that kills or hangs a rank ends the group**, because XLA cannot replace a rank. `meshmark launch` starts the
  group again, and it goes on with the next case. Elsewhere give the same command with `--resume FILE` instead of
  `--record FILE`. If all ranks died at once, the case gets one more try, because somebody may have killed them from
  outside.
- **JAX aborts every process whose rank 0 is gone.** The suite delays this abort by six seconds. In that time it writes
  the verdict and ends by itself. A rank that holds the GIL cannot do that, and ends by SIGABRT.
- **A taken port.** jaxlib 0.12.0 dies of a segmentation fault when the port of JAX's coordinator is taken. With given
  coordinates the suite looks first. Where JAX detects the coordinates it chooses the port, and the suite cannot look.
- **Each rank, and each run without workers, is a child of a process that watches it.** A process that is stopped,
  or that has cancelled its own watchdog, is ended from outside some seconds past its deadline. A rank that leaves
  with exit code 0 in a case does not end with 0.
- **Attacks.** Whoever does not prove that it is of this run is turned away. Silent connections hinder nobody.
- **A full disk** is a small tmpfs in a mount namespace; the other user has no name and no home.
- **Two hosts** are network namespaces that veth joins (iproute2). The late link is netem or, where the kernel lacks it,
  a relay between two TUN devices (`tests/ranks/network.py`; in this run: {network.lateness()}). TCP's keepalive
  and user timeout notice a cut link 12 s after the last sign of life.
- **gloo and host names.** gloo takes the address to which the host's own name resolves. Where /etc/hosts maps it to
  127.0.1.1, ranks on other hosts cannot reach it, wherever the coordinator is. On two such hosts the first collective
  ended as a hang with "Gloo context initialization failed: timed out connecting: Connection refused,
  remote=[127.0.1.1]". Map the name to the address that the other hosts see.
"""


if __name__ == "__main__":
    raise SystemExit(main())
