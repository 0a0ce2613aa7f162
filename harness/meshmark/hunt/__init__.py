"""Programs that nobody wrote: drawn, judged, shrunk, grouped and kept."""
