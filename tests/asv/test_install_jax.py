# SPDX-License-Identifier: Apache-2.0
"""A commit of JAX gets the oldest jaxlib that it accepts, and is skipped if that is not available."""

import subprocess
import sys
import zipfile

import pytest

from benchmarks import install_jax
from tests.checkout import ROOT


def wheel(directory, *requirements):
    path = directory / "jax-9.9.1.dev1-py3-none-any.whl"
    lines = ["Metadata-Version: 2.1", "Name: jax", "Version: 9.9.1.dev1"]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("jax-9.9.1.dev1.dist-info/METADATA", "\n".join([*lines, *requirements, "", "words"]))
    return path


@pytest.mark.parametrize(
    "requirements",
    [
        ["Requires-Dist: jaxlib<=9.9.1,>=9.9.0"],
        ["Requires-Dist: numpy>=2.0", "Requires-Dist: jaxlib >=9.9.0, <=9.9.1"],
        ['Requires-Dist: jaxlib==1.0; extra == "old"', "Requires-Dist: jaxlib>=9.9.0"],
    ],
)
def test_the_least_jaxlib_is_read_from_the_wheel(tmp_path, requirements):
    assert install_jax.minimum_jaxlib(wheel(tmp_path, *requirements)) == "9.9.0"


def test_a_wheel_without_one_is_told(tmp_path):
    with pytest.raises(ValueError, match="states no least jaxlib"):
        install_jax.minimum_jaxlib(wheel(tmp_path, "Requires-Dist: jaxlib"))


def test_an_unpublished_jaxlib_skips_the_commit(tmp_path):
    script = ROOT / "benchmarks" / "install_jax.py"
    environment = {"PIP_NO_INDEX": "1", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    found = wheel(tmp_path, "Requires-Dist: jaxlib>=9.9.0")
    done = subprocess.run([sys.executable, script, found], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "jaxlib 9.9.0, the oldest that this commit takes, can't be installed: skipped" in done.stderr
