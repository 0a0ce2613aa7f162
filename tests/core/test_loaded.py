# SPDX-License-Identifier: Apache-2.0
"""Loaded code is compared with its sources: replaced methods, and compiled files that are not of their source."""

import importlib
import importlib.util
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.core import loaded
from tests.checkout import IMPORTS

SOURCE = """
from dataclasses import dataclass
from functools import cache, cached_property

BEST = 1


def plain(x, least=0):
    return [one + BEST for one in x if one > least]


@cache
def kept(x):
    return x


@dataclass
class Counted:
    number: int = 0

    @property
    def double(self):
        return 2 * self.number

    @double.setter
    def double(self, value):
        self.number = value // 2

    @cached_property
    def triple(self):
        return 3 * self.number

    @staticmethod
    def made(number):
        return Counted(number)

    @classmethod
    def none(cls):
        return cls(0)

    def is_right(self):
        return self.number == 0
"""
NAME = "meshmark_loaded_example"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """A loaded module of this source, and its file."""
    package = tmp_path / NAME
    package.mkdir()
    (package / "__init__.py").write_text("")
    file = package / "inner.py"
    file.write_text(SOURCE)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    monkeypatch.syspath_prepend(tmp_path)
    yield file
    for name in [name for name in sys.modules if name.startswith(NAME)]:
        del sys.modules[name]


def inner():
    return importlib.import_module(f"{NAME}.inner")


def found():
    return {name.removeprefix(f"{NAME}.inner."): why for name, why in loaded.unlike_source((NAME,))}


CHANGES = {
    "plain": lambda module: setattr(module, "plain", lambda *arguments: []),
    "kept": lambda module: setattr(module, "kept", module.Counted),
    "Counted.is_right": lambda module: setattr(module.Counted, "is_right", lambda self: True),
    "Counted.double": lambda module: setattr(module.Counted, "double", property(lambda self: 0)),
    "Counted.triple": lambda module: setattr(module.Counted, "triple", 3),
    "Counted.made": lambda module: setattr(module.Counted, "made", staticmethod(print)),
    "Counted.none": lambda module: setattr(module.Counted, "none", classmethod(lambda cls: cls(1))),
}


def test_what_is_loaded_from_its_source_is_its_source(example):
    assert inner().kept(3) == 3 and found() == {}


@pytest.mark.parametrize("name", CHANGES)
def test_a_replaced_function_or_method_is_found(example, name):
    CHANGES[name](inner())
    assert list(found()) == [name] and "replaced by" in found()[name]


def test_changed_code_of_a_function_that_stays_is_found(example):
    module = inner()
    module.plain.__code__ = module.plain.__code__.replace(co_consts=(None, 7))
    assert list(found()) == ["plain"] and "not that of its source" in found()["plain"]


def tamper(file, source):
    """A compiled file of another source, with the time and size of this one: what Python takes."""
    other = file.with_name("other.py")
    other.write_text(source)
    made = Path(py_compile.compile(str(other), dfile=str(file), doraise=True))
    own = Path(importlib.util.cache_from_source(str(file)))
    status = file.stat()
    said = int(status.st_mtime).to_bytes(4, "little") + status.st_size.to_bytes(4, "little")
    own.write_bytes(made.read_bytes()[:8] + said + made.read_bytes()[16:])
    other.unlink()
    made.unlink()


def test_a_compiled_file_that_is_not_of_its_source_is_found_on_disk_and_loaded(example):
    py_compile.compile(str(example), doraise=True)
    assert list(loaded.of_other_sources([example])) == []
    tamper(example, SOURCE.replace("self.number == 0", "True"))
    assert list(loaded.of_other_sources([example])) == [example]
    assert inner().Counted(5).is_right(), "Python takes the compiled file"
    assert list(found()) == ["Counted.is_right"] and "__pycache__" in found()["Counted.is_right"]


def test_a_compiled_file_that_python_would_not_take_is_left_alone(example):
    tamper(example, SOURCE.replace("self.number == 0", "True"))
    os.utime(example, (1_000_000_001, 1_000_000_001))
    assert list(loaded.of_other_sources([example])) == []


def test_a_compiled_file_that_is_none_is_told(example):
    tamper(example, SOURCE)
    own = Path(importlib.util.cache_from_source(str(example)))
    own.write_bytes(own.read_bytes()[:40])
    assert list(loaded.of_other_sources([example])) == [example]


def test_a_compiled_file_of_another_python_is_left_alone(tmp_path):
    example = tmp_path / "example.py"
    example.write_text("def f():\n    return 1\n")
    compiled = Path(py_compile.compile(str(example), doraise=True))
    compiled.write_bytes(b"\0\0\r\n" + compiled.read_bytes()[4:20])  # of another version, and cut
    assert not list(loaded.of_other_sources([example]))


def test_this_package_is_as_its_sources_are():
    # In a process of its own: the tests put functions of their own in the place of some.
    program = (
        "import meshmark.judge.checks, meshmark.publish.submit\n"
        "from meshmark.core import loaded\n"
        "print(list(loaded.unlike_source(('meshmark',))))"
    )
    environment = os.environ | {"PYTHONPATH": IMPORTS}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert ran.stdout == "[]\n", ran.stderr
