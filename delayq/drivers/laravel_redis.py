"""The driver `laravel_redis`: the queues a Laravel application keeps in Redis, served and filled beside it.

[connections.laravel]
driver = "laravel_redis"
url = "redis://…/0"                  the Redis of Laravel's queue connection
prefix = "laravel_database_"         its database.redis.options.prefix; left out = none
retry_after = "90s"                  the same as in Laravel's config/queue.php
prefetch = 16                        how many jobs one read may bring
laravel = "redis"                    what Laravel's config/queue.php calls this connection
    failed = "/var/lib/shop/failed"      where failed jobs go (drivers/failed/choosing.py); left out = beside the queues
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from delayq.core.endpoint import Endpoint, Topology
from delayq.core.errors import ConfigError
from delayq.core.options import Options
from delayq.drivers.capabilities import Capabilities, Keeper
from delayq.drivers.failed.choosing import choose
from delayq.drivers.failed.redis import RedisFailedStore
from delayq.drivers.laravel.broker import LaravelRedis
from delayq.drivers.serving.backend import Backend
from delayq.drivers.serving.given import Given
from delayq.redis.connect import Connector, Waits
from delayq.settings.tables import ConnectionSettings

PREFETCH: Final = 16

CAPABILITIES: Final = Capabilities(
    delay=True,
    inspect=True,
    counts=True,
    clear=True,
    reads_count=True,
    keeper=Keeper.STEWARD,
    prefetch=PREFETCH,
)


def backend(name: str, given: ConnectionSettings, options: Options) -> Backend:
    """The backend of a connection. Raises `ConfigError` for settings that no Laravel has."""
    if given.url is None:
        raise ConfigError(
            f"The connection {name!r} does not say where Laravel's Redis is.",
            hint=f'Write url = "redis://host:6379/0" below [connections.{name}].',
        )
    if given.url.topology is Topology.CLUSTER:
        raise ConfigError(
            f"The connection {name!r} is a Redis Cluster, where Laravel's keys of one queue lie on several servers.",
            hint="Use one server or Sentinel for the queue connection of the Laravel application.",
        )
    said = Given(name, given)
    lease_ms = said.duration_ms("retry_after", "90s", least="1s")
    prefetch = said.number("prefetch", PREFETCH, least=1, most=500)
    beside = partial(_failed, given.url, replace(options, prefix=f"{given.prefix or ''}delayq"))
    laravel = said.text("laravel", "redis")
    failed = choose(name, said, options, laravel=laravel) if "failed" in given.options else beside
    said.no_more()
    return Backend(
        capabilities=replace(CAPABILITIES, prefetch=prefetch),
        make=partial(_broker, given.url, given.prefix or "", lease_ms),
        where=given.url.where,
        failed=failed,
    )


def _broker(url: Endpoint, prefix: str, lease_ms: int, *, answer_ms: int | None = None) -> LaravelRedis:
    waits = Waits() if answer_ms is None else Waits(answer_ms, answer_ms, answer_ms)
    return LaravelRedis(Connector(url, waits=waits), prefix=prefix, lease_ms=lease_ms)


def _failed(url: Endpoint, options: Options) -> RedisFailedStore:
    """Beside the queues, on the same server: Laravel's own store is a table of the application's database."""
    return RedisFailedStore(Connector(url), options)
