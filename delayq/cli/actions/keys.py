"""key new, key list."""

from __future__ import annotations

from collections import Counter

from delayq.cli.actions.look import STATES, Wanted, local_ms, matching
from delayq.cli.session import Session
from delayq.core.keyring import new_key
from delayq.core.sealing import key_of


def new(session: Session, key_id: str | None) -> None:
    """A key that was not there before."""
    session.out.line(new_key(local_ms(), key_id))


def list_keys(session: Session, queue: str | None, *, as_json: bool) -> None:
    """The keys known here in their order, then those that are not; and the jobs that need them."""
    with session.client() as client:
        wanted = Wanted(state=None, queue=queue, name=None, limit=0)
        used = Counter(key_of(info) for info in matching(client, STATES, wanted) if info.encrypted)
        ring = client.options.keyring
    known = [key.id for key in ring.keys]
    rows = [(key_id, _role(key_id, known), used[key_id]) for key_id in (*known, *sorted(used.keys() - set(known)))]
    if as_json:
        for key_id, role, jobs in rows:
            session.out.json({"id": key_id, "role": role, "jobs": jobs})
        return
    session.out.table(
        ("key", "role", "jobs"), [(one, role, f"{jobs:,}") for one, role, jobs in rows], numbers=("jobs",)
    )


def _role(key_id: str, known: list[str]) -> str:
    if key_id not in known:
        return "unknown here"
    return "encrypts" if key_id == known[0] else "decrypts"
