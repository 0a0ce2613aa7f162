# SPDX-License-Identifier: Apache-2.0
"""The devices and processes that programs run on: probes, chips and their peaks, topologies, projections,
containment."""
