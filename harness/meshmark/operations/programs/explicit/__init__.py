# SPDX-License-Identifier: Apache-2.0
"""Functions and programs over Explicit axes, by JAX's own sharding rules."""
