# SPDX-License-Identifier: Apache-2.0
"""The published figures are consistent, and so are the claims about a device."""

from __future__ import annotations

import pytest

from meshmark.devices.chips import CHIPS, chip_of, peak_flops

ARITHMETICS = {"float64", "float32", "tf32", "bfloat16", "float16", "float8", "int8"}


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda c: c.name)
def test_every_figure_has_a_source_and_a_sane_size(chip):
    assert {"flops", "memory", "links"} <= set(chip.sources)
    assert chip.host_bandwidth is None or "host_bandwidth" in chip.sources
    assert set(chip.flops) <= ARITHMETICS
    assert 1e13 < min(chip.flops.values()) <= max(chip.flops.values()) < 1e16
    assert 10e9 < chip.memory_bytes < 1e12 and 0.5e12 < chip.memory_bandwidth < 10e12
    assert 25e9 <= chip.link_bandwidth <= 100e9 and chip.devices_per_chip in (1, 2)
    if chip.network == "torus":
        assert chip.links == 2 * chip.dimensions and not chip.domain
    else:
        assert chip.domain == 8 and not chip.dimensions


def test_narrower_arithmetic_is_never_slower():
    for chip in CHIPS.values():
        f = chip.flops
        assert f["bfloat16"] <= f.get("float8", f["bfloat16"])
        assert f["bfloat16"] <= f.get("int8", f["bfloat16"])
        assert f.get("float32", 0) <= f.get("tf32", f["bfloat16"]) <= f["bfloat16"]


@pytest.mark.parametrize(
    ("name", "bidirectional"),
    [("v5e", 400e9), ("v5p", 1200e9), ("v6e", 800e9), ("tpu7x", 1200e9), ("h100", 900e9), ("b200", 1800e9)],
)
def test_links_add_up_to_the_published_bandwidth_of_a_chip(name, bidirectional):
    chip = CHIPS[name]
    assert 2 * chip.links * chip.link_bandwidth == bidirectional


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v4", "v4"),
        ("TPU v5 lite", "v5e"),
        ("TPU v5e", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v5p", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("TPU7x", "tpu7x"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
    ],
)
def test_device_kinds(kind, name):
    assert chip_of(kind) is CHIPS[name]


@pytest.mark.parametrize("kind", ["cpu", "", "TPU v3", "TPU v5x", "NVIDIA H100 PCIe", "NVIDIA H200 NVL"])
def test_other_kinds_are_no_chip(kind):
    assert chip_of(kind) is None


def test_no_device_kind_is_two_chips():
    kinds = [kind for chip in CHIPS.values() for kind in chip.device_kinds]
    assert len(kinds) == len(set(kinds))


@pytest.mark.parametrize(
    ("name", "dtype", "precision", "tera"),
    [
        ("v5e", "bfloat16", "highest", 197),
        ("v5e", "float32", "default", 197),  # one bfloat16 pass
        ("v5e", "float32", "high", 197 / 3),
        ("v5e", "float32", "highest", 197 / 6),
        ("v5e", "float32", "", 197),
        ("v5p", "bfloat16", "default", 459),  # both cores of a megacore chip are one device
        ("tpu7x", "bfloat16", "default", 2307 / 2),  # two devices a chip
        ("h100", "float32", "default", 494.7),
        ("h100", "float32", "high", 494.7),
        ("h100", "float32", "highest", 66.9),
        ("h200", "bfloat16", "default", 989.4),
        ("h100", "float8_e4m3fn", "default", 1978.9),
        ("a100", "float64", "default", 19.5),
        ("b200", "float16", "highest", 2250),
    ],
)
def test_peak_of_a_device(name, dtype, precision, tera):
    assert peak_flops(CHIPS[name], dtype, precision) == pytest.approx(tera * 1e12)


@pytest.mark.parametrize(
    ("name", "dtype", "precision"),
    [
        ("v5e", "float64", "highest"),
        ("v5e", "float16", "default"),
        ("tpu7x", "int8", "default"),
        ("a100", "float8_e5m2", "default"),
        ("h100", "int32", "default"),
        ("h100", "complex64", "default"),
        ("h100", "float32", "BF16_BF16_F32"),
    ],
)
def test_no_peak_is_claimed_where_none_is_published(name, dtype, precision):
    assert peak_flops(CHIPS[name], dtype, precision) is None


def test_chips_cant_be_changed():
    with pytest.raises(TypeError):
        CHIPS["v5e"].flops["bfloat16"] = 1.0
