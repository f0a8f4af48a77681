"""Jobs that wait for the commit of a database transaction.

    CloseOrder(order_id=42).dispatch(within=session)     wait for the transaction of this session
    with within(session): ...                            all jobs that are dispatched in this block wait
    class CloseOrder(Job, after_commit=True)             all jobs of this class wait

The job is checked and written as JSON when it is dispatched, and sent right after the commit. If the transaction is
rolled back, the job is not sent. Modules of `contrib/` detect the end of a transaction of SQLAlchemy or Django.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final
from weakref import WeakSet

import msgspec

from delayq.contrib.protocols import WaitForCommit
from delayq.core import clock
from delayq.core.batch_info import BatchInfo
from delayq.core.chain import BatchPlan, Chain, id_of, name_of
from delayq.core.display import shown
from delayq.core.errors import CommittedUnsent, DelayqError, InvalidInput
from delayq.core.events import JobDispatched
from delayq.core.job_spec import NewJob
from delayq.core.listeners import listeners
from delayq.core.states import OnConflict
from delayq.jobs.dispatched import tell_dispatched
from delayq.jobs.django_connections import uses_django
from delayq.manager import Connection

_session_of_block: Final[ContextVar[Any]] = ContextVar("delayq_session", default=None)

DJANGO_DEFAULT: Final = "default"
"""The alias of the Django database whose transaction a job waits for if no session is named."""


@contextmanager
def within(session: Any) -> Iterator[None]:
    """Let all jobs that are dispatched in the `with` block wait for the commit of a transaction.

    `session`: a Session, scoped_session, AsyncSession or async_scoped_session of SQLAlchemy, or the alias of a Django
    database, such as "default". The block applies to this thread or task only. Chains and batches wait too. A job whose
    declaration or dispatch has `after_commit=False` is sent at once.

        with within(session):
            CloseOrder(order_id=order.id).dispatch(delay="15m")
        session.commit()

    Raises InvalidInput for any other object.
    """
    _library_of(session)
    before = _session_of_block.set(session)
    try:
        yield
    finally:
        _session_of_block.reset(before)


class Waiting(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """Jobs that wait for a commit, and are sent together: jobs of one connection, a chain, or a batch."""

    connection: Connection
    content: Sequence[NewJob] | Chain | BatchPlan
    on_conflict: OnConflict = "keep"

    @property
    def jobs(self) -> list[tuple[str, str]]:
        """The names and ids of the jobs. A chain is named by its first job, and a batch by its own name."""
        if isinstance(self.content, Chain):
            return [(name_of(self.content.links[0]), id_of(self.content.links[0]))]
        if isinstance(self.content, BatchPlan):
            return [(self.content.name, self.content.id)]
        return [(job.name, job.id) for job in self.content]

    def send_by(self, client: Any) -> Any:
        """Send the jobs with a DelayQ, or return the coroutine of an AsyncDelayQ that sends them."""
        if isinstance(self.content, Chain):
            return client.send_chain(self.content)
        if isinstance(self.content, BatchPlan):
            return client.batches.send(self.content)
        return client.send_prepared(self.content, on_conflict=self.on_conflict)


class Commit(msgspec.Struct, frozen=True):
    """The transaction options of a dispatch.

    `after_commit` and `session`: options of the dispatch itself; None = not given. `declared`: the `after_commit` of
    the job; None = not declared.
    """

    after_commit: bool | None = None
    session: Any = None
    declared: bool | None = None


NOTHING_SAID: Final = Commit()


def session_to_wait_for(what: str, connection: Connection, commit: Commit) -> Any:
    """Return the session whose commit a dispatch waits for, or None if it sends its jobs at once.

    The first of these that is given decides: the options of the dispatch, the declaration of the job, the block `with
    within(...)`, and `after_commit` of the connection in the settings. `what` names the jobs in messages. Raises
    InvalidInput.
    """
    if commit.after_commit is False and commit.session is not None:
        raise InvalidInput(f"{what} has within= and after_commit=False.", hint="Leave out one of them.", field="within")
    of_block = _session_of_block.get()
    given = (commit.after_commit, commit.session is not None or None, commit.declared, of_block is not None or None)
    if not next((answer for answer in given if answer is not None), connection.after_commit):
        return None
    session = of_block if commit.session is None else commit.session
    if session is None and uses_django():
        session = DJANGO_DEFAULT
    if session is None:
        raise InvalidInput(
            f"{what} waits for a commit, but no session is named.",
            hint="Use dispatch(within=session) or `with within(session):`. To send the job at once, use "
            "dispatch(after_commit=False).",
            field="after_commit",
        )
    return session


def wait_for_commit(session: Any, waiting: Waiting) -> bool:
    """Send jobs right after the commit of the transaction of a session, and never after a rollback.

    Returns False if no transaction is open; the caller then sends the jobs now. Raises InvalidInput if `session` is not
    a session.
    """
    waits = _library_of(session)(session, waiting, send_all, asend_all)
    if waits:
        _not_sent.add(waiting)
    return waits


async def await_commit(session: Any, waiting: Waiting) -> bool:
    """Do the same as `wait_for_commit` for a dispatch in an event loop."""
    _library_of(session)  # raises InvalidInput
    if not isinstance(session, str):
        return wait_for_commit(session, waiting)
    from delayq.contrib import django_transactions

    return await django_transactions.await_commit(session, partial(wait_for_commit, session, waiting))


def waiting_jobs() -> int:
    """Return how many jobs of this process wait for a commit. A chain or batch counts as one."""
    return sum(len(one.jobs) for one in _not_sent)


_not_sent: Final[WeakSet[Waiting]] = WeakSet()
"""The jobs that wait. After a rollback, nothing else refers to them, so they vanish from here too."""


def batch_after_commit(plan: BatchPlan) -> BatchInfo:
    """Return the counts of a batch that waits for a commit."""
    return BatchInfo(
        id=plan.id,
        name=plan.name,
        total=len(plan.members),
        pending=len(plan.members),
        succeeded=0,
        failed=0,
        skipped=0,
        allows_failures=plan.allow_failures,
        created_ms=int(clock.time() * 1000),
        outcome="after commit",
    )


def send_all(waiting: Sequence[Waiting]) -> None:
    """Send the jobs of a committed transaction. If some fail, raise CommittedUnsent after the last one."""
    _not_sent.difference_update(waiting)
    unsent = _Unsent()
    for one in _joined(waiting):
        with unsent.noting(one):
            sent = one.send_by(one.connection.client)
            if JobDispatched in listeners:
                tell_dispatched(sent)
    unsent.raise_error()


async def asend_all(waiting: Sequence[Waiting]) -> None:
    """Send the jobs of a committed transaction in an event loop; see `send_all`."""
    _not_sent.difference_update(waiting)
    unsent = _Unsent()
    for one in _joined(waiting):
        with unsent.noting(one):
            sent = await one.send_by(one.connection.aclient)
            if JobDispatched in listeners:
                tell_dispatched(sent)
    unsent.raise_error()


class _Unsent:
    """The jobs that could not be sent, and the first error."""

    def __init__(self) -> None:
        self._jobs: list[tuple[str, str]] = []
        self._error: DelayqError | None = None

    @contextmanager
    def noting(self, waiting: Waiting) -> Iterator[None]:
        try:
            yield
        except DelayqError as error:
            self._error = self._error or error
            self._jobs += waiting.jobs

    def raise_error(self) -> None:
        if self._error is not None:
            raise CommittedUnsent(self._jobs, self._error) from self._error


def _joined(waiting: Sequence[Waiting]) -> list[Waiting]:
    """Join jobs with the same connection and `on_conflict`, so that they are sent together."""
    joined: list[Waiting] = []
    places: dict[tuple[str, OnConflict], int] = {}
    for one in waiting:
        key = (one.connection.name, one.on_conflict)
        if isinstance(one.content, Chain | BatchPlan) or key not in places:
            if not isinstance(one.content, Chain | BatchPlan):
                places[key] = len(joined)
            joined.append(one)
            continue
        known = joined[places[key]]
        assert not isinstance(known.content, Chain | BatchPlan)
        joined[places[key]] = msgspec.structs.replace(known, content=[*known.content, *one.content])
    return joined


def _library_of(session: Any) -> WaitForCommit[Waiting]:
    """Return the function that waits for the commit of this kind of session. Raises InvalidInput for other objects."""
    if isinstance(session, str) and uses_django():
        from delayq.contrib import django_transactions

        django_transactions.check_alias(session)
        return django_transactions.wait_for_commit
    if "sqlalchemy.orm" in sys.modules:
        from delayq.contrib import sqlalchemy_transactions

        if sqlalchemy_transactions.is_session(session):
            return sqlalchemy_transactions.wait_for_commit
    raise InvalidInput(
        f"within is {shown(session)}, and not a session.",
        hint="Use a session of SQLAlchemy, or the alias of a Django database, such as 'default', after django.setup().",
        field="within",
    )
