"""What a running job may do with its chain and its batch: `context.chain`, `context.batch`.

A `Coordinator` makes the links of added jobs and reaches the batches. It is passed in, because making links needs the
whole way of a dispatch, and that stands above the context of a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Protocol

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
    from delayq.drivers.connection import AsyncBatchStore, BatchStore
    from delayq.jobs.plans import Element, Member


class Coordinator(Protocol):
    """Makes links of the jobs that a running job adds, and reaches the batches of the default connection."""

    def chain_links(
        self, elements: Sequence[Element | Sequence[Element]], queue: str | None, chain_id: str, batch: str | None
    ) -> list[Link]:
        """Links of a chain; `queue` for elements without one, `batch`: the batch they become members of."""

    def batch_links(self, members: Sequence[Member], queue: str | None, batch_id: str, ids: Ids) -> list[Link]:
        """Members of a batch, with these ids."""

    def batches(self) -> BatchStore:
        """The batches of the default connection."""

    def abatches(self) -> AsyncBatchStore:
        """The batches of the default connection, awaited."""


def _required(coordinator: Coordinator | None) -> Coordinator:
    if coordinator is None:
        raise InvalidInput("This job does not run, so its chain and its batch cannot be changed.")
    return coordinator


class RunningChain:
    """The rest of the chain a running job is a link of. Changes count when the attempt succeeds."""

    def __init__(self, envelope: Envelope | None = None, coordinator: Coordinator | None = None) -> None:
        self._envelope = envelope
        self._coordinator = coordinator
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
        envelope = self._envelope
        batch = follow.batch_id(envelope) if envelope is not None else None
        queue = envelope.queue if envelope else None
        links = _required(self._coordinator).chain_links(elements, queue, rest.id, batch)
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

    def __init__(
        self, batch_id: str, job_id: str = "", queue: str | None = None, coordinator: Coordinator | None = None
    ) -> None:
        self.id = batch_id
        self._coordinator = coordinator
        self._queue = queue
        self._ids = Ids(job_id) if job_id else NEW
        self._calls = count()

    def info(self) -> BatchInfo:
        """Return the batch as it stands; times are epoch ms. Raises `BatchNotFound`, `BackendError`."""
        return _required(self._coordinator).batches().get(self.id)

    async def ainfo(self) -> BatchInfo:
        """Return the batch as it stands, awaited; times are epoch ms. Raises `BatchNotFound`, `BackendError`."""
        return await _required(self._coordinator).abatches().get(self.id)

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
        links = self._links(members)
        return _required(self._coordinator).batches().add(self.id, links)

    async def aadd(self, *members: Member) -> BatchInfo:
        """Give the batch more members, awaited. Returns it as it stands.

        Raises `Conflict` once it was cancelled, and what `dispatch` raises. A later attempt that calls this at the same
        place adds nothing a second time.
        """
        links = self._links(members)
        return await _required(self._coordinator).abatches().add(self.id, links)

    def cancel(self) -> BatchInfo:
        """Let no further member start; those that run go on. Returns the batch. Raises as `info`."""
        return _required(self._coordinator).batches().cancel(self.id)

    async def acancel(self) -> BatchInfo:
        """Let no further member start, awaited; those that run go on. Returns the batch. Raises as `ainfo`."""
        return await _required(self._coordinator).abatches().cancel(self.id)

    def _links(self, members: Sequence[Member]) -> list[Link]:
        ids = self._ids.at(f"add{next(self._calls)}")
        return _required(self._coordinator).batch_links(members, self._queue, self.id, ids)


def _refuse_twice(members: Sequence[str]) -> None:
    """A batch counts its members by their ids."""
    for own_id, times in Counter(members).items():
        if times > 1:
            raise InvalidInput(
                f"The id {shown(own_id)} is given to two links of a chain in a batch.",
                hint="Give each an id of its own, or none.",
            )


def batch_of(envelope: Envelope, coordinator: Coordinator) -> RunningBatch | None:
    """The batch of a job; None for one that is in none."""
    part = follow.part_of_envelope(envelope)
    if part is None or part.batch is None:
        return None
    return RunningBatch(part.batch, envelope.id, envelope.queue, coordinator)
