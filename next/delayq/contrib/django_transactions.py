"""Waits for the commit of a transaction of Django."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from delayq.core.display import shown
from delayq.core.errors import CommittedUnsent, DelayqError, InvalidInput

W = TypeVar("W")

logger: Final = logging.getLogger("delayq")


def check_alias(alias: str) -> None:
    """Raise InvalidInput if the settings of Django have no database with this alias."""
    if alias not in connections:
        known = ", ".join(sorted(connections))
        raise InvalidInput(
            f"within is {shown(alias)}, and Django has no database with this alias.",
            hint=f"Known are {known}.",
            field="within",
        )


def wait_for_commit(
    session: Any,
    waiting: W,
    send: Callable[[Sequence[W]], None],
    asend: Callable[[Sequence[W]], Coroutine[Any, Any, None]],
) -> bool:
    """Keep `waiting` until the transaction of a database has been committed; see WaitForCommit.

    `session`: the alias of the database. Django calls back after the commit of the outermost atomic block, and drops
    the callbacks of a savepoint that was rolled back. After an error of a callback, Django drops all later callbacks.
    So the error of a dispatch is raised by the last callback, when all other callbacks have sent their jobs.

    Raises InvalidInput if autocommit is off and no atomic block is open, because Django then calls nothing back.
    """
    connection = connections[session]
    if not connection.in_atomic_block:
        if connection.connection is not None and not connection.autocommit:
            raise InvalidInput(
                f"Autocommit of the database {session!r} is off, so Django cannot call back after a commit.",
                hint="Use transaction.atomic(), or dispatch(after_commit=False) after the commit.",
                field="within",
            )
        return False
    known = [callback for _, callback, _ in connection.run_on_commit if isinstance(callback, _Send)]
    jobs: _Jobs[W] = known[-1].jobs if known else _Jobs(send)
    transaction.on_commit(partial(jobs.collected.append, waiting), using=session)
    jobs.last = _Send(jobs)
    connection.run_on_commit.append((set(), jobs.last, False))  # belongs to no savepoint, so no rollback drops it
    return True


async def await_commit(session: str, wait: Callable[[], bool]) -> bool:
    """Call `wait` in the thread in which Django runs the queries of this task. There, `wait` finds their transaction.

    If this thread cannot be used, the task has no open transaction, so False is returned without a call. There are two
    cases: the thread has ended, or it is the calling thread itself, which is busy with the event loop.
    """
    if connections[session].in_atomic_block:  # possible in the event loop itself with DJANGO_ALLOW_ASYNC_UNSAFE
        return wait()
    try:
        return await sync_to_async(wait)()
    except RuntimeError:
        return False


class _Jobs(Generic[W]):
    """The jobs of one transaction: those to send next, and those whose dispatch failed. `last`: the last callback."""

    def __init__(self, send: Callable[[Sequence[W]], None]) -> None:
        self.collected: list[W] = []
        self.last: object = None
        self._send = send
        self._errors: list[CommittedUnsent] = []

    def send(self, *, is_last: bool) -> None:
        """Send the collected jobs. If some could not be sent, raise CommittedUnsent in the last call."""
        collected, self.collected[:] = list(self.collected), []
        try:
            if collected:
                self._send(collected)
        except CommittedUnsent as error:
            self._errors.append(error)
            if not is_last:  # the last call never comes if a callback of the application fails first
                logger.error("%s", error)
        if is_last and self._errors:
            errors, self._errors[:] = list(self._errors), []
            cause = errors[0].__cause__
            if len(errors) == 1 or not isinstance(cause, DelayqError):
                raise errors[0]
            raise CommittedUnsent([job for error in errors for job in error.jobs], cause) from cause


class _Send:
    """A callback after the commit. It sends the jobs that were collected since the callback before it."""

    def __init__(self, jobs: _Jobs[Any]) -> None:
        self.jobs = jobs

    def __call__(self) -> None:
        self.jobs.send(is_last=self.jobs.last is self)
