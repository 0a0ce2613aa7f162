# SPDX-License-Identifier: Apache-2.0
"""A false value in every field of published results: `python -m tests.studies.field_audit`.

Each change is made in a small part of a published product, and sealed again by the suite's own code, as a person would
who knows the format. It is refused, or told to the reviewer, or the field is on the list of what is taken on trust
(tests.audit.trust), which gives the reason. Anything else is a hole. The tests take a sample.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from meshmark.publish import recomputed
from tests.audit import bundles, changes, trust
from tests.audit.bundles import PARTS, Honest
from tests.audit.changes import Falsehood

MOST = 1
"""So many false values of a sort and field, in a part."""


def every(
    one: Honest, parts: Iterable[Honest], most: int = MOST, pairs: bool = False, classes: bool = False
) -> list[Falsehood]:
    """The false values of a part. `parts`: the parts from which values of other runs are taken."""
    pool = changes.pools(list(parts))
    counted: Counter[tuple[str, str, str]] = Counter()
    found = []
    makers = (
        changes.single(one, pool),
        changes.of_product(one),
        changes.of_manifest(one),
        *([changes.pairs(one, pool)] if pairs else []),
    )
    for maker in makers:
        for lie in maker:
            key = (lie.field, lie.sort, lie.where if classes else str(lie.where == "every run line"))
            counted[key] += 1
            if counted[key] <= most:
                found.append(lie)
    return found


def outcome(one: Honest, lie: Falsehood, usual: dict[str, list[str]]) -> str:
    """The outcome of one false value: `refused`, `told`, `on trust` or `hole`, or the traceback of an exception."""
    try:
        if lie.file not in usual:
            usual[lie.file] = bundles.review(one, lambda files, product: None, "", lie.file)[1]
        complaints, notes = bundles.review(one, lie.change, lie.kind, lie.file)
    except Exception:
        return traceback.format_exc()
    if complaints:
        return "refused"
    if set(notes) - set(usual[lie.file]):
        return "told"
    return "on trust" if trust.reason(lie.field, lie.sort) else "hole"


def run(one: Honest, lies: Sequence[Falsehood]) -> dict[str, str]:
    """The outcome of each false value, by its name."""
    usual: dict[str, list[str]] = {}
    return {lie.name: outcome(one, lie, usual) for lie in lies}


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit every part; 1 if there is a hole or an exception."""
    parser = argparse.ArgumentParser(prog="python -m tests.studies.field_audit", description=__doc__)
    parser.add_argument("--most", type=int, default=MOST, help=f"values of a sort and field (default {MOST})")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="N of them alone (default: all)")
    parser.add_argument("--field", default="", help="fields whose names hold this")
    parser.add_argument(
        "--every-class", action="store_true", help="in each class of lines, and not in the first one alone"
    )
    parser.add_argument("--pairs", action="store_true", help="two fields of a line at once too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="parts whose place holds this")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="each value with its outcome, tab-separated"
    )
    chosen = parser.parse_args(arguments)
    recomputed.answer = lru_cache(maxsize=1024)(recomputed.answer.__wrapped__)
    parts = [bundles.honest(part.place) for part in PARTS]
    holes, written = 0, []
    for one in parts:
        if chosen.only not in one.part.place:
            continue
        start = time.perf_counter()
        lies = every(one, parts, chosen.most, chosen.pairs, chosen.every_class)
        lies = [lie for lie in lies if chosen.field in lie.field]
        if chosen.sample:
            lies = random.Random(chosen.seed).sample(lies, min(chosen.sample, len(lies)))
        usual: dict[str, list[str]] = {}
        counted: Counter[str] = Counter()
        for lie in lies:
            found = outcome(one, lie, usual)
            word = found if found in trust.OUTCOMES else "exception"
            counted[word] += 1
            written.append(f"{one.part.place}\t{lie.field}\t{lie.sort}\t{lie.where}\t{word}\n")
            if word in ("hole", "exception"):
                holes += 1
                print(f"{word.upper()}  {lie.name}", found if word == "exception" else "", flush=True)
        told = ", ".join(f"{counted[word]} {word}" for word in (*trust.OUTCOMES, "exception"))
        print(
            f"{one.part.place}: {len(lies)} false values: {told}; {time.perf_counter() - start:.0f} s",
            flush=True,
        )
    if chosen.write:
        chosen.write.write_text("".join(written), encoding="utf-8")
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())
