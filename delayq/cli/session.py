"""One run of the command line: what was said before the command, and what is opened for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq.cli.render import Output

if TYPE_CHECKING:
    from delayq.redis.client import Client
    from delayq.settings import Settings


@dataclass(slots=True)
class Session:
    """Filled by the root callback before a command runs. `flags` are settings given as options."""

    flags: dict[str, Any] = field(default_factory=dict)
    verbose: bool = False
    out: Output = field(default_factory=Output)

    def settings(self, **flags: Any) -> Settings:
        """The settings, with the options before the command and `flags` on top; None counts as not given."""
        from delayq.settings import Settings

        given = {name: value for name, value in flags.items() if value is not None}
        settings = Settings(**{**self.flags, **given})
        for warning in settings.warnings:
            self.out.note(f"Warning: {warning}")
        return settings

    @contextmanager
    def client(self) -> Iterator[Client]:
        """All verbs, on the Redis of the settings."""
        from delayq.app import open_client
        from delayq.cli.audience import Audience

        settings = self.settings()
        with open_client(settings) as client:
            client.verbs.tell = Audience(settings, self.out).tell
            yield client
