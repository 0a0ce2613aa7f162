"""Scripts for bug reports: they run alone, agree with the suite, and notice what is wrong.

Every script runs in a process of its own (python -I, an empty directory), so the default run takes a sample;
MESHMARK_SLOW=1 takes every operation in every mode.
"""

import ast
import os
import subprocess
import sys

import numpy as np
import pytest

from meshmark.core import values
from meshmark.judge import repro
from meshmark.judge.repro import Bundle, ReproError, script
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import Operation
from meshmark.operations.selection import CAPABILITIES, Selection


def run(text, directory):
    """Run a script where the suite can't be imported."""
    path = directory / "case.py"
    path.write_text(text)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_NUM", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-I", str(path)], cwd=directory, capture_output=True, text=True, env=environment
    )


def first(operation, mode, want=lambda case: True, **options):
    """The first case of an operation in a mode."""
    selection = Selection(
        "full", operations=(operation,), modes=(mode,), capabilities=tuple(CAPABILITIES), **options
    )
    return next((case for case in cases.cases(selection, 8) if want(case)), None)


def is_gradient(case):
    return bool(case.plan.wrt)


def is_rounded(case):
    return case.plan.judge == "bound"


SAMPLE = {
    "psum explicit": ("psum", "explicit"),
    "all_to_all explicit": ("all_to_all", "explicit", lambda c: not c.cell.request.variant["tiled"]),
    "pmean in a bound, 6 devices": ("pmean", "manual", lambda c: is_rounded(c) and c.mesh.size == 6),
    "shuffled devices, no vma": ("ppermute", "manual-novma", lambda c: c.mesh.order == "shuffled"),
    "special values": ("all_gather", "auto", lambda c: c.cell.request.variant.get("fill") == "special"),
    "stacks of blocks": ("psum_scatter", "pmap"),
    "no argument": ("axis_index", "manual"),
    "64 bits": ("pmax", "pjit", lambda c: c.cell.request.dtype == "float64"),
    "nothing in it": ("ppermute", "explicit", lambda c: c.cell.request.size == "0B"),
    "exact contraction": ("matmul", "auto", lambda c: c.plan.judge == "exact"),
    "rounded contraction": ("einsum", "manual", is_rounded),
    "host": ("device_put", "host"),
    "gradient manual": ("mlp_gradient", "manual", is_gradient),
}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_script_runs_alone_and_agrees(tmp_path, name):
    case = first(*SAMPLE[name])
    if case is None:
        pytest.skip("not in the table")
    done = run(script(case, 8), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as expected" in done.stdout and "expected:" in done.stdout and "seen:" in done.stdout
    assert done.stdout.startswith("jax ")
    if case.mode != "host":
        assert "compiled communication:" in done.stdout
    if case.plan.judge == "bound":
        assert "bound " in done.stdout


def one_of_each():
    """One case of each operation, mode and kind of judgement."""
    seen = {}
    for operation in OPERATIONS:
        chosen = Selection("standard", operations=(operation,), capabilities=tuple(CAPABILITIES))
        for cell, modes in cases.cells(chosen, 8):
            for mode in modes:
                case = cell.case(mode)
                seen.setdefault((operation, mode, case.plan.judge, is_gradient(case)), case)
    return list(seen.values())


@pytest.mark.parametrize(
    "case", one_of_each() if os.environ.get("MESHMARK_SLOW") else [], ids=lambda case: case.id
)
def test_every_operation_in_every_mode(tmp_path, case):
    done = run(script(case, 8), tmp_path)
    unsupported = bool(case.cell.capabilities) and "NotImplementedError" in done.stderr
    assert done.returncode == 0 or unsupported, done.stdout + done.stderr


def test_every_script_can_be_made_and_imports_jax_and_numpy_alone():
    for case in one_of_each():
        if case.mode in repro.SPELLINGS:
            continue  # made of the spelling of another mode
        tops = {module.split(".")[0] for module in imported(script(case, 8))}
        assert tops - set(sys.stdlib_module_names) <= {"jax", "numpy", "ml_dtypes"}, case.id


def imported(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_a_wrong_reference_is_noticed(tmp_path, mode):
    text = script(first("psum", mode), 8)
    assert text.count("[sum(blocks)]") == 1
    done = run(text.replace("[sum(blocks)]", "[sum(blocks[1:])]"), tmp_path)
    assert done.returncode == 1, done.stderr
    assert "DIFFERENT" in done.stdout and "expected" in done.stdout and "seen" in done.stdout


def test_a_wrong_sharding_is_noticed(tmp_path):
    text = script(first("all_gather", "auto"), 8)
    done = run(text.replace("P(*out_specs[0])", "P(None)").replace("    (None", "    ('x'"), tmp_path)
    assert done.returncode == 1, done.stderr
    assert "holds" in done.stdout


def test_too_few_devices_are_told(tmp_path):
    text = script(first("psum", "manual"), 8).replace('"jax_num_cpu_devices", 8', '"jax_num_cpu_devices", 2')
    done = run(text, tmp_path)
    assert done.returncode == 2 and "needs 8 devices" in done.stderr


def test_the_seed_is_in_the_script():
    case = first("psum", "manual")
    assert "argument(5, 0, " in script(case, 8, 5) and "--seed 5" in script(case, 8, 5)


# Copying source.


def scale(x: "np.ndarray", *, by: int = 2) -> "np.ndarray":
    """Times `by`."""
    factor: int = by
    return values.whole((1,)) and factor * x


class Doubled(Operation):
    """An operation of somebody else's module."""

    @staticmethod
    def manual(x):
        return scale(x)

    auto = staticmethod(lambda x: scale(x, by=3))


def made(function):
    bundle = Bundle(("meshmark", __name__))
    name = bundle.add(function)
    space = {}
    exec("\n".join([*bundle.imports, *bundle.parts]), space)
    return space[name], "\n".join(bundle.parts)


def test_what_a_function_uses_is_copied_without_annotations():
    function, text = made(Doubled.manual)
    assert function(np.ones(2)).tolist() == [2, 2]
    assert "def scale(x, *, by=2):" in text and "factor = by" in text and "def whole(shape):" in text


def test_a_lambda_and_a_closure():
    function, _ = made(Doubled.auto)
    assert function(2) == 6
    power = 3

    def cubed(x):
        return scale(x) ** power

    function, text = made(cubed)
    assert function(1) == 8 and "power = 3" in text


def test_a_name_that_the_script_needs_is_not_taken():
    def check(x):
        return x

    function, text = made(check)
    assert function(1) == 1 and "def check(" not in text


def test_what_has_no_source_is_an_error():
    unprintable = object()

    def uses(x):
        return x, unprintable

    for function in (len, uses):
        with pytest.raises(ReproError):
            made(function)


def test_options_are_literals():
    assert repro.literal((1, "a", None)) == "(1, 'a', None)"
    assert eval(repro.literal(float("inf"))) == float("inf")
    with pytest.raises(ReproError):
        repro.literal(np.zeros(2))
