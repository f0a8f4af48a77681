"""Amazon SQS: `driver = "sqs"`, extra `sqs`.

    [connections.aws]
    driver = "sqs"
    region = "eu-central-1"               else AWS_REGION, or the profile's
    profile = "shop"                      of ~/.aws/config; keys are never kept in these settings
    endpoint_url = "http://…"             of something that speaks SQS and is not AWS
    account = "123456789012"              whose queues, if not one's own
    prefix = "shop-"                      before the name of every queue
    suffix = "-live"                      behind it, before .fifo
    group = "all"                         the message group on FIFO queues; the queue's name without one
    lease = "30s"                         how long a message is hidden that nobody renews
    create = false                        whether to make queues that are missing
    failed = "redis://…"                  see delayq.drivers.failed.choosing
    laravel = "sqs"                       what the config/queue.php of a Laravel application that uses the queues calls
                                          this connection: jobs are Laravel's payloads then (delayq.drivers.bodies)

`place` has names and numbers, `clients` and `service` the calls, `message` what a job is there, `receiving` and
`settling` both ends of a reservation, `receipts` its handle; `broker` puts them together.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from delayq.core.options import Options
from delayq.drivers.capabilities import Capabilities, Keeper
from delayq.drivers.failed.choosing import choose
from delayq.drivers.serving.backend import Backend
from delayq.drivers.serving.given import Given
from delayq.drivers.sqs.broker import Shared, SqsBroker
from delayq.drivers.sqs.clients import Clients
from delayq.drivers.sqs.place import BATCH, HOP_S, MAX_BYTES, read
from delayq.drivers.sqs.receipts import Receipts
from delayq.settings.tables import ConnectionSettings

CAPABILITIES: Final = Capabilities(
    delay=True,
    counts=True,
    clear=True,
    chains=True,
    resolution_ms=1000,
    recoveries=True,
    keeper=Keeper.STEWARD,
    max_bytes=MAX_BYTES,
    prefetch=BATCH,
)


def backend(name: str, given: ConnectionSettings, options: Options) -> Backend:
    """What the settings describe. Raises `ConfigError` for what cannot be used; opens nothing."""
    words = Given(name, given)
    place = read(name, given, words, options.lease_ms)
    failed = choose(name, words, options, laravel=place.laravel)
    words.no_more()
    # A PHP worker knows nothing of the due time of a message that is sent on, and would run the job early.
    beside = replace(CAPABILITIES, chains=False, max_delay_ms=HOP_S * 1000)
    can = beside if place.laravel else CAPABILITIES
    return Backend(can, partial(_make, Shared(place, Clients(place), Receipts())), str(place), failed)


def _make(shared: Shared, *, answer_ms: int | None = None) -> SqsBroker:
    return SqsBroker(shared, answer_ms)
