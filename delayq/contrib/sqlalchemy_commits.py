"""Jobs that wait for the commit of an SQLAlchemy session.

    current_manager().on_commit(SessionCommits())               once, at start
    current_manager().on_commit(SessionCommits(db.session))     where a scoped_session knows the current one

    with Session(engine) as session:
        session.add(order)
        CloseOrder(order_id=order.id).dispatch(within=session)
        session.commit()                                        here the job is sent

`AsyncSession` works the same: the jobs are sent, awaited, before `await session.commit()` returns. A savepoint that is
rolled back drops its jobs, one that is released hands them to the transaction around it.

The jobs are sent when the transaction has ended and its connection is given back. What goes wrong is raised there, as
`CommittedUnsent`, from `commit()` or the end of the `with` block; the session may be used again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import finalize

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from delayq.core.errors import ConfigError
from delayq.drivers.outbox.asyncio_kinds import asyncio_kinds
from delayq.drivers.waiting import Waiting, asend_committed, send_committed

_INFO = "delayq.commits"


class SessionCommits:
    """The hook for `Manager.on_commit`. `current` gives the session under way, or None; a `scoped_session` does."""

    def __init__(self, current: Callable[[], Any] | None = None) -> None:
        self._current = current

    def current(self) -> object | None:
        """The session under way, where there is such a thing."""
        return None if self._current is None else self._current()

    def after_commit(self, waiting: Waiting, session: object, *, named: bool) -> bool:
        """Keep `waiting` in the session's innermost transaction.

        A session that was named is begun, as `session.add` begins it, unless it was made with `autobegin=False`; one
        that is merely the current one waits only with a transaction open. Raises `ConfigError` for what is no session.
        """
        found = sync_session(session)
        if not found.in_transaction():
            if not (named and found.autobegin):
                return False
            found.begin()
        _Ledger.of(found).keep(waiting, found)
        return True


def sync_session(session: object) -> Session:
    """The `Session` itself, or the one inside an `AsyncSession`, a scoped one too. Raises `ConfigError`."""
    found: Any = session
    kinds = asyncio_kinds()
    if kinds and isinstance(found, kinds[:2]):
        found = (found() if isinstance(found, kinds[1]) else found).sync_session
    elif isinstance(found, scoped_session):
        found = found()
    if not isinstance(found, Session):
        raise ConfigError(
            f"{session!r} is no session whose commit a job could wait for.",
            hint="Give an SQLAlchemy Session or AsyncSession; for a Core connection, bind a Session to it.",
        )
    return found


class _Ledger:
    """What waits in one session, by transaction. Lives in `session.info`, and does not keep the session alive."""

    def __init__(self, session: Session) -> None:
        self._waiting: dict[int, list[Waiting]] = {}
        self._committed: int | None = None
        event.listen(session, "after_commit", self._note)
        event.listen(session, "after_transaction_end", self._end)
        finalize(session, _drop_all, self._waiting).atexit = False

    @classmethod
    def of(cls, session: Session) -> _Ledger:
        """The session's ledger, made when first asked for."""
        found: _Ledger | None = session.info.get(_INFO)
        if found is None:
            found = session.info[_INFO] = cls(session)
        return found

    def keep(self, waiting: Waiting, session: Session) -> None:
        """Until the innermost transaction ends: a savepoint's, if there is one."""
        self._waiting.setdefault(_innermost(session), []).append(waiting)

    def _note(self, session: Session) -> None:
        """A commit, also of a savepoint: its transaction ends next. One that merely ends was rolled back."""
        self._committed = _innermost(session)

    def _end(self, session: Session, transaction: SessionTransaction) -> None:
        ended, self._committed = self._committed == id(transaction), None
        waiting = self._waiting.pop(id(transaction), [])
        if not ended:
            _drop(waiting)
        elif transaction.nested:
            self._waiting.setdefault(_innermost(session), []).extend(waiting)
        elif not waiting:
            return
        elif _awaits():
            await_only(asend_committed(waiting))
        else:
            send_committed(waiting)


def _awaits() -> bool:
    """Whether this is the inside of an `AsyncSession`. SQLAlchemy can say so only where greenlet is installed."""
    return sys.modules.get("greenlet") is not None and in_greenlet()


def _innermost(session: Session) -> int:
    """The transaction of the innermost savepoint, else the session's; what a flush opens inside counts as neither."""
    return id(session.get_nested_transaction() or session.get_transaction())


def _drop(waiting: list[Waiting]) -> None:
    for one in waiting:
        one.drop()


def _drop_all(waiting: dict[int, list[Waiting]]) -> None:
    """The session was forgotten with its transaction open, which rolls that back."""
    for some in waiting.values():
        _drop(some)
