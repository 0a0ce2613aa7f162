# SPDX-License-Identifier: Apache-2.0
"""Numbers that JAX's tutorial publishes for its layer."""

import numpy as np

from meshmark.core.bounds import FLOAT32, bounded
from meshmark.operations.models.layers import PUBLISHED, PUBLISHED_INPUTS, Dense


def test_published():
    """The numbers that JAX's tutorial prints are the reference's, within its bound and their last digit."""
    x, w, b = np.split(PUBLISHED_INPUTS, [32, 160])
    layer = Dense.reference(*(bounded(a, FLOAT32) for a in (x, w.reshape(32, 4), b)))
    assert (np.abs(layer.value - PUBLISHED) <= layer.error + 5e-9).all()
