# SPDX-License-Identifier: Apache-2.0
"""The short readers of groups and bytes agree with the suite's reader, in each syntax of HLO."""

import pytest

from meshmark.core import hlo
from meshmark.judge.repro.members import members, payload, wire

SYNTAXES = {
    "explicit": "all-reduce(%a), channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add",
    "iota": "all-reduce(%a), channel_id=1, replica_groups=[4,2]<=[8], use_global_device_ids=true, to_apply=%add",
    "transposed iota": "all-reduce(%a), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%add",
    "everybody": "all-reduce(%a), channel_id=1, replica_groups={}, to_apply=%add",
    "alone": "all-reduce(%a), channel_id=1, replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=%add",
    "an axis": "all-reduce(%a), channel_id=1, replica_groups=mesh['x'=2,'y'=4] {'y'}, to_apply=%add",
    "axes": "all-reduce(%a), channel_id=1, replica_groups=mesh['x'=2,'y'=2,'z'=2] {'z','x'}, to_apply=%add",
    "a transposed mesh": "all-reduce(%a), replica_groups=mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y'}",
    "a mesh of listed devices": "all-reduce(%a), replica_groups=mesh['x'=2,'y'=2], device_ids=(3,1,2,0) {'x'}",
    "a mesh in order": "all-reduce(%a), replica_groups=mesh['x'=2,'y'=4], device_ids=([8]) {'x'}, to_apply=%add",
    "pairs": "collective-permute(%a), channel_id=1, source_target_pairs={{0,1},{1,0},{2,2}}",
}


@pytest.mark.parametrize("name", SYNTAXES)
def test_both_readers_agree(name):
    line = f"  %c = f32[4]{{0}} {SYNTAXES[name]}"
    entry = "ENTRY %main (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)"
    [found] = hlo.collectives(f"HloModule m\n\n{entry}\n  ROOT {line.strip()}\n}}\n", 8)
    groups = {p for p in found.pairs} or {tuple(sorted(g)) for g in found.groups}
    assert members(line, 8) == {tuple(g) for g in groups if len(set(g)) > 1}


PAYLOADS = {
    "reduced": ("f32[2,64]{1,0}", "all-reduce", "replica_groups=[2,4]<=[8], to_apply=%add"),
    "reduced at once": (
        "(f32[64]{0}, bf16[3]{0}, /*index=2*/pred[5]{0})",
        "all-reduce",
        "replica_groups={}, to_apply=%add",
    ),
    "reduced, asynchronously": ("f32[64]{0}", "all-reduce-start", "replica_groups={}, to_apply=%add"),
    "scattered": (
        "bf16[8]{0}",
        "reduce-scatter",
        "replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={0}, to_apply=%add",
    ),
    "gathered": ("s4[8,3]{1,0}", "all-gather", "replica_groups={{0,1},{2,3}}, dimensions={0}"),
    "exchanged": ("(f8e4m3fn[8]{0}, f8e4m3fn[8]{0})", "all-to-all", "replica_groups={{0,1}}"),
    "moved": ("c64[]", "collective-permute", "source_target_pairs={{0,1},{2,2}}"),
    "kept": ("u32[7]{0}", "collective-permute", "source_target_pairs={{0,0},{1,1}}"),
    "odd bits": ("u4[3]{0}", "all-gather", "replica_groups={}, dimensions={0}"),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_both_readers_count_the_same_bytes(name):
    shape, opcode, rest = PAYLOADS[name]
    line = f"%c = {shape} {opcode}(%a), channel_id=1, {rest}"
    entry = "ENTRY %main (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)"
    [found] = hlo.collectives(f"HloModule m\n\n{entry}\n  ROOT {line}\n}}\n", 8)
    given = line.removeprefix("%c = ")
    assert payload(given, found.kind, 8, 8) == found.nbytes
    assert wire(given, found.kind, 8) == hlo.wire_bytes(found)


def test_a_narrow_sum_in_a_wider_type_counts_as_narrow():
    line = "f32[64]{0} all-reduce(%a), replica_groups={}, to_apply=%add"
    assert payload(line, "all-reduce", 8, 2) == 128
    assert payload(line.replace("all-reduce", "all-to-all"), "all-to-all", 8, 2) == 256


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("(f32[4]{0}, f32[32]{0})", "all-gather"), ("((f32[4]{0}), f32[4]{0})", "all-reduce")],
)
def test_an_asynchronous_start_is_refused(shape, kind):
    with pytest.raises(ValueError, match="asynchronous"):
        payload(f"{shape} {kind}-start(%a), replica_groups={{}}", kind, 8, 8)


@pytest.mark.parametrize("groups", ["mesh['x'=8] {'x':(2)4}", "somewhere"])
def test_what_it_can_not_read_is_refused(groups):
    with pytest.raises(ValueError, match="unknown groups"):
        members(f"all-reduce(%a), replica_groups={groups}, to_apply=%add", 8)


def test_the_transposed_groups_are_those_of_the_other_axis():
    assert members(SYNTAXES["transposed iota"], 8) == {(0, 2, 4, 6), (1, 3, 5, 7)}
