"""The table of an outbox, for PostgreSQL, SQLite and MySQL.

    outbox_table(Base.metadata)         among your own tables: create_all and migrations see it
    sql_of("postgresql")                what creates it, for those who write their migrations by hand

A row is written by an application and belongs to its transaction. Its other columns are the relay's: `batch` and
`leads` say with which others it is sent, `claimed_ms` when that was decided, `refused` why it was set aside.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, String, Table, Text, false, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.expression import ColumnElement

from delayq.core.errors import InvalidInput
from delayq.drivers.outbox.clocks import NOW_MS
from delayq.drivers.outbox.row import TABLE

_DIALECTS: Final[dict[str, Any]] = {"postgresql": postgresql, "sqlite": sqlite, "mysql": mysql}


class now_ms(ColumnElement[int]):  # noqa: N801  (a function of SQL, written as SQLAlchemy writes its own)
    """The database's clock, epoch ms."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms)
def _now_ms(element: now_ms, compiler: Any, **options: Any) -> str:
    dialect = "mysql" if compiler.dialect.name == "mariadb" else compiler.dialect.name
    if dialect not in NOW_MS:
        raise InvalidInput(f"There is no outbox on {dialect}.", hint=f"There is one on {', '.join(NOW_MS)}.")
    return f"({NOW_MS[dialect]})"


def outbox_table(metadata: MetaData | None = None, name: str = TABLE) -> Table:
    """The table; `name` may begin with its schema ("shop.delayq_outbox")."""
    schema, _, own = name.rpartition(".")
    number = BigInteger().with_variant(Integer, "sqlite")
    long = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
    table = Table(
        own,
        MetaData() if metadata is None else metadata,
        Column("seq", number, primary_key=True, autoincrement=True),
        Column("id", String(255), nullable=False),
        Column("name", String(255), nullable=False),
        Column("queue", String(128), nullable=False),
        Column("connection", String(128), nullable=False, server_default="default"),
        Column("on_conflict", String(16), nullable=False, server_default="keep"),
        Column("envelope", long, nullable=False),
        Column("delay_ms", BigInteger, nullable=False, server_default="0"),
        Column("due_ms", BigInteger),
        Column("written_ms", BigInteger, nullable=False, server_default=now_ms()),
        Column("batch", String(32)),
        Column("leads", Boolean, nullable=False, server_default=false()),
        Column("claimed_ms", BigInteger),
        Column("refused", Text),
        schema=schema or None,
        sqlite_autoincrement=True,  # a number is never given out again
    )
    fresh, lead = text("batch IS NULL AND refused IS NULL"), text("leads")
    Index(f"{own}_fresh", table.c.seq, postgresql_where=fresh, sqlite_where=fresh)
    Index(f"{own}_leads", table.c.seq, postgresql_where=lead, sqlite_where=lead)
    Index(f"{own}_batch", table.c.batch)
    return table


def sql_of(dialect: str, name: str = TABLE) -> str:
    """The statements that create the table. Raises `InvalidInput` for a database without an outbox."""
    if dialect not in _DIALECTS:
        known = ", ".join(_DIALECTS)
        raise InvalidInput(f"There is no outbox on {dialect}.", hint=f"There is one on {known}.")
    table = outbox_table(name=name)
    spoken: Dialect = _DIALECTS[dialect].dialect()
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    statements: list[CreateTable | CreateIndex] = [CreateTable(table), *map(CreateIndex, indexes)]
    texts = (str(one.compile(dialect=spoken)).strip() for one in statements)
    return "".join(f"{text};\n" for text in texts).replace("\t", "    ").replace(" \n", "\n")
