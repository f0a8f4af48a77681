"""A job whose payload has been read and whose handler has not been called yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

NOTHING: Final[Sequence[Any]] = ()


def _nothing() -> Sequence[Any]:
    return NOTHING


class Opened(msgspec.Struct, frozen=True):
    """`call` runs the handler, as `Handler.run` would: the result, or a coroutine to await for it."""

    fields: Mapping[str, Any]
    """The members of the payload, by name."""
    call: Callable[[], Any]
    instance: Any = None
    """The `Job`, or the object whose method is the handler; None for a function."""
    middleware: Callable[[], Sequence[Any]] = _nothing
    """What the instance itself wants to be surrounded by."""
