"""Which failed jobs a command means: these ids of one queue, or all that fit in some queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from delayq.core.errors import InvalidInput
from delayq.core.failed import FailedOptions
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
    queues: tuple[str, ...] = ()
    signature: str | None = None

    @property
    def narrowed(self) -> dict[str, str]:
        """The options that choose among all failed jobs."""
        said = {"--name": self.name, "--since": self.since, "--until": self.until, "--signature": self.signature}
        return {option: value for option, value in said.items() if value is not None}

    @property
    def which(self) -> FailedOptions:
        """All that fit, in the client's words."""
        return FailedOptions(name=self.name, since=self.since, until=self.until, signature=self.signature)

    def check(self) -> None:
        """Raises `InvalidInput` unless it is one or the other."""
        narrowed = list(self.narrowed)
        if self.ids and self.every:
            raise InvalidInput("Ids and --all exclude each other.", hint="Leave out one of the two.")
        if self.ids and narrowed:
            raise InvalidInput(f"{narrowed[0]} chooses among --all failed jobs.", hint="Leave it out, or the ids.")
        if not self.ids and not self.every and not narrowed:
            raise InvalidInput(
                "No job was named.",
                hint="Give ids, --name, --since, --until, --signature, or --all for every failed job.",
            )
        if self.ids and len(self.queues) > 1:
            raise InvalidInput(
                f"Ids are looked up in one queue, and --queue names {', '.join(self.queues)}.", hint="Name one of them."
            )

    def among(self, client: Client | FailedDesk) -> Sequence[str]:
        """The queues that are meant where no id was given: those named, else all that are known, or the default one."""
        return self.queues or client.queues() or [client.options.queue]

    def by_queue(self, client: Client | FailedDesk) -> Iterator[tuple[str | None, Iterator[str]]]:
        """The ids in each queue that has any, each once. The queue is None for ids without `--queue`.

        The first id of a queue is read at once, so that a refusal comes before anything is recorded or done.
        """
        if self.ids:
            yield (self.queues[0] if self.queues else None), iter(dict.fromkeys(self.ids))
            return
        for queue in self.among(client):
            ids = (info.id for info in client.iter_failed(queue, **self.which))
            if first := list(islice(ids, 1)):
                yield queue, chain(first, ids)

    def counts(self, client: Client | FailedDesk) -> dict[str, int]:
        """How many of all that fit each queue has; queues without any are left out."""
        queues = self.among(client)
        if self.narrowed:
            found = {queue: sum(1 for _ in client.iter_failed(queue, **self.which)) for queue in queues}
        elif isinstance(client, FailedDesk):
            found = {queue: client.count(queue) for queue in queues}
        else:
            stats = chain.from_iterable(map(client.stats, queues)) if self.queues else client.stats()
            found = {one.queue: one.failed for one in stats}
        return {queue: number for queue, number in found.items() if number}

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
