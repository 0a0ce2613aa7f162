# SPDX-License-Identifier: Apache-2.0
"""Makes temporary directories for processes that may be killed. A later run removes those of ended processes.

Each directory holds a file `lock`, which its process keeps locked while it lives.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: nothing is locked there, and nothing removed
    fcntl = None  # type: ignore[assignment]

PREFIX = "meshmark-"
_LOCK = "lock"
_held: dict[Path, int] = {}


def make(what: str = "") -> Path:
    """A new directory, after removing those that killed processes of this user have left; OSError if none can be
    made."""
    sweep()
    made = Path(tempfile.mkdtemp(prefix=PREFIX + what))
    if fcntl:
        new = made / "new"
        _held[made] = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(_held[made], fcntl.LOCK_EX)
        new.rename(made / _LOCK)  # from now on it can be seen, and is locked
    return made


def remove(directory: Path) -> None:
    """Remove a directory of this process."""
    shutil.rmtree(directory, ignore_errors=True)
    if (held := _held.pop(directory, None)) is not None:
        os.close(held)


def sweep() -> list[Path]:
    """Remove this user's directories whose process has ended, and return them."""
    found = []
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{_LOCK}"):
        with suppress(OSError):
            if _is_own(lock.parent) and _is_free(lock):
                shutil.rmtree(lock.parent)
                found.append(lock.parent)
    return found


def _is_own(directory: Path) -> bool:
    return not directory.is_symlink() and directory.stat().st_uid == os.getuid()


def _is_free(lock: Path) -> bool:
    if not fcntl:
        return False
    file = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True
