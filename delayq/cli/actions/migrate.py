"""migrate: waiting jobs from one connection to another."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from delayq.cli.actions.look import local_ms
from delayq.cli.ending import INTERRUPTED
from delayq.cli.session import Session
from delayq.cli.words import count
from delayq.core.errors import InvalidInput
from delayq.core.names import check_queue
from delayq.drivers.migrating.alone import alone
from delayq.drivers.migrating.ends import Source, Target
from delayq.drivers.migrating.migration import Migrated, Migration
from delayq.drivers.migrating.opening import refuse_one_place, source_of, target_of
from delayq.jobs.current import make_manager

SHOWN: Final = 20
TELL_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Move:
    """From where to where; None = every queue, each under its own name."""

    source: str
    target: str
    queue: str | None = None
    to_queue: str | None = None
    resend: bool = False


def migrate(session: Session, move: Move, *, as_json: bool) -> int:
    """Move what waits; the exit code: 1 when the count does not agree, 4 when some could not be moved."""
    if move.source == move.target and move.to_queue in (None, move.queue):
        raise InvalidInput(f"--from and --to are both {move.source}.", hint="Name two connections.")
    if move.to_queue is not None and move.queue is None:
        raise InvalidInput(
            f"--to-queue {move.to_queue} would put all queues into one.", hint="Name the one that is meant: --queue."
        )
    with _ends(session, move) as (source, target), _stopping() as stopped:
        names = [check_queue(move.queue)] if move.queue is not None else _holding(source)
        migration = Migration(
            source, target, _Headway(session), local_ms, move.target, resend=move.resend, stopped=stopped
        )
        for name in names:  # all are looked at before the first one is touched
            migration.check(name, move.to_queue or name)
        if names and not target.remembers and not as_json:
            session.out.note(
                f"{move.target} does not remember what it was sent: run again after a crash, up to 250 jobs whose run "
                "has ended there meanwhile are sent a second time."
            )
        try:
            for name in names:
                if not stopped():
                    migration.run(name, move.to_queue or name)
        except BaseException:
            _report_begun(session, move, migration.done)
            raise
        done, ended = migration.done, not stopped()
    if as_json:
        session.out.json(_document(move, done, remembers=target.remembers))
    else:
        _report(session, move, done)
    if not ended:
        session.out.note(f"Stopped: the others wait in {move.source} as before. The same command goes on.")
        return INTERRUPTED
    if not all(one.agrees for one in done):
        return 1
    return 4 if any(one.refused for one in done) else 0


def _holding(source: Source) -> list[str]:
    """The queues there is something to move from: what an empty one would be called elsewhere is nobody's business."""
    return [name for name in source.queues() if source.waiting(name) or source.lots(name)]


@contextmanager
def _ends(session: Session, move: Move) -> Iterator[tuple[Source, Target]]:
    settings = session.settings()
    manager = make_manager(settings)
    try:
        leaving, arriving = manager.connection(move.source), manager.connection(move.target)
        source, target = source_of(leaving), target_of(arriving, manager.options_of(move.target))
        refuse_one_place(leaving, arriving, manager.given, elsewhere=move.to_queue not in (None, move.queue))
        with alone(leaving, manager.given, settings.data_dir):
            yield source, target
    finally:
        manager.close()


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Whether somebody asked this run to end: then the lot in hand is carried through. Asked twice, it is not."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Headway:
    """Says every two seconds how far it is."""

    def __init__(self, session: Session) -> None:
        self._out = session.out
        self._said = time.monotonic()

    def __call__(self, found: Migrated) -> None:
        if time.monotonic() - self._said >= TELL_S:
            self._said = time.monotonic()
            self._out.note(f"{found.queue}: {found.moved:,} of about {found.waiting:,} moved.")


def _document(move: Move, done: list[Migrated], *, remembers: bool) -> dict[str, Any]:
    """`target_remembers`: whether a lot that is sent again after a crash runs once there, also what has ended."""
    queues = [_shape(one) for one in done]
    return {"from": move.source, "to": move.target, "target_remembers": remembers, "queues": queues}


def _report(session: Session, move: Move, done: list[Migrated]) -> None:
    for one in done:
        session.out.line(_sum(one))
        for job_id, why in list(one.refused.items())[:SHOWN]:
            session.out.note(f"{job_id} stays: {why.rstrip('.')}.")
        if len(one.refused) > SHOWN:
            session.out.note(f"And {len(one.refused) - SHOWN} more; --json names all.")
        if one.doubled:
            told = ", ".join(one.doubled[:SHOWN])
            session.out.note(
                f"{count(len(one.doubled), 'job')} came back to {one.queue} while being moved, and will run in both "
                f"places: {told}{', …' if len(one.doubled) > SHOWN else ''}."
            )
        if one.staying:
            session.out.note(f"{one.queue}: {one.staying}.")
    session.out.note(f"{count(sum(one.moved for one in done), 'job')} moved from {move.source} to {move.target}.")


def _report_begun(session: Session, move: Move, done: list[Migrated]) -> None:
    """Where the jobs are of a run that an error ended; the error itself is told by whoever ends the command."""
    for one in done:
        session.out.note(f"{_sum(one)}; the others wait in {move.source} as before.")
        if one.left:
            session.out.note(
                f"{count(one.left, 'job')} of {one.queue} cannot be told to be in {move.target} or not, and are set "
                "aside: no worker finds them until the same command has gone on."
            )


def _sum(one: Migrated) -> str:
    back = f", {count(one.back, 'job')} put back" if one.back else ""
    return f"{one.queue}: {one.moved} of {one.taken} moved{back}"


def _shape(one: Migrated) -> dict[str, Any]:
    return {
        "queue": one.queue,
        "waiting_before": one.waiting,
        "taken": one.taken,
        "moved": one.moved,
        "put_back": one.back,
        "still_aside": one.left,
        "stay": [{"id": job_id, "why": why} for job_id, why in one.refused.items()],
        "in_both": one.doubled,
        "staying": one.staying,
    }
