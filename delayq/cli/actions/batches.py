"""batch list, show, cancel, retry."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from delayq.cli.actions.look import local_ms
from delayq.cli.session import Session
from delayq.cli.words import count, distance
from delayq.core import shapes
from delayq.core.batches import BatchInfo
from delayq.core.errors import InvalidName
from delayq.core.when import format_instant

if TYPE_CHECKING:
    from delayq.drivers.serving.desk import BrokerDesk
    from delayq.redis.client import Client

PENDING_SHOWN: Final = 20
ASKED_FOR: Final = 20
"""So many failed members are asked after one by one; there may be thousands."""
Members: TypeAlias = Sequence[tuple[str, str]]


def list_batches(session: Session, limit: int, *, as_json: bool) -> None:
    """The newest batches."""
    with session.desk() as client:
        found = client.batches.list(limit)
    if as_json:
        for info in found:
            session.out.json(shapes.batch(info))
        return
    columns = ("id", "name", "state", "ended", "total", "failed", "skipped", "began", "owner")
    rows = [_row(info, local_ms()) for info in found]
    session.out.table(columns, rows, numbers=("ended", "total", "failed", "skipped"))


def _row(info: BatchInfo, now_ms: int) -> tuple[object, ...]:
    ended, began = f"{info.progress} %", distance(info.created_ms, now_ms)
    return info.id, info.name, info.state, ended, info.total, info.failed, info.skipped, began, info.owner


def show(session: Session, batch_id: str, *, as_json: bool) -> None:
    """One batch, its failed members, and some of those that have not ended."""
    with session.desk() as client:
        info, failed = client.batches.get(batch_id), client.batches.failed(batch_id)
        pending = client.batches.pending(batch_id, PENDING_SHOWN)
        gone = set() if as_json else _forgotten(client, failed)
    if as_json:
        members = {"failed_members": _shapes(failed), "pending_members": _shapes(pending)}
        session.out.json({**shapes.batch(info), **members})
        return
    session.out.record(
        (
            ("id", info.id),
            ("name", info.name),
            ("state", info.state),
            ("owner", info.owner or "unknown"),
            ("members", _members(info)),
            ("then", _then(info)),
            ("began", format_instant(info.created_ms)),
            ("cancelled", None if info.cancelled_ms is None else format_instant(info.cancelled_ms)),
            ("finished", None if info.finished_ms is None else format_instant(info.finished_ms)),
            ("failed", _failed(failed, gone)),
            ("pending", _places(pending, info.pending)),
        )
    )


def _shapes(members: Members) -> list[dict[str, str | None]]:
    return [{"id": member, "queue": queue or None} for member, queue in members]


def _then(info: BatchInfo) -> str:
    """Whether `then` is, was or will be sent: it is when all members have succeeded."""
    if info.finished_ms is None:
        lost = info.failed + info.skipped
        return f"not as it stands: {count(lost, 'member')} failed or skipped" if lost else "when all have succeeded"
    if not info.failed + info.skipped:
        return "sent: all have succeeded"
    return f"not sent: {info.failed} failed, {info.skipped} skipped"


def _forgotten(client: Client | BrokerDesk, failed: Members) -> set[str]:
    """Which of the first failed members are no more, so that nobody can retry them."""
    return {member for member, queue in failed[:ASKED_FOR] if queue and _is_gone(client, member, queue)}


def _is_gone(client: Client | BrokerDesk, member: str, queue: str) -> bool:
    try:
        return client.get(member, queue=queue) is None
    except InvalidName:  # somebody else wrote it there: no job is called so, and no queue
        return True


def _failed(failed: Members, gone: Container[str]) -> str:
    """All of them; only of the first ones it is said whether they are forgotten."""
    lines = _places(failed, len(failed), gone)
    unasked = len(failed) - ASKED_FOR
    return f"{lines}\nwhether the last {unasked} of them are forgotten was not asked" if unasked > 0 else lines


def _places(members: Members, total: int, gone: Container[str] = ()) -> str:
    lines = [_place(member, queue, "  forgotten" if member in gone else "") for member, queue in members]
    return "\n".join([*lines, f"and {total - len(members)} more"] if total > len(members) else lines)


def _members(info: BatchInfo) -> str:
    return f"{info.total}: {info.done} done, {info.failed} failed, {info.skipped} skipped, {info.pending} left"


def _place(member: str, queue: str, note: str = "") -> str:
    return f"{member}  (queue {queue}){note}" if queue else f"{member}  (a batch)"


def cancel(session: Session, batch_id: str, reason: str, *, as_json: bool) -> None:
    """Cancel it, on record."""
    with session.desk(by_hand=True) as client:
        info = client.batches.cancel(batch_id, reason=reason)
    if as_json:
        session.out.json(shapes.batch(info))
    else:
        session.out.line(f"{batch_id}: {info.state}; {count(info.pending, 'member')} left to end")


def retry(session: Session, batch_id: str, reason: str, *, as_json: bool) -> None:
    """Retry its failed members, on record."""
    with session.desk(by_hand=True) as client:
        gone = len(_forgotten(client, client.batches.failed(batch_id)))  # before: what is retried may be gone soon
        number = client.batches.retry(batch_id, reason=reason)
    if as_json:
        session.out.json({"id": batch_id, "retried": number})
    else:
        lost = f"; {count(gone, 'job')} that failed {'is' if gone == 1 else 'are'} forgotten" if gone else ""
        session.out.line(f"{batch_id}: {count(number, 'job')} to be tried again{lost}")
