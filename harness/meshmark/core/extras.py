# SPDX-License-Identifier: Apache-2.0
"""The pip command for an optional capability, for the way in which this package is installed.

No package index has this distribution, so `pip install 'meshmark[tpu]'` finds nothing. A checkout installs its extra
in place. In any other installation the command names the requirements themselves.
"""

from __future__ import annotations

import shlex
import tomllib
from importlib import metadata

from meshmark.core.installation import CHECKOUT


def command(extra: str) -> str:
    """The command that installs what an extra needs.

    In a checkout that is installed: `pip install -e '.[tpu]'`. From a wheel, and in a checkout that is not installed:
    `pip install 'jax[tpu]' 'flatbuffers>=24.3'`. KeyError for an unknown extra.
    """
    try:
        installed = metadata.distribution("meshmark")
    except metadata.PackageNotFoundError:
        needed = _of_the_project(extra)
    else:
        if CHECKOUT is not None:
            return f"pip install -e '.[{extra}]'"
        needed = _of_the_distribution(installed, extra)
    return f"pip install {shlex.join(needed)}"


def _of_the_project(extra: str) -> list[str]:
    """The requirements of an extra from pyproject.toml; the extra itself if there is no such file."""
    if CHECKOUT is None:
        return [f"meshmark[{extra}]"]
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["optional-dependencies"][extra])


def _of_the_distribution(installed: metadata.Distribution, extra: str) -> list[str]:
    """The requirements of an extra from the installed metadata, without the marker that names the extra."""
    from packaging.requirements import Requirement  # the environments that `compare` times in may lack it

    found = []
    for text in installed.requires or ():
        requirement = Requirement(text)
        if requirement.marker and requirement.marker.evaluate({"extra": extra}):
            requirement.marker = None
            found.append(str(requirement))
    if not found:
        raise KeyError(extra)
    return found
