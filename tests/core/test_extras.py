# SPDX-License-Identifier: Apache-2.0
"""The command for a missing extra fits the way in which the package is installed."""

import re
import tomllib
from importlib import metadata

import pytest

from meshmark.core import extras
from tests.checkout import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


class Installed:
    """The metadata of an installed wheel."""

    requires = (
        "jax>=0.10.2",
        'jax[tpu]; extra == "tpu"',
        'flatbuffers>=24.3; extra == "tpu"',
        'flatbuffers>=24.3; python_version > "3" and extra == "gpu"',
    )


def absent(name):
    raise metadata.PackageNotFoundError(name)


def test_an_installed_checkout_installs_its_extra_in_place(monkeypatch):
    monkeypatch.setattr(extras.metadata, "distribution", lambda name: Installed())
    assert extras.command("tpu") == "pip install -e '.[tpu]'"


def test_a_wheel_names_the_requirements_of_its_metadata(monkeypatch):
    monkeypatch.setattr(extras, "CHECKOUT", None)
    monkeypatch.setattr(extras.metadata, "distribution", lambda name: Installed())
    assert extras.command("tpu") == "pip install 'jax[tpu]' 'flatbuffers>=24.3'"
    assert extras.command("gpu") == "pip install 'flatbuffers>=24.3'"
    with pytest.raises(KeyError, match="nothing"):
        extras.command("nothing")


def test_a_bare_checkout_names_the_requirements_of_the_project(monkeypatch):
    monkeypatch.setattr(extras.metadata, "distribution", absent)
    assert extras.command("tpu") == "pip install 'jax[tpu]' 'flatbuffers>=24.3'"
    with pytest.raises(KeyError, match="nothing"):
        extras.command("nothing")


def test_a_copied_package_without_metadata_names_its_extra(monkeypatch):
    monkeypatch.setattr(extras, "CHECKOUT", None)
    monkeypatch.setattr(extras.metadata, "distribution", absent)
    assert extras.command("page") == "pip install 'meshmark[page]'"


def test_no_message_names_an_extra_by_hand():
    """No index has the distribution: `pip install 'meshmark[tpu]'` in a message would find nothing."""
    told = [
        path.relative_to(ROOT)
        for path in (ROOT / "harness").rglob("*.py")
        if path.name != "extras.py" and ("'meshmark[" in path.read_text() or "'.[" in path.read_text())
    ]
    assert told == []


@pytest.mark.parametrize(
    "extra", ["page", "submit", "plot", "tpu", "gpu", "checkpoint", "optax", "flax", "datarax"]
)
def test_every_extra_that_the_code_names_is_one_of_the_project(extra):
    sources = [path.read_text() for path in (ROOT / "harness").rglob("*.py")]
    used = any(re.search(rf"extras\.command\(['\"]{extra}['\"]\)", source) for source in sources)
    assert used and extra in PROJECT["optional-dependencies"]
