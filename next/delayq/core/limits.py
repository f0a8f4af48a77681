"""Limits: how many jobs may run at the same time, and how many jobs may start in a period."""

import hashlib
from collections.abc import Sequence
from typing import Final, Self

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.job_spec import check_whole_number
from delayq.core.names import check_job_name
from delayq.core.times import Duration, duration_ms

MAX_LIMIT: Final = 1_000_000
MAX_KEY_BYTES: Final = 255
MAX_RATES: Final = 10


class RateLimit(msgspec.Struct, frozen=True):
    """A rate of jobs, as a token bucket. Make one with `per_second`, `per_minute`, `per_hour`, `per_day` or `bucket`.

    Each job that starts takes a token. `most` tokens come back evenly in `per_ms` milliseconds. A full bucket has
    `burst` tokens, so up to this number of jobs can start at once after a quiet time.
    """

    most: int
    per_ms: int
    burst: int

    @classmethod
    def per_second(cls, most: int) -> Self:
        """Return a rate of `most` jobs per second. A full bucket has `most` tokens. Raises InvalidInput."""
        return cls.bucket(most, per="1s")

    @classmethod
    def per_minute(cls, most: int) -> Self:
        """Return a rate of `most` jobs per minute. A full bucket has `most` tokens. Raises InvalidInput."""
        return cls.bucket(most, per="1m")

    @classmethod
    def per_hour(cls, most: int) -> Self:
        """Return a rate of `most` jobs per hour. A full bucket has `most` tokens. Raises InvalidInput."""
        return cls.bucket(most, per="1h")

    @classmethod
    def per_day(cls, most: int) -> Self:
        """Return a rate of `most` jobs per day. A full bucket has `most` tokens. Raises InvalidInput."""
        return cls.bucket(most, per="1d")

    @classmethod
    def bucket(cls, most: int, *, per: Duration = "1m", burst: int | None = None) -> Self:
        """Return a rate of `most` jobs per duration. `burst`: number of tokens of a full bucket; None = `most`.

        Raises InvalidInput for a number below 1 or above 1,000,000, and for a duration of 0.
        """
        check_limit(most)
        per_ms = duration_ms(per, field="per")
        if per_ms < 1:
            raise InvalidInput(f"per is {shown(per)}.", hint="Use a duration of 1 ms or more.", field="per")
        size = most if burst is None else check_whole_number("burst", burst, least=1, most=MAX_LIMIT)
        return cls(most, per_ms, size)


class LimitInfo(msgspec.Struct, frozen=True):
    """A limit, and its taken places.

    * `name`: the name of the limit.
    * `granted`, `refused`: how many times a job was allowed to run, and how many times a job was refused, since the
      limit was first used.
    * `places`: for each key with taken places, the key and the number of these places; the key is '' for a limit
      without a key. If the process of a job dies, the place stays taken until it expires. At most 1,000 keys are
      listed. A limit by rate has no places.
    """

    name: str
    granted: int
    refused: int
    places: Sequence[tuple[str, int]]

    @property
    def held(self) -> int:
        """The number of taken places, for all listed keys."""
        return sum(held for _, held in self.places)


def check_limit(limit: int) -> int:
    """Return `limit` if it is a whole number from 1 to 1,000,000; raises InvalidInput otherwise."""
    return check_whole_number("limit", limit, least=1, most=MAX_LIMIT)


def check_limit_name(name: str) -> str:
    """Return `name` if it is a valid name of a limit; raises InvalidInput otherwise.

    The rules are the same as for job names. Braces are also forbidden, because the hash tags of Redis keys contain the
    name.
    """
    try:
        if not {"{", "}"} & set(check_job_name(name)):
            return name
    except InvalidInput:
        pass
    raise InvalidInput(
        f"The name {shown(name)} of a limit is not valid.",
        hint="Use 1 to 255 bytes of printable characters without white space and braces, such as mail.api.",
        field="name",
    )


def check_key(key: str) -> str:
    """Return `key` if it is a valid key of a limit; raises InvalidInput otherwise."""
    if isinstance(key, str) and is_key(key):
        return key
    raise InvalidInput(
        f"The key {shown(key)} of a limit is not valid.",
        hint=f"Use 0 to {MAX_KEY_BYTES} bytes of printable characters.",
        field="key",
    )


def is_key(key: str) -> bool:
    """Return True if `key` is a valid key of a limit."""
    return key.isprintable() and len(key.encode()) <= MAX_KEY_BYTES


def key_of_text(text: str) -> str:
    """Return a text as the key of a limit. A long text, or one with unprintable characters, becomes its SHA-1."""
    if is_key(text):
        return text
    return hashlib.sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def check_rates(rates: RateLimit | Sequence[RateLimit]) -> tuple[RateLimit, ...]:
    """Return one rate or several rates as a tuple. Raises InvalidInput for anything else, and for more than ten."""
    found = (rates,) if isinstance(rates, RateLimit) else tuple(rates) if isinstance(rates, list | tuple) else ()
    if 1 <= len(found) <= MAX_RATES and all(isinstance(rate, RateLimit) for rate in found):
        return found
    raise InvalidInput(
        f"The rate is {shown(rates)}.",
        hint=f"Use RateLimit.per_minute(60), or a list of 1 to {MAX_RATES} such rates.",
        field="rate",
    )
