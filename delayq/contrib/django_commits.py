"""Jobs that wait for the commit of a Django transaction.

    current_manager().on_commit(DjangoCommits())        once, in AppConfig.ready

    with transaction.atomic():
        order.save()
        CloseOrder(order_id=order.id).dispatch(after_commit=True)
                                                        here the job is sent
    job.dispatch(within="archive")                      the database of that alias

Django knows the transaction of this thread, so no session need be named. It calls its `on_commit` callbacks by
savepoint, so the jobs of one atomic block go out together, those of a block inside by themselves.

What goes wrong when they are sent is raised as `CommittedUnsent` at the end of the outermost block; Django then leaves
out the callbacks registered later. In a `TestCase` nothing commits: see `captureOnCommitCallbacks`.
"""

from __future__ import annotations

from typing import Any
from weakref import finalize

from django.db import connections

from delayq.core.errors import ConfigError
from delayq.drivers.waiting import Waiting, send_committed


class DjangoCommits:
    """The hook for `Manager.on_commit`. `using` is the alias of the database that is meant when none is named."""

    def __init__(self, using: str = "default") -> None:
        self._using = using

    def current(self) -> object | None:
        """The alias that is meant when none is named."""
        return self._using

    def after_commit(self, waiting: Waiting, session: object, *, named: bool) -> bool:
        """Keep `waiting` until the outermost atomic block of the database `session` ends.

        False in autocommit. Raises `ConfigError` for what is no alias, and Django's `TransactionManagementError` for
        a transaction that it does not manage itself.
        """
        if not isinstance(session, str) or session not in connections:
            known = ", ".join(connections)
            raise ConfigError(f"{session!r} is no alias of a Django database; known are {known}.")
        connection = connections[session]
        if not connection.in_atomic_block and connection.get_autocommit():
            return False
        savepoints = tuple(connection.savepoint_ids)
        for entry in reversed(connection.run_on_commit):
            callback = entry[1]
            if isinstance(callback, _Callback) and callback.savepoints == savepoints and not callback.called:
                callback.waiting.append(waiting)
                return True
        connection.on_commit(_Callback(savepoints, waiting))
        return True


class _Callback:
    """What Django calls after the commit, for all jobs of one atomic block.

    Django tells nobody of a rollback; it lets go of the callback, and that is how the jobs hear of it.
    """

    def __init__(self, savepoints: tuple[Any, ...], first: Waiting) -> None:
        self.savepoints = savepoints
        self.waiting = [first]
        self.called = False
        finalize(self, _drop, self.waiting).atexit = False

    def __call__(self) -> None:
        committed = tuple(self.waiting)
        self.waiting.clear()
        self.called = True
        send_committed(committed)


def _drop(waiting: list[Waiting]) -> None:
    for one in waiting:
        one.drop()
