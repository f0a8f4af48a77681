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
    with session.client() as client:
        views = client.locks.all(queue, limit=limit)
    if as_json:
        for view in views:
            session.out.json(shapes.lock(view))
        return
    now_ms = local_ms()
    session.out.table(_HEADS, [_row(view, now_ms) for view in views])


def show(session: Session, target: Target, *, as_json: bool) -> None:
    """One lock."""
    with session.client() as client:
        view = client.locks.get(target.name, queue=target.queue)
    if as_json:
        session.out.json(shapes.lock(view))
        return
    session.out.table(_HEADS, [_row(view, local_ms())])


def free(session: Session, target: Target, reason: str, *, as_json: bool) -> None:
    """Free it, and say whose it was."""
    with session.client() as client:
        view = client.locks.free(target.name, queue=target.queue, reason=reason)
    if as_json:
        session.out.json(shapes.lock(view))
        return
    session.out.line(view.owner)
    session.out.note(f"Freed; the job {view.owner} goes on. It is on record: delayq audit.")


def _row(view: LockView, now_ms: int) -> tuple[str, ...]:
    since, ends = moment(view.since_ms, now_ms), moment(view.until_ms, now_ms)
    return view.lock, view.queue, view.until, view.owner, view.name, view.state, since, ends
