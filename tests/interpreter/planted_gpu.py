# SPDX-License-Identifier: Apache-2.0
"""Faults planted into compiled text: edits of programs that jaxlib 0.12.0.1's CUDA plugin compiled for h100:8.

The programs are in texts/, without metadata and, except for custom calls, without backend configurations.
"""

from tests.interpreter.planted import Planted

PROGRAMS = {
    "h100_triangular_solve": "algebra/of=-.x,function=triangular_solve/manual/8/float32/4KiB",
    "h100_cholesky": "algebra/of=yx.-,function=cholesky/manual-novma/2x4/float32/4KiB",
    "h100_convolution_gradient": "convolution_gradient/of=-.yx,kind=valid,sharded=space/auto/2x4/float32/4KiB",
    "h100_kernel_gradient": "convolution_gradient/of=y.x,kind=plain,sharded=in/manual-novma/2x4/float32/4KiB",
    "h100_sort_several": "sort_several/of=-.y,dim=1,keys=2/auto/2x4/float32/4KiB",
    "h100_roll": "roll/of=yx.-,dim=0,shift=13/auto/2x4/float32/4KiB",
    "h100_psum_scatter": "psum_scatter/axes=z,dim=0,tiled/auto/2x2x2/float32/4KiB",
    "h100_shift_set": "shift_set/of=x.y,dim=0/explicit/1x8/float32/4KiB",
    "h100_broadcast": "pbroadcast/axes=y,source=3/manual/2x4/float32/4KiB",
    "h100_ragged": "ragged_all_to_all/axes=y/manual/2x4/float32/4KiB",
    # With xla_gpu_collective_permute_decomposer_threshold=0 and xla_gpu_enable_pipelined_p2p.
    "h100_pipeline": "pipeline/stages=x+y/manual/2x4/float32/n8",
    # With xla_gpu_experimental_pipeline_parallelism_opt_level instead: each device sends after it has received.
    "h100_pipeline_later": "pipeline/stages=x+y/manual/2x4/float32/n8",
}
"""The case of each stored program."""

X8 = "all-gather-start(%param.2), channel_id=1, replica_groups=mesh['x'=8] {'x'}"
HALO = "{{0,4},{4,1},{1,5},{5,2},{2,6},{6,3},{3,7}}"
SCATTERED = (
    "reduce-scatter(%bitcast.94.0, %bitcast.100.0), channel_id=1, replica_groups=mesh['x'=2,'y'=4] {'x'}"
)
SWAPPED = "{{1,0,2,3},{4,5,6,7}}"
THIRD = "channel_id=3, replica_groups=mesh['x'=2,'y'=4] {'y'}"
RING = "{{0,4},{4,1},{1,5},{5,2},{2,6},{6,3},{3,7},{7,0}}"
Z = "mesh['x'=2,'y'=2,'z'=2] {'z'}"
KERNEL = (
    'custom_call_target="__cudnn$convBackwardFilter", backend_config={"operation_queue_id":"0",'
    '"cudnn_conv_backend_config":{"activation_mode":"kNone","conv_result_scale":1'
)

FIRST_OF_GROUPS = "{{3,0,1,2},{7,4,5,6}}"
ROWS = "replica_groups={{0,1,2,3},{4,5,6,7}}"
STARTS, SIZES, PLACES, AWAITED = (f"%loop_convert_fusion{n}" for n in (".3", ".2", ".1", ""))
NEXT = "_xla_send_recv_source_target_pairs={{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7}}"

GRADIENT = "HloModule jit_gradient, is_scheduled=true"
EXCHANGED = "input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {}, may-alias) }"
SHARED = "input_output_alias={ {0}: (0, {}, may-alias), {1}: (0, {}, may-alias) }"

FAULTS = [
    Planted("h100_triangular_solve", "the upper triangle", '"lower":true', '"lower":false'),
    Planted("h100_triangular_solve", "the transposed matrix", "NO_TRANSPOSE", "TRANSPOSE"),
    Planted(
        "h100_triangular_solve",
        "gathered in another order",
        X8,
        X8.replace("mesh['x'=8] {'x'}", "{{1,0,2,3,4,5,6,7}}"),
    ),
    Planted(
        "h100_triangular_solve",
        "read before the done",
        "all-gather-done(%all-gather-start)",
        "get-tuple-element(%all-gather-start), index=1",
    ),
    Planted("h100_triangular_solve", "all devices but one add", "direction=EQ", "direction=NE"),
    Planted("h100_cholesky", "the upper factor", "lower = true", "lower = false"),
    Planted("h100_cholesky", "the diagonal is masked", "direction=GE", "direction=GT"),
    Planted("h100_cholesky", "another product", "rhs_contracting_dims={2}", "rhs_contracting_dims={1}"),
    Planted(
        "h100_cholesky",
        "a good factor is taken for a bad one",
        "select(%broadcast.6.1, %bitcast.11.5, %broadcast.7.3)",
        "select(%broadcast.6.1, %broadcast.7.3, %bitcast.11.5)",
    ),
    Planted("h100_convolution_gradient", "a pair of the halo is lost", HALO, HALO.replace(",{3,7}", "")),
    Planted(
        "h100_convolution_gradient",
        "the halo goes the other way",
        HALO,
        "{{4,0},{1,4},{5,1},{2,5},{6,2},{3,6},{7,3}}",
    ),
    Planted("h100_convolution_gradient", "the window is one place off", "pad=2_2", "pad=1_3"),
    Planted("h100_convolution_gradient", "the kernel backwards", "pad=2_2", "pad=2_2 rhs_reversal=1"),
    Planted(
        "h100_convolution_gradient",
        "input and output features in each other's place",
        "{size=3}, dim_labels=b0f_o0i->b0f",
        "{size=3}, dim_labels=b0f_i0o->b0f",
    ),
    Planted(
        "h100_convolution_gradient",
        "gathered in another order",
        "{'axis_1','axis_0'}",
        "{'axis_0','axis_1'}",
    ),
    Planted(
        "h100_convolution_gradient",
        "the table of shards",
        "constant({0, 4, 8, 12, 2, 6, 10, 14})",
        "constant({0, 4, 8, 12, 4, 6, 10, 14})",
    ),
    Planted("h100_kernel_gradient", "summed over the other axis", "{'y'}, use_global", "{'x'}, use_global"),
    Planted(
        "h100_kernel_gradient",
        "read before the done",
        "all-reduce-done(%all-reduce-start.1)",
        "get-tuple-element(%all-reduce-start.1), index=1",
    ),
    Planted("h100_kernel_gradient", "twice the gradient", KERNEL, KERNEL[:-1] + "2"),
    Planted(
        "h100_kernel_gradient",
        "parts in the wrong order",
        SCATTERED,
        SCATTERED.replace("mesh['x'=2,'y'=4] {'x'}", "{{4,0},{5,1},{6,2},{7,3}}"),
    ),
    Planted(
        "h100_sort_several",
        "a block comes wrong",
        THIRD,
        THIRD.replace("mesh['x'=2,'y'=4] {'y'}", SWAPPED),
    ),
    Planted(
        "h100_sort_several",
        "from the other end",
        "compare(%sort.21, %sort.22), direction=LT",
        "compare(%sort.21, %sort.22), direction=GT",
    ),
    Planted(
        "h100_sort_several",
        "read before the done",
        "all-to-all-done(%all-to-all-start.2)",
        "get-tuple-element(%all-to-all-start.2), index=1",
    ),
    Planted("h100_roll", "a pair is lost", RING, RING.replace(",{7,0}", "")),
    Planted(
        "h100_roll", "the ring turns backwards", RING, "{{4,0},{1,4},{5,1},{2,5},{6,2},{3,6},{7,3},{0,7}}"
    ),
    Planted(
        "h100_roll",
        "read before the done",
        "collective-permute-done(%collective-permute-start.1)",
        "get-tuple-element(%collective-permute-start.1), index=1",
    ),
    Planted("h100_psum_scatter", "over the other axis", Z, Z.replace("{'z'}", "{'y'}")),
    Planted("h100_psum_scatter", "parts in the wrong order", Z, "{{1,0},{3,2},{5,4},{7,6}}"),
    Planted("h100_psum_scatter", "the maximum for the sum", "add(%reduce_sum.8", "maximum(%reduce_sum.8"),
    Planted(
        "h100_shift_set",
        "a fusion is read before its done",
        "fusion-done(%fusion-start)",
        "get-tuple-element(%fusion-start), index=1",
    ),
    Planted("h100_shift_set", "the rows are not shifted", "slice={[1:64]", "slice={[0:63]"),
    Planted("h100_shift_set", "another row is set", "constant(63)", "constant(62)"),
    Planted(
        "h100_cholesky",
        "transposed no more",
        "%select.1.3), dimensions={0,2,1}",
        "%select.1.3), dimensions={0,1,2}",
    ),
    Planted(
        "h100_cholesky",
        "the mask compares the same dimension",
        "%iota.16.3 = s32[8,8]{1,0} iota(), iota_dimension=1",
        "%iota.16.3 = s32[8,8]{1,0} iota(), iota_dimension=0",
    ),
    Planted(
        "h100_cholesky",
        "what the factor has overwritten is read",
        "fusion(%get-tuple-element.5.0, %get-tuple-element.4.0)",
        "fusion(%bitcast.24.0, %get-tuple-element.4.0)",
    ),
    Planted(
        "h100_kernel_gradient",
        "what the sum has overwritten is read",
        "fusion(%all-reduce-done.1)",
        "fusion(%get-tuple-element.16)",
    ),
    Planted(
        "h100_kernel_gradient",
        "one gathered array for the other",
        "get-tuple-element(%all-gather-done), index=0",
        "get-tuple-element(%all-gather-done), index=1",
    ),
    Planted(
        "h100_kernel_gradient",
        "the done of another kind",
        "all-reduce-done(%all-reduce-start.1)",
        "all-gather-done(%all-reduce-start.1)",
    ),
    Planted("h100_kernel_gradient", "forward for back", "__cudnn$convBackwardInput", "__cudnn$convForward"),
    Planted("h100_kernel_gradient", "results take each other's memory", GRADIENT, f"{GRADIENT}, {EXCHANGED}"),
    Planted("h100_kernel_gradient", "results share one memory", GRADIENT, f"{GRADIENT}, {SHARED}"),
    Planted(
        "h100_sort_several",
        "the order of equal rows is lost",
        "ROOT %select.1 = pred[] select(%compare.2, %compare.1.0, %or.2.0)",
        "ROOT %select.1 = pred[] or(%or.2.0, %or.2.0)",
    ),
    Planted(
        "h100_sort_several",
        "another dimension is sorted",
        "%iota.2), dimensions={1}",
        "%iota.2), dimensions={0}",
    ),
    Planted(
        "h100_sort_several",
        "parts of another dimension",
        "channel_id=5, replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={1}",
        "channel_id=5, replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={0}",
    ),
    Planted(
        "h100_psum_scatter",
        "the caller's result lies otherwise",
        "->f32[1,4,128]{2,1,0}}",
        "->f32[1,4,128]{1,2,0}}",
    ),
    Planted(
        "h100_psum_scatter",
        "the caller's argument lies otherwise",
        "(f32[1,2,4,128]{3,2,1,0})->",
        "(f32[1,2,4,128]{2,3,1,0})->",
    ),
    Planted("h100_psum_scatter", "half of the devices", "num_partitions=8", "num_partitions=4"),
    Planted(
        "h100_shift_set",
        "the places of an update in another order",
        "%constant_69_clone_2, %constant_67_clone_3)",
        "%constant_67_clone_3, %constant_69_clone_2)",
    ),
    Planted("h100_broadcast", "another device sends", FIRST_OF_GROUPS, "{{0,3,1,2},{4,7,5,6}}"),
    Planted("h100_broadcast", "in one group another device sends", FIRST_OF_GROUPS, "{{3,0,1,2},{4,7,5,6}}"),
    Planted("h100_broadcast", "one device sends to all", FIRST_OF_GROUPS, "{{3,0,1,2,7,4,5,6}}"),
    Planted("h100_broadcast", "sent along the other axis", FIRST_OF_GROUPS, "{{4,0},{5,1},{6,2},{7,3}}"),
    Planted("h100_broadcast", "a device gets nothing", FIRST_OF_GROUPS, "{{3,0,1},{7,4,5,6}}"),
    Planted("h100_broadcast", "a device is in both groups", FIRST_OF_GROUPS, "{{3,0,1,2},{7,4,5,2}}"),
    Planted("h100_ragged", "exchanged over all devices", ROWS, "replica_groups={{0,1,2,3,4,5,6,7}}"),
    Planted(
        "h100_ragged", "exchanged along the other axis", ROWS, "replica_groups={{0,4},{1,5},{2,6},{3,7}}"
    ),
    Planted("h100_ragged", "members in another order", ROWS, "replica_groups={{1,0,2,3},{5,4,6,7}}"),
    Planted("h100_ragged", "a device in no group", ROWS, "replica_groups={{0,1,2,3},{4,5,6}}"),
    Planted("h100_ragged", "starts and sizes are exchanged", f"{STARTS}, {SIZES}", f"{SIZES}, {STARTS}"),
    Planted(
        "h100_ragged",
        "rows are read where they should be written",
        f"{STARTS}, {SIZES}, {PLACES}",
        f"{PLACES}, {SIZES}, {STARTS}",
    ),
    Planted(
        "h100_ragged", "as many rows are awaited as sent", f"/*index=5*/{AWAITED})", f"/*index=5*/{SIZES})"
    ),
    Planted("h100_ragged", "the rows before are lost", "%copy.9, %loop", "%param.6, %loop"),
    Planted("h100_ragged", "the result is the argument", "copy(%ragged-all-to-all.3)", "copy(%copy.9)"),
    *(
        Planted(program, what, NEXT, NEXT.split("=")[0] + "=" + pairs, places=2)
        for program in ("h100_pipeline", "h100_pipeline_later")
        for what, pairs in (
            ("a pair is lost", "{{0,1},{1,2},{2,3},{3,4},{4,5},{5,6}}"),
            ("sent the other way", "{{1,0},{2,1},{3,2},{4,3},{5,4},{6,5},{7,6}}"),
            ("the first two stages in another order", "{{0,2},{2,1},{1,3},{3,4},{4,5},{5,6},{6,7}}"),
            ("two stages in another order", "{{0,1},{1,3},{3,2},{2,4},{4,5},{5,6},{6,7}}"),
            ("two send to one", "{{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{7,6}}"),
        )
    ),
    Planted(
        "h100_pipeline_later",
        "each device waits for the one before it",
        NEXT,
        f"{NEXT[:-1]},{{7,0}}}}",
        places=2,
    ),
    Planted(
        "h100_pipeline",
        "sent on another channel",
        "send(%copy.9, %ppermute.3-after-all.1), channel_id=1",
        "send(%copy.9, %ppermute.3-after-all.1), channel_id=2",
    ),
    Planted(
        "h100_pipeline",
        "awaited on another channel",
        "recv-done(%ppermute.3-recv), channel_id=1",
        "recv-done(%ppermute.3-recv), channel_id=2",
    ),
    Planted(
        "h100_pipeline",
        "what was received is taken for the own",
        "%copy.9, %ppermute.3-recv-data.1, %copy.8",
        "%ppermute.3-recv-data.1, %copy.9, %copy.8",
    ),
    Planted(
        "h100_pipeline", "read before the done", "element(%ppermute.3-recv-done)", "element(%ppermute.3-recv)"
    ),
]
"""The catalogue."""
