# SPDX-License-Identifier: Apache-2.0
"""Whole programs: what their references and cases promise. tests/studies/faults_of_programs.py holds planted faults."""

import importlib.util
import re
from unittest.mock import patch

import jax
import numpy as np
import pytest

from meshmark.core.verdicts import worst
from meshmark.judge.checks import Judge
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.models.decoder_reference import Model, decoded
from meshmark.operations.models.experts import places_taken
from meshmark.operations.programs import skewed
from meshmark.operations.programs.forms import base as forms
from meshmark.operations.programs.forms import collective_options, features, function_forms, options
from meshmark.operations.selection import Selection
from meshmark.operations.transforms import dropout

PROGRAMS = tuple(name for name, o in OPERATIONS.items() if o.family == "programs")


@pytest.mark.parametrize(
    ("module", "chosen"),
    [
        (forms, forms.FORMS),
        (options, options.OPTIONS),
        (features, features.FEATURES),
        (function_forms, function_forms.FUNCTION_FORMS),
        (collective_options, collective_options.COLLECTIVE_OPTIONS),
    ],
)
def test_every_form_that_a_module_defines_is_a_case(module, chosen):
    defined = {n: f for n, f in vars(module).items() if re.match("_[a-z]", n) and callable(f)}
    assert chosen == {name.removeprefix("_"): function for name, function in defined.items()}


def verdict(case_id):
    """The verdict of a case on the devices here."""
    return worst(line.verdict for line in Judge(tuple(jax.devices())).run(cases.find(case_id, 8)))


@pytest.fixture(scope="module")
def arguments():
    """The arguments of a decoder in float64."""
    case = cases.find("decoder/batch=x,model=y/auto/2x4/float64/n8", 8)
    return case.cell.arguments(0)


def test_the_gradient_of_the_reference_is_that_of_its_differences(arguments):
    """Of the mean loss, along a random direction, with steps of 2**-12: their error is of the order of 2**-24."""
    tokens, labels, *weights = arguments
    model = Model(tokens, labels, *weights)
    gradients = model.gradient(np.full(model.losses.shape, 1.0 / model.losses.size))
    rng = np.random.default_rng(0)
    for number, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
        direction, step = rng.standard_normal(weight.shape), 2.0**-12
        moved = []
        for sign in (1.0, -1.0):
            changed = weights.copy()
            changed[number] = weight + sign * step * direction
            moved.append(Model(tokens, labels, *changed).loss)
        slope = (moved[0] - moved[1]) / (2 * step)
        assert slope == pytest.approx((gradient * direction).sum(), rel=1e-4, abs=1e-7)


def test_decoding_one_token_gives_what_the_whole_sequence_gives(arguments):
    """The cache of all tokens but the last, and the last token: the same probabilities as in the whole pass."""
    tokens, labels, *weights = arguments
    model = Model(tokens, labels, *weights)
    cache = np.stack([block.kv for block in model.blocks])
    last = cache.shape[3] - 1
    cache[:, :, :, last] = np.nan  # must not be read
    logits, kept = decoded(tokens[:, last], last, cache, *weights)
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(e / e.sum(axis=-1, keepdims=True), model.probabilities[:, last], rtol=1e-12)
    np.testing.assert_allclose(kept, np.stack([block.kv for block in model.blocks]), rtol=1e-12)


def test_bounds_of_gradients_are_small_against_the_gradients():
    """Also those of a step, of which the gradient is only a part."""
    chosen = Selection("standard", operations=("decoder_gradient", "decoder_training"))
    for cell, _ in cases.cells(chosen, 8):
        given = cell.arguments(0)
        expected, bounds = cell.expected(given)
        if cell.operation.name == "decoder_training":
            expected, bounds = [e - w for e, w in zip(expected[1:], given[2:], strict=True)], bounds[1:]
        for value, bound in zip(expected, bounds, strict=True):
            assert bound.max() < 0.1 * np.abs(value).max(), cell.id


def test_experts_drop_tokens_in_every_cell():
    for cell, _ in cases.cells(Selection("standard", operations=("mixture_of_experts",)), 8):
        x, router, *_ = cell.arguments(0)
        placed = sum(1 for _ in places_taken(x, router, cell.plan.options["capacity"]))
        assert 0 < placed < x.shape[0] * x.shape[1], cell.id


def test_the_standard_profile_takes_few_cases_of_each_program():
    count = sum(1 for _ in cases.cases(Selection("standard", operations=PROGRAMS), 8))
    assert len(PROGRAMS) < count <= 130


def test_a_mode_without_a_spelling_says_why():
    training = OPERATIONS["decoder_training"]
    mesh = cases.find("decoder/batch=x,model=y/auto/2x4/float32/n8", 8).mesh
    assert "check_vma=False" in training.absent("manual-novma", next(training.variants(mesh)), mesh)


LIBRARIES = {
    "optax": "optax_optimizer/rule=adam,rows=x,columns=y,made=explicit/host/2x4/float32/n8",
    "orbax": "checkpoint_between_meshes/saved=half,to=x.y/host/2x4/float32/4KiB",
    "flax": "nnx_layers/made=in_program,axis=y/host/2x4/float32/64B",
    "datarax": "datarax_sharder/rest=dropped/host/2x4/float32/64B",
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_not_installed_is_unsupported(name):
    with patch.object(importlib.util, "find_spec", lambda name: None):
        assert verdict(LIBRARIES[name]) == "unsupported"


def test_a_whole_state_of_optax_is_noticed():
    optax = pytest.importorskip("optax")
    real = optax.adam

    def adam(*arguments):
        made = real(*arguments)

        def init(parameters):
            state = made.init(parameters)
            mesh = jax.typeof(parameters[0]).sharding.mesh
            whole = jax.sharding.NamedSharding(mesh, jax.P())
            return jax.tree.map(lambda x: jax.sharding.reshard(x, whole), state)

        return optax.GradientTransformation(init, made.update)

    assert verdict(LIBRARIES["optax"]) == "pass"
    with patch.object(optax, "adam", adam):
        assert verdict(LIBRARIES["optax"]) in ("fail", "error")


def test_metadata_that_flax_ignores_is_noticed():
    nnx = pytest.importorskip("flax.nnx")
    case = "nnx_layers/made=by_state,axis=y/host/2x4/float32/64B"
    assert verdict(case) == "pass"

    def whole(state, mesh):
        return jax.tree.map(lambda x: jax.NamedSharding(mesh, jax.P()), state)

    with patch.object(nnx, "get_named_sharding", whole):
        assert verdict(case) == "fail"


@pytest.mark.parametrize("rest", ["dropped", "spread"])
def test_a_row_that_datarax_gives_to_two_processes_is_noticed(rest):
    sharder = pytest.importorskip("datarax.sharding.jax_process_sharder").JaxProcessSharderModule
    case = f"datarax_sharder/rest={rest}/host/2x4/float32/64B"
    assert verdict(case) == "pass"
    real = sharder._shard_bounds

    def overlapping(self, size):
        first, end = real(self, size)
        return max(first - 1, 0), max(end - 1, 0) if first else end

    with patch.object(sharder, "_shard_bounds", overlapping):
        assert verdict(case) in ("fail", "error")


def test_a_restored_array_in_the_order_of_the_saved_mesh_is_noticed():
    ocp = pytest.importorskip("orbax.checkpoint")
    real = ocp.StandardCheckpointer.restore

    def restore(checkpointer, place, wanted):
        found = real(checkpointer, place, wanted)
        return {k: jax.device_put(np.asarray(x)[::-1], x.sharding) for k, x in found.items()}

    assert verdict(LIBRARIES["orbax"]) == "pass"
    with patch.object(ocp.StandardCheckpointer, "restore", restore):
        assert verdict(LIBRARIES["orbax"]) == "fail"


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_steps_at_once_are_those_one_after_the_other(count):
    x = np.array([0, 1, 2**31, 2**32 - 1], np.uint32)
    by_hand = x.copy()
    for _ in range(count):
        by_hand = by_hand * np.uint32(skewed.FACTOR) + np.uint32(skewed.TERM)
    assert np.array_equal(skewed.stepped_at_once(x, count), by_hand)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_each_device_is_last_in_one_round_of_uneven_work(n):
    late = [max(range(n), key=lambda position: skewed.share(position, number, n)) for number in range(n)]
    assert sorted(late) == list(range(n))


def test_a_quarter_of_the_elements_is_left_after_two_layers_of_dropout():
    x = np.ones((64, 64), np.float32)
    value, gradient = dropout.DropoutGradient.reference(x, 3 * x)
    assert set(np.unique(value)) == {0, 4} and np.array_equal(gradient, 3 * value)
    assert 0.2 < np.mean(value != 0) < 0.3
