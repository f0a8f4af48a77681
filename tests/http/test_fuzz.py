"""Schemathesis asks a real server whatever its description allows, and much that it does not.

In CI every operation is covered once; DELAYQ_CHAOS=full goes on for DELAYQ_FUZZ_SECONDS (600) and watches the memory.

Left out: `positive_data_acceptance`, because rules that a schema cannot say (ten years ahead at most, the largest unit
first) refuse some of what a schema allows; and reserving, which waits as long as it is asked to. Nobody works here, so
the server calls itself ready while jobs are overdue by less than an hour.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.cli import Cli, environment
from tests.support.servers import OwnServer

FULL = os.environ.get("DELAYQ_CHAOS") == "full"
SECONDS = int(os.environ.get("DELAYQ_FUZZ_SECONDS", "600"))
GROWTH_KIB = 48 * 1024
"""What a server may grow by in ten minutes: caches, and what Python keeps for the next time."""
RULES = """[checks]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 409, 413, 414, 415, 421, 422, 429, 431]
"""


@pytest.fixture
def served(own_server: OwnServer, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The address of a server, and its process. Without a mover it would rightly say that it is not ready."""
    cli = Cli(tmp_path, environment(DELAYQ_URL=own_server().url, DELAYQ_MAX_OVERDUE="1h"))
    cli.start("move")
    process = cli.start("serve", "--port", "0")
    assert process.stdout is not None
    yield process.stdout.readline().strip(), process.pid
    cli.close()


def torment(url: str, folder: Path, *how: str, seconds: int) -> int:
    """How many cases were tried; the first that failed ends the test."""
    (folder / "schemathesis.toml").write_text(RULES, encoding="utf-8")
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "run", f"{url}/openapi.json", "--checks", "all"]
    command += ["--exclude-checks", "positive_data_acceptance", "--exclude-path-regex", "reservations$"]
    command += ["--suppress-health-check", "all", "--seed", "7", "--no-shrink", "--warnings", "off", *how]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    told = re.search(r"([0-9]+) generated", done.stdout)
    assert told, done.stdout[-2_000:]
    return int(told[1])


def memory_kib(pid: int) -> int:
    """What a process holds in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_every_operation_keeps_its_word(served: tuple[str, int], tmp_path: Path) -> None:
    url, _ = served
    torment(url, tmp_path, "--phases", "examples,coverage", "-n", "1", seconds=450)
    assert httpx.get(f"{url}/livez").status_code == 200


@pytest.mark.skipif(not FULL, reason="DELAYQ_CHAOS=full")
@pytest.mark.timeout(2 * SECONDS + 300)
def test_ten_minutes_of_it_leave_the_server_as_it_was(
    served: tuple[str, int], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    url, pid = served
    torment(url, tmp_path, "--phases", "examples,coverage", "-n", "5", seconds=SECONDS)
    warm = memory_kib(pid)
    how = ("--phases", "fuzzing,stateful", "--max-time", str(SECONDS))
    cases = torment(url, tmp_path, *how, seconds=2 * SECONDS)
    after = memory_kib(pid)
    said = f"HTTP fuzz for {SECONDS} s, seed 7: {cases:,} requests; {warm:,} KiB before, {after:,} KiB after"
    record_property("chaos", said)
    assert after - warm < GROWTH_KIB
    assert httpx.get(f"{url}/livez").status_code == 200
