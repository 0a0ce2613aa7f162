# SPDX-License-Identifier: Apache-2.0
"""Installs a commit of JAX with its oldest compatible jaxlib: `python install_jax.py WHEEL`, for asv-jax.conf.json.

The metadata of a commit's wheel says which jaxlib it accepts (`_minimum_jaxlib_version` in jax/version.py). The oldest
one changes the least from commit to commit. If it is not published yet, the exit code is 1, and asv skips the commit.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path


def minimum_jaxlib(wheel: Path) -> str:
    """The lower bound of jaxlib in the wheel's metadata; ValueError if it has none."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    for requirement in re.findall(r"^Requires-Dist: jaxlib\b([^;\n]*)$", metadata, re.MULTILINE):
        if found := re.search(r">=\s*([\w.]+)", requirement):
            return found[1]
    raise ValueError(f"{wheel.name} states no least jaxlib: install one by hand")


def main(arguments: list[str]) -> int:
    """Install both; prints a line and returns 1 if the jaxlib is not available."""
    wheel = Path(arguments[0])
    jaxlib = minimum_jaxlib(wheel)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    if subprocess.run([*install, f"jaxlib=={jaxlib}"]).returncode:
        print(
            f"jaxlib {jaxlib}, the oldest that this commit takes, can't be installed: skipped",
            file=sys.stderr,
        )
        return 1
    return subprocess.run([*install, "--force-reinstall", str(wheel)]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
