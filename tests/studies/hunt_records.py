# SPDX-License-Identifier: Apache-2.0
"""The table of the published records of hunts: `python -m tests.studies.hunt_records`.

`docs/hunt-evidence.md` has the table, and a test compares it with the records in `docs/hunts`.
"""

import gzip
import json
from collections import Counter

from tests.checkout import ROOT

RECORDS = ROOT / "docs" / "hunts"
HEAD = (
    *(
        "seed",
        "JAX",
        "oracles",
        "programs",
        "not judged",
        "wrong numbers",
        "crashes",
        "internal errors",
        "refusals",
    ),
    *("other oracles", "groups", "minutes judging", "of a processor"),
)
KINDS = ("numbers", "crash", "internal", "refused", "oracles")
"""The kinds of difference, in the order of the columns. A hang counts as a crash."""


def read(path):
    """(the head of a record, the lines of its programs)."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        head, *lines = map(json.loads, file)
    return head, [line for line in lines if "n" in line]


def row(path):
    """The row of one record, as texts: each program counts by its first difference, and not if that came once."""
    head, lines = read(path)
    kept = [line for line in lines if line.get("differences") and not (line.get("once") or line.get("slow"))]
    kinds = Counter(line["differences"][0]["kind"].replace("hang", "crash") for line in kept)
    minutes = [sum(line.get(name, 0.0) for line in lines) / 60 for name in ("s", "cpu")]
    return [
        f"[{head['seed']}](hunts/{path.name})",
        head["jax"],
        head["oracles"],
        f"{len(lines):,}",
        str(sum("invalid" in line for line in lines)),
        *(str(kinds[kind]) for kind in KINDS),
        str(len({line["group"] for line in lines if "group" in line})),
        *(f"{m:.1f}" for m in minutes),
    ]


def table():
    """The whole table in Markdown, by seed."""
    rows = [row(path) for path in sorted(RECORDS.glob("*.jsonl.gz"))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows))


if __name__ == "__main__":
    print(table())
