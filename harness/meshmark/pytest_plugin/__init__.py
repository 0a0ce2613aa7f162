# SPDX-License-Identifier: Apache-2.0
"""`pytest conformance`: options, cases, verdicts and records as a plugin of pytest."""
