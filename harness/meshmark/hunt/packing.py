# SPDX-License-Identifier: Apache-2.0
"""Writes the checkout's findings into the file of the package: `python -m meshmark.hunt.packing`.

The file is part of an installation. Run this after each change of `results/findings`.
"""

from __future__ import annotations

from meshmark.hunt import findings


def main() -> None:
    """Write the file, and say how many findings it has."""
    if findings.DEFAULT == findings.PACKED:
        raise SystemExit("this installation has no checkout with results/findings")
    every = findings.read_findings()
    findings.PACKED.parent.mkdir(exist_ok=True)
    findings.PACKED.write_text(findings.pack(every), encoding="utf-8")
    print(f"{findings.PACKED}: {len(every)} findings")


if __name__ == "__main__":
    main()
