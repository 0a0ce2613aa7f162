# SPDX-License-Identifier: Apache-2.0
"""Several workers on one device: their default number, and each one's share of the memory."""

from types import SimpleNamespace

import pytest

from meshmark.devices import sharing


def machine(**of):
    return SimpleNamespace(**{"virtual": False, "topology": "", "backend": "gpu", "num_devices": 1} | of)


@pytest.mark.parametrize(
    ("of", "workers"),
    [
        ({}, 8),
        ({"num_devices": 8}, 1),
        ({"backend": "tpu"}, 1),
        ({"backend": "cpu", "virtual": True, "num_devices": 8}, 16),
        ({"backend": "tpu", "topology": "v5e:2x4"}, 16),
    ],
)
def test_the_default_number_of_workers(of, workers):
    assert sharing.default_workers(machine(**of), cores=16) == workers
    assert sharing.default_workers(machine(**of), cores=1) == 1


def test_workers_share_the_memory_of_a_gpu():
    assert sharing.memory_shares(machine(), 6, {}) == {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.125"}
    assert sharing.memory_shares(machine(), 1, {}) == {}
    assert sharing.memory_shares(machine(backend="tpu"), 6, {}) == {}
    assert sharing.memory_shares(machine(), 6, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}) == {}
    assert sharing.memory_shares(machine(), 6, {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".1"}) == {}
