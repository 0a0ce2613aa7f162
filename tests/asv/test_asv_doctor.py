# SPDX-License-Identifier: Apache-2.0
"""`meshmark asv-doctor` finds each known pitfall in a file that has it, and none in other files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.asv import doctor as asv_doctor
from meshmark.asv.doctor import examine
from meshmark.asv.pitfalls import PITFALLS, DoctorError
from meshmark.commands.main import main
from tests.checkout import ROOT

HEAD = "import jax\nimport jax.numpy as jnp\nfrom jax import lax\n"

WITH = {  # each file holds one pitfall, in the line that ends with # here
    "number-one": [
        """
class Sum:
    def setup(self):
        self.x = made()
    def time_sum(self):  # here
        jax.block_until_ready(f(self.x))
""",
        """
class Base:
    def setup(self):
        self.x = made()
class Sum(Base):
    repeat = 5
    def time_sum(self):  # here
        jax.block_until_ready(f(self.x))
""",
        """
def setup():
    pass
def time_sum():  # here
    f().block_until_ready()
""",
        """
def time_sum():  # here
    f().block_until_ready()
time_sum.setup = made
def made():
    pass
""",
    ],
    "setup-compiles": [
        """
class Sum:
    number = 1
    repeat = 20
    def setup(self):
        self.f = jax.jit(g).lower(1.0)  # here
    def time_sum(self):
        jax.block_until_ready(self.f(1.0))
""",
        """
class Sum:
    number, repeat = 1, 20
    number = 1
    repeat = 20
    def setup(self):
        self.f = lowered().compile()  # here
    def time_sum(self):
        jax.block_until_ready(self.f(1.0))
""",
    ],
    "device-query": [
        "DEVICES = jax.devices()  # here\n",
        "import jax as j\nif True:\n    KIND = j.default_backend()  # here\n",
        "from jax import device_count\nN = device_count()  # here\n",
        "class A:\n    x = jnp.ones(3)  # here\n",
        "def f(x=jax.random.key(0)):  # here\n    pass\n",
        "def made():\n    return helped()\ndef helped():\n    return jax.local_devices()\nX = made()  # here\n",
        "X = [d.id for d in jax.devices()]  # here\n",
    ],
    "params-devices": [
        "import os\nclass A:\n    params = list(range(os.cpu_count()))  # here\n",
        "import os\nN = os.cpu_count()\ndef f(n):\n    pass\nf.params = [N]  # here\n",
        "import os\ndef sizes():\n    return range(os.cpu_count())\nclass A:\n    params: list = [*sizes()]  # here\n",
    ],
    "unblocked": [
        "class A:\n    def time_f(self):  # here\n        f(1)\n",
        "def time_f():  # here\n    jnp.asarray([1])\n",
        "class A:\n    def go(self):\n        return f(1)\n    def time_f(self):  # here\n        self.go()\n",
    ],
    "late-variable": [
        'import os\nos.environ["JAX_NUM_CPU_DEVICES"] = "8"  # here\n',
        'import os\nos.environ.setdefault("JAX_PLATFORMS", "cpu")  # here\n',
    ],
    "rate": [
        'class A:\n    unit = "GB/s"  # here\n    def track_bandwidth(self):\n        return 1\n',
        'def track_f():\n    return 1\ntrack_f.unit = "TFLOP/s"  # here\n',
        'class A:\n    def track_f(self):\n        return 1\nA.track_f.unit = "calls per second"  # here\n',
        'class A:\n    def track_f(self):\n        return 1\n    track_f.unit = "GB / sec"  # here\n',
    ],
    "skip": [
        "class A:\n    def setup_cache(self):\n        raise NotImplementedError  # here\n",
        "def track_f():\n    raise NotImplementedError('no')  # here\n",
        "def time_f():\n    if f().item():\n        raise NotImplementedError  # here\n",
    ],
}

CLEAN = [
    """
import functools
@functools.cache
def made(n):
    return jax.jit(lambda x: x + n).lower(1.0).compile(), jax.devices()
class Sum:
    params = [1, 2]
    number = 1
    repeat = (10, 100, 1.0)
    def setup(self, n):
        if n > len(jax.devices()):
            raise NotImplementedError
        self.f, _ = made(n)
    def time_sum(self, n):
        jax.block_until_ready(self.f(1.0))
    def time_sum_dispatch(self, n):
        self.f(1.0)
    def track_bytes(self, n):
        return 4 * n
    track_bytes.unit = "bytes"
    def peakmem_sum(self, n):
        self.f(1.0)
""",
    "class A:\n    def go(self):\n        return f(1).item()\n    def time_f(self):\n        self.go()\n",
    "class A:\n    def time_compile(self):\n        jax.jit(f).lower(1).compile()\n",
    'if __name__ == "__main__":\n    print(jax.devices())\n',
    "KINDS = [jnp.dtype('float32')]\nf = lambda: jax.devices()\n",
    "DEVICES = jax.devices()  # asked on purpose; asv-doctor: ok\n",
]

CONFIGURATION = {
    "version": 1,
    "project": "p",
    "repo": ".",
    "environment_type": "virtualenv",
    "launch_method": "spawn",
    "matrix": {"req": {"jax": ["0.12.0.1"], "pip+asv_runner": ["0.3.2"]}},
    "install_command": ["in-dir={env_dir} python -m pip install --no-deps {wheel_file}"],
}

CONFIGURATIONS = {  # changes to the configuration above, and the pitfall
    "unknown-key": [{"launch_methods": "spawn"}, {"enviroment_type": "x"}],
    "launch-method": [{"launch_method": None}, {"launch_method": "forkserver"}],
    "install-dependencies": [
        {"install_command": None},
        {"install_command": ["python -m pip install {wheel_file}"]},
        {"install_command": "python -m pip install {wheel_file}"},
        {"matrix": {"jax": "0.10.2", "asv_runner": "0.3.2"}, "install_command": None},
        {
            "matrix": {"req": {"pip+asv_runner": ["0.3.2"]}},
            "include": [{"python": "3.12", "req": {"jax": "0.10.2"}}],
            "install_command": None,
        },
    ],
    "runner": [
        {"matrix": {"req": {"jax": ["0.12.0.1"]}}},
        {"matrix": {"req": {"asv_runner": [""]}}},
        {"matrix": None},
    ],
}


def names(path: Path) -> list[str]:
    return [finding.name for finding in examine(path)]


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, texts in WITH.items() for t in texts])
def test_pitfall_in_benchmarks(tmp_path, name, text):
    path = tmp_path / "benchmarks.py"
    path.write_text(HEAD + text)
    (found,) = examine(path)
    assert (found.name, found.line) == (
        name,
        1
        + (HEAD + text)
        .splitlines()
        .index(next(line for line in text.splitlines() if line.endswith("# here"))),
    )
    shown = str(found)
    assert shown.startswith(f"{path}:{found.line}: {name}: ")
    assert "\n" not in shown
    assert all(part in shown for part in PITFALLS[name])


@pytest.mark.parametrize("text", CLEAN)
def test_clean_benchmarks(tmp_path, text):
    path = tmp_path / "benchmarks.py"
    path.write_text(HEAD + text)
    assert examine(path) == []


@pytest.mark.parametrize(("name", "change"), [(n, c) for n, cs in CONFIGURATIONS.items() for c in cs])
def test_pitfall_in_configuration(tmp_path, name, change):
    path = tmp_path / "asv.conf.json"
    settings = {k: v for k, v in (CONFIGURATION | change).items() if v is not None}
    path.write_text(json.dumps(settings, indent=1))
    (found,) = examine(path)
    assert found.name == name
    key = next((k for k in change if settings.get(k) is not None and name != "install-dependencies"), None)
    if key:
        assert f'"{key}"' in path.read_text().splitlines()[found.line - 1]


def test_clean_configuration(tmp_path):
    path = tmp_path / "asv.conf.json"
    text = json.dumps(CONFIGURATION, indent=1)
    path.write_text(
        '{ // a comment with "quotes" and a url: http://x\n /* more\n lines, } */' + text[1:-2] + ",\n}"
    )
    assert examine(path) == []
    path.write_text(
        json.dumps({"project": "p", "repo": ".", "launch_method": "spawn", "environment_type": "existing"})
    )
    assert examine(path) == []
    forked = json.dumps(CONFIGURATION | {"launch_method": "forkserver"}, indent=1)
    path.write_text(
        forked.replace('"forkserver",', '"forkserver",  // nothing starts a backend; asv-doctor: ok')
    )
    assert examine(path) == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("asv run --quick", "quick"),
        ("    python -m asv continuous -q main HEAD", "quick"),
        ("asv run --python=same", "same-python"),
        ("asv run --quick --dry-run", None),
        ("asv run -E existing:same", None),
        ("asv run --quick  # asv-doctor: ok", None),
        ("pytest --quick", None),
    ],
)
def test_commands(tmp_path, line, name):
    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/sh\n{line}\n")
    assert [(f.name, f.line) for f in examine(path)] == ([(name, 2)] if name else [])


def test_every_pitfall_has_a_file():
    assert {*WITH, *CONFIGURATIONS, "quick", "same-python"} == set(PITFALLS)


def test_ours_are_clean():
    files = asv_doctor.find_files(ROOT)
    shown = {str(f.relative_to(ROOT)) for f in files}
    assert {"asv.conf.json", "asv-jax.conf.json", "benchmarks/timing.py", "benchmarks/__init__.py"} <= shown
    assert [str(finding) for file in files for finding in examine(file)] == []


def test_nothing_is_imported(tmp_path):
    (tmp_path / "benchmarks.py").write_text("raise SystemExit('imported')\nimport jax\nX = jax.devices()\n")
    child = subprocess.run(
        [sys.executable, "-m", "harness", "asv-doctor", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "none-such"},
    )
    assert child.returncode == 1, child.stderr
    assert child.stdout.splitlines() == [
        f"{tmp_path}/benchmarks.py:3: device-query: jax.devices(): {'; '.join(PITFALLS['device-query'])}"
    ]


def test_command(tmp_path, capsys):
    (tmp_path / "asv.conf.json").write_text(json.dumps(CONFIGURATION | {"benchmark_dir": "b"}))
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / "b" / "deep" / "c.py").write_text(HEAD + WITH["unblocked"][0])
    (tmp_path / "b" / "test_c.py").write_text(HEAD + WITH["unblocked"][0])  # pytest's, not asv's
    assert main(["asv-doctor", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "c.py:5: unblocked: time_f" in line
    (tmp_path / "b" / "deep" / "c.py").write_text(HEAD)
    assert main(["asv-doctor", str(tmp_path), str(tmp_path / "asv.conf.json")]) == 0
    assert capsys.readouterr().out == "no known pitfall in 2 files\n"


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("a.py", b"def f(:\n", "is not Python: invalid syntax (line 1)"),
        ("a.py", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("a.py", b"x = '\0'\n", "is not Python"),
        ("a.py", b"(" * 5000 + b")" * 5000, "is not Python"),
        ("a.py", b"x = 1" + b" + 1" * 3000, "a.py is n"),
        ("asv.conf.json", b"{'a': 1}", "is not JSON with comments (line 1)"),
        ("asv.conf.json", b"[1]", "must hold an object"),
        ("asv.conf.json", b"[" * 100_000, "is not JSON with comments"),
    ],
)
def test_bad_files(tmp_path, capsys, file, content, says):
    path = tmp_path / file
    path.write_bytes(content)
    with pytest.raises(DoctorError, match=r"is no|must hold|is nested"):
        examine(path)
    assert main(["asv-doctor", str(path)]) == 2
    assert main(["asv-doctor", str(tmp_path)]) == 2
    complaint = capsys.readouterr().err.splitlines()[0]
    assert str(path) in complaint
    assert says in complaint


def test_bad_paths(tmp_path, capsys):
    assert main(["asv-doctor", str(tmp_path / "absent")]) == 2
    assert main(["asv-doctor", str(tmp_path)]) == 2
    absent, empty = capsys.readouterr().err.splitlines()
    assert "is neither a file nor a directory" in absent
    assert "holds no asv.conf.json" in empty


def test_keys_are_those_of_asv():
    config = pytest.importorskip("asv.config")
    assert set(vars(config.Config())) == asv_doctor.KEYS
    for path in (ROOT / "asv.conf.json", ROOT / "asv-jax.conf.json"):
        assert set(asv_doctor.load_configuration(path)) <= set(vars(config.Config())) | {"version"}
        read = vars(config.Config.load(str(path)))
        settings = asv_doctor.load_configuration(path)
        assert settings.pop("version") == config.Config.api_version
        assert read == read | settings
