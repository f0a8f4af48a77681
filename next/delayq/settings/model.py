"""The settings, read from DELAYQ_* in the environment. What a caller gives goes before them.

A variable that is no setting is refused, because it is most often one that is misspelt. Not refused: DELAYQ_TEST_*, for
test suites, and what Kubernetes sets in every container for a service that is named delayq or delayq-….
"""

import os
import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from delayq.core.backoff import parse_backoff
from delayq.core.display import did_you_mean
from delayq.core.errors import ConfigError
from delayq.core.options import DEFAULTS, Options, parse_durability
from delayq.core.times import duration_ms
from delayq.settings.connections import ConnectionSettings, QueueName, Route

PREFIX: Final = "DELAYQ_"

_NO_SETTING: Final = re.compile(
    rf"{PREFIX}(?:TEST_|(?:\w+_)?(?:SERVICE_HOST=|SERVICE_PORT(?:_\w+)?=|PORT=\w+://|PORT_[0-9]+_\w+=))"
)
"""Variables, as NAME=value, that are not meant for delayq."""


def _milliseconds(value: Any) -> int:
    return duration_ms(value, field="value") if isinstance(value, str) else int(value)


def _checked_backoff(value: str) -> str:
    if value:
        parse_backoff(value)
    return value


def _checked_durability(value: str) -> str:
    parse_durability(value)
    return value


DurationMs = Annotated[int, BeforeValidator(_milliseconds)]


class Settings(BaseSettings):
    """All settings that this release knows. `url` is a secret, because it may hold a password.

    `embedded`: whether a server is started when there is no url; `data_dir`, `redis_server`: where it keeps its data,
    and which program it is. `connection` is the one of `connections` that is meant when none is named.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True)

    url: SecretStr | None = None
    embedded: Literal["auto", "never"] = "auto"
    data_dir: str = ""
    redis_server: str = ""
    prefix: str = Field(default="delayq", min_length=1, pattern=r"^[A-Za-z0-9._:-]+$")
    queue: QueueName = DEFAULTS.queue
    app: str = ""
    lease: DurationMs = Field(default=DEFAULTS.lease_ms, ge=100)
    tidy_every: DurationMs = Field(default=DEFAULTS.tidy_every_ms, ge=10)
    max_recoveries: int = Field(default=DEFAULTS.max_recoveries, ge=0)
    tries: int = Field(default=DEFAULTS.tries, ge=0)
    backoff: Annotated[str, AfterValidator(_checked_backoff)] = ""
    retention: DurationMs = DEFAULTS.retention_ms
    max_payload: int = Field(default=DEFAULTS.max_payload, ge=1)
    high_water: int = Field(default=DEFAULTS.high_water, ge=1)
    durability: Annotated[str, AfterValidator(_checked_durability)] = "memory"
    timeout: DurationMs = Field(default=DEFAULTS.timeout_ms, ge=0)
    grace: DurationMs = Field(default=25_000, ge=0)
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    connection: str = ""
    connections: dict[str, ConnectionSettings] = {}
    routes: dict[str, Route] = {}

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


def load_settings(**given: Any) -> Settings:
    """Read the settings; what is given and not None goes before the environment. Raises ConfigError."""
    _refuse_unknown_variables()
    said = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**said)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        field = str(problem["loc"][0])
        reason = str(problem.get("ctx", {}).get("error", problem["msg"])).removesuffix(".")
        is_given = field in said and field in Settings.model_fields
        name = f"{field}=" if is_given else f"The setting {PREFIX}{field.upper()}"
        raise ConfigError(f"{name} cannot be used: {reason}.", field=field) from None


def _refuse_unknown_variables() -> None:
    known = Settings.model_fields
    for variable, value in os.environ.items():
        name = variable.upper().removeprefix(PREFIX).lower()
        is_ours = variable.upper().startswith(PREFIX) and not _NO_SETTING.match(f"{variable}={value}")
        if is_ours and name not in known:
            hint = did_you_mean(name.upper(), [one.upper() for one in known], prefix=PREFIX)
            raise ConfigError(f"There is no setting {variable}.", hint=hint or "Unset it.", field=name)
