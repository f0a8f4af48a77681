"""Runs `delayq …` in a process forked from one that has imported it already: a tenth of the time of a cold start.

    run(words, env, folder, given, timeout)     exit code, stdout, stderr; None when only a cold start would be true

What is shared is what `python` and the imports leave behind, nothing else: the process has a pid, an environment, a
folder and pipes of its own, and begins in `delayq.__main__`. Cold starts stay where they are the point: commands that
go on (`Cli.start`), the wheel, the README, and what is asked with another interpreter's environment.

    caller ── words, environment, three pipes ──▶ nursery ── fork ──▶ nurse ── fork ──▶ the command
      ▲                                                                │
      └───────────────────────────── its end ──────────────────────────┘
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Never

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = ("delayq.app.clients", "delayq.app.workers", "delayq.cli.ending", "delayq.cli.root", "delayq.cli.session")
# Read by the interpreter when it starts: a fork would not have them.
EARLY = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "MALLOC")
REQUEST_BYTES = 100_000
PID_BYTES = 10
PIPE_BYTES = 60_000  # what a pipe takes before anybody reads


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    out: bytes
    err: bytes


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what would change a command, and with the checkout importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DELAYQ_", "XDG_", "PYTHON"))}
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS"):
        kept.pop(name, None)
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **more}


def run(
    words: Sequence[str | bytes], env: Mapping[str, str], folder: Path, given: bytes = b"", timeout: float = 30.0
) -> Ended | None:
    """Run one command to its end; None when it has to be started cold. `subprocess.TimeoutExpired` after `timeout`."""
    if sys.platform != "linux":  # a socket that keeps messages apart and tells of its end
        return None
    request = json.dumps([[os.fsdecode(word) for word in words], dict(env), str(folder)]).encode()
    nursery = _nursery()
    if len(request) > REQUEST_BYTES or len(given) > PIPE_BYTES or _early(env) != nursery.early:
        return None
    return nursery.run(request, given, timeout)


def _early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(EARLY)}


@functools.cache
def _nursery() -> Nursery:
    """The one of this process, which ends with it."""
    return Nursery(environment())


class Nursery:
    """The process that has imported delayq, seen from outside."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.early = _early(env)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())],
            env=env,
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        atexit.register(self._close)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()

    def run(self, request: bytes, given: bytes, timeout: float) -> Ended:
        stdin, write = os.pipe()
        os.write(write, given)
        os.close(write)
        (out, stdout), (err, stderr), (told, tell) = os.pipe(), os.pipe(), os.pipe()
        theirs = [stdin, stdout, stderr, tell]
        socket.send_fds(self._socket, [request], theirs)
        for number in theirs:
            os.close(number)
        pid = int(os.read(told, PID_BYTES))  # of the command, which begins now
        read = {out: b"", err: b"", told: b""}
        try:
            if not _read(read, time.monotonic() + timeout):
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired("delayq", timeout, read[out], read[err])
        finally:
            for number in read:
                os.close(number)
        return Ended(os.waitstatus_to_exitcode(int(read[told])), read[out], read[err])


def _read(pipes: dict[int, bytes], until: float) -> bool:
    """Add what is written into these pipes up to their ends; False when that takes too long."""
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                return False
            for key, _ in ready:
                part = os.read(key.fd, 65_536)
                pipes[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
    return True


# --- inside ----------------------------------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> None:
    """Fork a nurse for each request until the caller is gone. Returns in a process that is to become a command."""
    while True:
        request, pipes, *_ = socket.recv_fds(requests, REQUEST_BYTES, 4)
        if not request:
            os._exit(0)
        if os.fork() == 0:
            return _nurse(request, pipes)
        for number in pipes:
            os.close(number)


def _nurse(request: bytes, pipes: Sequence[int]) -> None:
    """Fork the command, in which this returns; wait for its end and tell it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command == 0:
        return _become(request, pipes)
    tell = pipes[3]
    for number in pipes[:3]:
        os.close(number)
    os.write(tell, b"%*d" % (PID_BYTES, command))
    status = os.waitpid(command, 0)[1]
    with contextlib.suppress(BrokenPipeError):  # it took too long for the caller
        os.write(tell, b"%d" % status)
    os._exit(0)


def _become(request: bytes, pipes: Sequence[int]) -> None:
    """What `python -m delayq` in that folder and environment finds when it begins."""
    words, env, folder = json.loads(request)
    for number, pipe in enumerate(pipes[:3]):
        os.dup2(pipe, number)
    os.closerange(3, 256)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 - as long as the process
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv[1:] = words
    sys.path[0] = folder


def _main() -> Never:
    requests = socket.socket(fileno=int(sys.argv[1]))
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a nurse
    _serve(requests)
    requests.detach()
    runpy.run_module("delayq", run_name="__main__", alter_sys=True)
    raise SystemExit(0)


if __name__ == "__main__":
    _main()
