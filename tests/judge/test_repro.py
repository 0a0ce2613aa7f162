# SPDX-License-Identifier: Apache-2.0
"""Scripts for bug reports: they run alone, agree with the suite, and find faults.

Every script runs in a process of its own (a fork of a python -I that has imported JAX, in an empty directory), and one
of them as a user starts it. The default run uses a sample; MESHMARK_SLOW=1 uses every operation in every mode.
"""

import ast
import functools
import os
import re
import statistics
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh

from meshmark.core import groups as core_groups
from meshmark.core import hlo_module, hlo_types, values
from meshmark.judge import repro
from meshmark.judge.repro import Bundle, ReproError, script
from meshmark.judge.repro.printer import NAMES
from meshmark.levels import known_issues
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import Operation
from meshmark.operations.selection import CAPABILITIES, Selection
from tests import long
from tests.scripts import Scripts


@pytest.fixture(scope="module")
def run():
    """Runs a script where the suite can't be imported."""
    with Scripts() as scripts:
        yield scripts.run


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
    "NaN in exact results": ("special_functions", "manual", lambda c: "extremes" in c.id),
    "infinities in rounded results": ("mlp", "auto", lambda c: is_rounded(c) and "fill=inf" in c.id),
    "NaN in rounded results": ("attention", "manual", lambda c: is_rounded(c) and "fill=nan" in c.id),
    "a reference that gives a tuple of one": ("pswapaxes_gradient", "auto"),
    "the name of a builtin": ("slice", "manual"),
    "a quotation mark in a pattern": ("refusal", "host", lambda c: "longer_spec" in c.id),
    "one result in a tuple": (
        "partly_sharded",
        "host",
        lambda c: "group=writes" in c.id and "function=min" in c.id,
    ),
    "a rule that is added to a function": ("varying_result", "host", lambda c: "form=calls" in c.id),
    "a table that is made of another one": ("explicit_array", "host", lambda c: "form=truths" in c.id),
    "a class that names itself": ("small_rule", "host", lambda c: "collectives_refused" in c.id),
    "stacks of blocks": ("psum_scatter", "pmap"),
    "no argument": ("axis_index", "manual"),
    "64 bits": ("pmax", "pjit", lambda c: c.cell.request.dtype == "float64"),
    "nothing in it": ("ppermute", "explicit", lambda c: c.cell.request.size == "0B"),
    "exact contraction": ("matmul", "auto", lambda c: c.plan.judge == "exact"),
    "rounded contraction": ("einsum", "manual", is_rounded),
    "host": ("device_put", "host"),
    "one form of several": ("program_option", "host"),
    "one way of several": ("function_form", "host"),
    "one option of several": ("collective_option", "host"),
    "gradient manual": ("mlp_gradient", "manual", is_gradient),
    "gradient explicit": ("embedding_gradient", "explicit", is_gradient),
    "pieces of uneven length": ("concatenate", "auto", lambda c: "uneven" in c.id),
    "bfloat16": ("psum", "explicit", lambda c: c.cell.request.dtype == "bfloat16"),
    "complex": ("psum", "manual", lambda c: c.cell.request.dtype == "complex64"),
    "groups": ("all_gather", "manual", lambda c: c.cell.request.variant.get("groups")),
}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_script_runs_alone_and_agrees(run, tmp_path, name):
    case = first(*SAMPLE[name])
    assert case is not None
    done = run(script(case, 8), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("jax ") and done.stdout.endswith("as expected\n")


def test_a_script_runs_as_its_reader_starts_it(tmp_path):
    path = tmp_path / "case.py"
    path.write_text(script(first("psum", "explicit"), 8))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_NUM", "PYTHON"))}
    command = [sys.executable, "-I", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stdout.endswith("as expected\n"), done.stdout + done.stderr


SLOW = bool(os.environ.get("MESHMARK_SLOW"))


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


def one_mode_of_each():
    """Of the same, one case of each operation: the modes take turns, those without a spelling of their own aside."""
    by_operation = {}
    for case in one_of_each():
        if case.mode not in repro.SPELLINGS:
            by_operation.setdefault(case.operation.name, []).append(case)
    return [found[turn % len(found)] for turn, found in enumerate(by_operation.values())]


UNSCRIPTED = ("drawn_programs", "drawn_operations")
"""Operations whose scripts the hunt's printer makes (tests/commands/test_drawn_script.py)."""

DEVIATING = "fill=subnormal|^top_k/.*fill="
"""Cases whose scripts may end with a difference, since a device may flush subnormals, and one deviation of top_k is
committed (docs/limits.md)."""


def scripted():
    return [case for case in one_of_each() if case.operation.name not in UNSCRIPTED]


@pytest.mark.parametrize("case", scripted() if SLOW else [], ids=lambda case: case.id)
def test_every_operation_in_every_mode(run, tmp_path, case):
    done = run(script(case, 8), tmp_path)
    refused = re.search("NotImplementedError|UNIMPLEMENTED|ModuleNotFoundError|: pip install", done.stderr)
    unsupported = bool(case.cell.capabilities) and refused
    issues = known_issues.load(jax.__version__, jax.default_backend())
    known = any(issue.covers(case.id) for issue in issues)  # the script shows the listed failure
    deviates = re.search(DEVIATING, case.id) and "DIFFERENT: " in done.stdout
    assert done.returncode == 0 or unsupported or known or deviates, done.stdout + done.stderr


def test_every_script_can_be_made_and_imports_jax_and_what_it_brings_alone():
    # Without MESHMARK_SLOW a third of the operations: a script takes as long to print as a case to run.
    for case in one_of_each() if SLOW else one_mode_of_each()[::3]:
        if case.mode in repro.SPELLINGS:
            continue  # made of the spelling of another mode
        if case.operation.name in UNSCRIPTED:
            continue
        tops = {module.split(".")[0] for module in imported(script(case, 8))}
        # What the case itself is about.
        library = {"optax": "optax", "checkpoint": "orbax", "flax": "flax", "datarax": "datarax"}
        about = {library[c] for c in case.cell.capabilities if c in library}
        assert tops - set(sys.stdlib_module_names) <= {"jax", "numpy", "ml_dtypes", "scipy", *about}, case.id


def test_the_heading_says_what_the_form_judges():
    text = script(cases.find("small_rule/form=counts_of_axes/host/2x4/float32/4KiB", 8), 8)
    assert "mode host: Sums and means of Python numbers and whole numbers over one axis" in text


def test_each_form_has_a_short_script(run, tmp_path):
    """Of each operation that has a table of forms. A turn makes an eighth of the scripts and runs one in 96, known
    failures aside; with MESHMARK_SLOW all of them."""
    names = tuple(o.name for o in OPERATIONS.values() if hasattr(o, "forms") and o.name not in UNSCRIPTED)
    formed = Selection("full", operations=names, modes=("host",), capabilities=tuple(CAPABILITIES))
    issues = known_issues.load(jax.__version__, jax.default_backend())
    lengths = {}
    for case in cases.cases(formed, 8):
        if SLOW or (case.mesh.label == "2x4" and long.is_sampled(case.id, 8, long.turn())):
            text = script(case, 8)
            lengths[case.id] = len(text.splitlines())
            if (SLOW or long.is_sampled(case.id, 96, long.turn())) and not any(
                i.covers(case.id) for i in issues
            ):
                done = run(text, tmp_path)
                assert done.returncode == 0 or ": unsupported" in done.stderr, (
                    case.id,
                    done.stdout + done.stderr,
                )
    assert len(lengths) > 80 and statistics.median(lengths.values()) < 200
    assert max(lengths.values()) <= 1200, max(lengths, key=lengths.get)


def imported(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("mode", ["auto", "manual", "explicit"])
def test_a_wrong_expectation_is_noticed_on_each_device_once(run, tmp_path, mode):
    text = script(first("psum", mode), 8)
    assert text.count("expected = x.sum(") == 1
    done = run(text.replace("expected = x.sum(", "expected = x[1:].sum("), tmp_path)
    assert done.returncode == 1, done.stderr
    told = [line for line in done.stdout.splitlines() if "expected" in line and "seen" in line]
    assert len(told) == 8 and len({line.split(":")[1] for line in told}) == 8
    assert "DIFFERENT: float32(1, " in done.stdout


def test_a_wrong_sharding_is_noticed(run, tmp_path):
    text = script(first("psum_scatter", "auto"), 8)
    right = next(line for line in text.splitlines() if "out_shardings=" in line)
    wrong = re.sub(r"out_shardings=[^,]*\(mesh, P\(.*?\)\)+", "out_shardings=NamedSharding(mesh, P())", right)
    done = run(text.replace(right, wrong), tmp_path)
    assert done.returncode == 1, done.stderr
    assert "sharding:" in done.stdout


def test_a_wrong_type_while_tracing_is_noticed(run, tmp_path):
    case = first("all_gather", "explicit", lambda c: c.mesh.label == "2x4")
    text = script(case, 8)
    assert ".sharding.spec" in text
    line = next(line for line in text.splitlines() if "typed = " in line)
    replaced = (
        line.partition("=")[0] + '= jax.ShapeDtypeStruct((8,), "f4", sharding=NamedSharding(mesh, P("x")))'
    )
    done = run(text.replace(line, replaced), tmp_path)
    assert done.returncode == 1 and "sharding:" in done.stdout, done.stdout + done.stderr


def test_an_error_over_its_bound_is_noticed(run, tmp_path):
    text = script(first("pmean", "manual", lambda c: is_rounded(c) and c.mesh.size == 6), 8)
    bound = re.search(r"bound = (\S+)\n", text)
    assert bound and "bound * abs(want)" in text, "each element's own bound, as a share of it"
    done = run(text.replace(bound[0], f"bound = {float(bound[1]) / 1e3}\n"), tmp_path)
    assert done.returncode == 1 and "wrong" in done.stdout


def test_too_few_devices_are_told(run, tmp_path):
    text = script(first("psum", "manual"), 8).replace('"jax_num_cpu_devices", 8', '"jax_num_cpu_devices", 2')
    done = run(text, tmp_path)
    assert done.returncode == 2 and "needs 8 devices" in done.stderr


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(
    "operation", ["psum", "all_gather", "matmul", "einsum", "mlp", "embedding", "concatenate"]
)
def test_the_inputs_are_those_of_the_seed_to_the_bit(operation, seed):
    case = first(operation, "auto")
    found = repro.read_case(case, 8, seed)
    space = {"np": np, "ml_dtypes": ml_dtypes}
    exec("\n".join([*found.definitions, *(line for item in found.inputs for line in item.code)]), space)
    for item, given in zip(found.inputs, case.cell.arguments(seed), strict=True):
        assert space[item.name].dtype == given.dtype and space[item.name].tobytes() == given.tobytes()
    if seed:
        assert f"--seed {seed}" in repro.script(case, 8, seed)


@pytest.fixture(scope="module")
def of_smoke():
    """The scripts of the smoke profile, by case."""
    return {case: script(case, 8) for case in cases.cases(Selection("smoke"), 8)}


def test_the_scripts_of_the_smoke_profile_are_short(of_smoke):
    """Whole programs have more to say: a decoder's reference alone takes a hundred lines."""
    lines = {case.id: len(text.splitlines()) for case, text in of_smoke.items()}
    single = {case.id: lines[case.id] for case in of_smoke if case.operation.family != "programs"}
    assert statistics.median(single.values()) <= 66
    assert max(single.values()) <= 134, max(single, key=single.get)
    assert max(lines.values()) <= 210, max(lines, key=lines.get)


def test_no_input_of_the_smoke_profile_is_made_by_a_copy_of_the_suites_functions(of_smoke):
    """Nor is any reference of a collective: what each is of its input was found, and holds to the bit."""
    copied = re.compile(r"def (odd_rows|summands|plus_minus|arranged|over_groups|digits_of)\(")
    assert not [case.id for case, text in of_smoke.items() if copied.search(text)]


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


SIGNS = {"plus": lambda x: +x, "minus": lambda x: -x}
WAYS = {"twice": lambda x: 2 * x, "half": lambda x: x / 2, **SIGNS}
PLACES = {"twice": 1, "half": 2}


class Turned(Operation):
    """An operation that takes a function from a table by its name."""

    @staticmethod
    def manual(x, *, way):
        return WAYS[way](x) * PLACES["half"]


def made(function, chosen=()):
    bundle = Bundle(("meshmark", __name__), chosen=chosen)
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


@pytest.mark.parametrize(
    ("way", "left"), [("half", ("twice", "SIGNS")), ("minus", ("twice", "half", "plus"))]
)
def test_of_a_table_of_functions_only_what_the_case_names_is_copied(way, left):
    """Also from a table that another one takes in. Other tables stay whole: who knows what is looked up there."""
    function, text = made(Turned.manual, (way,))
    assert function(3, way=way) == Turned.manual(3, way=way)
    [table] = re.findall(r"(?s)^WAYS = .*?^}", text, re.M)
    assert not [name for name in left if name in table]
    assert "PLACES = {'twice': 1" in text.replace('"', "'")
    whole = made(Turned.manual)[1]
    assert all(name in whole for name in ("twice", "half", "plus", "minus"))


def test_a_case_of_a_group_has_the_functions_of_its_group_alone():
    text = script(cases.find("rearranging/of=x.y,group=shaped,function=rot90/auto/2x4/float32/4KiB", 8), 8)
    assert "rot90" in text and "vstack" not in text and len(text.splitlines()) < 150


def test_a_name_that_the_script_needs_is_not_taken():
    def expected(x):
        return x

    bundle = Bundle(("meshmark", __name__), NAMES)
    name = bundle.add(expected)
    assert name != "expected" and f"def {name}(" in bundle.parts[0]


def taking_local_names(x):
    """Calls a function of another module by a name that is local here."""

    @functools.cache
    def whole(size):
        return size

    return whole(x) + len(values.whole((x,)))


def hidden_names(x):
    groups = core_groups.spelled("{{0,1}}", 2)
    spelled = len(groups)
    return spelled + x


def test_a_decorator_after_a_docstring_stays_and_a_local_name_hides_no_definition():
    function, text = made(taking_local_names)
    assert function(3) == 4 and "@functools.cache" in text
    function, text = made(hidden_names)
    assert function(3) == hidden_names(3) and "the_spelled = spelled" in text


def test_a_constant_and_an_import_are_renamed_where_their_names_are_taken():
    """Two modules have a constant `_COMMENT`, and one defines what another one imports from JAX."""

    def both(x):
        read = tuple(hlo_module.split_list("f32[2]{0}, /*index=1*/ s32[]"))
        return hlo_types.parse_type("(f32[2], /*index=1*/ s32[])"), read, x

    function, text = made(both)
    assert len(re.findall(r"^\w*_COMMENT = ", text, re.M)) == 2
    assert repr(function(1)) == repr(both(1))
    bundle = Bundle(("meshmark", __name__), ("Mesh",))
    name = bundle.add(laid_out)
    space = {}
    exec("\n".join([*bundle.imports, *bundle.parts]), space)
    assert space[name]() is jax.sharding.Mesh and "from jax.sharding import Mesh as _Mesh" in bundle.imports


def laid_out():
    return Mesh


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
