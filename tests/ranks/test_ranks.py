# SPDX-License-Identifier: Apache-2.0
"""The rank of a process: options, environment, and errors in them."""

from __future__ import annotations

import os

import pytest

from meshmark.commands import main as cli
from meshmark.devices import compat
from meshmark.ranks import group as ranks
from meshmark.ranks.channel import spans
from meshmark.ranks.group import Coordinates, RankError
from meshmark.ranks.wire import ChannelError, address

LAUNCHED = {
    "MESHMARK_COORDINATOR": "127.0.0.1:4000",
    "MESHMARK_NUM_PROCESSES": "3",
    "MESHMARK_PROCESS_ID": "2",
    "MESHMARK_CONTROL": "127.0.0.1:5000",
}


def test_one_process_alone():
    assert ranks.coordinates({}) is None
    assert ranks.coordinates({"MESHMARK_CONTROL": "h:1"}) is None


def test_the_launchers_variables_stand_for_the_options():
    assert ranks.coordinates(LAUNCHED) == Coordinates("127.0.0.1:4000", 3, 2, "127.0.0.1:5000")
    given = ranks.coordinates(LAUNCHED, coordinator="h:7", num_processes=2, process_id=0)
    assert given == Coordinates("h:7", 2, 0, "127.0.0.1:5000")


def test_the_channel_is_at_the_next_port():
    found = ranks.coordinates({}, coordinator="node1:4000", num_processes=2, process_id=1)
    assert found is not None and found.control == "node1:4001" and found.given
    found = ranks.coordinates({}, coordinator="[::1]:4000", num_processes=2, process_id=1)
    assert found is not None and found.control == "[::1]:4001"
    found = ranks.coordinates({}, coordinator="node1:65535", num_processes=2, process_id=1)
    assert found is not None and found.control == "node1:65534"
    found = ranks.coordinates({}, coordinator="a:4000", num_processes=2, process_id=1, control="b:9")
    assert found is not None and found.control == "b:9"


def test_detection_is_left_to_jax():
    found = ranks.coordinates({}, distributed=True, control="b:9")
    assert found == Coordinates(control="b:9") and not found.given


def test_a_run_is_told_apart_by_its_secret_or_by_its_job():
    def secret(environ, **options):
        return ranks.coordinates(environ, coordinator="h:7", num_processes=2, process_id=0, **options).secret

    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    assert secret({}) == ""
    assert secret({"SLURM_JOB_ID": "7"}) == "", "a job has several steps"
    assert secret(slurm) == "SLURM_JOB_ID=7 SLURM_STEP_ID=0" != secret(slurm | {"SLURM_STEP_ID": "1"})
    assert secret({"PMIX_NAMESPACE": "prterun@1"}) == "PMIX_NAMESPACE=prterun@1"
    assert secret(slurm | {"MESHMARK_CONTROL_SECRET": "s"}) == "s"
    assert secret(slurm | {"MESHMARK_CONTROL_SECRET": "s"}, control_secret="t") == "t"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_processes": 2, "process_id": 0}, "go together"),
        ({"coordinator": "h:1"}, "go together"),
        ({"coordinator": "h:1", "num_processes": 2, "process_id": 2}, "--process-id 2: of 2 processes"),
        ({"coordinator": "h:1", "num_processes": 2, "process_id": -1}, "--process-id -1"),
        ({"coordinator": "h:1", "num_processes": 0, "process_id": 0}, "--num-processes 0"),
    ],
)
def test_half_or_impossible_coordinates(given, message):
    with pytest.raises(RankError, match=message):
        ranks.coordinates({}, **given)


@pytest.mark.parametrize("text", ["h", "h:", ":1", "h:x", "h:0", "h:65536", "", "h:1:"])
def test_what_is_no_address(text):
    with pytest.raises(ChannelError, match="HOST:PORT"):
        address(text)


def test_a_variable_that_is_no_number():
    with pytest.raises(RankError, match="MESHMARK_PROCESS_ID='two'"):
        ranks.coordinates(LAUNCHED | {"MESHMARK_PROCESS_ID": "two"})


def test_the_introduction_tells_what_must_be_alike(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_something")
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "AVX2")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_something")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    told = ranks.introduction({"profile": "smoke"})
    assert told["flags"]["XLA_FLAGS"] == "--xla_something" and "JAX_PROCESS_ID" not in told["flags"]
    assert told["flags"].keys() >= {"NPY_DISABLE_CPU_FEATURES", "LIBTPU_INIT_ARGS"}
    assert "OMP_NUM_THREADS" not in told["flags"], "hosts have different numbers of cores"
    assert "jax " in told["JAX release"] and told["options"] == {"profile": "smoke"}
    assert told["suite sources"] == ranks.introduction({})["suite sources"]


def test_differences_name_the_ranks():
    assert spans([1, 1, 1]) == ""
    assert spans(["a", "b", "a"]) == "ranks 0, 2: a; rank 1: b"


def test_a_digest_is_of_the_order_too():
    assert ranks.digest_names(["a", "b"]).startswith("2 ") and ranks.digest_names(
        ["a", "b"]
    ) != ranks.digest_names(["b", "a"])


def test_the_coordinator_that_jax_found(monkeypatch):
    monkeypatch.delenv("JAX_COORDINATOR_ADDRESS", raising=False)
    assert compat.coordinator_address() == ""
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "node7:1234")
    assert compat.coordinator_address() == "node7:1234"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["launch", "-n", "2"], "nothing to launch"),
        (["launch", "-n", "2", "--", "no-such-command"], "can't start 'no-such-command'"),
        (["merge", "no-such-file.jsonl"], "no no-such-file.jsonl.rank"),
    ],
)
def test_bad_input_of_the_commands(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_no_rank_is_meant_here():
    """These tests must not run as a rank: a variable that is left over would make everything one."""
    assert not [name for name in ranks.ENVIRONMENT.values() if name in os.environ]
