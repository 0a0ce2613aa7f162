# SPDX-License-Identifier: Apache-2.0
"""Things around a run that change numbers: settings of JAX, replaced functions, compiled programs from a disk."""

import functools
import json
import os
import subprocess
import sys
import time
import types

import jax
import numpy as np
import pytest

from meshmark.devices import frozen, probe, surroundings
from meshmark.devices.facts import Facts
from meshmark.pytest_plugin.judging import unchanged
from meshmark.records import reading, run_line
from meshmark.timing import timer
from tests.checkout import ROOT

pytestmark = pytest.mark.e2e

CHANGES = {
    "JAX_DEFAULT_MATMUL_PRECISION": ("float32", "jax_default_matmul_precision"),
    "JAX_NUMPY_RANK_PROMOTION": ("warn", "jax_numpy_rank_promotion"),
    "JAX_DISABLE_JIT": ("1", "jax_disable_jit"),
    "JAX_ENABLE_X64": ("1", "jax_enable_x64"),
    "JAX_NUMPY_DTYPE_PROMOTION": ("strict", "jax_numpy_dtype_promotion"),
    "JAX_DEBUG_NANS": ("1", "jax_debug_nans"),
    "JAX_USE_SHARDY_PARTITIONER": ("0", "jax_use_shardy_partitioner"),
    "JAX_DEFAULT_PRNG_IMPL": ("rbg", "jax_default_prng_impl"),
    "JAX_THREEFRY_PARTITIONABLE": ("0", "jax_threefry_partitionable"),
    "JAX_RANDOM_SEED_OFFSET": ("3", "jax_random_seed_offset"),
    "JAX_OPTIMIZATION_LEVEL": ("O0", "jax_optimization_level"),
}
"""Variables that change numbers or programs, a value, and the setting."""

SAYS = "import json, jax; from meshmark.devices import surroundings as s; print(json.dumps(s.unusual_settings()))"
CUSTOM = "import numpy\nnumpy.allclose = lambda *arguments, **options: True\n"


def said(code=SAYS, path=(), **variables):
    """What a process prints in which these variables are set."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    search = os.pathsep.join(map(str, (*path, ROOT / "harness", ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=kept | {"PYTHONPATH": search} | variables,
        text=True,
        capture_output=True,
        check=True,
    )
    return done.stdout


def test_every_variable_that_changes_numbers_is_seen():
    found = json.loads(said(**{name: value for name, (value, _) in CHANGES.items()}))
    known = {setting for _, setting in CHANGES.values() if setting in jax.config.values}
    assert set(found) == known and len(known) > 8


def test_a_usual_process_has_nothing_around_it():
    assert json.loads(said(JAX_NUM_CPU_DEVICES="4", JAX_PLATFORMS="cpu", JAX_LOG_COMPILES="1")) == {}


def test_a_customization_of_python_that_replaces_a_function_is_seen(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(CUSTOM)
    found = json.loads(said(path=[tmp_path]))
    assert found == {"numpy.allclose": "replaced by a function of sitecustomize.py"}


def test_the_digests_of_default_settings_are_those_of_their_release():
    default = {
        k: v for k, v in surroundings._default_settings().items() if not k.startswith(surroundings.HARMLESS)
    }
    listed = surroundings.DEFAULTS.get(jax.__version__)
    assert listed in (None, surroundings.digest_settings(default))
    other = default | {"jax_default_matmul_precision": "bfloat16"}
    assert surroundings.changed_settings(other) == {"jax_default_matmul_precision": "bfloat16"}


def facts(versions=None, flags=None, **around):
    flags = probe.flags_here() if flags is None else flags
    return Facts(versions or {}, "cpu", "cpu", 8, 1, [], flags, {}, surroundings=around)


def test_a_worker_with_another_release_or_other_flags_judges_nothing(monkeypatch):
    with pytest.raises(RuntimeError, match=r"this process has jaxlib .*, and the run line 0\.1\.0"):
        unchanged(facts({"jaxlib": "0.1.0"}))
    before = facts()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    with pytest.raises(RuntimeError, match="XLA_FLAGS is --xla_cpu_enable_fast_math=true, and was"):
        unchanged(before)


def test_what_is_replaced_while_a_case_is_judged_is_named(monkeypatch):
    from meshmark.judge import checks

    held = frozen.Frozen()
    assert held.changed() == ""
    monkeypatch.setattr(checks, "compare_numbers", lambda *arguments: None)
    assert held.changed() == "meshmark.judge.checks.compare_numbers"
    monkeypatch.undo()
    monkeypatch.setattr(checks.Judge, "run", lambda self, case: [])
    assert held.changed() == "meshmark.judge.checks.Judge.run"
    monkeypatch.undo()
    monkeypatch.setattr(jax.stages.Compiled, "__call__", lambda self, *given: given)
    assert held.changed().endswith("Compiled.__call__")


def test_a_function_of_python_in_the_place_of_another_is_found(monkeypatch):
    """The standard library is no stranger, but nothing of it stands under another name than its own."""
    import contextlib
    import typing

    from meshmark.judge import checks

    monkeypatch.setattr(jax, "block_until_ready", typing.final)
    assert surroundings.replaced_functions() == {"jax.block_until_ready": "replaced by a function of typing"}
    assert "jax.block_until_ready is replaced" in timer.doubts()
    monkeypatch.undo()
    assert timer.doubts() == ""
    monkeypatch.setattr(checks, "placement", contextlib.AbstractContextManager.__exit__)
    assert dict(surroundings.judge_replaced())["meshmark.judge.checks.placement"]


class Clock:
    def now(self):
        return 0.0

    def __call__(self):
        return 0.0


def ticks():
    while True:
        yield 0.0


@pytest.mark.parametrize(
    "clock",
    [
        *(Clock(), Clock().now, Clock().__call__, (lambda: 0.0), (lambda: 0.0).__call__, ticks().__next__),
        *(ticks().send, functools.partial(Clock().now), map(id, [0]).__next__, time.thread_time),
    ],
    ids=lambda clock: type(clock).__name__,
)
def test_every_kind_of_callable_in_the_place_of_the_clock_is_found(monkeypatch, clock):
    monkeypatch.setattr(time, "perf_counter", clock)
    assert "time.perf_counter" in surroundings.replaced_functions()
    assert "time.perf_counter is replaced" in timer.doubts()


def test_a_function_in_the_place_of_another_of_the_same_library_is_found(monkeypatch):
    for module, name, other in ((np, "max", "min"), (jax.lax, "psum", "pmax"), (np, "asin", "arccos")):
        monkeypatch.setattr(module, name, getattr(module, other))
        assert surroundings.replaced_functions() == {f"{module.__name__}.{name}": f"replaced by {other}"}
        monkeypatch.undo()
    monkeypatch.setattr(
        surroundings, "ALIASES", set()
    )  # a release that is not known: a fresh process says the same
    assert surroundings.replaced_functions() == {}


def test_a_bound_method_that_says_it_wraps_the_judge_is_found(monkeypatch):
    from meshmark.judge import checks

    own = checks.compare_numbers

    @functools.wraps(own)
    def passes(self, *arguments):
        return None

    def with_the_file_of(module):
        code = passes.__code__.replace(co_filename=module.__file__)
        return functools.wraps(own)(types.FunctionType(code, globals()))

    for new in (passes.__get__(Clock()), with_the_file_of(functools), with_the_file_of(checks)):
        monkeypatch.setattr(checks, "compare_numbers", new)
        assert "meshmark.judge.checks.compare_numbers" in dict(surroundings.judge_replaced())
        monkeypatch.undo()
    assert not dict(surroundings.judge_replaced())


def test_a_name_that_is_not_what_it_was_imported_from_is_found(monkeypatch):
    from meshmark.judge import checks, numbers

    monkeypatch.setattr(checks, "compare_numbers", numbers.find_worst_element)
    found = dict(surroundings.judge_replaced())
    assert (
        found["meshmark.judge.checks.compare_numbers"] == "not the compare_numbers of meshmark.judge.numbers"
    )


def test_a_replaced_reference_is_found(monkeypatch):
    from meshmark.operations import OPERATIONS

    monkeypatch.setattr(OPERATIONS["psum"], "reference", lambda *arguments: None)
    assert dict(surroundings.judge_replaced()) == {"the operation psum": "its reference was replaced"}


def test_a_worker_whose_settings_are_not_those_of_the_run_line_judges_nothing(monkeypatch):
    monkeypatch.setattr(surroundings, "unusual_settings", dict)
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        unchanged(facts())
        with pytest.raises(RuntimeError, match="jax_debug_nans is the default, and was True"):
            unchanged(facts(jax_debug_nans="True"))
        monkeypatch.setattr(surroundings, "unusual_settings", lambda: {"numpy.sum": "replaced"})
        with pytest.raises(RuntimeError, match=r"numpy\.sum is replaced, and was the default"):
            unchanged(facts())
        monkeypatch.setattr(surroundings, "unusual_settings", dict)
        jax.config.update("jax_enable_compilation_cache", True)
        with pytest.raises(RuntimeError, match="jax_enable_compilation_cache is True"):
            unchanged(facts())
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


def test_a_replaced_function_of_the_judge_is_found(monkeypatch):
    from meshmark.judge import numbers

    assert list(surroundings.judge_replaced()) == []
    monkeypatch.setattr(numbers, "find_worst_element", lambda *arguments: None)
    why = "replaced by a function of test_surroundings.py"
    assert ("meshmark.judge.numbers.find_worst_element", why) in list(surroundings.judge_replaced())
    monkeypatch.undo()
    monkeypatch.setattr(np, "where", lambda *arguments: None)
    assert "numpy.where" in surroundings.unusual_settings()


def test_what_a_statement_names():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_NUM_CPU_DEVICES": "8"}
    assert run_line.departures({"flags": flags}) == []
    flags["XLA_FLAGS"] += " --xla_cpu_enable_fast_math=true"
    found = run_line.departures({"flags": flags, "surroundings": {"jax_debug_nans": "True"}})
    assert found == ["jax_debug_nans = True", "XLA_FLAGS = --xla_cpu_enable_fast_math=true"]


def test_variables_of_libraries_are_kept_and_named(monkeypatch):
    from meshmark.devices import probe

    for name, value in (
        ("LD_PRELOAD", "/opt/clock/libslow.so:libother.so"),
        ("NVIDIA_TF32_OVERRIDE", "1"),
        ("OMP_NUM_THREADS", "2"),
    ):
        monkeypatch.setenv(name, value)
    flags = probe.facts().flags
    assert flags["LD_PRELOAD"] == "libslow.so libother.so", "without directories"
    found = run_line.departures({"flags": flags})
    assert found == ["LD_PRELOAD = libslow.so libother.so", "NVIDIA_TF32_OVERRIDE = 1"]
    assert flags["OMP_NUM_THREADS"] == "2"


CACHING = """
import sys, jax
from pathlib import Path
from meshmark.pytest_plugin.judging import settle
directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(jax.config.jax_compilation_cache_dir)
def entries(): return len(list(directory.glob("*-cache")))
jax.jit(lambda x: x + 1)(1.0)
before = entries()
settle()
jax.jit(lambda x: x * 3 - 1)(1.0)
print(before > 0, entries() - before)
"""


def test_no_program_comes_from_a_disk_though_a_plugin_compiled_before(tmp_path):
    kept = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    assert said(CACHING, **kept, JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1").split() == ["True", "0"]


def test_a_run_tells_and_records_what_is_around_it(tmp_path):
    path = tmp_path / "r.jsonl"
    command = [sys.executable, "-m", "pytest", "conformance", "-n", "0", "-q", "-p", "no:cacheprovider"]
    options = ["--operations", "psum", "--modes", "manual", "--profile", "smoke", "--record", str(path)]
    around = {
        "JAX_DEFAULT_MATMUL_PRECISION": "float32",
        "XLA_FLAGS": "--xla_cpu_enable_fast_math=true",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=os.environ | around, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    text = " ".join(done.stdout.split())
    assert "not as JAX comes: jax_default_matmul_precision = float32, XLA_FLAGS = --xla_cpu" in text
    assert "the cache of JAX_COMPILATION_CACHE_DIR is not used" in text
    found = reading.read_records(path)
    assert found.runs[0]["facts"]["surroundings"] == {"jax_default_matmul_precision": "float32"}
    assert found.state == ""


def test_replaced_methods_and_wrappers_are_found(monkeypatch):
    from jax._src.array import ArrayImpl  # as somebody who patches it would

    from meshmark.judge.checks import Judge

    assert surroundings.unusual_settings() == {} and list(surroundings.judge_replaced()) == []
    monkeypatch.setattr(ArrayImpl, "addressable_shards", property(lambda self: []))
    monkeypatch.setattr(np, "allclose", functools.wraps(np.allclose)(lambda *arguments, **options: True))
    monkeypatch.setattr(jax.sharding.Mesh, "devices", property(lambda self: None), raising=False)
    monkeypatch.setattr(Judge, "run", lambda self, case: [])
    found = surroundings.unusual_settings()
    assert all(why.endswith("test_surroundings.py") for why in found.values())
    assert {name.rpartition(".")[2] for name in found} == {"addressable_shards", "allclose", "devices"}
    assert dict(surroundings.judge_replaced())["meshmark.judge.checks.Judge.run"].endswith(
        "test_surroundings.py"
    )
