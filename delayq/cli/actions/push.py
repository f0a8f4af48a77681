"""push: a worker whose only handler posts the jobs of one queue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from pydantic_core import PydanticCustomError

from delayq.cli.actions import serve
from delayq.cli.actions.wishes import Limits, Size, Told, Wishes
from delayq.cli.events import EventLines
from delayq.cli.session import Session
from delayq.core.errors import ConfigError
from delayq.jobs.registry import Registry
from delayq.push.registering import register_pushes
from delayq.settings import Settings
from delayq.settings.pushes import PushSettings, read_push

OPTIONS: Final = (
    "secret_file", "unsigned", "allow", "ca_file", "timeout", "rate", "concurrency", "tries", "backoff",
)  # fmt: skip
"""Options that are words of `[push.QUEUE]`; `--to` is its `url`."""


def push(session: Session, params: Mapping[str, Any]) -> int:
    """Post the jobs of the queue until there is a reason to stop; the exit code. `params` are those of the command."""
    told = _told(params)
    queue, wishes = params["queue"], told.wishes
    settings = session.settings(connection=wishes.connection, metrics_port=wishes.metrics_port, grace=wishes.grace)
    registry = register_pushes(Registry(), {queue: _settings(settings, queue, _said(params))})
    return serve.work_on(session, settings, registry, told)


def _told(params: Mapping[str, Any]) -> Told:
    """What every worker may be told."""
    size = Size(params["processes"], params["threads"], mover=not params["no_mover"])
    alike = {word: params[word] for word in ("queue", "name", "allow_eviction", "force", "connection", "grace")}
    wishes = Wishes(**alike, size=size, metrics_port=params["metrics"])
    limits = Limits(**{one.name: params[one.name] for one in fields(Limits)})
    events = EventLines() if params["as_json"] else None
    return Told(wishes, limits, params["quiet"], time.monotonic(), events)


def _said(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the options say, by the words of the settings."""
    options = {"url": params["to"]} | {word: params[word] for word in OPTIONS}
    given = {word: value for word, value in options.items() if value not in (None, False, ())}
    if "allow" in given:
        given["allow"] = list(given["allow"])
    if "tries" in given and given["tries"].isascii() and given["tries"].isdecimal():
        given["tries"] = int(given["tries"])
    return given


def _settings(settings: Settings, queue: str, options: Mapping[str, Any]) -> PushSettings:
    """The options over `[push.QUEUE]`. Raises `ConfigError`."""
    base = settings.push.get(queue)
    if base is None and "url" not in options:
        raise ConfigError(
            f"Nobody said where the jobs of {queue} are pushed to.",
            hint=f"Give --to URL, or write a [push.{queue}] with a url into delayq.toml.",
        )
    try:
        return read_push(queue, options, base)
    except PydanticCustomError as refused:
        sentence = str(refused)
        raise ConfigError(sentence[0].upper() + sentence[1:]) from None
