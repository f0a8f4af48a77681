"""What somebody is about to add to a batch, in an outbox: were he killed on the way, a relay would do the rest.

A batch has a slot of its own, and its members are sent to other ones, so no step adds and sends them together. What is
written down first and taken out last may be done twice: a batch counts members, and each of them is sent once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delayq.core import follow, followups
from delayq.core.followups import Add, Link
from delayq.redis.calls import follow as calls
from delayq.redis.calls.call import Command, Scope, text
from delayq.redis.calls.produce import MAX_BYTES, MAX_JOBS
from delayq.redis.verbs import Flow, Verbs


class Written:
    """Some members on their way into a batch."""

    def __init__(self, verbs: Verbs, batch: str, members: Sequence[Link]) -> None:
        self._verbs = verbs
        self._batch = batch
        self._members = members
        self._scope: Scope | None = None
        self._entries: list[str] = []

    def write(self) -> Flow[None]:
        """Into the outbox of the first job's queue: where it is to run somebody carries, too."""
        jobs = follow.jobs_of(self._batch, self._members)
        queue = next((job.queue for job in jobs), self._verbs.options.queue)
        yield from self._verbs.register(queue)
        self._scope = self._verbs.scope(queue)
        for some in _rows(self._members):
            todo = followups.encode_todo([Add(self._batch, some)])
            self._entries.append((yield Command(("XADD", self._scope.keys.of("outbox"), "*", "todo", todo), text)))

    def done(self) -> Flow[None]:
        """Nothing is left to do."""
        assert self._scope is not None
        if self._entries:
            yield calls.carried(self._scope, self._entries)


def _rows(members: Sequence[Link]) -> Iterator[list[Link]]:
    """Members in rows that a relay is given whole."""
    some, size = list[Link](), 0
    for member in members:
        length = len(followups.encode_link(member))
        if some and (len(some) == MAX_JOBS or size + length > MAX_BYTES):
            yield some
            some, size = [], 0
        some.append(member)
        size += length
    if some:
        yield some
