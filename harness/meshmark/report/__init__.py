"""Records in; summaries, tables, differences and the page out."""
