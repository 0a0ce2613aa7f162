# SPDX-License-Identifier: Apache-2.0
"""The judge compares exactly the shards that must exist: otherwise a shard that JAX does not list would pass."""

import signal
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from meshmark.core import interrupts
from meshmark.core.verdicts import worst
from meshmark.judge import checks
from meshmark.judge.checks import Judge, line_of_exception
from meshmark.operations import cases
from meshmark.operations.base import Missing
from meshmark.operations.selection import CAPABILITIES, CAPABILITY_PATTERNS

PLAIN, X64 = "psum/axes=x+y/manual/2x4/float32/4KiB", "psum/axes=x+y/manual/2x4/float64/4KiB"
CASES = ("psum/axes=x+y/manual/2x4/float32/4KiB", "put_get/to=x.y/host/2x4/float32/4KiB")


def one_less(shards):
    return shards[:-1]


def one_twice(shards):
    return [*shards, shards[0]]


def one_for_another(shards):
    return [shards[0], *shards[:-1]]


def none(shards):
    return []


def show(monkeypatch, change):
    """Every array shows its shards changed."""
    kind = type(jax.numpy.zeros(1))
    member = kind.addressable_shards  # a cached property in JAX's own class
    real = member.func if hasattr(member, "func") else member.fget
    monkeypatch.setattr(kind, "addressable_shards", property(lambda array: change(list(real(array)))))


@pytest.mark.parametrize("case_id", CASES)
@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (none, "8 of 8 devices of this process show no shard"),
        (one_less, "1 of 8 devices of this process show no shard"),
        (one_twice, "shows 2 shards instead of one"),
        (one_for_another, "1 of 8 devices of this process show no shard"),
    ],
)
def test_a_shard_that_is_not_shown_fails(monkeypatch, case_id, shown, reason):
    case, judge = cases.find(case_id, 8), Judge(tuple(jax.devices()))
    assert worst(line.verdict for line in judge.run(case)) == "pass"
    show(monkeypatch, shown)
    lines = {line.check: line for line in judge.run(case)}
    assert lines["numbers"].verdict == "fail" and reason in lines["numbers"].reason


def test_a_shard_of_a_device_outside_the_mesh_fails(monkeypatch):
    """A sub-mesh of six devices whose output shows a shard on the eighth as well."""
    case, judge = cases.find("psum/axes=x+y/manual/2x3/float32/4KiB", 8), Judge(tuple(jax.devices()))
    whole = jax.numpy.zeros(case.plan.results[0].shape)
    stray = jax.device_put(whole, jax.devices()[7]).addressable_shards
    show(monkeypatch, lambda shards: [*shards, *stray])
    lines = {line.check: line for line in judge.run(case)}
    assert "not a device of the mesh" in lines["numbers"].reason, lines


@pytest.mark.parametrize(
    ("case", "error", "verdict"),
    [
        (X64, NotImplementedError("sabotaged"), "error"),
        (X64, NotImplementedError(), "error"),
        ("pmax/axes=y,groups=interleaved/manual/2x4/float32/4KiB", NotImplementedError(), "error"),
        ("psum/axes=y,groups=interleaved/manual-novma/2x4/float32/4KiB", NotImplementedError(), "error"),
        (X64, NotImplementedError("float64 is not supported by this backend"), "unsupported"),
        (X64, RuntimeError("UNIMPLEMENTED: F64 all-reduce"), "unsupported"),
        (X64, RuntimeError("float64 went wrong"), "error"),
        (PLAIN, NotImplementedError("float64 is not supported by this backend"), "error"),
        (PLAIN, Missing("needs two processes"), "unsupported"),
    ],
)
def test_unsupported_is_what_the_capability_s_own_message_says(case, error, verdict):
    assert line_of_exception(cases.find(case, 8), error).verdict == verdict


def test_every_capability_has_words_of_its_own():
    assert CAPABILITY_PATTERNS.keys() == CAPABILITIES.keys()


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
def test_whatever_a_case_raises_is_its_verdict(monkeypatch, error):
    def raises(self, case):
        raise error

    monkeypatch.setattr(Judge, "_program", raises)
    before = signal.signal(signal.SIGINT, interrupts.interrupt)
    try:
        (line,) = Judge(tuple(jax.devices())).run(cases.find(PLAIN, 8))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (line.check, line.verdict) == ("execute", "error")
    assert line.reason.startswith(f"{type(error).__name__}: ")


def fail_late():
    """A program over all devices returns before its callback fails, and nobody waits for it. (A program of one device
    may run in the thread that calls it, and raise there.)"""

    def fails(_):
        time.sleep(0.1)
        raise ValueError("told by the callback")

    parted = NamedSharding(jax.make_mesh((jax.device_count(),), ("d",)), PartitionSpec("d"))
    rows = jax.device_put(np.arange(jax.device_count(), dtype=np.float32), parted)
    jax.jit(lambda x: jax.debug.callback(fails, x))(rows)


def test_a_callback_that_fails_late_is_the_failure_of_its_own_case(monkeypatch):
    def starts_it(self, case):
        fail_late()
        return iter(())

    judge = Judge(tuple(jax.devices()))
    with monkeypatch.context() as patch:
        patch.setattr(Judge, "_program", starts_it)
        (line,) = judge.run(cases.find(PLAIN, 8))
    assert (line.check, line.verdict) == ("execute", "error") and "callback" in line.reason
    jax.effects_barrier()  # nothing is left for the next case
    assert {line.verdict for line in judge.run(cases.find(PLAIN, 8))} == {"pass"}


def test_a_callback_that_failed_outside_of_any_case_is_no_failure_of_the_next_one():
    fail_late()
    assert {line.verdict for line in Judge(tuple(jax.devices())).run(cases.find(PLAIN, 8))} == {"pass"}


@pytest.mark.parametrize("error", [interrupts.Interrupted(), interrupts.Terminated()])
def test_what_comes_from_outside_ends_the_run(monkeypatch, error):
    def raises(self, case):
        raise error

    monkeypatch.setattr(Judge, "_program", raises)
    with pytest.raises(type(error)):
        Judge(tuple(jax.devices())).run(cases.find(PLAIN, 8))


@pytest.mark.parametrize(("traced", "verdict"), [(True, "error"), (False, "unsupported")])
def test_a_sum_over_groups_without_a_word_is_unsupported_only_where_a_probe_finds_none(
    monkeypatch, traced, verdict
):
    monkeypatch.setattr(checks, "has_grouped_sums", lambda: traced)
    case = cases.find("psum/axes=y,groups=interleaved/manual/2x4/float32/4KiB", 8)
    assert line_of_exception(case, NotImplementedError()).verdict == verdict


class Counting:
    """A compiled program that counts its calls."""

    def __init__(self, compiled, calls):
        self.compiled, self.calls = compiled, calls

    def __call__(self, *inputs):
        self.calls.append(1)
        return self.compiled(*inputs)

    def __getattr__(self, name):
        return getattr(self.compiled, name)


@pytest.mark.parametrize("seen", ["right", "wrong", "deviating"])
def test_over_several_processes_what_runs_does_not_hang_on_what_one_saw(monkeypatch, seen):
    """One rank that sees a wrong number must call as often as the others, who wait for it in the collective."""
    chosen = cases.cases(cases.Selection("smoke", operations=("psum",), modes=("manual",)), 8)
    case = next(iter(chosen))
    calls, compile_of, judged = [], checks.Program.compile, checks.outputs_lines
    monkeypatch.setattr(checks.calls, "is_called_again", lambda case, seed: True)
    monkeypatch.setattr(checks.Program, "compile", lambda program: Counting(compile_of(program), calls))

    def changed(*arguments):
        lines = judged(*arguments)
        if seen != "right" and len(calls) < 2:
            lines[0].verdict = "fail"
        return lines

    monkeypatch.setattr(checks, "outputs_lines", changed)
    if seen == "deviating":
        monkeypatch.setattr(
            checks.deviations, "find_deviation", lambda *arguments: SimpleNamespace(why="planted")
        )
    lines = Judge(tuple(jax.devices()), meeting=lambda case, collectives: "").run(case)
    assert len(calls) == 3, "one call, and two more beside each other"
    assert worst(line.verdict for line in lines) == ("pass" if seen == "right" else "fail")
