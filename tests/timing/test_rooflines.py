# SPDX-License-Identifier: Apache-2.0
"""Shares of a peak: the links that a group can use, and the ceiling of a roofline that binds."""

import numpy as np
import pytest

from meshmark.operations import cases
from meshmark.timing import figures, rooflines, timing_tables
from meshmark.timing.rooflines import Rooflines

V5E = {"device_kind": "TPU v5 lite", "virtual": False}


def torus(*shape, first=0):
    """The devices of a slice of this shape, in order; z is 0 on a chip of two dimensions, as JAX says it."""
    where = [tuple(int(n) for n in c) for c in np.ndindex(*shape)]
    return [
        {"id": i, "process": i // 4, "coords": [n + first for n in c] + [0] * (3 - len(c))}
        for i, c in enumerate(where)
    ]


def hosts(number, each):
    return [{"id": i, "process": i // each, "coords": []} for i in range(number)]


def timed(case, seconds=1e-3):
    """A timing record of a case of the table."""
    operation, variant, mode, mesh, dtype, _ = case.split("/")
    found = cases.find(case, 256)
    cost = found.plan.cost
    return {
        "case": case, "operation": operation, "variant": variant, "mode": mode, "mesh": mesh, "dtype": dtype,
        "samples_s": [seconds] * 9, "devices": found.mesh.size,
        "cost": {"flops": cost.flops, "nbytes": cost.nbytes, "factor": cost.factor},
    }  # fmt: skip


def peak_of(record, devices, kind="TPU v5 lite"):
    """(bus bandwidth that the links of the record's group allow, the name of the links)."""
    found = figures.figures_of(record, Rooflines(kind, False, (), devices))
    return found["busbw"] / found["share"], found["share_of"]


def test_a_group_along_one_axis_has_the_links_of_that_axis():
    """On v5e 2x4 a link carries 50 GB/s one way. A pair along x has one link; a row of four, without wraparound, is cut
    by one link at its end: a ring of four all-reduces S in 2 S (3/4) / 50 GB/s at best."""
    devices = torus(2, 4)
    pair = timed("psum/axes=x/manual/2x4/float32/1MiB")
    assert peak_of(pair, devices)[0] == pytest.approx(50e9)
    row = timed("psum/axes=y/manual/2x4/float32/1MiB")
    assert peak_of(row, devices)[0] == pytest.approx(50e9)
    both = timed("psum/axes=x+y/manual/2x4/float32/1MiB")
    peak, name = peak_of(both, devices)
    assert peak == pytest.approx(100e9) and name == "v5e links out of a corner of 1x1 chips, published"
    shifted = [
        d | {"coords": [c + 4 for c in d["coords"][:2]] + [0]} for d in devices
    ]  # part of a larger slice
    assert peak_of(both, shifted)[0] == pytest.approx(100e9)


def test_wraparound_doubles_the_links_of_an_axis():
    peak, _ = peak_of(timed("psum/axes=x/manual/16x16/float32/1MiB"), torus(16, 16))
    assert peak == pytest.approx(100e9)


def test_the_same_mesh_has_other_links_on_another_slice():
    """Groups of four along x of a 4x2 mesh: on a slice of 4x2 each has a column of its own; on one of 2x4 two groups
    share both columns, whose middle has 2 links for 2 groups that send S/2 twice."""
    record = timed("psum/axes=x/manual/4x2/float32/1MiB")
    assert peak_of(record, torus(4, 2))[0] == pytest.approx(50e9)
    peak, name = peak_of(record, torus(2, 4))
    assert peak == pytest.approx(75e9) and name == (
        "v5e links out of the first 2 of 4 chips along axis 1, published"
    )


def test_beyond_a_host_the_network_adapters_bind():
    """Eight H100 have 18 links of 25 GB/s to a switch that adds up: an all-reduce sends S once. Sixteen are two hosts
    with 8 adapters of 50 GB/s each way."""
    kind = "NVIDIA H100 80GB HBM3"
    gather = timed("all_gather/axes=x,dim=0,tiled/manual/8/float32/1MiB")
    assert peak_of(gather, hosts(8, 8), kind)[0] == pytest.approx(450e9)
    add = timed("psum/axes=x/manual/8/float32/1MiB")
    assert peak_of(add, hosts(8, 8), kind)[0] == pytest.approx(450e9 * 7 / 4)
    wide = timed("psum/axes=x/manual/16/float32/1MiB")
    peak, name = peak_of(wide, hosts(16, 1), kind)
    assert peak == pytest.approx(400e9 * 2 * 15 / 16) and "out of one host" in name
    across = timed("all_gather/axes=x,dim=0,tiled/manual/2x8/float32/1MiB")
    assert peak_of(across, hosts(16, 8), kind)[0] == pytest.approx(50e9)
    inside = timed("all_gather/axes=y,dim=0,tiled/manual/2x8/float32/1MiB")
    assert peak_of(inside, hosts(16, 1), kind)[0] == pytest.approx(
        500e9
    )  # 450 inside, and 50 that it need not take


def test_without_places_all_links_are_named_so():
    record = timed("psum/axes=x/manual/8/float32/1MiB")
    assert peak_of(record, ()) == (pytest.approx(200e9), "v5e, all 4 links, published")
    assert peak_of(record, [{"id": i, "process": 0, "coords": []} for i in range(8)])[1].startswith(
        "v5e, all 4"
    )
    two_slices = [*torus(2, 2), *torus(2, 2)]
    assert peak_of(record, two_slices)[1].startswith("v5e, all 4")
    assert figures.figures_of(record, Rooflines("cpu", True))["share"] is None


def layer(flops, moved, devices=8, seconds=1e-3, dtype="bfloat16", case="mlp/model=x/manual/8/bfloat16/n64"):
    record = timed(case, seconds) | {"dtype": dtype, "precision": "", "devices": devices}
    return record | {
        "cost": {"flops": flops, "nbytes": 0, "factor": 0.0},
        "argument_bytes": moved - moved // 4,
        "output_bytes": moved // 4,
    }


def test_the_ceiling_that_binds_is_the_longest_part():
    """v5e: 197 TFLOP/s, 819 GB/s; the ridge lies at 240 FLOP/B."""
    v5e = Rooflines("TPU v5 lite")
    low = figures.figures_of(layer(8 * 10**8, 10**8), v5e)  # 1 FLOP/B
    assert low["intensity"] == 1 and low["moved_bytes"] == 10**8
    assert low["bound_by"] == "memory" and low["share_of"] == "v5e memory, published"
    assert low["share"] == pytest.approx(1e8 / 819e9 / 1e-3)
    high = figures.figures_of(layer(8 * 10**11, 10**8), v5e)
    assert high["intensity"] == 1000 and high["bound_by"] == "compute"
    assert high["share"] == pytest.approx(1e11 / 197e12 / 1e-3)
    ridge = [one.seconds for one in v5e.roofline(layer(8 * 197 * 10**9, 819 * 10**6))]
    assert ridge == pytest.approx([1e-3, 1e-3])


def test_a_layer_that_mostly_talks_is_bound_by_its_links():
    talks = Rooflines("TPU v5 lite", False, (), torus(2, 4))
    found = figures.figures_of(layer(10**6, 10**3), talks)
    assert found["bound_by"] == "network" and "links" in found["share_of"]


def test_measured_ceilings_take_the_place_of_peaks_and_are_named_so():
    ceilings = [
        {"name": "copy bandwidth", "dtype": "float32", "value": 8e10, "unit": "B/s", "devices": 8},
        {"name": "largest matmul", "dtype": "bfloat16", "value": 8e12, "unit": "FLOP/s", "devices": 8},
    ]
    bound = figures.figures_of(layer(8 * 10**6, 10**6, 2), Rooflines("new", False, ceilings))
    assert (bound["bound_by"], bound["share_of"]) == ("memory", "copy bandwidth measured here")
    assert bound["share"] == pytest.approx(1e6 / 1e10 / 1e-3)
    virtual = figures.figures_of(layer(8 * 10**6, 10**6, 2), Rooflines("cpu", True, ceilings))
    assert virtual["share"] == pytest.approx(2e6 / 8e10 / 1e-3)  # two devices have all cores
    assert figures.figures_of(layer(8 * 10**6, 10**6), Rooflines("new"))["share"] is None
    assert figures.figures_of(layer(8 * 10**6, 10**6), Rooflines("new"))["intensity"] == 1


def test_a_program_without_flops_has_no_intensity_and_a_collective_moves_no_memory():
    assert rooflines.intensity(layer(0, 10**6)) is None
    found = figures.figures_of(
        timed("psum/axes=x/manual/8/float32/1MiB") | {"argument_bytes": 1, "output_bytes": 1}
    )
    assert found["intensity"] is None and found["moved_bytes"] is None


def test_the_rows_of_a_file_say_what_binds():
    from meshmark.records.reading import Records

    facts = V5E | {"devices": torus(2, 4)}
    extra = {"cadence": "isolated", "process": 0, "verdict": "pass", "reason": "", "verified": True}
    records = Records([{"facts": facts}], {}, [layer(8 * 10**8, 10**8) | extra], [], [])
    (row,) = timing_tables.timing_rows(records)
    assert row["bound_by"] == "memory" and row["intensity"] == 1
