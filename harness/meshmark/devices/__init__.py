# SPDX-License-Identifier: Apache-2.0
"""What programs run on: probing, chips and their peaks, topologies, projections, containment of processes."""
