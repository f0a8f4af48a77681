"""pause, resume, clear, queue set, queue show, queue remove."""

from __future__ import annotations

from delayq.cli.session import Session
from delayq.cli.words import count
from delayq.core import shapes
from delayq.core.errors import InvalidInput
from delayq.core.when import format_duration, format_instant
from delayq.redis.given import QueueSettings


def one_or_all(queue: str | None, everything: bool) -> str:
    """The queue, or '' for all. Raises `InvalidInput` unless exactly one of both was given."""
    if (queue is None) != everything:
        raise InvalidInput("Name one queue, or say --all.", hint="delayq pause orders, or delayq pause --all")
    return queue or ""


def pause(session: Session, queue: str, length: str | None, reason: str, *, as_json: bool) -> None:
    """Stop a queue."""
    with session.client() as client:
        session.record(client, "pause", queue, length or "", reason)
        until_ms = client.pause(queue, length=length)
    if as_json:
        session.out.json(shapes.paused(queue, until_ms))
        return
    session.out.line("paused")
    until = format_instant(until_ms) if until_ms else "it is resumed"
    session.out.note(f"Queue {queue} rests until {until}.")


def resume(session: Session, queue: str, *, as_json: bool) -> None:
    """Undo a pause."""
    with session.client() as client:
        session.record(client, "resume", queue)
        client.resume(queue)
        switches = client.control()
    if as_json:
        session.out.json(shapes.paused(queue, None))
        return
    session.out.line("resumed")
    if switches.paused:
        session.out.note("Everything is still paused: delayq resume --all.")


def clear(session: Session, queue: str | None, *, yes: bool, as_json: bool) -> None:
    """Drop what waits."""
    with session.desk() as client:
        name = queue or client.options.queue
        session.out.confirm(f"Drop every job that waits in queue {name}?", yes=yes)
        session.record(client, "clear", name)
        dropped = client.clear(name)
    print_dropped(session, name, dropped, as_json=as_json)


def print_dropped(session: Session, queue: str, dropped: int, *, as_json: bool) -> None:
    """How many jobs are gone."""
    if as_json:
        session.out.json({"queue": queue, "dropped": dropped})
        return
    session.out.line(str(dropped))
    session.out.note(f"{count(dropped, 'job')} dropped from queue {queue}.")


def queue_set(session: Session, queue: str, kept: QueueSettings, *, as_json: bool) -> None:
    """Set what is given, and print what is in force."""
    with session.client() as client:
        said = ", ".join(f"{word} {value}" for word, value in kept.items() if value is not None)
        session.record(client, "queue set", queue, said)
        view = client.queue_set(queue, **kept)
        safe = client.queue_durability(queue)
        number = None if kept.get("shards") is None else view.shards
    more = {"durability": safe} | ({} if number is None else {"shards": number})
    if as_json:
        session.out.json({"queue": queue, "lease_ms": view.lease_ms, **more})
    else:
        session.out.record([("queue", queue), ("lease", format_duration(view.lease_ms)), *more.items()])


def queue_show(session: Session, queue: str, *, as_json: bool) -> None:
    """What a queue keeps for itself."""
    with session.client() as client:
        view, safe = client.queue_show(queue), client.queue_durability(queue)
    if as_json:
        session.out.json(shapes.queue_view(view, safe))
        return
    rows: list[tuple[str, object]] = [("queue", queue), ("lease", format_duration(view.lease_ms)), ("durability", safe)]
    rows.append(("shards", view.shards))
    if view.since_ms is not None:
        rows.append(("since", format_instant(view.since_ms)))
    if view.before:
        rows.append(("jobs may lie by", ", ".join(map(str, view.before))))
    session.out.record(rows)
    if len(view.held) > 1:
        numbers = ("scheduled", "load", "failed", "completed")
        session.out.table(("shard", *numbers), view.held, numbers=numbers)


def queue_remove(session: Session, queue: str, *, as_json: bool) -> None:
    """Forget a queue that holds nothing."""
    with session.client() as client:
        session.record(client, "queue remove", queue)
        client.queue_remove(queue)
    if as_json:
        session.out.json({"queue": queue, "removed": True})
        return
    session.out.line("removed")
    session.out.note(f"The queue {queue} is forgotten; a job that is scheduled there makes it anew.")
