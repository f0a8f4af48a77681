"""Failed jobs as files in a folder, one each: for a machine without a database, and to be read with any tool.

    <sha-256 of the id>.json     the record; its time of change is when the job failed, which is also their order

A file is written beside its place, flushed, and moved there, so that no reader ever sees half of one and a power cut
loses none that was kept. Any number of processes may use the folder at once. Every page looks at the whole folder, so
it is meant for thousands of failed jobs, not for millions.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from delayq.core.errors import BackendError, ConfigError
from delayq.drivers.failed.records import decode, encode, mark_of
from delayq.drivers.failed_store import EVERYTHING, FailedJob, FailedPage, FailedQuery

log = logging.getLogger("delayq.failed")

SUFFIX: Final = ".json"
_MS: Final = 1_000_000  # nanoseconds


class _Found(NamedTuple):
    failed_ms: int
    name: str


class FileFailedStore:
    """A `FailedStore` in `folder`, which is made when it is first needed, for its owner alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ready(self) -> None:
        """Make the folder, and see that a file can be written there."""
        with self._speaking():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                """It can."""

    def add(self, job: FailedJob) -> None:
        """Keep a job; it is on the disk when this returns."""
        with self._speaking():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(dir=self._folder, prefix=".", suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(encode(job))
                    file.flush()
                    os.utime(file.fileno(), ns=(job.failed_ms * _MS, job.failed_ms * _MS))
                    os.fsync(file.fileno())
                Path(beside).replace(self._path(job.id))
            except BaseException:
                Path(beside).unlink(missing_ok=True)
                raise
            self._flush_folder()

    def get(self, job_id: str) -> FailedJob | None:
        """The job of that id."""
        with self._speaking():
            return self._read(self._path(job_id))

    def page(self, query: FailedQuery = EVERYTHING, *, cursor: str = "", count: int = 100) -> FailedPage:
        """Up to `count` jobs; the cursor is the time and the file of the last one."""
        at = mark_of(cursor)
        with self._speaking():
            jobs: list[FailedJob] = []
            last = None
            for found in self._files():
                if found <= (at.failed_ms, at.id):
                    continue
                if len(jobs) == count:
                    return FailedPage(tuple(jobs), f"{last.failed_ms}:{last.name}" if last else "")
                job = self._readable(found)
                if job is not None and query.has(job):
                    jobs.append(job)
                    last = found
            return FailedPage(tuple(jobs), "")

    def count(self, query: FailedQuery = EVERYTHING) -> int:
        """How many are meant; each is read, unless all are."""
        with self._speaking():
            if query == EVERYTHING:
                return len(self._files())
            return sum(1 for job in map(self._readable, self._files()) if job is not None and query.has(job))

    def forget(self, job_ids: Sequence[str]) -> int:
        """Remove these."""
        with self._speaking():
            return self._remove([self._path(job_id) for job_id in job_ids])

    def prune(self, before_ms: int) -> int:
        """Remove what failed before that time."""
        with self._speaking():
            return self._remove([self._folder / found.name for found in self._files() if found.failed_ms < before_ms])

    def close(self) -> None:
        """Nothing is open between two calls."""

    def _path(self, job_id: str) -> Path:
        return self._folder / f"{sha256(job_id.encode()).hexdigest()}{SUFFIX}"

    def _files(self) -> list[_Found]:
        """All of them, the oldest first."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX):
                    with suppress(FileNotFoundError):  # forgotten since by another process
                        found.append(_Found(entry.stat().st_mtime_ns // _MS, entry.name))
        return sorted(found)

    def _read(self, path: Path) -> FailedJob | None:
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        return decode(raw, str(path))

    def _readable(self, found: _Found) -> FailedJob | None:
        """The job in that file; one that somebody else wrote keeps nobody from the others."""
        try:
            return self._read(self._folder / found.name)
        except BackendError as error:
            log.error("%s", error)
            return None

    def _remove(self, paths: Sequence[Path]) -> int:
        gone = sum(map(_unlink, paths))
        if gone:
            self._flush_folder()
        return gone

    def _flush_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """What the file system refuses, in a sentence."""
        try:
            yield
        except (PermissionError, NotADirectoryError, FileExistsError) as error:
            raise ConfigError(
                f"Failed jobs cannot be kept in {self._folder}: {error.strerror}.",
                hint="Make it a folder that this user may write.",
            ) from error
        except OSError as error:
            raise BackendError(f"Failed jobs cannot be kept in {self._folder}: {error.strerror or error}.") from error


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
