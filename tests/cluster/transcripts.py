# SPDX-License-Identifier: Apache-2.0
"""Makes docs/transcripts/ by running the shown commands: `python -m tests.cluster.transcripts [launch,srun,mpirun]`.

It needs root on Debian. Paths, the names of the user and the host, and the middle of tables are left out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

from meshmark.core.privacy import redact
from tests.cluster.commands import ROOT, run
from tests.cluster.slurm import outside, slurm
from tests.cluster.test_suite import killer

WHERE = ROOT / "docs" / "transcripts"
SUITE = ["python", "-m", "pytest", "conformance", "--distributed", "--profile", "smoke"]
FEW = ["--operations", "psum,all_gather,matmul,mlp"]
LIMIT = 300.0
# What Gloo says as it connects, which comes in pieces where several ranks say it at once.
GLOO = (
    r"(?:\[Gloo\] Rank |\d* ?is connected to |\d* ?peer ranks\. "
    r"|Expected number of connected peer ranks is : \d*\n?)+\n*"
)


class Transcript:
    """What was typed and what came of it."""

    def __init__(self, environment: dict[str, str]) -> None:
        python = str(Path(sys.executable).parent)
        self.environment = environment | {"JAX_PLATFORMS": "cpu", "PATH": f"{python}:{environment['PATH']}"}
        self.environment.pop("JAX_NUM_CPU_DEVICES", None)
        self.parts: list[str] = []

    def version(self, *command: str) -> None:
        """The first line of a command."""
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        self.parts.append(f"$ {_typed(command)}\n{(done.stdout + done.stderr).splitlines()[0]}\n")

    def show(
        self, *command: str, output: Path | None = None, after=None, note: str = "", **variables: str
    ) -> None:
        """Run a command from the root of the repository; keep its output, or the file that it goes to."""
        done = run(command, self.environment | variables, LIMIT, after)
        if done.left:
            raise SystemExit(f"left behind by {command}: {done.left}")
        text = output.read_text() if output else done.text
        typed = " ".join([*(f"{k}={v}" for k, v in variables.items()), _typed(command)])
        notes = [f"# {note}"] if note else []
        ended = f"# exit code {done.code} after {done.seconds:.1f} s"
        self.parts.append("\n".join([f"$ {typed}", *notes, shortened(text), ended, ""]))

    def write(self, name: str, directory: str) -> None:
        """Keep it, without what is private."""
        text = "\n".join(self.parts).replace(f"{directory}/", "")
        WHERE.mkdir(parents=True, exist_ok=True)
        (WHERE / name).write_text("\n".join(line.rstrip() for line in redact(text).splitlines()) + "\n")
        print(f"wrote docs/transcripts/{name}")


def shortened(text: str) -> str:
    """Without terminal colours and Gloo's lines; of pytest's progress and of the table the beginning and the end."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = re.sub(GLOO, "", plain).splitlines()
    for kept in (r"conformance/\S+\.py ", r"L\d \S+ "):
        block = [i for i, line in enumerate(lines) if re.match(kept, line)]
        if len(block) > 4 and block[-1] - block[0] == len(block) - 1:
            lines[block[2] : block[-1]] = [f"... {len(block) - 3} lines"]
    return "\n".join(lines).strip()


def _typed(command: Sequence[str]) -> str:
    """As somebody would type it, whose PATH is right."""
    return shlex.join([Path(command[0]).name if command[0].startswith("/") else command[0], *command[1:]])


def of_slurm(directory: Path) -> None:
    with slurm() as environment:
        told = Transcript(environment)
        told.version("srun", "--version")
        told.show("sinfo", "--format=%N %T %c")
        told.show("srun", "-n", "2", *SUITE, "--record", str(directory / "run.jsonl"))
        begin = ["srun", "-n", "2", "--kill-on-bad-exit=0", "--wait=60", *SUITE, *FEW]
        record = directory / "killed.jsonl"
        note = "in the middle of it: kill -9 of rank 1"
        told.show(*begin, "--record", str(record), after=killer(record), note=note)
        told.show(*begin, "--resume", str(record))
        output, record = directory / "job.out", directory / "job.jsonl"
        note = "in the middle of it: kill -9 of rank 1; this is the job's output"
        command = [
            "sbatch",
            "--wait",
            "--nodes=1",
            "--ntasks=2",
            f"--output={output}",
            "docs/cluster/slurm.sbatch",
        ]
        options = ["--profile", "smoke", *FEW]
        variables = {"MESHMARK_RECORD": str(record)}
        told.show(*command, *options, output=output, after=killer(record), note=note, **variables)
    told.write("srun.txt", str(directory))


def of_open_mpi(directory: Path) -> None:
    told = Transcript(outside(os.environ))
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    begin = ["-n", "2", *root, "--oversubscribe", "--bind-to", "none"]
    record = directory / "killed-mpi.jsonl"
    for program in filter(
        None, (shutil.which("mpirun", path="/usr/bin"), shutil.which("mpirun", path=_beside()))
    ):
        told.version(program, "--version")
        told.show(program, *begin, *SUITE, "--record", str(directory / f"{len(told.parts)}.jsonl"))
    program = "/usr/bin/mpirun"
    note = "in the middle of it: kill -9 of rank 1"
    told.show(program, *begin, *SUITE, *FEW, "--record", str(record), after=killer(record), note=note)
    told.show(program, *begin, *SUITE, *FEW, "--resume", str(record))
    told.write("mpirun.txt", str(directory))


def _beside() -> str:
    return str(Path(sys.executable).parent)


def main() -> int:
    makers = {"srun": of_slurm, "mpirun": of_open_mpi}
    with tempfile.TemporaryDirectory(prefix="meshmark-transcripts-") as directory, chdir(ROOT):
        for name in sys.argv[1].split(",") if sys.argv[1:] else makers:
            makers[name](Path(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
