"""The checkout under test."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "harness"
"""The directory that holds the package `meshmark`."""
