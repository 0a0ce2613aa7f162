# SPDX-License-Identifier: Apache-2.0
"""Faults planted into compiled text: a list of edits of programs that libtpu 0.0.50.1 compiled for v5e:2x4.

Each is a possible error of a compiler: wrong groups, a halo off by one, a lost mask, a result that is read too early.
The programs are in texts/, without metadata and backend configurations.
"""

from pathlib import Path
from typing import NamedTuple

TEXTS = Path(__file__).parent / "texts"

PROGRAMS = {
    "psum": "psum/axes=y/auto/2x4/float32/4KiB",
    "all_gather": "all_gather/axes=y,dim=1/explicit/2x4/float32/4KiB",
    "reduce_scatter": "matmul/rows=y,inner=x,cols=z,scatter,check=exact/manual/2x2x2/float32/n64",
    "ppermute": "ppermute/axes=y,perm=ring/manual/2x4/float32/4KiB",
    "ppermute_auto": "ppermute/axes=x+y,perm=cycles/auto/2x4/float32/64B",
    "all_to_all": "all_to_all/axes=x,split=0,concat=0,tiled/manual/8/float32/4KiB",
    "all_to_all_int8": "all_to_all/axes=x+y,split=1,concat=0,tiled/manual/2x4/int8/4KiB",
    "shift_set": "shift_set/of=x.y,dim=0/auto/2x4/float32/4KiB",
    "shift_set_manual": "shift_set/of=z.-,dim=0/manual/2x2x2/float32/4KiB",
    "cumsum": "cumsum/of=y.-,dim=0/manual/2x4/float32/4KiB",
    "strided_set": "strided_set/of=x.y,dim=0,step=2/explicit/4x2/float32/4KiB",
    "sort": "sort/of=x.-,dim=0/auto/8/float32/4KiB",
    "data_parallel": "data_parallel/batch=x+y/manual/2x4/float32/n8",
    "embedding": "embedding/batch=x,vocabulary=y/manual-novma/2x4/float32/n64",
    "attention": "attention/batch=x,sequence=y/auto/2x4/float32/n32",
    "solve": "algebra/of=y.x,function=solve/auto/2x4/float32/4KiB",
    "any": "reduce/of=y.x,dim=1,function=any/explicit/2x4/float32/4KiB",
}
"""The case of each stored program."""


class Planted(NamedTuple):
    """One edit: in this program, `old`, which occurs at so many places, becomes `new`."""

    program: str
    what: str
    old: str
    new: str
    places: int = 1


Y = "mesh['x'=2,'y'=4] {'y'}"
BLOCK = "f32[1,1,8,128]{3,2,1,0:T(8,128)}"
SQUARE = "f32[32,32]{1,0:T(8,128)}"
SUM = f"%all-reduce = {BLOCK} all-reduce(%param)"
ONCE = (
    f"%once = {BLOCK} all-reduce(%param), channel_id=9, replica_groups={Y}, use_global_device_ids=true,"
    " to_apply=%region_0.0.clone"
)
BFLOAT16 = f"%half = {BLOCK.replace('f32', 'bf16')} convert(%param)\n  %whole = {BLOCK} convert(%half)"
PENDING = "get-tuple-element(%collective-permute-start), index"
COMPARED = "compare(%constant.96, %multiply.5), direction"
BUFFER = "%copy-done.2 = f32[8]{0:T(128)S(1)}"
SWAPPED = "{{1,0,2,3,4,5,6,7}}"
ALLOCATED = 'custom-call(), custom_call_target="AllocateBuffer"'
UNDER_WAY = "%get-tuple-element.20"
STEPS = "%constant.34.clone.1 = s32[]"
SIXTEEN = "%constant.9.clone.1 = s32[]{:T(128)} constant"
RING = "{{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}"
HALO = "{{4,0},{5,1},{6,2},{7,3}}"
SYSTEMS = "%constant.65 = u32[8]{0:T(128)} constant"
LOWER = 'custom-call(%get-tuple-element.17), custom_call_target="'
DONE = (
    "%all-gather.17 = f32[1,2,32,16]{3,1,0,2:T(2,128)} all-gather(%param_0.57), channel_id=4, replica_groups="
)

FAULTS = [
    Planted("psum", "sums over the other axis", Y, "mesh['x'=2,'y'=4] {'x'}"),
    Planted("psum", "sums over all devices", Y, "mesh['x'=2,'y'=4] {'x','y'}"),
    Planted("psum", "sums over half of the axis", Y, "mesh['x'=2,'y'=4] {'y':(2)2}"),
    Planted("psum", "sums over the other half of the axis", Y, "mesh['x'=2,'y'=4] {'y':(1)2}"),
    Planted("psum", "groups of one device each", Y, "{{0},{1},{2},{3},{4},{5},{6},{7}}"),
    Planted("psum", "two devices in each other's group", Y, "{{0,1,2,7},{4,5,6,3}}"),
    Planted("psum", "a device in no group", Y, "{{0,1,2,3},{4,5,6}}"),
    Planted("psum", "the mesh is transposed", Y, "mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y'}"),
    Planted("psum", "the maximum for the sum", "add(%reduce_sum.8", "maximum(%reduce_sum.8"),
    Planted("psum", "the product for the sum", "add(%reduce_sum.8", "multiply(%reduce_sum.8"),
    Planted(
        "psum", "one operand twice", "add(%reduce_sum.8, %reduce_sum.9)", "add(%reduce_sum.9, %reduce_sum.9)"
    ),
    Planted("psum", "no all-reduce", f"ROOT {SUM}", f"ROOT %lost = {BLOCK} copy(%param)\n  {SUM}"),
    Planted("psum", "summed twice", f"ROOT {SUM}", f"{ONCE}\n  ROOT {SUM.replace('(%param)', '(%once)')}"),
    Planted(
        "psum",
        "rounded on the way",
        f"ROOT {SUM}",
        f"{BFLOAT16}\n  ROOT {SUM.replace('(%param)', '(%whole)')}",
    ),
    Planted("all_gather", "gathers over the other axis", "[2,4]<=[8]", "[2,4]<=[4,2]T(1,0)"),
    Planted("all_gather", "two blocks in the wrong order", "[2,4]<=[8]", "{{1,0,2,3},{4,5,6,7}}"),
    Planted("all_gather", "blocks of the other row", "[2,4]<=[8]", "{{0,1,6,7},{4,5,2,3}}"),
    Planted(
        "all_gather",
        "read as another layout",
        "{0,3,2,1:T(4,128)S(1)} bitcast",
        "{0,3,1,2:T(4,128)S(1)} bitcast",
    ),
    Planted("reduce_scatter", "over another axis", "{'x'}", "{'y'}"),
    Planted("reduce_scatter", "over a third axis", "{'x'}", "{'z'}"),
    Planted(
        "reduce_scatter",
        "parts in the wrong order",
        "mesh['x'=2,'y'=2,'z'=2] {'x'}",
        "{{4,0},{5,1},{6,2},{7,3}}",
    ),
    Planted(
        "reduce_scatter", "the minimum for the sum", "add(%reduce_scatter.0", "minimum(%reduce_scatter.0"
    ),
    Planted(
        "reduce_scatter",
        "read before the done",
        "copy-done(%copy-start)",
        "get-tuple-element(%copy-start), index=0",
    ),
    Planted(
        "ppermute", "the ring turns backwards", RING, "{{1,0},{2,1},{3,2},{0,3},{5,4},{6,5},{7,6},{4,7}}"
    ),
    Planted("ppermute", "a pair is lost", RING, RING.replace("{3,0},", "")),
    Planted("ppermute", "two send to one", RING, RING.replace("{3,0}", "{3,1}")),
    Planted("ppermute", "over the other axis", RING, "{{0,4},{1,5},{2,6},{3,7},{4,0},{5,1},{6,2},{7,3}}"),
    Planted("ppermute", "each to itself", RING, "{{0,0},{1,1},{2,2},{3,3},{4,4},{5,5},{6,6},{7,7}}"),
    Planted("ppermute", "one place too far", RING, "{{0,2},{1,3},{2,0},{3,1},{4,6},{5,7},{6,4},{7,5}}"),
    Planted(
        "ppermute",
        "one ring over all devices",
        RING,
        RING.replace("{3,0}", "{3,4}").replace("{7,4}", "{7,0}"),
    ),
    Planted(
        "ppermute",
        "read before the done",
        "collective-permute-done(%collective-permute-start)",
        f"{PENDING}=1",
    ),
    Planted(
        "ppermute",
        "the operand is read",
        "collective-permute-done(%collective-permute-start)",
        f"{PENDING}=0",
    ),
    Planted("ppermute_auto", "the table of sources", "{1}, {0}, {7}, {2}", "{1}, {0}, {2}, {7}"),
    Planted("ppermute_auto", "gathered in another order", "{'x','y'}", "{'y','x'}"),
    Planted("ppermute_auto", "no device knows its place", "partition-id()", "replica-id()"),
    Planted(
        "ppermute_auto",
        "the block after the right one",
        "bitcast(%constant_dynamic-slice_fusion.1)",
        "add(%convert, %convert)",
    ),
    Planted("ppermute_auto", "a block is read twice", "{2}, {3}, {4}", "{2}, {2}, {4}"),
    Planted("all_to_all", "each keeps its own", "mesh['x'=8] {'x'}", "{{0},{1},{2},{3},{4},{5},{6},{7}}"),
    Planted("all_to_all", "the group backwards", "mesh['x'=8] {'x'}", "{{7,6,5,4,3,2,1,0}}"),
    Planted("all_to_all", "in two halves", "mesh['x'=8] {'x'}", "{{0,1,2,3},{4,5,6,7}}"),
    Planted("all_to_all", "something is added", "constant(-0)", "constant(1)"),
    Planted("all_to_all_int8", "the axes in the other order", "{'x','y'}", "{'y','x'}"),
    Planted("all_to_all_int8", "over one axis", "{'x','y'}", "{'y'}"),
    Planted(
        "all_to_all_int8",
        "rows of a word in another order",
        "s8[32,1,128]{2,0,1:T(8,128)(4,1)S(1)} copy",
        "s8[32,1,128]{2,0,1:T(8,128)(2,1)S(1)} copy",
    ),
    Planted("shift_set", "the halo goes the other way", HALO, "{{0,4},{1,5},{2,6},{3,7}}"),
    Planted("shift_set", "the halo of another column", HALO, "{{5,0},{4,1},{6,2},{7,3}}"),
    Planted("shift_set", "the halo is one row off", "slice={[0:1], [0:32]}", "slice={[1:2], [0:32]}"),
    Planted("shift_set", "the halo lands one row early", "padding=31_0x0_0", "padding=30_1x0_0"),
    Planted("shift_set", "the mask is reversed", f"{COMPARED}=LT", f"{COMPARED}=GE"),
    Planted(
        "shift_set", "every device is the first", "{0, 0, 0, 0, 32, 32, 32, 32}", "{0, 0, 0, 0, 0, 0, 0, 0}"
    ),
    Planted("shift_set", "the edge is one row off", "constant({63})", "constant({62})"),
    Planted(
        "shift_set_manual", "a pair of the halo is lost", "{{1,0},{3,2},{5,4},{7,6}}", "{{1,0},{3,2},{5,4}}"
    ),
    Planted(
        "shift_set_manual", "another coordinate", "u32[]{:T(128)} constant(1)", "u32[]{:T(128)} constant(2)"
    ),
    Planted("shift_set_manual", "the mask is reversed", "direction=EQ", "direction=NE"),
    Planted("shift_set_manual", "no device knows its place", "partition-id()", "replica-id()"),
    Planted("cumsum", "a device counts itself too", "direction=LT", "direction=LE"),
    Planted(
        "cumsum", "the flat id for the coordinate", "u32[]{:T(128)} constant(3)", "u32[]{:T(128)} constant(7)"
    ),
    Planted("cumsum", "the blocks backwards", Y, "{{3,2,1,0},{7,6,5,4}}"),
    Planted(
        "cumsum", "a block's sum lacks its last row", "slice={[15:16], [0:128]}", "slice={[14:15], [0:128]}"
    ),
    Planted("cumsum", "the window is one row off", "pad=15_0x0_0", "pad=14_1x0_0"),
    Planted("strided_set", "the table of shards", "{0, 0, 1, 1, 2, 2, 3, 3}", "{0, 1, 2, 3, 0, 1, 2, 3}"),
    Planted("strided_set", "shards of another size", "constant({16})", "constant({15})"),
    Planted("strided_set", "the update is dropped", "bitcast(%scatter.7)", "bitcast(%scatter.6)"),
    Planted("sort", "from the other end", "%compare.12, %lt_to.3)", "%compare.12, %lt_to.4)"),
    Planted(
        "sort",
        "a block comes back wrong",
        "channel_id=3, replica_groups=mesh['x'=8] {'x'}",
        f"channel_id=3, replica_groups={SWAPPED}",
    ),
    Planted("data_parallel", "one step less", "constant(100)", "constant(99)"),
    Planted("data_parallel", "the gradient is summed over one axis", "{'x','y'}", "{'y'}"),
    Planted(
        "data_parallel",
        "each its own number of steps",
        f"{STEPS}{{:T(128)}} constant(100)",
        f"%id = u32[] partition-id()\n  {STEPS} convert(%id)",
    ),
    Planted(
        "data_parallel", "an unwritten buffer", f"{BUFFER} copy-done(%copy-start.2)", f"{BUFFER} {ALLOCATED}"
    ),
    Planted("embedding", "shards of the vocabulary overlap", f"{SIXTEEN}(16)", f"{SIXTEEN}(8)"),
    Planted(
        "embedding",
        "the mask of the shard is lost",
        "and(%ge.25.clone.1, %lt.24.clone.1)",
        "or(%ge.25.clone.1, %lt.24.clone.1)",
    ),
    Planted("embedding", "summed over the other axis", Y, "mesh['x'=2,'y'=4] {'x'}"),
    Planted(
        "embedding",
        "the last row is clamped away",
        "%constant.31 = s32[] constant(15)",
        "%constant.31 = s32[] constant(14)",
    ),
    Planted(
        "attention", "the chain ends with other groups", f"{DONE}[2,4]<=[8]", f"{DONE}[2,4]<=[4,2]T(1,0)"
    ),
    Planted(
        "attention",
        "the chain ends in another order",
        f"{DONE}[2,4]<=[8]",
        f"{DONE}{{{{1,0,2,3}},{{5,4,6,7}}}}",
    ),
    Planted(
        "attention", "a chain is read before its end", "copy(%async-collective-done)", f"copy({UNDER_WAY})"
    ),
    Planted("solve", "gathered in the other order of axes", "{'y','x'}, dimensions", "{'x','y'}, dimensions"),
    Planted(
        "solve", "each device solves its neighbour's systems", f"{SYSTEMS}({{0, 1,", f"{SYSTEMS}({{1, 0,"
    ),
    Planted(
        "solve",
        "a bit of the packed place is lost",
        "%constant.118 = s32[]{:T(128)} constant(28)",
        "%constant.118 = s32[]{:T(128)} constant(12)",
    ),
    Planted(
        "solve",
        "the lower factor is taken for an upper one",
        f"{LOWER}InvertDiagBlocksLower",
        f"{LOWER}InvertDiagBlocksUpper",
    ),
    Planted("any", "reduced over the other axis", "{'x'}, use_global", "{'y'}, use_global"),
    Planted(
        "any",
        "the tile's first row is read from the next byte",
        "shift-left(%convert.17, %constant.2)",
        "shift-left(%convert.17, %constant.3)",
    ),
    Planted(
        "any",
        "and for or",
        "%reduce_or.17 = pred[]{:T(512)S(6)} or",
        "%reduce_or.17 = pred[]{:T(512)S(6)} and",
    ),
    Planted("psum", "the ids are those of replicas", "use_global_device_ids=true, ", ""),
    Planted("ppermute", "a permute between replicas", "channel_id=1, source", "source"),
    Planted("reduce_scatter", "the kernel transposed", "dim_labels=bf_io->bf", "dim_labels=bf_oi->bf"),
    Planted("reduce_scatter", "the result transposed", "dim_labels=bf_io->bf", "dim_labels=bf_io->fb"),
    Planted("reduce_scatter", "the factors are rounded", ", operand_precision={highest,highest}", ""),
    Planted(
        "reduce_scatter",
        "one factor is rounded",
        f"ROOT %bitcast = {SQUARE} bitcast(%bitcast_input)",
        f"%half = {SQUARE.replace('f32', 'bf16')} convert(%bitcast_input)\n"
        f"  ROOT %bitcast = {SQUARE} convert(%half)",
    ),
    Planted(
        "reduce_scatter",
        "another buffer is read",
        "fusion(%copy-done, %param.3)",
        "fusion(%param.3, %param.3)",
    ),
    Planted(
        "reduce_scatter",
        "an operand is read in another order",
        f"%param_0 = {SQUARE.replace(')}', ')S(1)}')} parameter",
        "%param_0 = f32[32,32]{0,1:T(8,128)S(1)} parameter",
    ),
    Planted(
        "reduce_scatter",
        "an operand is read in other tiles",
        f"%param_0 = {SQUARE.replace(')}', ')S(1)}')} parameter",
        "%param_0 = f32[32,32]{1,0:T(4,128)S(1)} parameter",
    ),
    Planted("cumsum", "the window is dilated", "size=16x1 pad=15", "size=8x1 rhs_dilate=2x1 pad=14"),
    Planted("shift_set_manual", "what pads is no identity", "constant(-inf)", "constant(0)"),
    Planted(
        "strided_set",
        "two updates of one place, which are promised apart",
        "%constant.0.clone.1 = s32[]{:T(128)} constant(2)",
        "%constant.0.clone.1 = s32[]{:T(128)} constant(0)",
    ),
    Planted(
        "data_parallel",
        "one step more",
        "%constant.34.clone.1), direction=LT",
        "%constant.34.clone.1), direction=LE",
    ),
    Planted(
        "data_parallel", "the other copy is awaited", "copy-done(%copy-start.2)", "copy-done(%copy-start.3)"
    ),
    Planted(
        "data_parallel",
        "the loop hands on its state in another order",
        "%multiply_subtract_fusion.2, %get-tuple-element.102, %get-tuple-element.103,",
        "%get-tuple-element.103, %get-tuple-element.102, %multiply_subtract_fusion.2,",
    ),
    Planted(
        "data_parallel",
        "the loop is said to have one step less",
        "body=%wide.region_0.4_spmd.sunk",
        'body=%wide.region_0.4_spmd.sunk, backend_config={"known_trip_count":{"n":"99"}}',
    ),
    Planted(
        "data_parallel",
        "the computation of another fusion",
        "%subtract_multiply_fusion.2), kind=kLoop, calls=%fused_computation.clone.1",
        "%subtract_multiply_fusion.2), kind=kLoop, calls=%fused_computation.1.clone.1",
    ),
    Planted(
        "data_parallel",
        "a sum that starts at one",
        "%constant.31.clone.6 = f32[]{:T(128)} constant(0)",
        "%constant.31.clone.6 = f32[]{:T(128)} constant(1)",
    ),
    Planted(
        "data_parallel",
        "another dimension is summed",
        "%constant.31.clone.5), dimensions={1}",
        "%constant.31.clone.5), dimensions={0}",
    ),
    Planted(
        "embedding",
        "the coordinate along the other axis",
        "u32[]{:T(128)} constant(3)",
        "u32[]{:T(128)} constant(1)",
    ),
    Planted("embedding", "indices are padded in front", "padding=0_992", "padding=992_0"),
    Planted("attention", "the scale is lost", "constant(0.25)", "constant(1)"),
    Planted(
        "attention",
        "the window backwards",
        "window={size=2 lhs_dilate=2}, dim_labels=0bf_0io",
        "window={size=2 lhs_dilate=2 rhs_reversal=1}, dim_labels=0bf_0io",
    ),
    Planted("any", "the padding is not written", '"ZeroCrop"', '"CreateBuffer"'),
]
"""The catalogue."""


def text(program: str) -> str:
    """A stored program."""
    return (TEXTS / f"{program}.hlo").read_text(encoding="utf-8")


def with_fault(fault: Planted) -> str:
    """The text of the program with the fault; ValueError if the edit does not fit."""
    whole = text(fault.program)
    if whole.count(fault.old) != fault.places:
        raise ValueError(
            f"{fault.program}, {fault.what}: {whole.count(fault.old)} places, not {fault.places}"
        )
    return whole.replace(fault.old, fault.new)
