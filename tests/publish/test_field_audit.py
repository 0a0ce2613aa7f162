# SPDX-License-Identifier: Apache-2.0
"""A sample of the audit of fields (tests.studies.field_audit): every false value is refused, reported or listed."""

import random

import pytest

from meshmark.publish import validate
from meshmark.publish.bundles import Bundle
from tests.audit import bundles, trust
from tests.audit.changes import FIELDS, Falsehood, on_all
from tests.studies import field_audit

PLACES = {"0.12.0.1/cpu-2x4-virtual": 120, "0.11.2/h100-1": 30}
"""The parts that cost least, and how many of their false values are tried."""


@pytest.fixture(scope="module")
def parts():
    return [bundles.honest(place) for place in PLACES]


def test_what_is_changed_was_accepted(parts):
    for one in parts:
        assert bundles.review(one, lambda files, product: None, "")[0] == []


@pytest.mark.parametrize("place", PLACES)
def test_a_false_value_is_refused_or_told_or_on_the_list(place, parts):
    one = bundles.honest(place)
    lies = field_audit.every(one, parts, classes=False)
    found = field_audit.run(one, random.Random(0).sample(lies, PLACES[place]))
    assert {name: came for name, came in found.items() if came not in trust.OUTCOMES[:3]} == {}
    assert list(found.values()).count("refused") > len(found) / 2


def test_a_value_that_nobody_checks_is_a_hole(parts, monkeypatch):
    monkeypatch.setattr(trust, "reason", lambda field, sort: "")
    one, more = parts[0], {"cores": 96, "system": "Linux", "machine": "x86_64"}
    own = next(iter(one.files.values()))[0]["facts"]["host"]
    lie = Falsehood("run.facts.host", "another's", "run", "run", on_all("run", ("facts", "host"), own, more))
    assert field_audit.outcome(one, lie, {}) == "hole"


def test_the_list_names_fields_that_there_are():
    others = ("product", "manifest", "environment")
    strange = [f for f in trust.rows() if f.rstrip("{}[]") not in FIELDS and not f.startswith(others)]
    assert strange == [] and len(trust.rows()) > 60


def test_each_row_of_the_list_has_a_reason():
    assert all(why.endswith(".") and len(why) > 20 for _, why in trust.rows().values())


def test_a_product_without_totals_is_refused(parts):
    sealed = parts[0].sealed
    made = Bundle(sealed.release, sealed.name, dict(sealed.files))
    bundles._spoil(made, "manifest.json", ("totals",), object)
    assert any("it must have 'totals'" in text for text in validate.check_product(made).complaints)
