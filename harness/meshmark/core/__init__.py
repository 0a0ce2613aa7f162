# SPDX-License-Identifier: Apache-2.0
"""Plain arithmetic and text, without JAX: errors, verdicts, dtypes, values, meshes, bounds, statistics, HLO."""
