# SPDX-License-Identifier: Apache-2.0
"""Modules of HLO text for the tests: the lines of the entry, and of other computations if needed."""

import numpy as np

from meshmark.interpreter import reader
from meshmark.interpreter.evaluator import interpret

ADD = """%add.1 (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %sum.1 = f32[] add(%a.1, %b.1)
}
"""


def text(*lines, others=(), header="num_partitions=8"):
    """A module whose entry has these lines; the last one is the root."""
    body = "\n".join(f"  {'ROOT ' if line is lines[-1] else ''}{line}" for line in lines)
    return f"HloModule m, {header}\n\n" + "\n".join(others) + f"\nENTRY %main () -> f32[] {{\n{body}\n}}\n"


def run(*lines, arguments=(), others=(), header="num_partitions=8", **options):
    """The results of such a module; arguments are [devices, *local shape]."""
    return interpret(
        reader.parse_module(text(*lines, others=others, header=header)),
        [np.asarray(a) for a in arguments],
        **options,
    )


def each(*values, kind=np.float32):
    """One scalar per device."""
    return np.array(values, kind)
