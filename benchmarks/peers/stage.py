"""A fresh server, the programs of one peer on it, and what their handlers noted."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.peers.catalog import PROGRAMS, Peer
from benchmarks.peers.install import home_of, installed
from benchmarks.server import PrivateServer
from delayq.redis.server_binary import ServerBinary

PAIR: Final = struct.Struct("dd")
FIRST_S: Final = 20.0
"""A worker that has not started its first job by then is broken."""


class Broken(Exception):
    """A peer that did not do what a measure asks; the run goes on without that figure."""


class Stage:
    """One peer on one server."""

    def __init__(self, peer: Peer, url: str, home: Path) -> None:
        self.peer = peer
        self._url = url
        self._home = home
        self._records = home / "records"
        self._words = [*installed(peer), str(PROGRAMS / peer.program)]
        self._workers: list[subprocess.Popen[bytes]] = []
        self._mine = {"PEER_HOME": home_of(peer), **dict(peer.environment)}

    def ask(self, role: str, *words: object, within_s: float = 60.0) -> str:
        """Run a role that ends by itself; what it printed. Raises `Broken`."""
        with (self._home / f"{role}.log").open("w+") as log:
            try:
                done = subprocess.run(
                    self._command(role, *words), stdout=subprocess.PIPE, stderr=log, text=True, timeout=within_s,
                    env=self._environment, cwd=self._home, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise Broken(f"{role} did not end within {within_s:.0f} s") from None
            if done.returncode:
                log.seek(0)
                raise Broken(f"{role} ended with {done.returncode}: {_why(log.read())}")
        return done.stdout

    @contextmanager
    def working(self, processes: int = 1) -> Iterator[None]:
        """So many workers, each as the peer runs one."""
        with (self._home / "work.log").open("w") as log, ExitStack() as stack:
            for _ in range(processes):
                worker = subprocess.Popen(
                    self._command("work"), stdout=log, stderr=log, env=self._environment, cwd=self._home,
                    start_new_session=True,
                )  # fmt: skip
                stack.callback(_end, worker)
                self._workers.append(worker)
            yield
        self._workers.clear()

    def started(self, least: int) -> list[tuple[float, float]]:
        """When handlers started, and the time each job carries; not the job that made everything known.

        Nothing while there are fewer than `least`: whoever waits for many shall not read them again and again beside
        those who are measured.
        """
        if not self._records.exists() or self._records.stat().st_size < least * PAIR.size:
            return []
        raw = self._records.read_bytes()
        return [pair for pair in PAIR.iter_unpack(raw[: len(raw) // PAIR.size * PAIR.size]) if pair[1] >= 0]

    def wait_for(self, count: int, within_s: float) -> list[tuple[float, float]]:
        """All starts, when there are so many. Raises `Broken` when that takes longer, or when nothing starts at all."""
        begun = time.monotonic()
        while len(found := self.started(count)) < count:
            spent = time.monotonic() - begun
            if spent > within_s or (spent > FIRST_S + within_s / 2 and not self.started(1)):
                raise Broken(f"{len(self.started(1)):,} of {count:,} jobs started within {spent:.0f} s")
            if any(worker.poll() is not None for worker in self._workers):
                raise Broken(f"the worker ended: {_why((self._home / 'work.log').read_text(errors='replace'))}")
            time.sleep(0.02)
        return found

    @property
    def _environment(self) -> dict[str, str]:
        paths = os.pathsep.join((str(PROGRAMS), str(Path.cwd())))
        return {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore", **self._mine}

    def _command(self, role: str, *words: object) -> list[str]:
        return [*self._words, role, self._url, str(self._records), *map(str, words)]


@contextmanager
def stage(peer: Peer, binary: ServerBinary) -> Iterator[Stage]:
    """The peer on a fresh server that listens on loopback: not all of them know unix sockets."""
    port = _free_port()
    with (
        TemporaryDirectory(prefix="delayq-peer-") as home,
        PrivateServer(binary, "--port", str(port), "--bind", "127.0.0.1"),
    ):
        yield Stage(peer, f"redis://127.0.0.1:{port}/0", Path(home))


def _why(log: str) -> str:
    """The line of a log that says most of an end."""
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["silent"]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1])[:200]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end(worker: subprocess.Popen[bytes]) -> None:
    """It and what it forked: each worker leads a session of its own."""
    for number, patience_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(worker.pid, number)
            worker.wait(patience_s)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
    worker.wait()
