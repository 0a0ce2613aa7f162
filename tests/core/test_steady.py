# SPDX-License-Identifier: Apache-2.0
"""Output that can't be written: the program goes on, and Python ends without a complaint."""

import io
import os
import shlex
import subprocess
import sys

import pytest

from meshmark.core.steady import Steady
from tests.checkout import ROOT
from tests.waiting import PATIENCE

SAY = """
import sys
from meshmark.core import steady
out = steady.standard_output()
for number in range(100_000):
    out.write(f"line {number}\\n")
out.flush()
print("went on", out.lost, file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize("shell", ["{} >&-", "{} 2>&-", "{} <&- >&- 2>&-"], ids=["output", "errors", "all"])
@pytest.mark.parametrize(
    ("words", "code"), [((), 0), (("levels", "nothing.jsonl"), 2), (("test", "--nonsense"), 4)]
)
def test_a_command_without_a_standard_stream_ends_as_with_one(shell, words, code, tmp_path):
    line = shlex.join([sys.executable, "-m", "meshmark", *words])
    variables = os.environ | {"PYTHONPATH": str(ROOT / "harness")}
    done = subprocess.run(
        ["bash", "-c", shell.format(line)], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == code and "Traceback" not in done.stdout + done.stderr, done


def test_a_package_that_does_not_fit_into_the_memory_is_told_in_a_line(tmp_path):
    """JAX's libraries need some hundred megabytes of addresses."""
    command = f"ulimit -v 200000; {shlex.quote(sys.executable)} -m meshmark levels nothing.jsonl"
    variables = os.environ | {"PYTHONPATH": str(ROOT / "harness")}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "give more memory (`ulimit -v`)" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_problem():
    with subprocess.Popen(
        [sys.executable, "-c", SAY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "line 0\n"
        child.stdout.close()
        assert child.stderr.read() == "went on \n"
        assert child.wait(PATIENCE) == 7


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no /dev/full")
def test_a_full_disk_is_told_and_the_program_goes_on():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", SAY], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 7
    told = "can't write the output: No space left on device"
    assert done.stderr == f"meshmark: {told}\nwent on {told}\n"


def test_a_character_that_the_locale_lacks_is_escaped():
    raw = io.BytesIO()
    steady = Steady(io.TextIOWrapper(raw, encoding="latin-1", write_through=True))
    steady.write("a → b")
    assert raw.getvalue() == b"a \\u2192 b"


def test_all_else_is_the_stream_s_own():
    stream = io.StringIO()
    steady = Steady(stream)
    steady.write("x")
    assert (steady.getvalue(), steady.silent, steady.lost) == ("x", False, "")
    stream.close()
    steady.write("y")
    assert steady.silent and not steady.lost


CLOSED = """
import os, sys
from meshmark.core import steady
out = steady.standard_output()
file = open(sys.argv[1], "w")
assert file.fileno() > 2, file.fileno()
out.write("to nobody"), print("to nobody", file=sys.stderr), os.write(1, b"to nobody")
out.flush()
"""


def test_standard_streams_that_are_closed_are_no_other_file_s(tmp_path):
    shut = "import os, sys; os.closerange(0, 3); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", CLOSED, str(tmp_path / "records")]
    done = subprocess.run([sys.executable, "-c", shut, *command], cwd=ROOT / "harness")
    assert done.returncode == 0
    assert (tmp_path / "records").read_text() == ""
