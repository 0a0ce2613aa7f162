# SPDX-License-Identifier: Apache-2.0
"""One case as one stand-alone script that needs only jax and numpy: what a bug report wants.

`printer` prints a program that is given as data. `reading` makes that data of a case of the table: `folding` writes the
case's options into its spelling, `formulas` says what a result is of its input, `sources` copies what is left, and
`contracts` says what must be compiled. `shrink` runs scripts in child processes to find a smaller one that still
fails. Nothing here starts a JAX backend in the process that prints.
"""

from meshmark.judge.repro.reading import read, script
from meshmark.judge.repro.sources import Bundle, ReproError, literal
from meshmark.judge.repro.subject import SPELLINGS, Form

__all__ = ["SPELLINGS", "Bundle", "Form", "ReproError", "literal", "read", "script"]
