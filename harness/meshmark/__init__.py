"""Meshmark: the conformance and benchmark suite for distributed JAX."""

__version__ = "0.1.0"
