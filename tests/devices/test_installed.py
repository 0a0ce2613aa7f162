# SPDX-License-Identifier: Apache-2.0
"""Files of JAX and NumPy that are not as they were installed, and compiled files of other sources."""

import base64
import hashlib

import pytest

from meshmark.core import loaded
from meshmark.core.installation import PACKAGE
from meshmark.devices import installed

NAME = "meshmark_installed_example"


def hashed(text):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with an installed package of two files and a library."""
    files = {f"{NAME}/__init__.py": "one = 1\n", f"{NAME}/api.py": "two = 2\n", f"{NAME}/_jax.so": "ELF"}
    (tmp_path / NAME).mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    about = tmp_path / f"{NAME}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
    (about / "RECORD").write_text("".join(f"{n},{hashed(t)},{len(t)}\n" for n, t in files.items()))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(installed, "OTHERS", (NAME,))
    monkeypatch.setattr(installed, "ROOMS", ())
    return tmp_path


def test_an_untouched_package_has_nothing_to_be_said(place):
    assert installed.altered() == {}


@pytest.mark.parametrize("file", ["api.py", "__init__.py", "_jax.so"])
def test_a_changed_file_is_named(place, file):
    (place / NAME / file).write_text("changed = True\n")
    assert installed.altered() == {
        f"{NAME}/{file}": "not as installed: it was changed after its installation"
    }


def test_a_package_that_stands_before_the_installed_one_is_named(place, tmp_path_factory, monkeypatch):
    shadow = tmp_path_factory.mktemp("shadow")
    (shadow / NAME).mkdir()
    (shadow / NAME / "__init__.py").write_text("one = 1\n")
    monkeypatch.syspath_prepend(shadow)
    assert installed.altered() == {
        NAME: "not as installed: it comes from another directory than the installed one"
    }


def test_a_package_without_a_distribution_is_named(monkeypatch):
    monkeypatch.setattr(installed, "OTHERS", ("tests",))
    assert installed.altered()["tests"] == "not as installed: no installed distribution has it"


def test_a_compiled_file_of_another_source_is_named(place, monkeypatch):
    monkeypatch.setattr(loaded, "of_other_sources", lambda files: [PACKAGE / "judge" / "numbers.py"])
    (told,) = installed.altered().items()
    assert told[0] == "meshmark/judge/numbers.py" and "__pycache__" in told[1]


def test_this_installation_is_as_it_was_installed():
    assert installed.altered() == {}
