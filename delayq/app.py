"""The composition root: the only place where settings become connectors, clients and loops.

    settings ──▶ Options ───────────────────────────────▶ what verbs and loops work with
       │
       ├─ url ─────────────────────────────▶ Connector ─▶ Client, driver, worker
       └─ no url ─▶ the embedded server ─────▲

Everything below takes what it needs as arguments; everything above (the command line, `DelayQ()`) asks here.
"""

from __future__ import annotations

from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.embedded import EmbeddedServer, default_data_dir
from delayq.settings import Settings


def embedded_server(settings: Settings) -> EmbeddedServer:
    """The embedded server of these settings, running or not. Raises `ConfigError` without a place for its data."""
    return EmbeddedServer(settings.data_dir or default_data_dir(), server=settings.redis_server)


def open_connector(settings: Settings) -> Connector:
    """Connections to the Redis of the settings; without a URL, to the embedded server, started if need be.

    Nothing connects to a Redis of your own before the first command. Raises `ConfigError`, and
    `BackendUnavailable` when the embedded server does not start.
    """
    return Connector(settings.url or embedded_server(settings).ensure().url)


def open_client(settings: Settings) -> Client:
    """All verbs, blocking. Close it, or use it in a `with`."""
    return Client(open_connector(settings), settings.options())
