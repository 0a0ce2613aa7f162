# SPDX-License-Identifier: Apache-2.0
"""Placing arrays: puts, fetches, resharding, checkpoints in one process, and what JAX shows of a sharding."""
