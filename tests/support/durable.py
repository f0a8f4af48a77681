"""What tests of durability have in common: clients that wait for long or not, and what a server holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing

import pytest

from delayq.core import failure as failures
from delayq.core.failure import Failure
from delayq.core.options import Options
from delayq.core.views import JobRef
from delayq.redis.calls import deliver
from delayq.redis.client import Client
from delayq.redis.connect import Connector, Waits
from delayq.redis.send import through
from tests.support.failing import take
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


def ids_of(refs: Sequence[object]) -> list[str]:
    """The ids in the answers that a short answer has with it."""
    return [ref.id for ref in refs if isinstance(ref, JobRef)]


def fail_in(client: Client, shard: str, job_id: str, queue: str | None = None) -> None:
    """Let a waiting job fail in its shard, in which nothing else may be ready."""
    client.run_now(job_id, queue=queue)
    held = take(client, job_id, shard)
    failure = failures.encode(Failure("ValueError", "no", "", attempt=1))
    call = deliver.fail(client.verbs.shard(shard), [deliver.Failed(held, b"", failure)])
    assert through(client.connector, call) == [True]
