"""The worker: fetch, run, settle, and keep the leases of what it holds."""
