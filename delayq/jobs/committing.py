"""Jobs and database transactions: which one a job belongs to, and how it waits for its commit.

dispatch(..., within=session)       named by the dispatch
with within(session): ...           by the block around it
manager.on_commit(hook)             by the hook, where the application has a current session
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.names import new_id
from delayq.core.spec import prepare
from delayq.core.states import State
from delayq.core.views import Fate, JobRef, WaitingRef
from delayq.drivers.waiting import WaitingCall, WaitingJob
from delayq.drivers.within import session_at_hand, within
from delayq.jobs.message import Parcel
from delayq.jobs.options import Dispatched, HandlerOptions
from delayq.jobs.registry import current

if TYPE_CHECKING:
    from delayq.manager import CommitHook, Manager


def belonging(said: Dispatched, declared: HandlerOptions, connection: str | None, manager: Manager) -> tuple[bool, Any]:
    """Whether a job waits for a commit, and the session that it is written in or waits for."""
    session = session_of(said, manager) if manager.may_join(connection) else None
    joins = manager.joins(connection) or (not _at_once(said, declared) and manager.joins(connection, session))
    wait = not joins and waits(said, declared, connection, manager)
    return wait, session if joins else session_of(said, manager) if wait else None


def _at_once(said: Dispatched, declared: HandlerOptions) -> bool:
    """Whether it is not to wait for any commit, so not to be written in a transaction either."""
    wait, named = said.get("after_commit"), said.get("within") is not None
    return wait is False or (wait is None and not named and declared.after_commit is False)


def waits(said: Dispatched, declared: HandlerOptions, connection: str | None, manager: Manager) -> bool:
    """Whether a job waits for a commit: the dispatch says it, then the job, the block around it, the connection."""
    wait, named = said.get("after_commit"), said.get("within") is not None
    if wait is False and named:
        raise InvalidInput(
            "within= says that the job waits for a commit, and after_commit=False that it does not.",
            hint="Drop one of them.",
        )
    for says in (wait, named or None, declared.after_commit):
        if says is not None:
            return says
    return session_at_hand() is not None or manager.waits_for_commit(connection)


def session_of(said: Dispatched, manager: Manager) -> Any:
    """The session a job belongs to; None when nobody named one and the hook knows none."""
    named = said.get("within")
    if named is None:
        named = session_at_hand()
    hook = manager.commit_hook
    return hook.current() if named is None and hook is not None else named


def wait_for_commit(parcel: Parcel, said: Dispatched, manager: Manager) -> JobRef | None:
    """Let a job wait; None when no transaction is open, so that it may go. All that is wrong with it is found here."""
    hook = _hook(f"The job {parcel.spec.name!r} waits for a commit", manager)
    if parcel.session is None:
        return None
    spec = parcel.spec if parcel.spec.id is not None else msgspec.structs.replace(parcel.spec, id=new_id())
    connection = manager.connection(parcel.connection)
    prepared = prepare(spec, manager.options_of(parcel.connection), time.time_ns() // 1_000_000)
    ref = WaitingRef(prepared.id, prepared.queue, State.ABSENT, None, Fate.AFTER_COMMIT, prepared.name)
    waiting = WaitingJob(spec, parcel.on_conflict, connection, ref, current().events.tell)
    named = said.get("within") is not None or session_at_hand() is not None
    return ref if hook.after_commit(waiting, parcel.session, named=named) else None


def joining(parcel: Parcel) -> AbstractContextManager[None]:
    """What to send a job inside of: a connection learns there which transaction to write in, if any."""
    return within(None if parcel.after_commit else parcel.session)


def call_after_commit(call: Callable[[], None], session: object | None, manager: Manager) -> None:
    """Make a call when the transaction commits, never if it is rolled back; now, when none is open."""
    hook = _hook("A listener waits for a commit", manager)
    named = session is not None or session_at_hand() is not None
    session = session_of({"within": session}, manager)
    if session is None or not hook.after_commit(WaitingCall(call), session, named=named):
        call()


def _hook(who: str, manager: Manager) -> CommitHook:
    if manager.commit_hook is None:
        raise ConfigError(
            f"{who}, and nobody here knows of a database.",
            hint="Tell the manager: manager.on_commit(SessionCommits()) for SQLAlchemy, DjangoCommits() for Django.",
        )
    return manager.commit_hook
