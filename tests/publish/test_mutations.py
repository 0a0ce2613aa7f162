# SPDX-License-Identifier: Apache-2.0
"""A sample of the mutated records and manifests; `tox run -e mutations` runs all of them."""

import copy

import pytest

from meshmark.publish import consistent, ended
from meshmark.records import closing
from tests.studies import mutated_inputs, mutations


def test_no_mutated_record_or_manifest_makes_a_command_stumble():
    assert mutations.run(40, seed=11) == []


def test_a_command_that_stumbles_is_found(monkeypatch):
    monkeypatch.setattr(mutations, "check_product", lambda made: 1 / 0)
    found = mutations.run(2)
    assert found and all("ZeroDivisionError" in text for text in found)


@pytest.mark.parametrize("kind", [reader.name for reader in mutated_inputs.READERS])
def test_no_mutated_file_makes_a_command_stumble(kind):
    assert mutated_inputs.run(1, seed=5, only=kind) == []


def test_a_command_that_stumbles_over_a_file_is_found(monkeypatch):
    monkeypatch.setattr("meshmark.ranks.merge.merged", lambda path, size: 1 / 0)
    found = mutated_inputs.run(3, seed=0, only="the file of a rank")
    assert found and all("ZeroDivisionError" in text for text in found)


def test_a_field_of_another_kind_of_line_is_not_taken_for_a_time():
    """What 10,000 mutations found first: a line of what was chosen, with `seconds` that are no number."""
    lines = [mutations.base()[0], closing.make_chosen_line(["a"]) | {"run": "r", "seconds": "soon"}]
    assert [text for _, text in ended.find_wrong_endings(list(enumerate(lines, 1))) if "soon" in text] == []


def test_samples_of_any_size_are_compared():
    samples = [1e-308 * (1 + i) for i in range(12)] + [1e308]
    lines = [(number, {"case": "a", "samples_s": list(samples)}) for number in (1, 2)]
    assert any("in another order" in text for _, text in consistent.of_samples(lines))


@pytest.mark.parametrize("value", ["x", "L9", None])
@pytest.mark.parametrize("name", ["mesh", "verified"])
def test_no_command_stumbles_over_a_line_without_its_mesh_or_its_verification(name, value, tmp_path):
    """`validate` ended with an exception for the first, and `report` for the second: 18 of 10,000 mutated files."""
    good = mutations.base()
    for number, line in enumerate(good):
        if name not in line:
            continue
        lines = copy.deepcopy(good)
        if value is None:
            del lines[number][name]
        else:
            lines[number][name] = value
        data = "".join(mutations.text_of(one) + "\n" for one in mutations.closed(lines[:-1])).encode()
        mutations.through_readers(data, tmp_path)
