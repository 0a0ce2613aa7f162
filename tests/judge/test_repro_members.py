# SPDX-License-Identifier: Apache-2.0
"""The short readers of groups and bytes agree with the suite's reader, in each syntax of HLO."""

from collections import Counter

import pytest

from meshmark.core import hlo
from meshmark.judge.repro.members import executed, members, payload, wire

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
    "part of an axis": "all-reduce(%a), channel_id=1, replica_groups=mesh['x'=8] {'x':(2)4}, to_apply=%add",
    "the first part": "all-reduce(%a), channel_id=1, replica_groups=mesh['x'=8] {'x':(1)2}, to_apply=%add",
    "two parts": "all-reduce(%a), channel_id=1, replica_groups=mesh['x'=8] {'x':(1)2,'x':(4)2}, to_apply=%add",
    "a part and an axis": "all-reduce(%a), replica_groups=mesh['x'=2,'y'=4] {'y':(2)2,'x'}, to_apply=%add",
    "a part of a transposed mesh": "all-reduce(%a), replica_groups=mesh['x'=8], device_ids=([4,2]T(1,0)) {'x':(2)2}",
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
    "gathered, asynchronously": (
        "(f32[4]{0}, f32[32]{0:T(8,128)S(1)})",
        "all-gather-start",
        "replica_groups={}, dimensions={0}",
    ),
    "gathered at once, asynchronously": (
        "((f32[4,2]{1,0}, s8[4]{0}), (f32[32,2]{1,0}, s8[32]{0}))",
        "all-gather-start",
        "replica_groups={}, dimensions={0}",
    ),
    "moved, asynchronously": (
        "(bf16[4,8]{1,0}, bf16[4,8]{1,0}, u32[], u32[])",
        "collective-permute-start",
        "source_target_pairs={{0,1},{1,0}}",
    ),
    "reduced at once, asynchronously": (
        "((f32[64]{0}, f32[3]{0}), (f32[64]{0}, f32[3]{0}))",
        "all-reduce-start",
        "replica_groups={}, to_apply=%add",
    ),
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


@pytest.mark.parametrize("groups", ["mesh[]", "somewhere"])
def test_what_it_can_not_read_is_refused(groups):
    with pytest.raises(ValueError, match="unknown groups"):
        members(f"all-reduce(%a), replica_groups={groups}, to_apply=%add", 8)


LOOPS = """HloModule m, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  ROOT %s = f32[] add(%a, %a)
}

%test (p.2: f32[4]) -> pred[] {
  %p.2 = f32[4]{0} parameter(0)
  %m = f32[4]{0} collective-permute(%p.2), source_target_pairs={{0,1}}
  ROOT %t = pred[] constant(true)
}

%inner (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %r = f32[4]{0} all-reduce(%p), replica_groups={}, to_apply=%add
}

%outer (p.1: f32[4]) -> f32[4] {
  %p.1 = f32[4]{0} parameter(0)
  %w = f32[4]{0} while(%p.1), condition=%test, body=%inner, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %r.1 = f32[4]{0} all-gather(%w), replica_groups={{0},{1}}, dimensions={0}
}

%never (p.3: f32[4]) -> f32[4] {
  %p.3 = f32[4]{0} parameter(0)
  ROOT %n = f32[4]{0} all-to-all(%p.3), replica_groups={}
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %l = f32[4]{0} while(%x), condition=%test, body=%outer, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %e = f32[4]{0} all-reduce(%l), replica_groups={}, to_apply=%add
}
"""


def test_collectives_of_loops_count_as_often_as_they_run():
    pattern = r" = .* (all-reduce|all-gather|all-to-all|collective-permute)\("
    counted = Counter(executed(pattern, LOOPS))
    assert counted == {"all-reduce": 3 * 5 + 1, "all-gather": 5, "collective-permute": 4 * 5 + 6}
    trips = Counter()
    for found in hlo.collectives(LOOPS):
        trips[found.kind] += found.trips
    assert counted == {
        k: n for k, n in trips.items() if k != "all-to-all"
    }  # in a computation that nothing calls


def test_a_loop_of_unknown_length_is_refused():
    with pytest.raises(ValueError, match="unknown length"):
        executed("all-reduce", LOOPS.replace("known_trip_count", "other"))


def test_the_transposed_groups_are_those_of_the_other_axis():
    assert members(SYNTAXES["transposed iota"], 8) == {(0, 2, 4, 6), (1, 3, 5, 7)}
