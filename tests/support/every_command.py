"""Every command of the command line that looks at something, with words that make it do so."""

from __future__ import annotations

from delayq.cli.root import app
from tests.support.whole_life import CHANGE, LOOK, PRODUCE

QUEUE = "orders"
LOOKS: tuple[tuple[str, ...], ...] = (
    *LOOK,
    *((*words, "--json") for words in LOOK if words[0] != "top"),
    ("config", "show", "--origin"),
    ("show", "o1", "--queue", QUEUE),
    ("show", "o1", "--queue", QUEUE, "--json"),
    ("failed", "show", "o1", "--queue", QUEUE),
    ("failed", "retry", "o1", "--queue", QUEUE),
    ("failed", "forget", "o1", "--queue", QUEUE),
    ("batch", "show", "none"),
    ("batch", "cancel", "none"),
    ("batch", "retry", "none"),
    ("limit", "show", "none"),
    ("limit", "free", "none", "--yes"),
    ("lock", "show", "none"),
    ("lock", "free", "none", "--yes"),
    ("workers",),
    ("workers", "--json"),
    ("key", "list"),
    ("outbox", "list"),
    ("maintenance", "show"),
)
ALL = (*PRODUCE, *LOOKS, *CHANGE)
ELSEWHERE = {"listen", "up", "down", "demo", "relay", "work", "key", "outbox"}
"""Commands that go on, start servers, or need a database: those that show something are tried by hand."""


def untried() -> set[str]:
    """Names of commands that are in neither list."""
    names = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    return {str(name) for name in names} - {words[0] for words in ALL} - ELSEWHERE
