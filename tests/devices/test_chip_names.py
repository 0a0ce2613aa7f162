# SPDX-License-Identifier: Apache-2.0
"""The chips that a text names, in any letters that look so, and by the names under which they are sold."""

import pytest

from meshmark.devices.chip_names import named_in, others_in


@pytest.mark.parametrize(
    ("text", "chip"),
    [
        ("NVIDIA H1OO SXM", "h100"),
        ("NVIDIA Hl00", "h100"),
        ("NVIDIA \U0001d407\U0001d7cf\U0001d7ce\U0001d7ce", "h100"),
        ("NVIDIA \u041d100", "h100"),
        ("TPU \uff56\uff15\uff45", "v5e"),
        ("TPU v5\u0435", "v5e"),
        ("TPU v\u03015e", "v5e"),
        ("TPU v5 lite chips", "v5e"),
        ("v5litepod-8", "v5e"),
        ("Google Cloud Trillium", "v6e"),
        ("trillium-256", "v6e"),
        ("256 Ironwood chips", "tpu7x"),
        ("8 Ir\u043enwood", "tpu7x"),
        ("TPU v7x", "tpu7x"),
        ("TPU v4", "v4"),
    ],
)
def test_a_chip_is_found_by_every_name(text, chip):
    assert named_in(text) == {chip}


@pytest.mark.parametrize(
    "text",
    [
        "two cores of an AMD EPYC, shared with other work",
        "Eight virtual CPU devices",
        "Trillium, the cluster of a university",
        "a laboratory in Ironwood",
        "Intel Xeon E5-2680 v4",
        "the CPU of a GH200",
        "hello world",
    ],
)
def test_other_texts_name_none(text):
    assert named_in(text) == set() and others_in(text) == set()


def test_accelerators_without_figures_are_found_too():
    assert others_in("AMD \u039cI300X") == {"mi300x"}
