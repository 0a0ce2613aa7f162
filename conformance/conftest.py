"""Loads the plugin that gives `pytest conformance` its options, cases and records."""

pytest_plugins = ["meshmark.pytest_plugin.plugin"]
