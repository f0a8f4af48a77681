"""config show."""

from __future__ import annotations

from delayq.cli.session import Session
from delayq.settings import origins


def show(session: Session, *, with_origin: bool, as_json: bool) -> None:
    """Every setting, passwords masked."""
    rows = origins(session.settings())
    if as_json:
        for row in rows:
            session.out.json(
                {"name": row.name, "value": row.value or None, **({"origin": row.origin} if with_origin else {})}
            )
        return
    columns = ("setting", "value", "origin") if with_origin else ("setting", "value")
    session.out.table(columns, [(row.name, row.value, row.origin)[: len(columns)] for row in rows])
