"""Laravel's own side of its tables: as its migrations make them, and the statements of its worker, word for word.

`DatabaseQueue` of Laravel 11; times are whole seconds, attempts count when a row is taken.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Engine, text

_JOBS = {
    "sqlite": [
        'create table "jobs" ("id" integer primary key autoincrement not null, "queue" varchar not null, '
        '"payload" text not null, "attempts" integer not null, "reserved_at" integer, '
        '"available_at" integer not null, "created_at" integer not null)',
        'create table "failed_jobs" ("id" integer primary key autoincrement not null, "uuid" varchar not null, '
        '"connection" text not null, "queue" text not null, "payload" text not null, "exception" text not null, '
        '"failed_at" datetime not null default CURRENT_TIMESTAMP)',
        'create unique index "failed_jobs_uuid_unique" on "failed_jobs" ("uuid")',
    ],
    "postgresql": [
        'create table "jobs" ("id" bigserial not null primary key, "queue" varchar(255) not null, '
        '"payload" text not null, "attempts" smallint not null, "reserved_at" integer null, '
        '"available_at" integer not null, "created_at" integer not null)',
        'create table "failed_jobs" ("id" bigserial not null primary key, "uuid" varchar(255) not null, '
        '"connection" text not null, "queue" text not null, "payload" text not null, "exception" text not null, '
        '"failed_at" timestamp(0) without time zone not null default CURRENT_TIMESTAMP)',
        'alter table "failed_jobs" add constraint "failed_jobs_uuid_unique" unique ("uuid")',
    ],
    "mariadb": [
        "create table `jobs` (`id` bigint unsigned not null auto_increment primary key, `queue` varchar(255) not null, "
        "`payload` longtext not null, `attempts` tinyint unsigned not null, `reserved_at` int unsigned null, "
        "`available_at` int unsigned not null, `created_at` int unsigned not null) "
        "default character set utf8mb4 collate 'utf8mb4_unicode_ci'",
        "create table `failed_jobs` (`id` bigint unsigned not null auto_increment primary key, "
        "`uuid` varchar(255) not null, `connection` text not null, `queue` text not null, `payload` longtext not null, "
        "`exception` longtext not null, `failed_at` timestamp not null default CURRENT_TIMESTAMP) "
        "default character set utf8mb4 collate 'utf8mb4_unicode_ci'",
        "alter table `failed_jobs` add unique `failed_jobs_uuid_unique`(`uuid`)",
    ],
}


def string_job(uuid: str, name: str, data: Any, **members: Any) -> str:
    """The payload of `Queue::push('name', [...])`."""
    known = {"uuid": uuid, "displayName": name.partition("@")[0], "job": name, "maxTries": None}
    rest = {"maxExceptions": None, "failOnTimeout": False, "backoff": None, "timeout": None, "data": data}
    return json.dumps({**known, **rest, "createdAt": 1_760_000_000, "delay": None, **members})


def object_job(uuid: str, name: str) -> str:
    """The payload of `CloseOrder::dispatch()`."""
    command = f'O:{len(name)}:"{name}":1:{{s:7:"orderId";i:42;}}'
    return string_job(
        uuid,
        "Illuminate\\Queue\\CallQueuedHandler@call",
        {"commandName": name, "command": command},
        displayName=name,
    )


class Laravel:
    """An application's queue on these tables."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def migrate(self) -> None:
        """Its migrations."""
        with self._engine.begin() as connection:
            for statement in _JOBS[self._engine.dialect.name]:
                connection.execute(text(statement))
            connection.execute(
                text(
                    "create table job_batches (id varchar(255) not null primary key, name varchar(255) not null, "
                    "total_jobs integer not null, pending_jobs integer not null, failed_jobs integer not null, "
                    "failed_job_ids text not null, options text null, cancelled_at integer null, "
                    "created_at integer not null, finished_at integer null)"
                )
            )

    def push(self, queue: str, payload: str, now_s: int, delay_s: int = 0) -> None:
        """`pushToDatabase`."""
        with self._engine.begin() as connection:
            self._insert(connection, queue, payload, now_s + delay_s, now_s, 0)

    def pop(self, queue: str, now_s: int, retry_after_s: int = 90) -> Any | None:
        """`getNextAvailableJob` and `markJobAsReserved`: the row, with its attempts counted."""
        locked = "" if self._engine.dialect.name == "sqlite" else " for update skip locked"
        with self._engine.begin() as connection:
            row = connection.execute(
                text(
                    "select * from jobs where queue = :queue and ((reserved_at is null and available_at <= :now) "
                    f"or (reserved_at <= :expired)) order by id asc limit 1{locked}"
                ),
                {"queue": queue, "now": now_s, "expired": now_s - retry_after_s},
            ).first()
            if row is None:
                return None
            marked = {"now": now_s, "attempts": row.attempts + 1, "id": row.id}
            connection.execute(text("update jobs set reserved_at = :now, attempts = :attempts where id = :id"), marked)
            return connection.execute(text("select * from jobs where id = :id"), {"id": row.id}).one()

    def delete(self, row: Any) -> None:
        """`deleteReserved`."""
        with self._engine.begin() as connection:
            connection.execute(text("delete from jobs where id = :id"), {"id": row.id})

    def release(self, row: Any, now_s: int, delay_s: int) -> None:
        """`release`: another row with the same payload and attempts."""
        with self._engine.begin() as connection:
            connection.execute(text("delete from jobs where id = :id"), {"id": row.id})
            self._insert(connection, row.queue, row.payload, now_s + delay_s, now_s, row.attempts)

    def rows(self) -> list[Any]:
        """All jobs, as Laravel sees them."""
        with self._engine.connect() as connection:
            return list(connection.execute(text("select * from jobs order by id")))

    def failed(self) -> list[Any]:
        """All failed jobs."""
        with self._engine.connect() as connection:
            return list(connection.execute(text("select * from failed_jobs order by id")))

    def _insert(
        self, connection: Connection, queue: str, payload: str, available_s: int, now_s: int, attempts: int
    ) -> None:
        connection.execute(
            text(
                "insert into jobs (queue, attempts, reserved_at, available_at, created_at, payload) "
                "values (:queue, :attempts, null, :available, :now, :payload)"
            ),
            {"queue": queue, "attempts": attempts, "available": available_s, "now": now_s, "payload": payload},
        )
