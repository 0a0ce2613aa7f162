# SPDX-License-Identifier: Apache-2.0
"""Machines of run lines, of which older ones say less."""

import pytest

from meshmark.core.machines import comparable

OLD, NEW = {"cores": 2, "system": "Linux"}, {"cores": 2, "system": "Linux", "usable": 2}


@pytest.mark.parametrize(
    ("hosts", "same"),
    [
        ([OLD, NEW], True),  # the older record can't say how many cores it might use
        ([NEW, NEW], True),
        ([NEW, NEW | {"usable": 1}], False),
        ([NEW, NEW | {"quota": 0.5}], False),
        ([OLD, NEW | {"cores": 4}], False),
        ([OLD, {}], False),
    ],
)
def test_machines_are_compared_by_what_all_of_them_say(hosts, same):
    first, *others = comparable(hosts)
    assert all(other == first for other in others) is same
