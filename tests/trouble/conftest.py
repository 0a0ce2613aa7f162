"""Loads the plugin with the operations that make trouble."""

from tests.trouble import operations  # noqa: F401  (registers them)

pytest_plugins = ["harness.plugin"]
