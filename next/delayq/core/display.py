"""Texts for messages: values of unknown origin, cut short and without secrets."""

import re
from collections.abc import Iterable
from typing import Final

MAX_SHOWN: Final = 60
_HIDDEN: Final = "***"
_OPTION: Final = re.compile(r"([?&](?!db=|protocol=)[^=&]*=)[^&]+")
"""An option of a URL other than `db` and `protocol`. Such an option may have a secret as its value, for example if its
name is misspelt."""


def shown(value: object) -> str:
    """Return a value for an error message.

    A text is quoted, and cut after 60 characters. Numbers, booleans and None are written out, and a class is named. For
    any other value, only the type is named, because its repr may be huge, may contain secrets, or may raise an error.
    """
    if isinstance(value, str):
        text = str.__str__(value)
        return repr(text) if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]!r}… ({len(text):,} characters)"
    if isinstance(value, bool | float) or value is None:
        return str(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 128 else f"a number of {value.bit_length():,} bits"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    is_empty = isinstance(value, list | tuple | dict | set) and not value
    return f"an empty {type(value).__name__}" if is_empty else f"a value of type {type(value).__name__}"


def printable(text: str) -> str:
    """Escape control characters and direction marks in text, because a terminal would act on them."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return 'Did you mean …?' with the known word closest to `word`, or '' if none is close.

    `prefix`: text in front of the known word.
    """
    from difflib import get_close_matches  # only an error needs it

    near = get_close_matches(word, list(known), n=1)
    return f"Did you mean {prefix}{near[0]}?" if near else ""


def several(number: int, noun: str) -> str:
    """Return a number with its noun: '1 job', '1,200 jobs'."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def mask_url(url: str) -> str:
    """Return a URL with *** in place of its password and of the values of options other than `db` and `protocol`.

    An empty password or value stays empty.

    This works for malformed URLs too. The whole text between the scheme and the last '@' counts as the login, because
    a password may contain an unescaped '/' or '@'. A login without ':' is hidden completely, because it is usually a
    password whose ':' was forgotten.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    rest = _OPTION.sub(rf"\1{_HIDDEN}", rest)
    login, at, host = rest.rpartition("@")
    if at:
        user, colon, password = login.partition(":")
        rest = f"{user}:{_HIDDEN if password else ''}@{host}" if colon else f"{_HIDDEN}@{host}"
    return f"{scheme}{separator}{rest}"
