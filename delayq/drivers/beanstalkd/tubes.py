"""Numbers and names as beanstalkd takes them. Pure.

A value out of range is worse there than refused: the server answers BAD_FORMAT to the first line of a `put` and reads
the body as the next command. So everything is checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urlsplit

from delayq.core.errors import ConfigError
from delayq.core.mask import mask_url
from delayq.core.shown import shown
from delayq.drivers.bodies import Bodies, bodies_of
from delayq.drivers.serving.given import Given
from delayq.settings.tables import ConnectionSettings

MOST: Final = 2**32 - 1
MAX_DELAY_MS: Final = MOST * 1000
LONGEST_TUBE: Final = 200
LONGEST_QUEUE: Final = 128
PRIORITY: Final = 1024
MAX_JOB: Final = 65_535
"""Bytes of the largest job, unless the server was started with another `-z`."""
COUNTS: Final = 64
"""Bytes that the counts of attempts and errors may add to an envelope; a job must have room for them."""
TTR: Final = "90s"
SHORTEST_TTR: Final = "1s"
DEFAULT_PORT: Final = 11300


@dataclass(frozen=True, slots=True)
class Place:
    """Where a beanstalkd listens: a host and a port, or the path of a socket."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    path: str = ""

    @property
    def address(self) -> tuple[str, int] | str:
        """As sockets take it."""
        return self.path or (self.host, self.port)

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tubes:
    """What stands in the settings of a connection. `ttr_s` is the lease of the jobs that are put over it.

    `priorities` maps patterns of job names to priorities; the first match counts, else `priority`. 0 goes first.
    `laravel` is what a Laravel application that uses the tubes calls this connection; '' = none does.
    """

    place: Place = Place()
    prefix: str = ""
    priority: int = PRIORITY
    priorities: tuple[tuple[str, int], ...] = field(default=())
    ttr_s: int = 90
    laravel: str = ""

    @property
    def bodies(self) -> Bodies:
        """What jobs are here: envelopes, or payloads of Laravel's."""
        return bodies_of(self.laravel)

    def tube(self, queue: str) -> str:
        """The tube of a queue. Tubes know no colon, and queues no slash."""
        return (self.prefix + queue).replace(":", "/")

    def queue(self, tube: str) -> str | None:
        """The queue of a tube; None for one that is none of ours."""
        if not tube.startswith(self.prefix):
            return None
        return tube[len(self.prefix) :].replace("/", ":") or None

    def priority_of(self, name: str) -> int:
        """How urgent a job of that name is; 0 is the most."""
        return next((number for pattern, number in self.priorities if fnmatchcase(name, pattern)), self.priority)


def whole_seconds(ms: int) -> int:
    """Milliseconds as the seconds beanstalkd counts in: rounded up, so that nothing is early."""
    return -(-ms // 1000)


def read(name: str, given: ConnectionSettings, options: Given) -> Tubes:
    """The settings of a connection. Raises `ConfigError` for what cannot be used."""
    prefix = (given.prefix or "").replace(":", "/")
    if len(prefix) > LONGEST_TUBE - LONGEST_QUEUE:
        raise ConfigError(f"The prefix of the connection {name!r} is too long for a tube: {shown(prefix)}.")
    if prefix.startswith("-"):
        raise ConfigError(f"The prefix of the connection {name!r} begins with -, and no tube does.")
    return Tubes(
        place=_place(name, given.place),
        prefix=prefix,
        priority=options.number("priority", PRIORITY, most=MOST),
        priorities=_priorities(name, options.table("priorities")),
        ttr_s=whole_seconds(options.duration_ms("lease", TTR, least=SHORTEST_TTR)),
        laravel=options.text("laravel"),
    )


def _place(name: str, url: str) -> Place:
    scheme, colon, rest = url.partition("://")
    if not url:
        return Place()
    if scheme == "unix" and rest:
        return Place(path=rest)
    wrong = ConfigError(
        f"The url of the connection {name!r} leads to no beanstalkd: {mask_url(url)}.",
        hint="Write for example beanstalkd://127.0.0.1:11300, or unix:///run/beanstalkd.sock.",
    )
    if not colon or scheme not in ("beanstalkd", "beanstalk"):
        raise wrong
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise wrong from error
    if not host or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise wrong
    return Place(host=host, port=port or DEFAULT_PORT)


def _priorities(name: str, table: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    for pattern, number in table.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST:
            raise ConfigError(
                f"The priority of {shown(pattern)} in the connection {name!r} is {shown(number)}.",
                hint=f"Use 0, the most urgent, to {MOST}.",
            )
    return tuple(table.items())
