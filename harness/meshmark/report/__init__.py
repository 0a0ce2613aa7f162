"""Makes summaries, tables, differences and the page from records."""
