# SPDX-License-Identifier: Apache-2.0
"""The custom call for random bits on GPU: the published vectors of the cipher, and a compiled program against JAX."""

import jax
import numpy as np
import pytest

from meshmark.core.hlo_types import Refused
from meshmark.interpreter import reader
from meshmark.interpreter.evaluator import interpret
from meshmark.interpreter.faults import Fault
from tests.interpreter.modules import run
from tests.interpreter.planted import text

CALL = 'custom-call(%k0, %k1, %c0, %c1), custom_call_target="cu_threefry2x32_ffi", api_version=API_VERSION_TYPED_FFI'
ALL = 0xFFFFFFFF


def called(*words, call=CALL, kind="u32"):
    """The two results of a call for one counter."""
    names = ("k0", "k1", "c0", "c1")
    lines = [f"%{name} = {kind}[1] parameter({n})" for n, name in enumerate(names)]
    given = [np.array([[word]], np.uint32).view(np.float32 if kind == "f32" else np.uint32) for word in words]
    found = run(*lines, f"%r = ({kind}[1], {kind}[1]) {call}", arguments=given, header="num_partitions=1")
    return [int(words[0, 0]) for words in found]


@pytest.mark.parametrize(
    ("key", "counter", "encrypted"),
    [  # Random123's kat_vectors, threefry2x32 with 20 rounds
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ALL, ALL), (ALL, ALL), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_published_vectors(key, counter, encrypted):
    assert called(*key, *counter) == list(encrypted)


def bits(hlo):
    """The bits that the stored program gives: 8 rows over the first axis of a mesh of 2x4."""
    key = np.array([[7, 11]], np.uint32)
    [found] = interpret(reader.parse_module(hlo), [np.repeat(key, 8, axis=0)])
    return np.concatenate([found[0], found[4]])


def test_a_program_of_random_bits_gives_the_bits_of_jax():
    key = jax.random.wrap_key_data(np.array([7, 11], np.uint32), impl="threefry2x32")
    with jax.threefry_partitionable(True):
        wanted = np.asarray(jax.random.bits(key, (8, 128)))
    assert np.array_equal(bits(text("h100_random_bits")), wanted)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            "%get-tuple-element.6, %get-tuple-element.7, %loop",
            "%get-tuple-element.7, %get-tuple-element.6, %loop",
        ),
        ("%loop_convert_fusion, %loop_convert_fusion.1)", "%loop_convert_fusion.1, %loop_convert_fusion)"),
        ("%get-tuple-element.3.0, %constant_4_0", "%get-tuple-element.2.0, %constant_4_0"),
        ("0, 0, 0, 0, 1, 1, 1, 1", "0, 0, 0, 0, 0, 0, 0, 0"),
    ],
    ids=[
        "words of the key swapped",
        "words of the counter swapped",
        "a word twice",
        "the same rows everywhere",
    ],
)
def test_a_planted_fault_gives_other_bits(right, wrong):
    hlo = text("h100_random_bits")
    assert hlo.count(right) == 1
    assert not np.array_equal(bits(hlo.replace(right, wrong)), bits(hlo))


@pytest.mark.parametrize(
    "changed",
    [
        {"call": CALL + ", backend_config={rounds = 13 : i32}"},
        {"call": CALL.replace(", %c1", "")},
        {"kind": "f32"},
    ],
)
def test_another_form_of_the_call_is_refused(changed):
    with pytest.raises((Refused, Fault)):
        called(1, 2, 3, 4, **changed)
