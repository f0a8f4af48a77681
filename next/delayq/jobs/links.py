"""Turns the jobs that a program names in a chain or batch into links."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Union

import msgspec

from delayq.core import clock
from delayq.core.chain import BatchPlan, Chain, Link, link_of
from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.jobs.dispatch import Sendable, plan
from delayq.jobs.transactions import Commit, Waiting, await_commit, session_to_wait_for, wait_for_commit
from delayq.jobs.unsent import Unsent
from delayq.manager import Connection, Manager

Jobs = Sendable | Iterable[Sendable] | None
"""One job, several jobs, or none."""

Element = Union[Sendable, "AsLink"]
"""A link of a chain: a job or a batch."""

Member = Union[Sendable, "AsMember"]
"""A member of a batch: a job or a chain."""


class LinkMaker:
    """Makes the links of one chain or batch. All its jobs go to one connection.

    `connection`: the name of the connection; None = the connection of the first job. `has_refusal` is True after a job
    whose `prepare_for_dispatch` returned False. `declares_commit` is True after a job that declares `after_commit`.
    """

    def __init__(self, manager: Manager, *, connection: str | None = None) -> None:
        self._manager = manager
        self._connection = None if connection is None else manager.connection(connection)
        self.has_refusal = False
        self.declares_commit: bool | None = None

    @property
    def connection(self) -> Connection:
        """The connection of the jobs. It is the default connection if neither `connection` nor a job has set one."""
        return self._connection or self._manager.connection()

    def link(self, job: object, *, job_id: str | None = None, queue: str | None = None, what: str) -> Link | None:
        """Return the link of a job, or None if its `prepare_for_dispatch` returned False. Raises InvalidInput.

        `job_id`: the id of the job; None = a new id. `queue`: the queue of a job that names none; None = the queue of
        its route, or the default queue. `what`: the argument that has the job, for messages.
        """
        planned = plan(self._with_defaults(checked_job(job, what), queue), self._manager)
        if self._connection is None:
            self._connection = planned.connection
        if not planned.connection.backend.shares_jobs_with(self._connection.backend):
            raise InvalidInput(
                f"The job {planned.name!r} (in {what}) belongs to {_called(planned.connection.name)}, but the chain or "
                f"batch belongs to {_called(self._connection.name)}.",
                hint="Use jobs of one connection, or `on_connection` for the whole chain.",
                field="connection",
            )
        if planned.on_conflict != "keep":
            raise InvalidInput(
                f"The job {planned.name!r} is part of a chain or batch, and has on_conflict={planned.on_conflict!r}.",
                hint="Leave it out: chains and batches make the ids of their jobs.",
                field="on_conflict",
            )
        if planned.commit.after_commit is not None or planned.commit.session is not None:
            raise InvalidInput(
                f"The job {planned.name!r} is part of a chain or batch, and has after_commit= or within=.",
                hint="Give them to the whole chain or batch: chain(...).within(session).",
                field="within",
            )
        self.declares_commit = planned.commit.declared or self.declares_commit
        if planned.spec is None:
            self.has_refusal = True
            return None
        return link_of(planned.spec, self._connection.settings.options(), int(clock.time() * 1000), job_id=job_id)

    def links(self, jobs: Jobs, *, what: str, queue: str | None = None) -> list[Link]:
        """Return the links of jobs, without those whose `prepare_for_dispatch` returned False."""
        links = (self.link(job, queue=queue, what=what) for job in listed(jobs, what))
        return [link for link in links if link is not None]

    def wait_for_commit(self, what: str, commit: Commit, content: Chain | BatchPlan) -> bool:
        """Let a chain or batch wait for a commit, if this is required; see `session_to_wait_for`.

        Returns False if the chain or batch is to be sent now. `what` names it in messages. Raises InvalidInput.
        """
        session = self._session(what, commit)
        return session is not None and wait_for_commit(session, Waiting(self.connection, content))

    async def await_commit(self, what: str, commit: Commit, content: Chain | BatchPlan) -> bool:
        """Do the same as `wait_for_commit` in an event loop."""
        session = self._session(what, commit)
        return session is not None and await await_commit(session, Waiting(self.connection, content))

    def _session(self, what: str, commit: Commit) -> Any:
        return session_to_wait_for(
            what, self.connection, msgspec.structs.replace(commit, declared=self.declares_commit)
        )

    def _with_defaults(self, job: Sendable, queue: str | None) -> Sendable:
        """Return the job with the queue and connection of the chain. Options that the job names stay as they are."""
        options, said = job._message().options, job._said()
        if queue is not None and options.queue is None and said.get("queue") is None:
            job = job.on_queue(queue)
        if self._connection is not None and options.connection is None and said.get("connection") is None:
            job = job.on_connection(self._connection.name)
        return job


class Group(ABC):
    """Several jobs that are sent together. `_unsent` warns if the group is never sent."""

    _unsent: Unsent


class AsLink(Group):
    """A group of jobs that can be a link of a chain: a batch."""

    @abstractmethod
    def _as_link(self, maker: LinkMaker, batch_id: str | None) -> Link | None: ...


class AsMember(Group):
    """A group of jobs that can be a member of a batch: a chain."""

    @abstractmethod
    def _as_member(self, maker: LinkMaker, job_id: str) -> Chain | None: ...


def listed(jobs: Jobs, what: str) -> list[Sendable]:
    """Return one job or several jobs as a list; None = no job."""
    if jobs is None:
        return []
    return list(jobs) if isinstance(jobs, list | tuple) else [checked_job(jobs, what)]


def checked_job(job: object, what: str) -> Sendable:
    """Return the object if it is a job that can be dispatched; raises InvalidInput otherwise.

    `what`: the argument that has the job, for the message.
    """
    if isinstance(job, Sendable):
        return job
    if isinstance(job, Group):
        job._unsent.is_used = True
    raise InvalidInput(
        f"The job in {what} is {shown(job)}, which is not a job.",
        hint="Use jobs such as CloseOrder(order_id=42) or close_order.job(order_id=42).",
        field="jobs",
    )


def _called(connection: str) -> str:
    return f"the connection {connection!r}" if connection else "the default connection"
