# SPDX-License-Identifier: Apache-2.0
"""Properties of the generator, the fills and the shrinking rules, tried by hypothesis on drawn programs."""

import json
import math

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshmark.hunt.differences import normalize
from meshmark.hunt.generator import draw
from meshmark.hunt.rules import RULES, measure_weight
from meshmark.hunt.shrinking import fit_transform, is_valid
from meshmark.hunt.spellings import Inapplicable, spell_manually
from meshmark.program_data.building import Builder, find_types
from meshmark.program_data.program import (
    Input,
    Program,
    ProgramError,
    from_json,
    list_problems,
    list_references,
    prune,
    renumber,
    to_json,
    walk_nodes,
)
from meshmark.program_data.values import dtype_of, make_array

PROGRAMS = st.builds(draw, st.integers(0, 10**6), st.integers(0, 10**6))
few = settings(max_examples=15, deadline=None, derandomize=True)
many = settings(max_examples=200, deadline=None, derandomize=True)

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=3))
REFERENCES = st.builds(lambda v: {"v": v}, st.integers(0, 5))


def nested(inner):
    """Tuples and calls of expressions."""
    calls = st.builds(lambda k: {"call": "jnp.array", "kwargs": {"object": k}}, inner)
    return st.one_of(st.lists(inner, max_size=3), calls)


EXPRESSIONS = st.recursive(st.one_of(LEAVES, REFERENCES), nested, max_leaves=8)
FIELDS = ("format", "mesh", "inputs", "nodes", "outputs", "out_specs", "transform")
DATA = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(FIELDS), inner)),
    max_leaves=12,
)


@few
@given(PROGRAMS)
def test_a_drawn_program_is_valid_and_its_data_is_complete(made):
    assert not next(list_problems(made), None) and is_valid(made)
    text = json.dumps(to_json(made))
    assert from_json(json.loads(text)) == made and from_json(json.loads(text)).name == made.name
    assert made.given >= 1 and made.nodes and len(made.outputs) == len(made.out_specs)
    for item in made.inputs:
        array = make_array(item)
        assert (array.shape, array.dtype) == (item.shape, dtype_of(item.dtype))


@few
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_seed_and_a_number_give_one_program(seed, number):
    assert draw(seed, number) == draw(seed, number)


@few
@given(PROGRAMS)
def test_the_builder_has_the_types_that_the_rules_read(made):
    """The types of the plain function's results are those of the values that are its outputs."""
    types = find_types(made)
    plain = Builder(made, "plain", None).function(keep=True)
    structs = [jax.ShapeDtypeStruct(i.shape, dtype_of(i.dtype)) for i in made.inputs]
    with jax.enable_x64(made.x64):
        results, _ = jax.eval_shape(plain, *structs)
    assert [(r.shape, r.dtype) for r in results] == [(types[o].shape, types[o].dtype) for o in made.outputs]


@few
@given(PROGRAMS)
def test_pruning_twice_changes_nothing_more_and_no_result(made):
    once = prune(made)
    assert prune(once) == once and len(once.outputs) == len(made.outputs)
    before, after = find_types(made), find_types(once)
    assert [before[o] for o in made.outputs] == [after[o] for o in once.outputs]


@few
@given(PROGRAMS, st.data())
def test_a_smaller_candidate_is_a_program_or_is_refused(made, data):
    """Whatever a rule gives, its form is told right or wrong, without an error of the shrinker itself. A valid one can
    be written, and a chain of them ends, since each is smaller than the one before."""
    rule = data.draw(st.sampled_from(RULES))
    for candidate in [*rule(made)][:12]:
        candidate = fit_transform(candidate)
        assert isinstance(candidate, Program)
        if measure_weight(candidate) >= measure_weight(made) or not is_valid(candidate):
            continue
        assert from_json(json.loads(json.dumps(to_json(candidate)))) == candidate
        assert [make_array(i).shape for i in candidate.inputs] == [i.shape for i in candidate.inputs]
        assert candidate.mesh_size <= made.mesh_size


@few
@given(PROGRAMS)
def test_a_program_spelled_manually_is_valid_and_no_collective_comes_in(made):
    try:
        manual = spell_manually(made)
    except Inapplicable:
        assume(False)
    assert is_valid(manual)
    assert next(walk_nodes(manual.nodes)).op == "shard_map"
    own, rows = find_types(made), find_types(manual)
    size = made.axes[0][1]
    for one, many_ in zip(made.outputs, manual.outputs, strict=True):
        assert (size, *own[one].shape) == rows[many_].shape and own[one].dtype == rows[many_].dtype


SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@many
@given(SHAPES, st.integers(-9, 9), st.integers(0, 20), st.integers(0, 999))
def test_random_integers_stay_in_their_range(shape, low, span, seed):
    fill = {"kind": "ints", "low": low, "high": low + span, "seed": seed}
    found = make_array(Input(shape, "int32", (), fill))
    assert found.shape == shape and ((found >= low) & (found <= low + span)).all()


@many
@given(SHAPES, st.integers(-9, 9), st.integers(0, 999))
def test_distinct_numbers_are_each_there_once(shape, low, seed):
    found = make_array(Input(shape, "int32", (), {"kind": "distinct", "low": low, "seed": seed}))
    assert sorted(found.ravel().tolist()) == [*range(low, low + math.prod(shape))]


@many
@given(st.integers(1, 4), SHAPES, st.integers(0, 999))
def test_rows_are_the_fill_with_the_next_seeds(rows, shape, seed):
    fill = {"kind": "ints", "low": -9, "high": 9, "seed": seed}
    found = make_array(Input((rows, *shape), "float32", (), {"kind": "rows", "of": fill}))
    for k in range(rows):
        assert np.array_equal(found[k], make_array(Input(shape, "float32", (), fill | {"seed": seed + k})))


@many
@given(EXPRESSIONS, st.dictionaries(st.integers(0, 5), st.integers(0, 99), max_size=6))
def test_renumbering_replaces_each_reference_and_nothing_else(expression, numbers):
    found = renumber(expression, {old: {"v": new} for old, new in numbers.items()})
    assert [*list_references(found)] == [numbers.get(v, v) for v in list_references(expression)]
    assert renumber(expression, {}) == expression


@many
@given(st.text(max_size=300))
def test_a_message_without_its_numbers_has_none_and_stays_as_it_is(text):
    found = normalize(text)
    assert len(found) <= 160 and not any(c.isdigit() and c.isascii() for c in found)


@many
@given(DATA)
def test_data_that_is_no_program_gives_one_line(data):
    with pytest.raises(ProgramError) as told:
        from_json(data)
    assert "\n" not in str(told.value)
