# SPDX-License-Identifier: Apache-2.0
"""Meshmark: the conformance and benchmark suite for distributed JAX."""

__version__ = "0.1.0"
