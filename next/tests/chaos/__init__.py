"""Runs of minutes in which processes are killed. `make chaos` runs them; `make test-all` runs them once."""
