# SPDX-License-Identifier: Apache-2.0
"""A sample of the attacks of `tests.studies.hostile_places`; `tox run -e places` runs all of them."""

import pytest

from tests.studies import hostile_places
from tests.studies.hostile_places import Attack, Ending

pytestmark = pytest.mark.e2e

SAMPLE = ("levels <", "levels with no standard output", "levels with 200 MB")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The directory of the attacks, and all attacks by name."""
    directory = tmp_path_factory.mktemp("places")
    hostile_places.prepare(directory)
    return directory, {attack.name: attack for attack in hostile_places.attacks(directory)}


def test_each_attack_of_the_sample_ends_in_a_line(made):
    directory, every = made
    assert len(every) > 1000
    sample = [attack for name, attack in every.items() if name.startswith(SAMPLE)]
    assert len(sample) > 20
    faults = {
        attack.name: found for attack in sample if (found := hostile_places.run(attack, directory).faults)
    }
    assert faults == {}


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (Ending(None, "", 300.0), "no end"),
        (Ending(1, "Traceback (most recent call last):\n  File\nOSError: no\n", 1.0), "says Traceback"),
        (Ending(-11, "meshmark: x\n", 1.0), "ends by a signal"),
        (Ending(0, "fine\n", 1.0), "exit code 0"),
        (Ending(2, "", 1.0), "exit code 2 without a word"),
    ],
    ids=["hang", "exception", "signal", "taken", "silent"],
)
def test_what_is_a_fault(ending, told):
    attack = Attack("levels < x", ("levels", "x"), refused=True)
    assert any(text.startswith(told) for text in hostile_places._faults(attack, ending))
    assert not list(hostile_places._faults(attack, Ending(2, "meshmark: can't read x\n", 1.0)))
