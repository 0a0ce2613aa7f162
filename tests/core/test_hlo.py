# SPDX-License-Identifier: Apache-2.0
"""The reader of compiled communication is tested with texts worked out by hand, and by arithmetic."""

import itertools
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.core.hlo import Collective, collectives, wire_bytes

ALL = (tuple(range(8)),)
X_GROUPS = ((0, 4), (1, 5), (2, 6), (3, 7))  # along x of the mesh 2x4
Y_GROUPS = ((0, 1, 2, 3), (4, 5, 6, 7))
YX_GROUPS = ((0, 4, 1, 5, 2, 6, 3, 7),)  # along both, y major


def module(
    *entry: str, before: str = "", header: str = "HloModule m, is_scheduled=true, num_partitions=8"
) -> str:
    """HLO text of instructions; `before` holds other computations."""
    return "\n".join([header, "", before, "ENTRY %main (p: f32[4,8]) -> f32[4,8] {", *entry, "}", ""])


def computation(name: str, *lines: str) -> str:
    return "\n".join([f"%{name} (p: f32[4,8]) -> f32[4,8] {{", *lines, "}", "", ""])


def only(text: str, num_partitions: int | None = None) -> Collective:
    (found,) = collectives(text, num_partitions)
    return found


def gather(groups: str, **options: Any) -> Collective:
    line = f"  ROOT %g = f32[16,8] all-gather(%p), channel_id=1, replica_groups={groups}, dimensions={{0}}"
    return only(module(line, **options))


ADD = """%region_0.0 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.2 = f32[] add(%a, %b), metadata={op_name="add"}
}
"""
PERMUTE = "  %c = f32[4,8]{1,0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}"
FIVE = 'backend_config={"known_induction_variable":{"tuple_index":"0"},"known_trip_count":{"n":"5"}}'


# Kinds, bytes and options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "f32[8,8]{1,0} all-reduce(%p), channel_id=1, replica_groups={{0,4},{1,5},{2,6},{3,7}}, "
            "use_global_device_ids=true, to_apply=%region_0.0",
            Collective("all-reduce", 256, "f32", X_GROUPS, (), reduction="add"),
        ),
        (
            "f32[16,8]{1,0} all-gather(%p), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}",
            Collective("all-gather", 512, "f32", Y_GROUPS, (), dimensions=(0,)),
        ),
        (
            "bf16[4,8]{1,0} reduce-scatter(%p), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, "
            "dimensions={1}, to_apply=%region_0.0",
            Collective("reduce-scatter", 256, "bf16", Y_GROUPS, (), dimensions=(1,), reduction="add"),
        ),
        (
            "(f32[1,8]{1,0}, f32[1,8]{1,0}, f32[1,8]{1,0}, f32[1,8]{1,0}) all-to-all(%a, %b, %c, %d), "
            "channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}",
            Collective("all-to-all", 128, "f32", Y_GROUPS, ()),
        ),
        (
            "f32[4,1024]{1,0:T(8,128)S(1)} all-to-all(%p), replica_groups=[2,4]<=[8], dimensions={0}",
            Collective("all-to-all", 16384, "f32", Y_GROUPS, (), dimensions=(0,)),
        ),
        (
            "s32[16,8]{1,0} ragged-all-to-all(%p, %o, %i, %s, %t, %r), replica_groups={{0,1,2,3},{4,5,6,7}}",
            Collective("ragged-all-to-all", 512, "s32", Y_GROUPS, ()),
        ),
        (
            "f32[4,8]{1,0} collective-permute(%p), source_target_pairs={{0,1},{1,2},{4,5},{5,6}}",
            Collective("collective-permute", 128, "f32", (), ((0, 1), (1, 2), (4, 5), (5, 6))),
        ),
        (
            "f32[4,8]{1,0} collective-broadcast(%p), channel_id=1, replica_groups={{1,0},{5,4}}, "
            "has_dynamic_root=false",
            Collective("collective-broadcast", 128, "f32", ((1, 0), (5, 4)), ()),
        ),
        (  # combined
            "(f32[4,8], bf16[3]{0}, f32[]) all-reduce(%p, %q, %r), replica_groups={}, to_apply=%region_0.0",
            Collective("all-reduce", 128 + 6 + 4, "f32", ALL, (), reduction="add"),
        ),
        (
            "(bf16[16,64]{1,0}, bf16[16,64]{1,0}) collective-permute(%p, %q), source_target_pairs={{0,1}}",
            Collective("collective-permute", 4096, "bf16", (), ((0, 1),)),
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, Collective) else "",
)
def test_kinds(line: str, expected: Collective) -> None:
    assert only(module(f'  %r = {line}, metadata={{op_name="jit(f)/psum"}}', before=ADD)) == expected
    assert only(module(f"  ROOT %r.1-x = {line}", before=ADD)) == expected


def test_comments_in_long_tuples_are_no_operands() -> None:
    shapes = ["f32[1,64]{1,0}"] * 8
    shapes[5] = "/*index=5*/" + shapes[5]
    line = (
        f"  %a = ({', '.join(shapes)}) all-to-all(%s, /*index=5*/%t), replica_groups={{{{0,1,2,3,4,5,6,7}}}}"
    )
    assert only(module(line)) == Collective("all-to-all", 8 * 64 * 4, "f32", ALL, ())


@pytest.mark.parametrize("opcode", ["add", "maximum", "minimum", "and", "or", "multiply"])
def test_reduction_is_the_root_of_what_is_applied(opcode: str) -> None:
    region = ADD.replace("add(", f"{opcode}(").replace("region_0.0", "region_0.0_promoted")
    line = "  ROOT %r = f32[4]{0} all-reduce(%p), replica_groups={}, to_apply=%region_0.0_promoted"
    assert only(module(line, before=ADD + "\n" + region)).reduction == opcode


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        *[(name, 8) for name in ("pred", "s8", "u8", "f8e4m3fn", "f8e5m2", "f8e4m3b11fnuz", "f8e8m0fnu")],
        *[(name, 16) for name in ("s16", "u16", "f16", "bf16")],
        *[(name, 32) for name in ("s32", "u32", "f32")],
        *[(name, 64) for name in ("s64", "u64", "f64", "c64")],
        ("c128", 128),
        *[(name, 4) for name in ("s4", "u4", "f4e2m1fn")],
        *[(name, 2) for name in ("s2", "u2")],
    ],
)
def test_element_sizes(dtype: str, bits: int) -> None:
    def size(dims: str) -> int:
        return only(module(f"  %r = {dtype}[{dims}]{{0:E(4)}} all-gather(%p), replica_groups={{}}")).nbytes

    assert size("6,8") == 6 * bits
    assert size("") == math.ceil(bits / 8)
    assert size("3") == math.ceil(3 * bits / 8)
    assert size("0,5") == 0
    assert size("<=8") == bits


def test_an_unknown_element_type_is_named() -> None:
    with pytest.raises(ValueError, match="q7"):
        collectives(module("  %r = q7[4]{0} all-gather(%p), replica_groups={}"))
    with pytest.raises(ValueError, match="token"):
        collectives(module("  %r = (f32[4], token[]) all-reduce(%p, %t), replica_groups={}"))


def test_nothing_but_collectives_is_found() -> None:
    assert collectives(module("  ROOT %r = f32[4]{0} add(%p, %p)")) == ()
    assert collectives("") == ()
    assert (
        collectives(
            module(
                '  %a = f32[4]{0} add(%p, %p), metadata={op_name="x = f32[4] all-gather(y), replica"}',
                "  %all-reduce = f32[4]{0} negate(%a)",
                "  %g = f32[4]{0} get-tuple-element(%all-to-all), index=1",
                "  %d = f32[4]{0} all-reduce-done(%all-reduce-start)",
                "  ROOT %w = (s32[], f32[4]{0}) fusion(%all-reduce, %g), kind=kLoop, calls=%f",
                before='FunctionNames\n1 "x = f32[4] all-gather(y)"\n\n',
            )
        )
        == ()
    )


def test_attributes_are_not_read_from_free_text() -> None:
    text = module(
        '  %r = f32[4]{0} all-reduce(%p), replica_groups={}, metadata={op_name="a, dimensions={3}"}, '
        'backend_config={"debug":", dimensions={2}, to_apply=%region_0.0"}',
        before=ADD,
    )
    assert only(text) == Collective("all-reduce", 16, "f32", ALL, ())


# Groups -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelling", "groups"),
    [
        ("{{0,4},{1,5},{2,6},{3,7}}", X_GROUPS),
        ("{{0,3},{2,1},{4,7},{6,5}}", ((0, 3), (2, 1), (4, 7), (6, 5))),
        ("{{0,1,2},{3},{4,5,6},{7}}", ((0, 1, 2), (3,), (4, 5, 6), (7,))),
        ("{{0}}", ((0,),)),
        ("{}", ALL),
        ("[2,4]<=[8]", Y_GROUPS),
        ("[4,2]<=[8]", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("[4,2]<=[2,4]T(1,0)", X_GROUPS),
        ("[2,4]<=[4,2]T(1,0)", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("[1,8]<=[2,4]T(1,0)", YX_GROUPS),
        ("[2,4]<=[2,2,2]T(1,0,2)", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['x'=2,'y'=4] {'x'}", X_GROUPS),
        ("mesh['x'=2,'y'=4] {'y'}", Y_GROUPS),
        ("mesh['x'=2,'y'=4] {'x','y'}", ALL),
        ("mesh['x'=2,'y'=4] {'y','x'}", YX_GROUPS),
        ("mesh['a'=2,'b'=2,'c'=2] {'c','a'}", ((0, 4, 1, 5), (2, 6, 3, 7))),
        ("mesh['x'=2,'y'=4] {}", tuple((device,) for device in range(8))),
        ("mesh['axis_0'=4,'axis_1'=1,'axis_2'=2] {'axis_1'}", tuple((device,) for device in range(8))),
        ("mesh['axis_0'=8,'axis_1'=1], device_ids=([2,4]T(1,0)) {'axis_0'}", YX_GROUPS),
        ("mesh['a'=2,'b'=1,'c'=4], device_ids=([4,2]T(1,0)) {'a'}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'b'}", ((3, 1), (2, 0))),
        ("mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'a'}", ((3, 2), (1, 0))),
        # Parts of axes, as the partitioner of JAX 0.12 prints them
        ("mesh['i'=8] {'i':(1)2}", X_GROUPS),
        ("mesh['i'=8] {'i':(2)4}", Y_GROUPS),
        ("mesh['i'=8] {'i':(1)4}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['i'=8] {'i':(4)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("mesh['i'=8] {'i':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['i'=8] {'i':(4)2,'i':(1)2}", ((0, 4, 1, 5), (2, 6, 3, 7))),
        ("mesh['x'=2,'y'=4] {'y':(2)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("mesh['x'=2,'y'=4] {'x','y':(1)2}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['x'=2,'y'=4] {'y':(1)2,'x'}", ((0, 4, 2, 6), (1, 5, 3, 7))),
        # Names that JAX takes as axis names, and names without quotes
        ("mesh['x'=2,'a,b=2'=4] {'a,b=2'}", Y_GROUPS),
        ("mesh['x'=2,'x:(1)2'=4] {'x:(1)2'}", Y_GROUPS),
        ("mesh['x'=2,'a] {b}'=4] {'a] {b}'}", Y_GROUPS),
        ("mesh[x=2,y=4] {y:(2)2,x}", ((0, 4, 1, 5), (2, 6, 3, 7))),
    ],
)
def test_spellings_of_groups(spelling: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert gather(spelling).groups == groups


def test_empty_groups_span_all_devices() -> None:
    assert gather("{}", header="HloModule m, num_partitions=3").groups == ((0, 1, 2),)
    assert gather("{}", header="HloModule m, replica_count=2").groups == ((0, 1),)
    assert gather("{}", header="HloModule m").groups == ((0,),)
    line = "  %g = f32[16,8]{1,0} all-gather(%p), replica_groups={}"
    assert only(module(line), num_partitions=2).groups == ((0, 1),)


def test_a_collective_outside_of_all_computations_is_refused() -> None:
    with pytest.raises(ValueError, match="computation of"):
        collectives(
            "HloModule m\n\n  %g = f32[16,8]{1,0} all-gather(%p), replica_groups={}, dimensions={0}\n"
        )


@pytest.mark.parametrize(
    "spelling", ["<wedge>", "[4,2]", "mesh['x'=2] ['x']", "maximal_mesh[device_id=3] {}"]
)
def test_an_unknown_spelling_of_groups_is_refused(spelling: str) -> None:
    with pytest.raises(ValueError, match="replica_groups"):
        gather(spelling)


def test_two_releases_agree_on_one_program() -> None:
    """jit of a.reshape(2, 32, 64).sum(1), a sharded over y: as JAX 0.10.2 and as 0.12.0.1 printed it."""
    old = "mesh['axis_0'=2,'axis_1'=2,'axis_2'=1,'axis_3'=2], device_ids=([2,4]T(1,0)) {'axis_1'}"
    new = "mesh['x'=2,'y'=4] {'y':(2)2}"
    assert set(gather(old).groups) == set(gather(new).groups)


def factors(number: int, most: int = 3) -> st.SearchStrategy[list[int]]:
    """Ordered factorizations, with ones."""
    return st.lists(
        st.sampled_from([f for f in range(1, number + 1) if number % f == 0]), min_size=1, max_size=most
    ).map(lambda found: [*found, number // math.prod(found)] if number % math.prod(found) == 0 else [number])


@st.composite
def iotas(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    number = draw(st.sampled_from([1, 2, 6, 8, 12, 24]))
    shape = draw(factors(number))
    order = draw(st.permutations(range(len(shape))))
    rows = draw(st.sampled_from([f for f in range(1, number + 1) if number % f == 0]))
    return [rows, number // rows], shape, order


@settings(deadline=None)  # the machine may be busy
@given(iotas())
def test_iota_is_index_arithmetic(iota: tuple[list[int], list[int], list[int]]) -> None:
    (rows, columns), shape, order = iota
    # Counting through the transposed index, last digit fastest, gives the flat list.
    numbers = []
    for index in itertools.product(*(range(shape[axis]) for axis in order)):
        digits = dict(zip(order, index, strict=True))
        number = 0
        for axis, size in enumerate(shape):
            number = number * size + digits[axis]
        numbers.append(number)
    expected = tuple(tuple(numbers[row * columns : (row + 1) * columns]) for row in range(rows))
    dims, reshape, transpose = (",".join(map(str, part)) for part in iota)
    assert gather(f"[{dims}]<=[{reshape}]T({transpose})").groups == expected
    if order == sorted(order):
        assert gather(f"[{dims}]<=[{reshape}]").groups == expected


@st.composite
def meshes(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int, int]], list[int] | None]:
    """Axis sizes, what is grouped as (axis, left, size) in order, and the devices if not in order."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3))
    parts = []
    for axis, size in enumerate(sizes):
        left = 1
        for piece in draw(factors(size)):
            if draw(st.booleans()) and (1 < piece < size or (left == 1 and piece == size)):
                parts.append((axis, left, piece))
            left *= piece
    devices = draw(st.none() | st.permutations(range(math.prod(sizes))))
    return sizes, draw(st.permutations(parts)), devices


@settings(deadline=None)  # the machine may be busy
@given(meshes())
def test_mesh_groups_are_coordinates(
    mesh: tuple[list[int], list[tuple[int, int, int]], list[int] | None],
) -> None:
    sizes, parts, devices = mesh
    # Devices are in one group when what is not grouped of their coordinates is equal; the rest orders it.
    groups: dict[tuple[tuple[int, ...], ...], dict[tuple[int, ...], int]] = {}
    for position, coordinates in enumerate(itertools.product(*map(range, sizes))):
        place, rest = [], [[c] for c in coordinates]
        for axis, left, size in parts:
            right = sizes[axis] // (left * size)
            place.append(coordinates[axis] // right % size)
            rest[axis][0] -= place[-1] * right
        groups.setdefault(tuple(map(tuple, rest)), {})[tuple(place)] = (
            devices[position] if devices else position
        )
    expected = {tuple(group[place] for place in sorted(group)) for group in groups.values()}
    names = ",".join(f"'a{axis}'={size}" for axis, size in enumerate(sizes))
    grouped = ",".join(
        f"'a{axis}'" if size == sizes[axis] else f"'a{axis}':({left}){size}" for axis, left, size in parts
    )
    ids = f", device_ids=({','.join(map(str, devices))})" if devices else ""
    found = gather(f"mesh[{names}]{ids} {{{grouped}}}").groups
    assert set(found) == expected
    assert sorted(itertools.chain(*found)) == list(range(math.prod(sizes)))


# Asynchronous -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "nbytes"),
    [
        ("(f32[4,8]{1,0}, f32[16,8]{1,0}) all-gather-start(%p), replica_groups={}, dimensions={0}", 512),
        ("((f32[4,8]{1,0}), f32[16,8]{1,0}) all-gather-start(%p), replica_groups={}, dimensions={0}", 512),
        (
            "((f32[4,8], bf16[4]{0:T(1024)(128)(2,1)}), (f32[16,8], bf16[16]{0:T(1024)(128)(2,1)})) "
            "all-gather-start(%p, %q), replica_groups={}, dimensions={0}",
            512 + 32,
        ),
        ("f32[4,8]{1,0} all-reduce-start(%p), replica_groups={}, to_apply=%region_0.0", 128),
        (
            "(f32[4,8]{1,0}, bf16[4]{0}) all-reduce-start(%p, %q), replica_groups={}, to_apply=%region_0.0",
            136,
        ),
        (
            "((f32[4,8]{1,0}), f32[4,8]{1,0}) all-reduce-start(%p), replica_groups={}, to_apply=%region_0.0",
            128,
        ),
        (
            "(f32[4,8]{1,0:T(8,128)}, f32[4,8]{1,0:T(8,128)S(1)}, u32[]{:S(2)}, u32[]{:S(2)}) "
            "collective-permute-start(%p), source_target_pairs={{0,1}}",
            128,
        ),
        (
            "((f32[4], f32[6]), (f32[4], f32[6]), u32[], u32[]) collective-permute-start(%p, %q), "
            "source_target_pairs={{0,1}}",
            40,
        ),
        ("((f32[4,8]{1,0}), f32[4,8]{1,0}) collective-permute-start(%p), source_target_pairs={{0,1}}", 128),
        (
            "((bf16[4,2,8]{2,1,0:T(8,128)(2,1)}), bf16[4,2,8]{2,1,0:T(8,128)(2,1)}, u32[]{:S(2)}) "
            "all-to-all-start(%p), replica_groups={}, dimensions={0}",
            128,
        ),
        ("((f32[16]{0}), f32[2]{0}) reduce-scatter-start(%p), replica_groups={}, to_apply=%region_0.0", 64),
    ],
)
def test_start_and_done_are_one(line: str, nbytes: int) -> None:
    (opcode,) = re.findall(r" ([\w-]+)-start\(", line)
    text = module(f"  %s = {line}", f"  ROOT %d = f32[4]{{0}} {opcode}-done(%s)", before=ADD)
    found = only(text)
    assert (found.kind, found.nbytes, found.asynchronous) == (opcode, nbytes, True)


def test_async_start_runs_its_computation_once() -> None:
    wrapped = computation(
        "async_computation", "  ROOT %a = f32[4,8] all-to-all(%p), replica_groups={}, dimensions={0}"
    )
    text = module(
        "  %s = ((f32[4,8]), f32[4,8], u32[]) async-start(%p), calls=%async_computation",
        "  %u = ((f32[4,8]), f32[4,8], u32[]) async-update(%s), calls=%async_computation",
        "  ROOT %d = f32[4,8] async-done(%u), calls=%async_computation",
        before=wrapped,
    )
    assert only(text) == Collective("all-to-all", 128, "f32", ALL, (), dimensions=(0,), asynchronous=True)


def test_a_continuation_fusion_is_one_collective() -> None:
    """As libtpu 0.0.51 prints for v5e: one all-gather is named in the start, in each step and in the done."""
    line = (
        "  %g = bf16[64,8]{{1,0:T(8,128)(2,1)}} all-gather(%p), channel_id={}, replica_groups=[2,4]<=[8], "
        'dimensions={{0}}, frontend_attributes={{chain_id="{}"}}, backend_config={{"flag_configs":[]}}'
    )
    names = ["fused.1", "async_collective_fusion.10", "fused.2", "fused.3"]
    fused = [computation(name, line.format(1, 0)) for name in names]
    fused.append(computation("other", line.format(2, 1)))
    calls = [
        f"  %f{i} = (bf16[64,8], u32[]) fusion(%p), kind=kCustom, calls=%{n}" for i, n in enumerate(names)
    ]
    calls.append("  %o = bf16[64,8] fusion(%p), kind=kCustom, calls=%other")
    one = Collective("all-gather", 1024, "bf16", Y_GROUPS, (), dimensions=(0,), asynchronous=True)
    assert collectives(module(*calls, before="".join(fused))) == (one, one)


def test_the_reduce_scatter_fusion_of_tpu_is_a_reduce_scatter() -> None:
    fused = ADD + computation(
        "all-reduce-scatter.1",
        "  %pad = f32[16,8]{1,0:T(8,128)} pad(%p, %z), padding=0_2x0_0",
        "  %a = f32[16,8]{1,0:T(8,128)} all-reduce(%pad), replica_groups=[2,4]<=[8], to_apply=%region_0.0",
        "  ROOT %d = f32[4,8]{1,0:T(8,128)S(1)} dynamic-slice(%a, %m, %c), dynamic_slice_sizes={4,8}",
    )
    text = module("  %f = f32[4,8] fusion(%p), kind=kCustom, calls=%all-reduce-scatter.1", before=fused)
    assert only(text) == Collective("reduce-scatter", 512, "f32", Y_GROUPS, (), reduction="add")


# Loops and calls --------------------------------------------------------------------------------------------


def loop(body: str, count: str = FIVE, condition: str = "cond", name: str = "w") -> str:
    config = f", {count}" if count else ""
    return (
        f"  %{name} = (s32[], f32[4,8]{{1,0}}) while(%t), condition=%{condition}, body=%{body}, "
        f'metadata={{op_name="jit(f)/while"}}{config}'
    )


@pytest.mark.parametrize(
    ("entry", "before", "trips"),
    [
        ([loop("b")], computation("b", PERMUTE), 5),
        ([loop("b", "")], computation("b", PERMUTE), None),
        (
            [loop("outer")],
            computation("b", PERMUTE) + computation("outer", loop("b", FIVE.replace("5", "3"))),
            15,
        ),
        ([loop("outer", "")], computation("b", PERMUTE) + computation("outer", loop("b")), None),
        ([loop("outer")], computation("b", PERMUTE) + computation("outer", loop("b", "")), None),
        ([loop("b", name="w1"), loop("b", name="w2")], computation("b", PERMUTE), 10),
        ([loop("b", condition="c")], computation("b") + computation("c", PERMUTE), 6),
        (
            ["  %k = f32[4,8] conditional(%i, %a, %b), branch_computations={%first, %second}"],
            computation("first", "  %n = f32[4,8] negate(%p)") + computation("second", PERMUTE),
            1,
        ),
        (
            ["  %k = f32[4,8] conditional(%i, %a, %b), true_computation=%yes, false_computation=%no"],
            computation("yes", PERMUTE) + computation("no", "  %n = f32[4,8] negate(%p)"),
            1,
        ),
        (["  %k = f32[4,8] fusion(%p), kind=kCustom, calls=%f"], computation("f", PERMUTE), 1),
        (
            ["  %k = f32[4,8] call(%p), to_apply=%f", "  %l = f32[4,8] call(%k), to_apply=%f"],
            computation("f", PERMUTE),
            2,
        ),
        (
            [loop("b")],
            computation("f", PERMUTE)
            + computation("b", "  %k = f32[4,8] fusion(%p), kind=kCustom, calls=%f"),
            5,
        ),
        ([], computation("uncalled", PERMUTE), 1),
    ],
)
def test_trips(entry: list[str], before: str, trips: int | None) -> None:
    found = only(module(*entry, before=before))
    assert found.trips == trips
    assert wire_bytes(found) == 128 * (1 if trips is None else trips)


COUNTED = """\
%body (s: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {{
  %step = s32[]{{:T(128)}} constant({step})
  %s = (s32[]{{:T(128)}}, f32[4,8]{{1,0:T(8,128)}}) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%s), index=0
  %i.copy = s32[]{{:T(128)S(6)}} copy(%i)
  %v = f32[4,8]{{1,0:T(8,128)}} get-tuple-element(%s), index=1
  %c = f32[4,8]{{1,0:T(8,128)}} collective-permute(%v), source_target_pairs={{{{0,1}},{{1,0}}}}
  %next = s32[]{{:T(128)}} {add}(%i.copy, %step), metadata={{op_name="while/body/add"}}
  %next.copy = s32[]{{:T(128)}} copy(%next)
  ROOT %t = (s32[]{{:T(128)}}, f32[4,8]{{1,0:T(8,128)}}) tuple({handed}, %c)
}}

%condition (s: (s32[], f32[4,8])) -> pred[] {{
  %stop = s32[]{{:T(128)}} constant({stop})
  %s = (s32[]{{:T(128)}}, f32[4,8]{{1,0:T(8,128)}}) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%s), index=0
  ROOT %lt = pred[]{{:T(512)}} compare(%i, %stop), direction={direction}, metadata={{op_name="while/cond/lt"}}
}}

ENTRY %main (p: f32[4,8]) -> f32[4,8] {{
  %p = f32[4,8]{{1,0:T(8,128)}} parameter(0)
  %zero = s32[]{{:T(128)}} constant({start})
  %start = s32[]{{:T(128)}} copy(%zero)
  %t = (s32[]{{:T(128)}}, f32[4,8]{{1,0:T(8,128)}}) tuple({first}, %p)
  %w = (s32[]{{:T(128)}}, f32[4,8]{{1,0:T(8,128)}}) while(%t), condition=%condition, body=%body
  ROOT %r = f32[4,8]{{1,0:T(8,128)}} get-tuple-element(%w), index=1
}}
"""


@pytest.mark.parametrize(
    ("change", "trips"),
    [
        ({}, 5),
        ({"start": 2}, 3),
        ({"step": 2}, 3),
        ({"start": -3, "step": 4}, 2),
        ({"start": 9}, 0),
        ({"step": 0}, None),
        ({"step": -1}, None),
        ({"direction": "GT"}, None),
        ({"add": "multiply"}, None),
        ({"first": "%p"}, None),  # the start is no constant
        ({"handed": "%next.copy"}, 5),
        ({"handed": "%next.copy", "add": "multiply"}, None),
    ],
)
def test_counted_loops_without_a_noted_count(change: dict[str, Any], trips: int | None) -> None:
    """libtpu prints no known_trip_count."""
    parts = {"start": 0, "stop": 5, "step": 1, "direction": "LT", "add": "add", "first": "%start"}
    parts |= {"handed": "%next"} | change
    assert only(COUNTED.format(**parts)).trips == trips


def test_a_counter_that_is_another_tuples_element_is_not_counted() -> None:
    parts = {"start": 0, "stop": 5, "step": 1, "direction": "LT", "add": "add", "first": "%start"}
    parts["handed"] = "%next"
    text = COUNTED.format(**parts).replace("copy(%i)", "copy(%j)")
    text = text.replace("  %i.copy", "  %j = s32[] get-tuple-element(%inner), index=0\n  %i.copy", 1)
    text = text.replace("  %j =", "  %inner = (s32[], f32[4,8]) custom-call(%s)\n  %j =", 1)
    assert only(text).trips is None


# Bytes on the wire ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "groups", "pairs", "trips", "expected"),
    [
        ("all-reduce", Y_GROUPS, (), 1, 150.0),  # 2 * 3/4
        ("all-reduce", X_GROUPS, (), 1, 100.0),  # 2 * 1/2
        ("all-gather", Y_GROUPS, (), 1, 75.0),
        ("reduce-scatter", ALL, (), 1, 87.5),
        ("all-to-all", X_GROUPS, (), 1, 50.0),
        ("ragged-all-to-all", Y_GROUPS, (), 1, 75.0),
        ("all-gather", Y_GROUPS, (), 7, 525.0),
        ("all-gather", Y_GROUPS, (), None, 75.0),
        ("all-reduce", ((0,), (1,)), (), 1, 0.0),
        ("all-reduce", ((0, 1, 2, 3), (4,)), (), 1, 150.0),
        ("collective-permute", (), ((0, 1), (1, 0)), 3, 300.0),
        ("collective-permute", (), ((0, 0), (1, 1)), 1, 0.0),
        ("collective-permute", (), ((0, 0), (1, 2)), 1, 100.0),
        ("collective-permute", (), (), 1, 0.0),
        ("collective-broadcast", Y_GROUPS, (), 1, 100.0),
        ("collective-broadcast", ((0,),), (), 1, 0.0),
    ],
)
def test_wire_bytes(
    kind: str,
    groups: tuple[tuple[int, ...], ...],
    pairs: tuple[tuple[int, int], ...],
    trips: int | None,
    expected: float,
) -> None:
    assert wire_bytes(Collective(kind, 100, "f32", groups, pairs, trips)) == expected
