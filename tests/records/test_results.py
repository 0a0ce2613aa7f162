# SPDX-License-Identifier: Apache-2.0
"""The layout of results/: finding products, refusals in one line, and the expiry of a result."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from meshmark.records import results, writing
from meshmark.records.fields import Field, entries, last, taken_apart
from meshmark.records.product_definition import ProductData
from meshmark.records.reading import RecordError, read_records
from meshmark.records.results import (
    ResultError,
    find_products,
    is_expired,
    newest,
    parse_product,
    product_text,
)
from meshmark.records.schema.describing import describe_object
from meshmark.records.writing import Writer
from tests.checkout import ROOT
from tests.submissions import judged, run_line, write

PRODUCT = {"name": "cpu-8", "by": "someone", "command": "python -m pytest conformance"}


def put(root, release="0.12.0.1", name="cpu-8", product=None, lines=None):
    path = root / release / name
    path.mkdir(parents=True)
    (path / "product.yaml").write_text(product_text(product or PRODUCT | {"name": name}), encoding="utf-8")
    write(path / "conformance.jsonl", lines or [run_line()])
    return path


def test_products_are_found_the_newest_release_first(tmp_path):
    for release, name in (("0.9.1", "b"), ("0.12.0.1", "b"), ("0.12.0.1", "a"), ("0.10.2", "a")):
        put(tmp_path, release, name)
    (tmp_path / "compile-only" / "0.12.0.1").mkdir(parents=True)
    (tmp_path / "compile-only" / "0.12.0.1" / "v5e.jsonl").write_text("x")
    (tmp_path / "README.md").write_text("x")
    (tmp_path / "page").mkdir()
    found = find_products(tmp_path)
    assert [(p.release, p.name) for p in found] == [
        ("0.12.0.1", "a"), ("0.12.0.1", "b"), ("0.10.2", "a"), ("0.9.1", "b"),
    ]  # fmt: skip
    assert found[0].product["by"] == "someone" and found[0].product["notes"] == []
    assert [len(r.runs) for r in found[0].read()] == [1]
    assert newest(p.release for p in found) == "0.12.0.1" and newest([]) == ""


def test_packed_records_are_read_like_plain_ones(tmp_path):
    from meshmark.operations import cases

    lines = [run_line(), *judged(cases.find("psum/axes=x+y/manual/2x2/float32/4KiB", 4))]
    plain = write(tmp_path / "a.jsonl", lines)
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_records(packed) == read_records(plain)
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(RecordError, match="not a whole gzip file"):
        read_records(packed)
    packed.write_bytes(plain.read_bytes())
    with pytest.raises(RecordError, match="not a whole gzip file"):
        read_records(packed)


def test_records_are_never_appended_to_a_packed_file(tmp_path):
    packed = tmp_path / "a.jsonl.gz"
    with pytest.raises(RecordError, match=r"ends in \.jsonl"):
        Writer.create(packed, {"facts": {}})
    data = gzip.compress((writing.dumps(run_line()) + "\n").encode())
    packed.write_bytes(data)
    with pytest.raises(RecordError, match=r"ends in \.jsonl"):
        Writer.going_on(packed, run_line())
    assert packed.read_bytes() == data


@pytest.mark.parametrize(
    ("old", "new", "gone"),
    [
        ("0.12.0.1", "0.12.0.1", False),
        ("0.10.2", "0.12.0.1", False),
        ("0.9.9", "0.12.0.1", True),
        ("0.12.3", "0.12.0.1", False),
        ("0.13.0", "0.12.0.1", False),
        ("0.14.0", "1.0.0", False),
        ("0.14.0", "1.1.0", False),
        ("0.14.0", "1.2.0", True),
        ("0.14.0", "2.0.0", True),
        ("1.0.0", "0.14.0", False),
    ],
)
def test_a_result_expires_with_the_third_minor_after_it(old, new, gone):
    assert is_expired(old, new) is gone


def test_no_release(tmp_path):
    with pytest.raises(ResultError, match="'nightly' is not a JAX release"):
        is_expired("nightly", "0.12.0")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda p: (p / "product.yaml").unlink(), "can't read .*product.yaml"),
        (lambda p: (p / "conformance.jsonl").unlink(), "no records"),
        (lambda p: p.rename(p.parent / "other"), "`name` is 'cpu-8' in directory 'other'"),
        (lambda p: p.rename(p.parent / "Upper Case"), "no name of a product"),
        (lambda p: (p / "product.yaml").write_text("by: x\n"), "`name` must be one line of text"),
    ],
)
def test_a_directory_that_is_no_product(tmp_path, break_it, message):
    break_it(put(tmp_path))
    with pytest.raises(ResultError, match=message) as raised:
        find_products(tmp_path)
    assert "\n" not in str(raised.value)


def test_a_root_that_is_not_there(tmp_path):
    with pytest.raises(ResultError, match="can't read"):
        find_products(tmp_path / "none")


BOMB = "a: &a [x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)},*{chr(97 + i)}]\n" for i in range(20)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nby: b  # verified by the maintainers\n", r":2: a comment: write a note"),
        ("# by somebody else\nname: a\n", r":1: a comment"),
        (BOMB, r":1: anchors and aliases"),
        ("{" * 10_000, "more than 200 brackets"),
        ("[" * 10_000, "more than 200 brackets"),
        ("{" * 200, "not YAML"),
        ("- " * 8_000, "not YAML|no `name: value`"),
        ("name: a\nby: !!python/object/apply:os.system [id]\ncommand: c", ":2: tags"),
        ("name: a\nby: !!bool x\ncommand: c", ":2: tags"),
        ("name: a\nby: !!timestamp x\ncommand: c", ":2: tags"),
        ("name: a\nby: !!int ''\ncommand: c", ":2: tags"),
        ("name: a\nby: !!set {x}\ncommand: c", ":2: tags"),
        ("name: a\nby: ! x\ncommand: c", ":2: tags"),
        ("name: a\nby: 2026-99-99\ncommand: c", "not YAML"),
        ("name: a\nby: 0b_\ncommand: c", "not YAML"),
        ("name: a\n? [x]\n: y\ncommand: c", "not YAML"),
        ("name: a\n<<: x\ncommand: c", "not YAML"),
        ("name: a\nname: b\nby: x\ncommand: y", "'name' comes twice"),
        ("name: a\nby: x\ncommand: y\nnotes: [{about: peak, text: z, text: w}]", "'text' comes twice"),
        ("name: a\nby: x\ncommand: y\n<<: {level: L3}", "'<<' merges fields"),
        ("name: a\nby: x\ncommand: y\nnotes: [{about: peak, <<: {text: z}}]", "'<<' merges fields"),
        ("name: a\nby: \u3164 \u2800\ncommand: y", "`by` must be one line of text"),
        ("name: a\nby: x" + "\u0301" * 5 + "\ncommand: y", "`by` must be one line of text"),
        ("name: a\nby: x\ncommand: y\nlevel: L\u0663", "`level`: the level"),
        ("name: a\nby: 2026-11-21\ncommand: y", "`by` must be one line of text"),
        ("name: a\nby: x\ncommand: y\nfoo: z", "unknown field 'foo'"),
        ("name: ../a\nby: x\ncommand: y", "`name`: use lower-case"),
        ('name: a\nby: "x\\ny"\ncommand: y', "`by` must be one line"),
        ('name: a\nby: "\\e[31m"\ncommand: y', "`by` must be one line"),
        ("name: a\nby: x\ncommand: y\nnotes: [{about: sports, text: z}]", "a note is"),
        ("name: a\nby: x\ncommand: y\nmarks: hello", "must be lists"),
        ("name: a\nby: x\ncommand: y\nlevel: 3", "`level` must be one line"),
        ("name: a\nby: x\ncommand: y\nlevel: gold", "`level`: the level"),
        ("", "no `name: value`"),
        ("a" * 70_000, "more than 16384 bytes"),
    ],
)
def test_a_product_that_is_none(text, message):
    with pytest.raises(ResultError, match=message) as raised:
        parse_product(text.encode(), "product.yaml")
    assert len(str(raised.value)) < 400 and "\n" not in str(raised.value)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_no_product_makes_the_reader_stumble(data):
    try:
        found = parse_product(data, "p")
    except ResultError as error:
        assert "\n" not in str(error)
    else:
        assert found["name"]


SHOWN = st.characters(
    codec="utf-8", exclude_categories=["C", "Z", "Mn", "Me"], exclude_characters=results.BLANK
)


@given(st.text(SHOWN, min_size=1, max_size=50))
def test_what_is_written_is_read(text):
    product = PRODUCT | {"title": text, "notes": [{"about": "peak", "text": text}], "marks": [text]}
    assert parse_product(results.product_text(product).encode(), "p") == product


# The definition -----------------------------------------------------------------------------------------------------


def test_published_products_follow_the_definition():
    whole = Draft202012Validator(describe_object(ProductData, {}, (Field(closed=True),)))
    published = find_products(ROOT / "results")
    assert published and all(whole.is_valid(product.product) for product in published)
    assert not whole.is_valid(published[0].product | {"level": "gold"})


def test_every_limit_of_a_text_is_a_check():
    for entry in entries(ProductData):
        plain, fields = taken_apart(entry.type)
        if plain is str:
            longest = last(fields, "most")
            wrong = {"a" * (longest + 1): f"at most {longest} characters"}
            if last(fields, "pattern"):
                wrong["?"] = results.MENDS[entry.name]
            for text, message in wrong.items():
                [problem] = results.problems_of_product(PRODUCT | {entry.name: text})
                assert f"`{entry.name}`" in problem and message in problem
            lacking = {name: text for name, text in PRODUCT.items() if name != entry.name}
            assert bool(list(results.problems_of_product(lacking))) is entry.required


def test_the_documents_name_every_field():
    lines = (ROOT / "docs/submitting.md").read_text(encoding="utf-8").splitlines()
    [row] = [line for line in lines if line.startswith("| `product.yaml` |")]
    assert [entry.name for entry in entries(ProductData) if f"`{entry.name}`" not in row] == []
