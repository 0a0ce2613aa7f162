# SPDX-License-Identifier: Apache-2.0
"""Numbers and kinds of devices in the words of a product: notes where the records have others."""

import pytest

from meshmark.publish.own_words import find_other_devices

H100 = {"num_devices": 1, "backend": "gpu", "device_kind": "NVIDIA H100 80GB HBM3"}
V5E = {"num_devices": 32, "num_processes": 8, "backend": "tpu", "device_kind": "TPU v5 lite"}
TPU7X = {"num_devices": 8, "backend": "tpu", "device_kind": "TPU7x"}


def notes(text, what="hardware", **facts):
    run = {"facts": {"num_devices": 8, "num_processes": 1, "backend": "cpu", "device_kind": "cpu"} | facts}
    return list(find_other_devices({"name": "x", what: text}, {"run": run}))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("two cores of an AMD EPYC, shared with other work", {}),
        ("Eight virtual CPU devices", {}),
        ("Two processes of four virtual CPU devices", {"num_processes": 2}),
        ("one NVIDIA H100 80GB HBM3 (SXM5) in a virtual machine of 16 cores; driver 580.159.04", H100),
        ("one of 8 GPUs of a server", H100),
        ("4 chips of TPU7x", TPU7X),
        ("8 hosts with 4 TPU v5e chips each", V5E),
    ],
)
def test_true_words_have_no_note(text, facts):
    assert notes(text, **facts) == []


@pytest.mark.parametrize(
    ("text", "facts", "said"),
    [
        ("Certified L4 on 256 real TPU devices", {}, "256 real tpu"),
        ("8 GPUs", {}, "8 gpus"),
        ("Eight NVIDIA H100", H100, "eight nvidia h100"),
        ("64 chips", TPU7X, "64 chips"),
    ],
)
def test_other_numbers_and_kinds_have_one(text, facts, said):
    (told,) = notes(text, **facts)
    assert told.startswith(f"`hardware` says '{said}', and the records are of ")


def test_the_name_is_read_too_and_a_topology_has_no_devices():
    assert "256chips" in notes("cpu-8-256chips", "name")[0]
    assert notes("256 chips", topology="v5e:2x4") == []
