"""Backends behind one protocol; loops and workers know only `base`."""
