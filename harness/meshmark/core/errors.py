# SPDX-License-Identifier: Apache-2.0
"""The exception for bad input, and the line for an unknown name."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable

FEW = 10
"""Up to this many valid names are listed if none of them is near the unknown one."""


class BadInput(Exception):
    """The user named something that can't be used; the message is one line that names it and the mend."""


def unknown(what: str, name: str, valid: Iterable[str], see: str = "") -> str:
    """One line for a name that is not among the valid ones.

    what: the kind of name, such as "operation". The line offers the nearest names ("did you mean psum?"), or all
    names if they are few and none is near. see: the command that lists them, such as "meshmark list".
    """
    every = list(valid)
    if near := nearest(name, every):
        mend = f"did you mean {' or '.join(near)}?"
    elif len(every) <= FEW:
        mend = f"choose from {', '.join(every)}"
    else:
        mend = f"there are {len(every)}, such as {', '.join(every[:3])}"
    return f"unknown {what} {name[:80]!a}: {mend}" + (f" (see `{see}`)" if see else "")


def nearest(name: str, valid: Iterable[str], most: int = 3) -> list[str]:
    """The valid names with almost the same spelling, the nearest first; upper and lower case are equal."""
    spelled = {known.lower(): known for known in valid}
    return [spelled[near] for near in difflib.get_close_matches(name.lower(), spelled, most, 0.6)]


def not_installed(error: ModuleNotFoundError) -> str | None:
    """One line for a package that is missing, with the command that installs it; None for a module of this suite."""
    package = (error.name or "").split(".")[0]
    if package in ("", "meshmark", "benchmarks", "tests"):
        return None
    if package in ("jax", "jaxlib"):
        return f"JAX is not installed in {sys.executable}: pip install jax (or the JAX of your accelerator)"
    return f"the package {package} is not installed in {sys.executable}: pip install {package}"
