# SPDX-License-Identifier: Apache-2.0
"""Functions, loops, calls and placements at their edges."""
