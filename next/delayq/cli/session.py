"""What one run of the command line shares: the settings that its root options and the environment give."""

from dataclasses import dataclass
from functools import cached_property

import typer

from delayq.client import DelayQ
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
