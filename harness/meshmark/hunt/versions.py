# SPDX-License-Identifier: Apache-2.0
"""The versions that decide which program a seed and a number give."""

import hashlib
from pathlib import Path

GENERATOR = 13
"""The version of the generator. A change that gives another program for the same seed and number raises it."""

SOURCES = (
    *("generator", "levels", "forms", "drawing", "values", "functions"),
    *(
        "algebra",
        "arranging",
        "collectives",
        "elementwise",
        "general_vocabulary",
        "idioms",
        "indexing",
        "layers",
    ),
    *("pointwise", "selecting", "statistics", "structural", "uneven", "windows"),
)
"""The modules that draw."""


def vocabulary() -> str:
    """A digest of the modules that draw, as twelve hexadecimal digits; comments count. Equal digests give equal
    programs on one release of JAX. The release matters because JAX may refuse a drawn operation."""
    here = Path(__file__).parent
    text = b"".join((here / f"{name}.py").read_bytes() for name in SOURCES)
    return hashlib.sha256(text).hexdigest()[:12]
