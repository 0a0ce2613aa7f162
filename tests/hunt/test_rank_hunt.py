# SPDX-License-Identifier: Apache-2.0
"""A hunt over real processes, one of which has a fault."""

import json
import os
import subprocess
import sys

import pytest

from meshmark.commands.main import main
from meshmark.hunt.rank_hunt import merge_differences
from tests.checkout import IMPORTS, ROOT

pytestmark = pytest.mark.e2e


def launched(*options, **variables):
    """(exit code, output) of a hunt by two processes of two devices."""
    command = [*(sys.executable, "-m", "harness", "launch", "-n", "2", "--devices-per-process", "2", "--")]
    command += [sys.executable, "-m", "tests.hunt.sabotaged_hunt", "--seed", "1", *map(str, options)]
    environment = os.environ | {"PYTHONPATH": IMPORTS, "JAX_PLATFORMS": "cpu"} | variables
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_wrong_rank_is_found_and_shrunk_and_a_dead_one_ends_the_hunt_which_goes_on_behind_it(tmp_path):
    path = tmp_path / "hunt.jsonl"
    chosen = ("--programs", "5", "--shrink", "15")
    code, output = launched(*chosen, "--record", path, MESHMARK_WRONG="lax.slice", MESHMARK_DIES="3")
    assert code, output
    head, *rest = lines(path)
    assert (head["ranks"], head["devices"]) == (2, 4)
    outcomes = {line["n"]: line for line in rest if "begins" not in line}
    assert [*outcomes] == [0, 1, 2] and rest[-1]["begins"] and rest[-1]["n"] == 3
    found = outcomes[2]
    assert found["differences"][0]["text"].startswith("rank 1: result 0: 1 of ")
    operations = [node["op"] for node in found["shrunk"]["nodes"]]
    assert operations == ["lax.slice"], "shrunk to the operation, in step"
    assert "rank 1" in output

    code, output = launched(*chosen, "--resume", path, MESHMARK_WRONG="lax.slice")
    assert code == 1, output  # the dead rank is new; wrong slices are like findings that are kept
    outcomes = {line["n"]: line for line in lines(path) if "n" in line and "begins" not in line}
    assert sorted(outcomes) == [0, 1, 2, 3, 4]
    assert outcomes[3]["differences"][0]["kind"] == "crash"
    assert "5 programs (4 of them before)" in output and "2 groups of findings, 1 new" in output
    assert "each judged by 2 processes together" in output


def replayed(each):
    """(exit code, output) of the replay of a finding for two devices by two processes of so many devices."""
    command = [
        *(sys.executable, "-m", "meshmark", "launch", "-n", "2", "--devices-per-process", str(each), "--")
    ]
    command += [sys.executable, "-m", "meshmark", "hunt", "--replay", "update-slice-past-the-edge"]
    environment = os.environ | {"PYTHONPATH": IMPORTS, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_a_finding_is_replayed_by_all_processes_together():
    code, output = replayed(1)
    assert code == 1, output
    assert "auto, over 2 processes: numbers: rank 1: result 0: 1 of 2 elements differ" in output
    assert '"there": true, "outcome": "wrong"' in output


def test_processes_with_other_devices_than_a_finding_needs_say_so():
    code, output = replayed(2)
    assert code == 2, output
    assert "needs 2 devices, and the 2 processes have 4: --num-devices N gives each process N" in output


@pytest.mark.parametrize("option", [("--keep", "x"), ("--topology", "v5e:2x4"), ("--workers", "1")])
def test_what_takes_one_process_is_refused(option, capsys):
    ranks = ("--coordinator", "127.0.0.1:1", "--num-processes", "2", "--process-id", "0")
    assert main(["hunt", *ranks, *option]) == 2
    assert "works only in one process" in capsys.readouterr().err


def test_the_first_rank_with_a_difference_is_named():
    right = {"differences": []}
    wrong = {"differences": [{"kind": "numbers", "text": "off"}]}
    assert merge_differences([right, right]) == []
    assert merge_differences([right, wrong, wrong])[0]["text"] == "rank 1: off"
