# SPDX-License-Identifier: Apache-2.0
"""Projections against figures worked out by hand, textbook formulas, and measured figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshmark.core import meshes
from meshmark.core.hlo import Collective
from meshmark.devices.chips import CHIPS
from meshmark.devices.projection import (
    Projection,
    exposed_seconds,
    network_seconds,
    project,
    switched,
    torus,
    wraparound,
)

S = 1 << 30


def lying(shape):
    """Coordinates of a mesh that takes the chips in order."""
    return np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)


def collective(kind, groups=(), pairs=(), nbytes=S, trips=1):
    return Collective(kind, nbytes, "f32", tuple(map(tuple, groups)), tuple(pairs), trips)


def over(shape, axes):
    return meshes.MeshShape(shape).groups(axes).tolist()


V5E, V5P = CHIPS["v5e"], CHIPS["v5p"]
POD = torus(V5E, lying((16, 16)), (16, 16))
CUBE = torus(V5P, lying((4, 4, 4)), (4, 4, 4))
SMALL = torus(V5E, lying((2, 4)), (2, 4))
W = 50e9


@pytest.mark.parametrize(
    ("chip", "shape", "wraps"),
    [
        (V5E, (16, 16), (True, True)),
        (V5E, (8, 16), (False, True)),
        (V5E, (2, 4), (False, False)),
        (V5P, (4, 4, 4), (True, True, True)),
        (V5P, (2, 4, 4), (False, False, False)),
        (V5P, (4, 4, 8), (True, True, True)),
    ],
)
def test_wraparound_links(chip, shape, wraps):
    assert wraparound(chip, shape) == wraps


@pytest.mark.parametrize(
    ("kind", "axes", "seconds"),
    [
        # A ring of 16 with both directions: each chip takes in 15/16 S over two links.
        ("all-gather", ("y",), S * 15 / 16 / (2 * W)),
        ("reduce-scatter", ("x",), S * 15 / 16 / (2 * W)),
        ("all-reduce", ("y",), 2 * S * 15 / 16 / (2 * W)),
        # Both axes: four links.
        ("all-gather", ("x", "y"), S * 255 / 256 / (4 * W)),
        ("all-reduce", ("x", "y"), 2 * S * 255 / 256 / (4 * W)),
        # The bisection: k S / 8 W on a ring of k; on the torus the same cut, each half sends the other n/2 S/2.
        ("all-to-all", ("y",), 16 * S / (8 * W)),
        ("all-to-all", ("x", "y"), 256 * S / 4 / (32 * W)),
        ("collective-broadcast", ("y",), S / (2 * W)),
    ],
)
def test_a_pod_of_v5e(kind, axes, seconds):
    assert network_seconds(collective(kind, over((16, 16), axes)), POD) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("kind", "axes", "seconds"),
    [
        # A line of 4: the chip at its end takes everything over its one link.
        ("all-gather", ("y",), S * 3 / 4 / W),
        ("all-gather", ("x",), S / 2 / W),
        ("all-gather", ("x", "y"), S * 7 / 8 / (2 * W)),
        # The middle of the line: two by two members, S/2 each to the other half.
        ("all-to-all", ("y",), S / W),
        ("all-to-all", ("x", "y"), 4 * S / 2 / (2 * W)),
    ],
)
def test_a_slice_without_wraparound(kind, axes, seconds):
    assert network_seconds(collective(kind, over((2, 4), axes)), SMALL) == pytest.approx(seconds)


def test_three_axes_together_are_three_times_one():
    one = network_seconds(collective("all-gather", over((4, 4, 4), ("z",))), CUBE)
    three = network_seconds(collective("all-gather", over((4, 4, 4), ("x", "y", "z"))), CUBE)
    assert one == pytest.approx(S * 3 / 4 / 200e9)
    assert three == pytest.approx(S * 63 / 64 / 600e9)


def test_published_bandwidths_of_the_pod():
    """v5e: bisection 1.6 TB/s, all-reduce 51.2 TB/s (= 256 chips with four links of 50 GB/s)."""
    halves = next(r for r in POD.regions if r.name.startswith("out of the first 8 of 16 chips along axis 0"))
    assert halves.bandwidth == 1.6e12
    seconds = network_seconds(collective("all-reduce", over((16, 16), ("x", "y"))), POD)
    sent = 2 * S * 255 / 256
    assert 256 * sent / seconds == pytest.approx(51.2e12)


def test_a_shift_takes_one_link_and_a_far_one_more():
    near = [(16 * i + j, 16 * i + (j + 1) % 16) for i in range(16) for j in range(16)]
    assert network_seconds(collective("collective-permute", pairs=near), POD) == pytest.approx(S / W)
    # By 8 of 16: eight pairs of a ring cross each of the two cuts that halve it, both ways over four links.
    far = [(16 * i + j, 16 * i + (j + 8) % 16) for i in range(16) for j in range(16)]
    assert network_seconds(collective("collective-permute", pairs=far), POD) == pytest.approx(8 * S / (2 * W))
    stay = [(i, i) for i in range(256)]
    assert network_seconds(collective("collective-permute", pairs=stay), POD) == 0


def test_a_loop_counts_and_an_unknown_one_counts_once():
    groups = over((16, 16), ("y",))
    once = network_seconds(collective("all-gather", groups), POD)
    assert network_seconds(collective("all-gather", groups, trips=7), POD) == pytest.approx(7 * once)
    assert network_seconds(collective("all-gather", groups, trips=None), POD) == once


def test_groups_across_the_axes_cost_more_than_along_them():
    """Groups of 4 of a 4x4 slice: as rows, and as the diagonals that a bad device order makes of them."""
    fabric = torus(V5E, lying((4, 4)), (4, 4))
    rows = over((4, 4), ("y",))
    diagonals = [[4 * i + (i + d) % 4 for i in range(4)] for d in range(4)]
    along = network_seconds(collective("all-to-all", rows), fabric)
    across = network_seconds(collective("all-to-all", diagonals), fabric)
    assert along == pytest.approx(S / W)
    assert across >= along


def test_two_devices_of_a_chip_need_no_network():
    chip = CHIPS["tpu7x"]
    fabric = torus(chip, np.repeat(lying((2, 2, 1)), 2, axis=0), (2, 2, 1))
    pairs = [[2 * i, 2 * i + 1] for i in range(4)]
    assert network_seconds(collective("all-gather", pairs), fabric) == 0
    assert network_seconds(collective("collective-permute", pairs=pairs), fabric) == 0
    # All eight: the two devices of the corner chip each get what the other three chips have, over two links.
    whole = network_seconds(collective("all-gather", [range(8)]), fabric)
    assert whole == pytest.approx(S * 6 / 8 / (2 * 100e9))


def test_coordinates_outside_the_slice_are_an_error():
    with pytest.raises(ValueError, match="do not lie"):
        torus(V5E, lying((4, 4)), (2, 4))


def test_hosts_of_eight():
    """1,024 H100s in 128 hosts: what leaves a host passes its eight adapters of 50 GB/s."""
    fabric = switched(CHIPS["h100"], np.arange(1024) // 8)
    hosts = over((128, 8), ("y",))
    assert network_seconds(collective("all-gather", hosts), fabric) == pytest.approx(S * 7 / 8 / 500e9)
    across = over((128, 8), ("x",))  # eight groups a host, each with one member there
    expected = 8 * S * 127 / 128 / 400e9
    assert network_seconds(collective("all-gather", across), fabric) == pytest.approx(expected)
    everything = network_seconds(collective("all-reduce", [range(1024)]), fabric)
    assert everything == pytest.approx(2 * S * 127 / 128 / 400e9)


GIB16 = 16 * 2**30


@pytest.mark.parametrize(
    ("kind", "factor", "measured", "switch_reduces", "share"),
    [
        ("all-reduce", 2 * 7 / 8, 480e9, True, 0.61),  # NVLS
        ("all-reduce", 2 * 7 / 8, 367e9, False, 0.82),  # ring
        ("all-gather", 7 / 8, 361e9, True, 0.80),
        ("reduce-scatter", 7 / 8, 363e9, True, 0.81),
    ],
)
def test_measured_bandwidths_stay_below_the_projection(kind, factor, measured, switch_reduces, share):
    """Eight H200s, 16 GiB (stas00/ml-engineering, network/README.md): a projection is a least time."""
    chip = replace(CHIPS["h200"], switch_reduces=switch_reduces)
    seconds = network_seconds(collective(kind, [range(8)], nbytes=GIB16), switched(chip, [0] * 8))
    projected = GIB16 / seconds * factor
    assert measured < projected
    assert measured / projected == pytest.approx(share, abs=0.01)


def test_the_projection_is_its_largest_part():
    gather = collective("all-gather", over((16, 16), ("y",)))
    found = project([gather], POD, 197e12, 819e9 / 2, "bfloat16")
    assert found.compute == pytest.approx(1.0) and found.memory == pytest.approx(0.5)
    assert found.network == pytest.approx(S * 15 / 16 / (2 * W))
    assert found.seconds == found.compute and found.limit == "compute"
    slow = project([gather], POD, 197e12, None, "float32", "highest")
    assert slow.compute == pytest.approx(6.0) and slow.memory is None


def test_what_is_not_published_is_left_out():
    found = project([], POD, 1e12, 819e9, "float64")
    assert found.compute is None and found.seconds == found.memory == pytest.approx(1.0)
    assert Projection(None, None, None).seconds is None and Projection(None, None, None).limit == ""


@pytest.mark.parametrize(
    ("flops", "main_bytes", "exposed"),
    [
        (0, 0, 1.0),  # one hop at the bandwidth of one link
        (0.4 * 197e12, 0, 0.6),
        (0.4 * 197e12, 0.7 * V5E.memory_bandwidth, 0.3),  # the longer of both parts
        (2 * 197e12, 0, 0.0),  # more work than communication hides all of it
    ],
)
def test_what_work_does_not_hide_is_exposed(flops, main_bytes, exposed):
    hop = collective("collective-permute", pairs=[(0, 1)], nbytes=W, trips=3)
    assert exposed_seconds(hop, SMALL, flops, main_bytes, "bfloat16") == pytest.approx(exposed)
