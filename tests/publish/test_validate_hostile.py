# SPDX-License-Identifier: Apache-2.0
"""The reviewer on hostile input (archives, bombs, floods, odd files, any bytes) raises no exception."""

import copy
import gzip
import io
import json
import os
import re
import tarfile
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.commands import main as cli
from meshmark.operations import cases
from meshmark.publish import bundles
from meshmark.publish import lines as publish_lines
from meshmark.publish.bundles import Bundle, BundleError, File
from meshmark.publish.validate import check_product
from meshmark.records import results, writing
from tests.publish.tampering import CASE, CONFORMANCE, TIMING, complaints, of_case, unpacked
from tests.submissions import (
    judged,
    lines_of,
    replaced,
    resealed,
    run_line,
    timed,
    with_lines,
)  # fmt: skip


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
    [report] = [check_product(bundle) for bundle in bundles.open_bundles(path)]
    assert any(re.search(message, text) for text in report.complaints)
    assert all(text.isprintable() for text in report.complaints)
    assert set(tmp_path.rglob("*")) - before == {path}


def test_a_member_twice_and_too_many_members(tmp_path, honest):
    [report] = [
        check_product(b)
        for b in bundles.open_bundles(packed(tmp_path, *[("0.12.0.1/cpu-4/a.jsonl", b"")] * 2))
    ]
    assert any("is there twice" in text for text in report.complaints)
    many = [(f"0.12.0.1/cpu-4/a{i}.jsonl", b"") for i in range(300)]
    [report] = [check_product(b) for b in bundles.open_bundles(packed(tmp_path, *many))]
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
    [report] = [check_product(b) for b in bundles.open_bundles(path)]
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


EXTREME = (5e-324, 1e-320, 1e299, 1e308, 1.7e308)


def in_every(lines, change):
    """The lines, with a change of those that time a program."""
    found = copy.deepcopy(lines)
    for line in found:
        if line["kind"] == "timing":
            change(line)
    return found


@pytest.mark.parametrize("seconds", EXTREME)
@pytest.mark.parametrize(
    "name", ["samples_s", "control_s", "rounds_s", "samples_by_rank", "compile_s", "seconds"]
)
def test_times_at_the_end_of_all_numbers_are_complaints(honest, name, seconds):
    def change(line):
        number = len(line["samples_s"])
        line[name] = {
            "compile_s": seconds,
            "seconds": seconds,
            "rounds_s": [0.0, *[seconds] * number],
            "samples_by_rank": [[0.001] * number, [seconds] * number, [1.5e308, *[seconds] * (number - 1)]],
        }.get(name, [seconds] * number)

    found = complaints(resealed(with_lines(honest, TIMING, in_every(lines_of(honest, TIMING), change))))
    assert any(f"`{name}" in text and "which no clock gives" in text for text in found), found


@pytest.mark.parametrize("seconds", EXTREME)
def test_a_run_of_no_time_is_a_complaint(honest, seconds):
    lines = lines_of(honest, TIMING)
    lines[0]["timing"]["seconds"] = seconds
    found = complaints(resealed(with_lines(honest, TIMING, lines)))
    assert any("`timing.seconds` has a time of" in text for text in found), found


@pytest.mark.parametrize("name", ["repeat", "seed"])
def test_whole_numbers_that_are_written_as_fractions_are_complaints(honest, name):
    lines = lines_of(honest, TIMING)
    lines[0][name] = float(lines[0][name])
    found = complaints(with_lines(honest, TIMING, lines))
    assert any(f"schema: {name}: " in text for text in found), found


def test_settings_that_are_left_out_are_complaints(honest):
    for name in ("seconds", "least", "most", "cadences"):
        lines = lines_of(honest, TIMING)
        lines[0]["timing"] |= {"counts": "samples"}
        del lines[0]["timing"][name]
        found = complaints(resealed(with_lines(honest, TIMING, lines)))
        assert any(f"`timing.{name}` is missing" in text for text in found), found
    lines = lines_of(honest, TIMING)
    lines[0]["timing"] |= {"least": 10.0, "precision": 0.01, "seconds": 10.0}
    found = complaints(resealed(with_lines(honest, TIMING, lines)))
    assert any("of the time that the run gives" in text for text in found), found


@pytest.mark.parametrize("of_a_file", [False, True])
def test_a_manifest_says_nothing_more(honest, of_a_file):
    manifest = json.loads(honest.files["manifest.json"].data)
    (manifest["files"][TIMING] if of_a_file else manifest)["certified"] = "by nobody"
    found = complaints(replaced(honest, "manifest.json", json.dumps(manifest).encode()))
    assert any("'certified' is not a name that submit writes" in text for text in found), found


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


@pytest.mark.parametrize("of_a_release", [False, True])
def test_a_link_to_a_product_is_refused_and_not_followed(tmp_path, honest, capsys, of_a_release):
    """The report would follow it to a product that nobody checked."""
    path, links = unpacked(honest, tmp_path), tmp_path / "links"
    link = links / "0.12.0.1" if of_a_release else links / "0.12.0.1" / "cpu-4"
    link.parent.mkdir(parents=True)
    link.symlink_to(path.parent if of_a_release else path)
    for named in (links, link):
        assert cli.main(["validate", str(named)]) == 1
        assert "a link to a directory: put the directory itself here" in capsys.readouterr().out
    with pytest.raises(results.ResultError, match="a link to a directory"):
        results.find_products(links)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_sparse_file_of_an_archive_is_refused(tmp_path, form):
    """Its holes are not in the archive, so 200 bytes could fill the memory."""
    info = tarfile.TarInfo("0.12.0.1/cpu-4/a.jsonl")
    data = b""
    if form == tarfile.PAX_FORMAT:
        hole = {"size": 60 << 20, "map": f"{60 << 20},0", "numblocks": 1, "major": 0, "minor": 1}
        info.pax_headers = {f"GNU.sparse.{name}": str(value) for name, value in hole.items()}
    else:
        info.type = tarfile.GNUTYPE_SPARSE
    path = tmp_path / "b.tar.gz"
    with tarfile.open(path, "w:gz", format=form) as archive:
        archive.addfile(info, io.BytesIO(data))
    [bundle] = bundles.open_bundles(path)
    assert not bundle.files and [why for _, why in bundle.refused] == [
        "a sparse file: pack it without --sparse"
    ]


def test_all_files_of_an_archive_together_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "MOST_PACKED", 20_000)
    path = packed(tmp_path, *((f"0.12.0.1/cpu-4/{n}.jsonl", bytes(12_000)) for n in "ab"))
    [bundle] = bundles.open_bundles(path)
    assert list(bundle.files) == ["a.jsonl"] and "more than the limit" in bundle.refused[0][1]


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
    assert [check_product(b).complaints for b in bundles.open_bundles(path)] == [[]]
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
    report = check_product(Bundle("0.12.0.1", "cpu-4", {"a.jsonl": File("a.jsonl", text)}))
    assert report.complaints and all("\n" not in text for text in report.complaints)


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=400),
    st.sampled_from(["a.jsonl", "a.jsonl.gz", "manifest.json", "environment.json", "product.yaml"]),
)
def test_no_bytes_make_it_stumble(data, name):
    report = check_product(Bundle("0.12.0.1", "cpu-4", {name: File(name, data)}))
    assert report.complaints


@pytest.fixture(scope="module")
def honest_lines():
    """One case and the timings, in one file."""
    return [run_line(), *judged(cases.find(CASE, 4)), *timed()]


def test_a_file_that_is_far_too_large_is_refused_unread(tmp_path):
    """A sparse file of a tebibyte is one complaint."""
    product = tmp_path / "0.12.0.1" / "cpu-4"
    product.mkdir(parents=True)
    (product / "product.yaml").write_text("name: cpu-4\n")
    with open(product / "conformance.jsonl.gz", "wb") as file:
        file.truncate(1 << 40)
    [bundle] = bundles.open_bundles(product)
    [(name, why)] = bundle.refused
    assert name == "conformance.jsonl.gz" and "above 64 MiB" in why and name not in bundle.files


@pytest.mark.parametrize("value", ["1", None, True, [], ["1", None], {"cpu:0": "1"}, [[1.0]], 1.5, [0, 0.5]])
def test_a_field_of_another_kind_of_line_is_no_time(value):
    """The schema says nothing about the fields of other kinds, so anything may be in them."""
    names = (*publish_lines.SERIES, *publish_lines.DURATIONS, "samples_by_rank", "per_device_s", "timing")
    assert all(publish_lines.time_problem({name: value}) == "" for name in names)


def test_a_whole_number_too_large_for_a_float_is_no_time():
    for number in (10**400, -(10**400)):
        told = publish_lines.time_problem({"seconds": number, "samples_s": [1.0, number]})
        assert "which no clock gives" in told
