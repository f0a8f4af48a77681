"""Waits for the commit of a session of SQLAlchemy.

A job that is dispatched in a savepoint belongs to the savepoint. If the savepoint is released, the job then belongs to
the transaction around the savepoint. If the savepoint is rolled back, the job is dropped.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.util import await_only

from delayq.core.errors import InvalidInput

W = TypeVar("W")

_INFO: Final = "delayq"
"""The key of the SessionJobs of a session in `Session.info`."""


def is_session(session: Any) -> bool:
    """Return True for the sessions that `wait_for_commit` accepts."""
    return isinstance(session, Session | scoped_session | AsyncSession | async_scoped_session)


def wait_for_commit(
    session: Any,
    waiting: W,
    send: Callable[[Sequence[W]], None],
    asend: Callable[[Sequence[W]], Coroutine[Any, Any, None]],
) -> bool:
    """Keep `waiting` until the transaction of a session has been committed; see WaitForCommit.

    If the session has no transaction yet, one is begun, as `session.add` begins one. This opens no database connection.
    Raises InvalidInput if a session with autobegin=False has no transaction.
    """
    if isinstance(session, scoped_session | async_scoped_session):
        session = session()
    is_async = isinstance(session, AsyncSession)
    plain: Session = session.sync_session if is_async else session
    if not plain.in_transaction():
        if not plain.autobegin:
            raise InvalidInput(
                "The session of within= has autobegin=False, and no transaction.",
                hint="Call session.begin() before the dispatch.",
                field="within",
            )
        plain.begin()
    jobs: SessionJobs[W] | None = plain.info.get(_INFO)
    if jobs is None:
        jobs = plain.info[_INFO] = SessionJobs(send, asend if is_async else None)
        event.listen(plain, "after_commit", jobs.after_commit)
        event.listen(plain, "after_transaction_end", jobs.after_transaction_end)
    jobs.keep(_innermost(plain), waiting)
    return True


class SessionJobs(Generic[W]):
    """The jobs that wait for the transactions of one session.

    `asend`: sends the jobs of an AsyncSession; None = the session is not async, and `send` sends the jobs.
    """

    def __init__(
        self,
        send: Callable[[Sequence[W]], None],
        asend: Callable[[Sequence[W]], Coroutine[Any, Any, None]] | None,
    ) -> None:
        self._send = send
        self._asend = asend
        self._waiting: dict[SessionTransaction, list[W]] = {}
        self._committed: SessionTransaction | None = None

    def keep(self, transaction: SessionTransaction, waiting: W) -> None:
        """Keep `waiting` until a transaction or savepoint ends."""
        self._waiting.setdefault(transaction, []).append(waiting)

    def after_commit(self, session: Session) -> None:
        """Remember that the current transaction or savepoint is committed. It has not ended yet."""
        self._committed = _innermost(session)

    def after_transaction_end(self, session: Session, transaction: SessionTransaction) -> None:
        """Send the jobs of a committed transaction. Jobs of a released savepoint pass to the transaction around it.

        After a rollback, drop the jobs.
        """
        is_committed, parent = transaction is self._committed, transaction.parent
        waiting = self._waiting.pop(transaction, [])
        if is_committed:
            self._committed = None
        if not is_committed or not waiting:
            return
        if parent is not None:
            self._waiting.setdefault(parent, []).extend(waiting)
        elif self._asend is not None:
            await_only(self._asend(waiting))
        else:
            self._send(waiting)


def _innermost(session: Session) -> SessionTransaction:
    """Return the innermost savepoint of a session, or else its transaction."""
    transaction = session.get_nested_transaction() or session.get_transaction()
    assert transaction is not None
    return transaction
