"""doctor: gather, judge, tell."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.app import address_of, load_handlers, open_client, with_application
from delayq.app.clients import connection_of, on_redis
from delayq.app.desks import desk_of
from delayq.cli.session import Session
from delayq.cli.words import count
from delayq.core import shapes
from delayq.core.diagnosis import Finding, Level, judge
from delayq.core.errors import BackendError, ConfigError, DelayqError
from delayq.drivers.serving.desk import BrokerDesk
from delayq.redis.checkup import gather
from delayq.settings import Settings
from delayq.settings.tables import DEFAULT


def examine(session: Session, apps: Sequence[str], *, as_json: bool) -> int:
    """Print every finding; 1 when one of them is a problem."""
    settings = session.settings()
    modules = apps or ((settings.app,) if settings.app else ())
    findings: list[Finding] = []
    handlers: Sequence[str] | None = None
    if modules:
        handlers = load_handlers(modules).names()
        try:
            settings = with_application(settings, session.read())
        except ConfigError as error:
            findings.append(Finding("address", address_of(settings), error.message, error.hint))
    session.out.note(f"Looking at {address_of(settings)}.")
    findings += _findings(settings, modules, handlers)
    problems = sum(found.level is Level.PROBLEM for found in findings)
    if as_json:
        session.out.json({"ok": not problems, "findings": [shapes.finding(found) for found in findings]})
        return 1 if problems else 0
    for found in findings:
        session.out.line(f"{found.level}: {found.where}: {found.what} [{found.code}]")
        session.out.line(f"  next: {found.next}")
    session.out.line(count(problems, "problem") if problems else "All is well.")
    return 1 if problems else 0


def _findings(settings: Settings, apps: Sequence[str], handlers: Sequence[str] | None) -> list[Finding]:
    if (desk := _desk_of_another(settings)) is not None:
        return _of_another_backend(desk)
    try:
        with open_client(settings) as client:
            return judge(gather(client, handlers=handlers, app=", ".join(apps), scan=True))
    except (BackendError, ConfigError) as error:
        where = on_redis(settings).url
        return [_unusable(where.where if where else "the embedded server", error)]


def _desk_of_another(settings: Settings) -> BrokerDesk | None:
    """The desk of the connection that is meant, if it is no Redis. Raises `ConfigError` where there is nothing."""
    name = connection_of(settings)
    if name == DEFAULT and name not in settings.connections:
        return None
    on = desk_of(settings, name)
    if on is None:
        on_redis(settings)  # which says so, where no job is kept at all
    return on


def _of_another_backend(desk: BrokerDesk) -> list[Finding]:
    """Whether it is there, with what a worker needs: more is not known of it here."""
    try:
        with desk:
            desk.look()
            buried = desk.all_buried()
    except (BackendError, ConfigError) as error:
        return [_unusable(desk.where, error)]
    what, kick = "buried, because no worker could read them", "delayq failed kick --queue"
    return [
        Finding("buried", f"queue {queue}", f"{count(number, 'job')} {what}.", f"Give them back: {kick} {queue}.")
        for queue, number in buried.items()
    ]


def _unusable(where: str, error: DelayqError) -> Finding:
    return Finding("server", where, error.message, error.hint or "Look at the server's own log.")
