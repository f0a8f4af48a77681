"""Operations on limits. `client.limits` has them."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from delayq.core.display import shown
from delayq.core.errors import InvalidInput, LimitNotFound
from delayq.core.job_spec import check_whole_number
from delayq.core.limits import LimitInfo, RateLimit, check_key, check_limit, check_limit_name, check_rates
from delayq.core.times import MAX_DURATION_MS
from delayq.redis.calls import inspect
from delayq.redis.calls import limits as calls
from delayq.redis.calls.call import Call, value_of
from delayq.redis.session import Session

T = TypeVar("T")

LIST_EVERY: Final = 60.0
"""Seconds after which a process adds its limit to the list of limits again, because the server may have lost the list.
"""


class LimitOperations:
    """Operations on limits."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._list_at: dict[str, float] = {}

    async def acquire(self, name: str, limit: int, *, holder: str, expire_ms: int, key: str = "") -> int | None:
        """Take a place of a concurrency limit. Return the end of the place in epoch ms, or None if no place is free.

        `holder`: queue and id of the job, with a space in between. A holder has at most one place. Raises InvalidInput.
        """
        call = calls.acquire_place(
            self._session.keys,
            check_limit_name(name),
            limit=check_limit(limit),
            holder=_checked_holder(holder),
            key=check_key(key),
            expire_ms=check_whole_number("expire_ms", expire_ms, least=1, most=MAX_DURATION_MS),
        )
        return (await self._ask(name, call)).expires_ms

    async def release(self, name: str, *, holder: str, expires_ms: int, key: str = "") -> bool:
        """Free a place. `expires_ms`: the answer of `acquire`. Return False if the caller no longer has the place.

        Raises InvalidInput.
        """
        ends = check_whole_number("expires_ms", expires_ms, least=0, most=2**53)
        call = calls.release_place(
            self._session.keys,
            check_limit_name(name),
            holder=_checked_holder(holder),
            key=check_key(key),
            expires_ms=ends,
        )
        return await self._session.executor.run(call)

    async def take(self, name: str, rate: RateLimit | Sequence[RateLimit], *, key: str = "") -> bool:
        """Take one token of each rate, or no token at all. Return False if no token was taken. Raises InvalidInput.

        The call is not repeated after a lost reply, and then raises OutcomeUnknown.
        """
        call = calls.acquire_rate(self._session.keys, check_limit_name(name), check_rates(rate), key=check_key(key))
        return await self._ask(name, call)

    async def list(self) -> Sequence[LimitInfo]:
        """Return all limits, sorted by name. A limit appears when a worker has asked it for the first time.

        Each LimitInfo has the places of up to 1,000 keys: of the keys whose places expire last.
        """
        session = self._session
        names = await session.executor.run(calls.list_limits(session.keys))
        return [await self._read(name) for name in names]

    async def free(self, name: str, key: str | None = None, job: str | None = None) -> int:
        """Free places of a limit, and return their number. The jobs that had the places go on running.

        `key`: only places of this key; None = of all keys, at most 1,000 in one call. `job`: only places of jobs with
        this id; None = of all jobs. Raises LimitNotFound and InvalidInput.
        """
        session = self._session
        if not await session.executor.run(calls.is_listed(session.keys, check_limit_name(name))):
            raise LimitNotFound(
                f"No limit has the name {shown(name)}.", hint="`delayq limit list` lists all limits.", field="name"
            )
        now_ms = await session.executor.run(inspect.server_time_ms())
        freed = 0
        for one in await self._keys(name, now_ms) if key is None else [check_key(key)]:
            holders = await session.executor.run(calls.read_holders(session.keys, name, one, after_ms=now_ms))
            wanted = [holder for holder in holders if job is None or holder.partition(" ")[2] == job]
            if wanted:
                freed += await session.executor.run(calls.remove_holders(session.keys, name, one, wanted))
        return freed

    async def _keys(self, name: str, now_ms: int) -> Sequence[str]:
        return await self._session.executor.run(calls.keys_in_use(self._session.keys, name, after_ms=now_ms))

    async def _read(self, name: str) -> LimitInfo:
        keys, executor = self._session.keys, self._session.executor
        now_ms = await executor.run(inspect.server_time_ms())
        granted, refused = await executor.run(calls.read_counters(keys, name))
        found = await self._keys(name, now_ms)
        counts = [calls.count_holders(keys, name, key, after_ms=now_ms) for key in found]
        held = [value_of(count) for count in await executor.run_all(counts)] if counts else []
        places = [(key, count) for key, count in zip(found, held, strict=True) if count]
        return LimitInfo(name, granted, refused, places)

    async def _ask(self, name: str, call: Call[T]) -> T:
        """Send a call. If this process has not listed the limit lately, list it in the same round trip."""
        if time.monotonic() < self._list_at.get(name, 0.0):
            return await self._session.executor.run(call)
        trip: list[Call[Any]] = [call, calls.list_limit(self._session.keys, name)]
        asked, _ = await self._session.executor.run_all(trip)
        self._list_at[name] = time.monotonic() + LIST_EVERY
        return cast(T, value_of(asked))


def _checked_holder(holder: str) -> str:
    """Return a valid holder. The rules for ids are not checked, because another program may have made the job id."""
    if isinstance(holder, str) and all(holder.partition(" ")):
        with suppress(UnicodeEncodeError):
            holder.encode()
            return holder
    raise InvalidInput(
        f"The holder of a place is {shown(holder)}, not the queue and the id of a job.",
        hint="Write the queue and the id of the job: 'orders order-42'.",
        field="holder",
    )
