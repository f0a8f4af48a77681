"""Waits for the commit of a transaction of Django."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

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
    """Keep something until the transaction of a database has been committed; see WaitForCommit.

    `session`: the alias of the database. Django calls back after the commit of the outermost atomic block, and never
    for a savepoint that was rolled back.
    """
    if not connections[session].in_atomic_block:
        return False
    transaction.on_commit(lambda: send([waiting]), using=session)
    return True
