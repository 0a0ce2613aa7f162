# SPDX-License-Identifier: Apache-2.0
"""Several processes: the channel between them, joining, agreeing, timing together, merging, launching."""
