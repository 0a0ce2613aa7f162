# SPDX-License-Identifier: Apache-2.0
"""The products that a pull request changes: `python changed_products.py CHECKOUT BASE`.

Prints one results/<release>/<product> per line. Exit code 1 if there is none, or if a path below results/ is neither of
a product nor of a place that the project itself keeps there: such a path would be validated by nobody.
"""

from __future__ import annotations

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


def changed(checkout: str, base: str) -> list[str]:
    """The paths below results/ that differ from where the branch began, with every name as it is."""
    command = ["git", "-C", checkout, "diff", "--name-only", "-z", f"{base}...HEAD", "--", "results"]
    return [
        path
        for path in subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
        if path
    ]


def main() -> int:
    """Print the products; 1 if something would not be validated."""
    try:
        found = products(changed(*sys.argv[1:3]))
    except (ValueError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    if not found:
        print("the pull request changes no product", file=sys.stderr)
        return 1
    print("\n".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
