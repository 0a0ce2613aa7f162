# SPDX-License-Identifier: Apache-2.0
"""What the page of coverage says of gradients: the cases that it names differentiate, and no reason is stale."""

import jax
import pytest

from docs import gradients, package
from meshmark.operations import OPERATIONS
from meshmark.operations.cases import find
from tests.studies import gradients as study

of_release = pytest.mark.skipif(
    jax.__version__ != gradients.RELEASE, reason=f"primitives have the names of JAX {gradients.RELEASE}"
)

SEARCHED = ("auto",), ("smoke", "standard")
"""The modes and profiles in which the test searches for stale reasons, so that it takes seconds."""


def not_differentiated(rows):
    """The rows of kind `case` whose case does not differentiate the primitive."""
    taken = {case: study.derivatives(find(case, 8)) for case in {r.detail for r in rows if r.kind == "case"}}
    return [row.name for row in rows if row.kind == "case" and row.name not in taken[row.detail]]


def stale(rows, first):
    """The rows that say that no case differentiates a primitive, although one does."""
    return [row.name for row in rows if row.kind == "not covered" and row.name in first]


def ordinary(name):
    """A case of an operation in auto or manual mode, on the preferred mesh."""
    return next(study.candidates(lambda operation: operation.name == name))


def test_every_operation_without_a_gradient_has_a_row_and_no_other():
    assert study.operations() == [*gradients.operations()]
    said = {row.reasons.get("gradient") for row in package.coverage()}
    assert gradients.REASONS["no row"] not in said
    assert gradients.REASONS["all"] in said


def test_an_operation_without_a_row_is_told(monkeypatch):
    monkeypatch.setattr(gradients, "operations", dict)
    assert gradients.reason("matmul") == gradients.REASONS["no row"]


@of_release
def test_the_cases_differentiate_the_primitives():
    rows = [*gradients.primitives().values()]
    assert not_differentiated(rows) == []
    assert not_differentiated([gradients.Row("cos", "case", rows_named(rows, "fft").detail)]) == ["cos"]


def rows_named(rows, name):
    """The row with this name."""
    return next(row for row in rows if row.name == name)


@of_release
def test_no_reason_is_stale():
    rows, first = [*gradients.primitives().values()], study.covered(*SEARCHED)
    assert stale(rows, first) == []
    assert stale([gradients.Row("sort", "not covered", "-")], {"sort": "a case"}) == ["sort"]


@of_release
def test_kinds_of_primitives_are_those_of_jax():
    for row in gradients.primitives().values():
        kind = "not covered" if row.kind == "case" else row.kind
        assert study.kind_of(row.name) == kind, row.name


@of_release
@pytest.mark.parametrize("name", ["matmul", "fft", "scatter_add", "sort_several", "strided_slice"])
def test_operations_have_the_primitives_of_their_programs(name):
    assert study.primitives(ordinary(name)) <= {*gradients.operations()[name].detail.split()}


@of_release
def test_operations_that_take_derivatives_do():
    deriving = [row for row in gradients.operations().values() if row.kind == "derivative"]
    assert {row.name for row in deriving} == {*study.DERIVATIVES}
    for row in deriving:
        assert study.derivatives(find(row.detail, 8)), row.name
    assert not study.derivatives(ordinary("matmul"))


@of_release
def test_a_line_that_is_not_a_row_is_refused(tmp_path):
    path = tmp_path / "gradients.tsv"
    path.write_text("fft\tperhaps\t-\n")
    with pytest.raises(ValueError, match=r"gradients.tsv:1 is not a name, a kind and a detail"):
        gradients.read(path)


@of_release
def test_the_section_names_what_is_missing():
    text = "\n".join(gradients.lines())
    assert "| `pmax` |" in text
    for row in gradients.primitives().values():
        assert f"`{row.name}`" in text
    assert {*OPERATIONS} >= {*gradients.operations()}
