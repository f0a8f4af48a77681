"""Which failed jobs a command means: these ids, or all that fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from delayq.core.errors import InvalidInput
from delayq.core.failed import FailedOptions
from delayq.core.views import JobInfo
from delayq.drivers.serving.failed_desk import FailedDesk
from delayq.redis.client import Client

IDS_TOLD: Final = 20


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was said. `since` and `until` are times, or how long ago, at which they failed."""

    ids: tuple[str, ...]
    every: bool = False
    name: str | None = None
    since: str | None = None
    until: str | None = None
    queue: str | None = None

    @property
    def which(self) -> FailedOptions:
        """All that fit, in the client's words."""
        return FailedOptions(name=self.name, since=self.since, until=self.until)

    def check(self) -> None:
        """Raises `InvalidInput` unless it is one or the other."""
        said = {"--name": self.name, "--since": self.since, "--until": self.until}
        narrowed = [option for option, value in said.items() if value is not None]
        if self.ids and self.every:
            raise InvalidInput("Ids and --all exclude each other.", hint="Leave out one of the two.")
        if self.ids and narrowed:
            raise InvalidInput(f"{narrowed[0]} chooses among --all failed jobs.", hint="Leave it out, or the ids.")
        if not self.ids and not self.every and not narrowed:
            raise InvalidInput(
                "No job was named.", hint="Give ids, --name, --since or --until, or --all for every one of the queue."
            )

    def find(self, client: Client | FailedDesk) -> Iterator[JobInfo]:
        """All that fit, in the order they failed in."""
        return client.iter_failed(self.queue, **self.which)

    def find_ids(self, client: Client | FailedDesk) -> Iterator[str]:
        """The ids, each once."""
        if self.ids:
            yield from dict.fromkeys(self.ids)
        else:
            yield from (info.id for info in self.find(client))

    @property
    def words(self) -> str:
        """For the audit log: the ids, as many as a line should hold, or what they have in common."""
        if not self.ids:
            return f"every {self}"
        more = len(self.ids) - IDS_TOLD
        return ", ".join(self.ids[:IDS_TOLD]) + (f" and {more} more" if more > 0 else "")

    def __str__(self) -> str:
        """For a question: 'failed job named order.* that failed since 2h'."""
        named = f" named {self.name}" if self.name else ""
        since = f" since {self.since}" if self.since else ""
        until = f" until {self.until}" if self.until else ""
        return f"failed job{named}{since}{until}"
