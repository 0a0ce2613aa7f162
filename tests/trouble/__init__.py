"""A test suite in which cases crash and hang on purpose, run by tests/test_containment.py in a process of its own."""
