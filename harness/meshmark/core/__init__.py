"""Plain arithmetic and text, without JAX: errors, verdicts, dtypes, values, meshes, bounds, statistics, HLO."""
