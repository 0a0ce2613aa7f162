# SPDX-License-Identifier: Apache-2.0
"""The versions that decide which program a seed and a number give."""

import hashlib
from pathlib import Path

GENERATOR = 13
"""The version of the generator. A change that gives another program for the same seed and number raises it."""

SOURCES = (
    *("generator", "levels", "forms", "drawing", "functions"),
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
"""The modules that draw. The values of inputs are made by `meshmark.program_data.values`."""


def vocabulary() -> str:
    """A digest of the modules that draw, as twelve hexadecimal digits; comments count. Equal digests give equal
    programs on one release of JAX. The release matters because JAX may refuse a drawn operation."""
    here = Path(__file__).parent
    files = [*(here / f"{name}.py" for name in SOURCES), here.parent / "program_data" / "values.py"]
    text = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(text).hexdigest()[:12]
