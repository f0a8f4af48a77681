"""One run at a time out of one place: a lock on a file of this machine.

A second run would take the lot that the first one is sending for one that a killed run has left, and send it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from delayq.core.errors import ConfigError, Conflict
from delayq.drivers.connection import Connection
from delayq.drivers.migrating.opening import place_of
from delayq.redis.server_home import default_data_dir
from delayq.redis.server_lock import FileLock
from delayq.settings.tables import ConnectionSettings

FOLDER: Final = "migrating"


@contextmanager
def alone(source: Connection, given: Callable[[str], ConnectionSettings], data_dir: Path | None) -> Iterator[None]:
    """Nobody else, on this machine and with this data directory, moves jobs out of that place inside the block.

    The kernel frees the lock, however the process ends. Raises `Conflict` when another run has it, `ConfigError` when
    no file can be made. `data_dir` None: that of the user.
    """
    folder = (data_dir or default_data_dir()).expanduser() / FOLDER
    place = sha256(repr(place_of(source, given)).encode()).hexdigest()[:16]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(folder / f"{place}.lock")
    except OSError as error:
        raise ConfigError(
            f"The lock of this migration cannot be made in {folder}: {error.strerror or error}.",
            hint="Name a directory that can be written: --data-dir, or DELAYQ_DATA_DIR.",
        ) from error
    with lock:
        if not lock.take():
            raise Conflict(
                f"Another run is moving jobs out of {source.name} just now.", hint="Let it end; then run this again."
            )
        yield
