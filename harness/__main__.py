"""`python -m harness` is `meshmark`."""

import sys

from harness.cli import main

sys.exit(main())
