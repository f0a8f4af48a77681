"""`[push.orders]` of a settings file: where the jobs of a queue are posted to, and how.

    [push.orders]
    url = "https://shop.example/hooks/orders"
    secret_file = "orders.secret"       whsec_… a line; or secret, or secrets; or unsigned = true
    timeout = "10s"                     for a whole request
    allow = ["10.1.0.0/16"]             networks beside the internet; plain http to them only
    ca_file = "ca.pem"                  who else may vouch for the host
    rate = "10/s"                       starts, over all workers and queues that push to this host
    concurrency = 5                     requests at a time, likewise
    failures = 10, rest = "1m"          so many failures within that time, and it is left alone for as long; 0 = never
    tries, backoff, max_body            for jobs that say nothing; largest request in bytes

Neither the path of a URL, which may hold a token, nor a secret is ever shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import PlainSerializer, PlainValidator

from delayq.core.backoff import LADDER, Backoff, parse_backoff
from delayq.core.durations import duration_ms
from delayq.core.errors import DelayqError
from delayq.core.names import check_queue
from delayq.core.rate import Rate, parse_rate
from delayq.core.shown import shown
from delayq.settings.values import entry, ours, refused

TRIES: Final = 15
"""With the ladder of backoffs: for three hours and a quarter."""
TIMEOUT_MS: Final = 10_000
LONGEST_TIMEOUT_MS: Final = 600_000
MAX_BODY: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """One `[push.QUEUE]`, read and checked. Durations in ms; None or 0 leaves a limit out."""

    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    secret_file: Path | None = None
    unsigned: bool = False
    timeout_ms: int = TIMEOUT_MS
    allow: tuple[str, ...] = ()
    ca_file: Path | None = None
    rate: Rate | None = None
    concurrency: int = 0
    failures: int = 10
    rest_ms: int = 60_000
    tries: int = TRIES
    backoff: Backoff = LADDER
    max_body: int = MAX_BODY

    def __str__(self) -> str:
        return self.place

    @property
    def place(self) -> str:
        """Scheme, host and port: as much as may be shown."""
        try:
            parts = urlsplit(self.url)
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            return "***"
        return f"{parts.scheme}://{parts.hostname or ''}{port}"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise refused("it takes a text")
    return value


def _secret(value: Any) -> tuple[str, ...]:
    """Never shows what it was given."""
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, list | tuple) or not several or not all(isinstance(one, str) for one in several):
        raise refused("it takes a text, or a list of them")
    return tuple(several)


def _networks(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise refused(f"{shown(value)} is no list of networks, such as 10.1.0.0/16")
    return tuple(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise refused(f"{shown(value)} is neither true nor false")
    return value


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise refused(f"{shown(value)} is no whole number from {least:,} to {most:,}")
        return value

    return read


def _span(least_ms: int, most_ms: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        span_ms = duration_ms(value)
        if not least_ms <= span_ms <= most_ms:
            raise refused(f"{shown(value)} is not from {least_ms} ms to {most_ms // 1000} s")
        return span_ms

    return read


def _path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(_text(value)).expanduser()


def _rate(value: Any) -> Rate:
    return value if isinstance(value, Rate) else parse_rate(_text(value))


_READERS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "url": ("url", _text),
    "secret": ("secrets", _secret),
    "secrets": ("secrets", _secret),
    "secret_file": ("secret_file", _path),
    "unsigned": ("unsigned", _flag),
    "timeout": ("timeout_ms", _span(10, LONGEST_TIMEOUT_MS)),
    "allow": ("allow", _networks),
    "ca_file": ("ca_file", _path),
    "rate": ("rate", _rate),
    "concurrency": ("concurrency", _whole(0, 10_000)),
    "failures": ("failures", _whole(0, 1_000_000)),
    "rest": ("rest_ms", _span(1, 86_400_000)),
    "tries": ("tries", _whole(0, 1_000_000)),
    "backoff": ("backoff", parse_backoff),
    "max_body": ("max_body", _whole(1, 64 * 1024 * 1024)),
}
PATHS: Final = ("secret_file", "ca_file")


def read_push(queue: str, given: Mapping[str, Any], base: PushSettings | None = None) -> PushSettings:
    """The push of a queue as somebody wrote it, over `base`. Raises what pydantic, or a command, passes on."""
    members = {} if base is None else {one.name: getattr(base, one.name) for one in fields(base)}
    for word, value in given.items():
        if word not in _READERS:
            raise refused(f"the push of {queue} has an option {shown(word)}; known are {', '.join(_READERS)}.", [word])
        member, read = _READERS[word]
        try:
            members[member] = read(value)
        except DelayqError as error:
            raise refused(f"{word} of the push of {queue}: {error.message}", [word]) from None
        except ValueError as error:  # ours, without the queue and the word
            raise refused(f"{word} of the push of {queue}: {error}.", [word]) from None
    missing = [one.name for one in fields(PushSettings) if one.default is MISSING and one.name not in members]
    if missing:
        raise refused(f"the push of {queue} has no {missing[0]}.")
    return PushSettings(**members)


def _pushes(value: Any) -> dict[str, PushSettings]:
    if not isinstance(value, Mapping):
        raise refused(f"{shown(value)} is no table of queues.")
    found = {}
    for queue, one in value.items():
        with entry(queue):
            check_queue(queue)
            if not isinstance(one, PushSettings | Mapping):
                raise refused(f"the push of {queue} is {shown(one)}; write a table with a url.")
            found[queue] = one if isinstance(one, PushSettings) else read_push(queue, one)
    return found


def _places(given: Mapping[str, PushSettings]) -> dict[str, str]:
    """For a dump."""
    return {queue: str(one) for queue, one in given.items()}


Pushes: TypeAlias = Annotated[dict[str, PushSettings], PlainValidator(ours(_pushes)), PlainSerializer(_places)]
