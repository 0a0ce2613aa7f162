# SPDX-License-Identifier: Apache-2.0
"""A refusal is judged by its message, and not by the place of the call in the source."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from meshmark.operations.programs.refusals import REFUSALS, Refusal, reason_of

ELSEWHERE = (
    'Cannot lower: no such thing\n\t\tat loc("all_gather"("_uneven_groups.<locals>"("refusals.py":7:50)))'
)


def on_two_devices(monkeypatch, message):
    def call(mesh, x, a):
        raise ValueError(message)

    monkeypatch.setitem(REFUSALS, "uneven_groups", (call, "group"))
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    return Refusal.host(mesh, np.zeros((4, 8), np.float32), kind="uneven_groups")


def test_a_name_in_the_place_of_an_error_is_not_its_reason(monkeypatch):
    assert "no such thing" in reason_of(ValueError(ELSEWHERE))
    with pytest.raises(ValueError, match="no such thing"):
        on_two_devices(monkeypatch, ELSEWHERE)


def test_a_message_that_names_the_reason_is_a_refusal(monkeypatch):
    assert np.asarray(on_two_devices(monkeypatch, "a group has 1 device, and another 3")).all()


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_groups_of_unlike_sizes_are_asked_for_on_every_axis(devices):
    mesh = Mesh(np.array(jax.devices()[:devices]), ("x",))
    found = Refusal.host(mesh, np.zeros((2 * devices, 4 * devices), np.float32), kind="uneven_groups")
    assert np.asarray(found).all()
