"""One case, timed: measuring, children, ceilings, tables, and comparing two environments."""
