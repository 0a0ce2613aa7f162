"""Known pitfalls in anybody's asv benchmarks."""
