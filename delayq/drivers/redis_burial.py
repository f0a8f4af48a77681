"""Entries of a stream that are no jobs: kept among the failed ones as `x-<entry id>`, and told of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from enum import Enum

from delayq.core import failure as failures
from delayq.core.errors import DelayqError
from delayq.core.failure import Failure
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Scope
from delayq.redis.connect import Connector
from delayq.redis.send import through

log = logging.getLogger("delayq.worker")

MOST_LINES = 5


class Garbage(Enum):
    """What is wrong with an entry, in the words of its failure."""

    NO_JOB = "This stream entry has no id or no job: it is none of ours."
    STRAY = "This stream entry looked like a job, but nobody had scheduled it under this entry."

    @property
    def failure(self) -> bytes:
        """As it is kept."""
        return failures.encode(Failure(type="Garbage", message=self.value))


class Burial:
    """Buries the entries that a consumer meets."""

    def __init__(self, connector: Connector, scope: Callable[[str], Scope]) -> None:
        self._connector = connector
        self._scope = scope

    def bury(self, entries: Iterable[tuple[str, str]], what: Garbage, errors: list[DelayqError]) -> dict[str, str]:
        """Dead-letter entries, (queue, entry id) each; what `bury.lua` says of those it came to.

        What cannot be buried now stays pending and comes again.
        """
        said: dict[str, str] = {}
        groups: dict[str, list[str]] = {}
        for queue, entry in entries:
            groups.setdefault(queue, []).append(entry)
        for queue, rest in groups.items():
            try:
                while rest:
                    asked = [(entry, what.failure) for entry in rest]
                    answer = through(self._connector, deliver.bury(self._scope(queue), asked))
                    words = dict(zip(rest, answer, strict=False))
                    said |= words
                    self._tell(queue, [entry for entry, word in words.items() if word == "buried"], what)
                    rest = rest[len(words) :]
            except DelayqError as error:
                errors.append(error)
        return said

    def _tell(self, queue: str, buried: list[str], what: Garbage) -> None:
        for entry in buried[:MOST_LINES]:
            log.warning("queue %s, entry %s: %s It is kept as failed job x-%s.", queue, entry, what.value, entry)
        if len(buried) > MOST_LINES:
            log.warning("queue %s: and %d more like it", queue, len(buried) - MOST_LINES)
