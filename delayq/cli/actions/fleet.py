"""workers, restart, maintenance, pause --all: what concerns all workers at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from delayq.cli.actions.look import local_ms
from delayq.cli.session import Session
from delayq.cli.words import count, distance, span
from delayq.core import shapes
from delayq.core.control import Control
from delayq.core.views import WorkerInfo
from delayq.core.when import format_instant

COLUMNS: Final = ("worker", "host", "pid", "queues", "state", "held", "late", "memory", "done", "up", "runs")
NUMBERS: Final = ("pid", "held", "late", "memory", "done", "up")
_MB: Final = 1 << 20


def workers(session: Session, *, as_json: bool) -> None:
    """The workers that are alive."""
    with session.client() as client:
        found, switches = client.workers(), client.control()
    if as_json:
        for one in found:
            session.out.json(shapes.worker(one))
        return
    now_ms = local_ms()
    session.out.table(COLUMNS, [row(one, now_ms) for one in found], numbers=NUMBERS)
    session.out.note(count(len(found), "worker"))
    tell_control(session, switches)


def row(one: WorkerInfo, now_ms: int) -> tuple[object, ...]:
    """A worker as a line of the table. What it did not say, or somebody else wrote, is left empty."""
    about = one.about
    started_ms, late_ms, memory = (_number(about.get(name)) for name in ("started_ms", "late_ms", "memory_bytes"))
    return (
        one.name,
        _word(about.get("host")),
        _word(about.get("pid")),
        ",".join(one.queues),
        _word(about.get("state")),
        _word(about.get("held")),
        "" if late_ms is None else span(late_ms),
        "" if memory is None else f"{memory // _MB} MB",
        _word(about.get("done")),
        "" if started_ms is None else span(max(0, (now_ms - started_ms) // 1000 * 1000)),
        ", ".join(runs(about)),
    )


def runs(about: Mapping[str, Any]) -> Iterator[str]:
    """What a worker runs: 'orders/order-42 for 3s' each."""
    listed = about.get("running")
    for job in listed if isinstance(listed, list) else ():
        if isinstance(job, dict):
            for_ms = _number(job.get("for_ms"))
            yield f"{job.get('queue')}/{job.get('id')}" + ("" if for_ms is None else f" for {span(max(0, for_ms))}")


def _word(value: object) -> str:
    return str(value) if isinstance(value, int | str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def restart(session: Session, *, as_json: bool) -> None:
    """Call on all workers to leave after their job."""
    with session.client() as client:
        session.record(client, "restart workers", "")
        switches = client.restart_workers()
        called = concerned(client.workers(), switches)
    if as_json:
        session.out.json({**shapes.control(switches), "workers": len(called)})
        return
    session.out.line("restart")
    session.out.note(f"{count(len(called), 'worker')} will leave after the job that runs.")


_ORDERED: Final = {
    "quiet": "ends its jobs and takes no new ones. To undo it: delayq workers resume {}",
    "resume": "takes jobs again",
    "stop": "ends its jobs and leaves",
    "restart": "ends its jobs and leaves, so that its process manager starts it again",
}


def order(session: Session, name: str, order: str, reason: str, *, as_json: bool) -> None:
    """Tell one worker what to do."""
    with session.client() as client:
        session.record(client, f"worker {order}", name, reason=reason)
        told = client.order_worker(name, order)
    if as_json:
        session.out.json(shapes.ordered(told))
        return
    session.out.line(order)
    session.out.note(f"The worker {told.name} {_ORDERED[order].format(name)}.")


def concerned(found: Sequence[WorkerInfo], switches: Control) -> list[WorkerInfo]:
    """The workers that were there when the call to restart came."""
    called_ms = switches.restart_ms or 0
    return [one for one in found if (_number(one.about.get("started_ms")) or 0) < called_ms]


def maintenance_on(session: Session, length: str | None, reason: str, *, as_json: bool) -> None:
    """Start maintenance."""
    with session.client() as client:
        session.record(client, "maintenance on", "", length or "", reason)
        switches = client.start_maintenance(length=length, reason=reason)
    _answer(session, switches, "on", as_json=as_json)


def maintenance_off(session: Session, *, as_json: bool) -> None:
    """End it."""
    with session.client() as client:
        session.record(client, "maintenance off", "")
        switches = client.end_maintenance()
    _answer(session, switches, "off", as_json=as_json)


def pause_all(session: Session, length: str | None, reason: str, *, as_json: bool) -> None:
    """No worker fetches anything."""
    with session.client() as client:
        session.record(client, "pause all", "", length or "", reason)
        switches = client.pause_all(length=length, reason=reason)
    _answer(session, switches, "paused", as_json=as_json)


def resume_all(session: Session, *, as_json: bool) -> None:
    """Undo that; queues paused by name stay so, which is said."""
    with session.client() as client:
        session.record(client, "resume all", "")
        switches = client.resume_all()
        still = [one.queue for one in client.stats() if one.paused]
    _answer(session, switches, "resumed", as_json=as_json)
    if still and not as_json:
        session.out.note(f"Paused by name, and still so: {', '.join(still)}.")


def _answer(session: Session, switches: Control, word: str, *, as_json: bool) -> None:
    if as_json:
        session.out.json(shapes.control(switches))
        return
    session.out.line(word)
    tell_control(session, switches)


def show(session: Session, *, as_json: bool) -> None:
    """What holds for all workers."""
    with session.client() as client:
        switches = client.control()
    if as_json:
        session.out.json(shapes.control(switches))
        return
    fields = [
        ("maintenance", _until(switches, switches.maintenance_until_ms, on=switches.maintenance)),
        ("reason", switches.reason),
        ("since", "" if switches.maintenance_since_ms is None else format_instant(switches.maintenance_since_ms)),
        ("all paused", _until(switches, switches.paused_until_ms, on=switches.paused)),
        ("restart", "" if switches.restart_ms is None else distance(switches.restart_ms, switches.now_ms)),
    ]
    session.out.record(fields)


def _until(switches: Control, until_ms: int | None, *, on: bool) -> str:
    if not on or until_ms is None:
        return "no"
    return f"for {span(until_ms - switches.now_ms)}" if until_ms else "until it is ended"


def tell_control(session: Session, switches: Control) -> None:
    """Say what keeps workers from fetching, if anything does."""
    if switches.maintenance:
        until = _until(switches, switches.maintenance_until_ms, on=True)
        why = f" ({switches.reason})" if switches.reason else ""
        session.out.note(f"Maintenance {until}{why}: workers fetch nothing unless started with --force.")
    if switches.paused:
        why = f" ({switches.paused_reason})" if switches.paused_reason else ""
        session.out.note(f"Everything is paused {_until(switches, switches.paused_until_ms, on=True)}{why}.")
