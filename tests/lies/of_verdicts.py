# SPDX-License-Identifier: Apache-2.0
"""Lies about cases: verdicts, errors, digests, bytes and seconds that nobody measured, and cases that are left out."""

import random
from unittest.mock import patch

from meshmark.levels import known_issues
from meshmark.operations import cases
from meshmark.operations.selection import Selection
from tests import submissions
from tests.lies.telling import (
    GLOBAL,
    ROUNDED,
    Change,
    Lie,
    Records,
    change_runs,
    in_one_case,
    in_seconds,
    numbers,
    of_kind,
)
from tests.submissions import DEVICES, judged


def from_the_table(conformance: Records, timed: Records) -> None:
    """An L0 "on TPU v5 lite", written from the case table alone."""
    where = [{"id": i, "process": 0, "coords": [i % 2, i // 2, 0]} for i in range(DEVICES)]
    tpu = {"backend": "tpu", "device_kind": "TPU v5 lite", "virtual": False, "devices": where}
    for lines in (conformance, timed):
        change_runs(lines, lambda facts: tpu)
    for line in of_kind(conformance, "conformance"):
        if "error" in line:
            line |= {"error": 0.0, "bound": 1.0, "bits": "0123456789abcdef"}
        line.pop("collectives", None)
        line.pop("wire_bytes", None)


def smaller_error(conformance: Records, timed: Records) -> None:
    """A tenth of the error that was measured."""
    line = of_kind(conformance, "conformance", case=ROUNDED, check="numbers")[0]
    line["error"] /= 10


def other_error(conformance: Records, timed: Records) -> None:
    """A larger error than the nearest number has, and not that of any number."""
    line = of_kind(conformance, "conformance", case=ROUNDED, check="numbers")[0]
    line["error"] = (line["error"] + line["bound"]) / 2


def random_digests(conformance: Records, timed: Records) -> None:
    """Digests out of the air."""
    draw = random.Random(0)
    for line in of_kind(conformance, "conformance"):
        if "bits" in line:
            line["bits"] = f"{draw.getrandbits(64):016x}"


def another_seed(conformance: Records, timed: Records) -> None:
    """The answers of seed 0 under another seed."""
    for line in conformance:
        line["seed"] = 7


def no_collectives(conformance: Records, timed: Records) -> None:
    """A psum that exchanges nothing."""
    for line in of_kind(conformance, "conformance", check="communication", operation="psum"):
        line |= {"collectives": [], "wire_bytes": 0.0}


def fewer_bytes(conformance: Records, timed: Records) -> None:
    """Half of the payload, with the bytes on the wire that fit."""
    for line in of_kind(conformance, "conformance", check="communication", operation="psum", mode="manual"):
        line["collectives"] = [one | {"bytes": one["bytes"] // 2} for one in line["collectives"]]
        line["wire_bytes"] /= 2


def less_wire(conformance: Records, timed: Records) -> None:
    """Fewer bytes on the wire than the collectives send."""
    for line in of_kind(conformance, "conformance", check="communication"):
        line["wire_bytes"] /= 4


def one_time(conformance: Records, timed: Records) -> None:
    """Every case took a quarter of a second."""
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] = 0.25


def another_case_s_digest(conformance: Records, timed: Records) -> None:
    """The digests of two exact cases, swapped."""
    psum, gather = (
        next(
            r
            for r in of_kind(conformance, "conformance", check="numbers", operation=name)
            if name in r["case"]
        )
        for name in ("psum", "all_gather")
    )
    psum["bits"], gather["bits"] = gather["bits"], psum["bits"]


def in_no_time(conformance: Records, timed: Records) -> None:
    """Every case in some microseconds."""
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] = round(line["seconds"] / 1e4, 9)


def without_some(conformance: Records, timed: Records) -> None:
    """A level without the cases that went wrong."""
    gone = conformance[1]["case"]
    conformance[:] = [line for line in conformance if line.get("case") != gone]


def excused(conformance: Records, timed: Records) -> None:
    """A failure that is called known, by an issue that the suite lists for another case."""
    line = conformance[1]
    listed = known_issues.read_known_issues()[0]
    failed = {"verdict": "known", "was": "fail", "link": listed.link, "reason": f"{listed.why} | wrong"}
    line.update(failed)


def for_days(conformance: Records, timed: Records) -> None:
    """Cases that took longer than their run."""
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] *= 1e8


def without_check(conformance: Records, timed: Records) -> None:
    """No replicas were compared."""
    conformance[:] = [line for line in conformance if line.get("check") != "replicas"]


def more_than_all(factor: int, **fields: object) -> Change:
    """So many times the collectives in a global program."""

    def lie(conformance: Records, timed: Records) -> None:
        line = of_kind(conformance, "conformance", case=GLOBAL, check="communication")[0]
        line["collectives"] = [one | {"bytes": one["bytes"] * factor} for one in line["collectives"]]
        line["wire_bytes"] *= factor
        line.update(fields)

    return lie


def one_seed_more(conformance: Records, timed: Records) -> None:
    """One case under a seed at which it passes."""
    for line in of_kind(conformance, "conformance", case=ROUNDED):
        line["seed"] = 7


def with_special_values(conformance: Records, timed: Records) -> None:
    """A case with a NaN, and an error larger than any number."""
    lines = judged(cases.find("psum/axes=x+y,fill=nan-one/auto/2x2/float32/4KiB", DEVICES))
    of_kind(lines, "conformance", check="numbers")[0].update(error=1e299, bound=1e300)
    conformance += lines


def without_field(name: str) -> Change:
    """Numbers without one of their fields."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(conformance, "conformance", check="numbers"):
            line.pop(name, None)

    return lie


def first_case(verdict: str) -> Change:
    """The first case of the level, which nobody ran."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(conformance, "conformance", case=conformance[1]["case"], check="execute"):
            line.update(verdict=verdict, reason="not here")

    return lie


def of_the_reference(conformance: Records, timed: Records) -> None:
    """Rounded cases whose answers nobody computed in their own dtype: each is the number nearest to the reference."""
    found = cases.cases(Selection(operations=("pmean", "mlp", "dense")), DEVICES)
    rounded = [case for case in found if case.plan.judge == "bound"][:40]
    with patch.object(submissions, "NEAREST", True):
        for case in rounded:
            conformance += judged(case)


LIES: dict[str, Lie] = {
    "the answers of the reference instead of a device's": Lie(
        of_the_reference, "rounded cases are the numbers nearest to the reference"
    ),
    "a level on TPU v5 lite from the case table alone": Lie(
        from_the_table, "error 0.0 and bound 1.0 of an exact case"
    ),
    "the same: no collectives": Lie(from_the_table, "passes its communication check without `collectives`"),
    "an error of 1e299 under a bound of 1e300": Lie(
        numbers(error=1e299, bound=1e300), "is not one of the reference's"
    ),
    "an error of 0 in a rounded case": Lie(numbers(error=0.0, bound=0.0), "its error is at least"),
    "a tenth of the measured error": Lie(smaller_error, "the nearest numbers are"),
    "an error that no number gives": Lie(other_error, "is not that of a number that float32 has"),
    "random digests": Lie(random_digests, "bits .* are not those of seed 0"),
    "the answers of another seed": Lie(another_seed, "bits .* are not those of seed 7"),
    "a psum without collectives": Lie(no_collectives, "must have all-reduce of"),
    "half of the payload": Lie(fewer_bytes, "must have all-reduce of 4096 B over groups of 4"),
    "fewer bytes on the wire": Lie(less_wire, "are not those of its collectives"),
    "a looser arithmetic": Lie(
        numbers(precision="default (7 bits)"), "precision 'default .7 bits.' of a case at"
    ),
    "every case in the same time": Lie(one_time, "took 1 different times"),
    "a failure made a pass, its reason left": Lie(
        in_one_case("numbers", reason="1 of 4096 elements differ"), "passes, and gives a reason"
    ),
    "a pass of which some runs were wrong": Lie(
        in_one_case("numbers", wrong_runs=3), "passes, and 3 of its runs were wrong"
    ),
    "an error that another mode with the same output does not have": Lie(
        numbers(error=0.0, bound=1.0), "has the same output .`bits`. as line"
    ),
    "numbers of the interpreter": Lie(
        in_one_case("numbers", interpreted=True), "is interpreted in a run on devices"
    ),
    "cases in microseconds": Lie(in_no_time, "no compiler is as fast"),
    "the digest of another case": Lie(another_case_s_digest, "bits .* are not those of seed 0"),
    "four bytes on the wire of a global program": Lie(
        in_one_case(
            "communication",
            GLOBAL,
            collectives=[{"kind": "all-reduce", "bytes": 4, "groups": "1x4", "trips": 1}],
            wire_bytes=6.0,
        ),
        "the collective that it computes takes 1536 B at least",
    ),
    "a level without what failed": Lie(without_some, "claims L0, which is not met .*1 missing"),
    "a failure excused by the issue of another case": Lie(excused, "does not list for it"),
    "cases of days": Lie(for_days, "and its run began"),
    "no replicas compared": Lie(without_check, "without its check replicas"),
    "64 times the bytes, and no excess": Lie(
        more_than_all(64, excess_bytes=0.0), "excess_bytes .* are not those"
    ),
    "more bytes than all arguments have": Lie(more_than_all(64), "over the ceiling of"),
    "a pass of a process that died": Lie(
        in_one_case("execute", signal="SIGSEGV", stderr=["x"]), "execute passes with `signal`"
    ),
    "a pass that was a failure": Lie(
        in_one_case("numbers", was="fail", link="https://example.org/1"), "numbers passes with `was`"
    ),
    "fields of a compile-only run": Lie(
        in_one_case("execute", topology="v5e:2x4", memory_bytes=5), "execute passes with `topology`"
    ),
    "a known issue that nobody listed, fixed": Lie(
        in_one_case("numbers", fixed=True), "called fixed, and no known issue lists it"
    ),
    "a deviation that nobody listed": Lie(
        in_one_case("numbers", deviation="JAX is documented so"), "a deviation that the suite does not list"
    ),
    "one program repeated, and the run repeats none": Lie(
        numbers(runs=50, differing_runs=0, wrong_runs=0), "ran 50 times, and the run repeats none"
    ),
    "a theory of one's own": Lie(
        in_one_case("communication", GLOBAL, theory={"x+y": 1.0}), "`theory` is .*, and the case's is"
    ),
    "fewer operations than none": Lie(in_one_case("communication", GLOBAL, flops=-5.0), "`flops` is -5.0"),
    "infinite traffic": Lie(
        in_one_case("communication", GLOBAL, bytes_accessed="inf"), "`bytes_accessed` is inf"
    ),
    "a case of the level that is called unsupported": Lie(
        first_case("unsupported"), "claims L0, .*1 unsupported"
    ),
    "a case of the level that did not run": Lie(first_case("not_run"), "claims L0, .*1 not_run"),
    "one case under a better seed": Lie(one_seed_more, "is of seed 7, and its run of another"),
    "a case with a NaN and an error of 1e299": Lie(with_special_values, "of an exact case, which are 0"),
    "a thousand machines' operations": Lie(
        in_one_case("communication", GLOBAL, flops=1e30), "computes 1e.30 operations on a device, and each"
    ),
    "more memory than there is": Lie(
        in_one_case("communication", GLOBAL, temp_bytes=10**18), "needs 1e.18 B for temporaries on a device"
    ),
    "twice the operations of its plan": Lie(
        in_one_case("communication", GLOBAL, flops=2e6),
        "computes 2000000 operations on a device, and the plan",
    ),
    "twice the memory of its plan": Lie(
        in_one_case("communication", GLOBAL, temp_bytes=3 << 20),
        "needs 3145728 B for temporaries on a device, and",
    ),
    "operations that are told, and that no program can have": Lie(
        in_one_case("communication", GLOBAL, flops=1e30, told=["computes 1e+30 operations on a device"]),
        "each element with every other one",
    ),
    "a program that reads and writes nothing": Lie(
        in_one_case("communication", GLOBAL, bytes_accessed=0.0),
        "`bytes_accessed` is 0, and one of its collectives",
    ),
    "subnormals kept where there are none": Lie(
        in_one_case("numbers", subnormals="kept"), "says of subnormal numbers that they were kept"
    ),
    "numbers without a digest": Lie(without_field("bits"), "passes without `bits`"),
    "numbers without an error": Lie(without_field("error"), "passes with error None"),
    "an infinite error under an infinite bound": Lie(
        numbers(error="inf", bound="inf"), "error inf and bound"
    ),
    "an error that is not a number": Lie(numbers(error="nan"), "passes with error nan"),
    "a second rank in one process": Lie(
        in_one_case("numbers", ranks={"0": "pass", "1": "fail"}), "is of rank 1 of 1"
    ),
    "a level that nobody has": Lie(
        in_one_case("execute", GLOBAL, level="L9"), "level of .* is .L9. here, and .L1. in its first line"
    ),
    "seconds in two lines of a case": Lie(
        in_one_case("communication", GLOBAL, seconds=0.1), "is not closed by"
    ),
    "seconds of two digits": Lie(in_seconds(lambda s: round(s, 2) or 0.01), "cases took .* different times"),
}
