"""push: a worker whose only handler posts the jobs of one queue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import PydanticCustomError

from delayq.cli.actions import serve
from delayq.cli.actions.wishes import Told
from delayq.cli.events import EventLines
from delayq.cli.session import Session
from delayq.core.errors import ConfigError
from delayq.jobs.registry import Registry
from delayq.push.registering import register_pushes
from delayq.settings import Settings
from delayq.settings.pushes import PushSettings, read_push


def said(**options: Any) -> Mapping[str, Any]:
    """What the options of the command say, by the words of the settings."""
    given = {word: value for word, value in options.items() if value is not None}
    if "tries" in given and given["tries"].isascii() and given["tries"].isdecimal():
        given["tries"] = int(given["tries"])
    return given


def push(
    session: Session,
    queue: str,
    options: Mapping[str, Any],
    told: Told,
    *,
    as_json: bool,
) -> int:
    """Post the jobs of the queue until there is a reason to stop; the exit code."""
    told = replace(told, began=time.monotonic(), events=EventLines() if as_json else None)
    settings = session.settings(connection=told.wishes.connection, metrics_port=told.wishes.metrics_port)
    registry = register_pushes(Registry(), {queue: _settings(settings, queue, options)})
    return serve.work_on(session, settings, registry, told)


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
