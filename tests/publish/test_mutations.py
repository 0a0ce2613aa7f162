# SPDX-License-Identifier: Apache-2.0
"""A sample of the mutated records and manifests; `tox run -e mutations` runs all of them."""

from tests.studies import mutations


def test_no_mutated_record_or_manifest_makes_a_command_stumble():
    assert mutations.run(40, seed=11) == []


def test_a_command_that_stumbles_is_found(monkeypatch):
    monkeypatch.setattr(mutations, "check", lambda made: 1 / 0)
    found = mutations.run(2)
    assert found and all("ZeroDivisionError" in text for text in found)
