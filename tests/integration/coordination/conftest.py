"""As for jobs: what a test declares is dispatched to, and run at, a station. Its workers move and carry themselves."""

from __future__ import annotations

from tests.integration.jobs.conftest import bare, manager, station

__all__ = ["bare", "manager", "station"]
