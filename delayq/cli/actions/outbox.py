"""relay, and outbox sql, list, retry, forget."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delayq.cli import logs
from delayq.cli.actions.look import cut
from delayq.cli.needs import sqlalchemy_for
from delayq.cli.session import Session
from delayq.cli.words import count, span
from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.when import duration_ms
from delayq.drivers.outbox.row import TABLE
from delayq.jobs.current import make_manager
from delayq.loops.loop import Loop
from delayq.settings import Settings
from delayq.worker.signals import Signals

if TYPE_CHECKING:
    from delayq.contrib.outbox.relay import OutboxRelay
    from delayq.contrib.outbox.store import Lag, OutboxStore

LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Wishes:
    """Which outbox, and how it is read; None = as the settings say."""

    database: str | None = None
    table: str | None = None
    every: str = "500ms"
    as_json: bool = False


def relay(session: Session, wishes: Wishes) -> int:
    """Send until a signal; the exit code."""
    with _relay(session, wishes) as role:
        role.lag()  # a wrong database or a missing table ends the command, not a line in a log
        loop = Loop(role)
        with Signals(last=True) as signals:
            session.out.note(f"Sending what is written to {role.store.database.where}. Stop with Ctrl-C.")
            loop.start()
            while not signals.stops:
                signals.wait(LOOK_S)
            loop.stop()
    return 0


def relay_once(session: Session, wishes: Wishes) -> int:
    """Send what is there; the exit code."""
    with _relay(session, wishes) as role:
        sent = role.drain()
        lag = role.lag()
        if wishes.as_json:
            session.out.json(_shape(sent, lag))
        else:
            session.out.line(str(sent))
            session.out.note(f"{count(sent, 'job')} sent; {count(lag.refused, 'row')} set aside.")
    return 0


def sql(session: Session, dialect: str, table: str | None) -> None:
    """The statements that create the table."""
    with sqlalchemy_for("An outbox"):
        from delayq.drivers.outbox.table import sql_of
    for line in sql_of(dialect, table or TABLE).splitlines():
        session.out.line(line)


def list_refused(session: Session, wishes: Wishes, limit: int, *, as_json: bool) -> None:
    """Rows that were set aside."""
    with _store(session, wishes) as store:
        rows = store.refused(limit)
    if not as_json:
        shown = [
            (str(row.seq), _word(row.id), _word(row.name), _word(row.queue), _age(row), _reason(row)) for row in rows
        ]
        session.out.table(("seq", "id", "name", "queue", "age", "reason"), shown, numbers=("seq",))
        return
    for row in rows:
        about = {name: _plain(getattr(row, name)) for name in ("id", "name", "queue", "connection", "written_ms")}
        session.out.json({"seq": row.seq, **about, "reason": _plain(row.refused)})


def retry(session: Session, wishes: Wishes, numbers: Collection[int] | None) -> None:
    """Let rows go after all."""
    _named(numbers)
    with _store(session, wishes) as store:
        changed = store.retry(numbers)
    session.out.line(str(changed))
    session.out.note(f"The relay will look at {count(changed, 'row')} again.")


def forget(session: Session, wishes: Wishes, numbers: Collection[int] | None, *, yes: bool) -> None:
    """Delete rows."""
    _named(numbers)
    with _store(session, wishes) as store:
        what = "every row that was set aside" if numbers is None else count(len(numbers), "row")
        session.out.confirm(f"Delete {what}?", yes=yes)
        gone = store.forget(numbers)
    session.out.line(str(gone))
    session.out.note(f"{count(gone, 'row')} deleted.")


@contextmanager
def _relay(session: Session, wishes: Wishes) -> Iterator[OutboxRelay]:
    settings = session.settings(database=wishes.database)
    logs.start(settings, quiet=session.out.quiet)
    with sqlalchemy_for("An outbox"):
        from delayq.contrib.outbox.relay import OutboxRelay

    def told(sent: int, lag: Lag) -> None:
        session.out.json(_shape(sent, lag))

    manager = make_manager(settings)
    every_s = max(0.01, duration_ms(wishes.every) / 1000)
    role = OutboxRelay(
        _url(settings), manager, table=wishes.table or TABLE, every_s=every_s, told=told if wishes.as_json else None
    )
    with closing(manager), closing(role):
        yield role


@contextmanager
def _store(session: Session, wishes: Wishes) -> Iterator[OutboxStore]:
    url = _url(session.settings(database=wishes.database))
    with sqlalchemy_for("An outbox"):
        from delayq.contrib.outbox.database import Database
        from delayq.contrib.outbox.store import OutboxStore
    with closing(Database(url)) as database:
        yield OutboxStore(database, wishes.table or TABLE)


def _url(settings: Settings) -> str:
    if settings.database is None:
        raise ConfigError(
            "No database is named, so there is no outbox to read.",
            hint="For example: --database postgresql://shop@localhost/shop, or DELAYQ_DATABASE.",
        )
    return settings.database.url


def _named(numbers: Collection[int] | None) -> None:
    if numbers is not None and not numbers:
        raise InvalidInput("No row is named.", hint="Name rows as `outbox list` numbers them, or all with --all.")


def _shape(sent: int, lag: Lag) -> dict[str, int]:
    return {"sent": sent, "waiting": lag.waiting, "oldest_ms": lag.oldest_ms, "refused": lag.refused}


def _plain(value: Any) -> Any:
    """A column's value as it can be printed, whatever a database was given for it."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _word(value: Any) -> str:
    return "-" if value is None else str(_plain(value))


def _age(row: Any) -> str:
    return span(int(row.age_ms)) if isinstance(row.age_ms, int | float) else "-"


def _reason(row: Any) -> str:
    return cut(_word(row.refused).encode())
