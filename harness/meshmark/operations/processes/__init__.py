# SPDX-License-Identifier: Apache-2.0
"""Operations over several processes: global arrays from local parts, `multihost_utils`, input pipelines, checkpoints,
and the start and shutdown of a process group."""
