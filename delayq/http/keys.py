"""The file of API keys, read again when it changes."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Final

from delayq.core.api_keys import ApiKeys, parse_lines
from delayq.core.errors import ConfigError
from delayq.loops.log_limit import LogLimit

LOG: Final = logging.getLogger("delayq.http")
LOOK_S: Final = 1.0
"""A key that is revoked is refused after so long at the latest."""


class KeyFile:
    """The keys in force. Without a file there are none, and whoever reaches the server may do everything."""

    def __init__(self, path: Path | None) -> None:
        """Raises `ConfigError` for a file that cannot be read, or holds something else."""
        self.path = path
        self._keys = ApiKeys()
        self._seen: tuple[int, int, int] | None = None
        self._next_look_s = 0.0
        self._log = LogLimit(every_s=60.0)
        self.trouble = ""
        """Why the file could not be read at the last try; '' = it was."""
        self.look()

    @property
    def wanted(self) -> bool:
        """Whether callers need a key. With a file they do, also when each of its keys is revoked."""
        return self.path is not None

    def keys(self) -> ApiKeys:
        """Return the keys of the file, at most a second old; the ones from before while it cannot be read."""
        if self.path is not None and time.monotonic() >= self._next_look_s:
            try:
                self.look()
                self.trouble = ""
            except ConfigError as error:
                self.trouble = f"{error.message} The keys that were read before stay in force."
                if self._log.may_log("file"):
                    LOG.warning("%s", self.trouble)
        return self._keys

    def look(self) -> None:
        """Read the file if it is another one than before."""
        self._next_look_s = time.monotonic() + LOOK_S
        if self.path is None:
            return
        try:
            found = self.path.stat()
            mark = (found.st_mtime_ns, found.st_size, found.st_ino)
            if mark != self._seen:
                self._keys = parse_lines(self.path.read_text(encoding="utf-8").splitlines())
                self._seen = mark
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(
                f"api_keys_file {self.path} cannot be read: {why}.", hint="`delayq api-key create` writes it."
            ) from error
