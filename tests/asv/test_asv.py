# SPDX-License-Identifier: Apache-2.0
"""Runs the real asv on commits of a small repository made from this one, in an environment that asv makes.

The commits are a base, one that changes nothing, one that makes psum slower in manual mode, and one that reverts that,
gives psum one more collective and adds an operation. Packages other than the harness are those of this interpreter,
through a .pth file.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.checkout import ROOT, SOURCE

pytest.importorskip("asv")
pytest.importorskip("virtualenv")

import jax
from asv.results import Results

from benchmarks import environment, table
from meshmark.asv.doctor import load_configuration

PSUM = "psum/axes=x+y/manual/2x4/float32/1MiB"
ADDED = "psum_again/axes=x+y/manual/2x4/float32/1MiB"
TIME, COLLECTIVES, BYTES = (
    "timing.Processes.track_call",
    "compiling.Counters.track_collectives",
    "compiling.Counters.track_wire_bytes",
)
BENCH = r"(track_call|track_collectives|track_wire_bytes)\('(psum|psum_again)/.*manual"
FACTOR = "20"
"""Above what a busy machine does to a process (asv saw one psum six times as fast as the same one in the process
before), below what was planted: 260 times on two cores."""

SLOW = """

def _slow(x, *, axes, groups):
    x = lax.fori_loop(0, 300, lambda i, y: jnp.flip(y, 1), x)
    return lax.psum(x, axes[0] if groups else axes, axis_index_groups=groups)


Psum.manual = staticmethod(_slow)
"""

MORE = """

def _more(x, *, axes, groups):
    n = len(axes) and lax.axis_size(axes)
    return lax.psum(lax.ppermute(x, axes, [(i, (i + 1) % n) for i in range(n)]), axes)


class PsumAgain(Psum):
    \"\"\"A sum, once more.\"\"\"

    name = "psum_again"


Psum.manual = staticmethod(_more)
"""

SHARE = """
import sysconfig
from pathlib import Path

# Under another name than in ASV_PYTHONPATH, for asv takes the directories of that out of sys.path again.
Path(sysconfig.get_path("purelib"), "shared.pth").write_text(str(Path("shared").absolute()))
"""


of_commits, of_the_checkout = pytest.mark.xdist_group("commits"), pytest.mark.xdist_group("checkout")
"""Tests of one group share their fixtures: with --dist loadgroup they run in one worker."""

OWN = ("setuptools", "_distutils_hack", "distutils-precedence", "pkg_resources", "pip", "wheel")
OWN += ("meshmark", "harness", "__editable__")
"""What an environment of asv has itself."""


class Repository:
    """The small repository and asv in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commits: dict[str, str] = {}

    def git(self, *arguments: str) -> str:
        names = {
            f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        environment = os.environ | names | {"GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(
            ["git", *arguments], cwd=self.path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, name: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", name)
        self.commits[name] = self.git("rev-parse", "HEAD")

    def asv(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ASV_") and k != "PYTHONPATH"}
        environment = kept | {
            "HOME": str(self.path.parent),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "MESHMARK_ASV_TIMES": "psum*/*/manual/*",
            "ASV_PYTHONPATH": str(
                self.path.parent / "packages"
            ),  # so that pip finds what is required installed
        }
        command = [sys.executable, "-m", "asv", *arguments]
        return subprocess.run(
            command,
            cwd=self.path,
            env=environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )

    def value(self, commit: str, benchmark: str, case_id: str) -> float:
        """A saved result: the median, NaN where it was skipped."""
        (file,) = (self.path / "build/asv/results/here").glob(f"{self.commits[commit][:8]}-*.json")
        results = Results.load(str(file), "here")
        (ids,) = results.get_result_params(benchmark)
        values = results.get_result_value(benchmark, [ids])
        return dict(zip(ids, values, strict=True))[repr(case_id)]

    def compared(self, old: str, new: str, factor: str) -> dict[str, str]:
        """The mark of each row of asv compare by benchmark: + is worse, - better."""
        done = self.asv("compare", "--factor", factor, self.commits[old], self.commits[new])
        assert done.returncode == 0, done.stdout
        return marks(done.stdout)


def marks(table: str) -> dict[str, str]:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line.startswith("|")
    ]
    return {row[-1]: row[0] for row in rows[2:]}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    made = Repository(tmp_path_factory.mktemp("asv") / "repository")
    made.path.mkdir()
    hidden = shutil.ignore_patterns("__pycache__", "test_*.py", "conftest.py")
    for name in ("harness", "benchmarks"):
        shutil.copytree(ROOT / name, made.path / name, ignore=hidden)
    timing = made.path / "benchmarks" / "timing.py"
    timing.write_text(timing.read_text().replace("PROCESSES = 6", "PROCESSES = 2"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, made.path / name)
    operations = made.path / "harness" / "meshmark" / "operations"
    text = (operations / "__init__.py").read_text()
    few = re.sub(r"PACKAGES = \([^)]*\)", 'PACKAGES = ("collectives",)', text)
    assert few != text
    (operations / "__init__.py").write_text(few)

    settings = load_configuration(ROOT / "asv.conf.json")
    settings["pythons"] = [f"{sys.version_info[0]}.{sys.version_info[1]}"]
    settings["matrix"]["req"] |= {"jax": [jax.__version__]}
    settings["install_command"].append("in-dir={conf_dir} python share.py")
    (made.path / "asv.conf.json").write_text(json.dumps(settings))
    (made.path / ".gitignore").write_text("shared\nbuild/\n__pycache__/\n*.egg-info/\n")
    (made.path / "share.py").write_text(SHARE)
    packages = made.path.parent / "packages"
    packages.mkdir()
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(OWN):
            (packages / package.name).symlink_to(package)
    (made.path / "shared").symlink_to(packages)

    made.git("init", "-q", "-b", "main")
    made.commit("base")
    with (made.path / "README.md").open("a") as readme:
        readme.write("\nMore words.\n")
    made.commit("same")
    module = operations / "collectives" / "all_reduce.py"
    plain = module.read_text()
    module.write_text(plain + SLOW)
    made.commit("slow")
    module.write_text(plain + MORE)
    made.commit("more")
    assert made.asv("machine", "--yes", "--machine", "here").returncode == 0
    return made


@pytest.fixture(scope="module")
def ran(repository):
    """The repository after asv ran on three of its commits."""
    file = repository.path.parent / "hashes"
    file.write_text("\n".join(repository.commits[name] for name in ("base", "same", "more")))
    done = repository.asv("run", "--show-stderr", "-a", "rounds=1", "--bench", BENCH, f"HASHFILE:{file}")
    assert done.returncode == 0, done.stdout
    return repository


@pytest.fixture(scope="module")
def continued(ran):
    """What asv continuous says of the slow commit."""
    commits = [ran.commits["same"], ran.commits["slow"]]
    bench = BENCH.replace("|track_wire_bytes", "")  # one counter shows that counters do not change
    return ran.asv("continuous", "--factor", FACTOR, "-a", "rounds=1", "--bench", bench, *commits)


@of_the_checkout
def test_check(repository):
    done = repository.asv("check")
    assert done.returncode == 0, done.stdout
    assert "No problems found." in done.stdout


@of_commits
def test_results_are_of_the_commits(ran):
    """An environment runs its commit's harness, and asv's checkout is not in the way."""
    assert ran.value("base", COLLECTIVES, PSUM) == 1
    assert ran.value("same", COLLECTIVES, PSUM) == 1
    assert ran.value("more", COLLECTIVES, PSUM) == 2
    assert ran.value("base", BYTES, PSUM) < ran.value("more", BYTES, PSUM)
    assert 0 < ran.value("base", TIME, PSUM) < 1


@of_commits
def test_a_new_operation_appears_by_itself(ran):
    """Named nowhere but in the table, it is benchmarked, and skipped for commits that lack it."""
    for benchmark in (TIME, COLLECTIVES, BYTES):
        assert math.isnan(ran.value("base", benchmark, ADDED))
        assert ran.value("more", benchmark, ADDED) > 0


@of_commits
def test_nothing_is_flagged_where_nothing_changed(ran):
    found = ran.compared("base", "same", FACTOR)
    assert len(found) >= 6
    assert set(found.values()) == {""}
    exact = ran.compared("base", "same", "1")
    assert {name for name, mark in exact.items() if mark and "Counters" in name} == set()


@of_commits
def test_the_collective_is_found(ran):
    """By counters, exactly, and in the program that has it alone."""
    found = ran.compared("same", "more", "1")
    worse = {name for name, mark in found.items() if mark == "+" and "Counters" in name}
    assert worse == {f"{COLLECTIVES}({PSUM!r})", f"{BYTES}({PSUM!r})"}


@of_commits
def test_the_slowdown_is_found(ran, continued):
    assert continued.returncode == 1, continued.stdout
    assert "PERFORMANCE DECREASED" in continued.stdout
    assert marks(continued.stdout) == {f"{TIME}({PSUM!r})": "+"}
    found = ran.compared("base", "slow", FACTOR)
    assert {name for name, mark in found.items() if mark} == {f"{TIME}({PSUM!r})"}


@of_commits
def test_publish(ran, continued):
    done = ran.asv("publish")
    assert done.returncode == 0, done.stdout
    html = ran.path / "build" / "asv" / "html"
    assert (html / "index.html").exists()
    index = json.loads((html / "index.json").read_text())
    assert {TIME, COLLECTIVES, BYTES} <= set(index["benchmarks"])
    which = index["benchmarks"][COLLECTIVES]["params"][0].index(repr(PSUM))
    graph = json.loads(next(html.glob(f"graphs/**/machine-here/**/{COLLECTIVES}.json")).read_text())
    assert [values[which] for _, values in graph] == [1, 1, 1, 2]


@of_the_checkout
def test_an_existing_interpreter_runs_the_checkout(repository):
    """Also where another harness is installed in it: the added operation is only in this checkout."""
    done = repository.asv(
        "run",
        "--quick",
        "--dry-run",
        "--show-stderr",
        "-E",
        "existing:same",
        "--bench",
        r"track_call\('psum_again/.*manual",
    )
    assert done.returncode == 0, done.stdout
    (row,) = (line for line in done.stdout.splitlines() if ADDED in line)
    assert re.search(r"\d(ms|μs|us|s)\s*$", row)


@of_the_checkout
def test_a_lying_label_fails_every_benchmark(repository):
    names = r"(track_call|track_collectives|peakmem_first_result|timeraw_first_result|time_compile)"
    arguments = ["--quick", "--dry-run", "--show-stderr", "-E", "existing:same"]
    arguments += ["--bench", names + r"\('psum/.*manual"]
    label = f"virtualenv-py{sys.version_info[0]}.{sys.version_info[1]}-jax0.0.1-numpy"
    done = repository.asv("run", *arguments, ASV_ENV_NAME=label)
    assert done.returncode == 2, done.stdout
    assert f"Mislabelled: the environment {label} runs jax {jax.__version__}" in done.stdout
    assert len(re.findall(rf"{re.escape(PSUM)} +failed", done.stdout)) == 3
    for name in ("track_call", "track_collectives"):
        assert f"{name} skipped (setup_cache failed)" in done.stdout


@of_the_checkout
def test_the_matrix_on_an_existing_interpreter_fails(repository):
    """--python=same files the results under the versions of the matrix, whatever runs."""
    bench = r"(track_call|track_collectives)\('psum/.*manual"
    done = repository.asv("run", "--dry-run", "--show-stderr", "--python=same", "--bench", bench)
    assert done.returncode == 2, done.stdout
    assert done.stdout.count("use -E existing:same") >= 2


@pytest.mark.parametrize(
    ("label", "wrong"),
    [
        ("virtualenv-py3.12-jax0.12.0.1-numpy-pytest", []),
        ("virtualenv-py3.12-jax0.12.0-numpy", ["jax 0.12.0.1"]),
        ("virtualenv-py3.1-jaxlib0.12.0.1", ["python 3.12.1"]),
        ("virtualenv-py3.12-jaxlib0.11.2-numpy2.4", ["jaxlib 0.12.0.1", "numpy 2.4.1"]),
        ("virtualenv-py3.12-myjax0.1", []),
        ("existing-py_usr_bin_python", []),
    ],
)
def test_labels(label, wrong):
    versions = {"py": "3.12.1", "jax": "0.12.0.1", "jaxlib": "0.12.0.1", "numpy": "2.4.1"}
    assert environment.mismatches(label, versions) == wrong


def test_the_package_must_be_the_environments(tmp_path):
    environment.installed("meshmark", str(tmp_path / "lib" / "meshmark" / "__init__.py"), str(tmp_path))
    with pytest.raises(environment.Mislabelled, match="meshmark is not the one installed"):
        environment.installed("meshmark", str(SOURCE / "meshmark" / "__init__.py"), str(tmp_path))
    with pytest.raises(environment.Mislabelled, match="meshmark is not"):
        environment.installed("meshmark", None, str(tmp_path))


def test_a_jax_of_another_commit_is_told():
    environment.built_from("0.11.1.dev20260808+cec06d116c", "cec06d116c" + 30 * "0")
    for version in ("0.11.1.dev20260808+cec06d116c", "0.11.0"):
        with pytest.raises(environment.Mislabelled, match="labels the commit 787b3a3e85"):
            environment.built_from(version, "787b3a3e85" + 30 * "1")


def test_parameters_are_literal_and_of_the_table():
    """The same whatever the number of devices, and each a case that can be found."""
    ids = table.listed()
    code = "from benchmarks import table; import json; print(json.dumps(table.listed()))"
    child = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "3", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(child.stdout) == ids
    of = {"counted": table.counted, "timed": table.timed, "few": table.few, "weather": table.weather}
    assert ids == {name: listed() for name, listed in of.items()}
    for case_id in {case_id for listed in ids.values() for case_id in listed}:
        assert environment.case(case_id).id == case_id
    with pytest.raises(NotImplementedError, match="unknown operation"):
        environment.case("no_such/axes=x/manual/2x4/float32/4KiB")


def test_importing_the_benchmarks_starts_no_backend():
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from benchmarks import compiling, starting, timing\n"
        "from jax._src import xla_bridge as b\n"
        "print(b.backends_are_initialized())"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "False"


def test_a_topology_must_be_in_the_label(monkeypatch):
    monkeypatch.setenv(environment.TOPOLOGY, "v5e:2x4")
    monkeypatch.setenv("ASV_ENV_NAME", "virtualenv-py3.12-numpy")
    with pytest.raises(environment.Mislabelled, match=r"MESHMARK_TOPOLOGY=v5e:2x4 is not in the label"):
        environment.compile_only_devices()
    from asv.environment import get_env_name

    label = get_env_name("virtualenv", "3.12", {}, {("nobuild", environment.TOPOLOGY): "v5e:2x4"})
    assert f"{environment.TOPOLOGY}{environment.filed('v5e:2x4')}" in label.split("-")


def test_only_the_package_may_lack_a_module(monkeypatch):
    """A missing dependency is a failure. It must not look like an older commit."""
    monkeypatch.setitem(environment.ROOMS, "no_such_module", "judge")
    with pytest.raises(NotImplementedError, match="no_such_module"):
        environment.module("no_such_module")
    with pytest.raises(NotImplementedError, match="no_such_name"):
        environment.module("cases", "no_such_name")
    monkeypatch.setattr(environment, "module_name", lambda name: "no_such_dependency")
    with pytest.raises(ModuleNotFoundError):
        environment.module("cases")


def test_commits_before_the_rooms_are_found_by_their_old_names(monkeypatch):
    """asv runs the benchmarks of today against the packages of older commits, which are called harness."""
    for name, room in environment.ROOMS.items():
        assert environment.module_name(name) == f"meshmark.{room}.{name}"
        assert (SOURCE / "meshmark" / room / f"{name}.py").exists()
    monkeypatch.setattr(environment, "package_under_test", lambda: "harness")
    assert environment.module_name("cases") == "harness.cases"
