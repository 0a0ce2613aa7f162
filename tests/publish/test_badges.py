# SPDX-License-Identifier: Apache-2.0
"""Badges: the products that get one, and its text."""

import dataclasses
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pytest

from meshmark.core.errors import BadInput
from meshmark.levels.interpreted import Interpreted
from meshmark.levels.statements import Statement
from meshmark.publish import badges
from meshmark.publish.review import Review


def statement(met="L3", **more):
    levels = ("L0", "L1", "L2", "L3")
    standings = tuple(
        SimpleNamespace(must=SimpleNamespace(level=name), complete=bool(met) and name <= met)
        for name in levels
    )
    facts = {
        "devices": 8,
        "device_kind": "cpu",
        "jax": "0.12.0.1",
        "virtual": True,
        "topology": "",
        "version": 2,
    }
    return Statement(**facts | more, standings=standings)


def review(**more):
    facts = {"place": "results/0.12.0.1/cpu-8", "statement": statement(), "measured": "2026-11-20"}
    return Review(**facts | more)


def test_a_badge_says_level_release_devices_and_date():
    assert badges.spell_badge(review()) == "L3 · JAX 0.12.0.1 · 8 virtual devices · 2026-11-20"
    real = statement(virtual=False, device_kind="NVIDIA H200", processes=2)
    assert (
        badges.spell_badge(review(statement=real))
        == "L3 · JAX 0.12.0.1 · 2 processes, 8 NVIDIA H200 · 2026-11-20"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"complaints": ["records.jsonl:3: not the expected bits"]},
        {"statement": None},
        {"statement": statement(met="")},
        {"statement": statement(virtual=False, topology="v5e:2x4")},
    ],
    ids=["refused", "no statement", "no level", "compiled only"],
)
def test_what_is_refused_or_compiled_only_gets_none(wrong, tmp_path):
    assert badges.spell_badge(review(**wrong)) == ""
    assert badges.write_badges([review(**wrong)], tmp_path) == [] and not list(tmp_path.iterdir())


def test_numbers_that_were_interpreted_say_so():
    def badge(*counts):
        found = tuple(Interpreted(f"L{k}", cases, passed, 0) for k, (cases, passed) in enumerate(counts))
        compiled = statement(virtual=False, topology="v5e:2x4", met="")
        return badges.spell_badge(review(statement=dataclasses.replace(compiled, interpreted=found)))

    said = "JAX 0.12.0.1 · compiled for v5e:2x4 · 2026-11-20"
    assert badge((40, 40), (900, 900), (950, 949)) == f"L1 interpreted · {said}"
    assert badge((40, 39), (900, 900)) == "", "a lower level is not whole"
    assert badge((0, 0)) == "", "no case counts for nothing"


def test_the_file_is_an_image_and_hostile_names_are_text(tmp_path):
    hostile = dataclasses.replace(statement(virtual=False), device_kind='<script>x</script>"&')
    (file,) = badges.write_badges([review(statement=hostile, place="../../etc/x y")], tmp_path)
    assert file.parent == tmp_path
    root = ElementTree.parse(file).getroot()
    assert not root.findall(".//{*}script") and "<script>" in root.get("aria-label")


def test_a_long_place_and_half_of_a_surrogate_pair_are_written(tmp_path):
    strange = dataclasses.replace(statement(virtual=False), device_kind="half \ud83d")
    (file,) = badges.write_badges([review(statement=strange, place="9" * 400)], tmp_path)
    assert len(file.name) < 255 and ElementTree.parse(file)


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="choose another --badges"):
        badges.write_badges([review()], tmp_path / "file" / "badges")
