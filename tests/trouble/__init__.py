# SPDX-License-Identifier: Apache-2.0
"""A test suite in which cases crash and hang on purpose; tests/devices/test_containment.py runs it in a process."""
