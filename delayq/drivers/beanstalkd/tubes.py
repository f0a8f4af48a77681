"""Numbers and names as beanstalkd takes them. Pure.

A value out of range is worse there than refused: the server answers BAD_FORMAT to the first line of a `put` and reads
the body as the next command. So everything is checked here, before anything is sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from delayq.core.durations import duration_ms, format_duration
from delayq.core.errors import ConfigError, InvalidDuration
from delayq.core.shown import shown

MOST: Final = 2**32 - 1
MAX_DELAY_MS: Final = MOST * 1000
LONGEST_TUBE: Final = 200
LONGEST_QUEUE: Final = 128
PRIORITY: Final = 1024
TTR_MS: Final = 90_000
SHORTEST_TTR_MS: Final = 3_000
"""In the last second of a job's TTR the server gives its holder nothing else; and it is touched every third of it."""
DEFAULT_PORT: Final = 11300

_PREFIX: Final = re.compile(r"[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]*")
_KNOWN: Final = "Known are driver, address, tube_prefix, priority, priorities, ttr, queue and after_commit."


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
    """

    place: Place = Place()
    prefix: str = ""
    priority: int = PRIORITY
    priorities: tuple[tuple[str, int], ...] = field(default=())
    ttr_s: int = TTR_MS // 1000

    def tube(self, queue: str) -> str:
        """The tube of a queue. Tubes know no colon, and queues no slash."""
        return (self.prefix + queue).replace(":", "/")

    def queue(self, tube: str) -> str | None:
        """The queue of a tube; None for one that is none of ours."""
        if not tube.startswith(self.prefix.replace(":", "/")):
            return None
        return tube[len(self.prefix) :].replace("/", ":") or None

    def priority_of(self, name: str) -> int:
        """How urgent a job of that name is; 0 is the most."""
        return next((number for pattern, number in self.priorities if fnmatchcase(name, pattern)), self.priority)


def whole_seconds(ms: int) -> int:
    """Milliseconds as the seconds beanstalkd counts in: rounded up, so that nothing is early."""
    return -(-ms // 1000)


def read_options(connection: str, options: dict[str, Any]) -> Tubes:
    """The settings of a connection. Raises `ConfigError` for what cannot be used."""
    left = dict(options)
    prefix = left.pop("tube_prefix", "")
    if not isinstance(prefix, str) or (prefix and not _PREFIX.fullmatch(prefix)):
        raise _refused(connection, "tube_prefix", prefix, "Use letters, digits and + / ; . $ _ ( ) -, such as shop.")
    if len(prefix) > LONGEST_TUBE - LONGEST_QUEUE:
        raise _refused(connection, "tube_prefix", prefix, f"Use {LONGEST_TUBE - LONGEST_QUEUE} characters at most.")
    tubes = Tubes(
        place=_place(connection, left.pop("address", "")),
        prefix=prefix,
        priority=_priority(connection, "priority", left.pop("priority", PRIORITY)),
        priorities=_priorities(connection, left.pop("priorities", {})),
        ttr_s=_ttr_s(connection, left.pop("ttr", format_duration(TTR_MS))),
    )
    for option, value in left.items():
        raise _refused(connection, option, value, _KNOWN)
    return tubes


def _place(connection: str, address: object) -> Place:
    hint = "Write for example 127.0.0.1:11300, or unix:///run/beanstalkd.sock."
    if not isinstance(address, str):
        raise _refused(connection, "address", address, hint)
    text = address.strip().removeprefix("beanstalkd://").removeprefix("beanstalk://").rstrip("/")
    if not text:
        return Place()
    if text.startswith(("unix://", "unix:", "/")):
        return Place(path=text.removeprefix("unix://").removeprefix("unix:"))
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) <= 65535 or "/" in host or "@" in host:
        raise _refused(connection, "address", address, hint)
    return Place(host=host.removeprefix("[").removesuffix("]"), port=int(port))


def _priority(connection: str, option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise _refused(connection, option, value, f"Use 0 (most urgent) to {MOST:,}.")
    return value


def _priorities(connection: str, value: object) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, dict):
        raise _refused(connection, "priorities", value, 'Write a table: priorities = { "order.*" = 10 }.')
    return tuple(
        (str(pattern), _priority(connection, f"priorities.{pattern}", number)) for pattern, number in value.items()
    )


def _ttr_s(connection: str, value: object) -> int:
    try:
        ms = duration_ms(value if isinstance(value, str) else str(value))
    except InvalidDuration as error:
        raise _refused(connection, "ttr", value, str(error)) from None
    if not SHORTEST_TTR_MS <= ms <= MAX_DELAY_MS:
        raise _refused(connection, "ttr", value, f"Use {format_duration(SHORTEST_TTR_MS)} or more, such as 90s.")
    return whole_seconds(ms)


def _refused(connection: str, option: str, value: object, hint: str) -> ConfigError:
    return ConfigError(f"The connection {connection!r} has {option} = {shown(value)}, which is of no use.", hint=hint)
