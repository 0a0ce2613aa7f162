# SPDX-License-Identifier: Apache-2.0
"""Finds known pitfalls in any project's asv benchmarks."""
