# SPDX-License-Identifier: Apache-2.0
"""`python -m meshmark` is `meshmark`."""

import sys

from meshmark.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
