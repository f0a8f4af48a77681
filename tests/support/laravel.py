"""A real Laravel: Debian's PHP with its queue and Redis components, run by `tests/laravel/php/laravel.php`.

Where PHP is not installed the tests that need it are skipped aloud; they fail when DELAYQ_TEST_PHP=1 says that it was
installed for them, as CI does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.flavours import missing

PACKAGES = (
    "php-cli php-redis php-sqlite3 php-pgsql php-mysql "
    "php-illuminate-queue php-illuminate-redis php-illuminate-database php-illuminate-events php-illuminate-console"
)
PROGRAM = Path(__file__).parents[1] / "laravel" / "php" / "laravel.php"
PATIENCE_S = 60.0
_PARTS = ("Queue", "Redis", "Events")


def php(parts: Sequence[str] = _PARTS, modules: Sequence[str] = ("redis",)) -> str:
    """The program; ends the test where Laravel cannot be run, or lacks one of these parts or modules of PHP."""
    found = shutil.which("php")
    there = all(Path(f"/usr/share/php/Illuminate/{part}/autoload.php").exists() for part in parts)
    if found is None or not there or not set(modules) <= _modules(found):
        wanted = os.environ.get("DELAYQ_TEST_PHP", "") == "1"
        missing(f"no Laravel on this machine: apt-get install {PACKAGES}", allowed=not wanted)
    return found


@cache
def _modules(program: str) -> frozenset[str]:
    return frozenset(subprocess.run([program, "-m"], capture_output=True, text=True, check=True).stdout.split())


@dataclass(frozen=True, slots=True)
class Laravel:
    """One application: its Redis (a socket), the prefix of its keys, and its `retry_after` in seconds."""

    socket: Path
    prefix: str
    retry_after: int = 90
    environment: Mapping[str, str] = field(default_factory=dict)

    def push(self, *wishes: Mapping[str, Any]) -> list[str]:
        """Queue what they say: `job` and `data`, or `object`; `queue`; `delay` in seconds. Their Redis ids."""
        lines = "".join(json.dumps(wish) + "\n" for wish in wishes)
        return self._run(["push"], lines).split()

    def work(self, queues: str, *, count: int = 1, tries: int = 1) -> list[dict[str, Any]]:
        """Run so many jobs; what happened, in order."""
        return told(self._run(["work", queues, str(count), str(tries)]))

    def working(self, queues: str, *, count: int = 1, block_for: int = 0) -> subprocess.Popen[str]:
        """A worker that runs on its own; it looks so many times for a job, and waits so many seconds for each."""
        return self._start(["work", queues, str(count), "1"], BLOCK_FOR=str(block_for))

    def size(self, queue: str) -> int:
        """How many jobs the queue holds."""
        return int(self._run(["size", queue]))

    def _start(self, words: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [php(), str(PROGRAM), *words],
            env={
                **os.environ,
                "REDIS_HOST": str(self.socket),
                "REDIS_PORT": "0",
                "PREFIX": self.prefix,
                "RETRY_AFTER": str(self.retry_after),
                **environment,
            },
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


def told(said: str) -> list[dict[str, Any]]:
    """The lines a worker printed."""
    return [json.loads(line) for line in said.splitlines()]
