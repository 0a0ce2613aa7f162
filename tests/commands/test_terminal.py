# SPDX-License-Identifier: Apache-2.0
"""Output on a terminal: lines that fit, verdicts in colour, the nearest names, and one line if JAX is missing."""

import io
import os
import pty
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from meshmark.commands.main import COMMANDS, main
from meshmark.core import terminal
from meshmark.core.errors import unknown
from meshmark.core.installation import PACKAGE
from meshmark.core.text import text_table, wrap
from meshmark.pytest_plugin import controller
from tests.checkout import ROOT

NEW = "results/0.12.0.1/cpu-8-virtual"
OLD = "results/0.11.2/cpu-8-virtual"
QUICK = ("--seconds", "0.01", "--no-ceilings")
COMPILED = "results/compile-only/{}/v5e.2x4.jsonl"


@pytest.fixture
def eighty(monkeypatch):
    """A terminal of 80 columns, in the checkout."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)


def too_wide(text, width=80):
    """The lines that are wider, though they could be broken: a word alone stays whole, such as a case id."""
    return [line for line in text.splitlines() if len(line) > width and len(line.split()) > 1]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["list"],
        ["list", "--why", "--meshes", "2x4"],
        ["diff", f"{OLD}/conformance.jsonl.gz", f"{NEW}/conformance.jsonl.gz"],
        ["diff", "--compiled", COMPILED.format("0.11.2"), COMPILED.format("0.12.0.1")],
        ["levels"],
        ["levels", f"{NEW}/conformance.jsonl.gz"],
        ["compare", f"{NEW}/timing.jsonl.gz", f"{NEW}/timing.jsonl.gz"],
        *([name, "--help"] for name in COMMANDS if name != "test"),
    ],
    ids=" ".join,
)
def test_output_fits_eighty_columns(arguments, eighty, capsys):
    try:
        main(arguments)
    except SystemExit as ended:  # --help
        assert ended.code == 0
    out = capsys.readouterr().out
    assert out and not too_wide(out)


def test_devices_and_bench_fit_eighty_columns(eighty):
    for arguments in (
        ["devices"],
        [
            "bench",
            *[
                "--operations",
                "psum",
                "--meshes",
                "2x4",
                "--sizes",
                "4KiB",
                "--seconds",
                "0.01",
                "--no-ceilings",
            ],
        ],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "harness", *arguments], capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout and not too_wide(done.stdout)


UNKNOWN = "--operations", "a_name_that_nobody_has_given_to_an_operation_yet"


@pytest.mark.parametrize("command", ["test", "list"])
def test_an_error_fits_a_terminal_and_is_one_line_in_a_log(command, eighty):
    """The command `test` prints its errors through pytest, and all others by themselves."""
    ours, theirs = pty.openpty()
    arguments = [sys.executable, "-m", "harness", command, *UNKNOWN]
    log = subprocess.run(arguments, capture_output=True, text=True).stderr
    done = subprocess.run(
        arguments, stdout=subprocess.DEVNULL, stderr=theirs, env=os.environ | {"NO_COLOR": "1"}
    )
    os.close(theirs)
    shown = os.read(ours, 10_000).decode().replace("\r\n", "\n")
    os.close(ours)
    assert done.returncode in (2, 4)
    assert log.count("\n") == 1 + (command == "test") and too_wide(log), log
    assert len(shown.strip().splitlines()) > 1 and not too_wide(shown), shown
    assert shown.split() == log.split()


def test_a_line_that_is_too_wide_is_found():
    assert too_wide("x " * 41) and not too_wide("x" * 90)


def test_ids_and_json_are_not_wrapped(monkeypatch, capsys):
    """What other programs read is the same at every width."""
    for arguments in (
        ["list", "--cases", "--operations", "psum"],
        ["list", "--json", "--operations", "psum"],
    ):
        outs = []
        for columns in ("40", "200"):
            monkeypatch.setenv("COLUMNS", columns)
            assert main(arguments) == 0
            outs.append(capsys.readouterr().out)
        assert outs[0] == outs[1]


def test_a_table_becomes_narrower_step_by_step():
    header = ["case", "auto", "auto/manual", "rate"]
    row = ["psum axes=x 8 float32", "1.23 ms ±12%", "1.02 (0.98-1.07)", "12.3 GB/s bus"]
    whole = text_table(header, [row])
    assert text_table(header, [row], max(map(len, whole))) == whole
    for width in range(20, len(whole[-1])):
        lines = text_table(header, [row], width)
        assert not [line for line in lines if len(line) > max(width, len(row[0]))]
        told = " ".join(" ".join(lines).split())
        assert all(word in told for cell in row for word in cell.split())
    assert any("1.23 ms" in line for line in text_table(header, [row], 50))  # a figure keeps its unit


def test_wrapped_lines_hang_and_keep_words_whole():
    assert wrap("  a bb ccc", 7) == ["  a bb", "    ccc"]
    assert wrap("psum/axes=x+y/manual/2x4 fails", 10) == ["psum/axes=x+y/manual/2x4", "  fails"]


# Colour


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_verdicts_have_colours_in_a_terminal_alone(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    line = "psum/fail/auto  pass  fail  no-fail"
    for stream, colours in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stdout", stream)
        terminal.show([line], verdicts=True)
        painted = "psum/fail/auto  \x1b[32mpass\x1b[0m  \x1b[31mfail\x1b[0m  no-fail\n"
        assert stream.getvalue() == (painted if colours else f"{line}\n")
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not terminal.has_colours(Terminal())


# Names


def test_the_nearest_names_are_offered():
    many = [f"operation{i}" for i in range(60)] + ["psum", "pmean"]
    assert unknown("operation", "psumm", many, "meshmark list") == (
        "unknown operation 'psumm': did you mean psum? (see `meshmark list`)"
    )
    assert unknown("operation", "PSUM", many).endswith("did you mean psum?")
    assert len(unknown("operation", "q" * 500, many)) < 200
    assert unknown("level", "gold", ["L0", "L1"]) == "unknown level 'gold': choose from L0, L1"


@pytest.mark.parametrize(
    ("arguments", "offer"),
    [
        (["lst"], "did you mean list?"),
        (["list", "--operatons", "psum"], "did you mean --operations?"),
        (["list", "--operations", "psumm"], "did you mean psum?"),
        (["list", "--modes", "maual"], "did you mean manual"),
        (["list", "--dtypes", "flot32"], "did you mean float32"),
        (["list", "--sizes", "4kib"], "did you mean 4KiB"),
        (["list", "--level", "l1"], "did you mean L1"),
        (["list", "--with", "complx"], "did you mean complex?"),
        (["list", "--profile", "standart"], "did you mean standard?"),
        (["list", "--meshes", "2x5"], "would fit (see `meshmark list`)"),
        (["repro", "psum/axes=z/manual/2x4/float32/4KiB"], "did you mean psum/axes="),
        (["levels", "--cases", "L9"], "choose from L0"),
        (["bench", "--cadence", "steam"], "did you mean stream?"),
        (["growth", "v5p", "--modes", "aut"], "did you mean auto?"),
        (["tables", "x", "--format", "mdd"], "did you mean md?"),
        (["compare", "a", "b", "--fail-on", "slow"], "did you mean slower?"),
    ],
)
def test_an_unknown_name_offers_the_nearest(arguments, offer, capsys):
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr().err
    assert code == 2 and told.count("\n") == 1 and offer in told and len(told) < 330, told


# JAX is missing

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
COMMAND = "from meshmark.commands.main import main; sys.exit(main(sys.argv[1:]))"
PYTEST = "import pytest; sys.exit(pytest.main(sys.argv[1:]))"


def without_jax(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + code, *arguments], capture_output=True, text=True, cwd=ROOT
    )


@pytest.mark.parametrize(
    "command", ["test", "list", "devices", "bench", "repro", "levels", "validate", "tables"]
)
def test_a_command_without_jax_says_so_in_one_line(command):
    done = without_jax(COMMAND, command, "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "JAX is not installed" in done.stderr
    assert "pip install jax" in done.stderr


def test_pytest_without_jax_says_so_in_one_line():
    done = without_jax(PYTEST, "conformance", "--profile", "smoke")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert [line for line in (done.stdout + done.stderr).splitlines() if line] == [
        f"ERROR: meshmark: JAX is not installed in {sys.executable}: pip install jax (or the JAX of your accelerator)"
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--help"], "COMMAND"),
        (["diff", f"{NEW}/conformance.jsonl.gz", f"{NEW}/conformance.jsonl.gz"], "0 changed"),
        (["asv-doctor", "benchmarks"], "no known pitfall"),
        (["merge", "--help"], "FILE"),
    ],
)
def test_what_needs_no_jax_works_without_it(arguments, says):
    done = without_jax(COMMAND, *arguments)
    assert done.returncode == 0 and says in done.stdout, done.stderr


# pytest's own lines


def conformance(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | environment,
    )


@pytest.mark.parametrize("workers", ["0", "1"])
def test_k_that_matches_nothing_says_so(workers):
    done = conformance(
        "conformance", "--profile", "smoke", "--operations", "psum", "-k", "nonsense", "-n", workers
    )
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert re.search(r"meshmark: -k 'nonsense' matches none of the [1-9]\d* chosen cases: ", done.stdout)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("test_coletives.py", "unknown file of tests 'test_coletives.py': did you mean test_collectives.py"),
        ("test_collectives.py::test_collectives[psum/axes=x/auto/8/float32/4KB]", "did you mean psum/axes="),
        ("test_collectives.py::test_collectives[psum/axes=x/auto/8/float32/4KiB]", ""),
        ("test_collectives.py", ""),
    ],
)
def test_a_name_that_the_suite_does_not_have_says_so(named, says):
    """pytest with workers would end without a reason (`meshmark test` prints this one)."""
    case = SimpleNamespace(case=SimpleNamespace(id="psum/axes=x/auto/8/float32/4KiB"))
    given = f"{PACKAGE / 'conformance'}/{named}"
    config = SimpleNamespace(args=[given], stash={controller.TRIALS: {"collectives": [case]}})
    found = controller.find_unknown_name(config)
    assert says in found and bool(found) == bool(says)


def test_the_help_and_complaints_of_pytest_name_the_command():
    words = [sys.executable, "-m", "harness", "test", "--bogus"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 4 and "meshmark test: error: unrecognized arguments: --bogus" in done.stderr


def test_an_empty_list_of_names_does_not_choose_everything(capsys):
    with pytest.raises(SystemExit):
        main(["list", "--operations", " , "])
    assert "--operations: it has no name: write one" in capsys.readouterr().err


PLANTED = """
from meshmark.operations import OPERATIONS
from meshmark.operations.collectives.all_reduce import Psum

pytest_plugins = ["meshmark.pytest_plugin.plugin"]

class Lost(Psum):
    name = "lost"

    @staticmethod
    def manual(x, *, axes, groups):
        return Psum.manual(x, axes=axes, groups=groups) + 1  # the planted fault

OPERATIONS["lost"] = Lost()
"""


BROKEN = """
import pytest
from meshmark.conformance.test_collectives import test_collectives

@pytest.fixture(autouse=True)
def device(case):
    if case.case.operation.name == "pmean":
        raise RuntimeError("no device is left")
"""


@pytest.mark.parametrize(("workers", "in_ci"), [("0", ""), ("1", "1")])
def test_the_short_summary_carries_the_reason(tmp_path, workers, in_ci):
    """Each line begins with the reason: of a failed check, and of an error while the test is set up."""
    (tmp_path / "conftest.py").write_text(PLANTED)
    (tmp_path / "test_collectives.py").write_text(BROKEN)
    chosen = ["--operations", "lost,pmean", "--meshes", "2x4", "--modes", "manual", "--profile", "smoke"]
    place = [str(tmp_path), "-c", "/dev/null", "--rootdir", str(tmp_path), "-n", workers]
    done = conformance(*place, *chosen, CI=in_ci, BUILD_NUMBER="", COLUMNS="80")
    assert done.returncode == 1, done.stdout + done.stderr
    summary = done.stdout.partition("= short test summary info =")[2].splitlines()[1:-1]
    assert [line.split()[:2] for line in summary] == [["FAILED", "numbers:"], ["ERROR", "RuntimeError:"]]
    if in_ci:
        assert "1024 of 1024 elements differ on cpu:0 (shard " in summary[0]
        assert summary[0].endswith(" - lost/axes=x+y/manual/2x4/float32/4KiB")
        assert "no device is left - pmean/" in summary[1]
    else:
        assert "1024 of 1024" in summary[0] and "no device is le" in summary[1]
        assert not [line for line in summary if len(line) > 80], summary
    assert "a script that repeats it: meshmark repro" in done.stdout.partition("= meshmark =")[0]
