# SPDX-License-Identifier: Apache-2.0
"""Every public function of JAX that takes or gives arrays has a case, or a stated reason for having none."""

import warnings
from collections import defaultdict
from unittest.mock import patch

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshmark.core.verdicts import worst
from meshmark.judge.checks import Judge
from meshmark.operations import OPERATIONS, cases, names
from tests.studies.names import called_over_processes, not_taken

TESTED = ("0.10.2", "0.11.2", "0.12.0.1")
"""The releases for which the list is complete."""

LISTED = names.read_names()
HERE = dict(names.functions())


def test_every_public_function_is_listed():
    if missing := names.find_unlisted(LISTED):
        text = (
            f"JAX {jax.__version__} has functions that operations/data/names.tsv does not list:"
            f" {', '.join(missing)}. Run python -m tests.studies.names, and give a"
            " reason for each that stays without a case"
        )
        if jax.__version__ in TESTED:
            pytest.fail(text)
        warnings.warn(text, stacklevel=1)


def test_a_function_that_nobody_listed_is_found():
    assert names.find_unlisted({n: row for n, row in LISTED.items() if n != "jax.numpy.sin"}) == [
        "jax.numpy.sin"
    ]


ABSENT = {
    "0.10.2": {
        "jax.lax.log2",
        "jax.lax.one_minus_square",
        "jax.lax.polynomial",
        "jax.lax.psum_scatter_start",
        "jax.numpy.minmax",
        "jax.numpy.top_k",
        "jax.random.Key",
        "jax.sharding.no_collectives",
    },
    "0.11.2": {
        "jax.lax.polynomial",
        "jax.lax.psum_scatter_start",
        "jax.random.Key",
        "jax.sharding.no_collectives",
    },
    "0.12.0.1": {"jax.lax.precv", "jax.lax.psend"},
}
"""The listed functions that each tested release lacks."""


def test_every_row_is_of_a_tested_release():
    assert set(ABSENT) == set(TESTED) and not set.intersection(*ABSENT.values())
    if jax.__version__ in TESTED:
        assert set(LISTED) - set(HERE) == ABSENT[jax.__version__]


def test_few_functions_of_arrays_have_a_reason_alone():
    listed = [row for name, row in LISTED.items() if name in HERE]
    assert len(names.of_arrays(listed)) > 500
    assert len(names.find_reasoned(listed)) <= names.LIMIT * len(names.of_arrays(listed))


def test_programs_take_the_functions_that_the_list_says():
    by_case = defaultdict(set)
    for row in LISTED.values():
        if row.kind == "case" and row.name in HERE:
            by_case[row.detail].add(row.name)
    untrue = {
        case_id: missing
        for case_id, wanted in by_case.items()
        if (missing := not_taken(cases.find(case_id, 8), frozenset(wanted)))
    }
    assert not untrue, "run python -m tests.studies.names"


def test_a_false_claim_is_seen():
    case = cases.find("rearranging/of=x.y,group=shaped,function=rot90/auto/2x4/float32/4KiB", 8)
    assert not_taken(case, frozenset({"jax.numpy.rot90"})) == set()
    assert not_taken(case, frozenset({"jax.numpy.sin", "jax.numpy.rot90"})) == {"jax.numpy.sin"}


def test_other_names_and_operations_over_processes_are_as_listed():
    for row in LISTED.values():
        if row.kind == "alias" and row.name in HERE:
            assert HERE[row.name] is HERE[row.detail]
            assert LISTED[row.detail].kind == "case"
        if row.kind == "processes":
            assert called_over_processes(row.name) == row.detail and OPERATIONS[row.detail].processes


def test_a_line_that_is_no_row_is_named(tmp_path):
    path = tmp_path / "names.tsv"
    path.write_text("jax.numpy.sin\twhatever\tbecause\n")
    with pytest.raises(ValueError, match=r"names\.tsv:1 is not a name, a kind of case"):
        names.read_names(path)


def verdict(case_id):
    """The verdict of a case on the devices here."""
    return worst(line.verdict for line in Judge(tuple(jax.devices())).run(cases.find(case_id, 8)))


def off_by_one(function):
    """The function with one more in every element."""
    return lambda *arrays, **options: function(*arrays, **options) + 1


def halved(function):
    """The function with the second half of its result in place of the first."""
    return lambda *arrays, **options: jnp.flip(function(*arrays, **options), 0)


FAULTS = {
    "rearranging/of=x.y,group=shaped,function=rot90/manual/2x4/float32/4KiB": (jnp, "rot90", halved),
    "exact_functions/of=x.y,group=reduced,function=lax.reduce_max/auto/2x4/int32/4KiB": (
        lax,
        "reduce_max",
        off_by_one,
    ),
    "rounded_functions/of=x.y,group=series,function=lax.igamma/explicit/2x4/float32/4KiB": (
        lax,
        "igamma",
        lambda f: lambda a, x: f(a, x) * (1 + 1e-4),
    ),
    "elementwise/of=x.y,function=lax.logistic/auto/2x4/float32/4KiB": (
        lax,
        "logistic",
        lambda f: lambda x: f(x) * (1 + 1e-4),
    ),
    "random_distributions/of=x.y,draw=laplace/host/2x4/float32/4KiB": (
        jax.random,
        "laplace",
        lambda f: lambda k, s: f(k, s) * 1.5,
    ),
}


@pytest.mark.parametrize("case_id", FAULTS)
def test_a_fault_is_caught(case_id):
    module, name, change = FAULTS[case_id]
    assert verdict(case_id) == "pass"
    with patch.object(module, name, change(getattr(module, name))):
        assert verdict(case_id) == "fail"


def test_a_draw_that_depends_on_the_sharding_is_caught():
    case_id = "random_distributions/of=x.y,draw=pareto/host/2x4/float32/4KiB"
    real, calls = jax.random.pareto, []

    def other(key, *more):
        calls.append(key)
        return real(jax.random.fold_in(key, len(calls)), *more)

    with patch.object(jax.random, "pareto", other):
        assert verdict(case_id) == "fail"
