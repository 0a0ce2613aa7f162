# SPDX-License-Identifier: Apache-2.0
"""Functions inside a `shard_map` that is manual over one axis of a mesh of several."""
