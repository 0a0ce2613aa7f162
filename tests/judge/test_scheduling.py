# SPDX-License-Identifier: Apache-2.0
"""The schedule counters of a case: from stored texts with the network of a slice, and from a compiled program."""

from pathlib import Path

import numpy as np
import pytest

from meshmark.devices.chips import CHIPS, peak_flops
from meshmark.devices.projection import torus
from meshmark.judge import scheduling
from meshmark.operations import cases

TEXTS = Path(__file__).parents[1] / "interpreter" / "scheduled"
V5E = CHIPS["v5e"]
SLICE = torus(V5E, np.stack(np.unravel_index(np.arange(8), (2, 4)), axis=1), (2, 4))
RING = "ring_attention/batch=x,sequence=y/manual/2x4/float32/n32"


def of(name, case, fabric=SLICE):
    text = (TEXTS / f"{name}.hlo").read_text(encoding="utf-8")
    return scheduling.of_text(text, cases.find(case, 8), fabric)


def test_the_counters_of_ring_attention():
    found = of("ring_attention", RING)
    assert found["collectives"] == {"collective-permute": 6}
    assert found["wire_bytes"] == 6 * 1024
    assert (found["inserted"], found["decomposed"], found["loops"], found["host"]) == (0, 0, [], [])
    assert [p["between_flops"] for p in found["pairs"]][2:5] == [4352] * 3
    # Each step of a ring over a line of four chips: one hop, and the last sends back over the same three links.
    alone = 1024 / V5E.link_bandwidth
    assert all(0 <= p["exposed_s"] <= alone * 1.0001 for p in found["pairs"])
    assert found["pairs"][2]["exposed_s"] == pytest.approx(
        alone - 4352 / peak_flops(V5E, "float32", "highest")
    )
    assert found["exposed_s"] == pytest.approx(sum(p["exposed_s"] for p in found["pairs"]))


def test_a_collective_that_is_not_split_is_wholly_exposed():
    found = of("inference", "inference/batch=x,model=y/auto/2x4/float32/n512")
    assert found["pairs"] == []
    assert found["collective_runs"] == 3
    assert found["exposed_s"] > 0


def test_without_a_network_nothing_is_projected():
    found = of("ring_attention", RING, fabric=None)
    assert found["exposed_s"] is None
    assert not any("exposed_s" in p for p in found["pairs"])


class Compiled:
    """A compiled program, by its text alone."""

    def as_text(self):
        return (TEXTS / "attention.hlo").read_text(encoding="utf-8")

    def cost_analysis(self):
        return None

    def memory_analysis(self):
        sizes = {f"{name}_size_in_bytes": 8 for name in ("argument", "output", "temp", "alias")}
        return type("Stats", (), sizes)()


def test_what_a_compiler_does_not_say_is_none_and_its_warnings_count():
    case = cases.find("attention/batch=x,sequence=y/auto/2x4/float32/n32", 8)
    words = (
        "E0101 spmd_partitioner.cc:1] [SPMD] Involuntary full rematerialization. The compiler ...\nother\n"
    )
    found = scheduling.counters(case, Compiled(), None, words * 2)
    assert found["rematerialization_warnings"] == 2
    assert (found["memory_bytes"], found["peak_bytes"], found["flops"]) == (16, None, None)
    assert found["inserted"] == 2
