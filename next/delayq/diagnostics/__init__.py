"""Diagnoses of jobs and servers, in sentences. The code here does no I/O; callers pass the facts in."""
