# SPDX-License-Identifier: Apache-2.0
"""The interpreter of compiled programs: computes optimized HLO text for all devices at once, in NumPy.

It shares no code with XLA. `reader` makes a typed module of the text, `evaluator` computes it over arrays with a
leading device axis. What the interpreter does not know, it refuses by name (`faults.Refused`).
"""
