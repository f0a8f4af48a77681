"""lock list, show, free."""

from __future__ import annotations

from typing import NamedTuple

from delayq.cli import limit_shapes as shapes
from delayq.cli.actions.look import local_ms
from delayq.cli.session import Session
from delayq.cli.words import moment
from delayq.core.lock_views import LockView
from delayq.redis.lock_views import lock_of

_HEADS = ("lock", "queue", "until", "owner", "name", "state", "since", "ends")


class Target(NamedTuple):
    """Which lock is meant: by what it is called, or by its key."""

    lock: str | None
    key: str | None
    queue: str | None

    @property
    def name(self) -> str:
        """What it is called."""
        return lock_of(self.key, self.lock)


def list_locks(session: Session, queue: str | None, limit: int, *, as_json: bool) -> None:
    """A line for each."""
    with session.desk() as client:
        views = client.locks.all(queue, limit=limit)
    if as_json:
        for view in views:
            session.out.json(shapes.lock(view))
        return
    now_ms = local_ms()
    session.out.table(_HEADS, [_row(view, now_ms) for view in views])


def show(session: Session, target: Target, *, as_json: bool) -> None:
    """One lock."""
    with session.desk() as client:
        view = client.locks.get(target.name, queue=target.queue)
    if as_json:
        session.out.json(shapes.lock(view))
        return
    session.out.table(_HEADS, [_row(view, local_ms())])


def free(session: Session, target: Target, reason: str, *, as_json: bool) -> None:
    """Free it, and say whose it was."""
    with session.desk(by_hand=True) as client:
        view, on_record = client.locks.free(target.name, queue=target.queue, reason=reason), _audited(client)
    if as_json:
        session.out.json(shapes.lock(view))
        return
    session.out.line(view.owner)
    kept = "It is on record: delayq audit." if on_record else "This connection keeps no audit log."
    session.out.note(f"Freed; the job {view.owner} goes on. {kept}")


def _audited(client: object) -> bool:
    """Whether what was done is on record: only Redis has a log of that."""
    from delayq.redis.client import Client

    return isinstance(client, Client)


def _row(view: LockView, now_ms: int) -> tuple[str, ...]:
    since, ends = moment(view.since_ms, now_ms), moment(view.until_ms, now_ms)
    return view.lock, view.queue, view.until, view.owner, view.name, view.state, since, ends
