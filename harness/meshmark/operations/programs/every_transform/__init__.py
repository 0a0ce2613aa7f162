# SPDX-License-Identifier: Apache-2.0
"""Examples under every transform."""
