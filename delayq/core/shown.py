"""How a refused value looks in an error: short, on one line, safe to print."""

from __future__ import annotations

from typing import Final

SHOWN_LIMIT: Final = 40
_PRINTABLE_BITS: Final = 128


def shown(value: object) -> str:
    """`value` for an error message.

    Text comes back quoted; control characters, lone surrogates and direction marks are escaped, and what is
    longer than 40 characters is cut. Numbers come back as they are. Of anything else only the type is named:
    a stranger's `__repr__` may be huge, may hold secrets and may itself raise.
    """
    if isinstance(value, str):
        text = str.__str__(value)  # the text itself, also of a `(str, Enum)` member
        return repr(text) if len(text) <= SHOWN_LIMIT else f"{text[:SHOWN_LIMIT]!r}... ({len(text):,} characters)"
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, int):
        # Python itself refuses to print an int of more than 4,300 digits.
        bits = value.bit_length()
        return int.__repr__(value) if bits <= _PRINTABLE_BITS else f"a number of {bits:,} bits"
    return f"a value of type {type(value).__name__}"
