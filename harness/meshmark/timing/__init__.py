# SPDX-License-Identifier: Apache-2.0
"""Times cases: measurement, child processes, ceilings, tables, and comparison of two environments."""
