# SPDX-License-Identifier: Apache-2.0
"""Random sharded programs: drawn, judged, shrunk, grouped and kept."""
