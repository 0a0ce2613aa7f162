"""Several processes: the channel between them, joining, agreeing, timing together, merging, launching."""
