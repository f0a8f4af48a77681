"""What only some commands need, and few installations have: its absence is one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from delayq.core.errors import ConfigError


@contextmanager
def sqlalchemy_for(what: str) -> Iterator[None]:
    """Import what stands on SQLAlchemy inside. Raises `ConfigError` where it is missing; `what` begins the sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        raise ConfigError(f"{what} needs SQLAlchemy.", hint="pip install 'delayq[database]'") from error


@contextmanager
def extra_for(what: str, extra: str, modules: Sequence[str]) -> Iterator[None]:
    """Import what stands on `modules` inside. Raises `ConfigError` naming the extra that brings them."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:
            raise
        raise ConfigError(f"{what} needs {error.name}.", hint=f"pip install 'delayq[{extra}]'") from error
