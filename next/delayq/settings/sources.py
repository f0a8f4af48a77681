"""Sources of settings. The first source that has a value wins:

1. options and arguments
2. environment variables
3. the settings file
4. the default

The setting `config` (--config, DELAYQ_CONFIG) names the settings file. Without this setting, delayq uses the nearest
delayq.toml, searching from the working directory upwards.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, TomlConfigSettingsSource

from delayq.core.display import did_you_mean, shown
from delayq.core.errors import ConfigError
from delayq.settings.types import DURATION, PATH, unit_of

VARIABLES: Final = "DELAYQ_"
FILE_NAME: Final = "delayq.toml"
TABLES: Final = ("connections", "routes")
"""Settings that neither options nor environment variables can set."""

_NO_SETTING: Final = re.compile(
    rf"{VARIABLES}(?:TEST_|(?:\w+_)?(?:SERVICE_HOST=|SERVICE_PORT(?:_\w+)?=|PORT=\w+://|PORT_[0-9]+_\w+=))"
)
"""Variables of tests and of Kubernetes, as NAME=value. These variables start with DELAYQ_ but are not settings."""


@dataclass(frozen=True)
class Origin:
    """The source of a value. `place` is the option, the variable or the file, or '' for a default."""

    source: Literal["flag", "environment", "file", "default"]
    place: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.place}".rstrip()


class FileSource(PydanticBaseSettingsSource):
    """Read the settings file. Raises ConfigError."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return one value from the file."""
        return self().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return all values from the file, or {} without a file. Earlier sources supply `config`."""
        path = find_file(self.current_state.get("config") or "")
        return {} if path is None else _read_file(self.settings_cls, path)


def find_file(config: str) -> Path | None:
    """Return the settings file to use, or None.

    Raises ConfigError if `config` names a missing file. Without `config`, the nearest file is used, and ConfigError is
    raised if this file is in a parent directory and belongs neither to root nor to the user of this process.
    """
    if config:
        path = Path(os.path.abspath(os.path.expanduser(config)))
        if not path.is_file():
            raise ConfigError(
                f"The settings file {path} does not exist.",
                hint="Correct --config or DELAYQ_CONFIG, or leave out the option and the variable.",
                field="config",
            )
        return path
    try:
        here = Path.cwd()
    except OSError:  # the working directory was removed
        return None
    folder = next((one for one in (here, *here.parents) if os.path.isfile(one / FILE_NAME)), None)
    if folder is None:
        return None
    if folder != here:
        _refuse_file_of_other_user(folder / FILE_NAME)
    return folder / FILE_NAME


def find_origins(settings: type[BaseSettings], given: Mapping[str, Any]) -> dict[str, Origin]:
    """Return, by name, the origin of each setting that an option, a variable or the settings file sets.

    Reads the environment and the file again. Raises ConfigError.
    """
    variables = EnvSettingsSource(settings)()
    path = find_file(given.get("config") or variables.get("config") or "")
    origins = {} if path is None else dict.fromkeys(_read_file(settings, path), Origin("file", str(path)))
    origins |= {name: Origin("environment", variable_of(name)) for name in variables}
    return origins | {name: Origin("flag", flag_of(name)) for name, value in given.items() if value is not None}


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return VARIABLES + name.upper()


def flag_of(name: str) -> str:
    """Return the command-line option of a setting."""
    return "-v or -q" if name == "log_level" else f"--{name.replace('_', '-')}"


def refuse_unknown_variables(known: Iterable[str]) -> None:
    """Raise ConfigError for a variable DELAYQ_… without a setting of that name, because it is probably misspelt."""
    names = [name.upper() for name in known if name not in TABLES]
    for variable, value in os.environ.items():
        name = variable.upper().removeprefix(VARIABLES)
        is_ours = variable.upper().startswith(VARIABLES) and not _NO_SETTING.match(f"{variable}={value}")
        if is_ours and name not in names:
            field = name.lower()
            near = did_you_mean(name, names, prefix=VARIABLES)
            hint = f"Write [{field}] in {FILE_NAME}." if field in TABLES else near
            raise ConfigError(f"Unknown setting {variable}.", hint=hint or "Unset it.", field=field)


def unknown_name(name: str, known: Iterable[str], place: str) -> ConfigError:
    """Return the error for an unknown name at `place` in a settings file."""
    hint = did_you_mean(name.lower(), known)
    return ConfigError(f"Unknown setting {shown(name)} in {place}.", hint=hint or "Remove it.")


def _read_file(settings: type[BaseSettings], path: Path) -> dict[str, Any]:
    try:
        values = TomlConfigSettingsSource(settings, toml_file=path)()
    except OSError as error:
        raise ConfigError(f"The settings file {path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # from tomllib, with the line number, or a UnicodeDecodeError
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ConfigError(f"The settings file {path} is not valid TOML: {why}.") from None
    known = [name for name in settings.model_fields if name != "config"]
    for name, value in values.items():
        if name not in known:
            raise unknown_name(name, known, str(path))
        kind = unit_of(settings.model_fields[name].metadata)
        if kind == DURATION and not isinstance(value, str):
            raise ConfigError(
                f"The value of {name} in {path} is not valid: {shown(value)} is not a duration.",
                hint=f'Write it with its unit, such as {name} = "30s".',
                field=name,
            )
        if kind == PATH and isinstance(value, str) and (name != "redis_server" or os.sep in value):
            values[name] = value and os.path.join(path.parent, os.path.expanduser(value))
    return values


def _refuse_file_of_other_user(path: Path) -> None:
    """Refuse a file that another user owns, for example in /tmp, because a settings file can name programs to run."""
    owner = path.stat().st_uid
    if owner not in (0, os.geteuid()):
        raise ConfigError(
            f"The settings file {path} belongs to another user (uid {owner}).",
            hint="To use this file, name it with --config or DELAYQ_CONFIG.",
            field="config",
        )
