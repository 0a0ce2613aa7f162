# SPDX-License-Identifier: Apache-2.0
"""A sample of the mutated records and manifests; `tox run -e mutations` runs all of them."""

import pytest

from tests.studies import mutated_inputs, mutations


def test_no_mutated_record_or_manifest_makes_a_command_stumble():
    assert mutations.run(40, seed=11) == []


def test_a_command_that_stumbles_is_found(monkeypatch):
    monkeypatch.setattr(mutations, "check", lambda made: 1 / 0)
    found = mutations.run(2)
    assert found and all("ZeroDivisionError" in text for text in found)


@pytest.mark.parametrize("kind", [reader.name for reader in mutated_inputs.READERS])
def test_no_mutated_file_makes_a_command_stumble(kind):
    assert mutated_inputs.run(1, seed=5, only=kind) == []


def test_a_command_that_stumbles_over_a_file_is_found(monkeypatch):
    monkeypatch.setattr("meshmark.ranks.merge.merged", lambda path, size: 1 / 0)
    found = mutated_inputs.run(3, seed=0, only="the file of a rank")
    assert found and all("ZeroDivisionError" in text for text in found)
