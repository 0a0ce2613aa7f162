"""Timing cases: measuring, children, ceilings, tables, and comparing two environments."""
