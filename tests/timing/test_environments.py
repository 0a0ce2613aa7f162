# SPDX-License-Identifier: Apache-2.0
"""Each side of a comparison reports its own version of the case table."""

import sys

from meshmark.operations.versions import TABLE_VERSION
from meshmark.timing.environments import BEFORE_ROOMS, Environment, table_version


def test_each_side_names_its_own_version_of_the_case_table(tmp_path):
    assert table_version(Environment("own", sys.executable)) == TABLE_VERSION
    package = tmp_path / "meshmark" / "operations"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").write_text("")
    other = Environment("commit:x", sys.executable, tmp_path, commit="0123456789ab")
    assert table_version(other) == 1, "a commit from before the table had versions"
    (package / "versions.py").write_text("TABLE_VERSION = 7\n")
    assert table_version(other) == 7
    assert table_version(Environment("commit:y", "none", tmp_path, "0123456789ab", layout=BEFORE_ROOMS)) == 1
