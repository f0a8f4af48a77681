"""Which queues a connection means, and what AWS allows of them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from delayq.core.durations import format_duration
from delayq.core.errors import ConfigError, InvalidName
from delayq.core.mask import mask_url
from delayq.core.shown import shown
from delayq.drivers.bodies import Bodies, bodies_of
from delayq.drivers.serving.given import Given
from delayq.settings.tables import ConnectionSettings

FIFO: Final = ".fifo"
BATCH: Final = 10
HOP_S: Final = 900
"""The longest DelaySeconds."""
LONGEST_HIDDEN_S: Final = 12 * 3600
"""A message can be kept from others for 12 hours after it was received, and no longer."""
HIDDEN_S: Final = LONGEST_HIDDEN_S - 60
"""What is asked for at once: some of the 12 hours have passed since."""
MAX_BYTES: Final = 1_048_576
"""What AWS takes at most since August 2025. A queue made before takes 262,144 until its owner says otherwise."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_PART: Final = re.compile(r"[A-Za-z0-9_-]{0,60}")
_SECRETS: Final = ("key", "secret", "token", "access_key", "access_key_id", "secret_access_key", "session_token")
_GROUP: Final = re.compile(r"[\x21-\x7e]{0,128}")


@dataclass(frozen=True, slots=True)
class Place:
    """What stands in the settings of a connection. Whose keys are used AWS's own rules say, and none are kept here.

    `group` is the message group of jobs that name none (header `group`); '' means the queue's name. `create`: make a
    queue that is not there. `laravel` is what a Laravel application that uses the queues calls this connection; '' =
    none does.
    """

    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    account: str | None = None
    prefix: str = ""
    suffix: str = ""
    group: str = ""
    lease_s: int = 30
    create: bool = False
    laravel: str = ""

    @property
    def bodies(self) -> Bodies:
        """What jobs are here: envelopes, or payloads of Laravel's."""
        return bodies_of(self.laravel)

    def __str__(self) -> str:
        if self.endpoint_url is not None:
            return f"SQS at {mask_url(self.endpoint_url)}"
        return f"SQS in {self.region}" if self.region else "SQS"

    def name(self, queue: str) -> str:
        """What a queue is called there. Raises `InvalidName` for what cannot be called anything."""
        base, fifo = (queue[: -len(FIFO)], FIFO) if queue.endswith(FIFO) else (queue, "")
        name = f"{self.prefix}{base}{self.suffix}"
        if not _NAME.fullmatch(name) or len(name + fifo) > 80:
            raise InvalidName(
                f"The queue {queue!r} would be called {name + fifo!r} in SQS, which cannot be.",
                hint="SQS takes up to 80 letters, digits, - and _, and .fifo at the end.",
            )
        return name + fifo

    def queue(self, name: str) -> str | None:
        """The queue that is called so there; None for one that is none of ours."""
        base, fifo = (name[: -len(FIFO)], FIFO) if name.endswith(FIFO) else (name, "")
        if not base.startswith(self.prefix) or not base.endswith(self.suffix):
            return None
        return f"{base[len(self.prefix) : len(base) - len(self.suffix)]}{fifo}" or None


def read(name: str, given: ConnectionSettings, options: Given, lease_ms: int) -> Place:
    """The settings of a connection. Raises `ConfigError` for what cannot be used; a secret is never shown."""
    for secret in _SECRETS:
        if secret in given.options:
            raise ConfigError(
                f"The connection {name!r} has an option {secret!r}; keys of AWS are not kept in settings.",
                hint="Use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the role of the machine.",
            )
    if given.place:
        raise ConfigError(f"The connection {name!r} has a url, and its driver is sqs.", hint="Call it endpoint_url.")
    longest = format_duration(min(max(1_000, lease_ms), LONGEST_HIDDEN_S * 1000))
    lease = options.duration_ms("lease", longest, least="1s")
    place = Place(
        region=options.text("region") or None,
        endpoint_url=options.text("endpoint_url") or None,
        profile=options.text("profile") or None,
        account=options.text("account") or None,
        prefix=given.prefix or "",
        suffix=options.text("suffix"),
        group=options.text("group"),
        lease_s=-(-lease // 1000),
        create=options.flag("create"),
        laravel=options.text("laravel"),
    )
    _check(name, place)
    return place


def _check(name: str, place: Place) -> None:
    for what, part in (("prefix", place.prefix), ("suffix", place.suffix)):
        if not _PART.fullmatch(part):
            raise _wrong(name, what, part, "letters, digits, - and _")
    if not _GROUP.fullmatch(place.group):
        raise _wrong(name, "group", place.group, "up to 128 printable characters without spaces")
    if place.endpoint_url is not None and not place.endpoint_url.startswith(("http://", "https://")):
        raise _wrong(name, "endpoint_url", mask_url(place.endpoint_url), "a URL such as http://127.0.0.1:4566")
    if place.lease_s > LONGEST_HIDDEN_S:
        raise _wrong(name, "lease", f"{place.lease_s}s", "12h at most")


def _wrong(name: str, option: str, value: str, wanted: str) -> ConfigError:
    return ConfigError(f"{option} of the connection {name!r} is {shown(value)}.", hint=f"Use {wanted}.")
