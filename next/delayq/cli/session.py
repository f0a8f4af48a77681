"""What one run of the command line shares: the settings that its root options and the environment give."""

from dataclasses import dataclass
from functools import cached_property

import typer

from delayq.client import DelayQ
from delayq.core.errors import CallRefused, QueueNotFound
from delayq.settings.model import Settings, load_settings


@dataclass
class CliSession:
    """The root options of one run."""

    url: str | None
    prefix: str | None

    @cached_property
    def settings(self) -> Settings:
        """The settings; raises ConfigError."""
        return load_settings(url=self.url, prefix=self.prefix)

    def with_given(self, **given: object) -> Settings:
        """Return the settings with what this command was given; raises ConfigError."""
        return load_settings(url=self.url, prefix=self.prefix, **given)

    def client(self) -> DelayQ:
        """Return a client; raises ConfigError."""
        return DelayQ(settings=self.settings)


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
