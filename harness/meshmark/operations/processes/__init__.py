# SPDX-License-Identifier: Apache-2.0
"""Several processes: global arrays of local parts, `multihost_utils`, input pipelines, checkpoints, start and end of a
group."""
