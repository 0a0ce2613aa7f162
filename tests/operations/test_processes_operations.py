# SPDX-License-Identifier: Apache-2.0
"""The operations of several processes: what they plan and judge, and their faults over two real processes.

    python -m tests.operations.test_processes_operations RANK PORT FILE

runs one of the two processes: it judges the case of every fault without the fault and then with it, and writes the
verdicts.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from meshmark.core import layout, meshes
from meshmark.core.meshes import MeshShape
from meshmark.core.ports import free_ports
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import Variant, owners_of
from meshmark.operations.processes import global_arrays, lifecycle, messages
from meshmark.operations.selection import CAPABILITIES, Selection, SelectionError
from tests.checkout import ROOT
from tests.studies.faults_between_processes import OVER_PROCESSES
from tests.waiting import PATIENCE, gone, until

pytestmark = pytest.mark.e2e

COUNT, EACH = 2, 2
"""Processes, and devices of each."""

GROUPS = [(2, 8), (4, 8), (2, 2), (4, 4), (3, 6)]
"""Numbers of processes and of devices of them all, of which every case is planned."""

ORBAX = importlib.util.find_spec("orbax") is not None


def case_of(name: str) -> str:
    """The id of an operation/variant on the mesh of two times two devices, in its smallest ordinary size."""
    operation = name.split("/")[0]
    size = "64KiB" if operation.startswith("large_") else "n8" if "data_parallel" in operation else "4KiB"
    mesh = "4" if operation == "pmap_of_local_rows" else "2x2"
    return f"{name}/host/{mesh}/float32/{size}"


def usable() -> list[str]:
    """The faults whose case can be run here."""
    return [name for name, fault in OVER_PROCESSES.items() if ORBAX or "orbax" not in fault.case]


def judged(rank: int, port: int, path: str) -> None:
    """One of the two processes."""
    import jax

    jax.distributed.initialize(f"127.0.0.1:{port}", COUNT, rank)
    from meshmark.core.verdicts import worst
    from meshmark.judge.checks import Judge

    judge, told = Judge(tuple(jax.devices())), {}

    def verdict(name: str) -> str:
        lines = judge.run(cases.find(case_of(name), COUNT * EACH, COUNT))
        reasons = [f"{line.check}: {line.reason}" for line in lines if line.verdict != "pass"]
        return " ".join([worst(line.verdict for line in lines), *reasons])

    for name in usable():
        fault = OVER_PROCESSES[name]
        # What starts children takes its time: its own result is tested where the group runs the table.
        if fault.case not in told and "wrong=" not in fault.case:
            told[fault.case] = verdict(fault.case)
        with fault.put_in():
            told[name] = verdict(fault.case)
    with open(path, "w") as file:
        json.dump(told, file)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The verdicts of each of two processes, by case and by fault; both are ended whatever happens."""
    directory = tmp_path_factory.mktemp("group")
    [port] = free_ports(1)
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(EACH), "JAX_PLATFORMS": "cpu"}
    group, logs = [], []
    try:
        for rank in range(COUNT):
            logs.append(open(directory / f"{rank}.log", "w+"))  # noqa: SIM115
            command = [sys.executable, "-m", "tests.operations.test_processes_operations"]
            group.append(
                subprocess.Popen(
                    [*command, str(rank), str(port), str(directory / f"{rank}.json")],
                    cwd=ROOT,
                    env=environment,
                    stdout=logs[-1],
                    stderr=subprocess.STDOUT,
                )
            )
        deadline = time.monotonic() + PATIENCE
        while any(member.poll() is None for member in group) and time.monotonic() < deadline:
            if any(member.poll() for member in group):
                break
            time.sleep(0.1)
        codes = [member.poll() for member in group]
    finally:
        for member in group:
            member.kill()
            member.wait()
        for log in logs:
            log.close()
    tails = "\n".join((directory / f"{rank}.log").read_text()[-3000:] for rank in range(COUNT))
    assert codes == [0] * COUNT, f"ended with {codes}:\n{tails}"
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(COUNT)]


@pytest.mark.parametrize("name", OVER_PROCESSES)
def test_a_fault_over_processes_is_caught_and_without_it_the_case_passes(told, name):
    if name not in usable():
        pytest.skip("orbax-checkpoint is not installed")
    case = OVER_PROCESSES[name].case
    assert all(rank.get(case, "pass") == "pass" for rank in told), [rank.get(case) for rank in told]
    caught = [rank[name] for rank in told if rank[name].startswith("fail")]
    assert caught, f"{name}: {[rank[name] for rank in told]}"


def test_every_operation_over_processes_has_a_fault():
    covered = {fault.case.split("/")[0] for fault in OVER_PROCESSES.values()}
    assert covered == {name for name, operation in OPERATIONS.items() if operation.processes}


@pytest.mark.parametrize(("count", "devices"), GROUPS)
def test_plans_over_processes_are_sound(count, devices):
    chosen = Selection("full", capabilities=("checkpoint",), processes=count)
    seen = set()
    for cell, modes in cases.cells(chosen, devices):
        if not cell.operation.processes:
            continue
        plan, sizes = cell.plan, cell.request.mesh.sizes
        assert modes == ["host"]
        for item in (*plan.arguments, *plan.results):
            layout.local_shape(item.shape, item.spec, sizes)  # divides
        seen.add(cell.operation.name)
    assert seen == {name for name, operation in OPERATIONS.items() if operation.processes}


@pytest.mark.parametrize(("count", "devices"), GROUPS)
def test_references_over_processes_give_what_the_plan_says(count, devices):
    """Shapes of the references, and bounds that are far below what they bound."""
    chosen = Selection("standard", capabilities=("checkpoint",), processes=count)
    for cell, _ in cases.cells(chosen, devices):
        if not cell.operation.processes or cell.operation.name.startswith("large_"):
            continue
        expected, bounds = cell.expected(cell.arguments(0))
        for result, value, bound in zip(cell.plan.results, expected, bounds, strict=True):
            assert np.shape(value) == result.shape, cell.id
            if bound is not None:
                assert bound.max() < 1e-4 * np.abs(value).max(), cell.id


def test_one_process_has_none_of_them():
    chosen = cases.cells(Selection("full", capabilities=tuple(CAPABILITIES)), 4)
    assert not any(cell.operation.processes for cell, _ in chosen)
    with pytest.raises(SelectionError, match="several processes"):
        cases.find(case_of("sync_global_devices/names=same"), 4)


def test_whose_devices_a_mesh_has():
    assert owners_of(MeshShape((2, 4)), 8, 2) == (0, 0, 0, 0, 1, 1, 1, 1)
    assert owners_of(MeshShape((2, 4), "interleaved"), 8, 2) == (1, 0, 1, 0, 1, 0, 1, 0)
    assert owners_of(MeshShape((6,)), 8, 2) == (0, 0, 0, 0, 1, 1)


def refused(name: str, variant: Variant, mesh: MeshShape, count: int, devices: int) -> bool:
    """Whether an operation has no such case there."""
    return OPERATIONS[name].refuses(variant, mesh, owners_of(mesh, devices, count)) is not None


def test_what_makes_no_sense_over_processes_has_no_case():
    host_local, home = "host_local_array_to_global_array", Variant.of(to="x.y")
    assert not refused(host_local, home, MeshShape((2, 4)), 2, 8)
    assert not refused(host_local, home, MeshShape((2, 2), "interleaved"), 4, 4), "one device is a subcube"
    assert refused(host_local, home, MeshShape((2, 4), "interleaved"), 2, 8)
    assert refused(host_local, home, MeshShape((2, 3)), 2, 8)
    assert refused("process_batches", Variant(), MeshShape((6,)), 2, 8)
    shardings = "in_shardings_out_shardings"
    assert refused(shardings, Variant.of(**{"from": "x.y"}), MeshShape((2, 4)), 2, 8)
    assert not refused(shardings, Variant.of(**{"from": "-.-"}), MeshShape((2, 4)), 2, 8)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_words(key, counter, words):
    """The known answers of Random123 (tests/kat_vectors, threefry2x32 with 20 rounds)."""
    seen = global_arrays.threefry(key, *(np.array([c], np.uint64) for c in counter))
    assert tuple(int(s[0]) for s in seen) == words


@pytest.mark.parametrize("change", ["one element", "two swapped", "shifted", "the tail"])
def test_the_weighted_sum_of_a_large_message_feels(change):
    right = np.random.default_rng(0).integers(0, 2**22, 2**16)
    wrong = right.copy()
    if change == "one element":
        wrong[12345] += 1
    elif change == "two swapped":
        wrong[[5, 4098]] = wrong[[4098, 5]]
    elif change == "shifted":
        wrong = np.roll(wrong, 4096)
    else:
        wrong[-100:] = wrong[:100]
    weights = messages.weights_of(len(right))
    sums = [(values.astype(np.uint32) * weights).sum(dtype=np.uint32) for values in (right, wrong)]
    assert sums[0] != sums[1]


def test_every_large_message_is_another():
    cell = cases.find(case_of("large_psum/plain"), 4, 2).cell
    [sums], _ = cell.expected(cell.arguments(0))
    assert all(len(set(row)) == messages.REPEATS for row in sums.tolist())


def test_children_know_nothing_of_the_launcher(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("MESHMARK_COORDINATOR", "127.0.0.1:1")
    show = "import os; print(sorted(n for n in os.environ if n.startswith(('SLURM_', 'MESHMARK_'))))"
    fails = "import sys; sys.exit('no')"
    assert lifecycle.children([show, fails]) == [(0, "[]\n", ""), (1, "", "no\n")]


def test_a_child_that_does_not_end_is_killed_in_time():
    started = time.monotonic()
    [(code, output, _)] = lifecycle.children(
        ["import time; print('up', flush=True); time.sleep(600)"], seconds=4.0
    )
    assert (code, output) == (None, "up\n")
    assert time.monotonic() - started < 300


def test_a_child_ends_with_the_process_that_started_it(tmp_path):
    name = tmp_path / "pid"
    lives = f"import os, time; open({str(name)!r}, 'w').write(f'{{os.getpid()}}.'); time.sleep(600)"
    starts = f"from meshmark.operations.processes import lifecycle; lifecycle.children([{lives!r}])"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", starts], cwd=ROOT, env=environment)
    try:
        assert until(lambda: name.exists() and name.read_text().endswith(".")), "it never lived"
        pid = int(name.read_text()[:-1])
        os.kill(pid, 0)
    finally:
        parent.kill()
        parent.wait()
    assert until(lambda: gone(pid))


@pytest.mark.parametrize(
    ("code", "output", "told"),
    [(0, "seen 1", 0), (1, "", 1), (-6, "", 1), (-11, "", 2), (None, "", 3), (1, "seen 2", 0)],
)
def test_how_a_wrong_start_ended(code, output, told):
    assert lifecycle.outcome(code, output) == told


def test_preferred_meshes_alone_have_what_depends_on_no_mesh():
    assert global_arrays.ordinary(meshes.preferred(8))
    assert not global_arrays.ordinary(MeshShape((8,)))
    assert not global_arrays.ordinary(MeshShape((2, 4), "interleaved"))


if __name__ == "__main__":
    judged(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
