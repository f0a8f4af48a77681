"""From settings to a connector: the URL's Redis, or the embedded server."""

from __future__ import annotations

from delayq.core.endpoint import Endpoint
from delayq.redis.connect import Connector
from delayq.redis.embedded import EmbeddedServer, default_data_dir
from delayq.settings import Settings


def embedded_server(settings: Settings) -> EmbeddedServer:
    """The embedded server of these settings, running or not. Raises `ConfigError` without a place for its data."""
    return EmbeddedServer(settings.data_dir or default_data_dir(), server=settings.redis_server)


def open_connector(settings: Settings, url: Endpoint | None = None) -> Connector:
    """Connections to `url`, else to the Redis of the settings; without either, to the embedded server, started then.

    Nothing connects to a Redis of your own before the first command. Raises `ConfigError`, and
    `BackendUnavailable` when the embedded server does not start.
    """
    return Connector(url or settings.url or embedded_server(settings).ensure().url)
