# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of publishing: a commit that the project seems to have, and an accepted bundle."""

import pytest

from meshmark.operations import cases
from meshmark.publish import origin
from meshmark.publish.validate import check_product
from tests import submissions
from tests.publish.tampering import CASE


@pytest.fixture(scope="session", autouse=True)
def known_commit():
    """`origin.look_up` knows the commits of tests.submissions, and asks git for every other."""
    ask = origin.look_up

    def look_up(commit):
        known = commit in (submissions.COMMIT, submissions.ANOTHER)
        return origin.Commit(origin.FIRST, "") if known else ask(commit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(origin, "look_up", look_up)
        yield


@pytest.fixture(scope="session")
def honest(known_commit, tmp_path_factory):
    """An accepted bundle: L0 on four devices, one more case that is a program, a few timings."""
    lines = [*submissions.level(), *submissions.judged(cases.find(CASE, 4))]
    made = submissions.bundle(tmp_path_factory.mktemp("honest"), lines)
    report = check_product(made)
    assert report.complaints == [] and report.statement.met == "L0"
    return made
