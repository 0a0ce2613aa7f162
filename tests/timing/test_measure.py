# SPDX-License-Identifier: Apache-2.0
"""The measuring core: it refuses what is wrong, takes turns, keeps to its budget, and its stream does the work."""

import itertools
import random
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from meshmark.judge.checks import Judge
from meshmark.operations import OPERATIONS, cases
from meshmark.timing import ceilings, device_time, measure
from meshmark.timing.measure import Budget, Wrong, prepare, sample, sample_in_rounds, stream

pytestmark = pytest.mark.usefixtures("frozen_heap")

PSUM = "psum/axes=x+y/{}/2x4/float32/4KiB"


@pytest.fixture(scope="module")
def judge():
    return Judge(tuple(jax.devices()))


def prepared(judge, case_id):
    return prepare(cases.find(case_id, 8), judge.devices, judge=judge)


@pytest.mark.parametrize("mode", ["auto", "explicit", "manual"])
def test_what_is_timed_was_verified_and_counted(judge, mode):
    p = prepared(judge, PSUM.format(mode))
    assert p.verified and p.compile_s > 0 and p.lower_s > 0
    assert {line.check for line in p.lines} >= {"numbers", "replicas", "sharding", "communication", "execute"}
    assert p.counters["collectives"] == 1 and p.counters["wire_bytes"] == 2 * 7 / 8 * 4096
    assert p.counters["argument_bytes"] == 4096 and p.counters["temp_bytes"] is not None
    np.testing.assert_array_equal(np.asarray(p.run()), np.asarray(p.inputs[0][0]).sum(axis=0, keepdims=True))
    assert 0 < p.sample() < 10


def test_wrong_values_are_never_timed(judge):
    def off(x, *, axes, groups):
        return lax.psum(x, axes) + 1

    with patch.object(type(OPERATIONS["psum"]), "manual", staticmethod(off)), pytest.raises(Wrong) as caught:
        prepared(judge, PSUM.format("manual"))
    assert "numbers: " in str(caught.value) and "elements differ" in str(caught.value)
    assert "fail" in {line.verdict for line in caught.value.lines}


def test_what_raises_is_not_timed(judge):
    def breaks(x):
        raise ValueError("no such thing")

    with (
        patch.object(type(OPERATIONS["psum"]), "auto", staticmethod(breaks)),
        pytest.raises(Wrong, match="no such"),
    ):
        prepared(judge, PSUM.format("auto"))


def test_a_host_call_is_timed_too(judge):
    p = prepared(judge, "device_put/from=x.y,to=y.x/host/2x4/float32/4KiB")
    assert p.program is None and p.verified and p.sample() > 0


@pytest.mark.parametrize(
    ("case_id", "few", "many", "times"),
    [
        *((PSUM.format(mode), 4, 404, 7) for mode in ("auto", "explicit", "manual")),
        ("matmul/rows=x+y,check=exact/auto/2x4/float32/n256", 4, 404, 7),
        ("data_parallel/batch=x+y/explicit/2x4/float32/n8", 1, 5, 3),  # one call has a hundred steps
    ],
)
def test_a_stream_takes_as_long_as_its_calls(judge, case_id, few, many, times):
    s = stream(prepared(judge, case_id), judge, seconds=0.005)
    assert s.compile_s > 0 and 1 <= s.count <= measure.LONGEST_STREAM

    def least(count):
        s.count = count
        return min(s.sample() for _ in range(times)) * count

    # That many calls more take longer than the scheduler of a busy machine adds to a few.
    assert least(many) > 1.5 * least(few)


@pytest.mark.parametrize("mode", ["auto", "explicit", "manual"])
def test_a_stream_on_one_device_keeps_the_sharding(mode):
    """XLA calls every result on one device whole, where no sharding is asked for."""
    case = cases.find(f"matmul/rows=x+y,check=exact/{mode}/1x1/float32/n256", 1)
    one = Judge((jax.devices()[0],))
    assert stream(prepare(case, one.devices, judge=one), one).compiled is not None


def test_a_stream_that_communicates_otherwise_is_refused(judge):
    p = prepared(judge, PSUM.format("manual"))
    asked = type(p.program).function
    extra = lambda self: lambda x: asked(self)(x) + 0 * asked(self)(x + 1)  # noqa: E731
    with (
        patch.object(type(p.program), "function", extra),
        pytest.raises(Wrong, match="communicates differently"),
    ):
        stream(p, judge)


def test_a_stream_of_wrong_values_is_refused(judge):
    p = prepared(judge, PSUM.format("manual"))
    asked = type(p.program).function
    off = lambda self: lambda x: asked(self)(x) + 1  # noqa: E731
    with patch.object(type(p.program), "function", off), pytest.raises(Wrong, match="its stream: numbers"):
        stream(p, judge)


def test_a_stream_without_its_work_is_refused(judge):
    """Work that does not depend on the call before is taken out of the loop, and the clock shows it."""
    p = prepared(judge, "matmul/rows=x+y,check=exact/auto/2x4/float32/n64")
    taken = iter([2.0, 2.0, 0.01])
    with (
        patch.object(measure.Stream, "sample", lambda self: next(taken, 1e-4)),
        patch.object(measure.Prepared, "sample", lambda self: 1.0),
        pytest.raises(Wrong, match="was elided"),
    ):
        stream(p, judge)


HOLLOW = [
    PSUM.format("manual"),
    "all_gather/axes=x+y,dim=0,tiled/auto/2x4/float32/4KiB",
    "matmul/rows=x+y,check=exact/auto/2x4/float32/n64",
    "mlp/batch=x,model=y/explicit/2x4/float32/n8",
    "attention/batch=x,sequence=y/manual/2x4/float32/n8",
]


@pytest.mark.parametrize("case_id", HOLLOW)
def test_a_stream_without_its_barrier_is_refused(judge, case_id):
    """The planted fault: XLA takes the work out of the loop, and the values stay right."""
    p = prepared(judge, case_id)
    with (
        patch.object(lax, "optimization_barrier", lambda x: x),
        pytest.raises(Wrong, match=r"its stream (does|is not|comm)"),
    ):
        measure.verify_stream(p, judge)
    assert measure.verify_stream(p, judge).compiled


@pytest.mark.parametrize("case_id", HOLLOW)
def test_work_outside_the_loop_is_refused(judge, case_id):
    """The barrier covers what comes out and not what goes in: a loop stays, and the work stands before it."""
    p = prepared(judge, case_id)
    real = lax.optimization_barrier

    def outputs_only(carry):
        inputs, outputs = carry
        return inputs, real(outputs)

    with (
        patch.object(lax, "optimization_barrier", outputs_only),
        pytest.raises(Wrong, match=r"outside its loop|differently"),
    ):
        measure.verify_stream(p, judge)


@pytest.mark.parametrize("planted", ["half", "one", "branch"])
def test_a_loop_that_runs_less_often_is_refused(judge, planted):
    """The loop's own bound is not the argument, or the work is in a branch that is seldom taken."""
    p = prepared(judge, "matmul/rows=x+y,check=exact/auto/2x4/float32/n64")
    real = lax.fori_loop

    def fori_loop(start, stop, body, carry):
        if planted == "branch":
            return real(start, stop, lambda i, c: lax.cond(i < 3, lambda: body(i, c), lambda: c), carry)
        return real(start, stop // 2 + 1 if planted == "half" else jnp.minimum(stop, 2), body, carry)

    with (
        patch.object(measure.lax, "fori_loop", fori_loop),
        pytest.raises(Wrong, match=r"not counted|branch"),
    ):
        measure.verify_stream(p, judge)


def test_a_program_without_collectives_and_contractions_is_held_by_its_effort(judge):
    p = prepared(judge, "ppermute/axes=x,perm=identity/manual/1/float32/4KiB")
    alone = p.called.as_text()
    streamed = measure.verify_stream(p, judge).compiled.as_text()
    assert measure.hollow(alone, streamed, 1) == ""
    x = jnp.ones((64, 64))
    call = jax.jit(lambda x: jnp.sin(jnp.cos(x) + 1) * x).lower(x).compile().as_text()

    def loop(count, x, barrier=lax.optimization_barrier):
        def body(_, carry):
            x, _ = barrier(carry)
            return x, jnp.sin(jnp.cos(x) + 1) * x

        return lax.fori_loop(0, count, body, (x, x))[1]

    good = jax.jit(loop).lower(jnp.int32(1), x).compile().as_text()
    assert measure.hollow(call, good, 1) == ""
    empty = jax.jit(lambda n, x: lax.fori_loop(0, n, lambda _, x: lax.optimization_barrier(x + 1), x))
    assert "does less" in measure.hollow(call, empty.lower(jnp.int32(1), x).compile().as_text(), 1)


class Clock:
    """A timer that takes what it is told, and notes whose turn it was."""

    turns: ClassVar[list[str]] = []

    def __init__(self, name, times):
        self.name, self.times = name, itertools.cycle(times)

    def sample(self):
        Clock.turns.append(self.name)
        return next(self.times)


def test_timers_take_turns_in_random_order():
    Clock.turns = []
    timers = [Clock(name, [1.0, 2.0]) for name in "abc"]
    samples = sample(timers, Budget(seconds=60, least=5, most=30), random.Random(0))
    assert [len(s) for s in samples] == [30, 30, 30]
    turns = Clock.turns[-90:]
    rounds = ["".join(turns[i : i + 3]) for i in range(0, 90, 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds) and len(set(rounds)) == 6


def test_sampling_does_not_end_because_an_interval_looks_narrow():
    (samples,) = sample([Clock("a", [1.0])], Budget(seconds=2000, least=10, most=1000), random.Random(0))
    assert len(samples) == 1000


@pytest.mark.parametrize(
    ("seconds", "least", "most", "number"),
    [
        (12, 5, 1000, 9),
        (12.1, 5, 1000, 9),
        (11.9, 5, 1000, 8),
        (1, 5, 1000, 5),
        (100, 5, 7, 7),
        (1, 1, 1000, 2),
    ],
)
def test_sampling_ends_when_the_samples_have_spent_the_time(seconds, least, most, number):
    (samples,) = sample([Clock("a", [1.0, 2.0])], Budget(seconds, least, most), random.Random(0))
    assert len(samples) == number


def test_each_program_adds_to_the_time_and_each_sample_counts_with_its_calls():
    short, long = Clock("a", [1.0]), Clock("b", [2.0])
    long.count = 4
    taken = sample_in_rounds([short, long], Budget(seconds=45, least=1), random.Random(0))
    assert [len(own) for own in taken.samples] == [11, 11], "11 rounds of 9 s are the first that exceed 90 s"


def test_rounds_hold_their_samples():
    class Slow(Clock):
        def sample(self):
            start = measure.perf_counter()
            while (now := measure.perf_counter()) < start + 0.002:
                pass
            return now - start

    taken = sample_in_rounds([Slow("a", [0]), Slow("b", [0])], Budget(0.02, 5, 1000), random.Random(0))
    assert taken.rounds[0] == 0 and len(taken.rounds) == len(taken.samples[0]) + 1
    lengths = [after - before for before, after in itertools.pairwise(taken.rounds)]
    assert all(sum(own) <= length for *own, length in zip(*taken.samples, lengths, strict=True))


def test_ceilings_are_rates_of_what_was_done():
    found = list(ceilings.measure_ceilings(jax.devices()[:2], dtypes=("float32",)))
    assert [(c["name"], c["unit"], c["devices"]) for c in found] == [
        ("copy bandwidth", "B/s", 2),
        ("largest matmul", "FLOP/s", 2),
    ]
    copied, product = found
    assert copied["value"] == pytest.approx(
        2 * ceilings.COPIES * 2 * copied["nbytes"] / min(copied["samples_s"])
    )
    assert product["value"] == pytest.approx(2 * 2 * product["n"] ** 3 / min(product["samples_s"]))
    x = jnp.arange(8.0)
    np.testing.assert_array_equal(ceilings._copies(x, ceilings.COPIES), x)
    np.testing.assert_array_equal(ceilings._copies(x, 3), -x)

    def least(count):
        many = jnp.ones((8, 2**16))
        return min(ceilings._samples(jax.jit(ceilings._copies), many, jnp.int32(count)))

    assert least(1600) > 4 * least(160)  # no pass is saved: ten times the copies, near ten times as long


def test_device_time_is_an_error_where_the_backend_has_none(judge):
    with pytest.raises(device_time.NoDeviceTime, match="gives no device time"):
        device_time.measure_device_time(prepared(judge, PSUM.format("auto")), Budget(least=1))


class Named:
    def __init__(self, name, **fields):
        self.name = name
        self.__dict__.update(fields)


def event(start, duration):
    return Named("e", start_ns=start, duration_ns=duration)


def test_device_time_of_modules_and_of_streams():
    tpu = Named("/device:TPU:0", lines=[
        Named("XLA Modules", events=[event(5, 2_000_000)]), Named("XLA Ops", events=[event(5, 9e9)]),
    ])  # fmt: skip
    gpu = Named("/device:GPU:1", lines=[
        Named("Stream #1(Compute)", events=[event(1_000, 500), event(3_000, 1_000)]),
        Named("Stream #2(MemcpyD2D)", events=[event(2_000, 4_000)]),
        Named("Launch Stats", events=[event(0, 1e9)]),
    ])  # fmt: skip
    host = Named("/host:CPU", lines=[Named("python", events=[event(0, 1)])])
    spans = device_time.device_spans([tpu, gpu, host])
    assert {name: span.busy for name, span in spans.items()} == pytest.approx(
        {"/device:TPU:0": 2e-3, "/device:GPU:1": 4.5e-6}
    )
    assert spans["/device:GPU:1"].stop - spans["/device:GPU:1"].start == pytest.approx(5e-6)
    with pytest.raises(device_time.NoDeviceTime, match="/device:GPU:2 has no event"):
        device_time.device_spans([tpu, Named("/device:GPU:2", lines=[Named("Launch Stats", events=[])])])


def test_launch_skew_is_apart_from_the_time_on_the_wire():
    """A stored trace: the second device starts 300 us late, and the first one's own time holds the wait."""
    text = (Path(__file__).parent / "traces" / "late_device.textproto").read_text()
    planes = list(jax.profiler.ProfileData.from_text_proto(text).planes)
    spans = device_time.device_spans(planes)
    assert [span.busy for span in spans.values()] == pytest.approx([900e-6, 650e-6], abs=1e-6)
    skew, wire = device_time.apart(list(spans.values()))
    assert (skew, wire) == (pytest.approx(300e-6, abs=1e-6), pytest.approx(650e-6, abs=1e-6))
    assert device_time.apart([device_time.Span(0.0, 1e-3, 5e-4)]) == (0.0, 1e-3)


def test_the_gaps_between_kernels_are_the_profilers():
    """The trace of a product of 256x256 as an H100 gave it: two kernels of 3.3 and 1.5 us, 72 us apart."""
    gpu = Named("/device:GPU:0", lines=[
        Named("Stream #14(Compute)", events=[event(19963653.0, 3264.0), event(20035717.0, 1504.0)])
    ])  # fmt: skip
    [span] = device_time.device_spans([gpu, Named("/host:CPU", lines=[])]).values()
    assert span.busy == pytest.approx(4.768e-6, rel=1e-6) and span.stop == pytest.approx(73.568e-6, rel=1e-6)
    assert device_time.union([(0, 4), (1, 2), (3, 6), (8, 9)]) == 7 and device_time.union([]) == 0


def test_a_kernel_is_as_long_in_a_trace_that_counts_from_1970():
    """A sum of both would be rounded to 256 ns."""
    gpu = Named("/device:GPU:0", lines=[Named("Stream #1(Compute)", events=[event(1.7e18, 1180.0)])])
    [span] = device_time.device_spans([gpu]).values()
    assert span.busy == pytest.approx(1.18e-6, rel=1e-9) and span.start == 0.0
