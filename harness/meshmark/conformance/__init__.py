"""The conformance tests, one module per family of operations. `meshmark test` runs them."""
