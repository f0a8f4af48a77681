"""batch list, show, cancel, retry."""

from __future__ import annotations

from delayq.cli import shapes
from delayq.cli.actions.look import local_ms
from delayq.cli.session import Session
from delayq.cli.words import count, distance
from delayq.core.batches import BatchInfo
from delayq.core.when import format_instant


def list_batches(session: Session, limit: int, *, as_json: bool) -> None:
    """The newest batches."""
    with session.client() as client:
        found = client.batches.list(limit)
    if as_json:
        for info in found:
            session.out.json(shapes.batch(info))
        return
    columns = ("id", "name", "state", "ended", "total", "failed", "skipped", "began")
    rows = [_row(info, local_ms()) for info in found]
    session.out.table(columns, rows, numbers=("ended", "total", "failed", "skipped"))


def _row(info: BatchInfo, now_ms: int) -> tuple[object, ...]:
    ended, began = f"{info.progress} %", distance(info.created_ms, now_ms)
    return info.id, info.name, info.state, ended, info.total, info.failed, info.skipped, began


def show(session: Session, batch_id: str, *, as_json: bool) -> None:
    """One batch, and its failed members."""
    with session.client() as client:
        info, failed = client.batches.get(batch_id), client.batches.failed(batch_id)
    if as_json:
        members = [{"id": member, "queue": queue or None} for member, queue in failed]
        session.out.json({**shapes.batch(info), "failed_members": members})
        return
    session.out.record(
        (
            ("id", info.id),
            ("name", info.name),
            ("state", info.state),
            ("members", _members(info)),
            ("began", format_instant(info.created_ms)),
            ("cancelled", None if info.cancelled_ms is None else format_instant(info.cancelled_ms)),
            ("finished", None if info.finished_ms is None else format_instant(info.finished_ms)),
            ("failed", "\n".join(_place(member, queue) for member, queue in failed)),
        )
    )


def _members(info: BatchInfo) -> str:
    return f"{info.total}: {info.done} done, {info.failed} failed, {info.skipped} skipped, {info.pending} left"


def _place(member: str, queue: str) -> str:
    return f"{member}  (queue {queue})" if queue else f"{member}  (a batch)"


def cancel(session: Session, batch_id: str, *, as_json: bool) -> None:
    """Cancel it."""
    with session.client() as client:
        info = client.batches.cancel(batch_id)
    if as_json:
        session.out.json(shapes.batch(info))
    else:
        session.out.line(f"{batch_id}: {info.state}; {count(info.pending, 'member')} left to end")


def retry(session: Session, batch_id: str, *, as_json: bool) -> None:
    """Retry its failed members."""
    with session.client() as client:
        number = client.batches.retry(batch_id)
    if as_json:
        session.out.json({"id": batch_id, "retried": number})
    else:
        session.out.line(f"{batch_id}: {count(number, 'job')} to be tried again")
