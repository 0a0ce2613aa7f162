# SPDX-License-Identifier: Apache-2.0
"""The conformance tests, one module per family of operations. `meshmark test` runs them."""
