"""Every exit code of the contract, and the words that come with it."""

from __future__ import annotations

import errno
import inspect
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from delayq import DelayQ
from delayq.cli.ending import run
from delayq.cli.session import Session
from delayq.core import errors
from tests.support.cli import Cli, Done, end
from tests.support.machine import fair_clock
from tests.support.waiting import wait_until

CODES = {
    errors.DelayqError: 1, errors.ConfigError: 2, errors.UnsafeSetup: 6, errors.InvalidInput: 2,
    errors.InvalidDuration: 2, errors.InvalidTime: 2, errors.InvalidName: 2, errors.InvalidPayload: 2,
    errors.JobNotFound: 3, errors.FoundElsewhere: 3, errors.Conflict: 4, errors.JobRunning: 4, errors.JobFinished: 4,
    errors.JobHasFailed: 4,
    errors.JobNotFailed: 4, errors.PayloadLost: 4, errors.BackendDamaged: 1, errors.BackendError: 1,
    errors.BackendUnavailable: 5,
    errors.BackendFull: 5, errors.OutcomeUnknown: 7, errors.NotConfirmed: 7, errors.ProtocolError: 1,
    errors.WorkerVanished: 1,
    errors.UnknownJob: 1, errors.NotDelivered: 1, errors.LockNotFound: 3, errors.LimitNotFound: 3,
    errors.BatchNotFound: 3, errors.ApiKeyNotFound: 3, errors.KeyReused: 2,
    errors.CommittedUnsent: 1, errors.ModelMissing: 1, errors.UnknownKey: 1,
    errors.BrokenSeal: 1, errors.BadEnvelope: 1, errors.QueueNotFound: 3, errors.QueueInUse: 4,
    errors.NotAllSearched: 3, errors.WorkerNotFound: 3,
}  # fmt: skip


def fails_with(error: BaseException) -> int:
    def command() -> None:
        raise error

    return run(command, Session())


@pytest.mark.parametrize("kind", CODES)
def test_every_error_has_its_code(kind: type[errors.DelayqError], capsys: pytest.CaptureFixture[str]) -> None:
    own = kind is errors.CommittedUnsent  # it finds its own words
    error = (
        errors.CommittedUnsent((), ValueError("\x1b[2J")) if own else kind("what\x1b[2J happened", hint="what to do")
    )
    assert fails_with(error) == CODES[kind]
    shown = capsys.readouterr()
    assert (shown.out, "\x1b" in shown.err) == ("", False)
    assert own or shown.err == "Error: what\\x1b[2J happened\nwhat to do\n"


def test_no_error_is_forgotten() -> None:
    classes = (value for value in vars(errors).values() if inspect.isclass(value))
    assert {kind for kind in classes if issubclass(kind, errors.DelayqError)} == set(CODES)


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (SystemExit(12), 12), (SystemExit(None), 0), (ValueError("x"), 1)]
)
def test_other_ends(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert fails_with(error) == code
    said = capsys.readouterr().err
    assert ("ValueError: x" in said) == isinstance(error, ValueError)
    assert "Traceback" not in said


def test_a_command_that_does_its_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: None, Session()) == 0


@pytest.mark.timed
def test_redis_down_is_said_within_five_seconds(cli: Cli) -> None:
    """By a reader, a producer and an operator, side by side: each waits for most of that time."""
    started = fair_clock()
    cli("stats")
    up_s = fair_clock() - started  # what starting Python costs on this machine just now
    cli.env["DELAYQ_URL"] = f"unix://{cli.folder}/none.sock"
    started = fair_clock()
    commands = [cli.start(*words) for words in (("stats",), ("schedule", "x", "--in", "1m"), ("cancel", "o1"))]
    for done in map(end, commands):
        assert (done.code, done.out) == (5, "")
        assert "none.sock" in done.err
        assert "DELAYQ_URL" in done.err
    assert fair_clock() - started - len(commands) * up_s < 5


@pytest.fixture
def forgetful() -> Iterator[str]:
    """A server that greets, takes a script call, and closes the connection instead of answering it."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while said := connection.recv(65_536):
                if b"EVALSHA" in said:
                    return
                good = b":1\r\n" if b"SADD" in said else b"+OK\r\n"
                connection.sendall(good * len(re.findall(rb"^\*\d", said, re.MULTILINE)))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,)))
            threads[-1].start()

    threads: list[threading.Thread] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    for thread in (accepting, *threads):
        thread.join(5)


def test_a_lost_answer(cli: Cli, forgetful: str) -> None:
    """Side by side: each asks again for as long as it may."""
    cli.env["DELAYQ_URL"] = forgetful
    changes = [
        cli.start("run-now", "o1", "--queue", "orders"),
        cli.start("cancel", "o1", "--queue", "orders"),
        cli.start("schedule", "x", "--id", "o1", "--queue", "orders"),
    ]
    reads_first = cli.start("failed", "retry", "o1", "--queue", "orders")
    names_its_own = cli.start("schedule", "x")
    for done in map(end, changes):
        assert (done.code, done.out) == (7, "")
        assert "'o1'" in done.err
        assert "delayq show o1 --queue orders" in done.err
    assert end(reads_first).code == 5, "a read that was not answered has changed nothing"
    done = end(names_its_own)
    assert done.code == 7
    hint = done.err.strip().splitlines()[-1]
    assert len(hint.split("delayq show ")[1].split()[0]) == 26, "the id is delayq's own"


def test_interrupted(cli: Cli) -> None:
    pipe = cli.folder / "pipe"
    os.mkfifo(pipe)
    process = cli.start("schedule", "x", "--data", f"@{pipe}")
    writer = wait_until(lambda: _opened(pipe), what="it opens its payload")
    # Python looks at signals between instructions: one that comes just before the read would be seen after it.
    wait_until(lambda: _sleeps(process.pid), what="it waits in its read")
    process.send_signal(signal.SIGINT)
    done = end(process)
    os.close(writer)
    assert done.code == 130
    assert "KeyboardInterrupt" not in done.err


def _sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def _opened(pipe: Path) -> int:
    """The writing end, once somebody reads; 0 before."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return 0


def test_a_reader_that_leaves_early_is_no_error_worth_a_word(cli: Cli) -> None:
    process = cli.start("schedule", "--help")
    assert process.stdout is not None
    process.stdout.close()
    process.wait(30)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
def test_a_full_disk_is_said_in_one_sentence(cli: Cli, q: DelayQ, form: tuple[str, ...]) -> None:
    q.schedule_many([{"name": "x", "delay": "1h"}] * 3)
    done = shell(cli, f"{{}} list {' '.join(form)} > /dev/full")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[0] == "Error: The output cannot be written: no space left on device."
    assert len(done.err.splitlines()) == 2


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
def test_a_reader_that_left_changes_no_exit_code(cli: Cli, q: DelayQ, form: tuple[str, ...]) -> None:
    q.schedule_many([{"name": "x", "delay": "1h"}] * 3)
    for words, code in ((("list",), 0), (("cancel", "none"), 3)):
        # The reader is gone before the command starts, so that its first line meets a closed pipe.
        command = f"{{}} {' '.join((*words, *form))}; echo $? >&2"
        done = shell(cli, f"(until [ -e gone ]; do :; done; {command}) | (exec <&-; : > gone)")
        assert done.err.splitlines()[-1] == str(code)
        assert "rror" not in done.err
        (cli.folder / "gone").unlink()


def shell(cli: Cli, line: str) -> Done:
    """A line of shell in which {} is delayq."""
    done = subprocess.run(
        ["/bin/sh", "-c", line.format(f"{sys.executable} -m delayq")],
        capture_output=True, env=cli.env, cwd=cli.folder, timeout=30, check=False, text=True,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)
