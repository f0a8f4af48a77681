"""The verb of events: tells who listens here, and dispatches a job for each queued listener."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from delayq.core.names import check_id
from delayq.core.views import JobRef
from delayq.jobs.committing import call_after_commit
from delayq.jobs.current import current_manager
from delayq.jobs.dispatch import Dispatch
from delayq.jobs.registry import current


def announce(event: object, *, id: str | None = None, within: Any = None) -> list[JobRef]:
    """Tell the world of an event; an answer for each job that was dispatched for it.

    The jobs go first, so an event of which listeners here have heard is on its way. With `id` the same event may be
    announced again, after an error say: its jobs are called `<id>.<name of the job>`, and are kept when they are there
    already. `within` is the database session the event belongs to: the jobs wait for its commit, and so do the
    listeners that asked for it. Raises what `dispatch` raises, from the first listener that could not be queued; never
    what a listener here raises.
    """
    refs = [made.dispatch() for made in _dispatches(event, id, within)]
    _tell(event, within)
    return refs


async def aannounce(event: object, *, id: str | None = None, within: Any = None) -> list[JobRef]:
    """Tell the listeners of an event, awaited. Returns an answer for each job that was dispatched for it.

    Takes `id` and `within` as `announce` does, and raises what it raises.
    """
    refs = [await made.adispatch() for made in _dispatches(event, id, within)]
    _tell(event, within)
    return refs


def _tell(event: object, session: Any) -> None:
    events = current().events
    events.tell_now(event)
    if events.waits(type(event)):
        call_after_commit(partial(events.tell_late, event), session, current_manager())


def _dispatches(event: object, event_id: str | None, session: Any) -> Iterator[Dispatch]:
    made: list[Any] = [queues(event) for queues in current().events.queued(type(event))]
    for dispatch in made:
        if dispatch is None:
            continue
        if session is not None and "within" not in dispatch.said:
            dispatch = dispatch.within(session)
        yield dispatch if event_id is None else dispatch.having(id=check_id(f"{event_id}.{dispatch.message.name}"))
