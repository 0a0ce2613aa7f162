# SPDX-License-Identifier: Apache-2.0
"""Names of topologies, the message for an unavailable one, and the GPU descriptions. No compiler is needed."""

import itertools
import os
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from unittest.mock import patch

import pytest

from meshmark.core import meshes
from meshmark.devices import targets, topologies
from meshmark.devices.chips import CHIPS
from meshmark.devices.topologies import NoLayout, Topology, TopologyError
from meshmark.levels.counters import DIRECTORY, identity, path_for
from meshmark.operations import cases
from meshmark.operations.selection import Selection
from meshmark.records.run_line import place_of
from tests.checkout import ROOT
from tests.waiting import PATIENCE

needs_libtpu = pytest.mark.skipif(find_spec("libtpu") is None, reason="needs libtpu (the extra `tpu`)")


@pytest.mark.parametrize(
    ("name", "chip", "platform", "shape", "slices", "num_devices"),
    [
        ("v5e:2x4", "v5e", "tpu", (2, 4), 1, 8),
        ("v5p:4x4x4", "v5p", "tpu", (4, 4, 4), 1, 64),
        ("v6e:16x16", "v6e", "tpu", (16, 16), 1, 256),
        ("tpu7x:2x2x1", "tpu7x", "tpu", (2, 2, 1), 1, 8),
        ("2xv5e:2x4", "v5e", "tpu", (2, 4), 2, 16),
        ("h100:8", "h100", "cuda", (8,), 1, 8),
        ("h100:1024", "h100", "cuda", (1024,), 1, 1024),
        ("b200:4", "b200", "cuda", (4,), 1, 4),
        (" H200:16 ", "h200", "cuda", (16,), 1, 16),
    ],
)
def test_parse(name, chip, platform, shape, slices, num_devices):
    made = topologies.parse_topology(name)
    assert made == Topology(name.strip().lower(), chip, platform, shape, slices)
    assert made.num_devices == num_devices
    assert ":" not in made.label


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nonsense", "use CHIP:SHAPE"),
        ("v5e", "use CHIP:SHAPE"),
        ("v5e:2x", "use CHIP:SHAPE"),
        ("", "use CHIP:SHAPE"),
        ("v9:2x2", "choose from v5e"),
        ("v4:2x2x1", "choose from v5e"),
        ("v5e:8", "two or three dimensions"),
        ("v5e:0x4", "1 to 16384"),
        ("v5e:999999x999999", "1 to 16384"),
        ("0xv5e:2x4", "1 to 16384"),
        ("h100:12", "use h100:8"),
        ("h100:2x8", "one number"),
        ("2xh100:8", "one number"),
    ],
)
def test_what_is_no_topology_is_one_clear_line(name, said):
    with pytest.raises(TopologyError) as caught:
        topologies.parse_topology(name)
    message = str(caught.value)
    assert said in message
    assert name in message
    assert "\n" not in message


def test_several_names_are_kept_once_and_in_order():
    found = topologies.parse_all(["v6e:2x4,v5e:2x4", "v5e:2x4", "h100:8, "])
    assert [t.name for t in found] == ["v6e:2x4", "v5e:2x4", "h100:8"]


@pytest.mark.parametrize(("name", "wheel"), [("v5e:2x4", "libtpu"), ("h100:8", "jax-cuda13-pjrt")])
def test_a_missing_compiler_is_named_with_its_extra(monkeypatch, name, wheel):
    def absent(distribution):
        raise metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(topologies.metadata, "version", absent)
    topologies.compiler.cache_clear()
    try:
        with pytest.raises(
            TopologyError, match=rf"{name} needs {wheel}, .*: pip install .*\[(tpu|gpu|cuda13)\]"
        ):
            topologies.prepare_environment(name)
    finally:
        topologies.compiler.cache_clear()


@pytest.mark.parametrize("chip", targets.GPUS)
def test_a_gpu_description_says_what_the_chip_table_says(chip):
    lines = dict(
        line.strip().split(": ", 1) for line in targets.spell_target_config(chip).splitlines() if ": " in line
    )
    assert float(lines["device_memory_size"]) == CHIPS[chip].memory_bytes
    assert float(lines["memory_bandwidth"]) == CHIPS[chip].memory_bandwidth
    peak = int(lines["core_count"]) * int(lines["fpus_per_core"]) * 2 * float(lines["clock_rate_ghz"]) * 1e9
    assert peak == pytest.approx(CHIPS[chip].flops["float32"], rel=1e-3)
    assert targets.spell_target_config(chip).count("{") == targets.spell_target_config(chip).count("}")


def test_every_topology_s_chip_has_a_memory():
    assert {*topologies.TPUS, *targets.GPUS} <= set(CHIPS)


@pytest.mark.parametrize(("shape", "across"), [((2, 4), (2, 1)), ((1, 8), (1, 2)), ((8,), (2,))])
def test_slices_are_spread_over_the_first_axis_that_they_divide(shape, across):
    assert topologies._across(shape, 2) == across


def test_no_axis_for_the_slices_is_no_layout():
    with pytest.raises(ValueError, match="3 slices"):
        topologies._across((2, 4), 3)


def test_many_devices_have_few_meshes_and_few_have_all():
    assert {m.shape for m in meshes.weighted(16) if len(m.shape) == 3 and not m.order} >= {
        (2, 2, 4),
        (1, 4, 4),
    }
    many = [m for m in meshes.weighted(1024) if m.size == 1024]
    assert {m.label for m in many} >= {
        "1024",
        "32x32",
        "2x512",
        "512x2",
        "8x128",
        "8x8x16",
        "16x8x8",
        "1x1024",
    }
    assert len(many) <= 20
    assert min(meshes.weighted(1024), key=meshes.weighted(1024).get).label == "32x32"


def test_counters_belong_to_the_compiler_and_the_topology():
    facts = {
        "versions": {"jax": "0.12.0.1"},
        "topology": "v5e:2x4",
        "layout": "physical",
        "compiler": {"libtpu": "0.0.52"},
    }
    assert place_of(facts) == "v5e:2x4-physical"
    assert path_for(*identity(facts)).name == "0.12.0.1-libtpu0.0.52-v5e.2x4-physical.tsv"
    assert (
        path_for(*identity({"versions": {"jax": "1"}, "backend": "cpu", "num_devices": 8})).name
        == "1-cpu-8.tsv"
    )


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*-v5e.2x4.tsv")), ids=lambda p: p.stem)
def test_committed_counters_of_a_topology_are_of_cases_that_exist(path):
    committed = {line.split("\t")[0] for line in path.read_text().splitlines()}
    assert committed <= {case.id for case in cases.cases(Selection(turning=False), 8)}
    current = cases.cases(Selection(), 8)
    whole = {c.id for c in current if c.mesh.size == 8 and c.mode in ("auto", "explicit", "manual")}
    assert len(committed & whole) > 0.9 * len(whole)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--topology", "nonsense"], "'nonsense' is not a topology"),
        (
            ["--topology", "v5e:2x4", "--layout", "round"],
            "unknown --layout 'round': choose from plain, physical",
        ),
        (["--layout", "physical"], "--layout takes a topology"),
    ],
)
def test_wrong_options_are_usage_errors(options, said, capfd, monkeypatch):
    monkeypatch.chdir(ROOT)
    with patch.dict(os.environ):  # which a run prepares for its workers
        code = pytest.main(["conformance", "-q", "-p", "no:cacheprovider", *options])
    assert code == pytest.ExitCode.USAGE_ERROR
    told = capfd.readouterr().err
    assert said in told and "Traceback" not in told


# What follows needs libtpu. ----------------------------------------------------------------------------------


@needs_libtpu
def test_devices_in_both_layouts(compiling):
    topologies.prepare_environment("v5e:2x2")
    plain = topologies.devices("v5e:2x2")
    physical = topologies.devices("v5e:2x2", "physical", (4,))
    assert set(plain) == set(physical)
    assert _longest_hop(plain) == 2
    assert _longest_hop(physical) == 1  # a ring on the chip grid


def _longest_hop(devices):
    """The most links between neighbours of a one-axis mesh."""
    return max(
        sum(abs(i - j) for i, j in zip(a.coords, b.coords, strict=True))
        for a, b in itertools.pairwise(devices)
    )


@needs_libtpu
def test_several_slices_are_joined_by_their_first_axis(compiling):
    topologies.prepare_environment("2xv5e:2x2")
    found = topologies.devices("2xv5e:2x2", "physical", (2, 4))
    assert [d.slice_index for d in found] == [0] * 4 + [1] * 4


@needs_libtpu
def test_a_mesh_without_physical_layout_is_told(compiling):
    topologies.prepare_environment("v5p:4x4x4")
    with pytest.raises(NoLayout, match="8x8 on v5p:4x4x4"):
        topologies.devices("v5p:4x4x4", "physical", (8, 8))


@needs_libtpu
def test_a_topology_that_libtpu_does_not_know(compiling):
    topologies.prepare_environment("v5e:3x3")
    with pytest.raises(TopologyError, match=r"v5e:3x3: libtpu [\d.]+ does not know it"):
        topologies.devices("v5e:3x3")


@needs_libtpu
def test_loading_libtpu_is_silent_and_quick():
    program = (
        "import time; from meshmark.devices import topologies as t; t.prepare_environment('v5e:2x4');"
        "import jax; s = time.time(); t.devices('v5e:2x4'); print(time.time() - s)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr == ""
    assert float(done.stdout) < 5  # a look-up of the metadata server would take longer
