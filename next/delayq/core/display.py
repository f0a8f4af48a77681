"""How values of unknown origin are shown: short, on one line, without secrets."""

import re
from collections.abc import Iterable
from typing import Final

MAX_SHOWN: Final = 60
_HIDDEN: Final = "***"
_OPTION: Final = re.compile(r"([?&](?!db=|protocol=)[^=&]*=)[^&]*")
"""Of a URL. All but these two may hold a secret, also a misspelt one."""


def shown(value: object) -> str:
    """Return a value for an error message.

    Text comes quoted and cut, numbers as they are. Of anything else only the type is named: its repr may be huge, may
    hold secrets, and may raise.
    """
    if isinstance(value, str):
        text = str.__str__(value)
        return repr(text) if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]!r}… ({len(text):,} characters)"
    if isinstance(value, bool | float) or value is None:
        return str(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 128 else f"a number of {value.bit_length():,} bits"
    return f"a value of type {type(value).__name__}"


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return 'Did you mean …?' with the known word that is most like another one, or ''. `prefix` is put before it."""
    from difflib import get_close_matches  # only an error needs it

    near = get_close_matches(word, list(known), n=1)
    return f"Did you mean {prefix}{near[0]}?" if near else ""


def several(number: int, noun: str) -> str:
    """Return '1 job' or '1,200 jobs'."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def mask_url(url: str) -> str:
    """Return a URL with its passwords and options replaced by ***, also when it is malformed.

    All between the scheme and the last '@' counts as the login: an unescaped '/' or '@' may be part of a password. A
    login without ':' is hidden whole, because most often it is a password whose ':' was forgotten.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    rest = _OPTION.sub(rf"\1{_HIDDEN}", rest)
    login, at, host = rest.rpartition("@")
    if at:
        user, colon, _ = login.partition(":")
        rest = f"{user}:{_HIDDEN}@{host}" if colon else f"{_HIDDEN}@{host}"
    return f"{scheme}{separator}{rest}"
