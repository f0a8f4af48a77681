"""From settings to a connector: the URL's Redis, or the embedded server."""

from __future__ import annotations

import logging
import os
from typing import Final

from delayq.core.endpoint import Endpoint
from delayq.core.errors import ConfigError
from delayq.redis.connect import Connector
from delayq.redis.embedded import EmbeddedServer, default_data_dir, project_data_dir
from delayq.settings import Embedded, Settings
from delayq.settings.file import project_folder

LOG: Final = logging.getLogger("delayq.redis")


def embedded_server(settings: Settings) -> EmbeddedServer:
    """The embedded server of these settings, running or not: of `data_dir`, else of the project, else of the user.

    Raises `ConfigError` without a place for its data.
    """
    folder = settings.data_dir
    if folder is None:
        project = project_folder(os.environ)
        folder = default_data_dir() if project is None else project_data_dir(project)
    return EmbeddedServer(folder, server=settings.redis_server)


def refuse_embedded(settings: Settings) -> None:
    """Raises `ConfigError` where no embedded server may be started (`embedded` is `never`)."""
    if settings.embedded is Embedded.NEVER:
        raise ConfigError(
            f"No Redis is set, and none may be started (embedded = never, from {settings.origin_of('embedded')}).",
            hint="Set DELAYQ_URL, for example redis://localhost:6379/0; or DELAYQ_EMBEDDED=auto.",
        )


def left_behind(settings: Settings) -> str:
    """The sentence for a project that gets a server of its own while the user's server may hold its jobs; else ''."""
    server = embedded_server(settings)
    if settings.data_dir is not None or server.has_run:
        return ""
    of_user = EmbeddedServer(default_data_dir())
    if of_user.data_dir == server.data_dir or not of_user.has_run:
        return ""
    return (
        f"This project gets an embedded server of its own, with data in {server.data_dir}. Jobs of the server that "
        f"projects shared before stay in {of_user.data_dir}; DELAYQ_DATA_DIR={of_user.data_dir} uses them."
    )


def url_of(settings: Settings) -> str | Endpoint:
    """The Redis of the settings; without a URL, the embedded server, started if need be.

    Raises `ConfigError`, and `BackendUnavailable` when the embedded server does not start.
    """
    if settings.url is not None:
        return settings.url
    refuse_embedded(settings)
    if said := left_behind(settings):
        LOG.warning("%s", said)
    return embedded_server(settings).ensure().url


def address_of(settings: Settings) -> str:
    """Where the Redis of the settings is, without its password; of the embedded server, where its data is."""
    if settings.url is not None:
        return str(settings.url)
    return f"the embedded server, data in {embedded_server(settings).data_dir}"


def open_connector(settings: Settings, url: Endpoint | None = None) -> Connector:
    """Connections to `url`, else to the Redis of the settings; nothing connects before the first command.

    Raises as `url_of`.
    """
    return Connector(url or url_of(settings))
