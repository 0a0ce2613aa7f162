# SPDX-License-Identifier: Apache-2.0
"""Must-pass lists, committed counters and known issues, with their data: they need records and the case table."""
