"""What a running job may do with its chain and its batch: `context.chain`, `context.batch`.

What builds links is imported where a job changes something: it knows how to dispatch, and that knows contexts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from delayq.core import follow, followups
from delayq.core.envelope import ABSENT, Envelope
from delayq.core.errors import InvalidInput
from delayq.core.followups import Chain, Link
from delayq.core.names import new_id
from delayq.core.shown import shown
from delayq.jobs.member_ids import NEW, Ids

if TYPE_CHECKING:
    from delayq.core.batches import BatchInfo
    from delayq.jobs.batch import Member
    from delayq.jobs.chain import Element
    from delayq.jobs.links import Builder


class RunningChain:
    """The rest of the chain a running job is a link of. Changes count when the attempt succeeds."""

    def __init__(self, envelope: Envelope | None = None) -> None:
        self._envelope = envelope
        self._new: Chain | None = None

    @property
    def remaining(self) -> int:
        """How many links come after this one."""
        return len(self._rest.next)

    def prepend(self, *elements: Element | Sequence[Element]) -> None:
        """Let these come next, one by one or as a list; in a batch they are members. Raises what `dispatch` raises."""
        rest = self._rest
        self._change(rest, [*self._links(rest, elements), *rest.next])

    def append(self, *elements: Element | Sequence[Element]) -> None:
        """Let these come last. As `prepend`."""
        rest = self._rest
        self._change(rest, [*rest.next, *self._links(rest, elements)])

    def changed(self) -> bytes:
        """The rest as it travels, if the job has changed it; else b''."""
        return b"" if self._new is None else bytes(followups.encode_chain(self._new))

    @property
    def _rest(self) -> Chain:
        """As it is now; read when it is first asked for, because few jobs ask."""
        if self._new is not None:
            return self._new
        raw = ABSENT if self._envelope is None else self._envelope.chain
        return Chain(id=new_id()) if raw is ABSENT else followups.decode_chain(raw)

    def _links(self, rest: Chain, elements: Sequence[Element | Sequence[Element]]) -> list[Link]:
        from delayq.jobs.chain import link_of, one_by_one
        from delayq.jobs.links import Where

        envelope = self._envelope
        batch = follow.batch_id(envelope) if envelope is not None else None
        builder = _builder()
        where = Where(queue=envelope.queue if envelope else None)
        links = [link_of(element, builder, where, rest.id, batch) for element in one_by_one(elements)]
        builder.refuse_after_commit("a chain under way")
        if envelope is not None and batch is not None:
            _refuse_twice([envelope.id, *(member for member, _ in follow.ids_of([*rest.next, *links]))])
        return links

    def _change(self, rest: Chain, links: list[Link]) -> None:
        self._new = msgspec.structs.replace(rest, next=links)


class RunningBatch:
    """The batch a running job is a member of. The verbs ask the default connection; those with `a` are awaited.

    What a job adds is called by that job, the place of the call and the place in it. So a job that runs again, because
    it failed or its worker died, adds nothing twice; one that then finds other work gives its members ids of its own.
    """

    def __init__(self, batch_id: str, job_id: str = "", queue: str | None = None) -> None:
        self.id = batch_id
        self._queue = queue
        self._ids = Ids(job_id) if job_id else NEW
        self._calls = count()

    def info(self) -> BatchInfo:
        """Return the batch as it stands; times are epoch ms. Raises `BatchNotFound`, `BackendError`."""
        builder = _builder()
        return builder.manager.batches(None).get(self.id)

    async def ainfo(self) -> BatchInfo:
        """Return the batch as it stands, awaited; times are epoch ms. Raises `BatchNotFound`, `BackendError`."""
        return await _builder().manager.abatches(None).get(self.id)

    def cancelled(self) -> bool:
        """Whether the batch was cancelled. Raises as `info`."""
        return self.info().cancelled_ms is not None

    async def acancelled(self) -> bool:
        """Whether the batch was cancelled, awaited. Raises `BatchNotFound`, `BackendError`."""
        return (await self.ainfo()).cancelled_ms is not None

    def add(self, *members: Member) -> BatchInfo:
        """Give it more members. Raises `Conflict` once it was cancelled, and what `dispatch` raises.

        Called again at the same place by a later attempt, it is the same call: see the class. So it is under an id of
        yours that a member has already: that member is left as it is, and nothing is added.
        """
        builder, links = self._links(members)
        return builder.manager.batches(None).add(self.id, links)

    async def aadd(self, *members: Member) -> BatchInfo:
        """Give the batch more members, awaited. Returns it as it stands.

        Raises `Conflict` once it was cancelled, and what `dispatch` raises. A later attempt that calls this at the same
        place adds nothing a second time.
        """
        builder, links = self._links(members)
        return await builder.manager.abatches(None).add(self.id, links)

    def cancel(self) -> BatchInfo:
        """Let no further member start; those that run go on. Returns the batch. Raises as `info`."""
        return _builder().manager.batches(None).cancel(self.id)

    async def acancel(self) -> BatchInfo:
        """Let no further member start, awaited; those that run go on. Returns the batch. Raises as `ainfo`."""
        return await _builder().manager.abatches(None).cancel(self.id)

    def _links(self, members: Sequence[Member]) -> tuple[Builder, list[Link]]:
        from delayq.jobs.batch import links_of
        from delayq.jobs.links import Where

        builder = _builder()
        ids = self._ids.at(f"add{next(self._calls)}")
        links = links_of(members, builder, Where(queue=self._queue), self.id, ids)
        builder.refuse_after_commit("a batch under way")
        return builder, links


def _refuse_twice(members: Sequence[str]) -> None:
    """A batch counts its members by their ids."""
    for own_id, times in Counter(members).items():
        if times > 1:
            raise InvalidInput(
                f"The id {shown(own_id)} is given to two links of a chain in a batch.",
                hint="Give each an id of its own, or none.",
            )


def _builder() -> Builder:
    from delayq.jobs.current import current_manager
    from delayq.jobs.links import Builder

    return Builder(current_manager())


def batch_of(envelope: Envelope) -> RunningBatch | None:
    """The batch of a job; None for one that is in none."""
    part = follow.part_of_envelope(envelope)
    return None if part is None or part.batch is None else RunningBatch(part.batch, envelope.id, envelope.queue)
