# SPDX-License-Identifier: Apache-2.0
"""The reviewer: each kind of tampering is caught, an honest bundle is not, and no input makes it stumble or costs much.

A forger of the catalogue knows the format: after each change, hashes, totals, environment and statement are made anew,
so that only the check in question can find it. The checks of those four have tests of their own.
"""

import gzip
import io
import json
import os
import re
import tarfile
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.commands import main as cli
from meshmark.core.verdicts import CHECKS, VERDICTS
from meshmark.devices import chips
from meshmark.levels import counters, known_issues
from meshmark.operations import cases
from meshmark.operations.selection import Selection
from meshmark.publish import against_table, bundles, submit
from meshmark.publish.bundles import Bundle, BundleError, File
from meshmark.publish.lines import schema_problem
from meshmark.publish.validate import DIRTY, check
from meshmark.records import definition, writing
from meshmark.records import schema as records_schema
from tests import submissions
from tests.checkout import ROOT
from tests.submissions import (
    RUN,
    facts,
    judged,
    level,
    lines_of,
    replaced,
    resealed,
    run_line,
    timed,
    timing,
    with_lines,
    write,
)  # fmt: skip

CONFORMANCE, TIMING = "conformance.jsonl.gz", "timing.jsonl.gz"
CASE = "psum/axes=x+y/manual/2x2/float32/4KiB"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """An accepted bundle: L0 on four devices, one more case that is a program, a few timings."""
    lines = [*level(), *judged(cases.find(CASE, 4))]
    made = submissions.bundle(tmp_path_factory.mktemp("honest"), lines)
    report = check(made)
    assert report.complaints == [] and report.statement.met == "L0"
    return made


def complaints(made):
    return check(made).complaints


# The catalogue ----------------------------------------------------------------------------------------------


ONE = cases.find(CASE, 4)
KNOWN_AS = "https://example.org/x"


def compared(**fields):
    """A line of a comparison."""
    return {"schema": 1, "kind": "comparison", "what": "verdict", "run": submissions.TIMED} | fields


def appended(text):
    """The timing file with one more line of text."""
    return lambda made: with_lines(made, TIMING, [*lines_of(made, TIMING), text + "\n"])


def as_of(case, operation="psum"):
    """The file with the lines of one more case, of this name."""
    return added(CONFORMANCE, *(r | {"case": case, "operation": operation} for r in judged(ONE)))


def suite(**fields):
    """The suite that the run line names."""
    return facts_with(suite={"version": "0.1.0", "commit": submissions.COMMIT, "clean": True} | fields)


def lacking(name):
    """The bundle without these files."""
    return lambda m: Bundle(m.release, m.name, {k: v for k, v in m.files.items() if name not in k})


def set_(name, number, **fields):
    """Other fields in one line of a file; None takes a field out."""

    def change(made):
        lines = lines_of(made, name)
        lines[number] = {k: v for k, v in (lines[number] | fields).items() if v is not None}
        return with_lines(made, name, lines)

    return change


def of_case(check_, **fields):
    """Other fields in one check line of CASE."""

    def change(made):
        lines = lines_of(made, CONFORMANCE)
        number = next(i for i, r in enumerate(lines) if r.get("case") == CASE and r["check"] == check_)
        return set_(CONFORMANCE, number, **fields)(made)

    return change


def without(name, wanted):
    """The file without the lines that `wanted` takes."""

    def change(made):
        return with_lines(made, name, [r for r in lines_of(made, name) if not wanted(r)])

    return change


def added(name, *lines):
    """The file with more lines."""

    def change(made):
        return with_lines(made, name, [*lines_of(made, name), *lines])

    return change


def facts_with(name=CONFORMANCE, **other):
    """Other facts in the run line."""

    def change(made):
        return set_(name, 0, facts=lines_of(made, name)[0]["facts"] | other)(made)

    return change


def product_with(**other):
    """Other fields in product.yaml."""

    def change(made):
        from meshmark.records import results

        found = results.parse_product(made.files["product.yaml"].data, "p") | other
        text = results.product_text({k: v for k, v in found.items() if v is not None})
        return replaced(made, "product.yaml", text.encode())

    return change


FIRST = level()[1]["case"]
H200 = dict(backend="gpu", device_kind="NVIDIA H200", virtual=False)


def on_h200(change=lambda line: line):
    """Both files from H200s, with one more timing."""

    def made_of(made):
        for name in (CONFORMANCE, TIMING):
            made = facts_with(name, **H200)(made)
        lines = [change(dict(line)) for line in lines_of(made, TIMING)]
        return with_lines(made, TIMING, lines)

    return made_of


def samples(value, number=12):
    return submissions.sampled(str(value), number, value)


CATALOGUE = {
    # completeness, skips
    "a case of the level is taken out": (
        without(CONFORMANCE, lambda r: r.get("case") == FIRST),
        "claims L0, which is not met .*1 missing",
    ),
    "a failure in the level": (set_(CONFORMANCE, 1, verdict="fail"), "claims L0, which is not met .*1 fail"),
    "a skip in the level": (
        set_(CONFORMANCE, 1, verdict="unsupported"),
        "claims L0, which is not met .*1 unsupported",
    ),
    "a higher level is claimed": (product_with(level="L2"), "claims L2, which is not met .L1: 1 of"),
    "a level that is none": (product_with(level="L9"), "claims 'L9', which has no must-pass list"),
    "a check is taken out": (
        without(CONFORMANCE, lambda r: r.get("case") == CASE and r["check"] == "numbers"),
        "passes without its check numbers",
    ),
    "the closing line is taken out": (
        without(CONFORMANCE, lambda r: r.get("case") == CASE and "seconds" in r),
        "not closed by a line with `seconds`",
    ),
    "the last line is cut off": (
        lambda m: replaced(m, TIMING, gzip.compress(gzip.decompress(m.files[TIMING].data)[:-9])),
        "the last line is cut off",
    ),
    "the packed stream is cut off": (
        lambda m: replaced(m, TIMING, m.files[TIMING].data[:-9]),
        "gzip stream is broken or cut off",
    ),
    # verdicts and numbers
    "a failure made known": (
        of_case("numbers", verdict="known", was="fail", link=KNOWN_AS),
        f"known by '{KNOWN_AS}', which the suite's known_issues.toml does not list",
    ),
    "a known issue without its link": (
        of_case("numbers", verdict="known", was="fail"),
        "schema: conformance: 'link' is a required property",
    ),
    "an error beyond its bound": (of_case("numbers", error=1.0), "passes with error 1.0 and bound 0.0"),
    "an error that is no number": (of_case("numbers", error="nan"), "passes with error nan and bound"),
    "no digest of the output": (of_case("numbers", bits=None), "passes without `bits`"),
    "a check twice": (
        added(CONFORMANCE, judged(cases.find(CASE, 4))[1]),
        "has check execute twice in one run",
    ),
    "a verdict of its own": (
        of_case("numbers", verdict="excellent"),
        "schema: verdict: 'excellent' is not one of",
    ),
    "a check of its own": (of_case("numbers", check="vibes"), "schema: check: 'vibes' is not one of"),
    # the case table
    "a case that is none": (as_of(CASE.replace("4KiB", "5KiB")), "the table has no case psum/.*5KiB"),
    "an operation that is none": (as_of(CASE.replace("psum", "qsum"), "qsum"), "the table has no case qsum"),
    "another level": (of_case("communication", level="L0"), "level of psum/.* is L1 in the table, not L0"),
    "another size": (
        of_case("communication", size_bytes=1),
        "size_bytes of psum/.* is 4096 in the table, not 1",
    ),
    "another operation than the case's": (
        of_case("execute", operation="pmax"),
        "operation 'pmax' is not that of case psum",
    ),
    "another mesh than the case's": (of_case("execute", mesh="4"), "mesh '4' is not that of case psum"),
    # the run
    "a dirty suite": (suite(clean=False), "the suite has changes"),
    "no commit": (suite(commit=None), "the suite names no commit"),
    "a commit that is none": (suite(commit="main; rm"), "the suite names no commit"),
    "another JAX release": (
        facts_with(versions=facts()["versions"] | {"jax": "0.11.2"}),
        "JAX '0.11.2' in the directory of 0.12.0.1",
    ),
    "virtual devices as real ones": (facts_with(virtual=False), "`virtual` is not what the backend says"),
    "fewer devices than it says": (facts_with(devices=[]), "num_devices is not the number of devices"),
    "more devices than the level's": (
        facts_with(num_devices=8, devices=facts(num_devices=8)["devices"]),
        "the runs differ in num_devices|claims L0",
    ),
    "a run of the future": (
        set_(CONFORMANCE, 0, started="2999-01-01T00:00:00Z"),
        "`started` is missing, or no time at which the suite could run",
    ),
    "compile-only as a run": (
        facts_with(topology="v5e:2x2"),
        "a compile-only run: it belongs in results/compile-only",
    ),
    "lines without a run": (without(CONFORMANCE, lambda r: r["kind"] == "run"), "has no run line above"),
    # timings
    "fewer samples than the run takes": (
        set_(TIMING, 3, samples_s=samples(0.001, 5)),
        "5 samples, and the run takes 10 at least",
    ),
    "more samples than the run takes": (
        set_(TIMING, 3, samples_s=samples(0.001, 1001)),
        "1001 samples, and the run takes 1000 at most",
    ),
    "no samples": (set_(TIMING, 3, samples_s=[]), "passes without a sample"),
    "a negative sample": (set_(TIMING, 3, samples_s=[0.1, -0.1]), "schema: samples_s.1: -0.1 is less than"),
    "a sample that is a text": (
        set_(TIMING, 3, samples_s=["fast"]),
        "schema: samples_s.0: 'fast' is not of type",
    ),
    "samples too short for anything": (
        set_(TIMING, 3, samples_s=samples(1e-10)),
        "no program takes less than",
    ),
    "one number as all samples": (set_(TIMING, 3, samples_s=[0.001] * 24), "all 24 samples are 0.001 s"),
    "a time of wrong values": (set_(TIMING, 3, verdict="fail"), "wrong values must not have a time"),
    "a time of unverified values": (set_(TIMING, 3, verified=False), "wrong values must not have a time"),
    "a larger cost": (
        set_(TIMING, 3, cost={"flops": 1, "nbytes": 10**9, "factor": 1.5}),
        "cost nbytes is 65536 in the table, not 1000000000",
    ),
    "another factor": (
        set_(TIMING, 3, cost=timing()["cost"] | {"factor": 2.0}),
        "cost factor is 1.5 in the table, not 2.0",
    ),
    "more devices in a timing": (set_(TIMING, 3, devices=8), "8 devices on a mesh of 4"),
    "a device slower than all": (
        set_(TIMING, 3, per_device_s={"gpu 0": 0.5}),
        "per_device_s has a device of 0.5 s",
    ),
    "a rate that nothing has": (
        added(TIMING, timing("psum/axes=x+y/manual/2x2/float32/1GiB", samples_s=samples(1e-7))),
        "busbw of 1.4.*: far above any device",
    ),
    "bandwidth above the peak": (
        on_h200(lambda r: r | {"samples_s": samples(1e-7)} if r["kind"] == "timing" else r),
        "bus bandwidth of .* is above the peak of h200, 6.75e.11",
    ),
    "FLOP/s above the peak": (
        lambda m: added(TIMING, timing(MATMUL, samples_s=samples(2e-8)))(on_h200()(m)),
        "FLOP/s of .* is above the peak of h200",
    ),
    "a ceiling that its samples do not give": (
        set_(TIMING, 1, value=1e15),
        "value 1e.15 B/s is not that of its fastest sample",
    ),
    "a ceiling of more work": (set_(TIMING, 2, flops=10**15), "are not those of 4 products of n = 512"),
    "a ceiling above the peak": (
        on_h200(
            lambda r: (
                r | {"samples_s": [1e-7], "value": r["flops"] / 1e-7}
                if r.get("name") == "largest matmul"
                else r
            )
        ),
        "is above the peak of 4 devices of h200",
    ),
    "a ceiling without samples": (set_(TIMING, 1, samples_s=[]), "a ceiling without samples"),
    "a probability of 2": (added(TIMING, compared(p=2.0)), "p = 2.0 is no probability"),
    "an adjusted p below p": (added(TIMING, compared(p=0.5, adjusted=0.1)), "adjusted p 0.1 is below p 0.5"),
    "a ratio outside of its interval": (
        added(TIMING, compared(ratio=2.0, low=0.9, high=1.1)),
        "outside of its interval",
    ),
    # privacy
    "a path": (of_case("execute", reason="see /home/bob/x.py"), "'reason' holds an absolute path"),
    "a Windows path": (of_case("execute", reason="see C:\\Users\\bob\\x.py"), "holds an absolute path"),
    "an IP address": (of_case("execute", reason="lost 10.1.2.3"), "'reason' holds an IP address: '10.1.2.3'"),
    "an IPv6 address": (of_case("execute", reason="lost fe80::1"), "holds an IP address: 'fe80::1'"),
    "a MAC address": (of_case("execute", reason="00:1a:2b:3c:4d:5e"), "holds a MAC address"),
    "an e-mail address": (of_case("execute", reason="ask bob@corp.example"), "holds an e-mail address"),
    "a host name": (of_case("execute", reason="on n7.cluster.internal"), "holds a host name"),
    "a user and host": (of_case("execute", reason="bob@box:~$ make"), "holds a user and host"),
    "a path in a flag": (
        facts_with(flags={"XLA_FLAGS": "--xla_dump_to=/home/bob/d"}),
        "'facts.flags.XLA_FLAGS' holds an absolute path",
    ),
    "a path in a field's name": (of_case("execute", **{"/home/bob/x": "y"}), "holds an absolute path"),
    "a path in a field of its own": (
        of_case("execute", more={"deep": [{"er": "/home/bob/x"}]}),
        "'more.deep.er' holds an absolute path",
    ),
    "a path as a version": (
        facts_with(versions=facts()["versions"] | {"numpy": "/home/bob/numpy"}),
        "'facts.versions.numpy' holds an absolute path",
    ),
    "a text that is too long": (of_case("execute", more="x" * 30_000), "'more' has 30000 characters"),
    "an address that is not the contact": (
        product_with(by="bob@corp.example"),
        "'by' holds an e-mail address",
    ),
    # files
    "a page beside the records": (
        lambda m: replaced(m, "index.html", b"<script>"),
        "index.html: no file of a submission",
    ),
    "another name than the directory's": (
        product_with(name="cpu-5"),
        "`name` is 'cpu-5' in directory 'cpu-4'",
    ),
    "no name": (product_with(name=None), "`name` must be one line"),
    "a line that is no JSON": (appended("{"), "not strict JSON"),
    "NaN": (appended('{"schema":1,"kind":NaN}'), "NaN is not strict JSON"),
    "a number beyond a double": (appended('{"schema":1e999}'), "1e999 is beyond a double"),
    "a name twice in a record": (appended('{"schema":1,"schema":1}'), "a name comes twice"),
    "another schema": (set_(TIMING, 3, schema=2), "schema: schema: 1 was expected"),
    "a kind of its own": (set_(TIMING, 3, kind="praise"), "`kind` must be one of"),
    "something behind the packed stream": (
        lambda m: replaced(m, TIMING, m.files[TIMING].data * 2),
        "something follows the packed stream",
    ),
}


def _matmul():
    """A timed product on 2x2 in bfloat16."""
    chosen = Selection(
        "full", timed=True, operations=("matmul",), dtypes=("bfloat16",), meshes=("2x2",), sizes=("n1024",)
    )
    return next(c.id for c in cases.cases(chosen, 4) if c.plan.cost.flops and not c.plan.cost.factor)


MATMUL = _matmul()


@pytest.mark.parametrize("name", CATALOGUE)
def test_tampering_is_caught(honest, name):
    change, message = CATALOGUE[name]
    made = change(honest)
    assert {n: f.data for n, f in made.files.items()} != {n: f.data for n, f in honest.files.items()}
    found = complaints(resealed(made))
    assert any(re.search(message, text) for text in found), found
    assert all("\n" not in text and text.startswith("0.12.0.1/cpu-4") for text in found)


def test_complaints_name_file_and_line(honest):
    text = next(
        t for t in complaints(resealed(of_case("numbers", bits=None)(honest))) if "without `bits`" in t
    )
    lines = lines_of(honest, CONFORMANCE)
    number = 1 + next(i for i, r in enumerate(lines) if r.get("case") == CASE and r["check"] == "numbers")
    assert text.startswith(f"0.12.0.1/cpu-4/{CONFORMANCE}:{number}: ")


# Several processes ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    """An accepted bundle of ten devices over two processes that claims no level: what takes several processes among
    it, a verdict by rank, a crash, a hang and a known issue of one rank."""
    lines = submissions.over(2, 10, "process_identity", "pmin")
    names = list(dict.fromkeys(r["case"] for r in lines[1:]))
    ends = {
        names[0]: {"verdict": "crash", "reason": "rank 1 ended: signal 9", "ended_rank": 1},
        names[1]: {
            "verdict": "hang",
            "reason": "past its deadline",
            "stacks": {"0": ["a:b:1"], "1": ["waits"]},
        },
        names[2]: {"verdict": "fail", "reason": "rank 1: 3 differ", "ranks": {"0": "pass", "1": "fail"}},
    }
    for name, line in ends.items():
        first = next(r for r in lines if r.get("case") == name)
        lines = [r for r in lines if r.get("case") != name]
        lines.append(first | {"check": "execute", "seconds": 0.0} | line)
    path = write(tmp_path_factory.mktemp("spread") / "a.jsonl", lines)
    made = submit.bundled([path], replace(submissions.WANTED, name="cpu-2x5-virtual", level=""))
    report = check(made)
    assert report.complaints == [] and report.statement.met == ""
    assert report.statement.text.startswith(
        "no level on 2 processes of 5 virtual CPU devices, JAX 0.12.0.1; "
    )
    return made


def of_ended(verdict, /, **fields):
    """Other fields in the line of the case that ended so."""

    def change(made):
        lines = lines_of(made, CONFORMANCE)
        number = next(i for i, r in enumerate(lines) if r.get("verdict") == verdict)
        return set_(CONFORMANCE, number, **fields)(made)

    return change


SPREAD = {
    "one process as two": (
        facts_with(num_processes=1, group={}),
        "num_processes is 1, and the devices are not shared by so many equally",
    ),
    "more processes than have devices": (
        facts_with(num_processes=5),
        "num_processes is 5, and the devices are not shared by so many equally",
    ),
    "a number of processes that no machine has": (
        facts_with(num_processes=10**12),
        "schema: facts.num_processes: 1000000000000 is greater than the maximum",
    ),
    "a device moved to another process": (
        facts_with(devices=[{"id": i, "process": int(i > 3), "coords": []} for i in range(10)]),
        "not shared by so many equally",
    ),
    "no group": (facts_with(group={}), "`group` is not of 2 processes of 10 devices"),
    "another group": (
        facts_with(group={"devices": 4, "detected": False, "transport": "gloo"}),
        "`group` is not of 2 processes of 10 devices",
    ),
    "a group of its own": (
        facts_with(group={"devices": 5, "hosts": ["a"]}),
        "schema: facts.group: Additional properties are not allowed",
    ),
    "a transport that is no text": (
        facts_with(group={"devices": 5, "transport": 3}),
        "schema: facts.group.transport",
    ),
    "cases of one process": (
        set_(CONFORMANCE, 0, selection={"profile": "standard", "processes": 4}),
        "`processes` is 4, and num_processes 2",
    ),
    "processes that are no number": (
        set_(CONFORMANCE, 0, selection={"processes": "two"}),
        "schema: selection.processes: 'two' is not of type 'integer'",
    ),
    "what one rank found": (
        set_(CONFORMANCE, 0, rank=0, ranks=None),
        "records of rank 0 alone: submit the merged",
    ),
    "what nobody merged": (set_(CONFORMANCE, 0, ranks=None), "does not hold what all of them found"),
    "merged of three": (set_(CONFORMANCE, 0, ranks=3), "`ranks` is 3, and num_processes 2"),
    "a failure of one rank made a pass": (
        of_ended("fail", verdict="pass"),
        "is pass, and its ranks fail",
    ),
    "a rank that there is not": (
        of_ended("fail", ranks={"0": "pass", "2": "fail"}),
        "is of rank 2 of 2",
    ),
    "a rank that is no number": (
        of_ended("fail", ranks={"first": "fail"}),
        "schema: ranks: 'first' does not match",
    ),
    "a verdict of a rank's own": (
        of_ended("fail", ranks={"0": "great"}),
        "schema: ranks.0: 'great' is not one of",
    ),
    "the end of a rank that there is not": (of_ended("crash", ended_rank=2), "is of rank 2 of 2"),
    "the end of no rank": (of_ended("crash", ended_rank="one"), "schema: ended_rank: 'one' is not of type"),
    "stacks that are none": (
        of_ended("hang", stacks={"0": "a:b:1"}),
        "schema: stacks.0: 'a:b:1' is not of type",
    ),
    "a path in a stack": (
        of_ended("hang", stacks={"0": ["/home/bob/x.py:3"]}),
        "'stacks.0' holds an absolute path",
    ),
    "a level of one process": (
        product_with(level="L1"),
        "claims 'L1', which has no must-pass list over 2 processes",
    ),
    "the level of several, unmet": (product_with(level="L4"), "claims L4, which is not met .L4: "),
}


@pytest.mark.parametrize("name", SPREAD)
def test_tampering_with_processes_is_caught(spread, name):
    change, message = SPREAD[name]
    found = complaints(resealed(change(spread)))
    assert any(re.search(message, text) for text in found), found


def test_the_cases_of_many_processes_are_looked_up_together(spread, monkeypatch):
    monkeypatch.setattr(against_table, "MOST_SOUGHT", 0)
    assert complaints(spread) == []


def test_one_process_has_no_case_of_several(honest):
    case = cases.find("process_identity/plain/host/2x2/float32/4KiB", 4, 2)
    found = complaints(resealed(added(CONFORMANCE, *judged(case))(honest)))
    assert any("the table has no case process_identity/plain/host/2x2/float32/4KiB" in text for text in found)


def test_one_process_claims_no_level_of_several(honest):
    found = complaints(resealed(product_with(level="L4")(honest)))
    assert len(found) == 1 and "claims 'L4', which has no must-pass list for one process" in found[0]


def test_a_known_issue_of_several_processes_excuses_nothing_in_one(honest, spread, tmp_path, monkeypatch):
    """The same line, listed for several processes alone: let through there, refused here."""
    listed = tmp_path / "known.toml"
    listed.write_text(
        '[[issue]]\ncases = ["p*"]\nmodes = ["auto", "explicit", "manual", "manual-novma"]\n'
        'checks = ["numbers"]\njax = ">=0.10"\nbackends = ["cpu"]\nprocesses = true\n'
        f'link = "{KNOWN_AS}"\nwhy = "it is"\nexpires = "99"\nverdicts = ["fail"]\nsymptom = "differ"\n'
    )
    load = known_issues.load
    monkeypatch.setattr(
        known_issues, "load", lambda jax, backend, path, *rest: load(jax, backend, listed, *rest)
    )

    def excused(made):
        lines = lines_of(made, CONFORMANCE)
        number = next(
            i for i, r in enumerate(lines) if r.get("check") == "numbers" and r["operation"].startswith("p")
        )
        return resealed(
            set_(CONFORMANCE, number, verdict="known", was="fail", link=KNOWN_AS, reason="it is | 3 differ")(
                made
            )
        )

    assert complaints(excused(spread)) == []
    assert any("does not list for it" in text for text in complaints(excused(honest)))


def test_runs_of_one_and_of_several_processes_are_no_product(honest, spread):
    other = [r | {"run": "ffffffffffff"} for r in lines_of(spread, CONFORMANCE)]
    text = "".join(writing.dumps(line) + "\n" for line in other)
    mixed = replaced(honest, "conformance-2.jsonl.gz", gzip.compress(text.encode(), mtime=0))
    assert any("no level statement: the runs differ in num_" in text for text in complaints(resealed(mixed)))


# What a forger who does not reseal leaves behind -------------------------------------------------------------


def edited(made, name, change):
    found = json.loads(made.files[name].data)
    change(found)
    return replaced(made, name, json.dumps(found).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_(TIMING, 3, seed=1), "timing.jsonl.gz: SHA-256 or size is not the manifest's"),
        (product_with(by="someone else"), "product.yaml: SHA-256 or size"),
        (
            lambda m: edited(m, "environment.json", lambda e: e["runs"][0].update(seed=9)),
            "environment.json: not what the run lines say",
        ),
        (
            lambda m: edited(m, "manifest.json", lambda e: e["totals"]["verdicts"].update({"pass": 10**6})),
            "totals differ from the records in verdicts",
        ),
        (lambda m: edited(m, "manifest.json", lambda e: e.update(totals=3)), "totals differ"),
        (
            lambda m: edited(m, "manifest.json", lambda e: e["statement"].update(met="L3")),
            "the statement differs from the records in met; they say 'L0 on 4",
        ),
        (lambda m: edited(m, "manifest.json", lambda e: e.update(statement=None)), "the statement differs"),
        (lambda m: edited(m, "manifest.json", lambda e: e["statement"].update(list=99)), "no version 99"),
        (
            lambda m: edited(m, "manifest.json", lambda e: e["files"].pop(TIMING)),
            "timing.jsonl.gz: not in the manifest",
        ),
        (
            lambda m: edited(
                m, "manifest.json", lambda e: e["files"].update({"x.jsonl": {"sha256": "", "bytes": 0}})
            ),
            "names 'x.jsonl', which is missing",
        ),
        (lambda m: edited(m, "manifest.json", lambda e: e.update(schema=2)), "schema is not 1"),
        (lambda m: replaced(m, "manifest.json", b"[" * 100_000), "manifest.json: no manifest"),
        (lambda m: replaced(m, "manifest.json", b"\xff"), "manifest.json: no manifest"),
        (lambda m: replaced(m, "environment.json", b"\xff"), "environment.json: not strict JSON"),
        (lambda m: replaced(m, "product.yaml", b"a: &b c"), "product.yaml.*anchors"),
        (lacking("manifest.json"), "manifest.json: missing"),
        (lacking("product.yaml"), "product.yaml: missing"),
        (lacking("environment.json"), "environment.json: missing"),
        (lacking(".gz"), "no records"),
    ],
)
def test_files_that_do_not_belong_together(honest, change, message):
    found = complaints(change(honest))
    assert any(re.search(message, text) for text in found), found


# What is allowed --------------------------------------------------------------------------------------------


def test_a_mark_lets_through_what_it_says_and_strict_does_not(honest, tmp_path, capsys):
    dirty = suite(clean=False)(honest)
    marked = resealed(product_with(marks=[f"{DIRTY}: a local patch"])(dirty))
    report = check(marked)
    assert report.complaints == [] and f"marked: {DIRTY}: a local patch" in report.notes
    path = unpacked(marked, tmp_path)
    assert cli.main(["validate", str(path)]) == 0
    assert cli.main(["validate", str(path), "--strict"]) == 1
    assert "marked: dirty suite" in capsys.readouterr().out


def test_a_note_explains_a_rate_above_the_peak(honest):
    change, _ = CATALOGUE["bandwidth above the peak"]
    noted = product_with(notes=[{"about": "peak", "text": "the switch adds up"}])(change(honest))
    assert not [text for text in complaints(resealed(noted)) if "peak" in text]


def test_a_rate_below_the_peak_is_no_complaint(honest):
    assert complaints(resealed(on_h200()(honest))) == []


def test_known_issues_that_are_listed_are_accepted(tmp_path):
    name = "all_gather/axes=x,dim=0,tiled/manual/4/float32/0B"
    case = cases.find(name, 4)
    line = case_lines_known(case)
    made = submissions.bundle(tmp_path, [*level(), line])
    report = check(made)
    assert report.complaints == [] and report.totals["verdicts"]["known"] == 1


def case_lines_known(case):
    """The one line of a case that does not lower, as the plugin writes it."""
    return submissions.case_head(case, 0, "conformance") | {
        "check": "execute", "verdict": "known", "was": "error",
        "reason": "it is | ValueError: Cannot lower jaxpr with verifier errors:",
        "link": "https://openxla.org/stablehlo/spec#all_gather", "seconds": 0.1, "run": RUN,
    }  # fmt: skip


def test_collectives_are_held_against_the_committed_counters(tmp_path):
    committed = counters.load("0.12.0.1", "cpu", 8)
    name = "psum/axes=x+y/manual/2x4/float32/4KiB"
    case = cases.find(name, 8)
    right = [{"kind": "all-reduce", "bytes": 4096, "groups": "1x8", "trips": 1}]
    assert counters.format_collectives(right) == committed[name]
    run = run_line(facts=facts(num_devices=8))
    for collectives, good in ((right, True), ([], False)):
        lines = judged(case)
        lines[0]["collectives"] = collectives
        path = write(tmp_path / f"{good}.jsonl", [run, *lines])
        made = submit.bundled([path], replace(submissions.WANTED, level=""))
        found = complaints(made)
        assert (found == []) is good
        assert good or "and the committed counters have '1 all-reduce 4096B 1x8'" in found[0]


def test_an_older_suite_may_have_other_cases(honest):
    extra = [r | {"case": CASE.replace("4KiB", "5KiB")} for r in judged(cases.find(CASE, 4))]
    made = added(CONFORMANCE, *extra)(honest)
    made = suite(version="0.0.9")(made)
    report = check(resealed(made))
    assert report.complaints == [] and any("not checked against it (suite 0.0.9)" in n for n in report.notes)
    fast = timing(samples_s=samples(1e-10)) | {"case": timing()["case"].replace("64KiB", "n5")}
    made = facts_with(TIMING, suite={**facts()["suite"], "version": "0.0.9"})(made)
    found = complaints(resealed(added(TIMING, fast)(made)))
    assert any("no program takes less than" in text for text in found)


# The schema -------------------------------------------------------------------------------------------------


def test_the_schema_is_one_and_says_what_the_reader_says():
    from jsonschema import Draft202012Validator

    schema = json.loads(records_schema.FILE.read_text())
    Draft202012Validator.check_schema(schema)
    assert tuple(schema["properties"]["kind"]["enum"]) == definition.KINDS
    assert tuple(schema["$defs"]["verdict"]["enum"]) == VERDICTS
    assert tuple(schema["$defs"]["check"]["enum"]) == CHECKS
    whole = Draft202012Validator(schema)
    lines = [*level(), *timed()]
    assert all(whole.is_valid(line) and not schema_problem(line) for line in lines)
    broken = [{k: v for k, v in line.items() if k != "run"} for line in lines[:3]]
    assert not any(whole.is_valid(line) for line in broken) and all(map(schema_problem, broken))


def test_published_records_fit_the_schema():
    files = sorted((ROOT / "results" / "compile-only").glob("*/*.jsonl"))
    assert files
    for path in files[:2]:
        for line in path.read_text().splitlines()[:50]:
            assert schema_problem(json.loads(line)) == ""


def test_every_kind_of_device_that_has_peaks_is_found():
    assert all(chips.chip_of(kind) for chip in chips.CHIPS.values() for kind in chip.device_kinds)


# Hostile input ----------------------------------------------------------------------------------------------


def unpacked(made, tmp_path):
    """The bundle as a directory."""
    path = tmp_path / made.release / made.name
    path.mkdir(parents=True)
    for name, file in made.files.items():
        (path / name).write_bytes(file.data)
    return path


def packed(tmp_path, *members):
    """A .tar.gz of (TarInfo or name, bytes)."""
    path = tmp_path / "b.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def special(name, kind, to=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("../../etc/cron.d/x", "not a plain file|not named"),
        ("/etc/x", "not named <jax release>"),
        ("0.12.0.1/../x", "not named <jax release>"),
        ("0.12.0.1/cpu-4/..", "not named <jax release>"),
        ("0.12.0.1/cpu-4/a\nb", "not named <jax release>"),
        ("0.12.0.1/cpu-4/deep/x.jsonl", "not a plain file"),
        (special("0.12.0.1/cpu-4/x.jsonl", tarfile.SYMTYPE, "/etc/passwd"), "not a plain file"),
        (special("0.12.0.1/cpu-4/x.jsonl", tarfile.LNKTYPE, "../../../x"), "not a plain file"),
        (special("0.12.0.1/cpu-4/x.jsonl", tarfile.FIFOTYPE), "not a plain file"),
        (special("0.12.0.1/cpu-4/x.jsonl", tarfile.CHRTYPE), "not a plain file"),
    ],
)
def test_members_of_an_archive_that_are_refused(tmp_path, member, message):
    before = set(tmp_path.rglob("*"))
    path = packed(tmp_path, (member, b""))
    [report] = [check(bundle) for bundle in bundles.open_bundles(path)]
    assert any(re.search(message, text) for text in report.complaints)
    assert all(text.isprintable() for text in report.complaints)
    assert set(tmp_path.rglob("*")) - before == {path}


def test_a_member_twice_and_too_many_members(tmp_path, honest):
    [report] = [
        check(b) for b in bundles.open_bundles(packed(tmp_path, *[("0.12.0.1/cpu-4/a.jsonl", b"")] * 2))
    ]
    assert any("is there twice" in text for text in report.complaints)
    many = [(f"0.12.0.1/cpu-4/a{i}.jsonl", b"") for i in range(300)]
    [report] = [check(b) for b in bundles.open_bundles(packed(tmp_path, *many))]
    assert any("more than the limit" in text for text in report.complaints)


def bomb(size):
    """Zeros, packed."""
    return gzip.compress(bytes(size), 9)


def test_bombs_are_refused_in_bounded_time(tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "MOST_PACKED", 1 << 20)
    monkeypatch.setattr(bundles, "MOST_UNPACKED", 1 << 22)
    monkeypatch.setattr(
        bundles.Room,
        "__init__",
        lambda self: setattr(self, "unpacked", 1 << 22) or setattr(self, "values", 1000),
    )
    start = time.process_time()
    path = tmp_path / "b.tar.gz"
    path.write_bytes(bomb(1 << 28))
    with pytest.raises(BundleError, match=r"no whole|holds no product"):
        bundles.open_bundles(path)
    path = packed(tmp_path, ("0.12.0.1/cpu-4/a.jsonl", bytes(1 << 24)))
    [report] = [check(b) for b in bundles.open_bundles(path)]
    assert any("more than the limit" in text or "unpacks to more" in text for text in report.complaints)
    for data, message in (
        (bomb(1 << 28), "a line of more than 1048576 bytes"),
        (gzip.compress(b"{}\n" * 10_000_000, 1), "more records than the limit"),
        (gzip.compress(b"[" * 500_000 + b"\n"), "more records than the limit"),
    ):
        found = complaints(Bundle("0.12.0.1", "cpu-4", {"a.jsonl.gz": File("a.jsonl.gz", data)}))
        assert any(message in text for text in found), found
    assert time.process_time() - start < 20


def test_deep_and_large_values_are_complaints():
    for line in (
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 100_000,
        '{"kind":"run","facts":' + "[" * 900 + "]" * 900 + "}",
    ):
        data = gzip.compress((line + "\n").encode())
        found = complaints(Bundle("0.12.0.1", "cpu-4", {"a.jsonl.gz": File("a.jsonl.gz", data)}))
        assert any("a.jsonl.gz:1: " in text for text in found) and all(len(text) < 500 for text in found)


def test_a_flood_of_complaints_is_bounded(honest):
    lines = lines_of(honest, CONFORMANCE)
    flood = [f'{{"schema":1,"kind":"x{i}"}}\n' for i in range(5000)]
    found = complaints(with_lines(honest, CONFORMANCE, [*lines, *flood]))
    assert len(found) < 100 and any("4980 more like these" in text for text in found)


def test_what_is_said_fits_eighty_columns(tmp_path, honest, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    refused = resealed(of_case("numbers", bits=None)(honest))
    for made, code in ((honest, 0), (refused, 1)):
        assert cli.main(["validate", str(unpacked(made, tmp_path / str(code)))]) == code
        lines = capsys.readouterr().out.splitlines()
        assert lines and not [line for line in lines if len(line) > 80 and len(line.split()) > 1]


def test_directories_with_links_devices_and_odd_names(tmp_path, honest, capsys):
    path = unpacked(honest, tmp_path)
    assert cli.main(["validate", str(path)]) == 0
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (path / "link.jsonl").symlink_to(secret)
    os.mkfifo(path / "pipe.jsonl")
    (path / "odd\x1b[31m.jsonl").write_text("")
    (path / "below").mkdir()
    capsys.readouterr()
    assert cli.main(["validate", str(path)]) == 1
    shown = capsys.readouterr().out
    assert shown.count("not a plain file") == 3 and "an invalid name" in shown and "\x1b" not in shown
    (tmp_path / "links" / "0.12.0.1").mkdir(parents=True)
    (tmp_path / "links" / "0.12.0.1" / "cpu-4").symlink_to(path)
    assert cli.main(["validate", str(tmp_path / "links")]) == 2


@pytest.mark.parametrize(
    "content",
    [None, b"", b"x", b"\x1f\x8b", gzip.compress(b""), gzip.compress(b"x" * 2000)],
    ids=["missing", "empty", "a letter", "cut in the header", "gzip of nothing", "gzip of text"],
)
def test_what_is_no_bundle_is_bad_input(tmp_path, content, capsys):
    path = tmp_path / "b.tar.gz"
    if content is not None:
        path.write_bytes(content)
    assert cli.main(["validate", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert cli.main(["validate", str(tmp_path)]) == 2


def test_a_cut_archive(tmp_path, honest):
    path = packed(tmp_path, *((f"0.12.0.1/cpu-4/{n}", f.data) for n, f in honest.files.items()))
    assert [check(b).complaints for b in bundles.open_bundles(path)] == [[]]
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(BundleError, match=r"not a whole \.tar\.gz"):
        bundles.open_bundles(path)
    more = [(f"0.12.0.1/cpu-4/{n}", f.data) for n, f in honest.files.items()]
    path = packed(tmp_path, *more, ("0.12.0.1/cpu-4/z.jsonl", os.urandom(100_000)))
    path.write_bytes(path.read_bytes()[:-20_000])
    found = [text for b in bundles.open_bundles(path) for text in complaints(b)]
    assert any("cut off" in text for text in found)


def test_json_output(tmp_path, honest, capsys):
    path = unpacked(honest, tmp_path)
    assert cli.main(["validate", str(tmp_path), "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["accepted"] and found["statement"]["met"] == "L0" and path.name in found["product"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_no_record_makes_it_stumble(honest_lines, data):
    """Any field of any record, replaced by any value: complaints, never an exception."""
    lines = [dict(line) for line in honest_lines]
    for _ in range(data.draw(st.integers(1, 3))):
        line = lines[data.draw(st.integers(0, len(lines) - 1))]
        name = data.draw(st.sampled_from([*line, "new"]))
        own = line.get("facts")
        if name == "facts" and isinstance(own, dict) and own and data.draw(st.booleans()):
            own = dict(own)
            own[data.draw(st.sampled_from(sorted(own)))] = data.draw(JSON)
            line["facts"] = own
        else:
            line[name] = data.draw(JSON)
    text = "".join(writing.dumps(line) + "\n" for line in lines).encode("utf-8", "surrogatepass")
    report = check(Bundle("0.12.0.1", "cpu-4", {"a.jsonl": File("a.jsonl", text)}))
    assert report.complaints and all("\n" not in text for text in report.complaints)


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=400),
    st.sampled_from(["a.jsonl", "a.jsonl.gz", "manifest.json", "environment.json", "product.yaml"]),
)
def test_no_bytes_make_it_stumble(data, name):
    report = check(Bundle("0.12.0.1", "cpu-4", {name: File(name, data)}))
    assert report.complaints


@pytest.fixture(scope="module")
def honest_lines():
    """One case and the timings, in one file."""
    return [run_line(), *judged(cases.find(CASE, 4)), *timed()]
