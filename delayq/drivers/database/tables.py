"""The tables: Laravel's columns as Laravel makes them; `jobs` has a few of delayq's own beside them.

    jobs          one row a job that waits or runs
    failed_jobs   one row a job that failed for good
    job_batches   one row a batch, Laravel's or delayq's

and three that are delayq's alone, named after the table they stand beside

    jobs_delayq_locks           unique keys, each with the job that holds it
    job_batches_delayq_members  who belongs to a batch, and what became of it
    failed_jobs_delayq_about    what only delayq knows of a failed job. Laravel 8's `queue:failed` prints every column
                                of failed_jobs but payload and exception, so none of ours may stand there

What Laravel does to a row leaves delayq's columns alone, so they can tell afterwards who did it:

    delayq_id          the job's id; NULL in a row that Laravel wrote, whose id is in its payload
    delayq_shift_ms    due = available_at * 1000 + delayq_shift_ms; 0 in Laravel's rows, which know whole seconds
    delayq_token       one reservation: the lease and its fencing token
    delayq_held        `attempts` as that reservation left it. Laravel counts when it takes a row, so the row is held
                       by delayq exactly while `attempts` still equals it
    delayq_until_ms    when the lease ends, epoch ms; Laravel goes by reserved_at, which every renewal moves on
    delayq_recoveries  how many workers vanished while they held it

and in failed_jobs_delayq_about

    number      the id of the row in failed_jobs. PHP deletes that row alone; what is left here is no job any more
    uuid        its uuid too: a number may be given out again by old MySQL servers
    connection  what delayq calls the connection; failed_jobs has Laravel's name for it, which `queue:retry` needs
    failed_ms   when it failed, epoch ms; Laravel's failed_at has whole seconds
    about       JSON: the job's name, its failure with what came before it, and a payload that is no text

A lock counts as long as its owner has a row in `jobs` (or its window lasts), so no crash can leave one behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

JOBS: Final = "jobs"
FAILED: Final = "failed_jobs"
BATCHES: Final = "job_batches"
ABOUT: Final = "_delayq_about"
OLD_ABOUT: Final = ("delayq_failed_ms", "delayq_about")
"""Columns that `failed_jobs` had before that table."""

MOST_ATTEMPTS: Final = 255
"""What the smallest type Laravel ever gave to `attempts` can hold; the payload has the true count."""

ANY_TEXT: Final = "utf8mb4"
"""What MySQL calls UTF-8. Where a database has fewer letters, one of another script keeps a job, or its error, out."""
_MYSQL: Final = ("mysql", "mariadb")


class Wanted(Protocol):
    """The tables that somebody needs of a database."""

    @property
    def failed(self) -> Table:
        """That of failed jobs."""

    @property
    def all(self) -> tuple[Table, ...]:
        """In the order in which they are made."""

    @property
    def other_names(self) -> str:
        """The next step for who has another table of one of these names."""


@dataclass(frozen=True, slots=True)
class FailedAlone:
    """What a store of failed jobs needs that stands apart from the jobs."""

    failed: Table

    @property
    def all(self) -> tuple[Table, ...]:
        return self.failed, about_of(self.failed)

    @property
    def other_names(self) -> str:
        return "Name another database: failed = … of the connection."


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one connection; names may begin with a schema ("queue.jobs")."""

    jobs: Table
    failed: Table
    batches: Table
    locks: Table
    members: Table

    @property
    def all(self) -> tuple[Table, ...]:
        return self.jobs, self.failed, self.batches, self.locks, self.members, about_of(self.failed)

    @property
    def other_names(self) -> str:
        return "Give another name: table, failed_table or batches_table of the connection."


def tables(jobs: str = JOBS, failed: str = FAILED, batches: str = BATCHES) -> Tables:
    """The tables under these names."""
    metadata = MetaData()
    kept = _jobs(metadata, jobs), _failed(metadata, failed), _batches(metadata, batches)
    return Tables(*kept, _locks(metadata, jobs), _members(metadata, batches))


def about_of(failed: Table) -> Table:
    """Return the table that holds what only delayq knows of the rows of `failed`."""
    return failed.metadata.tables[f"{failed.fullname}{ABOUT}"]


def own_columns(table: Table) -> list[Column[Any]]:
    """The columns that Laravel does not know; all of them may be left out when a row is written."""
    return [column for column in table.columns if column.name.startswith("delayq_")]


def free_texts(table: Table, dialect: Dialect) -> list[Column[Any]]:
    """The columns that hold what people wrote, in any script. None but on MySQL: elsewhere a database has one set."""
    kinds = ((column, column.type.dialect_impl(dialect)) for column in table.columns)
    return [
        column
        for column, kind in kinds
        if isinstance(kind, mysql.LONGTEXT | mysql.MEDIUMTEXT | mysql.VARCHAR)
        and kind.charset == ANY_TEXT
        and kind.collation is None
    ]


def _jobs(metadata: MetaData, name: str) -> Table:
    schema, own = _split(name)
    table = Table(
        own,
        metadata,
        Column("id", _number(), primary_key=True, autoincrement=True),
        Column("queue", _exact(255), nullable=False),
        Column("payload", _long(), nullable=False),
        Column("attempts", _unsigned(SmallInteger(), mysql.SMALLINT(unsigned=True)), nullable=False),
        Column("reserved_at", _seconds()),
        Column("available_at", _seconds(), nullable=False),
        Column("created_at", _seconds(), nullable=False),
        Column("delayq_id", _ascii(255)),
        Column("delayq_shift_ms", SmallInteger(), nullable=False, server_default="0"),
        Column("delayq_token", _ascii(24)),
        Column("delayq_held", Integer()),
        Column("delayq_until_ms", BigInteger()),
        Column("delayq_recoveries", SmallInteger(), nullable=False, server_default="0"),
        schema=schema,
        sqlite_autoincrement=True,  # a number is never given out again
    )
    Index(f"{own}_delayq_due", table.c.queue, table.c.reserved_at, table.c.available_at, table.c.id)
    Index(f"{own}_delayq_id", table.c.queue, table.c.delayq_id, unique=True)
    return table


def _failed(metadata: MetaData, name: str) -> Table:
    schema, own = _split(name)
    Table(
        f"{own}{ABOUT}",
        metadata,
        Column("number", _number(), primary_key=True, autoincrement=False),
        Column("uuid", String(255), nullable=False),
        Column("connection", Text().with_variant(mysql.TEXT(charset=ANY_TEXT), *_MYSQL), nullable=False),
        Column("failed_ms", BigInteger(), nullable=False),
        Column("about", _long(), nullable=False),
        schema=schema,
    )
    return Table(
        own,
        metadata,
        Column("id", _number(), primary_key=True, autoincrement=True),
        Column("uuid", String(255), nullable=False),
        Column("connection", Text(), nullable=False),
        Column("queue", Text(), nullable=False),
        Column("payload", _long(), nullable=False),
        Column("exception", _long(), nullable=False),
        Column(
            "failed_at",
            DateTime().with_variant(mysql.TIMESTAMP(), *_MYSQL),
            nullable=False,
            server_default=func.current_timestamp(),
        ),
        UniqueConstraint("uuid", name=f"{own}_uuid_unique"),
        schema=schema,
        sqlite_autoincrement=True,
    )


def _batches(metadata: MetaData, name: str) -> Table:
    schema, own = _split(name)
    return Table(
        own,
        metadata,
        Column("id", String(255), primary_key=True),
        Column("name", String(255).with_variant(mysql.VARCHAR(255, charset=ANY_TEXT), *_MYSQL), nullable=False),
        Column("total_jobs", Integer(), nullable=False),
        Column("pending_jobs", Integer(), nullable=False),
        Column("failed_jobs", Integer(), nullable=False),
        Column("failed_job_ids", _long(), nullable=False),
        Column("options", Text().with_variant(mysql.MEDIUMTEXT(charset=ANY_TEXT), *_MYSQL)),
        Column("cancelled_at", Integer()),
        Column("created_at", Integer(), nullable=False),
        Column("finished_at", Integer()),
        schema=schema,
    )


def _locks(metadata: MetaData, jobs: str) -> Table:
    """`name` is a digest, with the length of its window behind it; `until_ms` is when a window ends.

    `most_ms` is when a debounced job is due at the latest.
    """
    schema, own = _split(jobs)
    table = Table(
        f"{own}_delayq_locks",
        metadata,
        Column("queue", _exact(255), primary_key=True),
        Column("name", _ascii(80), primary_key=True),
        Column("owner", _ascii(255), nullable=False),
        Column("until_ms", BigInteger()),
        Column("most_ms", BigInteger()),
        Column("since_ms", BigInteger(), nullable=False),
        schema=schema,
    )
    Index(f"{own}_delayq_locks_owner", table.c.queue, table.c.owner)
    return table


def _members(metadata: MetaData, batches: str) -> Table:
    """`queue` is '' for a batch in a batch; `word` is one of `core.follow.Word`."""
    schema, own = _split(batches)
    table = Table(
        f"{own}_delayq_members",
        metadata,
        Column("batch", _ascii(255), primary_key=True),
        Column("member", _ascii(255), primary_key=True),
        Column("queue", _exact(255), nullable=False),
        Column("word", _ascii(8), nullable=False),
        schema=schema,
    )
    Index(f"{own}_delayq_members_word", table.c.batch, table.c.word)
    return table


def _split(name: str) -> tuple[str | None, str]:
    schema, _, own = name.rpartition(".")
    return schema or None, own


def _number() -> TypeEngine[int]:
    return BigInteger().with_variant(Integer(), "sqlite").with_variant(mysql.BIGINT(unsigned=True), *_MYSQL)


def _unsigned(plain: TypeEngine[int], unsigned: TypeEngine[int]) -> TypeEngine[int]:
    return plain.with_variant(unsigned, *_MYSQL)


def _seconds() -> TypeEngine[int]:
    return _unsigned(Integer(), mysql.INTEGER(unsigned=True))


def _long() -> TypeEngine[str]:
    return Text().with_variant(mysql.LONGTEXT(charset=ANY_TEXT), *_MYSQL)


def _exact(length: int) -> TypeEngine[str]:
    """Text in which case counts: MySQL would take `Orders` for `orders`."""
    return String(length).with_variant(mysql.VARCHAR(length, charset=ANY_TEXT, collation="utf8mb4_bin"), *_MYSQL)


def _ascii(length: int) -> TypeEngine[str]:
    return String(length).with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), *_MYSQL)
