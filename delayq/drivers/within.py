"""The database transaction that jobs belong to, when they are dispatched inside `with within(session):`.

A session is whatever the application's database knows a transaction by: an SQLAlchemy `Session`, `AsyncSession` or
connection, or the alias of a Django database. Nothing here looks inside; hooks and the outbox do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_session: ContextVar[Any] = ContextVar("delayq_within", default=None)


@contextmanager
def within(session: Any) -> Iterator[None]:
    """Let all jobs dispatched inside the block, in this thread or coroutine, belong to the transaction of `session`.

    They wait for its commit, as with `after_commit=True`; those that go to an outbox are written in it. A job that
    says `after_commit=False` is still sent at once.
    """
    token = _session.set(session)
    try:
        yield
    finally:
        _session.reset(token)


def session_at_hand() -> Any:
    """The session of the innermost block; None outside of any."""
    return _session.get()
