"""The settings themselves: names, types, defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from delayq.core.backoff import DEFAULT
from delayq.core.durability import MEMORY
from delayq.core.errors import ConfigError
from delayq.core.keyring import Keyring
from delayq.core.options import Options
from delayq.core.redaction import REDACTED
from delayq.core.shown import shown
from delayq.settings import pushes, tables, values
from delayq.settings.keys import keyring_of
from delayq.settings.sources import EnvironmentSource, FileSource, Given, did_you_mean, setting_names, stray_variables

_Self = TypeVar("_Self", bound="Settings")


class LogFormat(StrEnum):
    """How log lines look."""

    CONSOLE = "console"
    JSON = "json"


class Embedded(StrEnum):
    """Whether a Redis may be started where no URL is set."""

    AUTO = "auto"
    NEVER = "never"


class LogLevel(StrEnum):
    """The least important line that is still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Settings(BaseSettings):
    """All settings, read and checked once. `Settings(lease="5s")` overrides like a flag; None means not given.

    Durations are attributes in milliseconds (`lease_ms`), sizes in bytes. Raises `ConfigError` with one sentence:
    which setting, where it was set, the value, an example.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, validate_default=False)

    url: values.Url | None = Field(
        None,
        description="where Redis is; without it, the embedded server",
        examples=["redis://:password@localhost:6379/0"],
    )
    prefix: values.Prefix = Field("delayq", description="what every key starts with", examples=["delayq"])
    queue: values.Queue = Field("default", description="the queue of jobs that name none", examples=["default"])
    app: values.Module | None = Field(None, description="the module that holds the handlers", examples=["shop.jobs"])
    lease_ms: values.Lease = Field(
        30_000,
        validation_alias="lease",
        description="how long a worker may be silent before its job goes to another; counts when a queue is first seen",
        examples=["30s"],
    )
    tidy_every_ms: values.Tick = Field(
        10_000, validation_alias="tidy_every", description="how often the janitor looks", examples=["10s"]
    )
    max_recoveries: values.Recoveries = Field(
        3, description="how often a job whose worker vanished is started anew", examples=["3"]
    )
    tries: values.Tries = Field(5, description="attempts before a job counts as failed; 0 = no limit", examples=["5"])
    backoff: values.BackoffSetting = Field(DEFAULT, description="the wait between attempts", examples=["10s,1m,10m"])
    retention_ms: values.Keep = Field(
        0, validation_alias="retention", description="how long a completed job is kept", examples=["1h"]
    )
    timeout_ms: values.Keep = Field(
        60_000,
        validation_alias="timeout",
        description="how long a job may run that says nothing itself; 0s = without limit",
        examples=["60s"],
    )
    grace_ms: values.Keep = Field(
        25_000,
        validation_alias="grace",
        description="how long running jobs may go on after a worker was asked to stop",
        examples=["25s"],
    )
    max_payload: values.Payload = Field(256 * 1024, description="largest payload in bytes", examples=["256KiB"])
    high_water: values.Entries = Field(
        100_000, description="ready jobs of a queue above which the mover waits", examples=["100000"]
    )
    durability: values.Safety = Field(
        MEMORY, description="what a schedule waits for: memory, replicas:n or fsync", examples=["replicas:1"]
    )
    encrypt: values.Patterns = Field(
        (), description="name patterns of jobs whose payload is encrypted; * = all", examples=["payment.*"]
    )
    keys: values.Keys | None = Field(
        None,
        description="the keys of encrypted payloads, id:base64; the first one encrypts",
        examples=["what `delayq key new` prints"],
    )
    keys_file: values.Location | None = Field(
        None, description="a file with those keys instead, one a line", examples=["/run/secrets/delayq-keys"]
    )
    api_keys_file: values.Location | None = Field(
        None,
        description="the keys of the HTTP API; with it every caller needs one",
        examples=["/run/secrets/delayq-api-keys"],
    )
    max_overdue_ms: values.Keep = Field(
        300_000,
        validation_alias="max_overdue",
        description="how long the oldest due job may wait before /readyz says no",
        examples=["5m"],
    )
    metrics_port: values.Listening | None = Field(
        None,
        description="where a worker or mover shows its metrics; a port alone = on this machine only",
        examples=["9464"],
    )
    redact: values.Patterns = Field(
        REDACTED,
        description="fields of payloads whose values no page shows, by name patterns in any case",
        examples=["password,*token,iban"],
    )
    log_format: Annotated[LogFormat, values.Choice] = Field(
        LogFormat.CONSOLE, description="console or json", examples=["json"]
    )
    log_level: Annotated[LogLevel, values.Choice] = Field(
        LogLevel.INFO, description="debug, info, warning or error", examples=["info"]
    )
    embedded: Annotated[Embedded, values.Choice] = Field(
        Embedded.AUTO,
        description="without a URL: auto = start a Redis of this project's own, never = refuse",
        examples=["never"],
    )
    data_dir: values.Location | None = Field(
        None,
        description="where the embedded server keeps its data; without it, each project has a directory",
        examples=["/var/lib/delayq"],
    )
    redis_server: values.Location | None = Field(
        None, description="the program the embedded server runs", examples=["/usr/bin/redis-server"]
    )
    database: values.Database | None = Field(
        None, description="the database whose outbox a relay reads", examples=["postgresql://shop@localhost/shop"]
    )
    routes: tables.Routes = Field(
        default_factory=dict, description="job name patterns and their queues", examples=['{"order.*" = "orders"}']
    )
    forwards: tables.Forwards = Field(
        default_factory=dict, description="queues and where their jobs go instead", examples=['{"orders" = "orders-2"}']
    )
    connection: tables.ConnectionName = Field(
        "default", description="the connection of jobs that name none", examples=["default"]
    )
    connections: tables.Connections = Field(
        default_factory=dict, description="further connections by name", examples=['{reports = {driver = "redis"}}']
    )
    push: pushes.Pushes = Field(
        default_factory=dict,
        description="queues whose jobs are posted to a URL",
        examples=['{orders = {url = "https://shop.example/hook", secret_file = "orders.secret"}}'],
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _keyring: Keyring | None = PrivateAttr(default=None)

    def __init__(self, **flags: Any) -> None:
        super().__init__(**{name: value for name, value in flags.items() if value is not None})

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the user: variables that look like settings and are none."""
        return self._warnings

    def origin_of(self, name: str) -> str:
        """Who set the setting of that name: 'flag', 'env DELAYQ_LEASE', 'file /srv/shop/delayq.toml', 'default'."""
        return self._origins.get(name, "default")

    def with_origins(self, changes: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
        """The settings with other values, by attribute, and where these come from, by the name of the setting."""
        changed = self.model_copy(update=dict(changes))
        changed._origins, changed._keyring = {**self._origins, **origins}, None
        return changed

    def options(self) -> Options:
        """What the engine needs of them."""
        return Options(
            prefix=self.prefix,
            queue=self.queue,
            lease_ms=self.lease_ms,
            tidy_every_ms=self.tidy_every_ms,
            max_recoveries=self.max_recoveries,
            tries=self.tries,
            backoff=self.backoff,
            retention_ms=self.retention_ms,
            max_payload=self.max_payload,
            high_water=self.high_water,
            routes=self.routes,
            forwards=self.forwards,
            keyring=self.keyring(),
            encrypt=self.encrypt,
            durability=self.durability,
        )

    def keyring(self) -> Keyring:
        """The keys, from `keys` or `keys_file`; read once. Raises `ConfigError` for a file that holds none."""
        if self._keyring is None:
            self._keyring = keyring_of(self.keys, self.keys_file)
        return self._keyring

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        environ = dict(os.environ)
        return init_settings, EnvironmentSource(settings_cls, environ), FileSource(settings_cls, environ)

    @model_validator(mode="wrap")
    @classmethod
    def _with_origins(cls, data: dict[str, Any], handler: ModelWrapValidatorHandler[Settings]) -> Settings:
        known = setting_names(cls)
        given = {name: value if isinstance(value, Given) else _flag(name, value) for name, value in data.items()}
        for name in given.keys() - set(known):
            raise ConfigError(f"There is no setting {name}.", hint=did_you_mean(name, known))
        made: Settings | ConfigError
        try:
            made = handler({name: one.value for name, one in given.items()})
        except ValidationError as error:
            made = _refusal(cls, error, given)
        if isinstance(made, ConfigError):
            raise made  # not as the context of pydantic's error, which holds each value, passwords in URLs too
        settings = made
        settings._origins = {name: one.origin for name, one in given.items()}
        settings._warnings = stray_variables(os.environ, known)
        return settings


def _flag(name: str, value: object) -> Given:
    flag = f"--{name.replace('_', '-')}"
    return Given(value, "flag", lambda path: flag, lambda example: f"{flag} {example}")


def _refusal(settings: type[Settings], error: ValidationError, given: dict[str, Given]) -> ConfigError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    one = given[name]
    info = next(info for field, info in settings.model_fields.items() if name in (field, info.validation_alias))
    # Our own readers name the value (and mask it); pydantic's messages do not.
    why = first["msg"] if first["type"] == "refused" else f"{shown(one.value)} is wrong. {first['msg']}."
    place = one.place(values.path_of(first.get("ctx")))
    example = (info.examples or [""])[0]
    return ConfigError(f"{place} cannot be used: {why}", hint=f"For example: {one.written_as(example)}")
