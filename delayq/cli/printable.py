"""Text that is safe to print. Apart from `words`, because every command needs it, `--help` too."""

from __future__ import annotations

from typing import Any


def printable(text: str) -> str:
    """`text` on one line and harmless to a terminal: what is not printable is escaped, as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def encodable(value: Any) -> Any:
    """`value` with every text in it, keys too, as UTF-8 can carry it: a lone surrogate is escaped, as `\\udcff`.

    Python makes surrogates of the bytes of a path or a variable that are no UTF-8.
    """
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case dict():
            return {encodable(name): encodable(member) for name, member in value.items()}
        case list() | tuple():
            return [encodable(member) for member in value]
        case _:
            return value
