"""SQLAlchemy's sessions and connections for asyncio, where there are any: importing them needs greenlet."""

from __future__ import annotations

import sys
from typing import Any

KINDS = ("AsyncSession", "async_scoped_session", "AsyncConnection")


def asyncio_kinds() -> tuple[Any, ...]:
    """The classes; none in a program that has not imported them, which can hold no object of theirs."""
    module = sys.modules.get("sqlalchemy.ext.asyncio")
    return () if module is None else tuple(getattr(module, name) for name in KINDS)
