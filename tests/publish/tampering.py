# SPDX-License-Identifier: Apache-2.0
"""The catalogue of tampering with an accepted bundle: each change, and the complaint that it must cause.

A forger of the catalogue knows the format: hashes, totals, environment and statement are made again after each change,
so that only the check in question can find it.
"""

import gzip
import io

from meshmark.operations import cases
from meshmark.operations.selection import Selection
from meshmark.publish.bundles import Bundle
from meshmark.publish.validate import check_product
from tests import submissions
from tests.submissions import (
    facts,
    judged,
    lines_of,
    replaced,
    timing,
    with_lines,
)  # fmt: skip

CONFORMANCE, TIMING = "conformance.jsonl.gz", "timing.jsonl.gz"
CASE = "psum/axes=x+y/manual/2x2/float32/4KiB"


def complaints(made):
    return check_product(made).complaints


ONE = cases.find(CASE, 4)
KNOWN_AS = "https://example.org/x"


def compared(**fields):
    """A line of a comparison."""
    head = {"schema": 1, "kind": "comparison", "what": "verdict", "run": submissions.TIMED}
    return head | {"case": f"{CASE} (isolated)", "verdict": "inconclusive", "reason": ""} | fields


def appended(text):
    """The timing file with one more line of text."""
    return lambda made: with_lines(made, TIMING, [*lines_of(made, TIMING), text + "\n"])


def as_of(case, operation="psum"):
    """The file with the lines of one more case, of this name."""
    return added(CONFORMANCE, *(r | {"case": case, "operation": operation} for r in judged(ONE)))


def packed_as(name):
    """The conformance file, packed as a file of this name."""

    def change(made):
        packed = io.BytesIO()
        with gzip.GzipFile(name, "wb", fileobj=packed, mtime=0) as file:
            file.write(gzip.decompress(made.files[CONFORMANCE].data))
        return replaced(made, CONFORMANCE, packed.getvalue())

    return change


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


FIRST = next(iter(cases.cases(Selection(levels=("L0",)), submissions.DEVICES))).id
"""The first case of the level."""
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


def _matmul():
    """A timed product on 2x2 in bfloat16."""
    chosen = Selection(
        "full", timed=True, operations=("matmul",), dtypes=("bfloat16",), meshes=("2x2",), sizes=("n1024",)
    )
    return next(c.id for c in cases.cases(chosen, 4) if c.plan.cost.flops and not c.plan.cost.factor)


MATMUL = _matmul()


def of_ended(verdict, /, **fields):
    """Other fields in the line of the case that ended so."""

    def change(made):
        lines = lines_of(made, CONFORMANCE)
        number = next(i for i, r in enumerate(lines) if r.get("verdict") == verdict)
        return set_(CONFORMANCE, number, **fields)(made)

    return change


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
    "a name in the head of a packed file": (
        packed_as("runs-of-alice.jsonl"),
        "its packed head holds a name or a comment",
    ),
    "a mark that admits nothing": (
        product_with(marks=["verified by the maintainers"]),
        "the mark 'verified by the maintainers' admits no defect",
    ),
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
        set_(TIMING, 4, samples_s=samples(0.001, 5)),
        "5 samples, and the run takes 10 at least",
    ),
    "more samples than the run takes": (
        set_(TIMING, 4, samples_s=samples(0.001, 1001)),
        "1001 samples, and the run takes 1000 at most",
    ),
    "no samples": (set_(TIMING, 4, samples_s=[]), "passes without a sample"),
    "a negative sample": (set_(TIMING, 4, samples_s=[0.1, -0.1]), "schema: samples_s.1: -0.1 is less than"),
    "a sample that is a text": (
        set_(TIMING, 4, samples_s=["fast"]),
        "schema: samples_s.0: 'fast' is not of type",
    ),
    "samples too short for anything": (
        set_(TIMING, 4, samples_s=samples(1e-10)),
        "no program takes less than",
    ),
    "one number as all samples": (set_(TIMING, 4, samples_s=[0.001] * 24), "all 24 samples are 0.001 s"),
    "a time of wrong values": (set_(TIMING, 4, verdict="fail"), "wrong values must not have a time"),
    "a time of unverified values": (set_(TIMING, 4, verified=False), "wrong values must not have a time"),
    "a larger cost": (
        set_(TIMING, 4, cost={"flops": 1, "nbytes": 10**9, "factor": 1.5}),
        "cost nbytes is 65536 in the table, not 1000000000",
    ),
    "another factor": (
        set_(TIMING, 4, cost=timing()["cost"] | {"factor": 2.0}),
        "cost factor is 1.5 in the table, not 2.0",
    ),
    "more devices in a timing": (set_(TIMING, 4, devices=8), "8 devices on a mesh of 4"),
    "a device slower than all": (
        set_(TIMING, 4, per_device_s={"gpu 0": 0.5}),
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
    "a probability of 2": (added(TIMING, compared(p=2.0)), "p = 2.0 is not a probability"),
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
        "index.html: not a file of a submission",
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
    "another schema": (set_(TIMING, 4, schema=2), "schema: schema: 1 was expected"),
    "a kind of its own": (set_(TIMING, 4, kind="praise"), "`kind` must be one of"),
    "something behind the packed stream": (
        lambda m: replaced(m, TIMING, m.files[TIMING].data * 2),
        "something follows the packed stream",
    ),
}


SPREAD = {
    "one process as two": (
        facts_with(num_processes=1, group={}),
        "num_processes is 1, and the processes do not share the devices equally",
    ),
    "more processes than have devices": (
        facts_with(num_processes=5),
        "num_processes is 5, and the processes do not share the devices equally",
    ),
    "a number of processes that no machine has": (
        facts_with(num_processes=10**12),
        "schema: facts.num_processes: 1000000000000 is greater than the maximum",
    ),
    "a device moved to another process": (
        facts_with(devices=[{"id": i, "process": int(i > 3), "coords": []} for i in range(10)]),
        "do not share the devices equally",
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


def unpacked(made, tmp_path):
    """The bundle as a directory."""
    path = tmp_path / made.release / made.name
    path.mkdir(parents=True)
    for name, file in made.files.items():
        (path / name).write_bytes(file.data)
    return path
