# SPDX-License-Identifier: Apache-2.0
"""Judging without running. Most tests compile for the CPU instead of a topology, so that no libtpu is needed."""

import json
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import patch

import jax
import pytest
from jax import lax

from meshmark.core.verdicts import Line, worst
from meshmark.devices import topologies
from meshmark.judge import compile_only
from meshmark.judge.compile_only import CompileOnly, across_slices, memory, round_trips, transfers
from meshmark.operations import cases, record_lines
from meshmark.operations.selection import Selection
from meshmark.records import reading
from meshmark.report import summary

V5E = topologies.parse_topology("v5e:2x4")
needs_libtpu = pytest.mark.skipif(find_spec("libtpu") is None, reason="needs libtpu (the extra `tpu`)")
needs_flatbuffers = pytest.mark.skipif(find_spec("flatbuffers") is None, reason="needs flatbuffers")


@pytest.fixture
def on_cpu(monkeypatch):
    """CPU devices take the place of every topology's."""
    monkeypatch.setattr(topologies, "devices", lambda *_: tuple(jax.devices()))


def judged(case_id, **options):
    return CompileOnly(V5E, **options).run(cases.find(case_id, 8))


def by_check(lines):
    return {line.check: line for line in lines}


@pytest.mark.parametrize("mode", ["auto", "explicit", "manual", "pmap"])
def test_what_is_checked_passes_and_what_would_run_is_not_run(on_cpu, mode):
    mesh = "8" if mode == "pmap" else "2x4"
    axes = "x" if mode == "pmap" else "x+y"
    lines = by_check(judged(f"psum/axes={axes}/{mode}/{mesh}/float32/4KiB"))
    assert {c for c, line in lines.items() if line.verdict == "pass"} == {
        *("compile", "sharding", "communication", "memory", "host", "numbers", "replicas")
    }
    assert {c for c, line in lines.items() if line.verdict == "not_run"} == {"execute"}
    assert worst(line.verdict for line in lines.values()) == "not_run"
    assert lines["compile"].data["compile_s"] > 0
    assert {c for c, line in lines.items() if line.data.get("interpreted")} == {"numbers", "replicas"}


def test_a_gradient_is_interpreted_under_its_own_name(on_cpu):
    lines = by_check(judged("mlp_gradient/batch=x,model=y/auto/2x4/float32/n64"))
    assert lines["gradient"].verdict == "pass"
    assert lines["gradient"].data["interpreted"] is True
    assert "numbers" not in lines


def test_an_exception_is_an_error_of_execute(on_cpu):
    def broken(*_, **__):
        raise ValueError("no such thing")

    with patch.object(lax, "psum", broken):
        lines = judged("psum/axes=x+y/manual/2x4/float32/4KiB")
    assert [(line.check, line.verdict) for line in lines] == [("execute", "error")]


def test_an_ignored_output_sharding_fails(on_cpu):
    real = jax.jit
    with patch.object(jax, "jit", lambda f, **_: real(f)):
        lines = by_check(judged("reshard/from=x.y,to=y.x/auto/2x4/float32/4KiB"))
    assert lines["sharding"].verdict == "fail"
    assert "instead of [" in lines["sharding"].reason


def test_a_wrong_type_while_tracing_fails(on_cpu):
    real = jax.typeof

    def typeof(x):
        seen = real(x)
        return SimpleNamespace(sharding=SimpleNamespace(spec=(None,) * len(seen.shape)))

    with patch.object(jax, "typeof", typeof):
        lines = by_check(judged("all_to_all/axes=x+y,split=0,concat=1,tiled/explicit/2x4/float32/4KiB"))
    assert "while tracing" in lines["sharding"].reason


def test_another_result_fails(on_cpu):
    case = cases.find("psum/axes=x+y/manual/2x4/float32/4KiB", 8)
    wrong = SimpleNamespace(shape=(1,), dtype=SimpleNamespace(name="float32"))
    lowered = SimpleNamespace(out_info=[wrong])
    compiled = SimpleNamespace(output_shardings=[object()])
    line = compile_only.check_promises(case, (), case.plan.results, lowered, compiled, ())
    assert line.verdict == "fail"
    assert "instead of float32" in line.reason


def test_committed_counters_are_compared(on_cpu):
    case = "psum/axes=x+y/manual/2x4/float32/4KiB"
    line = by_check(judged(case, counters={case: "1 all-gather 4096B 1x8"}))["communication"]
    assert line.verdict == "fail"
    assert "committed counters" in line.reason


@needs_flatbuffers
@pytest.mark.parametrize(
    "case", ["psum/axes=x+y/manual/2x4/float32/4KiB", "axis_index/axes=x+y/manual/2x4/int32/4B"]
)
def test_export_for_other_platforms(on_cpu, case):
    lines = [line for line in judged(case, exports=("tpu", "cuda")) if line.check == "export"]
    assert [(line.verdict, line.data["platform"]) for line in lines] == [("pass", "tpu"), ("pass", "cuda")]
    assert all(line.data["export_bytes"] > 100 for line in lines)


@needs_flatbuffers
def test_export_fails_where_another_program_is_read_back(on_cpu):
    from jax import export

    real, kept = export.deserialize, []

    def first(data):
        kept.append(data)
        return real(kept[0])

    with patch.object(export, "deserialize", first):
        judge = CompileOnly(V5E, exports=("tpu",))
        fine = by_check(judge.run(cases.find("pmax/axes=x+y/manual/2x4/float32/4KiB", 8)))
        other = by_check(judge.run(cases.find("pmin/axes=x+y/manual/2x4/float32/4KiB", 8)))
    assert fine["export"].verdict == "pass"
    assert "another one" in other["export"].reason


# Memory ------------------------------------------------------------------------------------------------------


def needing(arguments=0, outputs=0, temporaries=0, aliased=0):
    found = SimpleNamespace(
        argument_size_in_bytes=arguments,
        output_size_in_bytes=outputs,
        temp_size_in_bytes=temporaries,
        alias_size_in_bytes=aliased,
    )
    return SimpleNamespace(memory_analysis=lambda: found)


GIB = 2**30


@pytest.mark.parametrize(
    ("name", "needs", "verdict"),
    [
        ("v5e:2x4", needing(6 * GIB, 6 * GIB, 4 * GIB), "pass"),
        ("v5e:2x4", needing(6 * GIB, 6 * GIB, 4 * GIB + 1), "fail"),
        (
            "v5e:2x4",
            needing(10 * GIB, 10 * GIB, 6 * GIB, 10 * GIB),
            "pass",
        ),  # outputs in the place of arguments
        ("tpu7x:2x2x1", needing(96 * GIB), "pass"),  # half of the chip's 192 GiB
        ("tpu7x:2x2x1", needing(96 * GIB + 1), "fail"),
        ("h100:8", needing(80 * 10**9), "pass"),
        ("h100:8", needing(80 * 10**9 + 1), "fail"),
    ],
)
def test_memory_of_a_device(name, needs, verdict):
    line = memory(topologies.parse_topology(name), needs)
    assert line.verdict == verdict
    assert ("needs" in line.reason) == (verdict == "fail")


# Round trips over the host ------------------------------------------------------------------------------------

CLEAN = """\
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8,128]{1,0:T(8,128)})->f32[8,128]{1,0:T(8,128)}}
ENTRY %main (p: f32[8,128]) -> f32[8,128] {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0), metadata={op_name="infeed(x) send(y), is_host_transfer=true S(5)"}
  %send.1 = f32[8,128]{1,0:T(8,128)S(1)} copy(%p)
  %cc = f32[8,128]{1,0:T(8,128)} custom-call(%send.1), custom_call_target="ResizeBuffer"
  ROOT %r = f32[8,128]{1,0:T(8,128)} add(%cc, %cc)
}
"""


def transformed(name):
    """A case of a transformation: one that calls the host, or another."""
    chosen = cases.cases(Selection(operations=("transform",)), 8)
    return next(case for case in chosen if f"transform={name}," in case.id)


def test_a_program_that_stays_on_the_device():
    assert round_trips(CLEAN) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%i = ((f32[8]{0}), token[]) infeed(%token)", "infeed"),
        ("%o = token[] outfeed(%p, %token), outfeed_shape=f32[8]{0}", "outfeed"),
        ("%s = (f32[8]{0}, u32[], token[]) send(%p, %token), channel_id=1, is_host_transfer=true", "send"),
        ("%v = (f32[8]{0}, u32[], token[]) recv(%token), channel_id=1, is_host_transfer=true", "recv"),
        ('%c = f32[8]{0} custom-call(%p), custom_call_target="xla_ffi_python_gpu_callback"', "python_gpu"),
        ('%c = f32[8]{0} custom-call(%p), custom_call_target="MoveToHost"', "MoveToHost"),
        ("%h = f32[8,128]{1,0:T(8,128)S(5)} copy(%p)", "host memory"),
        ("%h = (f32[8]{0:T(128)S(5)}, f32[8]{0}, u32[]) copy-start(%p)", "host memory"),
        ('%a = ((f32[8]{0}), f32[8]{0}) call-start(%p), async_execution_thread="host"', "on the host"),
    ],
)
def test_what_leaves_the_device(line, said):
    text = CLEAN.replace("  ROOT", f"  {line}\n  ROOT")
    assert any(said in found for found in round_trips(text))
    assert compile_only.host(transformed("vjp"), text).verdict == "fail"
    assert compile_only.host(transformed("debug_callback"), text).verdict == "pass"


def test_a_callback_that_the_compiler_dropped():
    line = compile_only.host(transformed("debug_callback"), CLEAN)
    assert (line.verdict, line.reason) == ("fail", "the program never calls the host")


def test_an_argument_in_host_memory():
    assert round_trips(CLEAN.replace("->f32[8,128]{1,0:T(8,128)}", "->f32[8,128]{1,0:T(8,128)S(5)}"))


# Several slices, from the text that libtpu 0.0.52 compiles for 2xv5e:2x2 ---------------------------------------

TO_ANOTHER_SLICE = CLEAN.replace(
    "  ROOT",
    "  %send = (f32[4,4,128]{2,1,0:T(4,128)}, u32[]{:S(2)}, token[]) send(%b, %after-all), channel_id=2,"
    ' is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",'
    '_xla_megascale_target="{1,2}x{0:3}",_xla_megascale_transfer_type="ALL_REDUCE"}\n  ROOT',
)


def test_what_goes_to_another_slice_is_counted_and_no_round_trip():
    assert transfers(TO_ANOTHER_SLICE) == (1, 4 * 4 * 128 * 4)
    assert round_trips(TO_ANOTHER_SLICE) == []
    assert transfers(CLEAN) == (0, 0)


@pytest.mark.parametrize(
    ("case", "text", "verdict"),
    [
        ("psum/axes=x+y/manual/2x4/float32/4KiB", TO_ANOTHER_SLICE, "not_run"),
        ("psum/axes=x+y/manual/2x4/float32/4KiB", CLEAN, "fail"),  # x is the axis between the slices
        ("psum/axes=x+y/auto/2x4/float32/4KiB", CLEAN, "fail"),
        ("psum/axes=y/manual/2x4/float32/4KiB", CLEAN, "not_run"),
        ("psum/axes=y/manual/2x4/float32/4KiB", TO_ANOTHER_SLICE, "fail"),  # within a slice: nothing to send
        ("psum/axes=y/auto/2x4/float32/4KiB", TO_ANOTHER_SLICE, "not_run"),
    ],
)
def test_slices_must_be_connected_where_that_was_asked_for(case, text, verdict):
    found = across_slices(
        cases.find(case, 8),
        topologies.parse_topology("2xv5e:2x2"),
        Line("communication", data={"excess_bytes": 1}),
        text,
    )
    assert found.verdict == verdict
    assert "excess_bytes" not in found.data


# What a run says --------------------------------------------------------------------------------------------


def test_not_run_is_told_apart_and_never_counted_as_passed(on_cpu):
    case = cases.find("psum/axes=x+y/manual/2x4/float32/4KiB", 8)
    lines = record_lines.case_lines(case, CompileOnly(V5E).run(case), 0, 0.1)
    said = "\n".join(summary.closing({case.id: reading.Judged(case.id, lines)}))
    assert "L1 (interpreted): numbers of 1 of 1 pass, nothing ran" in said and "0 of 1 pass" not in said
    assert "memory 1 pass" in said
    assert "numbers (interpreted) 1 pass" in said and "execute 1 not_run" in said and "1 interpreted" in said


# What follows needs the compilers. ----------------------------------------------------------------------------------


def fault_names():
    from tests.studies.topology_faults import CATALOGUE

    return CATALOGUE


@pytest.mark.parametrize("name", fault_names())
def test_a_fault_that_only_a_topology_shows(name, compiling):
    from tests.studies.topology_faults import CATALOGUE, installed, try_out

    if why := installed(CATALOGUE[name]):
        pytest.skip(why)
    topologies.prepare_environment(CATALOGUE[name].topology)
    seen = try_out(CATALOGUE[name])
    assert not seen.on_cpu
    assert not seen.without
    assert CATALOGUE[name].check in [line.check for line in seen.caught]


@needs_libtpu
def test_a_run_over_two_topologies_is_recorded_and_resumed(tmp_path):
    file = tmp_path / "run.jsonl"

    def run(*options):
        command = [sys.executable, "-m", "pytest", "conformance", "-q", "-n", "1", "--profile", "smoke"]
        command += ["--operations", "psum", "--topology", "v5e:2x4,v6e:2x2", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    done = run("--record", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "together 6 cases: 6 not_run" in done.stdout
    read = reading.read_records(file)
    assert not read.problems
    assert {case.partition("@")[2] for case in read.cases} == {"v5e:2x4", "v6e:2x2"}
    assert {line["topology"] for judged in read.cases.values() for line in judged.lines} == {
        "v5e:2x4",
        "v6e:2x2",
    }
    assert read.runs[0]["facts"]["compiler"]["libtpu"]
    cut = file.read_text().splitlines(keepends=True)
    last = json.loads(cut[-1])["case"]
    file.write_text("".join(line for line in cut if f'"case":"{last}"' not in line))
    again = run("--resume", str(file))
    assert again.returncode == 0, again.stdout + again.stderr
    assert "together 6 cases: 6 not_run" in again.stdout
    assert "1 skipped" in again.stdout
