"""Reads what PHP's `serialize` wrote, as plain data. Strict and bounded; nothing read here ever becomes code.

    N;  b:1;  i:42;  d:0.5;  s:3:"abc";       null, bool, int, float, text (its length counts bytes)
    a:2:{i:0;s:1:"x";i:1;s:1:"y";}            array: a list when its keys are 0, 1, 2 …, else a mapping
    O:8:"App\\Job":1:{s:2:"id";i:7;}           object: a `PhpObject`, its class a mere name
    E:10:"Suit:Clubs";  C:3:"Foo":4:{....}    a case of an enum (its name); an object that wrote itself (opaque)
    r:2;  R:2;                                the same value again: a `PhpReference`, never followed

Names of fields come without PHP's marks of who may see them. References are not followed, so nothing here can be
endless or larger than the text it was read from.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from delayq.core.errors import BadEnvelope

MAX_BYTES: Final = 8 * 1024 * 1024
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 100_000
_LONGEST_NUMBER: Final = 40


@dataclass(frozen=True, slots=True)
class PhpObject:
    """An object: the name of its class and its fields. `opaque`: it wrote itself, so its fields are not known."""

    name: str
    fields: dict[str, Php] = field(default_factory=dict)
    opaque: bool = False


@dataclass(frozen=True, slots=True)
class PhpReference:
    """The value that was read as the n-th, once more."""

    number: int


Php: TypeAlias = "str | int | float | bool | list[Php] | dict[str, Php] | PhpObject | PhpReference | None"
Key: TypeAlias = int | str

_NUMBER: Final = re.compile(rb"[+-]?[0-9]+")
_FLOAT: Final = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|-?INF|NAN")
_LENGTH: Final = re.compile(rb"[0-9]{1,10}")
_LEAST: Final = 2
"""The shortest value has so many bytes: whoever announces more values than the rest can hold is not believed."""


def unserialize(text: bytes) -> Php:
    """The value PHP wrote. Raises `BadEnvelope` with the byte where it stops making sense."""
    if len(text) > MAX_BYTES:
        raise BadEnvelope(f"PHP's serialised data has {len(text):,} bytes; at most {MAX_BYTES:,} are read.")
    reader = _Reader(text)
    value = reader.value(0)
    if reader.at != len(text):
        raise reader.wrong("more follows than one value")
    return value


class _Reader:
    """One reading. `at` is the next byte."""

    __slots__ = ("_count", "_text", "at")

    def __init__(self, text: bytes) -> None:
        self._text = text
        self.at = 0
        self._count = 0

    def wrong(self, what: str) -> BadEnvelope:
        """The error for whatever stands at this byte."""
        return BadEnvelope(f"PHP's serialised data cannot be read: {what} at byte {self.at}.")

    def value(self, depth: int) -> Php:
        """The next value."""
        self._count += 1
        if depth > MAX_DEPTH:
            raise self.wrong(f"it is nested deeper than {MAX_DEPTH}")
        if self._count > MAX_VALUES:
            raise self.wrong(f"there are more than {MAX_VALUES:,} values")
        kind = self._text[self.at : self.at + 2]
        if kind in (b"a:", b"O:"):
            return self._nested(kind, depth)
        return self._scalar(kind)

    def _scalar(self, kind: bytes) -> Php:
        self.at += 2
        match kind:
            case b"N;":
                return None
            case b"b:":
                return self._bool()
            case b"i:":
                return self._int()
            case b"d:":
                return self._float()
            case b"s:":
                return self._text_of(b";")
            case b"E:":
                return self._text_of(b";").rpartition(":")[2]
            case b"C:":
                return self._opaque()
            case b"r:" | b"R:":
                return PhpReference(self._int())
        self.at -= 2
        raise self.wrong("no value starts")

    def _nested(self, kind: bytes, depth: int) -> Php:
        self.at += 2
        if kind == b"a:":
            return _array(self._members(depth))
        name = self._text_of(b":")
        fields: dict[str, Php] = {}
        for key, value in self._members(depth):
            # A private field of a parent's may have the name of one of the class itself, which comes first.
            fields.setdefault(_bare(key), value)
        return PhpObject(name, fields)

    def _members(self, depth: int) -> list[tuple[Key, Php]]:
        count = self._length()
        self._take(b"{")
        if count * _LEAST > len(self._text) - self.at:
            raise self.wrong(f"{count:,} members do not fit")
        members = [(self._key(), self.value(depth + 1)) for _ in range(count)]
        self._take(b"}")
        return members

    def _key(self) -> Key:
        kind = self._text[self.at : self.at + 2]
        self.at += 2
        if kind == b"i:":
            return self._int()
        if kind == b"s:":
            return self._text_of(b";")
        self.at -= 2
        raise self.wrong("no key starts")

    def _opaque(self) -> PhpObject:
        name = self._text_of(b":")
        length = self._length()
        self._take(b"{")
        self._bytes(length)
        self._take(b"}")
        return PhpObject(name, opaque=True)

    def _bool(self) -> bool:
        word = self._bytes(2)
        if word not in (b"0;", b"1;"):
            self.at -= len(word)
            raise self.wrong("no 0 or 1 stands")
        return word == b"1;"

    def _int(self) -> int:
        found = self._number(_NUMBER)
        if len(found) > _LONGEST_NUMBER:
            raise self.wrong("a number is too long")
        return int(found)

    def _float(self) -> float:
        found = self._number(_FLOAT)
        if found.endswith((b"INF", b"NAN")):
            return {b"INF": math.inf, b"-INF": -math.inf}.get(found, math.nan)
        return float(found)

    def _number(self, pattern: re.Pattern[bytes]) -> bytes:
        found = pattern.match(self._text, self.at)
        if found is None:
            raise self.wrong("no number stands")
        self.at = found.end()
        self._take(b";")
        return found[0]

    def _length(self) -> int:
        found = _LENGTH.match(self._text, self.at)
        if found is None:
            raise self.wrong("no length stands")
        self.at = found.end()
        self._take(b":")
        return int(found[0])

    def _text_of(self, end: bytes) -> str:
        length = self._length()
        self._take(b'"')
        raw = self._bytes(length)
        self._take(b'"')
        self._take(end)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.wrong("the text that ends is no UTF-8") from None

    def _bytes(self, length: int) -> bytes:
        if length > len(self._text) - self.at:
            raise self.wrong(f"{length:,} bytes are announced and fewer follow")
        self.at += length
        return self._text[self.at - length : self.at]

    def _take(self, mark: bytes) -> None:
        if not self._text.startswith(mark, self.at):
            raise self.wrong(f"{mark.decode()!r} is missing")
        self.at += len(mark)


def _array(members: list[tuple[Key, Php]]) -> Php:
    if all(key == n for n, (key, _) in enumerate(members)):
        return [value for _, value in members]
    return {str(key): value for key, value in members}


def _bare(key: Key) -> str:
    """A field's name without `\\0*\\0` (protected) or `\\0Class\\0` (private) before it."""
    return str(key).rpartition("\0")[2]
