"""A real Laravel on tables that delayq shares: Debian's PHP with its database queue, `tests/laravel/php/tables.php`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL

from tests.support.laravel import PATIENCE_S, php, told

PROGRAM = Path(__file__).parents[1] / "laravel" / "php" / "tables.php"


@dataclass(frozen=True, slots=True)
class LaravelTables:
    """One application; `url` is that of its database, as SQLAlchemy has it."""

    url: URL
    retry_after: int = 90

    def push(self, *wishes: Mapping[str, Any]) -> None:
        """Queue what they say: `job`, `data`, `queue`; `delay` in seconds."""
        self._run(["push"], "".join(json.dumps(wish) + "\n" for wish in wishes))

    def work(self, queues: str, *, count: int = 1, tries: int = 1) -> list[dict[str, Any]]:
        """Run so many jobs; what happened, in order."""
        return told(self._run(["work", queues, str(count), str(tries)]))

    def working(self, queues: str, *, count: int) -> subprocess.Popen[str]:
        """A worker beside the test, which looks so many times for a job."""
        return self._start(["work", queues, str(count), "1"])

    def retry(self, *uuids: str) -> str:
        """Run the real `queue:retry`; what it printed."""
        return self.artisan("RetryCommand", id=list(uuids))

    def list_failed(self) -> str:
        """Run the real `queue:failed`; what it printed."""
        return self.artisan("ListFailedCommand")

    def artisan(self, command: str, **arguments: Any) -> str:
        """Run a command of `Illuminate\\Queue\\Console`; what it printed."""
        [done] = told(self._run(["artisan", command, json.dumps(arguments)]))
        assert done["code"] == 0, done
        return str(done["output"])

    def _start(self, words: Sequence[str]) -> subprocess.Popen[str]:
        environment = {"DATABASE": json.dumps(_config(self.url)), "RETRY_AFTER": str(self.retry_after)}
        return subprocess.Popen(
            [
                php(("Queue", "Database", "Events", "Console"), ("pdo_sqlite", "pdo_pgsql", "pdo_mysql")),
                str(PROGRAM),
                *words,
            ],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _run(self, words: Sequence[str], stdin: str = "") -> str:
        process = self._start(words)
        said, _ = process.communicate(stdin, timeout=PATIENCE_S)
        assert process.returncode == 0, said
        return said


def _config(url: URL) -> dict[str, Any]:
    """What config/database.php says."""
    kind = url.get_backend_name()
    if kind == "sqlite":
        return {"driver": "sqlite", "database": url.database, "prefix": "", "busy_timeout": 5000}
    if kind == "postgresql":
        return {"driver": "pgsql", "host": url.query["host"], "database": url.database, "username": url.username}
    charset = {"charset": "utf8mb4", "collation": "utf8mb4_unicode_ci"}
    socket = {"unix_socket": url.query["unix_socket"], "host": "localhost"}
    return {"driver": "mysql", **socket, "database": url.database, "username": url.username, "password": "", **charset}
