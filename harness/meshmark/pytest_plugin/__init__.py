"""`pytest conformance`: options, cases, verdicts and records as a plugin of pytest."""
