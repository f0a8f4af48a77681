"""Every command of the command line that shows something, with words that make it do so.

Not those that go on (work, listen, up, demo, relay): what they say goes through the same `render` and `logs`.
"""

from __future__ import annotations

from tests.support.whole_life import CHANGE, LOOK, PRODUCE

QUEUE = "orders"
LOOKS: tuple[tuple[str, ...], ...] = (
    *LOOK,
    *((*words, "--json") for words in LOOK if words[0] != "top"),
    ("config", "show", "--origin"),
    ("scripts", "path"),
    ("scripts", "path", "--json"),
    ("show", "o1", "--queue", QUEUE),
    ("show", "o1", "--queue", QUEUE, "--json"),
    ("why", "o1", "--queue", QUEUE),
    ("why", "o1", "--queue", QUEUE, "--json"),
    ("failed", "groups"),
    ("failed", "groups", "--json"),
    ("failed", "show", "o1", "--queue", QUEUE),
    ("failed", "retry", "o1", "--queue", QUEUE),
    ("failed", "forget", "o1", "--queue", QUEUE),
    ("archive", "none", "--queue", QUEUE),
    ("queue", "remove", "none"),
    ("batch", "show", "none"),
    ("batch", "cancel", "none"),
    ("batch", "retry", "none"),
    ("limit", "show", "none"),
    ("limit", "free", "none", "--yes"),
    ("lock", "show", "none"),
    ("lock", "free", "none", "--yes"),
    ("workers",),
    ("workers", "--json"),
    ("workers", "quiet", "none"),
    ("workers", "resume", "none"),
    ("workers", "stop", "none"),
    ("workers", "restart", "none"),
    ("key", "list"),
    ("outbox", "list"),
    ("maintenance", "show"),
    ("database",),
    ("migrate",),
    ("activity",),
    ("activity", "--json"),
    ("job-types",),
    ("job-types", "--json"),
    ("queue", "show", QUEUE),
    ("queue", "show", QUEUE, "--json"),
    ("failed", "kick", "1", "--queue", QUEUE),
    ("outbox", "sql"),
    ("outbox", "retry", "none"),
    ("outbox", "forget", "none"),
    ("database", "sql"),
    ("database", "migrate"),
    ("api-key", "list"),
    ("api-key", "revoke", "none"),
    ("healthcheck", "--role", "mover"),
    ("drain", "--queue", QUEUE),
)
ALL = (*PRODUCE, *LOOKS, *CHANGE)
LEFT_OUT: dict[tuple[str, ...], str] = {
    ("work",): "goes on",
    ("push",): "goes on",
    ("listen",): "goes on",
    ("up",): "goes on",
    ("demo",): "goes on",
    ("serve",): "goes on",
    ("relay",): "goes on",
    ("down",): "ends what goes on",
    ("key", "new"): "shows a key: that is what it is for",
    ("api-key", "create"): "shows a key: that is what it is for",
}
"""Commands that are in none of the lists, and why."""
