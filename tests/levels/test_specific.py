# SPDX-License-Identifier: Apache-2.0
"""A known issue hides what it describes, and nothing else.

The lines that a row was made for still match it: those of the published records, and those of `known_lines.jsonl`,
which runs on JAX 0.12.0.1 and 0.11.2 gave for cases that no published run has. Other failures of the same cases match
no row."""

import gzip
import json
import re
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import pytest

from meshmark.core.verdicts import CHECKS
from meshmark.levels import known_issues
from meshmark.operations.base import MODES
from tests.checkout import ROOT

ISSUES = known_issues.read_known_issues()
LINES = Path(__file__).parent / "known_lines.jsonl"

OTHER_WRONG = (
    "1 of 1000003 elements differ on cpu:5 (shard [0:1000003]): at [777777] expected 3.0, seen 1e+30",
    "512 of 1025 elements differ on cpu:0 (shard [0:25, 0:41]): at [3, 5] expected 3.0, seen -7.25",
    "1025 of 1025 elements differ on cpu:0 (shard [0:25, 0:41]): at [0, 0] expected 3.0, seen nan",
    "result is float16[8] instead of float32[8]",
    "devices cpu:0 and cpu:1 hold different replicas of [0:8]",
    "cpu:0 holds [3, 3] where its sharding says [0:4, 0:4, 0:1]",
)
OTHER_COMMUNICATION = (
    "expected all-reduce of 4096 B over [[0, 1]], found nothing",
    "all-to-all over [[0, 1], [2, 3]] is not in the contract; found all-to-all of 64 B over 2x2",
    "sends 900000 B per device, over the ceiling of 10 B: all-to-all of 900000 B over 1x8",
    "expected all-gather of 64 B over [[0, 1]], found all-gather of 192 B over 1x2: moved in 32 bits",
    "needs 900000000 B for temporaries on a device, and the plan allows 10",
)
OTHER_ERRORS = (
    "ValueError: something else",
    "AssertionError: something else",
    "RuntimeError: something else",
    "JaxRuntimeError: INTERNAL: RET_CHECK failure (external/xla+/xla/service/other.cc:7) a == b",
    "JaxRuntimeError: INTERNAL: during context [hlo verifier]: Expected instruction to have shape equal to"
    " u8[3,5], actual shape is u8[7,5]:",
)
OTHER_CRASHES = (
    "SIGABRT",
    "SIGKILL",
    "SIGSEGV, in array:__array__:1",
    "SIGABRT: F1125 10:45:29.484162   12986 other_file.cc:12] Check failed: a == b (2 vs. 3)",
    "SIGABRT, in compiler:backend_compile_and_load:381",
)
OTHER_HANGS = ("past its deadline, in api:wait:1",)


def case_of(record):
    """The id of a case without the topology for which it was compiled."""
    return record["case"].partition("@")[0]


def rows_of(record, issues=None):
    """The rows that explain a line of a record or of the corpus."""
    was = record["check"], record["was"], record["reason"], record.get("stderr")
    return [i for i in issues or ISSUES if i.covers(case_of(record)) and i.explains(*was)]


@lru_cache(maxsize=1)
def published():
    """Every line with the verdict known of the published records."""
    found = []
    for path in sorted((ROOT / "results").rglob("*.jsonl*")):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as lines:
            found += [
                record for line in lines if '"known"' in line if (record := json.loads(line)).get("link")
            ]
    return [record for record in found if record.get("verdict") == "known" and "was" in record]


@lru_cache(maxsize=1)
def committed():
    return [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]


@lru_cache(maxsize=1)
def examples():
    """One recorded line for each row that has any, by the position of the row."""
    first = {}
    for record in (*committed(), *published()):
        for issue in rows_of(record):
            first.setdefault(ISSUES.index(issue), record)
    return first


def test_the_published_lines_match_a_row_of_their_link():
    lines = published()
    assert len(lines) > 900
    lost = [r for r in lines if not any(r["link"] in (i.link, *i.earlier) for i in rows_of(r))]
    assert not lost, [(r["case"], r["reason"][:200]) for r in lost[:5]]


def test_the_committed_lines_match_a_row_of_their_place():
    for line in committed():
        here = [i for i in ISSUES if i.concerns(line["jax"], line["backend"])]
        assert rows_of(line, here), line["case"]


UNRECORDED = {
    "transformed_shard_map/transform=vmap_vjp": "JAX 0.12.0.1 passes it on this project's machines",
    "smooth_functions_gradient/*group=zeros": "a crash of JAX 0.11",
    "exact_functions/*group=polyval": "JAX before 0.12",
    "rounded_functions/*group=betainc": "JAX before 0.12",
    "refusal/kind=deleted_argument": "a crash of JAX 0.10",
    "transform/transform=pure_callback": "the GPU compiler without a GPU",
    "rounded_functions/*group=products": "the GPU compiler",
    "ring_attention/*/n32": "the GPU compiler",
}
"""The beginnings of rows of which no line is recorded, and where they fail."""


def test_every_other_row_has_a_recorded_line():
    without = {issue.cases[0] for number, issue in enumerate(ISSUES) if number not in examples()}
    assert all(any(case.startswith(name) for name in UNRECORDED) for case in without), without
    assert all(any(case.startswith(name) for case in without) for name in UNRECORDED)


def others_of(issue):
    """(check, verdict, reason) of failures that no known issue describes, of the kinds that the row may hide."""
    by_kind = defaultdict(tuple)
    by_kind |= {"error": OTHER_ERRORS, "crash": OTHER_CRASHES, "hang": OTHER_HANGS}
    for check in issue.checks:
        for verdict in issue.verdicts:
            wrong = OTHER_COMMUNICATION if check == "communication" else OTHER_WRONG
            for reason in wrong if verdict == "fail" else by_kind[verdict]:
                yield check, verdict, reason


@pytest.mark.parametrize("number", range(len(ISSUES)), ids=lambda n: f"{n}-{ISSUES[n].cases[0][:30]}")
def test_another_failure_of_its_cases_matches_no_row(number):
    issue = ISSUES[number]
    for other in others_of(issue):
        assert not issue.explains(*other), other


def altered(record):
    """The failure of a record with something else in it, such as another number."""
    reason = record["reason"]
    if "elements differ on" in reason and "nan" not in reason and "fill=nan" not in record["case"]:
        yield re.sub(r"seen [^\s;|]+", "seen nan", reason), "a NaN is seen"
    if found := re.search(r"expected (-?[\d.]+), seen [^\s;|]+", reason):
        yield (
            re.sub(r"seen [^\s;|]+", f"seen {float(found[1]) * -37.3 - 0.7}", reason),
            "another value is seen",
        )
    if "elements differ on" in reason:
        yield re.sub(r"\(shard \[[\d:, ]*\]\): at \[[\d, ]*\]", "", reason), "no place is told"
    if "actual shape is" in reason:
        yield re.sub(r"actual shape is \w+\[", "actual shape is pred[9,", reason), "another shape is actual"
    if ".cc:" in reason or ".h:" in reason:
        yield re.sub(r"\b\w+\.(cc|h):\d+", r"elsewhere.\1:7", reason), "another file"


KEPT = {
    "a NaN is seen": set(),
    "another value is seen": {
        # how wrong the values are depends on the data of the case: the place or the number of elements tells the issue
        *("dynamic_update_slice", "dynamic_slice", "shift_set", "reduce_window_gradient", "ppermute"),
        *("batch_grid", "feature_groups", "every_value"),
        "*_gradient",  # the harness says how far off they are
    },
    "no place is told": set(),
    "another shape is actual": set(),
    "another file": set(),
}
"""The beginnings of rows that match such a failure too. Each of them needs to."""


def too_wide():
    """(what is altered, the row) where a row still matches."""
    for number, record in examples().items():
        issue = ISSUES[number]
        for reason, what in altered(record):
            if issue.explains(record["check"], record["was"], reason):
                yield what, issue.cases[0]


def test_only_rows_that_need_it_are_kept():
    found = set(too_wide())
    for what, names in KEPT.items():
        assert {n for n in names if any(w == what and case.startswith(n) for w, case in found)} == names


@pytest.mark.parametrize("number", range(len(ISSUES)), ids=lambda n: f"{n}-{ISSUES[n].cases[0][:30]}")
def test_its_own_failure_with_something_else_in_it_matches_no_row(number):
    issue, record = ISSUES[number], examples().get(number)
    if record is None:
        pytest.skip("no line of this row is recorded")
    for reason, what in altered(record):
        if not any(issue.cases[0].startswith(name) for name in KEPT[what]):
            assert not issue.explains(record["check"], record["was"], reason), (what, reason[-300:])


@pytest.mark.parametrize("number", range(len(ISSUES)), ids=lambda n: f"{n}-{ISSUES[n].cases[0][:30]}")
def test_another_check_another_verdict_or_another_mode_matches_no_row(number):
    issue, record = ISSUES[number], examples().get(number)
    if record is None:
        pytest.skip("no line of this row is recorded")
    reason, stderr = record["reason"], record.get("stderr")
    assert issue.explains(record["check"], record["was"], reason, stderr)
    for check in set(CHECKS) - set(issue.checks):
        assert not issue.explains(check, record["was"], reason, stderr)
    for verdict in {"fail", "error", "crash", "hang"} - set(issue.verdicts):
        assert not issue.explains(record["check"], verdict, reason, stderr)
    operation, variant, _, *rest = case_of(record).split("/")
    for mode in set(MODES) - set(issue.modes):
        assert not issue.covers("/".join((operation, variant, mode, *rest)))


def test_a_rank_with_another_failure_is_not_hidden_by_the_rest():
    issue = next(i for i in ISSUES if i.cases[0].startswith("uneven_scatter"))
    own = "1 of 16 elements differ on cpu:0 (shard [0:16]): at [0] expected 1.0, seen 2.0"
    other = own.replace("seen 2.0", "seen 7.5")
    assert issue.explains("numbers", "fail", f"rank 0: {own} | ranks 1, 2: {own}")
    assert not issue.explains("numbers", "fail", f"rank 0: {own} | rank 1: {other}")
