"""What needs records and the case table: must-pass lists, committed counters, known issues, and their data."""
