"""A test suite in which cases crash and hang on purpose; tests/test_containment.py runs it in a process."""
