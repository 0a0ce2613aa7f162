# SPDX-License-Identifier: Apache-2.0
"""The colours of charts and of verdicts are told apart by people who see no red or no green.

The matrices simulate these kinds of sight in linear RGB (Machado, Oliveira and Fernandes 2009, severity 1.0). The
distance of two colours is the Euclidean one in CIE L*a*b* (CIE76), where about 2.3 is just noticeable."""

import itertools
import re

import numpy as np
import pytest

from meshmark.report import page

TEMPLATES = page.TEMPLATES
SIGHTS = {
    "all colours": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)
LEAST = 14.0
GROUNDS = {"dark": "#14171b", "light": "#ffffff"}


def linear(colour):
    """The linear RGB of a colour such as #0b5cad."""
    part = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIE L*a*b* of a linear RGB, for the white D65."""
    t = (XYZ @ rgb) / XYZ.sum(1)
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colours, sight):
    """(the least distance of two of the colours, these two)."""
    seen = {c: lab(np.clip(SIGHTS[sight] @ linear(c), 0, 1)) for c in colours}
    return min(
        (float(np.linalg.norm(seen[a] - seen[b])), a, b) for a, b in itertools.combinations(colours, 2)
    )


def contrast(one, other):
    """The ratio of WCAG 2."""
    high, low = sorted((XYZ[1] @ linear(one), XYZ[1] @ linear(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def palettes():
    """The colours of the charts' lines, by scheme."""
    text = (TEMPLATES / "page" / "charts.js").read_text(encoding="utf-8")
    found = re.search(r"palette = .*?\? (\[.*?\]) : (\[.*?\]);", text)
    return {"dark": re.findall(r"#\w{6}", found[1]), "light": re.findall(r"#\w{6}", found[2])}


def verdicts():
    """The colours of the squares that show verdicts, by scheme."""
    text = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    failure = re.search(r"\.g-bad \{ fill: (#\w{6})", text)[1]
    found = {}
    for block in re.findall(r"\{([^{}]*--calm:[^{}]*)\}", text):
        own = [re.search(rf"--{name}: (#\w{{6}})", block)[1] for name in ("ok", "some", "cool", "calm")]
        found["dark" if "color-scheme: dark" in block else "light"] = [*own, failure]
    return found


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("scheme", GROUNDS)
@pytest.mark.parametrize("of", [palettes, verdicts])
def test_colours_are_told_apart(of, scheme, sight):
    distance, one, other = nearest(of()[scheme], sight)
    assert distance >= LEAST, (one, other, distance)


@pytest.mark.parametrize("scheme", GROUNDS)
def test_lines_stand_out_from_the_ground(scheme):
    assert len(palettes()[scheme]) == 8
    for colour in palettes()[scheme]:
        assert contrast(colour, GROUNDS[scheme]) >= 3, colour


def test_colours_that_are_alike_are_seen():
    """Two colours that differ in green alone are one colour for a person who sees no green."""
    assert (
        nearest(["#e58fc8", "#9fb1c1"], "all colours")[0]
        > LEAST
        > nearest(["#e58fc8", "#9fb1c1"], "no green")[0]
    )
