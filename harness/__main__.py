# SPDX-License-Identifier: Apache-2.0
"""`python -m harness` is `meshmark`, in a bare checkout: published files name this spelling."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from meshmark.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
