"""Conformance of layers."""

import numpy as np
import pytest

from harness.bounds import FLOAT32, bounded
from harness.operations.layers import PUBLISHED, PUBLISHED_INPUTS, Dense


@pytest.mark.family("layers")
def test_layers(case, verdict):
    """Every check of one case of this family."""
    verdict(case)


def test_published():
    """The numbers that JAX's tutorial prints are the reference's, within its bound and their last digit."""
    x, w, b = np.split(PUBLISHED_INPUTS, [32, 160])
    layer = Dense.reference(*(bounded(a, FLOAT32) for a in (x, w.reshape(32, 4), b)))
    assert (np.abs(layer.value - PUBLISHED) <= layer.error + 5e-9).all()
