"""As for workers: a station on a server, and rule 1 checked in every shard when the test is over."""

from __future__ import annotations

from tests.integration.worker.conftest import station, stations

__all__ = ["station", "stations"]
