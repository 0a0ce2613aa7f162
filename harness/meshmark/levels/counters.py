# SPDX-License-Identifier: Apache-2.0
"""Committed counters: the collectives that each case compiled to, per JAX release, backend and device count.

`harness/meshmark/levels/data/counters/<jax>-<backend>-<devices>.tsv` (for a topology
`<jax>-<compiler>-<topology>.tsv`) holds one line per case of the standard profile: the case id, a tab, and its
collectives. A difference fails the communication check, so every change of a program's communication is noticed. A
program of a release without a file may send no more bytes than with the newest older release that has one. A backend
without any file is judged by the contract alone, and the run's header has a line about it.
`--counters DIR` names a vendor's files, which replace the suite's. Flops and temporary memory are recorded with every
run but not compared here: they depend on the processor's vector width.

`meshmark counters RECORDS` makes the file from the records of a run.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.core.files import read_text as whole_text
from meshmark.core.hlo import Collective, wire_bytes
from meshmark.records.run_line import place_of

DIRECTORY = Path(__file__).resolve().parent / "data" / "counters"


class CountersError(BadInput, ValueError):
    """Counters that can't be used; the message is one line."""


def path_for(jax: str, backend: str, num_devices: int | str, directory: Path = DIRECTORY) -> Path:
    """The path of the counters of this release, backend and number of devices (see `identity`)."""
    return directory / f"{jax}-{backend}-{num_devices}.tsv"


def files(directory: Path = DIRECTORY) -> list[Path]:
    """The files of counters in a directory; CountersError if there is none."""
    try:
        found = sorted(path for path in directory.iterdir() if path.suffix == ".tsv")
    except OSError as error:
        found, why = [], os.strerror(error.errno or 0)
    else:
        why = "it holds no file JAX-BACKEND-DEVICES.tsv"
    if not found:
        mend = "install meshmark again" if directory == DIRECTORY else "name a directory of counters"
        raise CountersError(f"no counters in {directory} ({why}): {mend}")
    return found


def find_file(jax: str, backend: str, num_devices: int | str, own: Path | None = None) -> Path | None:
    """The file of this release, backend and number of devices, first in `own`, then in the suite's; None if there
    is none. CountersError if a directory holds no counters at all."""
    for directory in (own, DIRECTORY) if own else (DIRECTORY,):
        path = path_for(jax, backend, num_devices, directory)
        if path in files(directory):
            return path
    return None


def read_counters(path: Path) -> dict[str, str]:
    """The counters of a file by case id; CountersError if a line is not valid."""
    try:
        lines = [line.split("\t") for line in whole_text(path).splitlines()]
    except (OSError, ValueError) as error:
        raise CountersError(f"{path} can't be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if len(line) != 2 or not all(line):
            raise CountersError(
                f"{path}:{number} is not a case id, a tab and its collectives: make the file again"
            )
    return dict(line for line in lines)


def identity(facts: Mapping[str, Any]) -> tuple[str, str, str]:
    """The arguments of `path_for` for a run: the release of JAX, the backend and the number of devices. For a topology
    the last two are the compiler (libtpu0.0.52) and the topology (v5e.2x4), because another libtpu compiles other
    programs."""
    versions, topology = facts.get("versions", {}), str(facts.get("topology") or "")
    if not topology:
        return str(versions.get("jax")), str(facts.get("backend")), str(facts.get("num_devices"))
    wheel, version = next(iter(facts.get("compiler", {}).items()), ("unknown", ""))
    return str(versions.get("jax")), f"{wheel}{version}", place_of(facts).replace(":", ".")


def format_collectives(collectives: Sequence[Mapping[str, Any]]) -> str:
    """The collectives of a program as one text that does not depend on their order: 2 all-reduce 4096B 1x8."""
    number = Counter(
        f"{c['kind']} {c['bytes']}B {c['groups']}" + (f" x{c['trips']}" if c["trips"] != 1 else "")
        for c in collectives
    )
    return "; ".join(f"{n} {text}" for text, n in sorted(number.items())) or "none"


_COUNTED = re.compile(r"(\d+) ([a-z-]+) (\d+)B \d+(?:x(\d+)| pairs)(?: x(\d+|None))?")


def sent_bytes(text: str) -> float:
    """Bytes that one device sends, from a text of `format_collectives`, counted as in core.hlo.wire_bytes; ValueError
    for other text."""
    total = 0.0
    for part in text.split("; ") if text != "none" else ():
        counted = _COUNTED.fullmatch(part)
        if counted is None:
            raise ValueError(f"{part[:100]!r} is not a counted collective, such as 2 all-reduce 4096B 1x8")
        number, kind, nbytes, size, trips = counted.groups()
        group = tuple(range(int(size or 2)))
        pairs = ((0, 1),) if size is None else ()
        runs = None if trips == "None" else int(trips or 1)
        total += int(number) * wire_bytes(
            Collective(kind, int(nbytes), "", () if pairs else (group,), pairs, runs)
        )
    return total


def newest_before(jax: str, backend: str, num_devices: int | str, own: Path | None = None) -> str | None:
    """The newest release older than this one that has counters of this backend and number of devices; None if there
    is none."""
    ending = f"-{backend}-{num_devices}.tsv"
    releases = {
        path.name.removesuffix(ending)
        for directory in ((own, DIRECTORY) if own else (DIRECTORY,))
        for path in files(directory)
        if path.name.endswith(ending)
    }
    older = [release for release in releases if _numbers(release) < _numbers(jax)]
    return max(older, key=_numbers, default=None)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))


def load(jax: str, backend: str, num_devices: int | str, own: Path | None = None) -> dict[str, str]:
    """The committed counters by case id, from `own` if it has them, otherwise the suite's; empty if there is no file.
    CountersError if a directory or file can't be used."""
    path = find_file(jax, backend, num_devices, own)
    return read_counters(path) if path else {}
