# SPDX-License-Identifier: Apache-2.0
"""The commit that the made records name is one of the project's, without a history that has it."""

import pytest

from meshmark.publish import origin
from tests import submissions


@pytest.fixture(scope="session", autouse=True)
def known_commit():
    """`origin.look_up` knows the commit of tests.submissions, and asks git for every other."""
    ask = origin.look_up

    def look_up(commit):
        return origin.Commit(origin.FIRST, "") if commit == submissions.COMMIT else ask(commit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(origin, "look_up", look_up)
        yield
