"""The protocol of the modules that wait for transactions of SQLAlchemy or Django."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

W = TypeVar("W")


class WaitForCommit(Protocol[W]):
    """Keeps jobs until the transaction of a session has been committed, and then sends them."""

    def __call__(
        self,
        session: Any,
        waiting: W,
        send: Callable[[Sequence[W]], None],
        asend: Callable[[Sequence[W]], Coroutine[Any, Any, None]],
        /,
    ) -> bool:
        """Keep `waiting`, and pass it to `send` or `asend` right after the commit. After a rollback, drop it.

        Returns False if no transaction is open.
        """
        ...
