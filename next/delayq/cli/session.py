"""What one run of the command line shares: the settings that its root options and the environment give."""

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import typer
from pydantic import SecretStr

from delayq.client import DelayQ
from delayq.core.errors import CallRefused, QueueNotFound
from delayq.settings.model import Settings, load_settings

if TYPE_CHECKING:
    from delayq.redis.embedded.server import EmbeddedServer


@dataclass
class CliSession:
    """The root options of one run."""

    url: str | None
    prefix: str | None

    def root_words(self) -> list[str]:
        """Return the root options as they were given, for another run of the command line."""
        given = {"--url": self.url, "--prefix": self.prefix}
        return [word for option, value in given.items() if value is not None for word in (option, value)]

    @cached_property
    def settings(self) -> Settings:
        """The settings; raises ConfigError."""
        return load_settings(url=self.url, prefix=self.prefix)

    def with_given(self, **given: object) -> Settings:
        """Return the settings with what this command was given; raises ConfigError."""
        return load_settings(url=self.url, prefix=self.prefix, **given)

    @cached_property
    def embedded(self) -> "EmbeddedServer":
        """The embedded server of this project, which need not run; raises ConfigError."""
        from delayq.redis.embedded.server import EmbeddedServer  # needed for no other server

        return EmbeddedServer.of_project(self.settings)

    def with_server(self, settings: Settings, *, tells_start: bool = True) -> Settings:
        """Return settings with a url. Without one, the embedded server is found or started, which is told on stderr.

        Raises ConfigError, BackendUnavailable.
        """
        if not settings.uses_embedded:
            return settings
        if self.embedded.find_or_start() and tells_start:
            print(f"delayq: started the embedded server, data in {self.embedded.data_dir}", file=sys.stderr)
        return settings.model_copy(update={"url": SecretStr(self.embedded.url)})

    def client(self) -> DelayQ:
        """Return a client; raises ConfigError."""
        return DelayQ(settings=self.with_server(self.settings))


def session_of(context: typer.Context) -> CliSession:
    """Return what the root command made."""
    session: CliSession = context.obj
    return session


def check_queue_known(client: DelayQ, queue: str) -> None:
    """Raise QueueNotFound for a queue that is not listed and of which Redis holds nothing: its name may be misspelt.

    For a user that may not read the list of queues, every queue counts as known.
    """
    (stats,) = client.stats(queue)
    if stats.lease_ms or stats.scheduled or stats.ready or stats.reserved or stats.failed or stats.completed:
        return
    try:
        is_listed = queue in client.queues()
    except CallRefused:
        return
    if not is_listed:
        raise QueueNotFound(f"No queue {queue!r} is known.", hint="`delayq stats` lists the queues.")
