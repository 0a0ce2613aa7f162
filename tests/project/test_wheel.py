# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed with its dependencies in an empty environment and used outside of the checkout.

MESHMARK_WHEEL=1 makes the environment (`tox run -e wheel` sets it), which needs a package registry and about a minute.
The last test checks that no command has written into the installed package.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from meshmark.core import installation
from tests.checkout import ROOT
from tests.interrupts import interruptible

pytestmark = pytest.mark.skipif(
    os.environ.get("MESHMARK_WHEEL") != "1", reason="needs a package registry and a minute: tox run -e wheel"
)

CASE = "psum/axes=x+y/auto/2x4/float32/4KiB"
TIMED = ["--operations", "psum", "--modes", "auto,manual", "--meshes", "8", "--sizes", "64KiB"]


class Environment:
    """A new environment with the wheel, and a directory to work in that has nothing to do with the checkout."""

    def __init__(self, root):
        self.bin, self.work = root / "environment" / "bin", root / "work"
        self.work.mkdir()
        hidden = ("PYTHON", "PYTEST", "COV_", "VIRTUAL_ENV", "TOX", "JAX_NUM_CPU_DEVICES", "MESHMARK_")
        self.variables = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        self.variables |= {"JAX_PLATFORMS": "cpu", "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}
        self.suite = installation.suite()
        self.done([sys.executable, "-m", "venv", str(root / "environment")])
        self.done(["pip", "wheel", "-q", "--no-deps", "-w", str(root / "dist"), str(ROOT)])
        [wheel] = (root / "dist").glob("*.whl")
        # Compiled, so that no command has a reason to write into the package.
        self.done(["pip", "install", "-q", "--no-deps", "--compile", str(wheel)])
        self.done(["pip", "install", "-q", str(wheel), os.environ.get("MESHMARK_JAX", "jax")])
        said = self.done(["python", "-c", "import meshmark; print(meshmark.__file__)"])
        self.package = Path(said.strip()).parent
        self.installed = self.files()

    def done(self, command, code=0, cwd=None):
        """Run a command and give what it said; it must end with this exit code."""
        done = subprocess.run(
            command, cwd=cwd or self.work, env=self.variables, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == code, (
            f"{shlex.join(map(str, command))}: {done.returncode}\n{done.stdout[-4000:]}"
        )
        return done.stdout

    def meshmark(self, *arguments, code=0):
        """Run one command of the suite."""
        return self.done(["meshmark", *map(str, arguments)], code)

    def files(self):
        """Every file of the installed package with its time."""
        return {path: path.stat().st_mtime_ns for path in self.package.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def records(environment):
    """The records of the smoke profile."""
    said = environment.meshmark("test", "--profile", "smoke", "-q", "-n", "2", "--record", "smoke.jsonl")
    assert "records: smoke.jsonl" in said
    return environment.work / "smoke.jsonl"


@pytest.fixture(scope="module")
def timings(environment):
    """Two record files of one small benchmark."""
    for name in ("a.jsonl", "b.jsonl"):
        options = ["--seconds", "0.02", "--no-ceilings", "--record", name]
        assert "psum" in environment.meshmark("bench", *TIMED, *options)
    return ["a.jsonl", "b.jsonl"]


@pytest.fixture(scope="module")
def extras(environment, records):
    """What `submit`, `validate` and `report` need beside the wheel, installed by the commands that they name."""
    submit = ["submit", records, "--product", "wheel", "--by", "a test", "--level", "none", "--mark"]
    for arguments in ([*submit, "--output", "out"], ["report", ".", "--output", "page"]):
        said = environment.meshmark(*arguments, code=2)
        command = re.search(r"not installed: (pip install .*)", said)
        assert command and said.count("\n") == 1, said
        environment.done([*shlex.split(command[1]), "-q"])
    return environment


def test_it_is_not_the_checkout(environment):
    assert ROOT not in environment.package.parents
    assert environment.package.parent.name == "site-packages"


def test_the_suite_runs_with_its_provenance(environment, records):
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    suite = lines[0]["facts"]["suite"]
    assert suite == environment.suite, "as in the checkout, the digest of the package's files too"
    judged = [line for line in lines if line["kind"] == "conformance"]
    assert len({line["case"] for line in judged}) > 50
    assert {line["verdict"] for line in judged} <= {"pass", "known"}
    assert (environment.work / ".pytest_cache").is_dir(), "the cache lies where the user works"


def test_tests_have_the_names_that_they_have_in_a_checkout(environment):
    options = ["--profile", "smoke", "--collect-only", "-q"]
    installed = environment.meshmark("test", *options).splitlines()
    checkout = environment.done(
        ["python", "-m", "pytest", "conformance", "-p", "no:cacheprovider", *options], cwd=ROOT
    ).splitlines()
    nodes = [line for line in installed if "::" in line]
    assert len(nodes) > 50 and nodes == [line for line in checkout if "::" in line]
    assert f"conformance/test_collectives.py::test_collectives[{CASE}]" in nodes


def test_pytest_s_options_and_names_are_passed_on(environment):
    node = f"conformance/test_collectives.py::test_collectives[{CASE}]"
    assert "1 passed" in environment.meshmark("test", "--profile", "smoke", "-n", "0", node)
    assert re.search(
        r"6 passed, \d+ deselected",
        environment.meshmark("test", "--profile", "smoke", "-n", "0", "-k", "psum"),
    )
    said = environment.meshmark("test", "--profile", "smoke", "-k", "psum")
    assert "6 passed" in said and "largest worker" in said, "workers are the default, as in a checkout"
    assert "--topology" in environment.meshmark("test", "--help")
    assert "unrecognized arguments: --nothing" in environment.meshmark("test", "--nothing", code=4)
    assert "matches none" in environment.meshmark("test", "--profile", "smoke", "-k", "nothing", code=5)


def test_a_topology_names_the_extra_that_it_needs(environment):
    said = environment.meshmark("test", "--topology", "v5e:2x4", code=4)
    assert "libtpu, which is not installed: pip install 'jax[tpu]' 'flatbuffers>=24.3'" in said


def test_the_hunt_knows_its_findings(environment):
    said = environment.meshmark("hunt", "--replay", "update-slice-past-the-edge", code=1)
    assert "auto: numbers: result 0" in said and '"there": true' in said


def test_several_processes(environment):
    command = ["launch", "-n", "2", "--", "meshmark", "test", "--profile", "smoke", "-k", "psum", "-q"]
    said = environment.meshmark(*command, "--record", "ranks.jsonl")
    assert "6 passed" in said
    merged = environment.work / "ranks.jsonl"
    runs = [json.loads(line) for line in merged.read_text().splitlines()]
    assert runs[0]["ranks"] == 2 and runs[0]["facts"]["num_processes"] == 2
    merged.unlink()
    assert "6 cases of 2 ranks in ranks.jsonl" in environment.meshmark("merge", "ranks.jsonl")
    assert merged.is_file()


def test_a_vendor_s_own_counters_and_known_issues(environment):
    own = environment.work / "acme"
    own.mkdir()
    environment.done(["meshmark", "counters", "smoke.jsonl"], code=2)
    environment.done(["meshmark", "counters", "smoke.jsonl", "--output", "acme"])
    [file] = own.iterdir()
    file.write_text(f"{CASE}\t7 all-reduce 4096B 1x8\n")
    command = ["test", "--profile", "smoke", "-k", "psum", "-n", "1", "--counters", "acme"]
    assert "the committed counters are 7 all-reduce" in environment.meshmark(*command, code=1)


def test_devices_and_list(environment):
    assert "cpu" in environment.meshmark("devices")
    assert CASE in environment.meshmark("list", "--operations", "psum", "--cases")


def test_levels(environment, records):
    assert "virtual CPU devices" in environment.meshmark("levels", records, code=1), "smoke meets no level"
    assert CASE in environment.meshmark("levels", "--cases", "L1").splitlines()


def test_tables_and_diff(environment, records):
    assert "| psum" in environment.meshmark("tables", records)
    assert "0" in environment.meshmark("diff", records, records)


def test_bench_and_compare(environment, timings):
    said = environment.meshmark("compare", *timings)
    assert "compiled counters: the same" in said


def test_repro_prints_a_script_that_runs(environment):
    script = environment.work / "script.py"
    environment.done(["sh", "-c", f"meshmark repro '{CASE}' > script.py"])
    environment.done(["python", str(script)])


def test_growth_and_asv_doctor(environment):
    assert "usage: meshmark growth" in environment.meshmark("growth", "--help")
    benchmarks = environment.work / "benchmarks"
    benchmarks.mkdir()
    (benchmarks / "bench.py").write_text("import jax\n\nN = len(jax.devices())\n")
    assert "bench.py" in environment.meshmark("asv-doctor", benchmarks, code=1)


def test_explain_and_challenge(environment):
    said = environment.meshmark("explain", CASE)
    assert "all-reduce" in said and "In the end all 8 devices hold their part" in said
    environment.meshmark("challenge", "--output", "challenge.json", "--cases", "3")
    assert len(json.loads((environment.work / "challenge.json").read_text())["cases"]) == 3


def test_bisect_and_weather_name_what_they_cannot_use(environment, records):
    """Both install releases of JAX or compile for minutes, so the wheel runs them up to their first decision."""
    said = environment.meshmark("bisect", "no-such-finding", code=2)
    assert "unknown finding 'no-such-finding': there are" in said and said.count("\n") == 1
    said = environment.meshmark("weather", "--from", records, code=2)
    assert "the files hold no schedules" in said and said.count("\n") == 1


def test_serve(extras, records):
    """The page of the records, asked for once; Ctrl-C ends it."""
    command = ["meshmark", "serve", str(records), "--port", "0"]
    process = subprocess.Popen(
        interruptible(command), cwd=extras.work, env=extras.variables, stdout=subprocess.PIPE, text=True
    )
    try:
        address = process.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=300) as answer:
            assert b"What works where" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) in (0, 130)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_submit_validate_and_report(extras, records):
    submit = ["submit", records, "--product", "wheel", "--by", "a test", "--level", "none", "--mark"]
    assert "accepted" in extras.meshmark(*submit, "--output", "out")
    assert "accepted" in extras.meshmark("validate", "out")
    extras.meshmark("report", "out", "--output", "page")
    assert "meshmark test" in (extras.work / "page" / "index.html").read_text()


def test_no_command_has_written_into_the_installed_package(environment):
    assert environment.files() == environment.installed
