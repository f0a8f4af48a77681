"""The jobs of an application: its modules, imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from delayq.core.endpoint import Endpoint
from delayq.core.errors import ConfigError, DelayqError
from delayq.core.redis_url import parse_endpoint
from delayq.jobs.current import made_manager
from delayq.jobs.registry import Registry, current, load_app
from delayq.settings import Settings

IN_CODE: Final = "the application"
"""The origin of a setting that an application made in its code."""
_URL: Final = "DELAYQ_URL"
_SET_ON_IMPORT: Final[dict[str, str]] = {}
"""The variables that an application changed when it was imported."""


def load_handlers(modules: Sequence[str]) -> Registry:
    """Import the modules that register an application's jobs; what they registered, together.

    Raises `ConfigError` for a module that cannot be imported, whatever it raises.
    """
    before = os.environ.get(_URL, "")
    for module in modules:
        try:
            load_app(module)
        except DelayqError:
            raise
        except Exception as error:
            raise ConfigError(
                f"--app {module}: importing it raised {type(error).__name__}: {error}.",
                hint="Mend that module; -v shows where it happened.",
            ) from error
    if (after := os.environ.get(_URL, "")) != before:
        _SET_ON_IMPORT[_URL] = after
    registry = current()
    if "django.db" in sys.modules:
        from delayq.contrib.django_connections import keep_connections_healthy

        registry.outermost = keep_connections_healthy
    return registry


def with_application(before: Settings, after: Settings) -> Settings:
    """The settings once an application is loaded: what it set in its code counts where nothing else says anything.

    `before` was read before the application was imported, `after` behind it: it may have changed the environment. What
    its own code gave `Settings(...)` for the manager of the process is taken over.

    Raises `ConfigError` when flag, environment or file name another Redis, or another prefix, than the application.
    """
    manager = made_manager()
    theirs = None if manager is None else manager.settings
    if before.url is not None and after.url is not None:
        _same("Redis", before, before.url, after.url)
        if before.origin_of("url") == "flag" and (url := _SET_ON_IMPORT.get(_URL)):
            _same("Redis", before, before.url, parse_endpoint(url))  # a flag hides it from `after`
    if theirs is None:
        return after
    taken: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for field, info in Settings.model_fields.items():
        name = str(info.validation_alias or field)
        if theirs.origin_of(name) != "flag":
            continue  # the same environment and file that are read here
        value = getattr(theirs, field)
        if after.origin_of(name) == "default":
            taken[field], origins[name] = value, IN_CODE
        elif name == "url":
            _same("Redis", after, after.url, value)
        elif name == "prefix":
            _same("prefix", after, after.prefix, value)
    return after.with_origins(taken, origins) if taken else after


def _same(what: str, settings: Settings, here: Any, theirs: Any) -> None:
    """Raises `ConfigError` unless both are one. Two users of one database are: only the place counts."""
    if _place(here) != _place(theirs):
        origin = settings.origin_of("url" if what == "Redis" else "prefix")
        raise ConfigError(
            f"This command would use the {what} {here} (from {origin}), and the application uses {theirs}.",
            hint="Use one address in both: jobs sent to one never run on the other.",
        )


def _place(value: Any) -> Any:
    if isinstance(value, Endpoint):
        return value.topology, value.hosts, value.path, value.db, value.service
    return value
