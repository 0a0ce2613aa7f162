# SPDX-License-Identifier: Apache-2.0
"""The seals of a record file: a killed run can be resumed from any byte, but not if a line was changed."""

import gzip
import json

import pytest

from meshmark.core.verdicts import Line
from meshmark.operations import cases
from meshmark.operations.record_lines import case_lines
from meshmark.publish import submit
from meshmark.records import closing, sealing
from meshmark.records.reading import RecordError, read_records
from meshmark.records.writing import Writer, dumps
from tests import submissions

NAMES = [f"psum/axes=x+y/{mode}/2x4/float32/4KiB" for mode in ("auto", "explicit", "manual")]
SUITE = {"version": "0.1.0", "commit": "a" * 40, "clean": True, "digest": "0" * 16}
FACTS = {"versions": {"jax": "0.12.0.1"}, "num_devices": 8, "num_processes": 1, "suite": SUITE}
RUN = {"facts": FACTS, "selection": {"profile": "smoke"}, "seed": 0, **closing.CLOSES}


def judged(name, verdict="pass"):
    lines = [
        Line("execute"),
        Line("numbers", verdict, "" if verdict == "pass" else "wrong", {"bits": "0" * 16, "error": 2.5}),
    ]
    return case_lines(cases.find(name, 8), lines, 0, 0.25)


def killed(directory, run=RUN):
    """The file of a run that was killed behind three cases, of which the second fails: a run line, what was chosen, and
    two lines a case."""
    writer = Writer.create(directory / "r.jsonl", run)
    writer.choose(NAMES)
    for name in NAMES:
        writer.write(judged(name, "fail" if name == NAMES[1] else "pass"))
    writer.close()
    return writer.path


def unsealed(text):
    """A line without its seal."""
    line = json.loads(text)
    line.pop(sealing.FIELD, None)
    return dumps(line) + "\n"


def passing(text):
    return text.replace('"fail"', '"pass"').replace('"wrong"', '""')


CHANGES = {
    "a fail turned into a pass": lambda lines: [*lines[:5], passing(lines[5]), *lines[6:]],
    "the same in the last case": lambda lines: [*lines[:5], passing(lines[5])],
    "a smaller error": lambda lines: [*lines[:5], lines[5].replace("2.5", "0.5"), *lines[6:]],
    "another reason": lambda lines: [*lines[:5], lines[5].replace('"wrong"', '"noise"'), *lines[6:]],
    "a case taken out": lambda lines: [*lines[:4], *lines[6:]],
    "a line taken out": lambda lines: [*lines[:4], *lines[5:]],
    "two cases in another order": lambda lines: [*lines[:2], *lines[4:6], *lines[2:4], *lines[6:]],
    "a case written twice": lambda lines: [*lines, *lines[2:4]],
    "a line added without a seal": lambda lines: [*lines[:6], unsealed(passing(lines[5])), *lines[6:]],
    "one seal taken out": lambda lines: [*lines[:5], unsealed(passing(lines[5])), *lines[6:]],
    "all seals of cases taken out": lambda lines: [*lines[:2], *map(unsealed, map(passing, lines[2:]))],
    "another seed in the run line": lambda lines: [lines[0].replace('"seed":0', '"seed": 0'), *lines[1:]],
    "fewer cases chosen": lambda lines: [lines[0], lines[1].replace('"cases":3', '"cases":2'), *lines[2:]],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_line_is_told_by_readers_and_not_gone_on_from(tmp_path, change):
    path = killed(tmp_path)
    assert read_records(path).problems == []
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    before = path.read_bytes()
    told = [problem for problem in read_records(path).problems if "the file was changed" in problem]
    assert len(told) == 1 and told[0].startswith(f"{path}:")
    with pytest.raises(
        RecordError, match=r"^can't resume: .*the file was changed; use it as it was written$"
    ):
        Writer.resume(path, RUN)
    assert path.read_bytes() == before
    packed = path.with_name("r.jsonl.gz")
    packed.write_bytes(gzip.compress(before))
    assert any("the file was changed" in problem for problem in read_records(packed).problems)


def test_the_lines_that_may_be_changed_are_named(tmp_path):
    path = killed(tmp_path)
    path.write_text("".join(CHANGES["a fail turned into a pass"](path.read_text().splitlines(keepends=True))))
    assert read_records(path).problems == [
        f"{path}:6: lines 5 to 6 are not as the run wrote: the file was changed; use it as it was written"
    ]


def test_a_file_of_this_package_without_any_seal_is_not_gone_on_from(tmp_path):
    """The digest of the package says which version wrote the file."""
    path = killed(tmp_path)
    path.write_text("".join(unsealed(passing(line)) for line in path.read_text().splitlines()))
    assert read_records(path).problems == []
    with pytest.raises(
        RecordError, match="has a run line without `so_far`, and this version of the suite writes one"
    ):
        Writer.resume(path, RUN)


def test_a_file_of_an_earlier_version_goes_on_as_before(tmp_path):
    old = RUN | {"facts": {k: v for k, v in FACTS.items() if k != "suite"}}
    path = killed(tmp_path, old)
    path.write_text("".join(unsealed(line) for line in path.read_text().splitlines()))
    writer, done = Writer.resume(path, old)
    assert list(done) == NAMES and done[NAMES[1]].verdict == "fail"
    writer.choose(NAMES)
    writer.end(1)
    writer.close()
    assert (read_records(path).problems, read_records(path).state) == ([], "")
    path.write_text(path.read_text().replace('"fail"', '"pass"', 1))
    assert any("the file was changed" in problem for problem in read_records(path).problems), (
        "seals behind it hold it"
    )


def test_a_run_that_was_killed_at_any_byte_goes_on(tmp_path):
    whole = killed(tmp_path).read_bytes()
    ends = [i + 1 for i in range(len(whole)) if whole[i : i + 1] == b"\n"]
    pieces = [ends[1], *ends[3::2]]
    """Behind which byte each case is whole: two lines are of the run, and two of each case."""
    for number in range(ends[0], len(whole) + 1):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(whole[:number])
        writer, done = Writer.resume(path, RUN)
        assert list(done) == NAMES[: sum(end <= number for end in pieces[1:])], number
        writer.close()
        if number % 97 == 0:
            again, _ = Writer.resume(path, RUN)
            again.choose(NAMES)
            for name in NAMES:
                if name not in done:
                    again.write(judged(name))
            again.end(0)
            again.close()
            assert (read_records(path).problems, read_records(path).state) == ([], ""), number
        path.unlink()


def test_a_piece_of_which_some_lines_were_written_is_done_again(tmp_path):
    """Ceilings are written together, and the first alone has no seal."""
    path = tmp_path / "r.jsonl"
    writer = Writer.create(path, RUN)
    ceilings = [line for line in submissions.timed() if line["kind"] == "ceiling"]
    writer.write(ceilings)
    writer.close()
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:2]))
    writer, kept = Writer.going_on(path, RUN)
    writer.close()
    assert kept.ceilings == [] and read_records(path).problems == []
    path.write_text("".join(whole))
    writer, kept = Writer.going_on(path, RUN)
    writer.close()
    assert len(kept.ceilings) == len(ceilings) == 3 and read_records(path).problems == []


def test_two_runs_in_one_file_seal_it_together(tmp_path):
    first = Writer.create(tmp_path / "r.jsonl", RUN)
    second = first.beside(RUN)
    for number, writer in enumerate((first, second, first)):
        writer.write(judged(NAMES[number]))
    first.close()
    assert read_records(first.path).problems == []


def test_another_process_that_wrote_with_the_file_and_died_is_counted(tmp_path):
    """What stands beside a run without workers has the writer as it was at the beginning."""
    writer = Writer.create(tmp_path / "r.jsonl", RUN)
    with open(writer.path, "ab") as file:
        file.write(
            sealing.seal(
                writer._held.written, [dumps({**r, "run": writer.run}) + "\n" for r in judged(NAMES[0])]
            )
        )
        file.write(b'{"schema":1,"kind":"confor')
    writer.mend()
    writer.write(judged(NAMES[1], "crash"))
    writer.end(1)
    writer.close()
    found = read_records(writer.path)
    assert found.problems == [] and list(found.cases) == NAMES[:2]


def test_nothing_to_write_writes_nothing(tmp_path):
    writer = Writer.create(tmp_path / "r.jsonl", RUN)
    before = writer.path.read_bytes()
    writer.write([])
    assert writer.path.read_bytes() == before


def test_a_closed_file_whose_texts_were_changed_is_told(tmp_path):
    """The closing line leaves texts out, because those of published files are cleaned."""
    path = killed(tmp_path)
    writer, _ = Writer.resume(path, RUN)
    writer.choose(NAMES)
    writer.end(1)
    writer.close()
    path.write_text(path.read_text().replace('"wrong"', '"noise"'))
    assert any("the file was changed" in problem for problem in read_records(path).problems)


def test_who_makes_the_seals_anew_is_not_found(tmp_path):
    """docs/limits.md says so."""
    path = killed(tmp_path)
    lines = [json.loads(passing(text)) for text in path.read_text().splitlines()]
    path.unlink()
    writer = Writer.create(
        path, {k: v for k, v in lines[0].items() if k not in ("schema", "kind", "run", "so_far")}
    )
    writer.choose(NAMES)
    for name in NAMES:
        writer.write([line for line in lines if line.get("case") == name])
    writer.close()
    assert read_records(path).problems == [] and read_records(path).cases[NAMES[1]].verdict == "pass"


def test_submit_takes_seals_out_and_refuses_a_changed_file(tmp_path):
    whole = submissions.level()
    path = tmp_path / "a.jsonl"
    writer = Writer.create(path, {k: v for k, v in whole[0].items() if k not in ("schema", "kind", "run")})
    of_case = {}
    for line in whole[1:]:
        of_case.setdefault(line["case"], []).append(line)
    for lines in of_case.values():
        writer.write(lines)
    writer.close()
    timed = submissions.write(tmp_path / "b.jsonl", submissions.timed())
    made = submit.bundled([path, timed], submissions.WANTED)
    text = gzip.decompress(made.files["conformance.jsonl.gz"].data)
    assert b"so_far" not in text and b"so_far" in path.read_bytes()
    path.write_text(path.read_text().replace('"seconds":0.', '"seconds":1.', 1))
    with pytest.raises(submit.SubmitError, match=r"a\.jsonl:\d+: lines \d+ to \d+ are not as the run wrote"):
        submit.bundled([path, timed], submissions.WANTED)
