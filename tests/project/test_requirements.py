# SPDX-License-Identifier: Apache-2.0
"""The versions with which the tests are installed: the lock file, and the lowest ones."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.checkout import ROOT

LOCKED = ("test", "asv", "benchmark", "plot", "page")
"""The extras of `tox run -e tests`."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

EXTRAS = set(PROJECT["optional-dependencies"])

NOT_LOWEST = {"flax", "datarax", "docs"}
"""Extras that do not install with the lowest versions: two need Python 3.12, and zensical needs a newer PyYAML."""


def required(*extras):
    listed = [
        *PROJECT["dependencies"],
        *(r for extra in extras for r in PROJECT["optional-dependencies"][extra]),
    ]
    return [Requirement(text) for text in listed]


def locked():
    """Versions by name: several where Pythons differ."""
    found = {}
    for block in re.split(r"\n(?=[A-Za-z0-9])", (ROOT / "requirements/tests.txt").read_text()):
        assert "--hash=sha256:" in block, block[:60]
        name, version = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==(\S+)", block).groups()
        found.setdefault(canonicalize_name(name), []).append(version)
    return found


def test_the_lock_file_has_what_the_project_asks_for_with_hashes():
    found = locked()
    for one in required(*LOCKED):
        versions = found.get(canonicalize_name(one.name))
        assert versions, f"{one.name} is not locked: CONTRIBUTING.md says how to make the lock file again"
        assert all(one.specifier.contains(version) for version in versions), one


def lowest_environment():
    """(its extras, its pins by name) of the environment `lowest` of tox.ini."""
    text = (ROOT / "tox.ini").read_text()
    section = text[text.index("lowest}]\n") :].split("\n[testenv", 1)[0]
    extras = re.findall(r"^    (?:\S.*, )?lowest: ([a-z]+)$", section, re.MULTILINE)
    pins = re.findall(r"^    lowest: ([A-Za-z0-9._-]+)==(\S+)$", section, re.MULTILINE)
    return extras, {canonicalize_name(name): version for name, version in pins}


def test_the_lowest_environment_pins_every_lower_bound():
    _, pins = lowest_environment()
    for one in required(*EXTRAS - NOT_LOWEST):
        lowest = [s.version for s in one.specifier if s.operator == ">="]
        if lowest:
            pinned = pins.get(canonicalize_name(one.name), "nothing")
            assert re.fullmatch(rf"{re.escape(lowest[0])}(\.\d+)*", pinned), f"{one}: tox.ini pins {pinned}"


def test_the_lowest_environment_installs_what_it_pins():
    extras, pins = lowest_environment()
    installed = {canonicalize_name(one.name) for one in required("test", *extras)}
    assert set(pins) <= installed, "a pin alone would install what no extra asks for"
