"""Receipt handles, where every process of a worker finds them.

SQS names a reservation by a handle of some hundred characters; a claim in shared memory has room for 42. So a claim
names a small file, and the handle lies in that, with what else a supervisor needs to settle for a dead child: the
message itself. The files are in a folder of this worker alone, which is made with the first message and removed when
the worker ends; the name of the folder is known before the children are.

SQS lets an old handle do what it could do before, also when somebody else has the message by now. So each file says
until when its reservation stands, as far as anybody here has renewed it: by its time stamp, on the clock of the machine
that also counts while that sleeps. What has run out is not settled.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from delayq.core.errors import BackendError

_ENTRY: Final = re.compile(r"[0-9a-f]{32}")


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """One reservation: its handle, and the message. `group` is '' on a queue that has none."""

    handle: str
    body: bytes
    recoveries: int = 0
    group: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Receipt).decode


class Receipts:
    """Shared by the processes that were forked after it was made. Each broker says when it begins and when it ends."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir(), f"delayq-sqs-{uuid.uuid4().hex}")
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._users = 0

    def open(self) -> None:
        """One more uses it in this process."""
        with self._lock:
            self._users += 1

    def keep(self, receipt: Receipt, until_s: float) -> str:
        """Write one down that stands `until_s` (`clock`); the entry that names it from now on.

        Raises `BackendError` where nothing can be written: the message then comes again when its lease is over.
        """
        entry = uuid.uuid4().hex
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            (self._folder / entry).write_bytes(_encode(receipt))
        except OSError as error:
            raise BackendError(
                f"A message was received, and its receipt could not be written: {error}.",
                hint="Make room there, or name another folder with TMPDIR.",
            ) from error
        self.stands(entry, until_s)
        return entry

    def stands(self, entry: str, until_s: float) -> None:
        """It was renewed. One that has ended meanwhile is left alone."""
        with suppress(FileNotFoundError):
            os.utime(self._folder / entry, (until_s, until_s))

    def get(self, entry: str) -> Receipt | None:
        """None for one that has ended or run out, or that a child was killed while it wrote."""
        if not _ENTRY.fullmatch(entry):
            return None
        path = self._folder / entry
        try:
            return _decode(path.read_bytes()) if clock() < path.stat().st_mtime else None
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def forget(self, entries: Iterable[str]) -> None:
        """These have ended."""
        for entry in entries:
            if _ENTRY.fullmatch(entry):
                (self._folder / entry).unlink(missing_ok=True)

    def close(self) -> None:
        """One less does. The last one in the process that made it, a worker's supervisor, removes the folder.

        A child leaves what it could not settle to its supervisor.
        """
        with self._lock:
            self._users -= 1
            last = self._users <= 0 and os.getpid() == self._owner
        if last:
            shutil.rmtree(self._folder, ignore_errors=True)


def clock() -> float:
    """Seconds since the machine was started, asleep or not; the same in all its processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
