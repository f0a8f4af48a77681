"""A station whose registry and manager are the current ones, as for other jobs."""

from tests.integration.jobs.conftest import bare, manager, station

__all__ = ["bare", "manager", "station"]
