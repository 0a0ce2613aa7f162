# SPDX-License-Identifier: Apache-2.0
"""The short reader of groups agrees with the suite's reader, in each syntax of HLO."""

import pytest

from meshmark.core import hlo
from meshmark.judge.repro.members import members

SYNTAXES = {
    "explicit": "all-reduce(%a), channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add",
    "iota": "all-reduce(%a), channel_id=1, replica_groups=[4,2]<=[8], use_global_device_ids=true, to_apply=%add",
    "transposed iota": "all-reduce(%a), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%add",
    "everybody": "all-reduce(%a), channel_id=1, replica_groups={}, to_apply=%add",
    "alone": "all-reduce(%a), channel_id=1, replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=%add",
    "an axis": "all-reduce(%a), channel_id=1, replica_groups=mesh['x'=2,'y'=4] {'y'}, to_apply=%add",
    "axes": "all-reduce(%a), channel_id=1, replica_groups=mesh['x'=2,'y'=2,'z'=2] {'z','x'}, to_apply=%add",
    "pairs": "collective-permute(%a), channel_id=1, source_target_pairs={{0,1},{1,0},{2,2}}",
}


@pytest.mark.parametrize("name", SYNTAXES)
def test_both_readers_agree(name):
    line = f"  %c = f32[4]{{0}} {SYNTAXES[name]}"
    entry = "ENTRY %main (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)"
    [found] = hlo.collectives(f"HloModule m\n\n{entry}\n  ROOT {line.strip()}\n}}\n", 8)
    groups = {p for p in found.pairs} or {tuple(sorted(g)) for g in found.groups}
    assert members(line, 8) == {tuple(g) for g in groups if len(set(g)) > 1}


@pytest.mark.parametrize(
    "groups", ["mesh['x'=2,'y'=4], device_ids=([8]) {'y'}", "mesh['x'=8] {'x':(2)4}", "somewhere"]
)
def test_what_it_can_not_read_is_refused(groups):
    with pytest.raises(ValueError, match="unknown groups"):
        members(f"all-reduce(%a), replica_groups={groups}, to_apply=%add", 8)


def test_the_transposed_groups_are_those_of_the_other_axis():
    assert members(SYNTAXES["transposed iota"], 8) == {(0, 2, 4, 6), (1, 3, 5, 7)}
