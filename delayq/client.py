"""`DelayQ` and `AsyncDelayQ`: the clients as programs make them, settings included."""

from __future__ import annotations

from dataclasses import replace

from delayq.core.errors import ConfigError
from delayq.core.options import Options
from delayq.core.spec import JobSpec
from delayq.jobs.current import brought_manager
from delayq.jobs.handler import Handler
from delayq.jobs.registry import current
from delayq.redis.aio import AsyncClient
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.opening import open_connector
from delayq.redis.verbs import Verbs
from delayq.settings import Settings

__all__ = ["AsyncDelayQ", "DelayQ"]


class DelayQ(Client):
    """All verbs, blocking. Safe to share between threads; a forked child opens connections of its own.

        q = DelayQ("redis://localhost:6379/0")
        q = DelayQ()                                # set_manager, DELAYQ_URL, delayq.toml, or the embedded server

    Without `url` it uses the Redis of the default connection of the manager that the application has set by
    `set_manager`, with that manager's settings and routes. Without such a manager: DELAYQ_URL,
    delayq.toml, or this project's embedded server. `prefix` and `queue` (for jobs that name none) go before those of
    the manager, the environment and the file; `settings` stands in for all of these. Raises `ConfigError`, also when
    the manager's default connection is no Redis. Only `DelayQ()` without any URL does more than that at once: it starts
    the embedded server if it does not run, which may raise `BackendUnavailable`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str | None = None,
        queue: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(*_opened(url, prefix, queue, settings))
        _know_the_application(self.verbs)


class AsyncDelayQ(AsyncClient):
    """As `DelayQ`, for asyncio: the same names, awaited; close it with `await q.close()` or use `async with`.

    Safe to share between tasks. Making one blocks for as long as an embedded server takes to start, when there is no
    URL and it does not run; nothing else blocks.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str | None = None,
        queue: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(*_opened(url, prefix, queue, settings))
        _know_the_application(self.verbs)


def _know_the_application(verbs: Verbs) -> None:
    """Its listeners hear of what is done; a name that it registered is scheduled with the options declared there."""
    verbs.tell = _tell
    verbs.declaring = current().declaring
    verbs.complete = _complete


def _complete(spec: JobSpec, handler: Handler) -> JobSpec:
    from delayq.jobs.sending import with_declared  # read by a program that schedules such a name, and by no other

    return with_declared(spec, handler)


def _tell(event: object) -> None:
    """To the listeners of the application this program is."""
    current().events.tell(event)


def _opened(
    url: str | None, prefix: str | None, queue: str | None, settings: Settings | None
) -> tuple[Connector, Options]:
    """The Redis of a client, and its options: of the words given, of the application's manager, of the settings."""
    if settings is not None:
        if url is not None or prefix is not None or queue is not None:
            raise TypeError("settings= stands for all settings; leave out url, prefix and queue")
        return open_connector(settings), settings.options()
    manager = brought_manager() if url is None else None
    read = Settings(url=url, prefix=prefix, queue=queue)
    if manager is None:
        return open_connector(read), read.options()
    given, options = manager.given(), manager.client_options()
    if given.driver != "redis":
        raise ConfigError(
            f"DelayQ() follows the manager that the application has set, and its default connection "
            f"{options.connection!r} is no Redis but has the driver {given.driver!r}.",
            hint='Name the Redis, as in DelayQ("redis://localhost:6379/0"), or dispatch and ask through the jobs.',
        )
    said = {name: getattr(read, name) for name, word in (("prefix", prefix), ("queue", queue)) if word is not None}
    return open_connector(manager.settings, given.url), replace(options, **said)
