# SPDX-License-Identifier: Apache-2.0
"""The products that a pull request changes: `python changed_products.py CHECKOUT BASE`.

Prints one results/<release>/<product> per line. Exit code 1 if there is none, or if a path below results/ is neither of
a product nor of a place that the project itself keeps there: such a path would be validated by nobody. A path of such a
place is named on standard error, because the validation of products does not look at it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

KEPT = ("README.md", "compile-only", "findings", "others", "page", "weather")
"""What lies below results/ beside the products. The project's own tests check these."""

PRODUCT = re.compile(r"(results/[0-9][\w.+-]*/[a-z0-9][a-z0-9._-]*)/[^/]+", re.ASCII)


def products(paths: list[str]) -> list[str]:
    """The products of these paths, each once; ValueError that names a path of nothing that is validated."""
    found = set()
    for path in paths:
        if match := PRODUCT.fullmatch(path):
            found.add(match[1])
        elif path.split("/")[1] not in KEPT:
            raise ValueError(f"{path!a} belongs to no product: results/<release>/<product>/<file>")
    return sorted(found)


def kept(paths: list[str]) -> list[str]:
    """The paths of places that the project itself keeps."""
    return [path for path in paths if not PRODUCT.fullmatch(path)]


def changed(checkout: str, base: str) -> list[str]:
    """The paths below results/ that differ from where the branch began, with every name as it is. A file that moved has
    two: the product that it left has changed too."""
    command = [
        "git",
        "-C",
        checkout,
        "diff",
        "--name-only",
        "--no-renames",
        "-z",
        f"{base}...HEAD",
        "--",
        "results",
    ]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(command, capture_output=True, check=True, env=plain)
    return [path for path in done.stdout.decode().split("\0") if path]


def main() -> int:
    """Print the products; 1 if something would not be validated."""
    try:
        paths = changed(*sys.argv[1:3])
        found = products(paths)
    except (ValueError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in kept(paths):
        print(f"not of a product, so no validation looks at it: {path!a}", file=sys.stderr)
    if not found:
        print("the pull request changes no product", file=sys.stderr)
        return 1
    print("\n".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
