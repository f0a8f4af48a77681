"""What is shown of payloads: JSON for people, without the values of fields that nobody should read. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from delayq.core.sealing import HIDDEN
from delayq.core.views import JobInfo

COVER: Final = "••••••"
SHOWN: Final = 64 * 1024
"""Characters of a payload that are shown; a page that holds more helps nobody."""
_LEAST: Final = 4
"""Shorter values are not looked for in texts: they would be found everywhere."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A text for a page, how many values were covered in it, and how many bytes it has in full."""

    text: str
    covered: int
    length: int
    cut: bool = False


class Redaction:
    """Covers the values of fields by their names: patterns such as 'password' or '*_token', in any case."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(pattern.lower() for pattern in patterns)

    def covers(self, name: str) -> bool:
        """Whether the values of fields of that name are covered."""
        return any(fnmatchcase(name.lower(), pattern) for pattern in self._patterns)

    def clean(self, value: Any) -> tuple[Any, list[str]]:
        """A value of JSON without what is covered, and the texts that were."""
        found: list[str] = []
        return self._clean(value, found), found

    def _clean(self, value: Any, found: list[str]) -> Any:
        if isinstance(value, dict):
            return {name: self._member(str(name), member, found) for name, member in value.items()}
        return [self._clean(one, found) for one in value] if isinstance(value, list) else value

    def _member(self, name: str, value: Any, found: list[str]) -> Any:
        if not self.covers(name):
            return self._clean(value, found)
        found += _texts(value)
        return COVER

    def restored(self, edited: Any, original: Any) -> Any:
        """An edited value with the originals of covered members that were left as they are."""
        if isinstance(edited, dict) and isinstance(original, dict):
            return {
                name: original[name]
                if member == COVER and name in original and self.covers(name)
                else self.restored(member, original.get(name))
                for name, member in edited.items()
            }
        if isinstance(edited, list) and isinstance(original, list) and len(edited) == len(original):
            return [self.restored(one, before) for one, before in zip(edited, original, strict=True)]
        return edited

    def payload(self, info: JobInfo) -> tuple[Shown, list[str]]:
        """A job's payload, and what was covered in it; of an encrypted job, that it is."""
        if info.envelope is None:
            return _cut(info.raw.decode("utf-8", "backslashreplace"), 0, len(info.raw)), []
        if info.encrypted:
            return Shown(HIDDEN, 0, len(info.envelope.data)), []
        return self.json(bytes(info.envelope.data))

    def json(self, raw: bytes) -> tuple[Shown, list[str]]:
        """JSON as it is shown."""
        try:
            value, found = self.clean(msgspec.json.decode(raw))
            text = json.dumps(value, indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):  # foreign bytes may stand where JSON should
            return _cut("This is no JSON that can be shown.", 0, len(raw)), []
        return _cut(text, len(found), len(raw)), found


def without(text: str, covered: Sequence[str]) -> str:
    """A message or traceback without the values that were covered in the payload."""
    for secret in sorted({one for one in covered if len(one) >= _LEAST}, key=len, reverse=True):
        text = text.replace(secret, COVER)
    return text


def _texts(value: Any) -> Iterator[str]:
    """Every text and number in a value, as they would stand in a message."""
    if isinstance(value, dict):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)
    else:
        yield str(value)


def _cut(text: str, covered: int, length: int) -> Shown:
    return Shown(text, covered, length) if len(text) <= SHOWN else Shown(text[:SHOWN], covered, length, True)
