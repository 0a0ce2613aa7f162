# SPDX-License-Identifier: Apache-2.0
"""Makes summaries, tables, differences and the page from records."""
