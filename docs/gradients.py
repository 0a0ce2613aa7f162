# SPDX-License-Identifier: Apache-2.0
"""What is differentiated of the operations that have no gradient of their own, from docs/gradients.tsv.

`python -m tests.studies.gradients` makes the file while it traces the programs of the table. A row has three fields:

- an operation, `operation`, and its primitives that take floats and give floats, or `-` for none;
- an operation, `derivative`, and a case whose own program takes derivatives;
- a primitive, `case`, and a case that differentiates it;
- a primitive, one of `zero`, `none` and `not covered`, and `-`.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

PATH = Path(__file__).resolve().parent / "gradients.tsv"

RELEASE = "0.12.0.1"
"""The release of JAX whose primitives the file names."""

OPERATIONS = ("operation", "derivative")

PRIMITIVES = {
    "case": "a case differentiates it",
    "zero": "its derivative is zero everywhere",
    "none": "JAX has no derivative of it",
    "not covered": "no case differentiates it",
}
"""The kinds of primitives."""

REASONS = {
    "derivative": "its own program takes derivatives",
    "all": "other cases differentiate each of its primitives that has a derivative (see below)",
    "some": "other cases differentiate some of its primitives, and no case the others (see below)",
    "none": "none of its primitives has a derivative",
    "not covered": "no case differentiates it",
    "no row": "not examined yet",
}
"""What the page says of an operation without a gradient of its own."""


@dataclass(frozen=True)
class Row:
    """What the file says of one operation or primitive."""

    name: str
    kind: str
    detail: str


def read(path: Path = PATH) -> list[Row]:
    """The rows of the file. ValueError for a line that is not a row."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split("\t")
        if len(fields) != 3 or fields[1] not in (*OPERATIONS, *PRIMITIVES) or not fields[2]:
            raise ValueError(f"{path.name}:{number} is not a name, a kind and a detail")
        found.append(Row(*fields))
    return found


@cache
def operations() -> dict[str, Row]:
    """The rows of operations, by name."""
    return {row.name: row for row in read() if row.kind in OPERATIONS}


@cache
def primitives() -> dict[str, Row]:
    """The rows of primitives, by name."""
    return {row.name: row for row in read() if row.kind in PRIMITIVES}


def kinds(operation: str) -> dict[str, list[str]]:
    """The names of an operation's primitives, by kind."""
    found: dict[str, list[str]] = {kind: [] for kind in PRIMITIVES}
    detail = operations()[operation].detail
    for name in [] if detail == "-" else detail.split():
        found[primitives()[name].kind].append(name)
    return found


def reason(operation: str) -> str:
    """What is true of an operation that has no gradient of its own: one of REASONS."""
    if operation not in operations():
        return REASONS["no row"]
    if operations()[operation].kind == "derivative":
        return REASONS["derivative"]
    found = kinds(operation)
    if found["not covered"]:
        return REASONS["some" if found["case"] else "not covered"]
    return REASONS["all" if found["case"] else "none"]


def lines() -> list[str]:
    """The Markdown of the section on primitives."""
    found = [
        "## Gradients of primitives",
        "",
        "An operation without a gradient of its own consists of primitives of JAX, and cases of other operations may",
        f"differentiate these. The names are those of JAX {RELEASE}. Programs of the full profile and calls from the",
        "host of the standard profile were searched. A test traces the cases.",
        "",
        "| operation | no case differentiates | JAX has no derivative | the derivative is zero |",
        "|:--|:--|:--|:--|",
    ]
    for name, row in operations().items():
        parts = kinds(name) if row.kind == "operation" else {}
        columns = [", ".join(f"`{p}`" for p in parts.get(k, ())) for k in ("not covered", "none", "zero")]
        if any(columns):
            found.append(f"| `{name}` | {' | '.join(columns)} |")
    found += ["", "| primitive | a case that differentiates it |", "|:--|:--|"]
    found += [f"| `{row.name}` | `{row.detail}` |" for row in primitives().values() if row.kind == "case"]
    return [*found, ""]
