# SPDX-License-Identifier: Apache-2.0
"""Programs that nobody wrote: drawn, judged, shrunk, grouped and kept."""
