"""What pydantic-settings reads from: the environment and the file, every value with the place it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from delayq.core.errors import ConfigError
from delayq.settings import file as files
from delayq.settings.pushes import PATHS as PUSH_PATHS
from delayq.settings.tables import NAMES as TABLES

PREFIX: Final = "DELAYQ_"
_NO_SETTINGS: Final = (files.VARIABLE,)
# Variables of delayq's own test suite; a developer's shell may hold them.
_TESTS: Final = f"{PREFIX}TEST_"
_PATHS: Final = ("data_dir", "redis_server", "keys_file")


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and by whom."""

    value: Any
    origin: str
    """For `origins`: 'env DELAYQ_LEASE'."""
    place: Callable[[Sequence[str]], str]
    """Gives, for an error, the place of an entry of the value: 'routes in /srv/shop/delayq.toml, line 3'.

    The path to the entry is empty when the value as a whole is meant.
    """
    written_as: Callable[[str], str]
    """Gives the setting with another value, as that place writes it."""


def setting_names(settings: type[BaseSettings]) -> tuple[str, ...]:
    """The names people write, in order."""
    return tuple(str(info.validation_alias or field) for field, info in settings.model_fields.items())


def _assigned(variable: str, value: str) -> str:
    return f"{variable}={value}"


def _named(name: str, path: Sequence[str]) -> str:
    return name


def _in_toml(key: str, value: str) -> str:
    bare = value.isdecimal() or value.startswith("{")
    return f"{key} = {value}" if bare else f'{key} = "{value}"'


class _Source(PydanticBaseSettingsSource):
    """A source that has all its values at once."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        name = str(field.validation_alias or field_name)
        return self().get(name), name, False


class EnvironmentSource(_Source):
    """`DELAYQ_` and the name in capitals. An empty variable counts as not set: container files cannot unset one."""

    def __init__(self, settings: type[BaseSettings], environ: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._environ = environ

    def __call__(self) -> dict[str, Any]:
        found = {}
        for name in setting_names(self.settings_cls):
            variable = PREFIX + name.upper()
            if (value := self._environ.get(variable)) and name not in TABLES:
                found[name] = Given(value, f"env {variable}", partial(_named, variable), partial(_assigned, variable))
        return found


class FileSource(_Source):
    """delayq.toml, or [tool.delayq] of pyproject.toml. Raises `ConfigError` for a key that is no setting."""

    def __init__(self, settings: type[BaseSettings], environ: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._environ = environ

    def __call__(self) -> dict[str, Any]:
        file = files.read_settings_file(self._environ)
        if file is None:
            return {}
        known = setting_names(self.settings_cls)
        found = {}
        for key, written in file.values.items():
            if key not in known:
                raise ConfigError(f"There is no setting {file.place(key)}.", hint=did_you_mean(key, known))
            value = files.resolve(written, file) if key in _PATHS else written
            value = _seen_from(file, value) if key == "push" else value
            found[key] = Given(value, f"file {file.path}", partial(file.place, key), partial(_in_toml, key))
        return found


def _seen_from(file: files.SettingsFile, written: Any) -> Any:
    """The table of pushes with its paths as seen from its file."""
    if not isinstance(written, dict):
        return written
    return {
        queue: {word: files.resolve(value, file) if word in PUSH_PATHS else value for word, value in one.items()}
        if isinstance(one, dict)
        else one
        for queue, one in written.items()
    }


def stray_variables(environ: Mapping[str, str], known: tuple[str, ...]) -> tuple[str, ...]:
    """One sentence for every `DELAYQ_` variable that sets nothing."""
    names = tuple(name.upper() for name in known if name not in TABLES)
    strays = (name for name in sorted(environ) if name.startswith(PREFIX) and not name.startswith(_TESTS))
    return tuple(
        f"The environment variable {name} sets nothing. {did_you_mean(name.removeprefix(PREFIX), names, PREFIX)}"
        for name in strays
        if name.removeprefix(PREFIX) not in names and name not in _NO_SETTINGS
    )


def did_you_mean(name: str, known: tuple[str, ...], prefix: str = "") -> str:
    """'Did you mean lease?', or all there are. `prefix` goes before what is suggested."""
    by_case = {one.lower(): one for one in known}
    near = get_close_matches(name.lower().replace("-", "_"), by_case, n=1, cutoff=0.7)
    if near:
        return f"Did you mean {prefix}{by_case[near[0]]}?"
    return f"Known are {', '.join(prefix + one for one in known)}."
