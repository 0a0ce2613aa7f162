# SPDX-License-Identifier: Apache-2.0
"""The interpreter of compiled programs: it computes optimized HLO text for all devices at once, in NumPy.

It shares no code with XLA. `reader` makes a typed module from the text, and refuses what has an unknown form.
`evaluator` computes it over arrays with a leading device axis. The interpreter refuses what it does not know, by name
(`Refused`).
"""
