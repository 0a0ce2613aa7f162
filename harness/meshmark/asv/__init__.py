"""Finds known pitfalls in any project's asv benchmarks."""
