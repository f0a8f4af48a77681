"""Benchmarks: both editions of delayq side by side, on the same server program, in turn."""
