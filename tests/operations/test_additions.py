# SPDX-License-Identifier: Apache-2.0
"""Which version of the table added an operation or a choice."""

import pytest

from meshmark.operations import OPERATIONS, additions
from meshmark.operations.additions import append_operations, read_additions, version_that_added
from meshmark.operations.base import Variant
from meshmark.operations.versions import TABLE_VERSION


@pytest.mark.parametrize(
    ("operation", "options", "version"),
    [
        ("psum", {"axes": ("x",)}, 1),
        ("convolution", {}, 2),
        ("refusal", {"kind": "shared_groups"}, 5),
        ("partly_sharded", {"group": "reads", "turn": 1, "way": None}, 7),
        ("partly_sharded", {"group": "reads", "turn": 1, "way": "eager"}, 8),
        ("creation", {"function": "arange_down"}, 3),
        ("batch_grid", {}, 12),
        ("an_operation_of_tomorrow", {}, 99),
    ],
)
def test_rows_name_the_version(operation, options, version):
    assert version_that_added(operation, Variant.of(**options), newest=99) == version


def test_every_row_names_an_operation_and_a_version_of_the_table():
    for name, rows in read_additions().items():
        assert name in OPERATIONS
        assert all(1 <= version <= TABLE_VERSION for version in rows.values())


def test_new_operations_get_rows_once(tmp_path):
    path = tmp_path / "added.tsv"
    path.write_text("1\tpsum\n")
    assert append_operations(["psum", "b", "a"], 4, path) == ["a", "b"]
    assert append_operations(["psum", "b", "a"], 5, path) == []
    assert path.read_text() == "1\tpsum\n4\ta\n4\tb\n"
    read_additions.cache_clear()


@pytest.mark.parametrize("line", ["x\tpsum", "1\tpsum\tkind", "1\tpsum\tkind\tvalue\tmore"])
def test_a_line_of_another_form_is_told(tmp_path, line):
    path = tmp_path / "added.tsv"
    path.write_text(f"1\tpmax\n{line}\n")
    with pytest.raises(ValueError, match=r"added.tsv:2 is not a version"):
        additions.read_additions(path)
