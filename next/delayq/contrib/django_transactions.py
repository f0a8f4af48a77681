"""Waits for the commit of a transaction of Django."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from django.db import connections, transaction

from delayq.core.display import shown
from delayq.core.errors import InvalidInput

W = TypeVar("W")


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
    the callbacks of a savepoint that was rolled back. After an error of a callback, it drops all later ones. So each
    callback of a dispatch only collects its jobs, and the last callback sends the jobs of the whole transaction.
    """
    connection = connections[session]
    if not connection.in_atomic_block:
        return False
    sends = [callback for _, callback, _ in connection.run_on_commit if isinstance(callback, _Send)]
    jobs: _Jobs[W] = sends[-1].jobs if sends else _Jobs(send)
    transaction.on_commit(partial(jobs.collected.append, waiting), using=session)
    jobs.last = _Send(jobs)
    connection.run_on_commit.append((set(), jobs.last, False))  # belongs to no savepoint, so no rollback drops it
    return True


class _Jobs(Generic[W]):
    """The jobs of one transaction whose callbacks were called. `last`: the callback that sends them."""

    def __init__(self, send: Callable[[Sequence[W]], None]) -> None:
        self.collected: list[W] = []
        self.last: object = None
        self._send = send

    def send(self) -> None:
        collected, self.collected[:] = list(self.collected), []
        if collected:
            self._send(collected)


class _Send:
    """A callback after the commit. It sends the jobs, unless a later dispatch has added another one."""

    def __init__(self, jobs: _Jobs[Any]) -> None:
        self.jobs = jobs

    def __call__(self) -> None:
        if self.jobs.last is self:
            self.jobs.send()
