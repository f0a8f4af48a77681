"""Reads the options of one connection: each checked, each known, or one sentence that says which and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delayq.core.errors import ConfigError, DelayqError
from delayq.core.shown import shown
from delayq.core.when import duration_ms
from delayq.settings.tables import ConnectionSettings

EVERYWHERE = ("driver", "url", "prefix", "queue", "after_commit")


class Given:
    """The options of the connection `name`. Read each one, then call `no_more`."""

    def __init__(self, name: str, given: ConnectionSettings) -> None:
        self._name = name
        self._driver = given.driver
        self._left: dict[str, Any] = dict(given.options)
        self._known: list[str] = []

    def text(self, option: str, default: str = "") -> str:
        """Some text."""
        value = self._take(option, default)
        if not isinstance(value, str):
            raise self._wrong(option, value, "a text")
        return value

    def names(self, option: str) -> list[str]:
        """A list of texts; empty when it is not there."""
        value = self._take(option, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._wrong(option, value, "a list of names")
        return value

    def flag(self, option: str, *, default: bool = False) -> bool:
        """true or false."""
        value = self._take(option, default)
        if not isinstance(value, bool):
            raise self._wrong(option, value, "true or false")
        return value

    def number(self, option: str, default: int, *, least: int = 0, most: int | None = None) -> int:
        """A whole number in a range."""
        value = self._take(option, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least or (most and value > most):
            wanted = f"a whole number from {least} to {most}" if most else f"a whole number from {least} on"
            raise self._wrong(option, value, wanted)
        return value

    def duration_ms(self, option: str, default: str, *, least: str = "1ms") -> int:
        """A duration such as '90s', in ms."""
        value = self._take(option, default)
        try:
            ms = duration_ms(value)
        except DelayqError as error:
            raise self._wrong(option, value, "a duration such as '90s'") from error
        if ms < duration_ms(least):
            raise self._wrong(option, value, f"at least {least}")
        return ms

    def table(self, option: str) -> Mapping[str, Any]:
        """A table of its own; empty when it is not there."""
        value = self._take(option, {})
        if not isinstance(value, Mapping):
            raise self._wrong(option, value, "a table")
        return value

    def no_more(self) -> None:
        """Raises `ConfigError` for an option nobody read."""
        for option in self._left:
            words = (*self._known, *EVERYWHERE)
            raise ConfigError(
                f"The connection {self._name!r} has an option {option!r} that its driver {self._driver} does not know.",
                hint=f"Known are {', '.join(words[:-1])} and {words[-1]}.",
            )

    def _take(self, option: str, default: Any) -> Any:
        self._known.append(option)
        return self._left.pop(option, default)

    def _wrong(self, option: str, value: object, wanted: str) -> ConfigError:
        return ConfigError(
            f"{option} of the connection {self._name!r} is {shown(value)}.",
            hint=f"Use {wanted}: {option} = … below [connections.{self._name}].",
        )
