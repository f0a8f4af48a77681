"""Jobs that are objects of PHP: recognised, named, and their plain fields taken out. Nothing of them is ever run.

Only what a Python handler can use travels on: text, numbers, bools, null, arrays of these, enum cases (by name) and
models (as `{"class", "id", "connection"}`). Laravel's own fields stay behind, and so do all other objects; the payload
itself is kept whole beside them.
"""

from __future__ import annotations

import math
from typing import Any, Final

from delayq.core.errors import BadEnvelope, InvalidName
from delayq.core.names import check_job_name
from delayq.core.shown import shown
from delayq.drivers.laravel.php import Php, PhpObject, PhpReference, unserialize

HANDLER: Final = "Illuminate\\Queue\\CallQueuedHandler@call"
"""What `job` says in the payload of every object."""

MODEL: Final = "Illuminate\\Contracts\\Database\\ModelIdentifier"
OURS: Final = frozenset((
        "job", "connection", "queue", "delay", "afterCommit", "middleware", "messageGroup", "deduplicator", "chained",
        "chainConnection", "chainQueue", "chainCatchCallbacks", "batchId", "fakeBatch", "tries", "maxExceptions",
        "backoff", "timeout", "failOnTimeout", "retryUntil", "uniqueFor", "deleteWhenMissingModels",
        "shouldBeEncrypted", "debounceOwner",
))  # fmt: skip
"""Fields that Laravel's traits and its worker read; none is the application's data."""

_PLAIN: Final = (str, int, bool, type(None))
_LEFT_OUT: Final = object()


def read_command(data: Any, display: str | None) -> tuple[str, dict[str, Any]]:
    """The job's name and its plain fields, from the payload's `data` and `displayName`.

    Raises `BadEnvelope` for what only Laravel can run: encrypted commands, chains, members of a batch.
    """
    if not isinstance(data, dict) or not isinstance(data.get("command"), str):
        raise BadEnvelope("The payload says that it holds a PHP object, and there is none in data.command.")
    said = data.get("commandName")
    name = named(display, said if isinstance(said, str) else None)
    text: str = data["command"]
    if not text.startswith(("O:", "C:")):
        raise BadEnvelope(
            f"The PHP job {name} is encrypted with its application's key, which only PHP has.",
            hint="Let a Laravel worker run it, or take ShouldBeEncrypted off its class.",
        )
    try:
        command = unserialize(text.encode())
    except BadEnvelope as error:
        raise BadEnvelope(f"The PHP job {name} cannot be read. {error.message}", hint=error.hint) from None
    if not isinstance(command, PhpObject) or command.opaque:
        raise BadEnvelope(f"The PHP job {name} wrote itself in a form of its own, which only PHP can read.")
    _refuse_links(name, command.fields)
    return name, plain_fields(command.fields)


def named(*names: str | None) -> str:
    """What a job is called: by the first of these that can be a name. Raises `BadEnvelope`."""
    for name in names:
        if name is not None and _fits(name):
            return name
    said = next((name for name in names if name), "")
    raise BadEnvelope(f"A job of Laravel's is called {shown(said)}, which cannot name a job here.")


def plain_fields(fields: dict[str, Php]) -> dict[str, Any]:
    """The fields a Python handler can use."""
    found = {name: _plain(value) for name, value in fields.items() if name not in OURS}
    return {name: value for name, value in found.items() if value is not _LEFT_OUT}


def _refuse_links(name: str, fields: dict[str, Php]) -> None:
    """Jobs that others wait for: only Laravel can send the next one, or tell the batch."""
    chained = fields.get("chained")
    if chained:
        links = len(chained) if isinstance(chained, list | dict) else 1
        raise BadEnvelope(
            f"The PHP job {name} goes before a chain of {links:,}, and only Laravel can send the next one.",
            hint="Let a Laravel worker run its queue.",
        )
    if fields.get("batchId"):
        raise BadEnvelope(
            f"The PHP job {name} belongs to a batch, and only Laravel can tell the batch how it went.",
            hint="Let a Laravel worker run its queue.",
        )


def _plain(value: Php) -> Any:
    """The value as JSON has it; `_LEFT_OUT` for an object, a reference, and whatever holds one."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _LEFT_OUT
    if isinstance(value, PhpReference):
        return _LEFT_OUT
    if isinstance(value, PhpObject):
        return _model(value.fields) if value.name == MODEL else _LEFT_OUT
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        return _LEFT_OUT if any(item is _LEFT_OUT for item in items) else items
    members = {key: _plain(item) for key, item in value.items()}
    return _LEFT_OUT if any(item is _LEFT_OUT for item in members.values()) else members


def _model(fields: dict[str, Php]) -> Any:
    """A model, or several, by class and key; PHP would load them now, and a Python handler knows how to."""
    found = {member: _plain(fields.get(member)) for member in ("class", "id", "connection")}
    return _LEFT_OUT if any(value is _LEFT_OUT for value in found.values()) else found


def _fits(name: str) -> bool:
    try:
        check_job_name(name)
    except InvalidName:
        return False
    return True
