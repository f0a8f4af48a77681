"""scripts path."""

from __future__ import annotations

from delayq.cli.session import Session
from delayq.redis.scripts import folder


def path(session: Session, *, as_json: bool) -> None:
    """Print the directory of the Lua scripts."""
    where = str(folder())
    if as_json:
        session.out.json({"path": where})
    else:
        session.out.line(where)
