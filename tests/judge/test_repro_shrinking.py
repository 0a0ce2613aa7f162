# SPDX-License-Identifier: Apache-2.0
"""The smallest script that still fails, with a fault in JAX in the processes that run it.

A sitecustomize.py in a directory of PYTHONPATH activates the fault in every child process, like a fault of an installed
JAX. One search starts its usual processes. The others fork one in which JAX is imported and has the fault.
"""

import os
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from meshmark.commands.main import main
from meshmark.judge.repro import shrink
from meshmark.judge.repro.shrink import elements, smaller
from meshmark.operations import cases
from tests.scripts import Scripts

PSUM = "psum/axes=x+y/manual/2x4/float32/4KiB"

HEAD = """
import functools, os, signal
import jax, jax.numpy as jnp
from jax import lax

def broken(owner, name):
    real = getattr(owner, name)
    def put_in(make):
        setattr(owner, name, functools.wraps(real)(make(real)))
    return put_in
"""

slow = pytest.mark.skipif(not os.environ.get("MESHMARK_SLOW"), reason="MESHMARK_SLOW=1 takes these too")

FAULTS = {
    "psum forgets the last device": """
@broken(lax, "psum")
def _(real):
    def psum(x, a, **k):
        return real(jnp.where(lax.axis_index(a) == lax.axis_size(a) - 1, jnp.zeros_like(x), x), a, **k)
    return psum
""",
    "psum is wrong for large numbers": """
@broken(lax, "psum")
def _(real):
    return lambda x, a, **k: real(jnp.where(abs(x) > 1000, x + 1, x), a, **k)
""",
    "psum is wrong for long arrays": """
@broken(lax, "psum")
def _(real):
    return lambda x, a, **k: real(x + 1 if x.size > 512 else x, a, **k)
""",
    "an extra gather": """
@broken(lax, "pmax")
def _(real):
    return lambda x, a, **k: jnp.max(lax.all_gather(real(x, a, **k), a, axis=0, to="invarying"), axis=0)
""",
    "three times the bytes": """
@broken(lax, "pmax")
def _(real):
    def pmax(x, a, **k):
        one, two, three = jnp.split(real(jnp.concatenate([x, x + 1, x + 2]), a, **k), 3)
        return jnp.minimum(one, jnp.minimum(two, three))
    return pmax
""",
    "one axis after the other": """
@broken(lax, "pmax")
def _(real):
    return lambda x, a, **k: real(real(x, "x", **k), "y", **k)
""",
    "a gather of twice the bytes": """
@broken(lax, "all_gather")
def _(real):
    def all_gather(x, a, *rest, **k):
        twice = real(jnp.stack([x, x]), a, *rest, **{**k, "axis": k.get("axis", 0) + 1})
        return lax.optimization_barrier(twice)[0]
    return all_gather
""",
    "rows that leave and return": """
@broken(jnp, "matmul")
def _(real):
    def matmul(a, b, **k):
        return real(jnp.flip(lax.optimization_barrier(jnp.flip(a, axis=-2)), axis=-2), b, **k)
    return matmul
""",
    "a sum that is gathered often": """
@broken(jnp, "sum")
def _(real):
    def total(x, *rest, **k):
        s = jax.typeof(x).sharding
        if s.mesh.empty or not s.mesh.are_all_axes_explicit:
            return real(x, *rest, **k)
        whole = jax.sharding.PartitionSpec()
        for i in range(40):
            x = lax.optimization_barrier(jax.sharding.reshard(x + 1 - i % 2 * 2, whole))
            x = lax.optimization_barrier(jax.sharding.reshard(x, s))
        return real(x, *rest, **k)
    return total
""",
    "a thousand copies": """
@broken(lax, "ppermute")
def _(real):
    def ppermute(x, a, perm):
        return real(lax.sort(jnp.broadcast_to(x, (1000, *x.shape)), dimension=0)[0], a, perm)
    return ppermute
""",
    "psum raises": """
@broken(lax, "psum")
def _(real):
    def psum(x, a, **k):
        raise ValueError("no such axis")
    return psum
""",
    "psum crashes": """
@broken(lax, "psum")
def _(real):
    return lambda x, a, **k: os.kill(os.getpid(), signal.SIGKILL)
""",
    "an error of twice the bound": """
@broken(lax, "pmean")
def _(real):
    return lambda x, a, **k: real(x, a, **k) * (1 + 4 * jnp.finfo(x.dtype).eps / 2)
""",
    "out_shardings are ignored": """
@broken(jax, "jit")
def _(real):
    return lambda *f, out_shardings=None, **k: real(*f, **k)
""",
}


@pytest.fixture(scope="module")
def sound():
    """Runs scripts with JAX as it is."""
    with Scripts() as scripts:
        yield scripts


@pytest.fixture
def with_fault(tmp_path, monkeypatch):
    """Puts a fault into the Python processes that are started. It gives what runs scripts with the fault; the search
    for a smaller case runs its own there too, unless it is to start processes as it always does."""
    servers = ExitStack()

    def put_in(name, forks=True):
        directory = tmp_path / "fault"
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(HEAD + FAULTS[name])
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(directory), os.environ["PYTHONPATH"]]))
        scripts = servers.enter_context(Scripts(os.environ, isolated=False))

        def run(runner, command, environment=None, text=""):
            with tempfile.TemporaryDirectory() as own:
                (Path(own) / "case.py").write_text(text)
                started = command if command[0] == "-m" else ["", *command]
                return scripts.started(started, Path(own), environment)

        if forks:
            monkeypatch.setattr(shrink.Runner, "run", run)
        return scripts

    with servers:
        yield put_in


def printed(capsys, case, *options):
    assert main(["repro", case, "--seconds", "200", *options]) == 0
    return capsys.readouterr()


def fails_with_the_fault_alone(text, tmp_path, broken, sound):
    """The output with the fault; without it the same script finds nothing."""
    seen = broken.run(text, tmp_path)
    assert seen.returncode == 1, seen.stdout + seen.stderr
    well = sound.run(text, tmp_path)
    assert well.returncode == 0 and "as expected" in well.stdout, well.stdout + well.stderr
    return seen.stdout


def test_a_psum_is_inlined_in_under_forty_lines(with_fault, sound, tmp_path, capsys, monkeypatch):
    """The JAX with the fault is found by a relative path too, though each candidate runs in a directory of its own."""
    broken = with_fault("psum forgets the last device", forks=False)
    monkeypatch.chdir(tmp_path)
    rest = os.environ["PYTHONPATH"].split(os.pathsep)[1:]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["fault", *rest]))
    seen = printed(capsys, PSUM)
    assert len(seen.out.splitlines()) < 40
    assert (
        "np.arange(1, 5, dtype=np.float32)" in seen.out
        and "expected = np.array([10], np.float32)" in seen.out
    )
    assert "expected 10.0, seen 6.0" in seen.out and "4KiB" in seen.out and "2x2/float32/4B" in seen.out
    assert "still fails" in seen.err and "meshmark:" not in seen.out
    output = fails_with_the_fault_alone(seen.out, tmp_path, broken, sound)
    assert len([line for line in output.splitlines() if "expected 10.0, seen 6.0" in line]) == 4


@slow
def test_values_that_matter_are_kept(with_fault, sound, tmp_path, capsys):
    broken = with_fault("psum is wrong for large numbers")
    text = printed(capsys, PSUM).out
    assert "np.arange(1, " not in text and "np.array([" in text and len(text.splitlines()) < 45
    fails_with_the_fault_alone(text, tmp_path, broken, sound)


def test_a_size_that_matters_is_kept(with_fault, sound, tmp_path, capsys):
    broken = with_fault("psum is wrong for long arrays")
    text = printed(capsys, PSUM).out
    assert "np.arange(1, " in text and "expected = x.sum(axis=0, keepdims=True)" in text
    assert len(text.splitlines()) < 40
    fails_with_the_fault_alone(text, tmp_path, broken, sound)


def test_a_communication_failure_shows_the_contract_and_exits_1(with_fault, sound, tmp_path, capsys):
    broken = with_fault("an extra gather")
    text = printed(capsys, "pmax/axes=x+y/manual/2x4/float32/4KiB").out
    assert len(text.splitlines()) < 40
    output = fails_with_the_fault_alone(text, tmp_path, broken, sound)
    assert "expected communication: all-reduce of 4096 B per device over [[0, 1, 2, 3, 4, 5, 6, 7]]" in output
    assert " all-reduce(" in output and " all-gather(" in output and "DIFFERENT" in output


def test_wrong_bytes_of_the_right_kind_are_read_in_a_few_lines(with_fault, sound, tmp_path, capsys):
    broken = with_fault("three times the bytes")
    text = printed(capsys, "pmax/axes=x+y/manual/2x4/float32/4KiB").out
    assert len(text.splitlines()) < 45
    output = fails_with_the_fault_alone(text, tmp_path, broken, sound)
    assert "expected 4096 B per device, compiled 12288 B" in output and "DIFFERENT" in output


def test_wrong_bytes_of_16_bits_are_read_in_a_few_lines(with_fault, sound, tmp_path, capsys):
    """A compiler may reduce 16 bits in 32, which is said."""
    broken = with_fault("three times the bytes")
    text = printed(capsys, "pmax/axes=x+y/manual/2x4/bfloat16/4KiB").out
    assert len(text.splitlines()) < 45
    output = fails_with_the_fault_alone(text, tmp_path, broken, sound)
    assert "expected 4096 B or 8192 B in 32 bits per device, compiled " in output and "DIFFERENT" in output


def test_wrong_groups_of_the_right_kind_are_read_in_a_few_lines(with_fault, sound, tmp_path, capsys):
    """The maximum over one axis after the other is right, and sends more."""
    broken = with_fault("one axis after the other")
    text = printed(capsys, "pmax/axes=x+y/manual/2x4/float32/4KiB").out
    assert len(text.splitlines()) < 70
    output = fails_with_the_fault_alone(text, tmp_path, broken, sound)
    lines = output.splitlines()
    assert "expected groups: [(0, 1, 2, 3, 4, 5, 6, 7)]" in lines and "DIFFERENT" in lines
    assert next(line for line in lines if line.startswith("compiled groups: ")).count("(0, 4)") == 1


@pytest.mark.parametrize(
    ("fault", "case", "most", "shown"),
    [
        (
            "a gather of twice the bytes",
            "all_gather/axes=x+y,dim=0,tiled/manual/2x4/float32/4KiB",
            55,
            "expected 32768 B per device, compiled 65536 B",
        ),
        (
            "rows that leave and return",
            "matmul/rows=x+y,check=exact/auto/2x4/float32/n64",
            45,
            " collective-permute(",
        ),
        (
            "a sum that is gathered often",
            "psum/axes=x+y/explicit/2x4/float32/4KiB",
            95,
            "B, and may send 86016 B",
        ),
        (
            "a thousand copies",
            "ppermute/axes=x+y,perm=ring/manual/2x4/float32/4KiB",
            50,
            " operations, and may compute ",
        ),
    ],
)
def test_each_kind_of_excess_is_shown_in_a_few_lines(
    with_fault, sound, tmp_path, capsys, fault, case, most, shown
):
    broken = with_fault(fault)
    text = printed(capsys, case).out
    assert len(text.splitlines()) < most
    assert shown in fails_with_the_fault_alone(text, tmp_path, broken, sound)


def test_an_exception_needs_no_numbers(with_fault, sound, tmp_path, capsys):
    broken = with_fault("psum raises")
    text = printed(capsys, PSUM).out
    assert len(text.splitlines()) < 40 and "ValueError: no such axis" in text and "np.zeros(" in text
    seen = broken.run(text, tmp_path)
    assert seen.returncode == 1 and "ValueError: no such axis" in seen.stderr
    assert sound.run(text, tmp_path).returncode == 0


@slow
def test_a_crash_ends_one_candidate_alone(with_fault, sound, tmp_path, capsys):
    broken = with_fault("psum crashes")
    seen = printed(capsys, PSUM)
    assert "execute: crash" in seen.err and "crash SIGKILL" in seen.err
    assert broken.run(seen.out, tmp_path).returncode == -9
    assert sound.run(seen.out, tmp_path).returncode == 0


def test_a_bound_is_judged_for_each_element(with_fault, sound, tmp_path, capsys):
    broken = with_fault("an error of twice the bound")
    text = printed(capsys, "pmean/axes=x/manual/6/float32/4KiB").out
    assert "bound[shard.index]" in text or "bound * abs(want)" in text
    fails_with_the_fault_alone(text, tmp_path, broken, sound)


def test_a_wrong_sharding_needs_no_numbers(with_fault, sound, tmp_path, capsys):
    broken = with_fault("out_shardings are ignored")
    seen = printed(capsys, "all_gather/axes=x+y,dim=0,tiled/auto/2x4/float32/4KiB")
    fails_with_the_fault_alone(seen.out, tmp_path, broken, sound)
    assert "sharding" in seen.out and len(seen.out.splitlines()) < 45


def test_a_case_that_passes_here_is_printed_whole(sound, tmp_path, capsys):
    seen = printed(capsys, PSUM)
    assert "passes here" in seen.err and seen.out == whole(capsys)
    assert sound.run(seen.out, tmp_path).returncode == 0


def whole(capsys):
    assert main(["repro", PSUM, "--no-run"]) == 0
    return capsys.readouterr().out


def test_no_run_starts_no_process(capsys, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert "random" not in whole(capsys) and "0x9E3779B97F4A7C15" in whole(capsys)


def test_the_time_is_bounded(capsys):
    assert main(["repro", PSUM, "--seconds", "0.2"]) == 0
    seen = capsys.readouterr()
    assert "longer than" in seen.err and seen.out == whole(capsys)


def test_without_a_device_the_whole_case_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "none")
    assert main(["repro", PSUM]) == 0
    seen = capsys.readouterr()
    assert "can't run here" in seen.err and seen.out == whole(capsys)


def test_too_few_devices_for_the_case_are_told(capsys, monkeypatch):
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "2")
    assert main(["repro", PSUM]) == 0
    assert "2 cpu devices" in capsys.readouterr().err


@pytest.mark.parametrize(
    "case",
    [
        PSUM,
        "matmul/rows=x,inner=y,check=exact/explicit/2x4/float32/n64",
        "ppermute/axes=x,perm=ring/pmap/8/float32/4KiB",
        "mlp_gradient/batch=x,model=y/manual/2x4/float32/n64",
    ],
)
def test_smaller_cases_are_smaller_and_of_the_same_kind(case):
    whole = cases.find(case, 8)
    found = smaller(whole)
    assert found and len(found) <= shrink.MOST
    assert [elements(c) for c in found] == sorted(elements(c) for c in found)
    for c in found:
        assert 0 < elements(c) < elements(whole) and 1 < c.mesh.size <= whole.mesh.size
        assert c.id.split("/")[:3] == whole.id.split("/")[:3] and c.cell.request.dtype == "float32"


@slow
@pytest.mark.parametrize(
    "operation", ["psum/axes=x+y", "matmul/rows=x,inner=y,check=exact", "cumsum/of=x.y,dim=0"]
)
def test_a_smaller_case_passes_where_nothing_is_wrong(sound, tmp_path, operation):
    size = "n64" if "matmul" in operation else "4KiB"
    case = smaller(cases.find(f"{operation}/auto/2x4/float32/{size}", 8))[0]
    for form in (shrink.Form(), shrink.Form(inputs="counted")):
        done = sound.run(shrink.script(case, case.mesh.size, 0, form), tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
