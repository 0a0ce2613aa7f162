"""The tests of the harness run on eight virtual CPU devices, asked for before JAX is imported."""

import os

os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"

collect_ignore = ["trouble"]  # a suite of its own, run by test_containment.py
