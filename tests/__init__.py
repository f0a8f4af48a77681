"""The suite. A regular package, so that no stray `tests` in site-packages can take its place."""
