# SPDX-License-Identifier: Apache-2.0
"""Reads published results, and defines the layout of `results/`.

    results/<jax release>/<product>/
        conformance.jsonl.gz, timing.jsonl.gz ...   raw records; plain .jsonl is read too
        product.yaml        who and what, and the command that repeats it (see records.product_definition)
        environment.json    the facts of each run, from its run line
        manifest.json       SHA-256 and size of each file, totals, the level statement, marks
    results/compile-only/<jax release>/*.jsonl      compile-only records, which this module does not read

Records are packed, because people who want one product clone all of them. The standard profile on eight devices is some
16,000 lines, and gzip makes it 28 times smaller (smoke records: 199,049 to 7,130 bytes; timings 7.6 times).
`zcat FILE | sed -n 12p` shows the line that a complaint names.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, cast

from packaging.version import InvalidVersion, Version

from meshmark.core import extras, files
from meshmark.core.errors import BadInput
from meshmark.records import product_definition, reading
from meshmark.records.fields import Field, entries, taken_apart
from meshmark.records.product_definition import ABOUT, MOST_LISTED, Mark, NoteData, NoteText, ProductData
from meshmark.records.reading import Records

PRODUCT, ENVIRONMENT, MANIFEST = "product.yaml", "environment.json", "manifest.json"
RECORDS = re.compile(r"[a-z][a-z0-9-]{0,40}\.jsonl(?:\.gz)?")
"""Names of record files in a product's directory."""

NAME = re.compile(product_definition.NAME)
"""Names of products: they become directories and links."""

RELEASE = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,6}){1,4}(?:(?:\.?dev|rc|a|b)[0-9]{1,10})?")
"""Names of the directories of JAX releases; any other directory in results/ is something else."""

EXPIRES_AFTER = 2
"""JAX minors by which a result may be older than the newest before it expires."""

LONGEST_PRODUCT = 1 << 14
"""Bytes of the longest product.yaml."""

MOST_BRACKETS = 200
"""Brackets in it: PyYAML takes 73 s for 60,000 of them, nested."""

MENDS = {
    "name": "use lower-case letters, digits, '.', '_' and '-', at most 64",
    "level": "the level that is claimed, such as L2; leave it out for none",
}
"""What to do about a text that does not match its pattern, by field."""

BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and symbols that are shown as nothing."""

_STACKED = re.compile("m{5}")
"""More marks on one letter than any script has: they cover the lines above and below it."""


class ResultError(BadInput, ValueError):
    """A result that can't be read; the message is one line that names the file and the mend."""


@dataclass(frozen=True)
class Product:
    """One product of one release: the contents of its directory."""

    release: str
    name: str
    path: Path
    records: tuple[Path, ...]
    """The record files, sorted by name."""
    product: ProductData
    """Its product.yaml."""

    def read(self) -> list[Records]:
        """The records of each file; RecordError if one can't be read."""
        return [reading.read_records(path) for path in self.records]


def find_products(root: Path) -> list[Product]:
    """The products below results/, sorted by release (the newest first) and then by name. ResultError if a directory
    that should hold a product does not. Directories that are not a JAX release (compile-only, the page) are ignored."""
    found = []
    for release in _directories(root):
        if not RELEASE.fullmatch(release.name):
            continue
        for path in (release, *_directories(release)):
            if path.is_symlink():  # `meshmark validate` takes none, so nobody checked what it leads to
                raise ResultError(f"{path}: a link to a directory: put the directory itself here")
        for path in _directories(release):
            found.append(product_in(path))
    return sorted(found, key=lambda p: (_sortable(p.release), p.name))


def product_in(path: Path) -> Product:
    """The product in this directory; its parent's name is the release."""
    path = path.absolute()
    release = path.parent.name
    if not RELEASE.fullmatch(release):
        raise ResultError(
            f"{path}: a product stands in <jax release>/<product>, and {release[:40]!a} is not a release"
        )
    if not NAME.fullmatch(path.name):
        raise ResultError(f"{path}: no name of a product: use lower-case letters, digits, '.', '_' and '-'")
    product = read_product(path / PRODUCT)
    if product["name"] != path.name:
        raise ResultError(
            f"{path / PRODUCT}: `name` is {product['name']!a} in directory {path.name!a}: make them one"
        )
    files = tuple(sorted(p for p in path.iterdir() if RECORDS.fullmatch(p.name)))
    if not files:
        raise ResultError(f"{path}: no records (*.jsonl or *.jsonl.gz): add them, or take the directory away")
    return Product(release, path.name, path, files, product)


def _directories(path: Path) -> list[Path]:
    try:
        return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError as error:
        raise ResultError(f"can't read {path}: {os.strerror(error.errno or 0)}") from None


def _sortable(release: str) -> tuple[int, ...]:
    version = _parse_release(release)
    return tuple(-n for n in (*version.release, 0, 0, 0, 0)[:5])


def _parse_release(release: str) -> Version:
    try:
        return Version(release)
    except InvalidVersion:
        raise ResultError(f"{release[:40]!a} is not a JAX release: use one such as 0.12.0.1") from None


def is_expired(release: str, newest: str) -> bool:
    """Whether a result of this release is more than two JAX minors older than the newest. The number of minors of a
    major release is not known here, so the first minor of the next major counts as one more."""
    old, new = _parse_release(release), _parse_release(newest)
    if new.major == old.major:
        return new.minor - old.minor > EXPIRES_AFTER
    return new.major > old.major and (new.major - old.major > 1 or new.minor + 1 > EXPIRES_AFTER)


def newest(releases: Iterable[str]) -> str:
    """The newest of these releases; "" if there is none."""
    return max(releases, key=_parse_release, default="")


# product.yaml -----------------------------------------------------------------------------------------------


def read_product(path: Path) -> ProductData:
    """The contents of a product.yaml; ResultError, in one line, if it is not valid."""
    try:
        with files.opened(path) as file:
            data = file.read(LONGEST_PRODUCT + 1)
    except OSError as error:
        raise ResultError(f"can't read {path}: {os.strerror(error.errno or 0)}") from None
    return parse_product(data, str(path))


def _commented(yaml: Any, text: str) -> int:
    """The line of the first comment in a YAML text; 0 if there is none. A comment stands outside of every token, and no
    check and no page reads it."""
    at = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        between = text[at : token.start_mark.index]
        if "#" in between:
            return text.count("\n", 0, at + between.index("#")) + 1
        at = max(at, token.end_mark.index)
    return 0


def parse_product(data: bytes, path: str) -> ProductData:
    """The contents of a product.yaml from its bytes; ResultError, in one line, if they are not valid.

    Anchors and aliases are refused, because a few lines of them make gigabytes. So are tags, which name other types
    than text, and names that come twice."""
    yaml = _yaml()
    if len(data) > LONGEST_PRODUCT:
        raise ResultError(f"{path}: more than {LONGEST_PRODUCT} bytes: shorten it")
    try:
        text = data.decode("utf-8")
        if text.count("{") + text.count("[") > MOST_BRACKETS:
            raise ResultError(f"{path}: more than {MOST_BRACKETS} brackets: write plain `name: value` lines")
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if getattr(event, "anchor", None) is not None:
                raise ResultError(
                    f"{path}:{event.start_mark.line + 1}: anchors and aliases: write the text out"
                )
            if getattr(event, "tag", None) is not None:
                raise ResultError(f"{path}:{event.start_mark.line + 1}: tags: write the text in quotes")
        if commented := _commented(yaml, text):
            raise ResultError(f"{path}:{commented}: a comment: write a note instead, which every page shows")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        found = yaml.safe_load(text)
    except UnicodeDecodeError:
        raise ResultError(f"{path}: not UTF-8: write it again") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ResultError(
            f"{path}{line}: not YAML ({str(error.problem)[:80]}): see docs/submitting.md"
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError, LookupError) as error:
        if isinstance(error, ResultError):
            raise
        first = (str(error).splitlines() or [""])[0]
        raise ResultError(f"{path}: not YAML ({first[:80]}): see docs/submitting.md") from None
    if not isinstance(found, dict):
        raise ResultError(f"{path}: no `name: value` lines: see docs/submitting.md")
    for why in _ambiguous(node):
        raise ResultError(f"{path}: {why}")
    return checked_product(found, path)


def _ambiguous(node: Any) -> Iterator[str]:
    """Yields the names of a YAML text, at any depth, that readers may take for other ones: names that come twice, and
    `<<`, which puts further fields where nobody sees them."""
    todo = [node]
    while todo:
        value = todo.pop().value
        if not isinstance(value, list):
            continue
        pairs = [pair for pair in value if isinstance(pair, tuple)]
        todo += [one for one in value if not isinstance(one, tuple)] + [inner for _, inner in pairs]
        keys = [str(key.value) for key, _ in pairs]
        if twice := next((k for k in keys if keys.count(k) > 1), None):
            yield f"{twice[:40]!a} comes twice: take one away"
        if "<<" in keys:
            yield "'<<' merges fields: write each one out"


def checked_product(found: Mapping[Any, object], path: str = PRODUCT) -> ProductData:
    """The contents of a product.yaml, with `notes` and `marks` added; ResultError names the first wrong field and the
    mend."""
    for problem in problems_of_product(found, path):
        raise ResultError(problem)
    return cast(ProductData, {**found, "notes": found.get("notes", []), "marks": found.get("marks", [])})


def problems_of_product(found: Mapping[Any, object], path: str = PRODUCT) -> Iterator[str]:
    """The problems in the contents of a product.yaml, one line each, with the mend."""
    listed = entries(ProductData)
    valid = [entry.name for entry in listed]
    for name in found:
        if name not in valid:
            yield f"{path}: unknown field {str(name)[:40]!a}: choose from {', '.join(valid)}"
    for entry in listed:
        plain, _ = taken_apart(entry.type)
        if plain is not str or (entry.name not in found and not entry.required):
            continue
        value, limits = found.get(entry.name), _limits(entry.type)
        if not _is_text(value, limits):
            yield f"{path}: `{entry.name}` {_must_be(limits)}"
        elif not re.search(limits.pattern, value):
            yield f"{path}: `{entry.name}`: {MENDS[entry.name]}"
    notes, marks = found.get("notes", []), found.get("marks", [])
    if (
        not isinstance(notes, list)
        or not isinstance(marks, list)
        or max(len(notes), len(marks)) > MOST_LISTED
    ):
        yield f"{path}: `notes` and `marks` must be lists of at most {MOST_LISTED}"
        return
    names, limits = NoteData.__annotations__.keys(), _limits(NoteText)
    for note in notes:
        if not isinstance(note, dict) or note.keys() != names or note["about"] not in ABOUT:
            yield f"{path}: a note is {{about: ..., text: ...}}, about one of {', '.join(ABOUT)}"
        elif not _is_text(note["text"], limits):
            yield f"{path}: the `text` of a note {_must_be(limits)}"
    if not all(_is_text(mark, _limits(Mark)) for mark in marks):
        yield f"{path}: a mark {_must_be(_limits(Mark))}"


def _limits(hint: Any) -> Field:
    """The limits of an annotated text."""
    _, (limits,) = taken_apart(hint)
    return limits


def _is_text(value: object, limits: Field) -> TypeGuard[str]:
    """Whether a value is one line of text that somebody can see, with no more characters than the limit."""
    return (
        isinstance(value, str)
        and bool(value.strip(f" {BLANK}"))
        and value.isprintable()
        and (limits.most is None or len(value) <= limits.most)
        and not _STACKED.search(
            "".join("m" if unicodedata.category(c) in ("Mn", "Me") else " " for c in value)
        )
    )


def _must_be(limits: Field) -> str:
    quoted = "in quotes, if YAML takes it for a number or date"
    return f"must be one line of text, at most {limits.most} characters ({quoted})"


def product_text(product: ProductData) -> str:
    """A product.yaml as text."""
    shown = {k: v for k, v in product.items() if v not in ([], "", None)}
    text: str = _yaml().safe_dump(shown, sort_keys=False, allow_unicode=True, width=110)
    return text


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise ResultError(
            f"product.yaml is read with PyYAML, which is not installed: {extras.command('submit')}"
        ) from None
    return yaml
