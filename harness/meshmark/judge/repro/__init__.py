# SPDX-License-Identifier: Apache-2.0
"""Prints one case as a stand-alone script for a bug report, which needs only jax and numpy.

`printer` prints a program that is given as data. `reading` makes that data from a case of the table: `folding` writes
the case's options into its function, `formulas` finds short expressions of the results, `sources` copies the functions
that remain, and `contracts` writes the statements about communication. `shrink` runs scripts in child processes to find
a smaller one that still fails. The process that prints starts no JAX backend.
"""

from meshmark.judge.repro.reading import read_case, script
from meshmark.judge.repro.sources import Bundle, ReproError, literal
from meshmark.judge.repro.subject import SPELLINGS, Form

__all__ = ["SPELLINGS", "Bundle", "Form", "ReproError", "literal", "read_case", "script"]
