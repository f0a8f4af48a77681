"""`python -m benchmarks.flood`: honest requests to `delayq serve` beside a flood from callers without a key.

The flood: idle connections, each opened anew when the server closes it, and bodies that never end. It runs in a process
of its own, as the honest callers do. Prints what failed, p50 and p99, the growth of the server's memory, and its log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from benchmarks.server import PrivateServer, choose
from delayq.core.api_keys import Scope, format_line, new_key

MOST_FAILED: Final = 0
MOST_P99_MS: Final = 250.0
MOST_GROWTH_MB: Final = 64.0
MOST_LINES: Final = 100
"""Lines of the server's log in a minute."""
BODY: Final = 16_000_000
DESCRIPTORS: Final = 65_536


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; 0 when all bounds are kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flood", description=__doc__)
    parser.add_argument("--idle", type=int, default=5_000, help="idle connections (default 5000)")
    parser.add_argument("--bodies", type=int, default=40, help="bodies that do not end (default 40)")
    parser.add_argument("--reopen", type=float, default=10.0, help="s until a closed one is opened anew (default 10)")
    parser.add_argument("--rate", type=float, default=100.0, help="honest requests a second (default 100)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default 60)")
    asked = parser.parse_args(argv)
    descriptors = _raise_limit()
    with tempfile.TemporaryDirectory(prefix="delayq-flood-") as home, PrivateServer(choose()) as server:
        key, token = new_key(0, [Scope.WRITE])
        keys, log = Path(home) / "keys", Path(home) / "log"
        keys.write_text(format_line(key))
        words = [sys.executable, "-m", "delayq", "--url", server.url, "--api-keys-file", str(keys), "serve"]
        with log.open("w") as stderr:
            process = subprocess.Popen([*words, "--port", "0"], stdout=subprocess.PIPE, stderr=stderr, text=True)
        flood = None
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            calm = asyncio.run(_honest(url, token, asked.rate, 5.0))
            before_mb = _rss_mb(process.pid)
            flood = multiprocessing.get_context("spawn").Process(
                target=_flood, args=(url, asked.idle, asked.bodies, asked.reopen), daemon=True
            )
            flood.start()
            time.sleep(5.0)  # until the flood stands
            began_cpu, lines = _cpu_s(process.pid), len(log.read_text().splitlines())
            found = asyncio.run(_honest(url, token, asked.rate, asked.seconds))
            cpu = (_cpu_s(process.pid) - began_cpu) / asked.seconds
            growth_mb = _rss_mb(process.pid, peak=True) - before_mb
            lines = len(log.read_text().splitlines()) - lines
        finally:
            if flood is not None:
                flood.terminate()
                flood.join()
            process.terminate()
            process.wait()
    per_minute = lines * 60 / asked.seconds
    print(
        f"descriptors {descriptors}, idle {asked.idle}, bodies {asked.bodies}, {asked.rate:g}/s for {asked.seconds:g} s"
    )
    print(f"without the flood: {calm.said()}")
    print(f"beside the flood:  {found.said()}")
    print(f"server: +{growth_mb:.1f} MB at most, {cpu:.0%} of one processor, {per_minute:.0f} lines of log a minute")
    kept = (
        found.failed <= MOST_FAILED
        and found.percentile(0.99) <= MOST_P99_MS
        and growth_mb <= MOST_GROWTH_MB
        and per_minute <= MOST_LINES
    )
    print("all bounds kept" if kept else "a bound was missed")
    return 0 if kept else 1


class Found:
    """What became of the honest requests."""

    def __init__(self) -> None:
        self.took_ms: list[float] = []
        self.failed = 0
        self.why: dict[str, int] = {}

    def fail(self, why: str) -> None:
        """Count a request that was not answered with 201."""
        self.failed += 1
        self.why[why] = self.why.get(why, 0) + 1

    def percentile(self, share: float) -> float:
        """Return how long a request took, in milliseconds."""
        took = sorted(self.took_ms)
        return took[min(len(took) - 1, int(len(took) * share))] if took else 0.0

    def said(self) -> str:
        """Return the figures as a line."""
        p50, p99, most = self.percentile(0.5), self.percentile(0.99), self.percentile(1.0)
        why = f" {self.why}" if self.why else ""
        return (
            f"{len(self.took_ms)} answered, {self.failed} failed{why}; p50 {p50:.1f}, p99 {p99:.1f}, most {most:.1f} ms"
        )


async def _honest(url: str, token: str, rate: float, seconds: float) -> Found:
    """Schedule jobs at that rate, each over a connection of its own."""
    place, found = urlsplit(url), Found()
    body = json.dumps({"name": "order.close", "delay": "1h"}).encode()
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()

    async def one() -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(20):
                reader, writer = await asyncio.open_connection(place.hostname, place.port)
                writer.write(head + body)
                answer = await reader.read()
                writer.close()
        except (OSError, TimeoutError) as error:
            found.fail(type(error).__name__)
            return
        if answer.startswith(b"HTTP/1.1 201 "):
            found.took_ms.append((time.perf_counter() - began) * 1000)
        else:
            found.fail(answer[:12].decode("latin-1") or "closed")

    async with asyncio.TaskGroup() as group:
        began = time.monotonic()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            group.create_task(one())
    return found


def _flood(url: str, idle: int, bodies: int, reopen_s: float) -> None:
    _raise_limit()
    asyncio.run(_attack(url, idle, bodies, reopen_s))


async def _attack(url: str, idle: int, bodies: int, reopen_s: float) -> None:
    place = urlsplit(url)
    start = (
        f"POST /v1/jobs/batch HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {BODY}\r\n\r\n"
    ).encode() + b"[" * 60_000

    async def hold(first: bytes) -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(place.hostname, place.port)
                writer.write(first)
                while await reader.read(65_536):
                    pass
                writer.close()
            await asyncio.sleep(reopen_s)

    await asyncio.gather(*(hold(b"") for _ in range(idle)), *(hold(start) for _ in range(bodies)))


def _raise_limit() -> int:
    """Raise the soft limit of descriptors, which child processes inherit; return what it is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _rss_mb(pid: int, *, peak: bool = False) -> float:
    name = "VmHWM" if peak else "VmRSS"
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
