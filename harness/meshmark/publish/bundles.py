# SPDX-License-Identifier: Apache-2.0
"""Opens a submitted directory or .tar.gz. Hostile content costs only bounded time and memory.

Nothing of an archive is written to disk, and a member's name is never used as a path. Every file is a `File` with its
packed bytes. `read_lines` unpacks record files piece by piece and stops at the limits.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from meshmark.core import files
from meshmark.core.errors import BadInput
from meshmark.records.reading import LONGEST, MOST_LINES
from meshmark.records.results import NAME, RELEASE

MOST_FILES = 64
MOST_PACKED = 64 << 20
"""The most bytes of all files of one product, packed."""
MOST_UNPACKED = 128 << 20
"""The most bytes of all record files of one product, unpacked."""
MOST_VALUES = 10_000_000
"""The most commas and brackets in all records of one product: each takes about 50 bytes of memory."""

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


LINKED = "a link to a directory: put the directory itself here"
"""Of a release or product. The report would follow the link to files that nobody checked."""


class BundleError(BadInput, ValueError):
    """A bundle can't be opened at all; the message is one line."""


class ContentRefused(Exception):
    """Content is refused; the message is one line that says how to correct it."""


@dataclass(frozen=True)
class File:
    """One file of a product."""

    name: str
    data: bytes = field(repr=False)

    @property
    def sha256(self) -> str:
        """SHA-256 of the packed file."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass
class Bundle:
    """The files of one product, and the refused parts."""

    release: str
    name: str
    files: dict[str, File] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)
    """(place, complaint)."""

    @property
    def place(self) -> str:
        """The release and the name of the product, such as 0.12.0.1/cpu-8."""
        return f"{self.release}/{self.name}"


def open_bundles(path: Path) -> list[Bundle]:
    """Open the products of a .tar.gz, of a product's directory, or of a directory in the layout of results/.

    BundleError if there is none."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            return _archive(path)
        if not stat.S_ISDIR(mode):
            raise BundleError(
                f"{path} is neither a directory nor a .tar.gz: name what `meshmark submit` made"
            )
        found = _directories(path.absolute())
    except OSError as error:
        raise BundleError(f"can't read {path}: {os.strerror(error.errno or 0)}") from None
    if not found:
        raise BundleError(
            f"{path} holds no product (<jax release>/<product>/): name what `meshmark submit` made"
        )
    return found


# Directories ------------------------------------------------------------------------------------------------


def _directories(path: Path) -> list[Bundle]:
    if RELEASE.fullmatch(path.parent.name) and any(
        (path / n).is_file() for n in ("product.yaml", "manifest.json")
    ):
        return [_directory(path)]
    releases = (
        [path]
        if RELEASE.fullmatch(path.name)
        else [p for p in _list_directories(path) if RELEASE.fullmatch(p.name)]
    )
    linked = [
        Bundle(release.name, "", refused=[(release.name, LINKED)])
        for release in releases
        if release.is_symlink()
    ]
    there = [release for release in releases if not release.is_symlink()]
    return linked + [_directory(product) for release in there for product in _list_directories(release)]


def _list_directories(path: Path) -> list[Path]:
    """The directories in a directory, and the links to some: other commands would follow them."""
    with os.scandir(path) as entries:
        return sorted(Path(e.path) for e in entries if e.is_dir() and e.name[0] != ".")


def _directory(path: Path) -> Bundle:
    bundle = Bundle(path.parent.name, path.name)
    if path.is_symlink():
        bundle.refused.append(("", LINKED))
        return bundle
    room = MOST_PACKED
    with os.scandir(path) as entries:
        for number, entry in enumerate(sorted(_some(entries), key=lambda e: e.name)):
            if number >= MOST_FILES:
                bundle.refused.append((bundle.place, f"more than {MOST_FILES} files: put them together"))
                break
            if (why := _odd_name(entry.name)) or not entry.is_file(follow_symlinks=False):
                bundle.refused.append(
                    (_safe(entry.name), why or "not a plain file (a link, directory or device): remove it")
                )
                continue
            size, data = entry.stat(follow_symlinks=False).st_size, b""
            if size <= room:  # a file that is far too large is not read
                with open(entry.path, "rb") as file:
                    data = file.read(room + 1)
            if max(size, len(data)) > room:
                bundle.refused.append(
                    (
                        entry.name,
                        f"this file brings the product above {MOST_PACKED >> 20} MiB: leave runs out",
                    )
                )
                break
            room -= len(data)
            bundle.files[entry.name] = File(entry.name, data)
    return bundle


def _some(entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    for number, entry in enumerate(entries):
        if number > 10 * MOST_FILES:
            return
        yield entry


def _odd_name(name: str) -> str:
    return "" if FILE_NAME.fullmatch(name) else "an invalid name: use only letters, digits, '.', '_' and '-'"


def _safe(name: str) -> str:
    return ascii(name)[1:61]


# Archives ---------------------------------------------------------------------------------------------------


class _Bounded(io.RawIOBase):
    """The unpacked content of a packed stream, up to a limit; Refused beyond it."""

    def __init__(self, data: IO[bytes], most: int) -> None:
        self._from, self._room = data, most
        self._unpack = zlib.decompressobj(wbits=31)
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        """Fill a buffer: 0 at the end; EOFError if the stream is cut off."""
        while not self._left:
            if self._unpack.eof:
                if (self._unpack.unused_data + self._from.read(1 << 16)).strip(b"\0"):
                    raise ContentRefused(
                        "something follows the packed stream: pack the file again, in one piece"
                    )
                return 0
            packed = self._unpack.unconsumed_tail or self._from.read(1 << 16)
            if not packed:
                raise EOFError("cut off")
            self._left = self._unpack.decompress(packed, 1 << 16)
        taken = self._left[: len(into)]
        self._left = self._left[len(taken) :]
        self._room -= len(taken)
        if self._room < 0:
            raise ContentRefused("unpacks to more than the limit: leave runs out")
        into[: len(taken)] = taken
        return len(taken)


def _archive(path: Path) -> list[Bundle]:
    found: dict[tuple[str, str], Bundle] = {}
    refused: list[tuple[str, str]] = []
    with files.opened(path) as file:
        if file.read(2) != b"\x1f\x8b":
            raise BundleError(f"{path} is not a .tar.gz: name what `meshmark submit` made")
        file.seek(0)
        try:
            with tarfile.open(
                fileobj=io.BufferedReader(_Bounded(file, 2 * MOST_PACKED)), mode="r|"
            ) as archive:
                for number, member in enumerate(archive):
                    if number >= 4 * MOST_FILES:
                        refused.append((path.name, f"more than {4 * MOST_FILES} members: put them together"))
                        break
                    parts = member.name.split("/")
                    if not member.isreg() or len(parts) != 3:
                        what = "not a plain file <jax release>/<product>/<file>: pack only files"
                        refused.append((_safe(member.name), what))
                        continue
                    if member.issparse():  # holes are not in the stream, whose limit does not see them
                        what = "a sparse file: pack it without --sparse"
                        refused.append((_safe(member.name), what))
                        continue
                    release, name, own = parts
                    if not (RELEASE.fullmatch(release) and NAME.fullmatch(name) and FILE_NAME.fullmatch(own)):
                        refused.append(
                            (_safe(member.name), "not named <jax release>/<product>/<file>: rename it")
                        )
                        continue
                    bundle = found.setdefault((release, name), Bundle(release, name))
                    if own in bundle.files:
                        refused.append((_safe(member.name), "is there twice: pack it once"))
                        continue
                    room = MOST_PACKED - sum(len(file.data) for file in bundle.files.values())
                    if member.size > room or len(bundle.files) >= MOST_FILES:
                        refused.append((_safe(member.name), "more than the limit: leave runs out"))
                        break
                    content = archive.extractfile(member)
                    bundle.files[own] = File(own, content.read() if content else b"")
        except ContentRefused as error:
            refused.append((path.name, str(error)))
        except (tarfile.TarError, zlib.error, EOFError, RecursionError, ValueError, OverflowError) as error:
            if not found:
                first = (str(error).splitlines() or [""])[0][:60]
                raise BundleError(f"{path} is not a whole .tar.gz ({first}): pack it again") from None
            refused.append((path.name, "the archive is cut off or broken: pack it again"))
    bundles = list(found.values())
    if not bundles:
        if not refused:
            raise BundleError(f"{path} holds no product: name what `meshmark submit` made")
        bundles = [Bundle("", "")]
    bundles[0].refused += refused
    return bundles


# Records ----------------------------------------------------------------------------------------------------


@dataclass
class Room:
    """How much may still be read of one product."""

    unpacked: int = MOST_UNPACKED
    values: int = MOST_VALUES


def read_lines(file: File, room: Room) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """(line number, the record) of each line of a record file, or (number, complaint) for an invalid line.

    Ends after the first complaint about the file as a whole. JSON is strict: no NaN, no number beyond a double, no name
    twice in one object.
    """
    return ((number, record) for number, record, _ in read_spelled(file, room))


def read_spelled(file: File, room: Room) -> Iterator[tuple[int, dict[str, Any] | str, bytes]]:
    """The same with the bytes of each line; b"" beside a complaint about the file as a whole."""
    for number, data in whole_lines(file, room):
        if isinstance(data, bytes):
            yield number, _record(data), data
        else:
            yield number, data, b""


def whole_lines(file: File, room: Room) -> Iterator[tuple[int, bytes | str]]:
    """(line number, the line) of each whole line of a packed or plain file. A complaint (number, text) ends it."""
    number = 0
    try:
        stream = io.BytesIO(file.data)
        raw: io.RawIOBase | io.BytesIO = (
            _Bounded(stream, room.unpacked + 1) if file.name.endswith(".gz") else stream
        )
        reader = io.BufferedReader(raw, 1 << 16) if isinstance(raw, io.RawIOBase) else raw
        while data := reader.readline(LONGEST + 1):
            number += 1
            room.unpacked -= len(data)
            room.values -= data.count(b",") + data.count(b"[") + data.count(b"{")
            if len(data) > LONGEST:
                yield number, f"a line of more than {LONGEST} bytes: make the file again"
                return
            if room.unpacked < 0 or room.values < 0 or number > MOST_LINES:
                yield number, "more records than the limit of one product: leave runs out"
                return
            if not data.endswith(b"\n"):
                yield number, "the last line is cut off: continue the run (--resume), or remove the line"
                return
            yield number, data
    except ContentRefused as error:
        yield number + 1, str(error)
    except (EOFError, zlib.error):
        yield number + 1, "the gzip stream is broken or cut off: pack the file again"


def _record(data: bytes) -> dict[str, Any] | str:
    try:
        found = loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        return "not UTF-8: make the file again"
    except (ValueError, RecursionError) as error:
        return f"not strict JSON ({str(error)[:80]}): make the file again"
    return found if isinstance(found, dict) else "not a record: a line is one JSON object"


def loads(text: str) -> Any:
    """Strict JSON; ValueError or RecursionError for anything else, such as an unpaired surrogate."""
    if re.search(r"(?i)\\ud[89a-f]", text):
        json.dumps(json.loads(text), ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return json.loads(
        text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_once, parse_int=_integer
    )


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not strict JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:20]} is beyond a double")
    return value


def _integer(text: str) -> int:
    if len(text) > 30:
        raise ValueError("an integer of more than 30 digits")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice in one object")
    return found
