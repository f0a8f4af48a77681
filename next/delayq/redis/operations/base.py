"""The parts that all operations share: the session, the default queue, and checks of arguments."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from delayq.core.display import shown
from delayq.core.errors import InvalidInput, NotConfirmed
from delayq.core.names import check_queue
from delayq.redis.calls.call import Call
from delayq.redis.session import Session

R = TypeVar("R")
T = TypeVar("T")
RefT = TypeVar("RefT")

Told = Callable[[int], object]
"""A function that a long operation calls with the number of jobs handled so far."""


class OperationsBase(Generic[RefT]):
    """The session of a client, and the function that makes its references to jobs."""

    def __init__(self, session: Session, make_ref: Callable[..., RefT]) -> None:
        self._session = session
        self._make_ref = make_ref

    async def close(self) -> None:
        """Close the connections of this client. If the client is used again, it opens new connections."""
        await self._session.executor.close()

    def _queue(self, queue: str | None) -> str:
        """Return the named queue, or the default queue for None. Raises InvalidInput."""
        return self._session.options.queue if queue is None else check_queue(queue)

    async def _change(
        self,
        queue: str,
        job_id: str,
        make: Callable[[str], Call[T]],
        read: Callable[[T], Awaitable[R]],
        *,
        is_unknown: Callable[[T], bool],
    ) -> R:
        """Send a change of one job, and return its answer, converted by `read`.

        `make`: returns the call for a shard. `is_unknown`: returns True if an answer means that the id is unknown. The
        number of shards may have changed then. So it is read again, and if it has changed, the call is repeated in the
        new shard. If NotConfirmed is raised, its `done` has the converted answer.
        """
        shards = self._session.shards
        unconfirmed: NotConfirmed | None = None
        while True:
            shard = shards.of_job(queue, job_id)
            try:
                answer = await self._session.write(make(shard), shard)
            except NotConfirmed as error:
                unconfirmed, answer = error, error.done[0]
            if not is_unknown(answer) or not await shards.have_changed(queue):
                break
            unconfirmed = None
        converted = await read(answer)
        if unconfirmed is not None:
            unconfirmed.done = (converted,)
            raise unconfirmed
        return converted


def check_word(field: str, value: object, words: tuple[str, ...]) -> None:
    """Raise InvalidInput unless a value is one of these words."""
    if value not in words:
        raise InvalidInput(
            f"{field} is {shown(value)}.", hint=f"Use {', '.join(words[:-1])} or {words[-1]}.", field=field
        )
