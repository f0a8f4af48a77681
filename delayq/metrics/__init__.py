"""Metrics for Prometheus. What stands on its client needs the extra `metrics`."""
