"""Explains in sentences why a job has not run. The code here does no I/O; callers pass the facts in."""
