"""Our scripts beside those of the first edition. This folder goes with the first edition."""
