# SPDX-License-Identifier: Apache-2.0
"""`pytest conformance --distributed` under real launchers, docs/cluster/slurm.sbatch, and a rank that dies."""

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from meshmark.records.reading import read_records
from tests.cluster.commands import ROOT, marked, run

SUITE = [sys.executable, "-m", "pytest", "conformance", "--distributed", "--profile", "smoke"]
FEW = ["--operations", "psum,all_gather,matmul,mlp"]
# A batch job, and its exit code at its end. `sbatch --wait` would do, but asks after 2, 4, 8, 16 and 32 seconds.
WAIT = """
set -e
job=$(sbatch --parsable "$@")
until scontrol --oneliner show job "$job" | grep -qE ' JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)'; do
    sleep 0.2
done
exit $(scontrol --oneliner show job "$job" | sed -E 's/.* ExitCode=([0-9]+):.*/\\1/')
"""
BATCH = ["bash", "-c", WAIT, "sbatch", "--nodes=1", "--ntasks=2"]
LIMIT = 300.0  # seconds for what takes 40 on two idle cores


@pytest.fixture
def environment(bare):
    """On CPU; the suite chooses the number of devices of each rank itself."""
    kept = {name: value for name, value in bare.items() if name != "JAX_NUM_CPU_DEVICES"}
    return kept | {"JAX_PLATFORMS": "cpu", "MESHMARK_PYTHON": sys.executable}


def rank_files(record):
    return sorted(Path(record).parent.glob(f"{Path(record).name}.rank*[0-9]"))


def finished(path):
    """The cases in a record file that may be being written."""
    with suppress(OSError):
        whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return {found["case"] for line in whole if (found := json.loads(line))["kind"] == "conformance"}
    return set()


def killer(record, output=None):
    """Kills rank 1 once it has finished five cases. `output`: the file of a batch job's output, for the case that it
    never gets so far."""

    def kill(mark, ended):
        end = time.monotonic() + LIMIT * 0.8
        path = Path(f"{record}.rank1")
        while len(finished(path)) < 5:
            if ended() or time.monotonic() > end:
                said = output.read_text() if output and output.exists() else "nothing"
                raise AssertionError(f"{path} has {len(finished(path))} cases; the job said {said}")
            time.sleep(0.05)
        victims = [n for n in marked(mark) if _is_rank(n, 1)]
        assert 1 <= len(victims) <= 2, "the rank, and the process that watches it"
        for victim in sorted(victims):
            os.kill(victim, signal.SIGKILL)

    return kill


def _is_rank(process, rank):
    with suppress(OSError):
        entry = Path("/proc", str(process))
        variables = (entry / "environ").read_bytes().split(b"\0")
        named = {
            f"{name}={rank}".encode()
            for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "MESHMARK_PROCESS_ID")
        }
        return bool(named.intersection(variables)) and b"conformance" in (entry / "cmdline").read_bytes()
    return False


def summed(text):
    """(cases, what came of them) of the closing line."""
    return re.findall(r"^(\d+) cases: (.*)$", text, re.MULTILINE)


def judged(record, ranks):
    """The verdicts of a merged record, which every rank's file must agree with."""
    merged = read_records(record)
    assert len(merged.runs) == 1 and merged.runs[0]["facts"]["num_processes"] == ranks
    assert len(rank_files(record)) == ranks
    for path in rank_files(record):
        assert read_records(path).cases.keys() <= merged.cases.keys()
    return {name: case.verdict for name, case in merged.cases.items()}


def passes(done, record, ranks):
    """The run ended well on every rank, as one run."""
    assert (done.code, done.left) == (0, []), done.text
    verdicts = judged(record, ranks)
    assert set(verdicts.values()) <= {"pass", "known", "unsupported"}, verdicts
    told = summed(done.text)
    assert len(told) == 1 and int(told[0][0]) == len(verdicts), done.text
    return verdicts


def test_srun(slurm_environment, environment, tmp_path):
    record = tmp_path / "records.jsonl"
    done = run(["srun", "-n", "2", *SUITE, "--record", record], environment | slurm_environment, LIMIT)
    assert len(passes(done, record, 2)) > 100
    assert "2 processes of " in done.text and "coordinates detected by JAX" in done.text


def test_srun_with_four_ranks(slurm_environment, environment, tmp_path):
    record = tmp_path / "records.jsonl"
    command = ["srun", "-n", "4", *SUITE, *FEW, "--num-devices", "1", "--record", record]
    done = run(command, environment | slurm_environment, LIMIT)
    passes(done, record, 4)
    assert "4 processes of 1 device" in done.text, done.text


@pytest.mark.parametrize("which", ["mpirun", "mpirun_5"])
def test_mpirun(request, environment, tmp_path, which):
    mpirun, record = request.getfixturevalue(which), tmp_path / "records.jsonl"
    done = run([*mpirun, "-n", "2", *SUITE, "--record", record], environment, LIMIT)
    assert len(passes(done, record, 2)) > 100
    assert "coordinates detected by JAX" in done.text


def test_the_script_for_open_mpi(mpirun, environment, tmp_path):
    record = tmp_path / "records.jsonl"
    variables = {"MESHMARK_RECORD": str(record), "PATH": f"{Path(mpirun[0]).parent}:{environment['PATH']}"}
    command = [
        ROOT / "docs" / "cluster" / "openmpi.sh",
        "-n",
        "2",
        "--oversubscribe",
        "--",
        "--profile",
        "smoke",
        *FEW,
    ]
    passes(run(command, environment | variables, LIMIT), record, 2)


def test_a_killed_rank_under_srun_and_the_rest_by_resume(slurm_environment, environment, tmp_path):
    record = tmp_path / "records.jsonl"
    begin = ["srun", "-n", "2", "--kill-on-bad-exit=0", "--wait=60", *SUITE, *FEW]
    variables = environment | slurm_environment
    done = run([*begin, "--record", record], variables, LIMIT, after=killer(record))
    assert done.code not in (0, None) and done.left == [], done.text
    assert not record.exists() and len(rank_files(record)) == 2
    before = {
        path: read_records(path).cases for path in rank_files(record)
    }  # raises where a line is not whole
    assert "rank 1 ended" in done.text and f"--resume {record}" in done.text, done.text

    rest = run([*begin, "--resume", record], variables, LIMIT)
    assert rest.code in (0, 1) and rest.left == [], rest.text
    verdicts = judged(record, 2)
    crashed = {name: verdict for name, verdict in verdicts.items() if verdict not in ("pass", "known")}
    assert set(crashed.values()) <= {"crash"} and len(crashed) <= 1, crashed
    assert rest.code == len(crashed)
    whole = int(summed(rest.text)[0][0])
    assert len(verdicts) == whole > max(map(len, before.values()))


def test_the_batch_script(slurm_environment, environment, tmp_path):
    record, output = tmp_path / "records.jsonl", tmp_path / "job.out"
    command = [*BATCH, f"--output={output}", "docs/cluster/slurm.sbatch"]
    variables = environment | slurm_environment | {"MESHMARK_RECORD": str(record)}
    done = run([*command, "--profile", "smoke", *FEW], variables, LIMIT)
    done.text = output.read_text()
    passes(done, record, 2)


def test_the_batch_script_goes_on_after_a_killed_rank(slurm_environment, environment, tmp_path):
    record, output = tmp_path / "records.jsonl", tmp_path / "job.out"
    command = [*BATCH, f"--output={output}", "docs/cluster/slurm.sbatch"]
    variables = environment | slurm_environment | {"MESHMARK_RECORD": str(record)}
    kill = killer(record, output=output)
    done = run([*command, "--profile", "smoke", *FEW], variables, LIMIT, after=kill)
    text = output.read_text()
    assert done.code in (0, 1) and done.left == [], text
    assert "before the end (start 1)" in text and "(start 2)" not in text
    assert int(summed(text)[-1][0]) == len(judged(record, 2))


def test_mpi_as_transport(mpirun, environment, transport, tmp_path):
    record = tmp_path / "records.jsonl"
    suite = [*SUITE, *FEW, "-p", "tests.cluster.over_mpi", "--num-devices", "1", "--record", record]
    done = run([*mpirun, "-n", "2", *suite], environment | transport, LIMIT)
    passes(done, record, 2)
    assert "collectives over mpi" in done.text and "[Gloo]" not in done.text


def test_ranks_without_a_launcher_are_told_so(environment):
    done = run(SUITE, environment, LIMIT)
    assert done.code == 4 and "start this under srun, mpirun, Kubernetes or Cloud TPU" in done.text
    assert done.left == []
