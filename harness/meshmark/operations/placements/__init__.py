# SPDX-License-Identifier: Apache-2.0
"""Placement of arrays: puts, fetches, resharding, checkpoints in one process, and the views of a sharding in JAX."""
