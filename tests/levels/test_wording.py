# SPDX-License-Identifier: Apache-2.0
"""The symptoms of known issues match what the judge writes today.

Each recorded failure is taken apart into its figures, and the judge's own functions write the reason from these figures
again. If the judge says a thing in other words, its rows no longer match, and the test fails."""

import faulthandler
import math
import re
import tempfile
from collections import defaultdict
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from meshmark.core.hlo import Collective
from meshmark.core.verdicts import Line
from meshmark.devices import containment
from meshmark.devices.containment import line_of_death
from meshmark.judge import checks, communication, compile_only, numbers, theory
from meshmark.judge.checks import line_of_exception, numbers_lines
from meshmark.judge.placement import placement
from meshmark.levels import known_issues
from meshmark.operations import cases
from meshmark.operations.base import Traffic
from meshmark.ranks.agreement import merge_findings
from tests.levels.test_specific import ISSUES, case_of, examples

BUILDERS = {}
"""What writes a reason again, by a pattern on the recorded one."""

PART = re.compile(r"(\d+):(\d+)")
COLLECTIVE = re.compile(r"([a-z-]+) of (\d+) B over (?:(\d+)x(\d+)|(\d+) pairs)")


def builder(pattern):
    """Register a function of (record, match of its reason) that gives the judge's line."""
    return lambda function: BUILDERS.setdefault(re.compile(pattern, re.DOTALL), function)


def own_reason(record):
    """What the judge said: without why the issue is listed, and of the first rank that says something."""
    return re.sub(r"^ranks? [\d, ]+: ", "", record["reason"].rpartition(" | ")[2])


@cache
def rewritten(number):
    """(the builder, the line) of the row's recorded failure, as the judge writes it today."""
    record = examples()[number]
    reason = own_reason(record)
    for pattern, build in BUILDERS.items():
        if match := pattern.fullmatch(reason):
            return build, build(record, match)
    raise AssertionError(f"nothing of the judge writes {reason!r}")


# Numbers, replicas, sharding --------------------------------------------------------------------------------


def exact(**fields):
    """A case whose results must be exact, on a mesh of these axes."""
    plan = SimpleNamespace(judge="exact", wrt=(), placed=True)
    return SimpleNamespace(
        plan=plan, mesh=SimpleNamespace(sizes=fields or {"x": 1}, size=math.prod(fields.values()))
    )


def slices(text):
    """The slices of "0:4, 2:3"."""
    return tuple(slice(int(a), int(b)) for a, b in PART.findall(text))


def value(text):
    """The number or truth value that is told, and the dtype that prints it so."""
    if text in ("True", "False"):
        return text == "True", "bool"
    if re.fullmatch(r"-?\d+", text):
        return int(text), "int64"
    return (complex(text), "complex128") if "j" in text else (float(text), "float64")


@builder(
    r"(\d+) of (\d+) elements differ on (.+) \(shard \[([\d:, ]*)\]\): at \[([\d, ]*)\]"
    r" expected (\S+), seen (\S+?)(; .*)?"
)
def differing(record, match):
    """One shard, with so many wrong elements."""
    count, size, device, place, at, wanted, seen, rounded = match.groups()
    index, at = slices(place), tuple(int(i) for i in at.split(", ") if i)
    (expected, dtype), (found, other) = value(wanted), value(seen)
    dtype = "float32" if rounded else other if wanted == "nan" else dtype
    want = np.zeros([i.stop for i in index], dtype)
    want[at] = expected
    data = np.array(want[index])
    assert data.size == int(size)
    first = tuple(a - i.start for a, i in zip(at, index, strict=True))
    data[first] = found
    places = list(np.ndindex(data.shape))
    behind = places.index(first) + 1
    others, bound = (places[behind:] + places[: behind - 1])[: int(count) - 1], None
    assert len(others) == int(count) - 1
    if (
        len(others) > data.size - behind
    ):  # the worst element is not the first wrong one: a result with a bound
        data[tuple(zip(*others, strict=True))] = 1e-6 * abs(found - expected)
        bound = np.full(want.shape, 1e-9 * abs(found - expected))
    for other_place in others if bound is None else ():
        own = tuple(o + i.start for o, i in zip(other_place, index, strict=True))
        want[own] = expected if wanted == "nan" else 0
        data[other_place] = found if "nan" in (wanted, seen) else 1 if dtype == "int64" else 1e-30
    shard = numbers.Shard(device, data, index)
    result = SimpleNamespace(shape=want.shape, spec=(), dtype=dtype)
    compared = numbers.compare_shards(exact(), ["another"], result, [shard], want, bound)
    return numbers_lines(exact(), [compared])[0]


@builder(r"(.+) holds \[([\d, ]*)\] where its sharding says \[([\d:, ]*)\]")
def misshapen(record, match):
    """A shard whose own sharding has another shape."""
    device, held, said = match.groups()
    index, shape = slices(said), [int(n) for n in held.split(", ") if n]
    want = np.zeros([i.stop for i in index], np.float32)
    result = SimpleNamespace(shape=want.shape, spec=(), dtype="float32")
    shard = numbers.Shard(device, np.zeros(shape, np.float32), index)
    compared = numbers.compare_shards(exact(), ["another"], result, [shard], want, None)
    line = numbers_lines(exact(), [compared])[0]
    return Line(record["check"], line.verdict, line.reason, line.data)


@builder(r"devices (.+) and (.+) hold different replicas of \[([\d:, ]*)\]")
def unlike_replicas(record, match):
    """Two devices with other numbers for one part."""
    one, other, place = match.groups()
    index = slices(place)
    want = np.zeros([i.stop for i in index], np.float32)
    result = SimpleNamespace(shape=want.shape, spec=(), dtype="float32")
    shards = [numbers.Shard(device, want[index] + i, index) for i, device in enumerate((one, other))]
    compared = numbers.compare_shards(exact(), ["another"], result, shards, want, None)
    return numbers_lines(exact(), [compared])[1]


def placed_as(held, wanted):
    """(case, result) of which the first device is to hold one part, of the shape of another."""
    whole, own = slices(held), slices(wanted)
    sizes = {
        f"d{i}": (w.stop // o.stop if o.stop else 1) for i, (w, o) in enumerate(zip(whole, own, strict=True))
    }
    shape = tuple(i.stop for i in whole)
    return exact(**sizes), SimpleNamespace(shape=shape, spec=tuple(sizes), dtype="float32")


@builder(r"(.+) would hold \[([\d:, ]*)\] instead of \[([\d:, ]*)\] \((.*)\)")
def promised(record, match):
    """A compiled program that promises the whole of a result to each device."""
    device, held, wanted, told = match.groups()
    case, result = placed_as(held, wanted)

    class Told(SimpleNamespace):
        def __str__(self):
            return told

        def devices_indices_map(self, shape):
            return {place: slices(held) for place in places}

    places = [device, *(f"{device}{i}" for i in range(1, case.mesh.size))]
    shaped = SimpleNamespace(shape=result.shape, dtype=np.dtype("float32"))
    lowered, compiled = SimpleNamespace(out_info=[shaped]), SimpleNamespace(output_shardings=[Told()])
    return compile_only.check_promises(case, places, [result], lowered, compiled, [])


def test_an_empty_result_that_is_whole_on_each_device_is_known():
    """The other wording of the row, which no published record has: `holds ... instead of`."""
    case, result = placed_as("[0:4, 0:0]", "[0:2, 0:0]")
    shard = SimpleNamespace(device="cpu:0", index=slices("[0:4, 0:0]"), replica_id=0)
    output = SimpleNamespace(addressable_shards=[shard], sharding="NamedSharding(...)")
    told = placement(case, ["cpu:0", "cpu:1"], result, output)
    rows = [i for i in ISSUES if i.explains("sharding", "fail", told)]
    assert [i.cases[0] for i in rows] == ["*/0B"], told


# Communication ----------------------------------------------------------------------------------------------


def collective_of(match, groups=(), dtype="f32"):
    """A collective of a description, over these groups or over the first devices."""
    kind, payload, number, size, pairs = match.groups()
    if pairs:
        return Collective(
            kind, int(payload), dtype, (), groups or tuple((i, i + 1) for i in range(int(pairs)))
        )
    made = tuple(tuple(range(i * int(size), (i + 1) * int(size))) for i in range(int(number)))
    return Collective(kind, int(payload), dtype, groups or made, ())


@builder(
    r"expected ([a-z-]+) of (\d+) B over (\[\[.*\]\])( \.\.\.)?, found (.*?)(?:: moved in (\d+) bits(.*))?"
)
def unexpected(record, match):
    """Other collectives than those of the contract: of more bits over the same groups, or over other groups."""
    kind, payload, groups, more, found, width, _ = match.groups()
    members = [tuple(map(int, re.findall(r"\d+", one))) for one in re.findall(r"\[(\d[\d, ]*)\]", groups)]
    described = list(COLLECTIVE.finditer(found))
    if more:  # only four are told
        number = int(described[0][3] or described[0][5])
        members += [
            tuple(1000 + len(members[0]) * i + j for j in range(len(members[0]))) for i in range(4, number)
        ]
    there = []
    for one in described:
        if width and one[1] == kind:
            there.append(collective_of(one, tuple(members), f"u{width}"))
        elif one[5]:
            there.append(collective_of(one, tuple((500 + i, 600 + i) for i in range(int(one[5])))))
        else:
            size = int(one[4])
            apart = tuple(tuple(range(500 + i * size, 500 + (i + 1) * size)) for i in range(int(one[3])))
            there.append(collective_of(one, apart))
    itemsize = cases.find(case_of(record), 8)
    traffic = [Traffic(kind, int(payload), tuple(members))]
    told = communication.traffic_difference(there, traffic, {}, communication.itemsize_of(itemsize))
    return Line("communication", "fail", told)


@builder(r"sends (\d+) B per device, over the ceiling of (\d+) B: (.*)")
def over_the_ceiling(record, match):
    """More traffic than the limit."""
    sent, limit, found = match.groups()
    there = [collective_of(one) for one in COLLECTIVE.finditer(found)]
    told = communication.missing_connection(there, float(sent), (), 1 << 12, float(limit))
    return Line("communication", "fail", told)


@builder(r"collective-permute over ([xyz+]+), and the computation exchanges data .*")
def astray(record, match):
    """A collective along axes that the case does not need."""
    case = cases.find(case_of(record), 8)
    sizes = list(case.mesh.sizes.values())
    strides = {name: math.prod(sizes[i + 1 :]) for i, name in enumerate(case.mesh.names)}
    to = sum(strides[name] for name in match[1].split("+"))
    return Line(
        "communication",
        "fail",
        theory.stray([Collective("collective-permute", 4, "f32", (), ((0, to),))], case),
    )


@builder(r"needs (\d+) B for temporaries on a device, and the plan allows \d+")
def oversized(record, match):
    """More temporaries than the plan of the case allows."""
    case = cases.find(case_of(record), 8)
    return Line("communication", "fail", theory.find_overcount(case, None, float(match[1])))


# Exceptions, crashes, hangs ---------------------------------------------------------------------------------


def dumped(module, function, head):
    """What Python writes when a signal or a deadline ends this function of this module."""
    code = f"def {function}(file):\n    dump(file, all_threads=False)\n"
    space = {"dump": faulthandler.dump_traceback}
    exec(compile(code, f"/somewhere/{module}.py", "exec"), space)
    with tempfile.TemporaryFile("w+") as file:
        space[function](file)
        file.seek(0)
        stack = file.read()
    return f"{head}\n\n{stack.replace('Stack (', 'Current thread 0x1 (', 1)}"


FATAL = "Fatal Python error: Segmentation fault"


@builder(r"(SIG[A-Z]+)(?:, in (\w+):(\w+):\d+)?")
def died(record, match):
    """A process that a signal ended without a word, or with a stack of Python."""
    how, module, function = match.groups()
    return line_of_death(how, dumped(module, function, FATAL) if module else "")


@builder(r"(SIG[A-Z]+): (.*)")
def died_with_words(record, match):
    """A process whose compiler wrote why."""
    return line_of_death(match[1], "\n".join(record.get("stderr") or [match[2]]))


@builder(r"(\w+):(?: (.*))?")
def raised(record, match):
    """An exception of this type and text."""
    error = type(match[1], (Exception,), {})(match[2] or "")
    issue = next(i for i in ISSUES if i.covers(case_of(record)))
    return line_of_exception(cases.find(case_of(record), 8, 4 if issue.processes else 1), error)


# The tests --------------------------------------------------------------------------------------------------

ROWS = sorted(examples())


@pytest.mark.parametrize("number", ROWS, ids=lambda n: f"{n}-{ISSUES[n].cases[0][:30]}")
def test_a_row_matches_what_the_judge_writes(number):
    issue, record = ISSUES[number], examples()[number]
    _, line = rewritten(number)
    assert line.verdict == record["was"]
    told = own_reason(record).strip()
    told = re.sub(r"(, in \w+:\w+):\d+$", r"\1:2", told)  # the line of the function that `dumped` makes
    if line.verdict == "crash":  # earlier versions told more, or another line of the error output
        told = (told[: len(line.reason)] if "stderr" not in record else line.reason).strip()
    assert line.reason.strip() == told
    assert issue.explains(record["check"], line.verdict, line.reason, line.data.get("stderr"))


@pytest.mark.parametrize("number", ROWS, ids=lambda n: f"{n}-{ISSUES[n].cases[0][:30]}")
def test_a_row_matches_what_ranks_and_records_make_of_it(number):
    """Two ranks that say it in other figures, and a record in which the issue's own words stand first."""
    issue, record = ISSUES[number], examples()[number]
    _, line = rewritten(number)
    own = {"check": record["check"], "verdict": line.verdict, "reason": line.reason}
    (merged,) = merge_findings({0: [own], 1: [own], 2: [own | {"reason": f"{line.reason} "}]})
    assert merged["reason"].startswith("ranks 0, 1: ") and "rank 2: " in merged["reason"]
    assert issue.explains(record["check"], line.verdict, merged["reason"], line.data.get("stderr"))
    line.check = record["check"]
    known_issues.apply([issue], case_of(record), [line])
    assert line.verdict == "known" and line.data["was"] == record["was"]
    assert issue.explains(line.check, line.data["was"], line.reason, line.data.get("stderr"))
    line.verdict = line.data.pop("was")


@pytest.mark.parametrize(
    "issue",
    [i for i in ISSUES if "SIGSEGV" in i.symptom and "in compiler:" in i.symptom],
    ids=lambda i: i.cases[0][:30],
)
def test_a_stack_of_the_compiler_is_known(issue):
    line = line_of_death("SIGSEGV", dumped("compiler", "backend_compile_and_load", FATAL))
    assert issue.explains("execute", line.verdict, line.reason, line.data["stderr"]), line.reason
    line = line_of_death("SIGSEGV", dumped("compiler", "another_function", FATAL))
    assert (
        not issue.explains("execute", line.verdict, line.reason, line.data["stderr"])
        or "\\w+" in issue.symptom
    )


def test_a_hang_that_the_compiler_tells_is_known():
    number = next(n for n in ROWS if "hang" in ISSUES[n].verdicts)
    words = "\n".join(examples()[number].get("stderr") or [own_reason(examples()[number]).partition(": ")[2]])
    line = line_of_death("", f"{words}\n{dumped('api', 'wait', 'Timeout (0:00:40)!')}")
    assert line.verdict == "hang" and re.match("past its deadline, in api:wait:", line.reason)
    assert ISSUES[number].explains("execute", line.verdict, line.reason, line.data["stderr"])


def test_every_way_of_writing_is_used():
    used = {rewritten(number)[0] for number in ROWS}
    assert used == set(BUILDERS.values())


WORDS = {
    "what was only rounded": (numbers, "ROUNDING", "it was rounded"),
    "the place of a shard": (numbers, "show", lambda index: "somewhere"),
    "the collectives that are there": (communication, "_describe", lambda found: "some collectives"),
    "how many times the bytes": (communication, "_TIMES", defaultdict(lambda: "more")),
    "where a compiled result would be": (compile_only, "_shown", lambda index: "somewhere"),
    "what a dead process wrote": (containment, "_shown", lambda line: "something"),
    "what an exception says": (checks.saying, "first_line", lambda error: "something"),
}
"""Other words of the judge, by what they are about: a module, a name in it, and what is said instead."""


@pytest.mark.parametrize("about", WORDS)
def test_other_words_of_the_judge_are_noticed(about, monkeypatch):
    module, name, said = WORDS[about]
    monkeypatch.setattr(module, name, said)
    lost = []
    for number in ROWS:
        record = examples()[number]
        _, line = rewritten.__wrapped__(number)
        if not ISSUES[number].explains(record["check"], line.verdict, line.reason, line.data.get("stderr")):
            lost.append(ISSUES[number].cases[0])
    assert lost
