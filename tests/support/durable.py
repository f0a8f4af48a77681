"""What tests of durability have in common: clients that wait for long or not, and what a server holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector, Waits
from tests.support.servers import LocalServer, connect

JOBS = "delayq:{default}:jobs"
SHORT = Waits(confirm_ms=200)
"""For what never comes: it need not be waited for at length."""
PATIENT = Waits(answer_ms=30_000, budget_ms=90_000, confirm_ms=20_000)
"""For what does come, on a machine that others use too."""

Open = Callable[..., Client]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Makes clients with connections of their own."""
    with ExitStack() as stack:

        def make(url: str, waits: Waits = PATIENT, **options: object) -> Client:
            return Client(stack.enter_context(closing(Connector(url, waits=waits))), Options(**options))  # type: ignore[arg-type]

        yield make


def has(server: LocalServer, job_id: str) -> bool:
    with connect(server.url) as client:
        return bool(client.hexists(JOBS, job_id))
