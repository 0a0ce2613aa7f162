# SPDX-License-Identifier: Apache-2.0
"""The table spells every public function of JAX and sets each of their options, or a committed row says why not."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from meshmark.operations import names
from tests.operations import spelled


def test_each_function_and_option_is_spelled_or_has_a_reason():
    left = spelled.without_reason()
    assert not left, (
        f"no case spells {', '.join(left[:20])}: write a rule, or add a row to tests/operations/spelled.tsv"
    )


def test_no_row_excuses_what_is_spelled():
    left = {*spelled.unspelled(), *spelled.unset()}
    known = dict(every_function())
    stale = [
        row
        for row in spelled.read_rows()
        if "*" not in row and row.split("(")[0] in known and row not in left and not spelled_elsewhere(row)
    ]
    assert not stale, f"the table spells {', '.join(stale)} now: remove the rows"


def spelled_elsewhere(row: str) -> bool:
    """Whether a release without the option can't tell: its function has no such parameter."""
    return row.endswith(")") and row not in set(options_of(row.split("(")[0]))


def every_function() -> Iterator[tuple[str, Any]]:
    """The functions of all modules that the rows may name."""
    yield from names.functions()
    yield from spelled.functions()


def options_of(name: str) -> Iterator[str]:
    """All options of a function, as the rows write them."""
    function = dict(every_function())[name]
    return (f"{name}({parameter})" for parameter in inspect.signature(function).parameters)


def test_most_functions_are_spelled():
    every = [name for name, _ in spelled.functions()]
    assert len(every) > 400
    assert sum(map(spelled.is_spelled, every)) > 0.75 * len(every)


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        ("jax.scipy.linalg.schur", True),  # ours.schur
        ("jax.scipy.special.ndtri", True),  # named(ours, special, *names.split())
        ("jax.experimental.ode.odeint", True),  # from jax.experimental import ode
        ("jax.no_tracing", True),
        ("jax.scipy.linalg.no_such_function", False),
        ("jax.tree.no_such_function", False),
    ],
)
def test_a_name_is_found_through_what_stands_for_it(name, is_there):
    assert spelled.is_spelled(name) is is_there


@pytest.mark.parametrize(
    "text", ["jax.lax.add\tno reason\tx\n", "jax.lax.add\tno effect\t\n", "jax.lax.add\n"]
)
def test_a_row_of_another_form_is_refused(text, tmp_path, monkeypatch):
    path = tmp_path / "rows.tsv"
    path.write_text(text)
    monkeypatch.setattr(spelled, "ROWS", path)
    with pytest.raises(ValueError, match=r"rows\.tsv:1 is not a name"):
        spelled.read_rows()
