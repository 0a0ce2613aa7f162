# SPDX-License-Identifier: Apache-2.0
"""Environment variables: those of child processes, and the code that may set them in this process."""

import ast
import os
import re
import subprocess
import sys

import pytest

from meshmark.commands import main as cli
from meshmark.core.installation import PACKAGE, SOURCE, make_paths_absolute
from meshmark.devices import environment
from meshmark.devices.environment import CPU_DEVICES, cpu_devices, of_child

WRITERS = ("setdefault", "update", "pop", "popitem", "clear")


def writes(source):
    """The lines of a module that change os.environ."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
            targets = node.targets if hasattr(node, "targets") else [node.target]
            for target in targets:
                of = target.value if isinstance(target, ast.Subscript) else target
                if ast.unparse(of) in ("os.environ", "environ"):
                    found.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, name = ast.unparse(node.func.value), node.func.attr
            if (owner in ("os.environ", "environ") and name in WRITERS) or (
                owner == "os" and name in ("putenv", "unsetenv")
            ):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['A'] = '1'",
        "os.environ |= more",
        "del os.environ['A']",
        "os.environ.update(A='1')",
        "os.environ.setdefault('A', '1')",
        "os.putenv('A', '1')",
    ],
)
def test_every_way_to_change_the_environment_is_seen(source):
    assert writes(source) == [1]
    assert writes("made = os.environ | {'A': '1'}\nos.environ.get('A')\nmade['A'] = '1'") == []


def test_one_module_alone_changes_the_environment():
    changed = {
        path.relative_to(PACKAGE).as_posix(): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if (lines := writes(path.read_text(encoding="utf-8")))
    }
    assert list(changed) == ["devices/environment.py"]
    assert len(changed["devices/environment.py"]) == 1


def test_the_number_of_devices_is_the_option_then_the_environment_then_the_default(monkeypatch):
    monkeypatch.setenv(CPU_DEVICES, "6")
    assert cpu_devices(2) == {CPU_DEVICES: "2"}
    assert cpu_devices(None, 4) == {CPU_DEVICES: "6"}
    monkeypatch.delenv(CPU_DEVICES)
    assert cpu_devices(None, 4) == {CPU_DEVICES: "4"}
    assert cpu_devices(None) == {CPU_DEVICES: "8"}


def test_a_child_has_the_variables_and_imports_this_package_and_this_process_is_as_it_was(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    before = dict(os.environ)
    made = of_child({"MESHMARK_ONE": "1"})
    code = "import os, meshmark; print(os.environ['MESHMARK_ONE'], meshmark.__file__)"
    done = subprocess.run([sys.executable, "-c", code], env=made, capture_output=True, text=True)
    assert done.stdout.split() == ["1", str(PACKAGE / "__init__.py")]
    assert made["PYTHONPATH"] == os.pathsep.join([str(SOURCE), "/elsewhere"])
    assert dict(os.environ) == before
    monkeypatch.delenv("PYTHONPATH")
    assert of_child()["PYTHONPATH"] == str(SOURCE)


def test_a_child_in_another_directory_loads_code_from_the_same_places(monkeypatch, tmp_path):
    """A relative entry is one of the directory in which the command was started, and so is an empty one."""
    monkeypatch.chdir(tmp_path)
    given = {
        "PYTHONPATH": os.pathsep.join(["site", "", "/elsewhere"]),
        "LD_LIBRARY_PATH": "lib",
        "TPU_LIBRARY_PATH": "./libtpu.so",
        "PJRT_NAMES_AND_LIBRARY_PATHS": "one:./one.so,two:two.json,three:libthree.so,four:/four.so",
        "MESHMARK_ONE": "site",
    }
    made = make_paths_absolute(given)
    assert made["PYTHONPATH"] == os.pathsep.join([f"{tmp_path}/site", str(tmp_path), "/elsewhere"])
    assert (made["LD_LIBRARY_PATH"], made["TPU_LIBRARY_PATH"]) == (f"{tmp_path}/lib", f"{tmp_path}/libtpu.so")
    plugins = f"one:{tmp_path}/one.so,two:{tmp_path}/two.json,three:libthree.so,four:/four.so"
    assert made["PJRT_NAMES_AND_LIBRARY_PATHS"] == plugins and made["MESHMARK_ONE"] == "site"
    assert of_child(given)["PYTHONPATH"] == os.pathsep.join([str(SOURCE), made["PYTHONPATH"]])
    assert make_paths_absolute({"PYTHONPATH": ""}) == {"PYTHONPATH": ""}


def test_every_module_that_starts_children_elsewhere_makes_their_paths_absolute():
    """One that passes `cwd=` makes the environment with one of these two functions."""
    starting = [p for p in PACKAGE.rglob("*.py") if re.search(r"\bcwd=", p.read_text())]
    assert len(starting) >= 4
    for path in starting:
        assert re.search(r"\b(of_child|make_paths_absolute)\(", path.read_text()), path


def test_a_command_leaves_the_environment_alone(capsys):
    before = dict(os.environ)
    assert cli.main(["devices", "--num-devices", "3"]) == 0
    assert "3 cpu devices" in capsys.readouterr().out
    assert dict(os.environ) == before


def test_what_is_set_here_is_set_for_children_too(monkeypatch):
    monkeypatch.setenv("MESHMARK_ONE", "0")
    environment.set_here({"MESHMARK_ONE": "1"})
    assert of_child()["MESHMARK_ONE"] == "1"
