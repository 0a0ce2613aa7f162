# SPDX-License-Identifier: Apache-2.0
"""Known pitfalls of asv: the name, the reason and the correction of each.

Each was measured, or read in the source of asv 0.6.6 and asv_runner 0.3.2. Each makes asv report something false
without an error: a time of dispatch only, a label of another release, or a parameter under another name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from meshmark.core import files
from meshmark.core.errors import BadInput

PITFALLS = {
    "number-one": (
        "a setup makes asv time one call per sample, 10 at most, with the setup run before each",
        "set number and repeat, and let setup only attach what a cached function made",
    ),
    "setup-compiles": (
        "asv runs setup again before each timed call, so this compiles each time",
        "compile in a cached function that setup calls",
    ),
    "device-query": (
        "this starts a JAX backend while asv imports the file, where a fork deadlocks and a GPU is taken",
        "ask in setup or in the benchmark",
    ),
    "params-devices": (
        "asv addresses parameters by index, and these differ from machine to machine",
        "list literal parameters and skip in setup with NotImplementedError",
    ),
    "unblocked": (
        "JAX returns before the work is done, so this times the dispatch",
        "wrap the result in jax.block_until_ready, or name it time_..._dispatch",
    ),
    "late-variable": (
        "JAX reads this variable when it is imported, and it was imported earlier",
        "set it before the first import of JAX, in __init__.py",
    ),
    "rate": (
        "asv treats more as worse, so a faster program is reported as a regression",
        "track seconds, bytes or counts and publish rates elsewhere",
    ),
    "skip": (
        "asv skips only if setup raises NotImplementedError; raised here it is a failure",
        "raise it in setup",
    ),
    "unknown-key": ("asv ignores this key silently", "mend its name or remove it"),
    "launch-method": (
        "a fork after JAX has started its threads deadlocks",
        'set "launch_method": "spawn"',
    ),
    "install-dependencies": (
        "pip may replace what the matrix pins, under the label of the pin",
        "set install_command with pip install --no-deps",
    ),
    "runner": (
        "each new environment takes the newest asv_runner, so that results differ without any change of yours",
        'pin "pip+asv_runner" in matrix.req',
    ),
    "quick": (
        "one sample per benchmark is saved among the results like a measurement",
        "add --dry-run",
    ),
    "same-python": (
        "asv applies the labels of the matrix to an interpreter that does not have these versions",
        "use -E existing:same",
    ),
}
"""(reason, correction) by name."""

ACCEPTED = re.compile(r"(#|//).*asv-doctor:\s*ok\b")
"""A line of Python, of a script or of a configuration with this comment is accepted."""

MOST = 1_000_000
"""The most bytes of a file that is read."""


class DoctorError(BadInput, ValueError):
    """A path can't be examined; the message is one line."""


@dataclass(frozen=True)
class Pitfall:
    """One pitfall in one place."""

    path: Path
    line: int
    name: str
    what: str = ""

    def __str__(self) -> str:
        why, mend = PITFALLS[self.name]
        what = f"{self.what}: " if self.what else ""
        return f"{self.path}:{self.line}: {self.name}: {what}{why}; {mend}"


def read_text(path: Path) -> str:
    """The text of a file; DoctorError if it can't be read."""
    try:
        return files.read_text(path, MOST)
    except BadInput:
        raise DoctorError(f"{path} is larger than {MOST} bytes: it is not a benchmark file") from None
    except OSError as error:
        raise DoctorError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DoctorError(f"{path} is not UTF-8 text: name a benchmark file or a configuration") from None
