# SPDX-License-Identifier: Apache-2.0
"""Finds files that are not as they were installed: of JAX and NumPy, and compiled files of this package.

A directory on PYTHONPATH may come before the installed JAX, somebody may have changed a file of NumPy, and a compiled
file (`__pycache__`) may be of another source than the one beside it. A version number shows none of this. Installers
write a hash of each file (RECORD), and the files are compared with it. Shared libraries are compared by size only, and
compiled files of other packages are not compared.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

from meshmark.core import loaded
from meshmark.core.installation import PACKAGE

OTHERS = ("jax", "jaxlib", "numpy", "ml_dtypes")
"""The packages that compute, each with a distribution of the same name."""

ROOMS = ("core", "records", "devices", "operations", "levels", "judge", "ranks", "pytest_plugin")
"""The rooms of this package that judge and write."""

ALTERED = "not as installed"
"""How each description begins."""

MOST = 5
"""The most files of one package that are named."""


def altered() -> dict[str, str]:
    """The problems, by the name of a package or of a file in it; {} in an unchanged installation."""
    found: dict[str, str] = {}
    for name in OTHERS:
        for where, why in _of_package(name):
            found[where] = f"{ALTERED}: {why}"
    files = sorted(file for room in ROOMS for file in (PACKAGE / room).rglob("*.py"))
    for file in list(loaded.of_other_sources(files))[:MOST]:
        where = file.relative_to(PACKAGE.parent).as_posix()
        found[where] = f"{ALTERED}: its compiled file (__pycache__) is not of this source"
    return {name[:100]: why for name, why in found.items()}


def _of_package(name: str) -> Iterator[tuple[str, str]]:
    try:
        own = distribution(name.replace("_", "-"))
    except PackageNotFoundError:
        yield name, "no installed distribution has it"
        return
    listed = {file.as_posix(): file for file in own.files or () if file.hash or file.size}
    start = f"{name}/__init__.py"
    spec = importlib.util.find_spec(name)
    if start not in listed or spec is None or not spec.origin:
        return  # a checkout that is installed as such, or an installer that writes no hashes
    if Path(spec.origin).resolve() != Path(str(own.locate_file(start))).resolve():
        yield name, "it comes from another directory than the installed one"
        return
    changed = [place for place, file in listed.items() if _differs(own, file)]
    yield from ((place, "it was changed after its installation") for place in sorted(changed)[:MOST])


def _differs(own: Distribution, file: PackagePath) -> bool:
    """Whether a file differs from the installed one; False for a missing file. Libraries are large, so only their size
    is compared."""
    path = Path(str(own.locate_file(file)))
    try:
        if file.suffix != ".py":
            return file.suffix == ".so" and file.size is not None and path.stat().st_size != file.size
        data = path.read_bytes()
    except OSError:
        return False  # what is not there is not loaded
    if file.hash is None or file.hash.mode != "sha256":
        return file.size is not None and len(data) != file.size
    said = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return said != file.hash.value.rstrip("=")
