"""Text that is safe to print. Apart from `words`, because every command needs it, `--help` too."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` on one line and harmless to a terminal: what is not printable is escaped, as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
