# SPDX-License-Identifier: Apache-2.0
"""The cases of each version of the table stay what they were: published runs are judged by the version they name.

`tables.tsv` holds one row per version: how many standard cases it has on 8 devices, and a digest of their ids.
`python -m tests.operations.test_tables` prints today's rows.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from meshmark.operations import cases
from meshmark.operations.programs.small_rules import operation
from meshmark.operations.selection import Selection
from meshmark.operations.versions import TABLE_VERSION, as_of

PATH = Path(__file__).with_name("tables.tsv")


def rows() -> Iterator[str]:
    """One row per version of today's code: the version, the number of its cases, the digest of their ids."""
    standard = Selection(profile="standard").checked(8)
    chosen = {}
    for version in range(1, TABLE_VERSION + 1):
        table = as_of(version)
        selection = table.select(standard)
        if selection not in chosen:
            chosen[selection] = sorted(cases.cases(selection, 8), key=lambda case: case.id)
        ids = [case.id for case in chosen[selection] if table.has(case)]
        yield f"{version}\t{len(ids)}\t{hashlib.sha256(chr(10).join(ids).encode()).hexdigest()[:16]}"


def test_no_version_gets_or_loses_a_case_later():
    kept, today = PATH.read_text(encoding="utf-8").splitlines(), list(rows())
    changed = [row.split("\t")[0] for row, now in zip(kept, today, strict=False) if row != now]
    assert not changed, (
        f"other cases than before in version {', '.join(changed)}: published runs name it. Raise TABLE_VERSION, and "
        "give what is new a row in data/added.tsv"
    )
    assert len(kept) == TABLE_VERSION, (
        "add the rows of the new versions: python -m tests.operations.test_tables"
    )


def test_no_small_rule_takes_the_name_of_another():
    sets = [rules for name, rules in vars(operation).items() if name.startswith("RULES")]
    names = sorted(name for rules in sets for name in rules)
    assert names == sorted(operation.SMALL_RULES), {name for name in names if names.count(name) > 1}


if __name__ == "__main__":
    print(*rows(), sep="\n")
