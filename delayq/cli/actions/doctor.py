"""doctor: gather, judge, tell."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.app import load_handlers, open_client
from delayq.cli.session import Session
from delayq.cli.words import count
from delayq.core import shapes
from delayq.core.diagnosis import Finding, Level, judge
from delayq.core.errors import BackendError, ConfigError
from delayq.redis.checkup import gather
from delayq.settings import Settings


def examine(session: Session, apps: Sequence[str], *, as_json: bool) -> int:
    """Print every finding; 1 when one of them is a problem."""
    settings = session.settings()
    findings = _findings(settings, apps or ((settings.app,) if settings.app else ()))
    problems = sum(found.level is Level.PROBLEM for found in findings)
    if as_json:
        session.out.json({"ok": not problems, "findings": [shapes.finding(found) for found in findings]})
        return 1 if problems else 0
    for found in findings:
        session.out.line(f"{found.level}: {found.where}: {found.what} [{found.code}]")
        session.out.line(f"  next: {found.next}")
    session.out.line(count(problems, "problem") if problems else "All is well.")
    return 1 if problems else 0


def _findings(settings: Settings, apps: Sequence[str]) -> list[Finding]:
    handlers = load_handlers(apps).names() if apps else None
    try:
        with open_client(settings) as client:
            return judge(gather(client, handlers=handlers, app=", ".join(apps)))
    except (BackendError, ConfigError) as error:
        where = settings.url.where if settings.url else "the embedded server"
        return [Finding("server", where, error.message, error.hint or "Look at the server's own log.")]
