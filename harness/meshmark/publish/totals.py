# SPDX-License-Identifier: Apache-2.0
"""What the records of a product amount to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from meshmark.publish.definition import Totals
from meshmark.publish.lines import as_records
from meshmark.publish.review import Entry


def count_cases(lines: Sequence[Entry]) -> Counter[str]:
    """The number of a file's cases with each verdict, and the number of all `cases`."""
    judged = as_records(lines).cases.values()
    return Counter({"cases": len(judged)}) + Counter(one.verdict for one in judged)


def add_up(files: Mapping[str, Sequence[Entry]]) -> Totals:
    """The totals of the records: lines, cases with their verdicts (the worst one if several files judge a case), and
    timings with their samples."""
    merged = as_records([entry for lines in files.values() for entry in lines])
    verdicts = Counter(judged.verdict for judged in merged.cases.values())
    return {
        "lines": sum(map(len, files.values())),
        "runs": len(merged.runs),
        "cases": len(merged.cases),
        "verdicts": dict(sorted(verdicts.items())),
        "timings": len(merged.timings),
        "samples": sum(len(r["samples_s"]) for r in merged.timings),
        "ceilings": len(merged.ceilings),
        "comparisons": len(merged.comparisons),
    }
