"""From settings to a connector: the URL's Redis, or the embedded server."""

from __future__ import annotations

from delayq.core.endpoint import Endpoint
from delayq.redis.connect import Connector
from delayq.redis.embedded import EmbeddedServer, default_data_dir
from delayq.settings import Settings


def embedded_server(settings: Settings) -> EmbeddedServer:
    """The embedded server of these settings, running or not. Raises `ConfigError` without a place for its data."""
    return EmbeddedServer(settings.data_dir or default_data_dir(), server=settings.redis_server)


def url_of(settings: Settings) -> str | Endpoint:
    """The Redis of the settings; without a URL, the embedded server, started if need be.

    Raises `ConfigError`, and `BackendUnavailable` when the embedded server does not start.
    """
    return settings.url or embedded_server(settings).ensure().url


def open_connector(settings: Settings, url: Endpoint | None = None) -> Connector:
    """Connections to `url`, else to the Redis of the settings; nothing connects before the first command.

    Raises as `url_of`.
    """
    return Connector(url or url_of(settings))
