"""The data directory of the embedded server: each project has its own."""

import hashlib
import os
from pathlib import Path

from delayq.core.errors import ConfigError
from delayq.settings.model import Settings


def data_dir_of(settings: Settings) -> Path:
    """Return the data directory for these settings. Nothing is created.

    Without the setting `data_dir`, each project has its own directory below the user's data directory
    (`~/.local/share/delayq` by default), not inside the project. The search for the project starts in the directory of
    the given settings file, or in the working directory. The project is the nearest directory upwards with a
    delayq.toml or pyproject.toml, else the start directory.

    Raises ConfigError if the working directory or home directory is missing.
    """
    try:
        if settings.data_dir:
            return Path(settings.data_dir).expanduser().resolve()
        here = Path(settings.config).expanduser().resolve().parent if settings.config else Path.cwd()
        project = next((one for one in (here, *here.parents) if _is_project(one)), here)
        return _data_home() / f"{project.name[:40]}-{path_hash(project)[:8]}"
    except (OSError, RuntimeError) as error:  # no working directory, no home
        raise ConfigError(
            f"The data directory of the embedded server cannot be determined: {error}.",
            hint="Set DELAYQ_DATA_DIR to a directory that you can write to, or set DELAYQ_URL.",
            field="data_dir",
        ) from None


def path_hash(path: Path) -> str:
    """Return the digest of a path, as hexadecimal digits."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()


def _is_project(folder: Path) -> bool:
    return (folder / "delayq.toml").is_file() or (folder / "pyproject.toml").is_file()


def _data_home() -> Path:
    """Return the directory for data of this user, by the rules of XDG. A relative XDG_DATA_HOME is ignored."""
    home = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".local" / "share").resolve() / "delayq"
