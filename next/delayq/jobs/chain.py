"""Chains: jobs that run one after the other. Each job starts when the job before it has succeeded.

    chain(Reserve(order_id=42), Charge(order_id=42), Ship(order_id=42)).dispatch()
    chain(Reserve(order_id=42), Charge(order_id=42)).catch(Refund(order_id=42)).delay("15m").dispatch()

If a job fails for good, the jobs of `catch` are sent, and the chain stops. A retry of the failed job continues the
chain.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from delayq.core.chain import Chain, Link, check_size, id_of, job_of, name_of
from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.events import JobDispatched
from delayq.core.ids import derived_id
from delayq.core.listeners import listeners
from delayq.core.names import check_queue
from delayq.core.times import Duration, duration_ms
from delayq.jobs.dispatch import Sendable
from delayq.jobs.dispatched import tell_dispatched
from delayq.jobs.links import AsLink, AsMember, Element, LinkMaker
from delayq.jobs.transactions import NOTHING_SAID, Commit, batch_after_commit
from delayq.jobs.unsent import Unsent
from delayq.manager import Manager, current_manager

if TYPE_CHECKING:  # clients import redis-py, which a program that only declares jobs does not need
    from delayq.client import AsyncJobRef, JobRef
    from delayq.core.batch_info import BatchInfo

SentT = TypeVar("SentT")


def chain(*elements: Element) -> "PendingChain":
    """Return a chain of jobs and batches. Nothing is sent before `dispatch` is called.

    Each element starts when the element before it has succeeded. A batch has succeeded when all its members have
    succeeded. If the batch allows failures and was not cancelled, it is enough that all its members have ended.

    The delay of a job counts from the success of the element before it. If `deadline` or `retry_until` of a job is a
    duration, it counts from the due time of the job.

        chain(Reserve(order_id=42), Charge(order_id=42)).catch(Refund(order_id=42)).dispatch()
    """
    return PendingChain(elements)


@dataclass(frozen=True)
class PendingChain(AsMember):
    """A chain that has not been sent. Each method except `dispatch` and `adispatch` returns a new chain."""

    elements: tuple[Element, ...]
    _catch: tuple[Sendable, ...] = ()
    _connection: str | None = None
    _queue: str | None = None
    _delay: Duration | None = None
    _commit: Commit = NOTHING_SAID
    _unsent: Unsent = field(default_factory=lambda: Unsent("A chain"), compare=False, repr=False)

    def catch(self, *jobs: Sendable) -> "PendingChain":
        """Return a chain that also sends these jobs if one of its jobs fails for good.

        The jobs get the headers `delayq-failed-id`, `delayq-failed-queue`, `delayq-failed-error` (the class of the
        error) and `delayq-failed-message`.
        """
        return self._with(_catch=(*self._catch, *jobs))

    def on_connection(self, connection: str) -> "PendingChain":
        """Return a chain whose jobs use this connection, unless they name one."""
        return self._with(_connection=connection)

    def on_queue(self, queue: str) -> "PendingChain":
        """Return a chain whose jobs use this queue, unless they name one or belong to a batch."""
        return self._with(_queue=queue)

    def delay(self, delay: Duration) -> "PendingChain":
        """Return a chain that delays its first job, unless this job has its own delay.

        Raises InvalidInput.
        """
        duration_ms(delay, field="delay")
        return self._with(_delay=delay)

    def after_commit(self) -> "PendingChain":
        """Return a chain that waits for the commit of a transaction; see `delayq.within`."""
        return self._with(_commit=Commit(after_commit=True))

    def within(self, session: Any) -> "PendingChain":
        """Return a chain that waits for the commit of the transaction of this session; see `delayq.within`."""
        return self._with(_commit=Commit(session=session))

    def prepend(self, *elements: Element) -> "PendingChain":
        """Return a chain with more jobs or batches at its start."""
        return self._with(elements=(*elements, *self.elements))

    def append(self, *elements: Element) -> "PendingChain":
        """Return a chain with more jobs or batches at its end."""
        return self._with(elements=(*self.elements, *elements))

    def dispatch(self) -> "JobRef | BatchInfo":
        """Send the chain. Return a reference to its first job, or the BatchInfo if its first link is a batch.

        The chain waits for the commit of a database transaction if the chain itself, one of its jobs, the block `with
        within(...)` or the connection requires this. The `outcome` of the answer is then "after commit".

        If `prepare_for_dispatch` of one of the jobs returns False, nothing is sent, and the `outcome` of the reference
        is "vetoed". If the unique key of the first job is taken, nothing is sent either, and the outcome is "kept".

        Raises InvalidInput and ConfigError before anything is sent, and the errors of DelayQ.schedule.
        """
        from delayq.client import JobRef

        maker, planned = self._plan(current_manager())
        client = maker.connection.client
        if planned is None:
            return JobRef(client, "", "", "absent", None, "vetoed")
        if not maker.wait_for_commit("The chain", self._commit, planned):
            return _told(client.send_chain(planned))
        first = planned.links[0]
        if first.batch is not None:
            return batch_after_commit(first.batch)
        job = job_of(first, now_ms=0)
        return JobRef(client, job.id, job.queue, "absent", None, "after commit", job.name)

    async def adispatch(self) -> "AsyncJobRef | BatchInfo":
        """Send the chain in an event loop; see `dispatch`."""
        from delayq.client import AsyncJobRef

        maker, planned = self._plan(current_manager())
        client = maker.connection.aclient
        if planned is None:
            return AsyncJobRef(client, "", "", "absent", None, "vetoed")
        if not await maker.await_commit("The chain", self._commit, planned):
            return _told(await client.send_chain(planned))
        first = planned.links[0]
        if first.batch is not None:
            return batch_after_commit(first.batch)
        job = job_of(first, now_ms=0)
        return AsyncJobRef(client, job.id, job.queue, "absent", None, "after commit", job.name)

    def _with(self, **changes: Any) -> "PendingChain":
        self._unsent.is_used = True
        return replace(self, _unsent=Unsent("A chain"), **changes)

    def _plan(self, manager: Manager) -> tuple[LinkMaker, Chain | None]:
        """Return the links of the chain, and their maker. None = `prepare_for_dispatch` of a job returned False."""
        maker = LinkMaker(manager, connection=self._connection)
        planned = self._links(maker, None)
        return maker, None if maker.has_refusal else planned

    def _as_member(self, maker: LinkMaker, job_id: str) -> Chain | None:
        batches = [element for element in self.elements if isinstance(element, AsLink)]
        for element in [self, *batches]:
            element._unsent.is_used = True
        if batches:
            raise InvalidInput(
                "A chain that is a member of a batch cannot contain a batch.",
                hint="Dispatch the inner batch in a job of this chain, or make both batches links of one chain: "
                "chain(batch([…]), batch([…])).",
                field="members",
            )
        before, maker.has_refusal = maker.has_refusal, False
        planned = self._links(maker, job_id)
        is_refused, maker.has_refusal = maker.has_refusal, before
        return None if is_refused else planned

    def _links(self, maker: LinkMaker, job_id: str | None) -> Chain:
        """Return the links. `job_id`: the id of the first job; None = a new id."""
        self._unsent.is_used = True
        if not self.elements:
            raise InvalidInput("The chain has no jobs.", hint="An example: chain(Reserve(), Charge()).", field="chain")
        if self._queue is not None:
            check_queue(self._queue)
        links = []
        for position, element in enumerate(self.elements):
            first_id = job_id if position == 0 else None
            link = link_of_element(element, maker, job_id=first_id, queue=self._queue, what=f"link {position + 1}")
            if link is not None:
                links.append(link)
        if links and self._delay is not None and links[0].batch is not None:
            raise InvalidInput(
                f"delay is {self._delay!r}, but the chain begins with a batch, which has no delay.",
                hint="Set the delay of each job of the batch.",
                field="delay",
            )
        if links and self._delay is not None and not links[0].delay_ms:
            links[0] = msgspec.structs.replace(links[0], delay_ms=duration_ms(self._delay, field="delay"))
        return check_size(Chain(links, maker.links(self._catch, what="catch", queue=self._queue)))


class RunningChain:
    """The chain of a running job. Changes take effect when the job succeeds.

    If the job is run again after an error, its handler makes the changes again. A job can also be run again after its
    changes were stored, because its worker died before the job was acknowledged. Then no job is added twice, as long as
    the handler adds the same jobs in the same order.

    `is_member`: True = the job is a member of a batch, so its chain cannot contain a batch.
    """

    def __init__(self, job_id: str, links: Chain, *, is_member: bool = False) -> None:
        self._job_id = job_id
        self._is_member = is_member
        self._before = links
        self._links = list(links.links)
        self._known = {id_of(link) for link in links.links}
        self._added = 0

    @property
    def remaining(self) -> list[str]:
        """The names of the jobs and batches that follow this job. An unnamed batch of 3 is shown as 'batch of 3'."""
        return [name_of(link) for link in self._links]

    def prepend(self, *elements: Element) -> None:
        """Add jobs or batches that run right after this job. Raises InvalidInput."""
        self._links[:0] = self._new(elements)

    def append(self, *elements: Element) -> None:
        """Add jobs or batches at the end of the chain. Raises InvalidInput."""
        self._links += self._new(elements)

    @property
    def changed(self) -> Chain | None:
        """The changed chain, or None if the job has not changed its chain."""
        return Chain(self._links, self._before.catch) if self._added else None

    def _new(self, elements: tuple[Element, ...]) -> list[Link]:
        manager = current_manager()
        maker = LinkMaker(manager, connection=manager.settings.connection)
        new = []
        for element in elements:
            if self._is_member and isinstance(element, AsLink):
                element._unsent.is_used = True
                raise InvalidInput(
                    "The job is a member of a batch, so its chain cannot contain a batch.",
                    hint="Add the jobs to the batch of the job (context.batch.add), or dispatch another batch.",
                    field="chain",
                )
            job_id = derived_id(self._job_id, self._added)
            self._added += 1
            link = link_of_element(element, maker, job_id=job_id)
            if link is not None and job_id not in self._known:
                new.append(link)
        check_size(Chain([*self._links, *new], self._before.catch))
        return new


def _told(sent: SentT) -> SentT:
    """Emit JobDispatched for the first job of a chain that was sent, and return the answer of the client."""
    if JobDispatched in listeners:
        tell_dispatched(sent)
    return sent


def link_of_element(
    element: object,
    maker: LinkMaker,
    *,
    job_id: str | None = None,
    queue: str | None = None,
    what: str = "the new links",
) -> Link | None:
    """Return the link of a job or batch, or None if `prepare_for_dispatch` returned False. Raises InvalidInput.

    `job_id`: the id of the job or batch; None = a new id. `queue`: the queue of a job that names none.
    `what`: the name of the element in messages.
    """
    if isinstance(element, AsLink):
        return element._as_link(maker, job_id)
    if isinstance(element, PendingChain):
        element._unsent.is_used = True
    if isinstance(element, PendingChain | list | tuple):
        raise InvalidInput(
            f"A link of a chain must be a job or a batch, not {shown(element)}.",
            hint="Give each job as an argument: chain(A(), B()).",
            field="chain",
        )
    return maker.link(element, job_id=job_id, queue=queue, what=what)
