# SPDX-License-Identifier: Apache-2.0
"""Makes docs/containment.md: `python -m tests.trouble.transcripts`."""

import json
import os
import re
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

from meshmark.core.privacy import redact
from tests.trouble.runs import ROOT, Run, finished, lines, table
from tests.waiting import until

HEAD = """# Containment, shown

Each part is one run of the suite in `tests/trouble`, whose cases crash and hang on purpose. It runs on eight virtual
CPU devices of a machine with {cores} cores. `python -m tests.trouble.transcripts` makes this file.

For each record line, this page shows the fields that describe the failure, and the three innermost frames of each
stack. After each run no process was left. The times are those of whole runs: they include the start of pytest, of
JAX, and of a new worker after each crash.

Ctrl-C (SIGINT) and `kill` (SIGTERM) end a run in the same way: the run keeps the records of finished cases, and ends
every process that it started. `pytest conformance` shows its table and exits with 2. `bench`, `compare` and `growth`
exit with 130 for SIGINT and with 143 for SIGTERM, and `launch` with the code of its ranks. Under nohup, in the
background of a script and in some CI systems, a process inherits an ignored SIGINT. Ctrl-C does not end such a run,
and the run reports this at its start. SIGTERM ends it.
"""
BY_HAND = re.compile(r"\n## What is around a run\n.*?(?=\n## kill -9 of the controller)", re.DOTALL)
"""The sections of the page that people write. They stay as they are."""
SHOWN = ("case", "check", "verdict", "reason", "signal", "stderr", "stacks", "seconds")
ONE = ("--meshes", "2x4", "-n", "1")


def shown(line):
    """The telling fields of a record line, stacks abridged."""
    part = {name: line[name] for name in SHOWN if name in line}
    if "stacks" in part:
        part["stacks"] = [stack[:3] + ["..."] * (len(stack) > 3) for stack in part["stacks"]]
    return f"```json\n{json.dumps(part, indent=None)}\n```\n"


def command(run):
    """What was typed."""
    environment = [f"{k}={v}" for k, v in run.environment.items() if k != "MESHMARK_FLAG"]
    return " ".join([*environment, *run.command])


def told(run, *happened):
    """The command, what happened to it, the last line of the table, the exit code and the time."""
    ended = f"killed by signal {-run.code}" if run.code < 0 else f"exit code {run.code}"
    text = [f"$ {command(run)}", *happened, *table(run.output)[-1:], f"{ended} after {run.seconds:.1f} s"]
    return "\n".join(["```console", *text, "```", ""])


def ended(run):
    """Wait for the end of a run, and that it left no process."""
    run.finish(300)
    if not run.gone(10):
        raise SystemExit(f"a process is left of {command(run)}")
    return run


def bad(path):
    """The record line of the case that crashed or hung."""
    return next(line for line in lines(path) if line.get("verdict") in ("crash", "hang"))


def trouble(name, title, why):
    """One trouble, met by the suite."""
    with TemporaryDirectory() as directory:
        cwd = Path(directory)
        with Run(*ONE, "--deadline", "5", "--record", "records.jsonl", cwd=cwd, MESHMARK_TROUBLE=name) as run:
            ended(run)
        return f"\n## {title}\n\n{why}\n\n{told(run)}\n{shown(bad(cwd / 'records.jsonl'))}"


def worker_killed():
    """kill -9 of a worker."""
    with TemporaryDirectory() as directory:
        cwd, flag = Path(directory), Path(directory) / "flag"
        options = {"cwd": cwd, "MESHMARK_PAUSE": "3", "MESHMARK_FLAG": str(flag)}
        with Run(*ONE, "--operations", "slow0,slow1", "--record", "records.jsonl", **options) as run:
            until(flag.exists)
            run.kill(signal.SIGKILL, *run.workers())
            ended(run)
        text = told(run, "# while a case runs: kill -9 of its worker")
        line = shown(bad(cwd / "records.jsonl"))
        return f"\n## kill -9 of a worker\n\nThe other cases run in a new worker.\n\n{text}\n{line}"


def resumed(title, why, happened, **limit):
    """An interruption after eight cases, and --resume."""
    with TemporaryDirectory() as directory:
        cwd, path = Path(directory), Path(directory) / "records.jsonl"
        options = {"cwd": cwd, "MESHMARK_PAUSE": "0.3"}
        with Run(*ONE, "--record", "whole.jsonl", **options) as whole:
            ended(whole)
        with Run(*ONE, "--record", path.name, **options, **limit) as run:
            if not limit:
                until(lambda: len(finished(path)) >= 8)
                run.kill(signal.SIGKILL)
            ended(run)
        said = [line.strip("! ") for line in run.output.splitlines() if "make room" in line]
        count = len(finished(path))
        with Run(*ONE, "--resume", path.name, **options) as rest:
            ended(rest)
        if table(rest.output) != table(whole.output) or len(set(finished(path))) != len(finished(path)):
            raise SystemExit("the resumed run ended in another table")
        cases = len(finished(path))
        return (
            f"\n## {title}\n\n{why}\n\n{told(run, *happened, *said)}\n"
            f"In the file: {count} finished cases, every line whole.\n\n{told(rest)}\n"
            f"The table is that of an uninterrupted run, line by line. Each of the {cases} cases ran once.\n"
        )


def main():
    target = ROOT / "docs" / "containment.md"
    kept = BY_HAND.search(target.read_text())
    if not kept:
        raise SystemExit(f"{target} lacks its sections that people write")
    parts = [
        HEAD.format(cores=os.cpu_count()),
        trouble("abort", "Abort", "The process ends itself; the end of its standard error is kept."),
        trouble(
            "deadlock",
            "Deadlock in a collective",
            "Only some devices reach a `psum`. XLA itself would abort after 60 s.",
        ),
        trouble("spin", "Endless loop in Python", "`while True: pass`."),
        trouble(
            "sleep_with_the_gil",
            "A sleep that holds the GIL",
            "Native code that never returns; no Python thread can run.",
        ),
        worker_killed(),
        kept.group(),
        resumed(
            "kill -9 of the controller, and --resume",
            "The workers end with it.",
            ["# after eight cases: kill -9"],
        ),
        resumed(
            "A full disk",
            "A limit on the size of a file stands in for the full disk.",
            ["# the file may not grow beyond 9,000 bytes"],
            file_limit=9000,
        ),
    ]
    target.write_text(redact("".join(parts)))


if __name__ == "__main__":
    main()
