"""What a database says when it says no, and what that means for a queue."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InterfaceError, OperationalError

from delayq.core.errors import (
    BackendError,
    BackendFull,
    BackendUnavailable,
    ConfigError,
    DelayqError,
    OutcomeUnknown,
)

LOOK: Final = "Look at the database's own log."

_NO_TABLE: Final = re.compile(
    r"no such table: ?(\S+)|relation \"([^\"]+)\" does not exist|Table '([^']+)' doesn't exist"
)
_NO_COLUMN: Final = re.compile(r"no such column|has no column named|column \S+.* does not exist|Unknown column")
_LOGIN: Final = re.compile(
    r"password authentication failed|no password supplied|role \"[^\"]*\" does not exist|no pg_hba\.conf entry"
    r"|(?:Peer|Ident) authentication failed|Access denied for user '[^']*'@'[^']*' \("
)
_NO_DATABASE: Final = re.compile(r"database \"[^\"]*\" does not exist|Unknown database|Access denied .* to database")
_FORBIDDEN: Final = re.compile(r"permission denied for|command denied to user")
_LETTERS: Final = re.compile(r"Incorrect string value|has no equivalent in encoding")
_LOCKED: Final = re.compile(r"database is locked|database table is locked")
_FULL: Final = re.compile(r"database or disk is full|No space left|could not extend file|The table '.*' is full")
_READ_ONLY: Final = re.compile(r"readonly database|read-only transaction")
_GAVE_WAY: Final = frozenset({"40001", "40P01", "1213"})
"""Serialisation failures and deadlocks: nothing happened, and it may be done again."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose database it is, for sentences: that of a connection, whose option `option` names it.

    Without a connection the sentences name none.
    """

    connection: str = ""
    option: str = "url"

    @property
    def migrate(self) -> str:
        """The command that makes its tables."""
        return f"`delayq database migrate{f' --connection {self.connection}' if self.connection else ''}`"

    @property
    def said(self) -> str:
        """Where its URL stands."""
        return f"the {self.option} of the connection{f' {self.connection!r}' if self.connection else ''}"


NOBODY: Final = Owner()


class Fault(Enum):
    """What can be done about an error."""

    GAVE_WAY = auto()
    LOST = auto()
    OTHER = auto()


def fault_of(error: Exception) -> Fault:
    """Whether the transaction may be begun again."""
    if not isinstance(error, DBAPIError):
        return Fault.OTHER
    if error.connection_invalidated:
        return Fault.LOST
    met = isinstance(error, IntegrityError)  # another one wrote the same row meanwhile
    return Fault.GAVE_WAY if met or _code(error) in _GAVE_WAY else Fault.OTHER


def lost_at_commit(where: str) -> OutcomeUnknown:
    """The connection was lost while a transaction was being committed."""
    return OutcomeUnknown(
        f"The connection to the database {where} was lost during a commit, so nobody knows whether it counts.",
        hint="Send it again under the same id: what is there already is kept.",
    )


def said_by(error: Exception, where: str, kind: str, lock_ms: int, owner: Owner = NOBODY) -> DelayqError:
    """An error of SQLAlchemy's as ours, in one sentence; `owner` is named with the next step.

    What may pass is `BackendUnavailable`, what somebody has to set right is `ConfigError`.
    """
    if not isinstance(error, DBAPIError):
        return BackendError(f"The database {where} cannot be used: {_line(error)}.", hint=LOOK)
    said = _said(error)
    if wrong := _to_be_set_right(said, where, owner):
        return wrong
    if _LOCKED.search(said):
        return BackendUnavailable(
            f"The SQLite file of {where} was locked by another program for {lock_ms / 1000:g} s.",
            hint="Look for one that keeps a transaction open.",
        )
    if _FULL.search(said):
        return BackendFull(
            f"The database {where} has no room left; nothing was written: {_first(said)}.",
            hint="Make room on its disk.",
        )
    if _READ_ONLY.search(said):
        return BackendError(
            f"The database {where} cannot be written to: {_first(said)}.",
            hint="Name the primary, or give this user the right to write.",
        )
    if _passes(error):
        step = "Is its folder there, and may this user write in it?" if kind == "sqlite" else "Is it running?"
        return BackendUnavailable(
            f"The database {where} cannot be reached: {_first(said)}.", hint=f"{step} Check {owner.said}."
        )
    return BackendError(f"The database {where} said no: {_first(said)}.", hint=LOOK)


def _to_be_set_right(said: str, where: str, owner: Owner) -> ConfigError | None:
    """What does not mend itself."""
    if _NO_COLUMN.search(said):
        return ConfigError(
            f"The tables in the database {where} lack columns of delayq: {_first(said)}.",
            hint=f"{owner.migrate} adds them, and Laravel does not mind.",
        )
    if found := _NO_TABLE.search(said):
        name = next(group for group in found.groups() if group)
        return ConfigError(f"The database {where} has no table {name}.", hint=f"{owner.migrate} makes it.")
    if _LOGIN.search(said):
        return ConfigError(
            f"The database {where} refused the user or the password: {_first(said)}.",
            hint=f"Check both in {owner.said}.",
        )
    if _NO_DATABASE.search(said):
        return ConfigError(
            f"There is no database {where} for this user: {_first(said)}.",
            hint=f"Create it, or name another in {owner.said}.",
        )
    if _LETTERS.search(said):
        return ConfigError(
            f"The tables in the database {where} cannot hold every letter: {_first(said)}.",
            hint=f"{owner.migrate} mends them.",
        )
    if _FORBIDDEN.search(said):
        return ConfigError(
            f"The database {where} forbids this user something: {_first(said)}.",
            hint="Grant it SELECT, INSERT, UPDATE and DELETE on the tables of jobs.",
        )
    return None


def _passes(error: DBAPIError) -> bool:
    if isinstance(error, DataError | IntegrityError):
        return False
    return isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated


def _code(error: DBAPIError) -> str:
    """SQLSTATE, or MySQL's number."""
    state = getattr(error.orig, "sqlstate", None)
    if state:
        return str(state)
    args = getattr(error.orig, "args", ())
    return str(args[0]) if args else ""


def _said(error: DBAPIError) -> str:
    """What the database said; PyMySQL puts a number before it."""
    args: tuple[object, ...] = getattr(error.orig, "args", ())
    if len(args) == 2 and isinstance(args[0], int):
        return str(args[1])
    return str(error.orig).strip() or type(error.orig).__name__


def _first(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else said


def _line(error: Exception) -> str:
    return _first(str(error))
