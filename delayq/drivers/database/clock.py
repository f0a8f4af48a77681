"""The database's clock, in its SQL: the time of a statement, which an index may be searched by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import BigInteger, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.sql.functions import GenericFunction

from delayq.core.errors import InvalidInput

NOW_MS: Final = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)",
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "mysql": "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)",
    "mariadb": "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)",
}
"""Epoch ms. One value for a whole statement: PostgreSQL searches no index by a clock that goes on meanwhile."""

Clock = Callable[[], int | None]
"""Another time than the database's, epoch ms; None = the database's. Only tests give one."""


def database_clock() -> int | None:
    """The database's own."""
    return None


def now_of(clock: Clock) -> ColumnElement[int]:
    """The time, for a statement."""
    given = clock()
    return statement_ms() if given is None else literal(given, BigInteger())


class statement_ms(ColumnElement[int]):  # noqa: N801  (a function of SQL, written as SQLAlchemy writes its own)
    """Epoch ms by the database's clock."""

    type = BigInteger()
    inherit_cache = True


@compiles(statement_ms)
def _statement_ms(element: statement_ms, compiler: Any, **options: Any) -> str:
    dialect = compiler.dialect.name
    if dialect not in NOW_MS:
        known = "SQLite, PostgreSQL, MySQL and MariaDB"
        raise InvalidInput(f"No jobs can be kept on {dialect}.", hint=f"They can on {known}.")
    return f"({NOW_MS[dialect]})"


class epoch_ms(GenericFunction[int]):  # noqa: N801  (as above)
    """Of a column of time without zone, which is UTC: epoch ms."""

    type = BigInteger()
    inherit_cache = True
    name = "delayq_epoch_ms"


_EPOCH: Final = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM {0}) * 1000 AS BIGINT)",
    "sqlite": "(CAST(strftime('%s', {0}) AS INTEGER) * 1000)",
    "mysql": "CAST(UNIX_TIMESTAMP({0}) * 1000 AS SIGNED)",
    "mariadb": "CAST(UNIX_TIMESTAMP({0}) * 1000 AS SIGNED)",
}


@compiles(epoch_ms)
def _epoch_ms(element: epoch_ms, compiler: Any, **options: Any) -> str:
    return _EPOCH[compiler.dialect.name].format(compiler.process(element.clauses, **options))
