# SPDX-License-Identifier: Apache-2.0
"""The command line: its output, its exit codes, and one clear line for each kind of error."""

import json
import math
import os
import re
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshmark import __version__
from meshmark.commands.main import main
from meshmark.core import installation
from meshmark.devices import advice
from meshmark.devices import probe as devices
from meshmark.devices.facts import Facts
from meshmark.operations import OPERATIONS
from meshmark.operations.selection import CAPABILITIES
from meshmark.operations.weights import PROFILES
from tests.checkout import ROOT


def meshmark(*arguments, **environment):
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["list", "--profile", "huge"], ["'huge'", "standard"]),
        (["list", "--operations", "psumm"], ["'psumm'", "did you mean psum?", "meshmark list"]),
        (["list", "--modes", "automatic"], ["'automatic'", "did you mean auto?"]),
        (["list", "--meshes", "16"], ["mesh 16", "2x4"]),
        (["list", "--meshes", "two"], ["'two'", "2x4"]),
        (["list", "--dtypes", "float33"], ["'float33'", "float32"]),
        (["list", "--sizes", "5KiB"], ["'5KiB'", "4KiB"]),
        (["list", "--level", "L9"], ["'L9'", "L1"]),
        (["list", "--with", "magic"], ["'magic'", *list(CAPABILITIES)[:3], "meshmark list"]),
        (["list", "--num-devices", "none"], ["'none'"]),
        (["repro", "psum"], ["'psum'", "meshmark list"]),
        (["repro", "psum/axes=q/manual/2x4/float32/4KiB"], ["axes=q", "meshmark list"]),
        (["repro", "psum/axes=x/manual/99999x99999/float32/4KiB"], ["99999x99999"]),
        (["repro", "psum/axes=x+y/manual/2x4/float32/4KiB", "--seed", "-1"], ["-1"]),
        (["repro", "psum/axes=x+y/manual/2x4/float32/4KiB", "--num-devices", "99999999"], ["16384"]),
        (["repro", "psum/axes=x+y/manual/2x4/float32/999999999999GiB", "--no-run"], ["not enough memory"]),
        (["explain", "psum/axes=x+y/manual/2x4/float32/4KiB", "--devices", "0,99"], ["99", "0 to 7"]),
        (["compare", "a.jsonl", "b.jsonl", "--operations", "psum"], ["--operations", "record files"]),
        (["compare", "a.jsonl", "b.jsonl", "--cases", "nonsense"], ["--cases", "record files"]),
        (["levels", "--num-devices", "4"], ["--num-devices", "--cases"]),
        (["hunt", "--replay", "cast-dropped-from-a-product"], ["cast-dropped", "repro.py"]),
        (["explain", "put_get/to=x.y/host/2x4/float32/4KiB"], ["put_get/to=x.y", "meshmark repro"]),
        (["bisect", "missing", "--oldest", "new"], ["'new'", "0.4.30"]),
        (["tables", "missing.jsonl"], ["missing.jsonl"]),
        (["tables", "pyproject.toml"], ["pyproject.toml"]),
        (["tables", "harness"], ["harness"]),
        (["tables", "x", "--format", "pdf"], ["pdf", "md"]),
        (["diff", "missing.jsonl", "missing.jsonl"], ["missing.jsonl"]),
        (["devices", "--num-devices", "0"], ["'0'"]),
        (["dance"], ["dance", "meshmark --help"]),
    ],
)
def test_bad_input_is_named(arguments, names, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    try:
        code = main(arguments)
    except SystemExit as stopped:  # argparse
        code = stopped.code
    seen = capsys.readouterr()
    assert code == 2
    assert seen.out == ""
    lines = set(seen.err.splitlines())
    assert len(lines) == 1 and all(name in seen.err for name in names), seen.err
    assert "Traceback" not in seen.err


def test_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    told = capsys.readouterr().out
    assert stopped.value.code == 0 and told == f"{installation.describe_version()}\n"
    assert told.startswith(f"meshmark {__version__}, ") and told.count("\n") == 1


def test_a_terminal_obeys_no_complaint(capsys):
    assert main(["repro", "\x1b[2J/a/b"]) == 2
    assert "\x1b" not in capsys.readouterr().err


# list


def test_list_has_a_row_an_operation(capsys):
    assert main(["list", "--profile", "full", "--with", ",".join(CAPABILITIES), "--num-processes", "2"]) == 0
    out = capsys.readouterr().out.splitlines()
    over = [line.split()[0] for line in out if re.match(r"\w+  \(", line)]
    assert out[-1].startswith(f"{len(over)} operations, ")
    assert main(["list", "--profile", "full", "--with", ",".join(CAPABILITIES)]) == 0
    alone = [line.split()[0] for line in capsys.readouterr().out.splitlines() if re.match(r"\w+  \(", line)]
    assert alone == [name for name, operation in OPERATIONS.items() if not operation.processes]
    # Some operations are of one process alone, such as refusals: each has a row in one of the two lists.
    assert over == [name for name in OPERATIONS if name in over] and {*over, *alone} == {*OPERATIONS}
    assert main(["list", "--num-processes", "3"]) == 2
    assert "3 processes can't share 8 devices equally" in capsys.readouterr().err
    assert main(["list", "--num-processes", "2", "--meshes", "1x4"]) == 2
    assert "mesh 1x4 leaves a process without a device" in capsys.readouterr().err


def test_list_is_filtered_and_counts_its_cases(capsys):
    chosen = ["list", "--profile", "smoke", "--operations", "psum,pmax", "--modes", "manual"]
    assert main([*chosen, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["operation"] for r in rows] == ["psum", "pmax"]
    assert all(r["modes"] == ["manual"] and r["description"] for r in rows)
    assert main([*chosen, "--cases"]) == 0
    ids = capsys.readouterr().out.splitlines()
    assert len(ids) == sum(r["cases"] for r in rows)
    assert all(len(i.split("/")) == 6 for i in ids)
    assert main([*chosen, "--cases", "--json"]) == 0
    assert [c["case"] for c in json.loads(capsys.readouterr().out)] == ids


def test_list_takes_names_of_operations(capsys):
    assert main(["list", "psum", "--operations", "pmax", "--modes", "pmap", "--meshes", "8", "--cases"]) == 0
    assert {i.split("/")[0] for i in capsys.readouterr().out.splitlines()} == {"psum", "pmax"}
    assert main(["list", "sum"]) == 2 and "did you mean" in capsys.readouterr().err


def test_list_of_nothing(capsys):
    assert main(["list", "--operations", "axis_index", "--modes", "auto"]) == 0
    told = capsys.readouterr()
    assert "0 operations, 0 cases" in told.out and "no case is chosen" in told.err
    assert (
        main(["list", "--cases", "--operations", "all_gather", "--dtypes", "complex64", "--profile", "full"])
        == 0
    )
    told = capsys.readouterr()
    assert not told.out and "add --with complex" in told.err


def test_list_why_gives_every_missing_spelling_a_reason(capsys):
    assert main(["list", "--why", "--operations", "psum,axis_index", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(r["reason"] and r["where"] for r in rows)
    missing = {(r["operation"], r["mode"]): r["where"] for r in rows}
    assert missing["axis_index", "auto"] == missing["axis_index", "pmap"] == "everywhere"
    assert missing["psum", "host"]
    assert missing["psum", "manual"] != "everywhere"


def test_help_names_every_command_and_option(capsys):
    for command, words in {
        "--help": ("devices", "list", "tables", "repro", "diff"),
        "list": (
            "--profile",
            "--level",
            "--with",
            "--operations",
            "--modes",
            "--meshes",
            "--dtypes",
            "--sizes",
        ),
        "tables": ("--output", "--format"),
    }.items():
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"] if command != "--help" else [command])
        text = capsys.readouterr().out
        assert stopped.value.code == 0 and all(word in text for word in words)


# No backend, no traceback


def test_commands_start_no_backend():
    for arguments in (["list"], ["repro", "psum/axes=x+y/manual/2x4/float32/4KiB"]):
        done = meshmark(*arguments, JAX_PLATFORMS="nowhere")
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_devices_without_a_backend_is_one_line():
    done = meshmark("devices", JAX_PLATFORMS="nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and "JAX_PLATFORMS" in done.stderr


def test_a_closed_pipe_is_silent():
    command = f"{sys.executable} -m harness list --profile full --cases | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


# devices


def test_devices_as_json():
    done = meshmark("devices", "--num-devices", "6", "--json", JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["facts"]["num_devices"] == 6 and found["facts"]["virtual"] is True
    assert list(found["meshes"]) == list(PROFILES) and "2x3" in found["meshes"]["smoke"]
    assert {a["parallelism"] for a in found["advice"]} >= {"data", "tensor", "pipeline", "expert"}


def facts(devices, processes=1, coords=None):
    local = devices // processes
    return Facts(
        versions={"jax": "0.12.0.1", "jaxlib": "0.12.0.1", "numpy": "2", "python": "3.12"},
        backend="tpu" if coords else "cpu",
        device_kind="a kind",
        num_devices=devices,
        num_processes=processes,
        devices=[
            {"id": i, "process": i // local, "coords": coords[i] if coords else []} for i in range(devices)
        ],
        flags={},
        host={},
    )


@pytest.mark.parametrize(
    ("devices", "processes"), [(n, p) for n in range(1, 33) for p in (1, 2, 4) if n % p == 0]
)
def test_advice_uses_every_device_once(devices, processes):
    for a in advice.advise(facts(devices, processes)):
        assert math.prod(a.shape) == devices and len(a.axes) == len(a.shape) and a.why
    assert advice.notes(facts(devices, processes))


def shape_of(found, parallelism):
    return next(a.shape for a in found if a.parallelism == parallelism)


def test_tensor_axes_stay_within_a_process():
    found = advice.advise(facts(16, processes=4))
    assert shape_of(found, "tensor") == (4, 4)
    assert shape_of(found, "fully sharded data") == (4, 4)
    assert shape_of(found, "pipeline") == (4, 4)


def test_a_torus_sets_the_tensor_axis():
    coords = [[x, y, 0] for x in range(4) for y in range(4)]
    found = facts(16, coords=coords)
    assert advice.torus(found) == (4, 4)
    assert shape_of(advice.advise(found), "tensor") == (4, 4)
    assert any("4x4" in note for note in advice.notes(found))


def test_a_prime_number_of_devices_is_told():
    tensor = next(a for a in advice.advise(facts(7)) if a.parallelism == "tensor")
    assert tensor.shape == (1, 7) and "7" in tensor.why


def test_devices_as_text(monkeypatch, capsys):
    monkeypatch.setattr(devices, "probe", lambda *_: facts(8, 2, [[i, 0, 0] for i in range(8)]))
    assert main(["devices", "--num-devices", "4"]) == 0
    seen = capsys.readouterr()
    assert "--num-devices is ignored on backend tpu" in seen.err
    assert "smoke     2x4" in seen.out and "tensor: 2x4 (data, model)" in seen.out and "7,0,0" in seen.out


# repro


def test_repro_takes_a_case_of_more_devices(capsys):
    assert main(["repro", "psum/axes=x+y/manual/4x4/float32/4KiB"]) == 0
    assert '"jax_num_cpu_devices", 16' in capsys.readouterr().out


WORDS = [
    *(
        "list",
        "tables",
        "repro",
        "diff",
        "--json",
        "--cases",
        "--why",
        "--profile",
        "smoke",
        "--meshes",
        "2x4",
    ),
    *(
        "--operations",
        "psum",
        "--num-devices",
        "8",
        "-1",
        "--seed",
        "--format",
        "md",
        "--modes",
        "auto",
        "--level",
    ),
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=6))
def test_no_command_line_gives_a_traceback(capsys, argv):
    """Any words end with a known exit code; bad input says so in one line."""
    if "devices" in argv or any(word.startswith("-o") or word.startswith("--o") for word in argv):
        argv = ["list"]
    try:
        code = main(argv)
    except SystemExit as end:
        code = end.code
    seen = capsys.readouterr()
    assert code in (0, 1, 2)
    assert code != 2 or len(seen.err.strip().splitlines()) >= 1
    assert "Traceback" not in seen.err
