"""Several servers that belong together."""
